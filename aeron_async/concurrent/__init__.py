"""Structures in memory that several processes share: rings, broadcasts, logs of errors and losses."""
