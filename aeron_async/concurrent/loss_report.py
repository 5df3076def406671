"""The loss report, in Aeron's layout: what each stream has lost, in the file `loss-report.dat`.

Entries begin at multiples of 64 bytes; the first observation count of 0 ends the report:

    0 observation count i64 | 8 total bytes lost i64 | 16 first observation i64, epoch ms
    24 last observation i64, epoch ms | 32 session id i32 | 36 stream id i32
    40 length of the channel i32 | 44 channel, and zeros up to a multiple of 4
    then length of the source i32 | source, `host:port`

Invariant: an entry is complete before its count is stored, so a reader never sees half a channel.
The count is stored as one word after a release fence; the totals are plain stores, because a report
has one writer, and so private memory and pure Python do as well.

The writer keeps offsets and totals to itself: what another process writes into the file cannot make
it write elsewhere. The reader expects any bytes. Channels and sources are not escaped in the file:
code that shows them must do that (`aeron_async.text.printable`).

Source: Aeron `LossReport`, `LossReportReader`, `aeron_loss_reporter.c`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.concurrent.atomic_buffer import acquire_fence, release_fence
from aeron_async.protocol.units import align

if TYPE_CHECKING:
    from collections.abc import Generator

    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = ["LOSS_REPORT_FILE", "LossReport", "ReportEntry", "StreamLoss", "read_loss_report"]

LOSS_REPORT_FILE: Final = "loss-report.dat"
ENTRY_ALIGNMENT: Final = 64
CHANNEL_OFFSET: Final = 40
"""Where the length of the channel stands, in bytes from the beginning of the entry."""
TOTAL_MAX: Final = 2**63 - 1
"""Totals stay there instead of turning negative."""

_INT_LENGTH: Final = 4
_LONG_LENGTH: Final = 8
# Distances between fields, in units of the numbers they hold.
_TOTAL_BYTES_LOST_LONG: Final = 1
_FIRST_OBSERVATION_LONG: Final = 2
_LAST_OBSERVATION_LONG: Final = 3
_SESSION_ID_INT: Final = 8
_STREAM_ID_INT: Final = 9
# What follows the observation count of an entry, up to the channel.
_REST_OF_ENTRY: Final = Struct("<3q2i")
_INT: Final = Struct("<i")


@attrs.frozen(kw_only=True)
class StreamLoss:
    """What one image of a stream has lost, as a report holds it.

    Attributes:
        observation_count: How often loss was found.
        total_bytes_lost: In bytes; what was repaired later is included.
        first_observation_ms: Epoch milliseconds.
        last_observation_ms: Epoch milliseconds.
        channel: As it was recorded: not escaped.
        source: Address of the sender, `host:port`; as it was recorded: not escaped.
    """

    observation_count: int
    total_bytes_lost: int
    first_observation_ms: int
    last_observation_ms: int
    session_id: int
    stream_id: int
    channel: str
    source: str


class ReportEntry:
    """The entry of one image; `LossReport.create_entry` makes it."""

    __slots__ = ("_bytes_lost", "_count", "_words")

    def __init__(self, words: memoryview, bytes_lost: int) -> None:
        self._words = words
        self._bytes_lost = bytes_lost
        self._count = 1

    def record_observation(self, bytes_lost: int, now_ms: int) -> None:
        """Add a loss.

        Args:
            bytes_lost: Length of the gap, in bytes.
            now_ms: Epoch milliseconds.
        """
        self._bytes_lost = min(self._bytes_lost + bytes_lost, TOTAL_MAX)
        self._count = min(self._count + 1, TOTAL_MAX)
        self._words[_LAST_OBSERVATION_LONG] = now_ms
        self._words[_TOTAL_BYTES_LOST_LONG] = self._bytes_lost
        release_fence()
        self._words[0] = self._count


class LossReport:
    """The only writer of a loss report.

    Args:
        buffer: Writable and zeroed.
    """

    def __init__(self, buffer: WriteableBuffer) -> None:
        view = memoryview(buffer).cast("B")
        self._capacity: Final = len(view) - len(view) % _LONG_LENGTH
        self._bytes = view[: self._capacity]
        self._longs = self._bytes.cast("q")
        self._next_offset = 0
        self._refused_count = 0

    def to_bytes(self) -> bytes:
        """Return a copy of what is recorded, in Aeron's layout."""
        return bytes(self._bytes[: self._next_offset])

    @property
    def refused_count(self) -> int:
        """How many entries did not fit."""
        return self._refused_count

    def create_entry(
        self,
        *,
        bytes_lost: int,
        now_ms: int,
        session_id: int,
        stream_id: int,
        channel: str,
        source: str,
    ) -> ReportEntry | None:
        """Add the entry of an image with its first loss; None, and counted, if it does not fit.

        Args:
            bytes_lost: Length of the gap, in bytes.
            now_ms: Epoch milliseconds.
            session_id: A signed number of 32 bits, as on the wire.
            stream_id: The same.
            channel: In UTF-8 no longer than the rest of the file.
            source: Address of the sender, `host:port`.
        """
        entry = b"".join(
            (
                _REST_OF_ENTRY.pack(bytes_lost, now_ms, now_ms, session_id, stream_id),
                *_with_length(channel),
                *_with_length(source),
            )
        )
        start = self._next_offset
        end = start + _LONG_LENGTH + len(entry)
        if end > self._capacity:
            self._refused_count += 1
            return None
        self._bytes[start + _LONG_LENGTH : end] = entry
        release_fence()
        word = start // _LONG_LENGTH
        self._longs[word] = 1
        self._next_offset = align(end, ENTRY_ALIGNMENT)
        return ReportEntry(self._longs[word : word + _LAST_OBSERVATION_LONG + 1], bytes_lost)


def read_loss_report(buffer: ReadableBuffer) -> Generator[StreamLoss, None, None]:
    """Yield the entries of a report of any writer, oldest first, while the writer may be at work.

    An entry whose texts do not fit into the buffer ends the report, as a count of 0 does.

    Args:
        buffer: The report; any bytes will do. No more texts are made than it has bytes for.
    """
    view = memoryview(buffer).cast("B")
    whole = view[: len(view) - len(view) % _LONG_LENGTH]
    ints, longs = whole.cast("i"), whole.cast("q")
    offset = 0
    while offset < len(whole):
        word = offset // _LONG_LENGTH
        observation_count = longs[word]
        if observation_count <= 0:
            return
        acquire_fence()
        channel = _read_text(whole, ints, offset + CHANNEL_OFFSET)
        if channel is None:
            return
        # Differs: the C reader leaves the padding of the channel out when it looks for the next
        # entry. Where that makes 64 bytes it shows an entry that nothing has written.
        source = _read_text(whole, ints, align(channel[1], _INT_LENGTH))
        if source is None:
            return
        yield StreamLoss(
            observation_count=observation_count,
            total_bytes_lost=longs[word + _TOTAL_BYTES_LOST_LONG],
            first_observation_ms=longs[word + _FIRST_OBSERVATION_LONG],
            last_observation_ms=longs[word + _LAST_OBSERVATION_LONG],
            session_id=ints[offset // _INT_LENGTH + _SESSION_ID_INT],
            stream_id=ints[offset // _INT_LENGTH + _STREAM_ID_INT],
            channel=channel[0],
            source=source[0],
        )
        offset = align(source[1], ENTRY_ALIGNMENT)


def _read_text(view: memoryview, ints: memoryview, offset: int) -> tuple[str, int] | None:
    """Return the text whose length stands at an offset, and its end; None if it does not fit."""
    start = offset + _INT_LENGTH
    if start > len(view):
        return None
    # Another process may change the length at any time, so it is read once.
    length = ints[offset // _INT_LENGTH]
    if not 0 <= length <= len(view) - start:
        return None
    end = start + length
    return view[start:end].tobytes().decode("utf-8", "replace"), end


def _with_length(text: str) -> tuple[bytes, bytes, bytes]:
    """Return the length of a text, the text, and zeros up to a multiple of 4."""
    encoded = text.encode("utf-8", "backslashreplace")
    return _INT.pack(len(encoded)), encoded, bytes(-len(encoded) % _INT_LENGTH)
