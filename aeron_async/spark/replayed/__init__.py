"""Access to recordings of a remote archive, by replay over the network.

A replay delivers what the archive's files hold, at the same positions, so a replay takes the place
of a file, and the file readers work unchanged.
"""
