"""The driver's sockets: endpoints, their transports, and channel resolution."""
