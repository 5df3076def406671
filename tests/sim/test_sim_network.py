"""Datagrams between hosts: routes, multicast, names, dice of their own, refusals."""

from __future__ import annotations

import asyncio

import pytest

from aeron_async.clock import NS_PER_MS
from aeron_async.errors import ConfigurationError, ErrorCode, RegistrationError
from aeron_async.testing.fates import Conditions
from aeron_async.testing.trace import Verdict
from aeron_async.testing.virtual_clock import run_virtual
from tests.sim.fakes import MS, make_network, opened

GROUP = ("224.20.30.39", 24_326)


def test_a_datagram_arrives_from_where_it_was_sent() -> None:
    async def main() -> None:
        network = make_network(Conditions(delay_ns=NS_PER_MS))
        alice, bob = network.add_host("10.0.0.1"), network.add_host("10.0.0.2")
        async with opened(alice) as (sending, _), opened(bob, ("10.0.0.2", 9)) as (_, listener):
            sent_ns = network.loop.now_ns
            sending.sendto(b"hello", ("10.0.0.2", 9))
            await asyncio.sleep(0.9 * MS)
            assert listener.received == []
            await asyncio.sleep(0.2 * MS)
            assert listener.received == [(b"hello", ("10.0.0.1", 32_768))]
            assert network.loop.now_ns >= sent_ns + NS_PER_MS

    run_virtual(main())


def test_nobody_has_the_address_and_nobody_hears_of_it() -> None:
    async def main() -> list[int]:
        network = make_network()
        async with opened(network.add_host("10.0.0.1")) as (sending, listener):
            sending.sendto(b"hello", ("10.9.9.9", 9))
            sending.sendto(b"hello", GROUP)
            await asyncio.sleep(1)
            assert listener.errors == []
        return network.trace.counts

    assert run_virtual(main())[Verdict.NO_ROUTE] == 2


def test_every_member_of_a_group_hears_what_is_sent_to_it() -> None:
    async def main() -> None:
        network = make_network()
        hosts = [network.add_host(f"10.0.0.{number}") for number in range(1, 5)]
        async with (
            opened(hosts[0]) as (sending, stranger),
            opened(hosts[0], GROUP) as (_, own),
            opened(hosts[1], GROUP, reuse_address=True) as (_, first),
            opened(hosts[1], GROUP, reuse_address=True) as (_, second),
            opened(hosts[2], GROUP) as (_, third),
            opened(hosts[3], (GROUP[0], GROUP[1] + 1)) as (_, another_port),
            opened(hosts[3], ("0.0.0.0", GROUP[1])) as (_, no_member),
        ):
            sending.sendto(b"all", GROUP)
            await asyncio.sleep(MS)
            assert [each.data for each in (own, first, second, third)] == [[b"all"]] * 4
            assert [each.data for each in (stranger, another_port, no_member)] == [[]] * 3
            assert third.received[0][1] == ("10.0.0.1", 32_768)

    run_virtual(main())


def test_a_member_that_closes_its_socket_is_none_any_more() -> None:
    async def main() -> list[int]:
        network = make_network()
        alice, bob = network.add_host("10.0.0.1"), network.add_host("10.0.0.2")
        async with opened(alice) as (sending, _):
            async with opened(bob, GROUP):
                assert bob.is_member(GROUP)
            assert not bob.is_member(GROUP)
            sending.sendto(b"anybody", GROUP)
        return network.trace.counts

    assert run_virtual(main())[Verdict.NO_ROUTE] == 1


def test_each_member_has_a_link_of_its_own() -> None:
    async def main() -> None:
        network = make_network(Conditions(loss=0.5))
        hosts = [network.add_host(f"10.0.0.{number}") for number in range(1, 4)]
        network.link(hosts[0], hosts[2]).set_conditions(Conditions())
        async with (
            opened(hosts[0]) as (sending, _),
            opened(hosts[1], GROUP) as (_, unlucky),
            opened(hosts[2], GROUP) as (_, lucky),
        ):
            for number in range(200):
                sending.sendto(bytes([number]), GROUP)
            await asyncio.sleep(MS)
            assert lucky.data == [bytes([number]) for number in range(200)]
            assert 60 < len(unlucky.data) < 140
            network.link(hosts[0], hosts[1]).is_up = False
            sending.sendto(b"x", GROUP)
            await asyncio.sleep(MS)
            assert lucky.data[-1] == b"x"
            assert unlucky.data[-1] != b"x"

    run_virtual(main())


def test_trouble_on_one_link_changes_nothing_on_another() -> None:
    async def main(*, is_bob_troubled: bool) -> list[bytes]:
        network = make_network(Conditions(loss=0.3, reordering=0.3))
        alice, bob, carol = [network.add_host(f"10.0.0.{number}") for number in (1, 2, 3)]
        if is_bob_troubled:
            network.link(alice, bob).set_conditions(Conditions(loss=0.9, corruption=0.5))
        async with (
            opened(alice) as (sending, _),
            opened(bob, ("10.0.0.2", 9)),
            opened(carol, ("10.0.0.3", 9)) as (_, listener),
        ):
            for number in range(100):
                sending.sendto(bytes([number]), ("10.0.0.2", 9))
                sending.sendto(bytes([number]), ("10.0.0.3", 9))
            await asyncio.sleep(1)
            return listener.data

    untroubled = run_virtual(main(is_bob_troubled=False))
    assert 40 < len(untroubled) < 95
    assert run_virtual(main(is_bob_troubled=True)) == untroubled


def test_a_connected_sender_is_told_that_nobody_listens() -> None:
    async def main() -> None:
        network = make_network(Conditions(delay_ns=NS_PER_MS))
        alice, bob = network.add_host("10.0.0.1"), network.add_host("10.0.0.2")
        async with (
            opened(alice, remote=("10.0.0.2", 9)) as (connected, told),
            opened(alice) as (unconnected, untold),
        ):
            connected.sendto(b"anybody?")
            unconnected.sendto(b"anybody?", ("10.0.0.2", 9))
            await asyncio.sleep(1.5 * MS)
            assert told.errors == []
            await asyncio.sleep(1 * MS)
            assert [type(error) for error in told.errors] == [ConnectionRefusedError]
            assert untold.errors == []
            network.link(bob, alice).is_up = False
            connected.sendto(b"anybody?")
            await asyncio.sleep(1)
            assert len(told.errors) == 1
            network.link(bob, alice).is_up = True
            connected.sendto(b"anybody?")
        await asyncio.sleep(1)
        assert len(told.errors) == 1
        assert network.trace.counts[Verdict.NO_SOCKET] == 4

    run_virtual(main())


def test_loopback_leads_to_the_host_itself_and_loses_nothing() -> None:
    async def main() -> None:
        network = make_network(Conditions(loss=1.0))
        alice = network.add_host("10.0.0.1", "fd00::1")
        async with (
            opened(alice, ("127.0.0.1", 9)) as (_, four),
            opened(alice, ("::1", 9)) as (_, six),
            opened(alice) as (sending, _),
            opened(alice, ("::", 0)) as (sending_six, _),
        ):
            sending.sendto(b"4", ("127.0.0.1", 9))
            sending_six.sendto(b"6", ("::1", 9))
            await asyncio.sleep(MS)
            assert four.received == [(b"4", ("127.0.0.1", 32_768))]
            assert six.received == [(b"6", ("::1", 32_769))]

    run_virtual(main())


def test_names_can_move() -> None:
    async def main() -> None:
        network = make_network()
        alice = network.add_host("10.0.0.1")
        network.names["bob"] = "10.0.0.2"
        assert await alice.resolve("bob", 9) == ("10.0.0.2", 9)
        network.names["bob"] = "10.0.0.3"
        assert await alice.resolve("bob", 9) == ("10.0.0.3", 9)
        assert await alice.resolve("localhost", 9) == ("127.0.0.1", 9)
        assert await alice.resolve("10.0.0.77", 9) == ("10.0.0.77", 9)
        with pytest.raises(RegistrationError, match=r"cannot resolve host 'carol': ") as caught:
            await alice.resolve("carol", 9)
        assert caught.value.code is ErrorCode.UNKNOWN_HOST

    run_virtual(main())


def test_who_misses_a_name_is_told_which_there_are_and_how_to_make_it() -> None:
    async def main() -> None:
        network = make_network()
        alice = network.add_host("10.0.0.1")
        making = r"; world\.host\('log'\) makes that host, and must come before "
        with pytest.raises(
            RegistrationError, match=f"the simulated network has no names yet{making}"
        ):
            await alice.resolve("log", 9)
        for number in range(10):
            network.names[f"host{number}"] = f"10.0.0.{number}"
        with pytest.raises(RegistrationError, match=f"has 'host0', .*, 'host7' and 2 more{making}"):
            await alice.resolve("log", 9)

    run_virtual(main())


def test_addresses_are_numeric_and_of_one_host() -> None:
    async def main() -> None:
        network = make_network()
        alice = network.add_host("10.0.0.1", "fd00::1")
        for addresses in [("bob",), ("10.0.0.1",), ("10.0.0.2", "fd00::1")]:
            with pytest.raises(ConfigurationError, match="must be numeric, and of one host only"):
                network.add_host(*addresses)
        with pytest.raises(ConfigurationError, match="a host needs an address"):
            network.add_host()
        assert network.hosts == (alice,)

    run_virtual(main())


def test_a_context_of_a_sender_does_not_travel_with_its_datagrams() -> None:
    async def main() -> int:
        network = make_network()
        alice, bob = network.add_host("10.0.0.1"), network.add_host("10.0.0.2")
        async with opened(alice) as (sending, _), opened(bob, ("10.0.0.2", 9)) as (_, listener):
            sending.sendto(b"a", ("10.0.0.2", 9))
            timers = [timer for *_, timer in network.loop._timers]
            assert all(len(timer._context) == 0 for timer in timers)  # type: ignore[attr-defined]
            await asyncio.sleep(MS)
        return len(listener.received)

    assert run_virtual(main()) == 1
