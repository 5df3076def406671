"""How each stream of a capture fared: what was sent, repaired, lost, and granted by receivers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.cli.decode_coverage import Coverage
from aeron_async.cli.decode_frames import true_text
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
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage

if TYPE_CHECKING:
    from aeron_async.cli.pcap import Datagram
    from aeron_async.protocol.data import DataHeader
    from aeron_async.protocol.datagram import ControlFrame, Frame

__all__ = ["Flow", "Receiver", "StreamTally", "Tally"]


@final
@attrs.define
class Flow:
    """What one stream sent to one destination.

    Attributes:
        frames: How many of each kind, repetitions included.
        message_count: Messages that end in frames seen, each counted once.
        payload_length: Their bytes, each counted once.
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
class Receiver:
    """What one receiver said of a stream; its windows are in bytes."""

    address: str
    status_message_count: int = 0
    elicit_count: int = 0
    end_of_stream_count: int = 0
    min_window: int | None = None
    max_window: int | None = None
    group_tag: int | None = None

    def add(self, sm: StatusMessage) -> None:
        """Take a status message in."""
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
    """One stream of a capture: its session and stream id, and everything said about it."""

    def __init__(self, session_id: int, stream_id: int) -> None:
        self.session_id: Final = session_id
        self.stream_id: Final = stream_id
        self.setup: Setup | None = None
        self.flows: dict[str, Flow] = {}
        self.receivers: dict[int, Receiver] = {}
        self.frames: Counter[str] = Counter()
        self.nak_length = 0
        self.errors: Counter[str] = Counter()
        self._base_term_id: int | None = None

    @property
    def term_length(self) -> int | None:
        """Return the length of a term in bytes, once a SETUP has told it."""
        return None if self.setup is None else self.setup.term_length

    @property
    def is_wildcard(self) -> bool:
        """Return whether this is what receivers say to no stream in particular."""
        return self.session_id == self.stream_id == 0 and not self.flows

    def position(self, term_id: int, term_offset: int) -> int | None:
        """Return a place in the stream as a position, once a SETUP has told how."""
        if self.setup is None:
            return None
        return compute_position(
            term_id,
            term_offset,
            initial_term_id=self.setup.initial_term_id,
            bits=position_bits(self.setup.term_length),
        )

    def add_data(self, header: DataHeader, kind: str, destination: str) -> bool:
        """Take a data, padding or heartbeat frame in; return whether it repeats another."""
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
        """Take any other frame in."""
        self.frames[kind] += 1
        if isinstance(frame, Setup):
            if check_setup(frame):
                self.setup = frame
        elif isinstance(frame, StatusMessage):
            self.receivers.setdefault(frame.receiver_id, Receiver(source)).add(frame)
        elif isinstance(frame, Nak):
            self.nak_length += max(0, frame.length)
        elif isinstance(frame, ErrorFrame):
            self.errors[f"{frame.error_code}: {true_text(frame.message)}"] += 1


@final
class Tally:
    """Everything in a capture.

    Attributes:
        frames: How many of each kind.
        streams: By session and stream id, in order of appearance.
    """

    def __init__(self) -> None:
        self.frames: Counter[str] = Counter()
        self.streams: dict[tuple[int, int], StreamTally] = {}

    def add(self, frame: Frame, kind: str, datagram: Datagram) -> dict[str, object]:
        """Take a frame in, and return what is known of it beyond its own fields."""
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
