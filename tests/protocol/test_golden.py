"""Frames the official driver sent, field by field, as the annotated files beside say.

Each line of a file holds bytes in hex and a comment. `name = value` is a field; `payload`,
`alignment` and `message` mark bytes that are no number.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aeron_async.protocol.data import DataHeader
from aeron_async.protocol.datagram import (
    ControlFrame,
    DataFrame,
    classify,
    encode_datagram,
    frame_type,
    frames,
)
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import FrameType
from tests.captures import read_capture

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.hex"))
GOLDEN_NAMES = [path.stem for path in GOLDEN]
ORIGIN = re.compile(r"^# Origin: (?P<capture>\S+)\.pcap, datagram (?P<number>\d+);", re.MULTILINE)


def annotated_lines(path: Path) -> list[tuple[bytes, str]]:
    lines = []
    for line in path.read_text().splitlines():
        digits, _, comment = line.partition("#")
        if digits.strip():
            lines.append((bytes.fromhex(digits), comment.strip()))
    return lines


def golden(path: Path) -> bytes:
    return b"".join(part for part, _ in annotated_lines(path))


def annotated_fields(path: Path) -> list[dict[str, int]]:
    every: list[dict[str, int]] = []
    for _, comment in annotated_lines(path):
        name, is_field, value = comment.partition(" = ")
        if name == "frame_length":
            every.append({})
        if is_field:
            every[-1][name] = int(value.split()[0], 0)
    return every


def annotated_bytes(path: Path, mark: str) -> bytes:
    return b"".join(part for part, comment in annotated_lines(path) if comment == mark)


@pytest.mark.parametrize("path", GOLDEN, ids=GOLDEN_NAMES)
def test_a_golden_frame_has_the_fields_its_annotation_names(path: Path) -> None:
    datagram = golden(path)
    expected = annotated_fields(path)
    assert expected
    values: list[DataHeader | ControlFrame] = []
    for frame in frames(datagram):
        assert isinstance(frame, DataFrame | ControlFrame)
        values.append(frame.header if isinstance(frame, DataFrame) else frame)
    assert len(values) == len(expected)
    for value, fields in zip(values, expected, strict=True):
        assert fields.pop("version") == 0
        kind = value.frame_type if isinstance(value, DataHeader) else classify(datagram)
        assert fields.pop("frame_type") == kind
        assert {name: getattr(value, name) for name in fields} == fields


@pytest.mark.parametrize("path", GOLDEN, ids=GOLDEN_NAMES)
def test_a_golden_frame_is_encoded_again_byte_for_byte(path: Path) -> None:
    datagram = golden(path)
    assert encode_datagram(frames(datagram)) == datagram


@pytest.mark.parametrize("path", GOLDEN, ids=GOLDEN_NAMES)
def test_golden_payloads_and_messages_are_those_annotated(path: Path) -> None:
    values = list(frames(golden(path)))
    payloads = [value.payload for value in values if isinstance(value, DataFrame)]
    assert b"".join(payloads) == annotated_bytes(path, "payload")
    messages = [value.message for value in values if isinstance(value, ErrorFrame)]
    assert b"".join(messages) == annotated_bytes(path, "message")


@pytest.mark.parametrize("path", GOLDEN, ids=GOLDEN_NAMES)
def test_a_golden_frame_is_where_its_origin_says(path: Path) -> None:
    origin = ORIGIN.search(path.read_text())
    assert origin is not None
    packets = list(read_capture(origin["capture"]))
    assert packets[int(origin["number"]) - 1].payload == golden(path)


def test_every_type_open_drivers_send_between_each_other_has_a_golden_frame() -> None:
    kinds = {
        frame.header.frame_type if isinstance(frame, DataFrame) else frame_type(golden(path))
        for path in GOLDEN
        for frame in frames(golden(path))
    }
    assert kinds == {
        FrameType.PAD,
        FrameType.DATA,
        FrameType.NAK,
        FrameType.SM,
        FrameType.ERR,
        FrameType.SETUP,
        FrameType.RTTM,
        FrameType.RSP_SETUP,
    }
