"""Memory without time: terms, positions, and the few loops that touch every frame.

Layouts are the official ones, over any writable buffer, anonymous or mapped from a file.
"""
