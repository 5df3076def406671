"""What an application holds: Aeron, Publication, Subscription, Image."""
