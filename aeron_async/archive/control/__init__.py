"""Control protocol of archives: its messages, its server, and its client."""
