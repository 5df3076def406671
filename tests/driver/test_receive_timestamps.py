"""The times of arrival: where they go, where there is no room, and what is left alone."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.driver.core.timestamps import ReceiveTimestamps
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.protocol.header import FrameType

if TYPE_CHECKING:
    from collections.abc import Callable

HEADER = Struct("<iBBHiiiiq")
NOW_NS = 0x1122_3344_5566_7788
MEDIA_NS = 0x1000_2000_3000_4000
BEGIN, END = 0x80, 0x40


def frame(length: int, *, flags: int = BEGIN | END, kind: int = FrameType.DATA) -> bytes:
    header = HEADER.pack(32 + length, 0, flags, kind, 0, 1, 2, 3, 0)
    return header + bytes(max(0, -(-length // 32) * 32))


def stamps(
    *, channel: int | None = None, media: int | None = None
) -> Callable[[bytes, int | None], bytes]:
    timestamps = ReceiveTimestamps(
        channel_offset=channel, media_offset=media, epoch_ns=lambda: NOW_NS
    )
    return lambda datagram, media_ns: bytes(timestamps.stamp(memoryview(datagram), media_ns))


def time_at(datagram: bytes, offset: int) -> int:
    return int.from_bytes(datagram[offset : offset + 8], "little")


def test_the_drivers_time_goes_into_the_payload() -> None:
    stamped = stamps(channel=4)(frame(12), None)
    assert time_at(stamped, 36) == NOW_NS
    assert stamped[:36] == frame(12)[:36]


def test_it_goes_into_the_reserved_value() -> None:
    stamped = stamps(channel=-8)(frame(0), None)
    assert time_at(stamped, 24) == NOW_NS
    assert stamped[:24] == frame(0)[:24]


def test_without_room_nothing_is_written() -> None:
    assert stamps(channel=4)(frame(11), None) == frame(11)
    assert stamps(channel=2**31 - 1)(frame(64), None) == frame(64)


def test_both_times_go_where_the_channel_says() -> None:
    stamped = stamps(channel=0, media=8)(frame(16), MEDIA_NS)
    assert (time_at(stamped, 32), time_at(stamped, 40)) == (NOW_NS, MEDIA_NS)


def test_where_the_system_does_not_say_the_drivers_time_stands_in() -> None:
    assert time_at(stamps(media=0)(frame(8), None), 32) == NOW_NS


def test_every_first_fragment_of_a_datagram_has_its_time() -> None:
    datagram = frame(8) + frame(40, flags=0) + frame(8, flags=BEGIN)
    stamped = stamps(channel=0)(datagram, None)
    assert [time_at(stamped, at) for at in (32, 96, 192)] == [NOW_NS, 0, NOW_NS]


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"short",
        frame(64)[:40],
        frame(-32),
        frame(-33),
        frame(64, kind=FrameType.PAD),
        frame(64, kind=FrameType.SETUP),
        frame(64, kind=FrameType.RTTM),
        frame(8, flags=END),
    ],
)
def test_what_is_no_first_fragment_stays_as_it_is(datagram: bytes) -> None:
    assert stamps(channel=0, media=8)(datagram, MEDIA_NS) == datagram


def test_what_follows_something_else_stays_as_it_is() -> None:
    datagram = frame(8) + frame(-32) + frame(8)
    stamped = stamps(channel=0)(datagram, None)
    assert [time_at(stamped, at) for at in (32, 128)] == [NOW_NS, 0]


def test_a_datagram_that_can_be_written_to_is_not_copied() -> None:
    timestamps = ReceiveTimestamps(channel_offset=0, media_offset=None, epoch_ns=lambda: NOW_NS)
    datagram = memoryview(bytearray(frame(8)))
    assert timestamps.stamp(datagram, None) is datagram
    read_only = memoryview(frame(8))
    assert timestamps.stamp(read_only, None) is not read_only


@given(st.binary(max_size=300), st.integers(-8, 64))
def test_whatever_arrives_only_payload_and_reserved_values_change(
    datagram: bytes, offset: int
) -> None:
    if -8 < offset < 0:
        offset = 0
    stamped = stamps(channel=offset)(datagram, None)
    assert len(stamped) == len(datagram)
    changed = [n for n, (old, new) in enumerate(zip(datagram, stamped, strict=True)) if old != new]
    assert not any(n % 32 < 24 for n in changed if offset == -8)
    assert not any(n < 24 for n in changed)


@pytest.mark.parametrize(
    ("query", "is_wanted"),
    [("", False), ("|channel-rcv-ts-offset=0", True), ("|media-rcv-ts-offset=reserved", True)],
)
def test_the_channel_says_what_is_wanted(query: str, is_wanted: bool) -> None:  # noqa: FBT001 - of a table
    uri = ChannelUri.parse(f"aeron:udp?endpoint=localhost:1{query}")
    timestamps = ReceiveTimestamps.of(uri, lambda: NOW_NS)
    assert (timestamps is not None) is is_wanted
