"""The driver's cores: all decisions, without tasks, sockets or clocks; time is an argument."""
