"""Bytes to values and back: every Aeron frame, the datagram walk, and channel URIs.

This floor knows no time, no randomness and no network.
"""
