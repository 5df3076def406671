"""The only sockets: endpoints, their transports, and name resolution."""
