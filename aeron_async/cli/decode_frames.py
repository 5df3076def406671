"""One frame of a capture, in words: its kind, and its fields by name."""

from __future__ import annotations

from enum import IntFlag
from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.protocol.datagram import DataFrame, OpaqueFrame
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import FrameType
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.setup import ResponseSetup, Setup
from aeron_async.protocol.status_message import StatusMessage
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aeron_async.protocol.datagram import Frame

__all__ = ["fields_of", "in_words", "kind_of", "true_text"]

_KINDS: Final[Mapping[type, str]] = {
    Setup: "SETUP",
    StatusMessage: "SM",
    Nak: "NAK",
    RttMeasurement: "RTTM",
    ErrorFrame: "ERR",
    ResponseSetup: "RSP_SETUP",
}
TRAILING: Final = "TRAILING"
# Fields that lines for people have under a shorter name, and in this order before the others.
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
    """Return what the frame is, in one word; a heartbeat is one of its own."""
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
    """Return what the frame carries, as JSON can have it; what is absent is left out."""
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
    """Return fields as a line has them: what identifies the frame first, under short names."""
    first = {short: fields[name] for name, short in _SHORT_NAMES.items() if name in fields}
    others = {name: value for name, value in fields.items() if name not in _SHORT_NAMES}
    shown = (first | others).items()
    return " ".join(f"{name}={printable(value)}" for name, value in shown)


def true_text(data: bytes) -> str:
    """Return bytes as text, with those escaped that are not UTF-8; not to be shown as it is."""
    return data.decode("utf-8", "backslashreplace")


def _flag_names(flags: int) -> Iterator[str]:
    """Yield the names of the bits that are set, and what is left of others as a number."""
    rest = int(flags)
    if isinstance(flags, IntFlag):
        for flag in type(flags):
            if flag & rest and flag.bit_count() == 1:
                yield str(flag.name)
                rest &= ~int(flag)
    if rest:
        yield hex(rest)
