"""Encoding and decoding: every Aeron frame, the walk over a datagram, and channel URIs.

This layer uses no time, no randomness and no network.
"""
