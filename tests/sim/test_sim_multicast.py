"""Multicast between simulated hosts: who joined a group at an interface hears it, and no other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from aeron_async.driver.core.udp_channel import Interface, wildcard_like
from aeron_async.driver.media.channel_resolver import find_interface, find_named_interface
from aeron_async.driver.media.sockets import WildcardPorts
from aeron_async.errors import RegistrationError
from aeron_async.testing.fates import Conditions
from aeron_async.testing.trace import Verdict
from aeron_async.testing.virtual_clock import run_virtual
from aeron_async.testing.world import World, simulate
from tests.sim.fakes import MS, make_network, opened

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    import aeron_async as aa
    from aeron_async.driver.media.transport import BoundedTransport
    from aeron_async.testing.sim_network import SimHost


GROUPS = [("224.20.30.39", 40_456), ("ff02::1:3", 40_456)]
ETH0 = 2
ETH1 = 3


def member(
    host: SimHost, group: tuple[str, int], index: int | None = None
) -> AbstractAsyncContextManager[Any]:
    interface = None if index is None else Interface(address="", index=index)
    return opened(
        host,
        wildcard_like(group, group[1]),
        group=group[0],
        interface=interface,
        reuse_address=True,
        reuse_port=True,
    )


@pytest.mark.parametrize("group", GROUPS)
def test_each_socket_hears_only_the_group_it_has_joined(group: tuple[str, int]) -> None:
    other = (f"{group[0][:-1]}5", group[1])

    async def main() -> None:
        network = make_network()
        alice = network.add_host("10.0.0.1", "fd00::1")
        bob = network.add_host("10.0.0.2", "fd00::2")
        async with (
            member(bob, group) as (_, first),
            member(bob, other) as (_, second),
            member(alice, group, ETH0) as (_, own),
            opened(bob, wildcard_like(group, group[1]), reuse_address=True) as (_, nobody),
            opened(alice, wildcard_like(group)) as (sending, _),
        ):
            sending.sendto(b"one", group)
            sending.sendto(b"two", other)
            await asyncio.sleep(MS)
            assert (first.data, second.data) == ([b"one"], [b"two"])
            assert (own.data, nobody.data) == ([b"one"], [])

    run_virtual(main())


def test_multicast_stays_on_the_network_of_its_interface() -> None:
    group = GROUPS[0]

    async def main() -> None:
        network = make_network()
        alice, bob = network.add_host("10.0.0.1", "10.1.0.1"), network.add_host("10.0.0.2")
        carol = network.add_host("10.0.0.3", "10.1.0.3")
        async with (
            member(bob, group, ETH0) as (_, on_eth0),
            member(carol, group, ETH1) as (_, on_eth1),
            opened(
                alice, ("10.1.0.1", 0), group, interface=Interface(address="10.1.0.1", index=ETH1)
            ) as (by_eth1, _),
            opened(alice, ("10.0.0.1", 0), group) as (by_eth0, _),
        ):
            by_eth1.sendto(b"second")
            by_eth0.sendto(b"first")
            await asyncio.sleep(MS)
            assert (on_eth0.data, on_eth1.data) == ([b"first"], [b"second"])
            assert on_eth1.received[0][1][0] == "10.1.0.1"

    run_virtual(main())


def test_loopback_is_a_network_of_one_host() -> None:
    group = GROUPS[0]
    loopback = Interface(address="127.0.0.1", index=0)

    async def main() -> None:
        network = make_network()
        alice, bob = network.add_host("10.0.0.1"), network.add_host("10.0.0.2")
        async with (
            opened(alice, ("0.0.0.0", group[1]), group=group[0], interface=loopback) as (_, own),
            opened(bob, ("0.0.0.0", group[1]), group=group[0], interface=loopback) as (_, other),
            opened(alice, ("127.0.0.1", 0), group, interface=loopback) as (sending, _),
        ):
            sending.sendto(b"to myself")
            await asyncio.sleep(MS)
            assert (own.data, other.data) == ([b"to myself"], [])

    run_virtual(main())


def test_a_member_that_leaves_hears_no_more() -> None:
    async def main() -> list[int]:
        network = make_network()
        alice, bob = network.add_host("10.0.0.1"), network.add_host("10.0.0.2")
        async with opened(alice) as (sending, _):
            async with member(bob, GROUPS[0]):
                assert bob.is_member(GROUPS[0])
            assert not bob.is_member(GROUPS[0])
            sending.sendto(b"anybody", GROUPS[0])
        return network.trace.counts

    assert run_virtual(main())[Verdict.NO_ROUTE] == 1


def test_a_host_has_an_interface_for_each_address_of_a_family() -> None:
    async def main() -> None:
        network = make_network()
        alice = network.add_host("10.0.0.1", "fd00::1", "10.1.0.1")
        table = await alice.interfaces()
        assert [str(each) for each in table] == [
            "lo 127.0.0.1/8",
            "lo ::1/128",
            "eth0 10.0.0.1/24",
            "eth0 fd00::1/64",
            "eth1 10.1.0.1/24",
        ]
        assert find_interface(table, "10.1.0.0", prefix_length=16).name == "eth1"
        assert find_interface(table, "::", prefix_length=0).address == "fd00::1"
        assert find_named_interface(table, "lo", is_ipv6=True).index == 1

    run_virtual(main())


def test_a_connected_socket_takes_another_peer_and_keeps_its_port() -> None:
    async def main() -> None:
        network = make_network()
        alice, bob = network.add_host("10.0.0.1"), network.add_host("10.0.0.2", "10.0.0.3")
        async with (
            opened(bob, ("10.0.0.2", 7)) as (_, old),
            opened(bob, ("10.0.0.3", 7)) as (new_end, new),
            opened(alice, remote=("10.0.0.2", 7)) as (sending, hearing),
        ):
            local = sending.get_extra_info("sockname")
            cast("BoundedTransport", sending).reconnect(("10.0.0.3", 7))
            assert sending.get_extra_info("peername") == ("10.0.0.3", 7)
            sending.sendto(b"moved")
            new_end.sendto(b"heard", local)
            await asyncio.sleep(MS)
            assert (old.received, new.received) == ([], [(b"moved", local)])
            assert hearing.data == [b"heard"]

    run_virtual(main())


def test_ports_of_a_range_are_taken_in_turn_until_there_are_none() -> None:

    async def main() -> None:
        network = make_network()
        alice = network.add_host("10.0.0.1")
        ports = WildcardPorts(40_000, 40_002)
        async with opened(alice, ("0.0.0.0", 40_001)):
            taken = []
            async with opened(alice, wildcard_ports=ports) as (one, _):
                async with opened(alice, wildcard_ports=ports) as (two, _):
                    taken = [each.get_extra_info("sockname")[1] for each in (one, two)]
                    with pytest.raises(
                        RegistrationError, match="no available ports in range 40000"
                    ):
                        async with opened(alice, wildcard_ports=ports):
                            pass
                async with opened(alice, wildcard_ports=ports) as (three, _):
                    taken.append(three.get_extra_info("sockname")[1])
            assert taken == [40_000, 40_002, 40_002]

    run_virtual(main())


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_drivers_on_several_hosts_share_a_group(loss: float) -> None:
    channel = "aeron:udp?endpoint=224.20.30.39:20121|term-length=64k"
    messages = [bytes([number % 256]) * (number % 300) for number in range(300)]

    async def read(aeron: aa.Aeron) -> list[bytes]:
        subscription = await aeron.add_subscription(channel, 1)
        return [bytes((await anext(subscription)).data) for _ in messages]

    async def main(world: World) -> list[list[bytes]]:
        alice, bob, carol = [world.host(name).aeron() for name in ("alice", "bob", "carol")]
        async with alice as sending, bob as second, carol as third:
            # The slowest of three sets the pace, so they read at one time.
            reading = [asyncio.create_task(read(each)) for each in (sending, second, third)]
            publication = await sending.add_publication(f"{channel}|fc=min,g:/3", 1)
            await publication.offer_many(messages)
            return [await each for each in reading]

    assert simulate(main, seed=5, conditions=Conditions(loss=loss)) == [messages] * 3
