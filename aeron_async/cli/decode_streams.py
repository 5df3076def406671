"""Stream summaries of a capture, and the names and fields of frames.

Everything is stored by term, because the term length is unknown until a SETUP was seen.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from enum import IntFlag
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.logbuffer.position import compute_position, position_bits
from aeron_async.protocol.datagram import DataFrame, OpaqueFrame, check_setup
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import (
    DATA_HEADER_LENGTH,
    DataFlags,
    FrameType,
    align_frame,
    wrap_int32,
)
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.setup import ResponseSetup, Setup
from aeron_async.protocol.status_message import StatusMessage
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aeron_async.cli.pcap import Datagram
    from aeron_async.protocol.data import DataHeader
    from aeron_async.protocol.datagram import ControlFrame, Frame

__all__ = [
    "Coverage",
    "Flow",
    "StreamReceiver",
    "StreamTally",
    "Tally",
    "fields_of",
    "in_words",
    "kind_of",
    "true_text",
]

_KINDS: Final[Mapping[type, str]] = {
    Setup: "SETUP",
    StatusMessage: "SM",
    Nak: "NAK",
    RttMeasurement: "RTTM",
    ErrorFrame: "ERR",
    ResponseSetup: "RSP_SETUP",
}
TRAILING: Final = "TRAILING"
# Fields that text lines show first, in this order and under a shorter name.
_SHORT_NAMES: Final[Mapping[str, str]] = {
    "session_id": "session",
    "stream_id": "stream",
    "position": "position",
    "term_id": "term",
    "active_term_id": "term",
    "consumption_term_id": "term",
    "term_offset": "offset",
    "consumption_term_offset": "offset",
    "frame_length": "length",
    "receiver_window": "window",
    "receiver_id": "receiver",
}


def kind_of(frame: Frame) -> str:
    """Return the kind of a frame in one word; heartbeats are a kind of their own."""
    if isinstance(frame, DataFrame):
        header = frame.header
        if header.frame_type is FrameType.PAD:
            return "PAD"
        if not header.is_heartbeat:
            return "DATA"
        return "HEARTBEAT_EOS" if header.is_end_of_stream else "HEARTBEAT"
    if isinstance(frame, OpaqueFrame):
        is_named = frame.frame_type >= 0
        return FrameType(frame.frame_type).name if is_named else TRAILING
    return _KINDS[type(frame)]


def fields_of(frame: Frame) -> dict[str, object]:
    """Return the fields of a frame as JSON values; absent ones are left out."""
    if isinstance(frame, OpaqueFrame):
        return {"length": len(frame.data)}
    record: Any = frame.header if isinstance(frame, DataFrame) else frame
    fields: dict[str, object] = {}
    for attribute in attrs.fields(type(record)):
        name, value = attribute.name, getattr(record, attribute.name)
        if isinstance(value, bytes):
            value = true_text(value)
        if name == "flags":
            value = "|".join(_flag_names(value))
        is_silent = value in {None, ""} or (name == "reserved_value" and not value)
        if not is_silent and name != "frame_type":
            fields[name] = value
    return fields


def in_words(fields: dict[str, object]) -> str:
    """Return fields as text: those that identify the frame first, under short names."""
    first = {short: fields[name] for name, short in _SHORT_NAMES.items() if name in fields}
    others = {name: value for name, value in fields.items() if name not in _SHORT_NAMES}
    shown = (first | others).items()
    return " ".join(f"{name}={printable(value)}" for name, value in shown)


def true_text(data: bytes) -> str:
    """Return bytes as text with invalid UTF-8 escaped; escape it further before showing it."""
    return data.decode("utf-8", "backslashreplace")


def _flag_names(flags: int) -> Iterator[str]:
    """Yield the names of the bits that are set, and unnamed bits as a number."""
    rest = int(flags)
    if isinstance(flags, IntFlag):
        for flag in type(flags):
            if flag & rest and flag.bit_count() == 1:
                yield str(flag.name)
                rest &= ~int(flag)
    if rest:
        yield hex(rest)


@final
class Ranges:
    """Ranges of offsets seen in one term, disjoint and in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> bool:
        """Add a range, and return whether its start is new."""
        before = bisect_right(self._starts, start) - 1
        is_new = before < 0 or self._ends[before] <= start
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
        return is_new

    @property
    def first(self) -> int:
        """Return the lowest offset seen."""
        return self._starts[0]

    @property
    def last(self) -> int:
        """Return the end of the highest byte seen."""
        return self._ends[-1]

    @property
    def length(self) -> int:
        """Return how many bytes were seen."""
        return sum(self._ends) - sum(self._starts)


@final
class Coverage:
    """What was seen of one stream at one destination.

    Terms are counted from any one of them, so that no positions are needed.

    Attributes:
        gap_count: Frames that came ahead of the expected one.
        gap_length: Bytes that these skipped, repaired later or not.
    """

    def __init__(self) -> None:
        self._terms: dict[int, Ranges] = {}
        self._expected: tuple[int, int] | None = None
        self.gap_count: int = 0
        self.gap_length: int = 0

    def add(self, term: int, offset: int, length: int, *, term_length: int | None) -> bool:
        """Add a frame, and return whether it was not seen before.

        Args:
            term: Count of its term.
            offset: Where it begins in the term, in bytes.
            length: Bytes that it takes in the term; 0 for a heartbeat, which only tells how far the
                stream has come.
            term_length: In bytes; None while unknown.
        """
        expected = self._expected
        if expected is not None:
            skipped = distance(expected, (term, offset), term_length)
            if skipped > 0:
                self.gap_count += 1
                self.gap_length += skipped
        end = (term, offset + length)
        if expected is None or end > expected:
            self._expected = end
        if not length:
            return False
        return self._terms.setdefault(term, Ranges()).add(offset, offset + length)

    def missing_length(self, term_length: int | None) -> int:
        """Return how many bytes between the first and the furthest were never seen."""
        if not self._terms or self._expected is None:
            return 0
        first = min(self._terms)
        start = (first, self._terms[first].first)
        span = distance(start, self._expected, term_length)
        if term_length is None:  # What is missing at the end of a term cannot be known.
            inner = [self._terms[term].last for term in self._terms if term < self._expected[0]]
            span = sum(inner) + self._expected[1] - start[1]
        return max(0, span - sum(ranges.length for ranges in self._terms.values()))


def distance(start: tuple[int, int], end: tuple[int, int], term_length: int | None) -> int:
    """Return the bytes between two places of a stream; negative if the end is before the start.

    Without a term length, only bytes that are certain count: none at the end of a term.
    """
    terms = end[0] - start[0]
    if terms == 0:
        return end[1] - start[1]
    if term_length is None:
        return end[1] if terms > 0 else -1
    return terms * term_length + end[1] - start[1]


@final
@attrs.define
class Flow:
    """Frames that one stream sent to one destination.

    Attributes:
        frames: Number of frames of each kind, repetitions included.
        message_count: Messages whose last frame was seen, each counted once.
        payload_length: Bytes of payload, each counted once.
        retransmit_count: Frames at positions that had been seen before.
    """

    frames: Counter[str] = attrs.Factory(Counter)
    message_count: int = 0
    payload_length: int = 0
    retransmit_count: int = 0
    coverage: Coverage = attrs.Factory(Coverage)
    first_position: int | None = None
    end_position: int | None = None


@final
@attrs.define
class StreamReceiver:
    """What one receiver reported about a stream; windows are in bytes."""

    address: str
    status_message_count: int = 0
    elicit_count: int = 0
    end_of_stream_count: int = 0
    min_window: int | None = None
    max_window: int | None = None
    group_tag: int | None = None

    def add(self, sm: StatusMessage) -> None:
        """Add a status message."""
        self.status_message_count += 1
        self.end_of_stream_count += sm.is_end_of_stream
        self.group_tag = sm.group_tag
        if sm.is_setup_elicit:
            self.elicit_count += 1
            return
        window = sm.receiver_window
        self.min_window = window if self.min_window is None else min(window, self.min_window)
        self.max_window = window if self.max_window is None else max(window, self.max_window)


@final
class StreamTally:
    """Frames of one stream, identified by session and stream id."""

    def __init__(self, session_id: int, stream_id: int) -> None:
        self.session_id: Final = session_id
        self.stream_id: Final = stream_id
        self.setup: Setup | None = None
        self.flows: dict[str, Flow] = {}
        self.receivers: dict[int, StreamReceiver] = {}
        self.frames: Counter[str] = Counter()
        self.nak_length: int = 0
        self.errors: Counter[str] = Counter()
        self._base_term_id: int | None = None

    @property
    def term_length(self) -> int | None:
        """Return the term length in bytes; None before a SETUP was seen."""
        return None if self.setup is None else self.setup.term_length

    @property
    def is_wildcard(self) -> bool:
        """Return whether these frames are addressed to no particular stream."""
        return self.session_id == self.stream_id == 0 and not self.flows

    def position(self, term_id: int, term_offset: int) -> int | None:
        """Return a position in the stream; None before a SETUP was seen."""
        if self.setup is None:
            return None
        return compute_position(
            term_id,
            term_offset,
            initial_term_id=self.setup.initial_term_id,
            bits=position_bits(self.setup.term_length),
        )

    def add_data(self, header: DataHeader, kind: str, destination: str) -> bool:
        """Add a data, padding or heartbeat frame; return whether it repeats another."""
        flow = self.flows.setdefault(destination, Flow())
        flow.frames[kind] += 1
        if self._base_term_id is None:
            self._base_term_id = header.term_id
        is_new = flow.coverage.add(
            wrap_int32(header.term_id - self._base_term_id),
            header.term_offset,
            align_frame(header.frame_length),
            term_length=self.term_length,
        )
        position = self.position(header.term_id, header.term_offset)
        if position is not None:
            end = position + align_frame(header.frame_length)
            flow.first_position = min(
                position, end if flow.first_position is None else flow.first_position
            )
            flow.end_position = max(end, flow.end_position or 0)
        if header.is_heartbeat:
            return False
        if not is_new:
            flow.retransmit_count += 1
        elif header.frame_type is FrameType.DATA:
            flow.message_count += bool(header.flags & DataFlags.END_FRAGMENT)
            flow.payload_length += header.frame_length - DATA_HEADER_LENGTH
        return not is_new

    def add_control(self, frame: ControlFrame, kind: str, source: str) -> None:
        """Add any other frame."""
        self.frames[kind] += 1
        if isinstance(frame, Setup):
            if check_setup(frame):
                self.setup = frame
        elif isinstance(frame, StatusMessage):
            self.receivers.setdefault(frame.receiver_id, StreamReceiver(source)).add(frame)
        elif isinstance(frame, Nak):
            self.nak_length += max(0, frame.length)
        elif isinstance(frame, ErrorFrame):
            self.errors[f"{frame.error_code}: {true_text(frame.message)}"] += 1


@final
class Tally:
    """Everything in a capture.

    Attributes:
        frames: Number of frames of each kind.
        streams: Streams by session and stream id, in order of appearance.
    """

    def __init__(self) -> None:
        self.frames: Counter[str] = Counter()
        self.streams: dict[tuple[int, int], StreamTally] = {}

    def add(self, frame: Frame, kind: str, datagram: Datagram) -> dict[str, object]:
        """Add a frame, and return what is known about it beyond its own fields."""
        self.frames[kind] += 1
        if isinstance(frame, OpaqueFrame):
            return {}
        record = frame.header if isinstance(frame, DataFrame) else frame
        key = (record.session_id, record.stream_id)
        stream = self.streams.setdefault(key, StreamTally(*key))
        known: dict[str, object] = {}
        if isinstance(frame, DataFrame):
            if stream.add_data(frame.header, kind, datagram.destination):
                known["is_retransmit"] = True
            known["position"] = stream.position(frame.header.term_id, frame.header.term_offset)
        else:
            stream.add_control(frame, kind, datagram.source)
            if isinstance(frame, Setup):
                known["position"] = stream.position(frame.active_term_id, frame.term_offset)
            elif isinstance(frame, Nak):
                known["position"] = stream.position(frame.term_id, frame.term_offset)
            elif isinstance(frame, StatusMessage) and not frame.is_setup_elicit:
                known["position"] = stream.position(
                    frame.consumption_term_id, frame.consumption_term_offset
                )
        return {name: value for name, value in known.items() if value is not None}
