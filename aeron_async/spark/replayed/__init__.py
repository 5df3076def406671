"""Recordings of an archive whose files are not here: they are replayed over the network.

What an archive replays is what its files hold, at the same positions, so a replay stands in for a
file, and whatever reads files reads that.
"""
