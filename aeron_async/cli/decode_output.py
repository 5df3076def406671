"""How what was decoded is written: as lines for people, or as JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from aeron_async.cli.decode_frames import in_words
from aeron_async.cli.figures import format_count, plural
from aeron_async.cli.output import has_colour, print_json, print_line, print_painted
from aeron_async.clock import NS_PER_SECOND
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aeron_async.cli.decode_streams import Flow, Receiver, StreamTally
    from aeron_async.cli.pcap import Datagram

__all__ = ["JsonOutput", "Output", "TextOutput"]

COLOURS: Final[Mapping[str, int]] = {
    "SETUP": 35,
    "SM": 36,
    "NAK": 31,
    "ERR": 31,
    "PAD": 90,
    "HEARTBEAT": 90,
    "HEARTBEAT_EOS": 33,
}
"""Of kinds, as terminals number them; the others keep the usual one."""
BOLD: Final = 1


class Output(Protocol):
    """How results are written."""

    def frame(
        self, datagram: Datagram, since_ns: int, kind: str, fields: dict[str, object]
    ) -> None:
        """Write one frame."""
        ...

    def stream(self, stream: StreamTally) -> None:
        """Write what became of one stream."""
        ...

    def capture(self, summary: dict[str, Any]) -> None:
        """Write what the whole capture holds."""
        ...


@final
class JsonOutput:
    """One JSON object a line."""

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
        """Write what became of one stream."""
        print_json({"type": "stream"} | summary_of(stream))

    def capture(self, summary: dict[str, Any]) -> None:
        """Write what the whole capture holds."""
        print_json({"type": "capture"} | summary)


@final
class TextOutput:
    """Lines for people; the kind of a frame is coloured on a terminal."""

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
        """Write what became of one stream."""
        setup, seen = stream.setup, stream.frames
        title = f"stream {stream.stream_id}, session {stream.session_id}"
        if stream.is_wildcard:
            title = "any stream: receivers that ask whoever sends for a SETUP"
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
        """Write what the whole capture holds."""
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

    def _receiver(self, receiver_id: int, receiver: Receiver) -> None:
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
    """Return what became of a stream, as JSON can have it."""
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
