"""A world in a bottle, for tests: virtual time, a simulated network, hosts one can break."""
