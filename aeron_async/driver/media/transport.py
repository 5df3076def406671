"""What the datagram transports share: at most one datagram waits, and no mistake passes silently.

The contract towards the protocol, whichever transport stands below:

- `connection_made` is called before `open` returns; `connection_lost` in a later turn of the loop;
- `datagram_received(data, (host, port))`: `data` is any buffer, valid only during the call;
- a datagram that cannot leave at once is kept, alone, between `pause_writing` and
  `resume_writing`; until then `sendto` raises BufferError;
- a datagram the system refused was not sent: `error_received` says so before `sendto` returns,
  unless it was the one that waited;
- an exception of the protocol goes to the loop's exception handler, and the transport goes on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from aeron_async.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["BoundedTransport", "Datagram", "Destination"]

Datagram: TypeAlias = bytes | bytearray | memoryview
Destination: TypeAlias = Any
"""A numeric (host, port), or None where the socket is connected; asyncio types it far wider."""


class BoundedTransport(asyncio.DatagramTransport):
    """A datagram transport whose write buffer is one datagram.

    Args:
        loop: The loop that runs it.
        protocol: Who is told what happens.
        extra: Answers of `get_extra_info`; a `peername` other than None means connected.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.DatagramProtocol,
        extra: Mapping[str, Any],
    ) -> None:
        super().__init__(dict(extra))
        self._loop = loop
        self._protocol = protocol
        self._is_connected = extra.get("peername") is not None
        self._is_closing = False
        # Either closing, or holding a datagram: one test on the way of every datagram sent.
        self._is_blocked = False

    def is_closing(self) -> bool:
        """Whether the transport is closed, or about to be."""
        return self._is_closing

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and high mark of the write buffer: both 0, a single datagram pauses."""
        return 0, 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Change nothing: a queue of datagrams would grow stale beside the log that can resend."""

    def _refuse(self, data: Datagram, addr: Destination) -> NoReturn:
        if self._is_closing:
            message = f"the transport is closed; {len(data)} bytes for {addr} cannot be sent"
            raise ClosedError(message)
        if self._is_blocked:
            message = "a datagram is waiting to leave; send nothing until resume_writing is called"
            raise BufferError(message)
        if not data:
            message = "an empty datagram cannot be sent: asyncio and uvloop would drop it silently"
            raise ValueError(message)
        expected = "None, the socket is connected" if self._is_connected else "given"
        message = f"the address of a datagram must be {expected}; it is {addr}"
        raise ValueError(message)

    def _tell(self, callback: Callable[..., None], *args: object) -> None:
        try:
            callback(*args)
        except Exception as error:  # noqa: BLE001 - it is reported, and no peer may stop a socket
            context = {
                "message": f"{callback.__qualname__} failed",
                "exception": error,
                "transport": self,
                "protocol": self._protocol,
            }
            self._loop.call_exception_handler(context)

    def _tell_lost(self, error: Exception | None) -> None:
        protocol, self._protocol = self._protocol, _NOBODY
        self._tell(protocol.connection_lost, error)


# Stands in after the end, so that a closed transport keeps no endpoint alive.
_NOBODY = asyncio.DatagramProtocol()
