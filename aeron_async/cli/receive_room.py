"""What a receive buffer holds: Linux counts more for a datagram than its bytes.

The figures were measured on loopback with Linux 6.18, by what a socket said it held after one
datagram. Drivers of network cards may need more, and datagrams that arrive as a batch need less.
Linux gives a socket twice the buffer that is asked for.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DOUBLED", "capacity", "charged_length", "datagram_count", "wanted_rcvbuf_length"]

DOUBLED: Final = 2
"""The buffer that Linux gives, as a multiple of the one that is asked for."""
CHARGES: Final = (
    (197, 832),
    (645, 1_280),
    (1_669, 2_304),
    (3_727, 4_352),
    (7_823, 8_448),
    (15_999, 16_640),
)
"""The longest datagram of each class, and what the system counts for one; both in bytes."""
EXTRA_LENGTH: Final = 832
"""What it counts beside the bytes of a longer one."""
KIB: Final = 1_024


def charged_length(datagram_length: int) -> int:
    """Return what a datagram takes of the buffer, in bytes."""
    for longest, charged in CHARGES:
        if datagram_length <= longest:
            return charged
    return datagram_length + EXTRA_LENGTH


def capacity(system_length: int, datagram_length: int) -> int:
    """Return how many datagrams a buffer holds.

    Args:
        system_length: The buffer as the system counts it, in bytes: twice what was asked for.
        datagram_length: In bytes.
    """
    return system_length // charged_length(datagram_length)


def datagram_count(window_length: int, datagram_length: int) -> int:
    """Return how many datagrams a sender may send within a window, the last one perhaps shorter."""
    return -(-window_length // datagram_length)


def wanted_rcvbuf_length(window_length: int, datagram_length: int) -> int:
    """Return the buffer to ask for, in bytes, so that it holds a whole window of such datagrams."""
    charged = datagram_count(window_length, datagram_length) * charged_length(datagram_length)
    return -(-charged // (DOUBLED * KIB)) * KIB
