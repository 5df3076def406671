"""Durable streams: one log over all recordings of a stream, with producers and consumers."""
