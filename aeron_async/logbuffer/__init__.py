"""Log buffers: terms, positions, and the few loops that touch every frame.

Layouts are Aeron's own, over any writable buffer: anonymous memory or a mapped file. Nothing here
uses a clock.
"""
