"""What the datagram transports share: at most one datagram waits, and no misuse passes silently.

The contract towards the protocol, for every transport:

- `connection_made` is called before `open` returns; `connection_lost` in a later turn of the loop;
- `datagram_received(data, (host, port))`: `data` is any buffer, valid only during the call;
- if the socket's `SocketSpec` says `is_timestamped`, `media_timestamp_received(epoch_ns)` precedes
  it;
- a datagram that cannot be sent at once is kept, as the only one, between `pause_writing` and
  `resume_writing`; until then `sendto` raises BufferError;
- a datagram that the system refused was not sent: `error_received` is called before `sendto`
  returns, unless it was the datagram that waited;
- `send_batch(data, segment_length, address)` sends many datagrams as `sendto` sends each, and
  `send_batches(data, segments, address)` sends several segment batches, and
  `send_to_many(data, segments, addresses)` sends them to several addresses;
- `datagrams_received(data, segment_length, (host, port))` passes one segment batch to a protocol
  that has this method, `batches_received(data, segments, (host, port))` several; a protocol without
  it gets the datagrams one by one. Both handle all datagrams before they raise an error, so the
  failure of one does not affect the others;
- `reconnect(address)` connects a connected transport to another peer: the local port stays, a
  waiting datagram goes to the new peer, and from then on no other peer is heard;
- an exception of the protocol goes to the loop's exception handler, and the transport continues.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from aeron_async.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aeron_async.driver.media.sockets import SocketAddress
    from aeron_async.logbuffer.placing import SegmentTable

__all__ = ["SLICE_COUNT", "BoundedTransport", "Datagram", "Destination"]

Datagram: TypeAlias = bytes | bytearray | memoryview
Destination: TypeAlias = Any
"""A numeric (host, port), or None on a connected socket; asyncio declares a far wider type."""

SLICE_COUNT: Final = 8
"""Datagrams of a batch that one of several addresses gets before the others get theirs.

When the socket becomes full, the later addresses miss no more than this; and one system call still
takes only about a quarter of the time for the datagrams one by one. A slice is longer where the
send buffer has room for it as often as there are addresses: then none of them misses anything.
"""


class BoundedTransport(asyncio.DatagramTransport):
    """A datagram transport whose write buffer holds one datagram.

    Args:
        loop: The loop that runs it.
        protocol: The protocol to call.
        extra: Answers of `get_extra_info`; a `peername` other than None means connected.

    Attributes:
        raw_fd: The descriptor of a connected socket to which compiled code may send; None for other
            sockets, and while nothing can be sent.
    """

    raw_fd: int | None = None

    @property
    def unconnected_fd(self) -> int | None:
        """Return the descriptor by which compiled code may send to an address; None without one."""
        return None

    def raw_address(self, address: SocketAddress) -> bytes | None:
        """Return an address in the system's format; None if it has none for compiled code."""
        del address
        return None

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.DatagramProtocol,
        extra: Mapping[str, Any],
    ) -> None:
        self._extra = dict(extra)
        super().__init__(self._extra)
        self._loop = loop
        self._protocol = protocol
        self._is_connected = extra.get("peername") is not None
        self._is_closing = False
        # Either closing, or holding a datagram: a single test for every datagram sent.
        self._is_blocked = False
        self._refused_count = 0

    def is_closing(self) -> bool:
        """Whether the transport is closed, or about to be."""
        return self._is_closing

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and high mark of the write buffer: both 0, one datagram pauses writing."""
        return 0, 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: queued datagrams would grow stale, while the log can resend their data."""

    def send_batch(self, data: memoryview, segment_length: int, addr: Destination = None) -> int:
        """Send one datagram after another; return the bytes sent, or held to be sent first.

        The batch ends early at a datagram that is held, and at one that the system refused. The
        data may be reused once this returns.

        Args:
            data: The datagrams, one after the other.
            segment_length: Length of each datagram in bytes; only the last may be shorter.
            addr: As for `sendto`, numeric.

        Raises:
            BufferError: A datagram is already waiting.
            ClosedError: The transport is closed.
            ValueError: No data, a segment length below 1, or an address on a connected socket, or
                none on another.
        """
        self._check_batch(data, segment_length, addr)
        refused_count, left_length = self._refused_count, 0
        for start in range(0, len(data), segment_length):
            datagram = data[start : start + segment_length]
            self.sendto(datagram, addr)
            if self._refused_count != refused_count:
                break
            left_length += len(datagram)
            if self._is_blocked:
                break
        return left_length

    def send_batches(
        self, data: memoryview, segments: SegmentTable, addr: Destination = None
    ) -> int:
        """Send segment batches, each as `send_batch` does; return the bytes sent, or held.

        If one batch ends early, the following ones are not sent. The data may be reused once this
        returns.

        Args:
            data: The datagrams, one after the other.
            segments: For each batch, its end in `data` and the length of its datagrams, in bytes;
                only the last datagram of a batch may be shorter.
            addr: As for `sendto`, numeric.

        Raises:
            Exception: As `send_batch`.
        """
        return self._send_batches_from(0, 0, data, segments, addr)

    def _send_batches_from(
        self, index: int, start: int, data: memoryview, segments: SegmentTable, addr: Destination
    ) -> int:
        """Send batches one by one, from `index` on; return the end of what was sent, or held."""
        for each in range(index, len(segments), 2):
            end = segments[each]
            start += self.send_batch(data[start:end], segments[each + 1], addr)
            if start < end or self._is_blocked:
                break
        return start

    def send_to_many(
        self, data: memoryview, segments: SegmentTable, addresses: Sequence[SocketAddress]
    ) -> tuple[int, int]:
        """Send segment batches to each address; return the bytes sent, and how many were missed.

        The addresses get a batch in slices by turns, until a datagram is held. Of the slice in
        which that happens, as much counts as sent as any address got. The data may be reused once
        this returns.

        Args:
            data: The datagrams, one after the other.
            segments: As for `send_batches`.
            addresses: Numeric; the socket must not be connected.

        Returns:
            The bytes that count as sent, and the datagrams of these that some address did not get,
            each counted once for each such address.

        Raises:
            Exception: As `send_batch`.
        """
        if self._is_blocked or self._is_connected:
            self._refuse(data, addresses)
        return self._send_to_many_from(0, 0, data, segments, addresses)

    def _send_to_many_from(
        self,
        index: int,
        start: int,
        data: memoryview,
        segments: SegmentTable,
        addresses: Sequence[SocketAddress],
    ) -> tuple[int, int]:
        """Send slices by turns from the batch at `index` on; return the end, and the missed."""
        missed_count = 0
        for each in range(index, len(segments), 2):
            batch_end, segment_length = min(segments[each], len(data)), segments[each + 1]
            self._check_batch(data[start:batch_end], segment_length, addresses)
            while start < batch_end:
                count = self._slice_count(batch_end - start, segment_length, addresses)
                part = data[start : min(start + count * segment_length, batch_end)]
                sent_length, missed = self._send_slice(part, segment_length, addresses, ())
                start += sent_length
                missed_count += missed
                if self._is_blocked:
                    return start, missed_count
        return start, missed_count

    def _slice_count(
        self, length: int, segment_length: int, addresses: Sequence[SocketAddress]
    ) -> int:
        """Return how many datagrams each address gets of the next `length` bytes of a batch."""
        return length // segment_length + 1 if len(addresses) == 1 else SLICE_COUNT

    def _send_slice(
        self,
        part: memoryview,
        segment_length: int,
        addresses: Sequence[SocketAddress],
        left_lengths: Sequence[int],
    ) -> tuple[int, int]:
        """Send a slice to each address; return the bytes sent, and how many were missed.

        Args:
            part: The slice.
            segment_length: Length of each datagram in bytes; only the last may be shorter.
            addresses: Those that get it.
            left_lengths: What has been sent to the first of them already, in bytes.
        """
        lengths = [*left_lengths]
        for address in addresses[len(lengths) :]:
            has_room = not self._is_blocked
            lengths.append(self.send_batch(part, segment_length, address) if has_room else 0)
        # If the socket became full, the rest is sent to all once it has room again.
        sent_length = max(lengths) if self._is_blocked else len(part)
        return sent_length, sum(
            -(-(sent_length - length) // segment_length)
            for length in lengths
            if length < sent_length
        )

    def reconnect(self, address: SocketAddress) -> None:
        """Send to another peer from now on, and receive from no other; the local port stays.

        Args:
            address: Numeric, of the same family.

        Raises:
            ClosedError: The transport is closed.
            ValueError: The transport is not connected, or the address is of the other family.
            RegistrationError: CHANNEL_ENDPOINT_ERROR; the system refused, and the peer stays.

        Source: Aeron `UdpChannelTransport.reconnect`.
        """
        if self._is_closing:
            message = f"the transport is closed; it cannot be connected to {address}"
            raise ClosedError(message)
        peer: SocketAddress | None = self.get_extra_info("peername")
        if peer is None:
            message = f"only a connected socket can change its peer to {address}; this one is not"
            raise ValueError(message)
        if (":" in peer[0]) is not (":" in address[0]):
            message = f"the peer {peer} cannot become {address}: both must be IPv4, or both IPv6"
            raise ValueError(message)
        self._connect(address)
        self._extra["peername"] = address

    def _check_batch(self, data: memoryview, segment_length: int, addr: Destination) -> None:
        if segment_length < 1:
            message = f"segment_length={segment_length} must be 1 or more bytes"
            raise ValueError(message)
        if not data:
            self._refuse(data, addr)

    @abstractmethod
    def _connect(self, address: SocketAddress) -> None:
        """Connect the socket to another peer."""

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
            self._report(callback.__qualname__, error)

    def _report(self, name: str, error: Exception) -> None:
        context = {
            "message": f"{name} failed",
            "exception": error,
            "transport": self,
            "protocol": self._protocol,
        }
        self._loop.call_exception_handler(context)

    def _tell_error(self, error: Exception) -> None:
        self._refused_count += 1
        self._tell(self._protocol.error_received, error)

    def _tell_lost(self, error: Exception | None) -> None:
        protocol, self._protocol = self._protocol, _NOBODY
        self._tell(protocol.connection_lost, error)


# Replaces the protocol after the end, so that a closed transport keeps no endpoint alive.
_NOBODY = asyncio.DatagramProtocol()
