"""Command `aeron-async decode`: the frames of a packet capture, and a summary of its streams."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - cyclopts reads annotations at run time
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, final

from aeron_async.cli.decode_streams import Tally, fields_of, in_words, kind_of
from aeron_async.cli.figures import format_count, plural
from aeron_async.cli.options import (
    Flag,  # noqa: TC001 - as above
    Int32,  # noqa: TC001 - as above
    Port,  # noqa: TC001 - as above
)
from aeron_async.cli.output import has_colour, print_json, print_line, print_painted
from aeron_async.cli.pcap import CaptureError, CaptureReader
from aeron_async.cli.runner import ExitCode
from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import ProtocolError
from aeron_async.protocol.datagram import INVALID, DataFrame, OpaqueFrame, frame_type, frames
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aeron_async.cli.decode_streams import Flow, StreamReceiver, StreamTally
    from aeron_async.cli.pcap import Datagram
    from aeron_async.protocol.datagram import Frame

__all__ = [
    "JsonOutput",
    "Output",
    "TextOutput",
    "decode",
]

COLOURS: Final[Mapping[str, int]] = {
    "SETUP": 35,
    "SM": 36,
    "NAK": 31,
    "ERR": 31,
    "PAD": 90,
    "HEARTBEAT": 90,
    "HEARTBEAT_EOS": 33,
}
"""Terminal colours of frame kinds; other kinds have the default colour."""
BOLD: Final = 1


class Output(Protocol):
    """Writer of results."""

    def frame(
        self, datagram: Datagram, since_ns: int, kind: str, fields: dict[str, object]
    ) -> None:
        """Write one frame."""
        ...

    def stream(self, stream: StreamTally) -> None:
        """Write the summary of one stream."""
        ...

    def capture(self, summary: dict[str, Any]) -> None:
        """Write the summary of the whole capture."""
        ...


@final
class JsonOutput:
    """Writes one JSON object a line."""

    def frame(
        self, datagram: Datagram, since_ns: int, kind: str, fields: dict[str, object]
    ) -> None:
        """Write one frame; the time is nanoseconds since 1970."""
        print_json(
            {
                "type": "frame",
                "timestamp_ns": datagram.timestamp_ns,
                "seconds": since_ns / NS_PER_SECOND,
                "source": datagram.source,
                "destination": datagram.destination,
                "kind": kind,
            }
            | fields
        )

    def stream(self, stream: StreamTally) -> None:
        """Write the summary of one stream."""
        print_json({"type": "stream"} | summary_of(stream))

    def capture(self, summary: dict[str, Any]) -> None:
        """Write the summary of the whole capture."""
        print_json({"type": "capture"} | summary)


@final
class TextOutput:
    """Writes lines of text; the kind of a frame is coloured on a terminal."""

    def __init__(self) -> None:
        self._has_colour = has_colour(sys.stdout)

    def frame(
        self, datagram: Datagram, since_ns: int, kind: str, fields: dict[str, object]
    ) -> None:
        """Write one frame; the time is seconds since the first datagram."""
        times = f"{since_ns / NS_PER_SECOND:11.6f}"
        print_painted(
            (f"{times}  {datagram.source} > {datagram.destination}  ", None),
            (f"{kind:<13}", self._colour(COLOURS.get(kind))),
            (f"  {in_words(fields)}", None),
        )

    def stream(self, stream: StreamTally) -> None:
        """Write the summary of one stream."""
        setup, seen = stream.setup, stream.frames
        title = f"stream {stream.stream_id}, session {stream.session_id}"
        if stream.is_wildcard:
            title = "any stream: receivers that ask any publisher for a SETUP"
        self._head(title)
        if setup is not None:
            print_line(
                f"  {plural(seen['SETUP'], 'SETUP')}: initial term {setup.initial_term_id}, terms "
                f"of {setup.term_length} bytes, mtu {setup.mtu_length}"
            )
        elif stream.flows:
            print_line("  no SETUP was seen: positions, and losses between terms, are unknown")
        for destination, flow in stream.flows.items():
            self._flow(destination, flow, stream.term_length)
        for receiver_id, receiver in stream.receivers.items():
            self._receiver(receiver_id, receiver)
        if seen["NAK"]:
            print_line(f"  {plural(seen['NAK'], 'NAK')} for {plural(stream.nak_length, 'byte')}")
        for kind, thing in (("RTTM", "round-trip measurement"), ("RSP_SETUP", "response setup")):
            if seen[kind]:
                print_line(f"  {plural(seen[kind], thing)}")
        for text, count in stream.errors.items():
            print_line(f"  {plural(count, 'error frame')}: {printable(text)}")

    def capture(self, summary: dict[str, Any]) -> None:
        """Write the summary of the whole capture."""
        self._head("capture")
        print_line(
            f"  {plural(summary['packets'], 'packet')}, of which "
            f"{format_count(summary['packets_without_udp'])} without UDP, "
            f"{format_count(summary['other_datagrams'])} not of Aeron, "
            f"{format_count(summary['malformed_datagrams'])} malformed"
        )
        shown = ", ".join(f"{kind} {format_count(n)}" for kind, n in summary["frames"].items())
        print_line(f"  frames: {shown or 'none'}")

    def _flow(self, destination: str, flow: Flow, term_length: int | None) -> None:
        frames, coverage = flow.frames, flow.coverage
        print_line(
            f"  to {destination}: {plural(flow.message_count, 'message')} of "
            f"{plural(flow.payload_length, 'byte')} in all; DATA {frames['DATA']}, PAD "
            f"{frames['PAD']}, HEARTBEAT {frames['HEARTBEAT']}, at the end "
            f"{frames['HEARTBEAT_EOS']}"
        )
        positions = ""
        if flow.first_position is not None:
            positions = f"positions {flow.first_position} to {flow.end_position}; "
        print_line(
            f"    {positions}{plural(flow.retransmit_count, 'frame')} retransmitted; "
            f"{plural(coverage.gap_count, 'gap')} seen of {plural(coverage.gap_length, 'byte')}; "
            f"{plural(coverage.missing_length(term_length), 'byte')} never seen"
        )

    def _receiver(self, receiver_id: int, receiver: StreamReceiver) -> None:
        window = "no window"
        if receiver.min_window is not None:
            window = f"window {receiver.min_window}"
        if receiver.min_window != receiver.max_window:
            window += f" to {receiver.max_window}"
        tag = "" if receiver.group_tag is None else f", group tag {receiver.group_tag}"
        print_line(
            f"  receiver {receiver_id} at {receiver.address}: "
            f"{plural(receiver.status_message_count, 'status message')}, {window}{tag}; "
            f"{receiver.elicit_count} asked for a SETUP, {receiver.end_of_stream_count} said "
            "goodbye"
        )

    def _head(self, title: str) -> None:
        print_line("")
        print_painted((title, self._colour(BOLD)))

    def _colour(self, colour: int | None) -> int | None:
        return colour if self._has_colour else None


def summary_of(stream: StreamTally) -> dict[str, Any]:
    """Return the summary of a stream as a JSON object."""
    setup, frames_seen = stream.setup, stream.frames
    return {
        "session_id": stream.session_id,
        "stream_id": stream.stream_id,
        "initial_term_id": setup and setup.initial_term_id,
        "term_length": setup and setup.term_length,
        "mtu_length": setup and setup.mtu_length,
        "setups": frames_seen["SETUP"],
        "flows": [
            {
                "destination": destination,
                "data_frames": flow.frames["DATA"],
                "pad_frames": flow.frames["PAD"],
                "heartbeats": flow.frames["HEARTBEAT"],
                "end_of_stream_heartbeats": flow.frames["HEARTBEAT_EOS"],
                "messages": flow.message_count,
                "message_bytes": flow.payload_length,
                "first_position": flow.first_position,
                "end_position": flow.end_position,
                "retransmitted_frames": flow.retransmit_count,
                "gaps": flow.coverage.gap_count,
                "gap_bytes": flow.coverage.gap_length,
                "missing_bytes": flow.coverage.missing_length(stream.term_length),
            }
            for destination, flow in stream.flows.items()
        ],
        "naks": frames_seen["NAK"],
        "nak_bytes": stream.nak_length,
        "round_trip_measurements": frames_seen["RTTM"],
        "response_setups": frames_seen["RSP_SETUP"],
        "errors": dict(stream.errors),
        "receivers": [
            {
                "receiver_id": receiver_id,
                "address": receiver.address,
                "status_messages": receiver.status_message_count,
                "elicited_setups": receiver.elicit_count,
                "end_of_stream": receiver.end_of_stream_count,
                "min_window": receiver.min_window,
                "max_window": receiver.max_window,
                "group_tag": receiver.group_tag,
            }
            for receiver_id, receiver in stream.receivers.items()
        ],
    }


def decode(
    file: Path,
    /,
    *,
    stream: Int32 | None = None,
    session: Int32 | None = None,
    port: Port | None = None,
    summary: Flag = False,
    json: Flag = False,
) -> int:
    """Show the Aeron frames of a packet capture, and a summary of each stream.

    Args:
        file: Capture of tcpdump or Wireshark, pcap or pcapng; a pipe is /dev/stdin.
        stream: Only frames of this stream id.
        session: Only frames of this session id.
        port: Only datagrams from or to this UDP port.
        summary: Only the summaries, and no frames.
        json: One JSON object a line: of "type" frame, stream, and at the end capture.
    """
    out: Output = JsonOutput() if json else TextOutput()
    selection = Selection(stream, session, port)
    with file.open("rb") as opened:
        return show(opened, str(file), selection, out, is_brief=summary)


@final
class Selection:
    """Selects datagrams and frames."""

    def __init__(self, stream_id: int | None, session_id: int | None, port: int | None) -> None:
        self._stream_id = stream_id
        self._session_id = session_id
        self._port = port

    def has_datagram(self, datagram: Datagram) -> bool:
        """Return whether a datagram is selected."""
        return self._port is None or self._port in datagram.ports

    def has_frame(self, frame: Frame) -> bool:
        """Return whether a frame is selected; one of no stream is not if a stream is given."""
        if self._stream_id is None and self._session_id is None:
            return True
        if isinstance(frame, OpaqueFrame):
            return False
        record = frame.header if isinstance(frame, DataFrame) else frame
        return self._stream_id in {None, record.stream_id} and self._session_id in {
            None,
            record.session_id,
        }


def show(
    file: BinaryIO, name: str, selection: Selection, out: Output, *, is_brief: bool
) -> ExitCode:
    """Write everything that can be read, and only then raise the error of the rest.

    Raises:
        CaptureError: The file is no capture, or ends in the middle.
    """
    reader = CaptureReader(file, name)
    tally = Tally()
    counts = {"other_datagrams": 0, "malformed_datagrams": 0}
    failure: CaptureError | None = None
    first_ns: int | None = None
    try:
        for datagram in reader:
            if not selection.has_datagram(datagram):
                continue
            if first_ns is None:
                first_ns = datagram.timestamp_ns
            for frame in checked_frames(datagram.payload, counts):
                if selection.has_frame(frame):
                    kind = kind_of(frame)
                    known = tally.add(frame, kind, datagram)
                    if not is_brief:
                        since_ns = datagram.timestamp_ns - first_ns
                        out.frame(datagram, since_ns, kind, fields_of(frame) | known)
    except CaptureError as error:
        failure = error
    for stream in tally.streams.values():
        out.stream(stream)
    packets = {"packets": reader.record_count, "packets_without_udp": reader.foreign_count}
    out.capture(packets | counts | {"frames": dict(tally.frames)})
    if failure is not None:
        raise failure
    return ExitCode.SUCCESS


def checked_frames(payload: bytes, counts: dict[str, int]) -> Iterator[Frame]:
    """Yield the frames of a datagram up to the first invalid one; count invalid datagrams."""
    if frame_type(payload) == INVALID:
        counts["other_datagrams"] += 1
        return
    try:
        yield from frames(payload)
    except ProtocolError:
        counts["malformed_datagrams"] += 1
