from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.cli.decode_streams import Coverage, Ranges, fields_of, in_words, kind_of, true_text
from aeron_async.cli.main import main
from aeron_async.protocol.data import DataHeader, encode_heartbeat
from aeron_async.protocol.datagram import DataFrame, OpaqueFrame
from aeron_async.protocol.header import DataFlags, FrameType
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage
from tests.captures import capture_names, captures_dir, captures_path, frame_counts
from tests.cli.pcaps import ethernet, ipv4, pcap, pcapng

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TERM_LENGTH = 65_536


def data(term_id: int, term_offset: int, length: int = 64, **more: Any) -> bytes:
    header = DataHeader(
        frame_length=length,
        term_offset=term_offset,
        session_id=7,
        stream_id=9,
        term_id=term_id,
        **more,
    )
    body = bytes(0 if header.frame_type is FrameType.PAD else length - 32)
    return header.encode() + body


def setup(session_id: int = 7, term_length: int = TERM_LENGTH) -> bytes:
    return Setup(
        term_offset=0,
        session_id=session_id,
        stream_id=9,
        initial_term_id=3,
        active_term_id=3,
        term_length=term_length,
        mtu_length=1_408,
    ).encode()


class Decoder:
    """Decodes captures made by hand."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._path = folder / "x.pcap"
        self._capsys = capsys

    def lines(self, *datagrams: bytes, more: tuple[str, ...] = ()) -> list[str]:
        self._path.write_bytes(pcap(*(ethernet(ipv4(datagram)) for datagram in datagrams)))
        assert main(["decode", str(self._path), *more]) == 0
        return self._capsys.readouterr().out.splitlines()

    def objects(self, *datagrams: bytes, more: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines(*datagrams, more=("--json", *more))]

    def flow(self, *datagrams: bytes) -> dict[str, Any]:
        """Return what became of the one stream there is."""
        (stream,) = [o for o in self.objects(*datagrams) if o["type"] == "stream"]
        flow: dict[str, Any] = stream["flows"][0]
        return flow


@pytest.fixture
def decoder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Decoder:
    return Decoder(tmp_path, capsys)


# The official driver's captures.


def documented_names() -> list[str]:
    """Return the captures whose streams are told of; one that will skip if there are none."""
    path = captures_path() / "facts.json"
    facts = json.loads(path.read_text()) if path.is_file() else {}
    return [name for name in capture_names() if name in facts] or ["absent"]


def decoded(name: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(["decode", "--json", str(captures_dir() / f"{name}.pcap")]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("name", capture_names())
def test_captures_hold_the_frames_they_are_documented_to_hold(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = {kind: count for kind, count in frame_counts(name).items() if count}
    objects = decoded(name, capsys)
    assert objects[-1]["frames"] == expected
    assert objects[-1]["malformed_datagrams"] == objects[-1]["other_datagrams"] == 0
    assert sum(o["type"] == "frame" for o in objects) == sum(expected.values())


@pytest.mark.parametrize("name", documented_names())
def test_streams_fared_as_they_are_documented_to_have_fared(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = json.loads((captures_dir() / "facts.json").read_text())
    objects = decoded(name, capsys)
    found = {
        (o["session_id"], o["stream_id"]): o
        for o in objects
        if o["type"] == "stream" and o["flows"]
    }
    for fact in facts[name]["streams"]:
        stream = found[fact["session_id"], fact["stream_id"]]
        for key in ("initial_term_id", "term_length"):
            assert stream[key] == fact[key]
        assert stream["mtu_length"] == fact["mtu"]
        flows = {flow["destination"]: flow for flow in stream["flows"]}
        for expected in fact["flows"]:
            flow = flows[expected["to"]]
            assert flow["data_frames"] == expected["data_frames"]
            assert flow["retransmitted_frames"] == len(expected["retransmitted"])
            assert flow["end_position"] == expected["end_position"]
            if "messages" in expected:
                assert flow["messages"] == expected["messages"]
                assert flow["message_bytes"] == expected["message_payload_bytes"]
            assert flow["missing_bytes"] == 0
        assert stream["naks"] == sum(nak["count"] for nak in fact.get("naks", []))


@pytest.mark.parametrize("name", capture_names())
def test_captures_print_for_people(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", str(captures_dir() / f"{name}.pcap")]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\nstream " in out
    assert "0 malformed" in out


# What happened to a stream.


def test_a_stream_without_misfortune(decoder: Decoder) -> None:
    flow = decoder.flow(setup(), data(3, 0), data(3, 64), encode_beat(3, 128))
    assert (flow["messages"], flow["message_bytes"], flow["heartbeats"]) == (2, 64, 1)
    assert (flow["first_position"], flow["end_position"]) == (0, 128)
    assert (flow["gaps"], flow["retransmitted_frames"], flow["missing_bytes"]) == (0, 0, 0)


def encode_beat(term_id: int, term_offset: int, *, is_end: bool = False) -> bytes:
    flags = DataFlags.UNFRAGMENTED | (DataFlags.END_OF_STREAM if is_end else DataFlags(0))
    return encode_heartbeat(
        session_id=7, stream_id=9, term_id=term_id, term_offset=term_offset, flags=flags
    )


def test_a_gap_that_is_filled_later(decoder: Decoder) -> None:
    flow = decoder.flow(setup(), data(3, 0), data(3, 128), data(3, 64), data(3, 192))
    assert (flow["gaps"], flow["gap_bytes"], flow["missing_bytes"]) == (1, 64, 0)
    assert flow["retransmitted_frames"] == 0


def test_a_gap_that_stays_and_one_that_a_heartbeat_shows(decoder: Decoder) -> None:
    flow = decoder.flow(setup(), data(3, 0), data(3, 128), encode_beat(3, 320, is_end=True))
    assert (flow["gaps"], flow["gap_bytes"], flow["missing_bytes"]) == (2, 64 + 128, 64 + 128)
    assert flow["end_of_stream_heartbeats"] == 1


def test_positions_seen_twice_are_retransmits(decoder: Decoder) -> None:
    objects = decoder.objects(setup(), data(3, 0), data(3, 64), data(3, 0))
    assert [o.get("is_retransmit", False) for o in objects[:4]] == [False, False, False, True]
    assert objects[4]["flows"][0]["retransmitted_frames"] == 1
    assert objects[4]["flows"][0]["messages"] == 2


def test_padding_fills_a_term_and_is_no_message(decoder: Decoder) -> None:
    pad = data(3, TERM_LENGTH - 640, 640, frame_type=FrameType.PAD)
    flow = decoder.flow(setup(), data(3, TERM_LENGTH - 704), pad, data(4, 0))
    assert (flow["pad_frames"], flow["messages"], flow["gaps"]) == (1, 2, 0)
    assert (flow["end_position"], flow["missing_bytes"]) == (TERM_LENGTH + 64, 0)


def test_whole_terms_may_be_missing(decoder: Decoder) -> None:
    flow = decoder.flow(setup(), data(3, 0), data(5, 64))
    assert flow["gaps"] == 1
    assert flow["gap_bytes"] == flow["missing_bytes"] == 2 * TERM_LENGTH


def test_without_a_setup_only_what_is_certain_is_told(decoder: Decoder) -> None:
    flow = decoder.flow(data(3, 64), data(3, 128), data(4, 0), data(4, 128), data(3, 0))
    assert (flow["first_position"], flow["gaps"], flow["gap_bytes"]) == (None, 1, 64)
    assert flow["missing_bytes"] == 64
    lines = decoder.lines(data(3, 64), encode_beat(3, 128))
    assert any("no SETUP was seen" in line for line in lines)


def test_a_heartbeat_alone_covers_nothing(decoder: Decoder) -> None:
    flow = decoder.flow(encode_beat(3, 128))
    assert (flow["heartbeats"], flow["missing_bytes"]) == (1, 0)


def test_fragments_are_one_message(decoder: Decoder) -> None:
    first = data(3, 0, flags=DataFlags.BEGIN_FRAGMENT)
    last = data(3, 64, flags=DataFlags.END_FRAGMENT, reserved_value=5)
    objects = decoder.objects(setup(), first + last)
    assert [o.get("reserved_value") for o in objects[1:3]] == [None, 5]
    assert (objects[3]["flows"][0]["messages"], objects[3]["flows"][0]["message_bytes"]) == (1, 64)


def test_receivers_are_told_apart(decoder: Decoder) -> None:
    def status(receiver_id: int, window: int, **more: Any) -> bytes:
        return StatusMessage(
            session_id=7,
            stream_id=9,
            consumption_term_id=3,
            receiver_window=window,
            receiver_id=receiver_id,
            **more,
        ).encode()

    frames = (setup(), status(1, 100), status(1, 200), status(2, 100, group_tag=5))
    lines = decoder.lines(*frames)
    assert any(
        "receiver 1 at 10.0.0.1:1001: 2 status messages, window 100 to 200" in line
        for line in lines
    )
    assert any("1 status message, window 100, group tag 5" in line for line in lines)


def test_a_setup_that_cannot_be_is_not_believed(decoder: Decoder) -> None:
    objects = decoder.objects(setup(term_length=5), data(3, 0))
    assert "position" not in objects[1]


def test_what_a_capture_holds_beside_aeron_is_counted(decoder: Decoder) -> None:
    late = data(3, 0) + encode_beat(3, 64)  # A heartbeat travels alone.
    objects = decoder.objects(b"GET / HTTP/1.1", late, setup())
    assert objects[-1]["other_datagrams"] == 1
    assert objects[-1]["malformed_datagrams"] == 1
    assert objects[-1]["packets"] == 3


def test_bytes_behind_a_control_frame_are_named(decoder: Decoder) -> None:
    nak = Nak(session_id=7, stream_id=9, term_id=3, term_offset=0, length=64)
    resolution = b"\x16\x00\x00\x00\x00\x00\x07\x00" + bytes(14)
    objects = decoder.objects(nak.encode() + b"more", resolution)
    assert [o["kind"] for o in objects[:3]] == ["NAK", "TRAILING", "RES"]
    assert objects[1]["length"] == 4


# What is asked for.


def test_streams_sessions_and_ports_can_be_picked(decoder: Decoder) -> None:
    frames = (setup(), setup(session_id=8), b"\x16" + bytes(5) + b"\x07" + bytes(15))
    for more, count in (
        (("--stream", "9"), 2),
        (("--session", "8"), 1),
        (("--stream", "9", "--session", "7"), 1),
        (("--stream", "10"), 0),
        (("--port", "1002"), 3),
        (("--port", "99"), 0),
    ):
        objects = decoder.objects(*frames, more=more)
        assert sum(o["type"] == "frame" for o in objects) == count, more


def test_the_summary_alone(decoder: Decoder) -> None:
    assert [o["type"] for o in decoder.objects(setup(), more=("--summary",))] == [
        "stream",
        "capture",
    ]


def test_an_empty_capture_is_fine(decoder: Decoder) -> None:
    assert decoder.lines()[-1] == "  frames: none"


def test_a_capture_of_pcapng_decodes_as_one_of_pcap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.capture"
    packet = ethernet(ipv4(setup()))
    outputs = []
    for content in (pcap(packet, fraction=250), pcapng(packet, ticks=1_000_000_250)):
        path.write_bytes(content)
        assert main(["decode", "--json", str(path)]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert '"kind": "SETUP"' in outputs[0]


@pytest.mark.parametrize("make", [pcap, pcapng])
def test_a_truncated_capture_fails_after_what_could_be_read(
    make: Callable[..., bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(make(ethernet(ipv4(setup())), ethernet(ipv4(setup())))[:-10])
    assert main(["decode", str(path)]) == 1
    captured = capsys.readouterr()
    assert "SETUP 1" in captured.out
    assert captured.err.startswith(f"error: {path} ends after")
    assert "at offset" in captured.err


@pytest.mark.parametrize("make", [pcap, pcapng])
def test_standard_input_is_read_as_it_comes(make: Callable[..., bytes]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "aeron_async", "decode", "/dev/stdin", "--json"],
        input=make(ethernet(ipv4(setup()))),
        capture_output=True,
        check=True,
    )
    assert b'"kind": "SETUP"' in done.stdout


def test_kinds_are_coloured_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap(ethernet(ipv4(setup()))))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["decode", str(path)]) == 0
    assert "\x1b[35mSETUP" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["decode", str(path)]) == 0
    assert "\x1b" not in capsys.readouterr().out


# The parts.


def test_unknown_flags_are_numbers() -> None:
    frame = DataFrame(
        DataHeader(
            frame_length=0,
            term_offset=0,
            session_id=1,
            stream_id=1,
            term_id=1,
            flags=DataFlags(0xC3),
        )
    )
    assert fields_of(frame)["flags"] == "BEGIN_FRAGMENT|END_FRAGMENT|0x3"
    nak = Nak(session_id=7, stream_id=9, term_id=3, term_offset=0, length=64, flags=2)
    assert fields_of(nak)["flags"] == "0x2"


def test_what_a_peer_writes_cannot_move_the_cursor() -> None:
    assert true_text(b"\x1b[2J\xff") == "\x1b[2J\\xff"
    assert in_words({"message": "\x1b[2J"}) == "message=\\x1b[2J"


def test_opaque_frames_have_a_kind() -> None:
    assert kind_of(OpaqueFrame(FrameType.EXT, b"")) == "EXT"


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10)), max_size=30),
)
def test_ranges_agree_with_a_set(pieces: list[tuple[int, int]]) -> None:
    ranges, seen = Ranges(), set[int]()
    for start, length in pieces:
        assert ranges.add(start, start + length) == (start not in seen)
        seen.update(range(start, start + length))
        assert ranges.length == len(seen)
        assert (ranges.first, ranges.last - 1) == (min(seen), max(seen))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7)), min_size=1, max_size=40))
def test_missing_bytes_agree_with_a_set(frames: list[tuple[int, int]]) -> None:
    coverage, seen = Coverage(), set[int]()
    for term, place in frames:
        coverage.add(term, place * 32, 32, term_length=256)
        seen.add(term * 8 + place)
    span = max(seen) - min(seen) + 1
    assert coverage.missing_length(256) == (span - len(seen)) * 32
