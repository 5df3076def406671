"""What clients of other processes write to logs and counters, checked before the driver uses it.

A client may write anything at any time to the files that it maps. Each value is read once, and used
only if an honest client can have written it; otherwise it is as if the client had written nothing.
Logs in memory have none of these checks.

Invariant: a position of a reader or of the publishers only grows, is a multiple of 32, and is not
beyond what the driver allowed to be read or written.

Source: Aeron `NetworkPublication.producerPosition`, `ReadablePosition`, which trust what they read.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar, Final

from aeron_async.counters import Counter
from aeron_async.driver.core.data_sender import StreamSender
from aeron_async.driver.core.ipc_publication import IpcPublication
from aeron_async.driver.core.network_publication import NetworkPublication
from aeron_async.driver.core.publication import SubscribablePublication
from aeron_async.errors import ProtocolError
from aeron_async.logbuffer.log_buffers import producer_position
from aeron_async.logbuffer.position import PARTITION_COUNT
from aeron_async.logbuffer.scanner import skip_own
from aeron_async.protocol.header import FRAME_ALIGNMENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.logbuffer.log_buffers import LogBuffers

__all__ = ["CheckedIpcPublication", "CheckedNetworkPublication", "CheckedPosition"]

UINT32_MASK: Final = 0xFFFF_FFFF
TERMS_AHEAD_MAX: Final = 2
"""How many terms beyond their limit publishers can claim: each one message, up to a term's end."""


class CheckedPosition(Counter):
    """How far a reader says that it has read a log.

    Args:
        counter: Where the reader says it.
        furthest: Returns how far it can have read, in bytes.
        on_forged: Called with the first value that no honest reader writes.
    """

    __slots__ = ("_accepted", "_counter", "_furthest", "_on_forged")

    def __init__(
        self,
        counter: Counter,
        furthest: Callable[[], int],
        on_forged: Callable[[int], object],
    ) -> None:
        super().__init__(counter._reader, counter.id, counter.cell)  # noqa: SLF001 - of its base class
        self._counter = counter
        self._furthest = furthest
        self._on_forged: Callable[[int], object] | None = on_forged
        self._accepted = counter.get()

    def read(self) -> tuple[int, int]:
        """Return the last position that was right, and what is stored; in bytes."""
        stored, accepted = self.cell[0], self._accepted
        if stored == accepted:
            return accepted, stored
        if accepted < stored <= self._furthest() and not stored % FRAME_ALIGNMENT:
            self._accepted = stored
            return stored, stored
        on_forged, self._on_forged = self._on_forged, None
        if on_forged is not None:
            on_forged(stored)
        return accepted, stored

    def get(self) -> int:
        """Return the last position that was right, in bytes."""
        return self.read()[0]

    def set(self, value: int) -> None:
        """Replace the position; only the driver and clients within its process call this."""
        self.cell[0] = self._accepted = value

    @property
    def is_closed(self) -> bool:
        """Whether the counter has been closed or freed."""
        return self._counter.is_closed

    def close(self) -> None:
        """Free the counter; a second call does nothing."""
        self._counter.close()


class _CheckedLog(SubscribablePublication):
    """A publication whose log is a file, so that its tails may say anything."""

    __slots__ = ()
    _known_position: int  # a slot of each class below: two bases cannot both have some

    def __init__(self, **fields: Any) -> None:
        self._known_position = producer_position(fields["log"])  # type: ignore[misc] # a slot below
        super().__init__(**fields)

    @property
    def producer_position(self) -> int:
        """Return the position up to which the publishers have claimed the log, in bytes."""
        log, known = self.log, self._known_position
        metadata, bits = log.metadata, log.position_bits
        term_count = metadata.active_term_count
        tail = metadata.tail(term_count % PARTITION_COUNT)
        is_of_term = not ((tail >> 32) - log.initial_term_id - term_count) & UINT32_MASK
        if term_count < known >> bits or not is_of_term:
            return known
        offset = min(tail & UINT32_MASK, log.term_length) & -FRAME_ALIGNMENT
        position = (term_count << bits) + offset
        if known < position <= self.publisher_limit + TERMS_AHEAD_MAX * log.term_length:
            self._known_position = position  # type: ignore[misc] # a slot below
        return self._known_position

    @property
    def rebuild_position(self) -> int:
        """Return the position up to which its log may be read: the furthest claim, in bytes."""
        return self.producer_position


class CheckedIpcPublication(_CheckedLog, IpcPublication):
    """An IPC publication whose log is a file."""

    __slots__ = ("_known_position",)


HEADER: Final = Struct("<6i")
CHECKED_LENGTH_MAX: Final = 256 * 1024
"""How much of a stream is checked, and then sent, in one turn."""


class CheckedStreamSender(StreamSender):
    """Sends only frames that say what every frame of this stream says.

    Otherwise a client could speak for another stream, to receivers that trust this driver. A client
    that changes a header after it was checked, and before the system has copied it, still can.
    """

    __slots__ = ("_checked_position", "_is_checking_in_parts")
    # A type checker would infer it again where this class assigns it.
    limit: int

    def __init__(self, log: LogBuffers, **fields: Any) -> None:
        super().__init__(log, **fields)
        self._checked_position = 0
        self._is_checking_in_parts = False

    def send_data_fast(self, now_ns: int) -> bool:
        """Send one datagram; return whether that was all there was and nothing held it back."""
        self._check(self.position + self._log.mtu_length)
        return super().send_data_fast(now_ns)

    def send_data(self, now_ns: int) -> int:
        """Send a burst of whole frames, and return when to send again.

        Raises:
            ProtocolError: A client has written a frame that is none of this stream.
        """
        limit, furthest = self.limit, self.position + CHECKED_LENGTH_MAX
        self._check(min(limit, furthest))
        end = self._checked_position
        if end < furthest or limit <= end:
            return super().send_data(now_ns)
        self.limit = end
        self._is_checking_in_parts = True
        try:
            deadline_ns = super().send_data(now_ns)
        finally:
            self.limit = limit
            self._is_checking_in_parts = False
        return now_ns if self.position >= end else deadline_ns

    def resend(self, position: int, length: int) -> int:
        """Gather a range to resend; return how many bytes of it the log still holds."""
        try:
            self._checked_end(position, min(position + length, self.position))
        except ProtocolError:
            self._rejected_naks.increment()
            return 0
        return super().resend(position, length)

    def _on_blocked(self) -> None:
        if not self._is_checking_in_parts:
            super()._on_blocked()

    def _check(self, limit: int) -> None:
        self._checked_position = self._checked_end(
            max(self._checked_position, self.position), limit
        )

    def _checked_end(self, position: int, limit: int) -> int:
        """Check the frames from a position on, and return where the last of them ends.

        Raises:
            ProtocolError: One is none of this stream.
        """
        log = self._log
        while position < limit:
            index, offset = log.place_of(position)
            end, is_wrong = skip_own(
                log.term_words[index],
                offset,
                offset + limit - position,
                session_id=log.session_id,
                stream_id=log.stream_id,
                term_id=self._term_id(position),
                mtu_length=log.mtu_length,
            )
            position += end - offset
            if is_wrong:
                raise ProtocolError(self._wrong_frame(position))
            if end < log.term_length:
                break
        return position

    def _wrong_frame(self, position: int) -> str:
        log = self._log
        index, offset = log.place_of(position)
        length, kind, *place = HEADER.unpack_from(log.terms[index], offset)
        expected = [offset, log.session_id, log.stream_id, self._term_id(position)]
        return (
            f"a frame of {length} bytes at position {position} with version and type "
            f"{kind & UINT32_MASK:#x} that says {place}, and not {expected}, as offset, "
            "session, stream and term: a client of another process has written it"
        )


class CheckedNetworkPublication(_CheckedLog, NetworkPublication):
    """A network publication whose log is a file."""

    __slots__ = ("_known_position",)
    sender_type: ClassVar[type[StreamSender]] = CheckedStreamSender
