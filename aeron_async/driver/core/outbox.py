"""Where a core puts the datagrams it wants sent: the one thing it knows of a network.

An endpoint of `driver/media` stands behind it; in tests, a list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aeron_async.protocol.header import Buffer

__all__ = ["Address", "ControlOutbox", "DataOutbox"]

Address = tuple[str, int]
"""A numeric host and a port; IPv6 without scope or flow."""


class DataOutbox(Protocol):
    """The way from a publication to its receivers."""

    def send(self, datagram: Buffer) -> bool:
        """Send to every receiver now, without copying first; False when it could not leave."""
        ...


class ControlOutbox(Protocol):
    """The way from an image back to one of its sources."""

    def send_to(self, datagram: Buffer, address: Address) -> bool:
        """Send to `address` now; False when it could not leave."""
        ...
