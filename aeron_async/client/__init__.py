"""The client: `Aeron`, and the publications, subscriptions and images that applications use."""
