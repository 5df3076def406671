"""Structures in memory that processes share: rings, broadcasts, and logs of errors and losses."""
