"""Segment batches for many addresses: compiled code and Python send the same, whatever happens.

A socket of the family AF_UNIX becomes full when its receivers do not read, and refuses an address
where nobody is, at once and on every machine. It knows no segments: a slice arrives as one message.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import sys
from array import array
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from aeron_async._speedups import send_to_many
from aeron_async.driver.media.network import Network, SystemNetwork
from aeron_async.driver.media.socket_transport import (
    ADDRESSES_MAX,
    RawAddresses,
    SocketTransport,
    decode_address,
)
from aeron_async.driver.media.sockets import SocketSpec
from aeron_async.driver.media.transport import SLICE_COUNT
from aeron_async.errors import ClosedError
from tests.by_hand import NOT_BUILT
from tests.io.recorder import LOOPBACK, Recorder, opened
from tests.io.scripted_socket import datagrams, scripted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux segments datagrams")
needs_compiled = pytest.mark.skipif(send_to_many is None, reason=NOT_BUILT)
TWINS = [
    pytest.param(False, id="python"),
    pytest.param(True, id="compiled", marks=needs_compiled),
]

DATA = memoryview(bytes(range(256)) * 300)
SO_NO_CHECK = 11
"""A socket that sends no checksums sends no segment batches either."""
NO_BROADCAST = ("255.255.255.255", 9)
"""An address to which the system sends nothing without being told that it may."""
NAMES = count()


def table(batches: Sequence[tuple[int, int]]) -> tuple[memoryview, array[int], list[bytes]]:
    """Return data, its segment table, and the datagrams in it."""
    segments, start = array("i"), 0
    expected: list[bytes] = []
    for length, segment_length in batches:
        expected += datagrams(DATA[start : start + length], segment_length)
        start += length
        segments.extend((start, segment_length))
    return DATA[:start], segments, expected


class Rig:
    """A transport over a socket of its own, and receivers that read when told to.

    Args:
        is_compiled: Which of the twins sends.
        family: Of all sockets.
        count: How many receivers there are.
        options: Options of the sender's socket, as their level, number and value.

    Attributes:
        addresses: Those of the receivers.
        missing: An address that is refused.
    """

    def __init__(
        self,
        *,
        is_compiled: bool,
        family: int = socket.AF_INET,
        count: int = 3,
        options: Sequence[tuple[int, int, int]] = (),
        is_batching: bool = True,
    ) -> None:
        self.family = family
        self._stack = ExitStack()
        sockets = [
            self._stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            for _ in range(count + 1)
        ]
        self.receivers, sender = sockets[:-1], sockets[-1]
        for each in sockets:
            each.setblocking(False)
        for each in self.receivers:
            each.bind(self._free_address())
            # Every system grants twice what it gives by itself, room for some 500 datagrams.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        for level, option, value in options:
            sender.setsockopt(level, option, value)
        self.recorder = Recorder()
        # It runs nothing: what is held stays so.
        loop = Mock(spec=asyncio.AbstractEventLoop)
        self.transport = SocketTransport(
            loop, sender, self.recorder, burst_limit=8, extra={}, is_batching=is_batching
        )
        self.transport._is_sending_many = is_compiled
        self.addresses: list[Any] = [
            name if family == socket.AF_UNIX else name[:2]
            for name in (each.getsockname() for each in self.receivers)
        ]
        self.missing: Any = NO_BROADCAST
        if family == socket.AF_UNIX:
            self.transport._is_segmenting = is_batching
            self.missing = self._free_address()
            self.addresses = [name.decode() for name in self.addresses]
            for name in (*self.addresses, self.missing):
                raw = struct.pack("=H14s", family, name.encode())
                self.transport._raw_addresses[name] = raw

    def _free_address(self) -> Any:
        if self.family == socket.AF_UNIX:
            # As long as an address of IPv4 is.
            return f"\0{os.getpid() % 10**7:07}{next(NAMES) % 10**6:06}"
        return ("127.0.0.1", 0) if self.family == socket.AF_INET else ("::1", 0)

    def read(self) -> list[list[bytes]]:
        """Return what has arrived at each of the receivers."""
        return [list(self._waiting(each)) for each in self.receivers]

    def _waiting(self, receiver: socket.socket) -> Iterator[bytes]:
        while True:
            try:
                yield receiver.recv(65_536)
            except BlockingIOError:
                return

    def close(self) -> None:
        self.transport.abort()
        self._stack.close()


@contextmanager
def rigged(**plan: Any) -> Iterator[Rig]:
    rig = Rig(**plan)
    try:
        yield rig
    finally:
        rig.close()


def outcome(
    batches: Sequence[tuple[int, int]], order: Sequence[int], **plan: Any
) -> dict[str, Any]:
    """Send batches and return all that came of it; the address behind the last is refused."""
    data, segments, _ = table(batches)
    with rigged(**plan) as rig:
        everyone = [*rig.addresses, rig.missing]
        addresses = [everyone[each % len(everyone)] for each in order]
        with capture_logs() as lines:
            sent_length, missed_count = rig.transport.send_to_many(data, segments, addresses)
        held = rig.transport._held
        return {
            "sent": sent_length,
            "missed": missed_count,
            "held": (held[0], everyone.index(held[1])) if held else None,
            "pauses": rig.recorder.pauses,
            "errors": [str(error) for error in rig.recorder.errors],
            "log": [line["event"] for line in lines],
            "received": rig.read(),
        }


BATCHES = st.lists(
    st.tuples(st.integers(1, 30), st.integers(1, 27), st.integers(0, 26)).map(
        lambda drawn: ((drawn[0] - 1) * drawn[1] + 1 + drawn[2] % drawn[1], drawn[1])
    ),
    max_size=3,
)
"""Their lengths, and those of their datagrams."""
ORDERS = st.lists(st.integers(0, 3), max_size=5)
"""Receivers as they are sent to, some of them twice; 3 is the address that is refused."""


# Both alike.


@only_linux
@needs_compiled
@given(batches=BATCHES, order=ORDERS, is_batching=st.booleans(), cuts=st.booleans())
def test_twins_send_the_same_to_receivers_that_read(
    batches: list[tuple[int, int]],
    order: list[int],
    *,
    is_batching: bool,
    cuts: bool,
) -> None:
    options = [] if cuts else [(socket.SOL_SOCKET, SO_NO_CHECK, 1)]
    plan = {"options": options, "is_batching": is_batching}
    found = outcome(batches, order, is_compiled=True, **plan)
    assert found == outcome(batches, order, is_compiled=False, **plan)
    data, _, expected = table(batches)
    assert found["sent"] == len(data)
    assert found["missed"] == len(expected) * order.count(3)
    for number, received in enumerate(found["received"]):
        # One that is sent to twice gets its slices in between.
        assert sorted(received) == sorted(expected * order.count(number))
        assert order.count(number) != 1 or received == expected


@only_linux
@needs_compiled
@given(
    batches=BATCHES,
    order=ORDERS,
    is_batching=st.booleans(),
    sndbuf_length=st.sampled_from([1, 5_000, 9_000, 20_000, 50_000]),
)
def test_twins_send_the_same_until_the_socket_is_full(
    batches: list[tuple[int, int]], order: list[int], *, is_batching: bool, sndbuf_length: int
) -> None:
    plan = {
        "options": [(socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf_length)],
        "is_batching": is_batching,
        "family": socket.AF_UNIX,
    }
    found = outcome(batches, order, is_compiled=True, **plan)
    assert found == outcome(batches, order, is_compiled=False, **plan)
    assert (found["sent"] < sum(length for length, _ in batches)) <= (found["pauses"] == ["pause"])


# What each of them does.


@only_linux
@pytest.mark.parametrize("is_compiled", TWINS)
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_more_addresses_than_one_call_takes_get_everything(
    family: int, *, is_compiled: bool
) -> None:
    data, segments, expected = table([(2_000, 100), (50, 50)])
    with rigged(is_compiled=is_compiled, family=family, count=70) as rig:
        addresses = rig.addresses
        assert rig.transport.send_to_many(data, segments, addresses) == (len(data), 0)
        assert rig.read() == [expected] * 70
        assert not rig.recorder.errors


@only_linux
@pytest.mark.parametrize("is_compiled", TWINS)
def test_the_addresses_get_slices_by_turns_and_longer_ones_where_there_is_room(
    *, is_compiled: bool
) -> None:
    data, segments, _ = table([(27 * 16, 27)])
    lengths = []
    for sndbuf_length in (8_192, 100_000):
        options = [(socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf_length)]
        plan = {"family": socket.AF_UNIX, "count": 8, "options": options}
        with rigged(is_compiled=is_compiled, **plan) as rig:
            rig.transport.send_to_many(data, segments, rig.addresses)
            lengths.append({len(received[0]) for received in rig.read()})
    assert lengths == [{27 * SLICE_COUNT}, {len(data)}]


@only_linux
@pytest.mark.parametrize("is_compiled", TWINS)
def test_one_address_gets_whole_batches(*, is_compiled: bool) -> None:
    data, segments, _ = table([(40 * 65, 40), (50, 50)])
    options = [(socket.SOL_SOCKET, socket.SO_SNDBUF, 8_192)]
    with rigged(is_compiled=is_compiled, family=socket.AF_UNIX, count=1, options=options) as rig:
        assert rig.transport.send_to_many(data, segments, rig.addresses) == (len(data), 0)
        assert list(map(len, rig.read()[0])) == [40 * 64, 40, 50]


@only_linux
@pytest.mark.parametrize("is_compiled", TWINS)
@pytest.mark.parametrize("is_batching", [False, True])
def test_when_the_socket_is_full_nobody_has_missed_more_than_a_slice(
    *, is_compiled: bool, is_batching: bool
) -> None:
    data, segments, _ = table([(27 * 64, 27)] * 3)
    options = [(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_000)]
    plan = {"family": socket.AF_UNIX, "options": options, "is_batching": is_batching}
    with rigged(is_compiled=is_compiled, **plan) as rig:
        sent_length, missed_count = rig.transport.send_to_many(data, segments, rig.addresses)
        assert rig.recorder.pauses == ["pause"]
        assert 0 < sent_length < len(data)
        got = [sum(map(len, received)) // 27 for received in rig.read()]
        assert rig.transport._held is not None
        held, address = rig.transport._held
        assert len(held) == rig.transport.get_write_buffer_size() == 27
        got[rig.addresses.index(address)] += 1
        missed = [sent_length // 27 - each for each in got]
        assert (min(missed), sum(missed)) == (0, missed_count)
        assert max(missed) <= (SLICE_COUNT if is_batching else 1)
        for error in (BufferError, ClosedError):
            with pytest.raises(error):
                rig.transport.send_to_many(data, segments, rig.addresses)
            rig.transport.abort()


@only_linux
@pytest.mark.parametrize("is_compiled", TWINS)
def test_a_system_that_does_not_segment_is_asked_once(*, is_compiled: bool) -> None:
    data, segments, expected = table([(50, 50), (1_050, 100)])
    options = [(socket.SOL_SOCKET, SO_NO_CHECK, 1)]
    with rigged(is_compiled=is_compiled, options=options) as rig:
        with capture_logs() as lines:
            for _ in range(2):
                found = rig.transport.send_to_many(data, segments, rig.addresses)
                assert found == (len(data), 0)
        assert [line["event"] for line in lines] == ["segmentation_unavailable"]
        assert rig.read() == [expected * 2] * 3
        assert not rig.recorder.errors


@only_linux
@pytest.mark.parametrize("is_compiled", TWINS)
def test_a_datagram_alone_that_is_refused_says_nothing_of_batches(*, is_compiled: bool) -> None:
    long = 65_508
    data, segments, expected = table([(300, 100), (long, long), (300, 100)])
    with rigged(is_compiled=is_compiled) as rig:
        with capture_logs() as lines:
            found = rig.transport.send_to_many(data, segments, rig.addresses)
        assert found == (len(data), 3)
        assert lines == []
        assert [error.errno for error in rig.recorder.errors if isinstance(error, OSError)] == [
            errno.EMSGSIZE
        ] * 3
        assert rig.read() == [[each for each in expected if len(each) < long]] * 3


@only_linux
@pytest.mark.parametrize("is_compiled", TWINS)
def test_a_protocol_that_closes_the_socket_on_an_error_ends_it_there(
    monkeypatch: pytest.MonkeyPatch, *, is_compiled: bool
) -> None:
    data, segments, expected = table([(1_600, 100)])
    options = [(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)]
    with rigged(is_compiled=is_compiled, options=options) as rig:
        monkeypatch.setattr(rig.recorder, "error_received", lambda _: rig.transport.close())
        addresses = [rig.addresses[0], rig.missing, rig.addresses[1]]
        found = rig.transport.send_to_many(data, segments, addresses)
        assert found == (100 * SLICE_COUNT, 2 * SLICE_COUNT)
        assert rig.read() == [expected[:SLICE_COUNT], [], []]


@only_linux
@pytest.mark.parametrize("is_compiled", TWINS)
def test_of_a_table_that_is_longer_than_the_data_goes_what_there_is(*, is_compiled: bool) -> None:
    data, segments, expected = table([(1_050, 100), (250, 100)])
    segments[2] += 1_000
    for receiver_count in (0, 1, 3):
        with rigged(is_compiled=is_compiled, count=receiver_count) as rig:
            assert rig.transport.send_to_many(data, segments, rig.addresses) == (len(data), 0)
            assert rig.read() == [expected] * receiver_count
            segments.extend((9_000, 100))
            with pytest.raises(ValueError, match="empty"):
                rig.transport.send_to_many(data, segments, rig.addresses)
            del segments[-2:]


async def test_every_transport_sends_to_many_addresses(network: Network) -> None:
    data, segments, expected = table([(1_050, 100), (50, 50), (2_000, 250)])
    spec = SocketSpec(local=LOOPBACK, is_batching=True)
    async with opened(network) as first, opened(network) as second, opened(network, spec) as sender:
        addresses = [first.address, second.address]
        assert sender.transport.send_to_many(data, segments, addresses) == (len(data), 0)
        assert sender.transport.send_to_many(data, segments, addresses[:1]) == (len(data), 0)
        await first.until(lambda: len(first.received) == 2 * len(expected))
        await second.until(lambda: len(second.received) == len(expected))
        assert (first.received, second.received) == (expected * 2, expected)
        assert not sender.errors
        assert sender.transport.send_to_many(data, segments, []) == (len(data), 0)


async def test_what_cannot_be_meant_is_refused(network: Network) -> None:
    data, segments, _ = table([(300, 100)])
    spec = SocketSpec(local=LOOPBACK, is_batching=True)
    async with opened(network) as peer:
        async with opened(network, spec) as sender:
            for wrong in ((0, 100), (300, 0), (300, -1)):
                with pytest.raises(ValueError, match=r"empty|segment_length"):
                    sender.transport.send_to_many(data, array("i", wrong), [peer.address] * 2)
            sender.transport.close()
            with pytest.raises(ClosedError):
                sender.transport.send_to_many(data, segments, [peer.address])
        async with opened(network, SocketSpec(local=LOOPBACK, remote=peer.address)) as sender:
            with pytest.raises(ValueError, match="the socket is connected"):
                sender.transport.send_to_many(data, segments, [peer.address])


async def test_a_replacement_of_a_socket_is_called_for_every_slice() -> None:
    data, segments, expected = table([(27 * 64, 27)])
    spec = SocketSpec(local=LOOPBACK, is_batching=True)
    network = SystemNetwork("socket")
    async with (
        opened(network) as first,
        opened(network) as second,
        scripted(spec) as (sender, sock),
    ):
        addresses = [first.address, second.address]
        sock.send_failures = [None, PermissionError(errno.EPERM, "Operation not permitted")]
        assert sender.transport.send_to_many(data, segments, addresses) == (len(data), 64)
        assert sock.batches == [(27, address) for address in addresses]
        await first.until(lambda: len(first.received) == 64)
        assert first.received == expected
        assert [str(error) for error in sender.errors] == ["[Errno 1] Operation not permitted"]


# Addresses.


@pytest.mark.parametrize(
    ("family", "address"),
    [
        (socket.AF_INET, ("127.0.0.1", 40_123)),
        (socket.AF_INET6, ("::1", 40_123)),
        (socket.AF_INET6, ("fe80::1%1", 1)),
    ],
)
def test_an_address_is_encoded_as_it_is_decoded(family: int, address: tuple[str, int]) -> None:
    raw = RawAddresses(family)[address]
    assert len(raw) == (16 if family == socket.AF_INET else 28)
    assert decode_address(raw) == address


def test_an_address_is_encoded_once_and_only_so_many_are_kept() -> None:
    cache = RawAddresses(socket.AF_INET)
    first = cache["127.0.0.1", 1]
    assert cache["127.0.0.1", 1] is first
    for port in range(2, ADDRESSES_MAX + 2):
        cache["127.0.0.1", port]
    assert list(cache) == [("127.0.0.1", ADDRESSES_MAX + 1)]


def test_addresses_that_have_no_place_are_not_encoded() -> None:
    for family, address in (
        (socket.AF_INET, ("::1", 1)),
        (socket.AF_INET6, ("127.0.0.1", 1)),
        (socket.AF_INET6, ("fe80::1%lo", 1)),
    ):
        cache = RawAddresses(family)
        with pytest.raises((OSError, ValueError)):
            cache[address]
        assert not cache


@only_linux
def test_an_address_of_the_other_family_is_refused_and_the_others_get_theirs() -> None:
    data, segments, expected = table([(300, 100)])
    with rigged(is_compiled=send_to_many is not None) as rig:
        addresses = [rig.addresses[0], ("::1", 9), rig.addresses[1]]
        assert rig.transport.send_to_many(data, segments, addresses) == (len(data), 3)
        assert len(rig.recorder.errors) == 1
        assert rig.read() == [expected, expected, []]
