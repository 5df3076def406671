"""The time of sending in messages: where it goes, and where it does not."""

from __future__ import annotations

import pytest

from aeron_async.driver.core.timestamps import SendTimestamps
from tests.driver.fakes import data, heartbeat, nak, pad, setup
from tests.driver.rigs import PublicationRig

NOW = 1_700_000_000_000_000_123
STAMP = NOW.to_bytes(8, "little")


def stamped(datagram: bytes, offset: int) -> bytes:
    """Return what a datagram becomes."""
    copy = bytearray(datagram)
    SendTimestamps(offset, lambda: NOW).stamp(memoryview(copy))
    return bytes(copy)


def test_the_time_goes_into_the_payload_at_its_offset() -> None:
    datagram = data(0, 96)
    assert stamped(datagram, 16) == datagram[:48] + STAMP + datagram[56:]


def test_the_time_goes_into_the_reserved_value() -> None:
    datagram = data(0, 96)
    assert stamped(datagram, -8) == datagram[:24] + STAMP + datagram[32:]


@pytest.mark.parametrize("offset", [0, 8, 24])
def test_the_time_may_fill_the_end_of_the_payload(offset: int) -> None:
    assert stamped(data(0, 32 + offset + 8), offset)[32 + offset :][:8] == STAMP


@pytest.mark.parametrize("length", [32, 33, 39, 55])
def test_a_payload_without_room_stays_as_it_is(length: int) -> None:
    datagram = data(0, length)
    assert stamped(datagram, 16) == datagram


def test_an_empty_message_has_a_reserved_value() -> None:
    assert stamped(data(0, 32), -8)[24:] == STAMP


@pytest.mark.parametrize(
    "datagram",
    [heartbeat(0), pad(0, 64), setup().encode(), nak(0, 32).encode()],
    ids=["heartbeat", "padding", "setup", "nak"],
)
def test_only_messages_carry_the_time(datagram: bytes) -> None:
    assert stamped(datagram, -8) == datagram


def test_only_the_first_message_of_a_datagram_carries_the_time() -> None:
    first, second = data(0, 64), data(64, 64)
    assert stamped(first + second, 0)[64:] == second


def test_every_sending_writes_its_own_time() -> None:
    times = iter([b"first...", b"again..."])
    rig = PublicationRig(
        timestamps=SendTimestamps(-8, lambda: int.from_bytes(next(times), "little"))
    )
    rig.connect(0)
    rig.offer(bytes(64))
    (sent,) = rig.poll(0)
    rig.hear_nak(nak(0, 96), 1)
    (resent,) = rig.outbox.take()
    assert (sent[24:32], resent[24:32]) == (b"first...", b"again...")
    assert sent[32:] == resent[32:]
