"""A connected sender whose receiver has moved: another peer, the same local port."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from aeron_async.driver.media.sockets import SocketSpec
from aeron_async.errors import ClosedError, ErrorCode, RegistrationError
from tests.io.recorder import LOOPBACK, Recorder, opened

if TYPE_CHECKING:
    from aeron_async.driver.media.network import Network
    from aeron_async.driver.media.transport import BoundedTransport


def transport_of(recorder: Recorder) -> BoundedTransport:
    return cast("BoundedTransport", recorder.transport)


async def test_a_sender_reaches_its_new_peer_from_the_old_port(network: Network) -> None:
    async with (
        opened(network) as old,
        opened(network) as new,
        opened(network, SocketSpec(local=LOOPBACK, remote=old.address)) as sender,
    ):
        transport = transport_of(sender)
        transport.sendto(b"first")
        await old.until(lambda: old.received)
        transport.reconnect(new.address)
        assert transport.get_extra_info("peername") == new.address
        transport.sendto(b"second")
        await new.until(lambda: new.received)
        assert (old.received, new.received) == ([b"first"], [b"second"])
        assert old.addresses == new.addresses == [sender.address]


async def test_a_sender_hears_its_new_peer_and_no_other(network: Network) -> None:
    async with (
        opened(network) as old,
        opened(network) as new,
        opened(network, SocketSpec(local=LOOPBACK, remote=old.address)) as sender,
    ):
        transport_of(sender).reconnect(new.address)
        old.transport.sendto(b"late", sender.address)
        new.transport.sendto(b"welcome", sender.address)
        await sender.until(lambda: sender.received)
        assert sender.received == [b"welcome"]
        assert sender.addresses == [new.address]


async def test_a_sender_bound_to_the_wildcard_address_keeps_its_port(network: Network) -> None:
    async with (
        opened(network) as old,
        opened(network) as new,
        opened(network, SocketSpec(local=("0.0.0.0", 0), remote=old.address)) as sender,
    ):
        transport_of(sender).reconnect(new.address)
        sender.transport.sendto(b"x")
        await new.until(lambda: new.received)
        assert new.addresses[0][1] == sender.address[1]


async def test_what_is_not_connected_has_no_peer_to_change(network: Network) -> None:
    async with opened(network) as lone:
        with pytest.raises(ValueError, match="only a connected socket"):
            transport_of(lone).reconnect(("127.0.0.1", 9))


async def test_a_peer_of_the_other_family_is_refused(network: Network) -> None:
    async with opened(network, SocketSpec(local=LOOPBACK, remote=("127.0.0.1", 9))) as sender:
        with pytest.raises(ValueError, match="both must be IPv4"):
            transport_of(sender).reconnect(("::1", 9))


async def test_a_closed_transport_stays_closed(network: Network) -> None:
    async with opened(network, SocketSpec(local=LOOPBACK, remote=("127.0.0.1", 9))) as sender:
        sender.transport.close()
        with pytest.raises(ClosedError, match="cannot be connected"):
            transport_of(sender).reconnect(("127.0.0.1", 10))


async def test_a_peer_that_the_system_refuses_leaves_the_old_one(network: Network) -> None:
    async with (
        opened(network) as old,
        opened(network, SocketSpec(local=LOOPBACK, remote=old.address)) as sender,
    ):
        with pytest.raises(RegistrationError, match="cannot connect to 255") as refusal:
            transport_of(sender).reconnect(("255.255.255.255", 9))
        assert refusal.value.code is ErrorCode.CHANNEL_ENDPOINT_ERROR
        assert sender.transport.get_extra_info("peername") == old.address
        sender.transport.sendto(b"still")
        await old.until(lambda: old.received)
