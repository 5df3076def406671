"""What the system of a simulated host does for its sockets, and refuses them."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.driver.media.sockets import SocketSpec
from aeron_async.errors import ClosedError, RegistrationError
from aeron_async.testing import sim_network
from aeron_async.testing.trace import Verdict
from aeron_async.testing.virtual_clock import run_virtual
from tests.sim.fakes import MS, Listener, make_network, opened

if TYPE_CHECKING:
    from collections.abc import Callable

BOB = ("10.0.0.2", 9)
SPEC = SocketSpec(local=BOB)


def run_pair(story: Callable[..., Any]) -> Any:
    """Tell a story of two hosts."""

    async def main() -> Any:
        network = make_network()
        return await story(network, network.add_host("10.0.0.1"), network.add_host("10.0.0.2"))

    return run_virtual(main())


def test_sockets_tell_where_they_are() -> None:
    async def story(network: Any, alice: Any, bob: Any) -> None:
        async with (
            opened(alice, socket_rcvbuf_length=4096) as (transport, listener),
            opened(alice, remote=BOB) as (connected, _),
        ):
            assert listener.told == ["made"]
            assert transport.get_extra_info("sockname") == ("0.0.0.0", 32_768)
            assert transport.get_extra_info("granted_rcvbuf_length") == 4096
            assert transport.get_extra_info("granted_sndbuf_length") == 212_992
            assert connected.get_extra_info("sockname") == ("10.0.0.1", 32_769)
            assert connected.get_extra_info("peername") == BOB
            assert alice.socket_count == 2
        await asyncio.sleep(MS)
        assert listener.told == ["made", "lost"]
        assert alice.socket_count == 0

    run_pair(story)


def test_a_port_is_of_one_socket_unless_shared() -> None:
    async def story(network: Any, alice: Any, bob: Any) -> None:
        ways: list[dict[str, Any]] = [{"reuse_address": True}, {"reuse_port": True}]
        for reuse in ways:
            async with opened(bob, BOB, **reuse), opened(bob, BOB, **reuse):
                with pytest.raises(RegistrationError, match=r"bind 10\.0\.0\.2:9: .* in use"):
                    await opened(bob, BOB).__aenter__()
        # It takes two to share, and in one way.
        async with opened(bob, BOB, reuse_address=True):
            with pytest.raises(RegistrationError, match="in use"):
                await opened(bob, BOB, reuse_port=True).__aenter__()
        async with opened(bob, BOB):
            with pytest.raises(RegistrationError, match="in use"):
                await opened(bob, BOB, reuse_address=True).__aenter__()
        async with opened(bob, BOB), opened(bob, (BOB[0], 10)):
            pass

    run_pair(story)


@pytest.mark.parametrize(
    ("first", "second"),
    [("0.0.0.0", BOB[0]), (BOB[0], "0.0.0.0"), ("0.0.0.0", "224.0.1.1"), ("::", "::1")],
)
def test_who_binds_to_all_addresses_binds_to_each(first: str, second: str) -> None:
    async def story(network: Any, alice: Any, bob: Any) -> None:
        async with opened(bob, (first, 9)):
            with pytest.raises(RegistrationError, match="in use"):
                await opened(bob, (second, 9)).__aenter__()
            async with opened(bob, (second, 10)):
                pass
        shared: dict[str, Any] = {"reuse_address": True}
        async with opened(bob, (first, 9), **shared), opened(bob, (second, 9), **shared):
            pass

    run_pair(story)


def test_addresses_and_families_do_not_stand_in_each_others_way() -> None:
    async def story(network: Any, alice: Any, bob: Any) -> None:
        async with opened(bob, BOB), opened(bob, ("127.0.0.1", 9)), opened(bob, ("::", 9)):
            assert bob.socket_count == 3

    run_pair(story)


def test_an_address_of_another_host_is_refused() -> None:
    async def story(network: Any, alice: Any, bob: Any) -> None:
        with pytest.raises(RegistrationError, match=r"cannot bind 10\.0\.0\.2:9: Cannot assign"):
            await opened(alice, BOB).__aenter__()

    run_pair(story)


def test_free_ports_are_found_again_after_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim_network, "EPHEMERAL_PORTS", range(100, 102))

    async def story(network: Any, alice: Any, bob: Any) -> None:
        first = await opened(alice, ("0.0.0.0", 100)).__aenter__()
        alice._next_port = 100
        second = await opened(alice).__aenter__()
        assert second[0].get_extra_info("sockname")[1] == 101
        with pytest.raises(RegistrationError, match=r"cannot bind 0\.0\.0\.0:0: .* in use"):
            await opened(alice).__aenter__()
        first[0].close()
        third = await opened(alice).__aenter__()
        assert third[0].get_extra_info("sockname")[1] == 100

    run_pair(story)


def test_sockets_can_be_refused() -> None:
    async def story(network: Any, alice: Any, bob: Any) -> None:
        alice.open_error = errno.ENOBUFS
        with pytest.raises(RegistrationError, match=r"cannot open a socket for .* buffer space"):
            await opened(alice).__aenter__()
        alice.open_error = 0
        alice.socket_limit = 1
        async with opened(alice):
            with pytest.raises(RegistrationError, match="Too many open files"):
                await opened(alice).__aenter__()
        async with opened(alice):
            pass

    run_pair(story)


def test_of_two_sockets_on_a_port_the_connected_one_hears_its_peer() -> None:
    async def story(network: Any, alice: Any, bob: Any) -> None:
        async with (
            opened(alice, ("10.0.0.1", 5)) as (friend, _),
            opened(alice, ("10.0.0.1", 6)) as (stranger, _),
            opened(bob, BOB, reuse_address=True) as (_, open_to_all),
            opened(bob, BOB, ("10.0.0.1", 5), reuse_address=True) as (_, connected),
        ):
            friend.sendto(b"friend", BOB)
            stranger.sendto(b"stranger", BOB)
            await asyncio.sleep(MS)
            assert connected.data == [b"friend"]
            assert open_to_all.data == [b"stranger"]

    run_pair(story)


def test_a_connected_socket_refuses_strangers() -> None:
    async def story(network: Any, alice: Any, bob: Any) -> None:
        async with (
            opened(alice, ("10.0.0.1", 6), remote=BOB) as (stranger, told),
            opened(bob, BOB, ("10.0.0.1", 5)) as (_, connected),
        ):
            stranger.sendto(b"stranger")
            await asyncio.sleep(MS)
            assert connected.data == []
            assert [type(each) for each in told.errors] == [ConnectionRefusedError]
            assert network.trace.counts[Verdict.NOT_THE_PEER] == 1

    run_pair(story)


def test_a_full_receive_buffer_drops() -> None:
    async def story(network: Any, alice: Any, bob: Any) -> None:
        async with (
            opened(alice) as (sending, _),
            opened(bob, BOB, socket_rcvbuf_length=250) as (_, listener),
        ):
            bob.pause()
            for number in range(4):
                sending.sendto(bytes([number]) * 100, BOB)
            await asyncio.sleep(1)
            assert listener.data == []
            bob.resume()
            await asyncio.sleep(MS)
            assert [data[0] for data in listener.data] == [0, 1]
            assert network.trace.counts[Verdict.BUFFER_FULL] == 2

    run_pair(story)


def test_who_is_paused_between_arrival_and_reading_does_not_read() -> None:
    async def story(network: Any, alice: Any, bob: Any) -> None:
        async with opened(bob, BOB) as (transport, listener):
            arrived = transport.arrive(b"now", ("10.0.0.1", 5))  # type: ignore[attr-defined]
            assert arrived is None
            bob.pause()
            await asyncio.sleep(MS)
            assert listener.data == []
            bob.resume()
            await asyncio.sleep(MS)
            assert listener.data == [b"now"]

    run_pair(story)


def test_many_datagrams_are_read_in_several_turns() -> None:
    async def story(network: Any, alice: Any, bob: Any) -> None:
        async with opened(alice) as (sending, _), opened(bob, BOB) as (_, listener):
            bob.pause()
            for number in range(150):
                sending.sendto(bytes([number]), BOB)
            await asyncio.sleep(1)
            bob.resume()
            await asyncio.sleep(0)
            assert len(listener.data) == 64
            await asyncio.sleep(MS)
            assert len(listener.data) == 150

    run_pair(story)


def test_a_host_without_power_sends_and_hears_nothing() -> None:
    async def story(network: Any, alice: Any, bob: Any) -> None:
        async with (
            opened(alice) as (sending, deaf),
            opened(bob, BOB) as (answering, listener),
        ):
            alice.is_cut = True
            sending.sendto(b"a", BOB)
            answering.sendto(b"b", ("10.0.0.1", 32_768))
            await asyncio.sleep(MS)
            assert listener.data == deaf.data == []

    run_pair(story)


def test_errors_of_sending_are_told_at_once() -> None:
    async def story(network: Any, alice: Any, bob: Any) -> None:
        async with opened(alice) as (sending, told), opened(bob, BOB) as (_, listener):
            alice.send_errors = {errno.EPERM: 1.0}
            sending.sendto(b"a", BOB)
            alice.send_errors = {errno.EPERM: 0.0}
            sending.sendto(b"b", BOB)
            sending.sendto(bytes(65_508), BOB)
            assert [getattr(each, "errno", 0) for each in told.errors] == [
                errno.EPERM,
                errno.EMSGSIZE,
            ]
            await asyncio.sleep(MS)
            assert listener.data == [b"b"]

    run_pair(story)


def test_a_socket_without_room_keeps_one_datagram() -> None:
    async def story(network: Any, alice: Any, bob: Any) -> None:
        async with opened(alice) as (sending, told), opened(bob, BOB) as (_, listener):
            alice.send_errors = {errno.EAGAIN: 1.0}
            sending.sendto(b"first", BOB)
            assert sending.get_write_buffer_size() == 5  # type: ignore[attr-defined]
            with pytest.raises(BufferError, match="a datagram is waiting"):
                sending.sendto(b"second", BOB)
            alice.send_errors = {}
            await asyncio.sleep(MS)
            assert sending.get_write_buffer_size() == 0  # type: ignore[attr-defined]
            assert told.told == ["made", "paused", "resumed"]
            sending.sendto(b"third", BOB)
            await asyncio.sleep(MS)
            assert listener.data == [b"first", b"third"]

    run_pair(story)


@pytest.mark.parametrize("end", ["close", "abort", "close, then abort"])
def test_closing_lets_the_waiting_datagram_leave_and_aborting_does_not(end: str) -> None:
    async def story(network: Any, alice: Any, bob: Any) -> list[bytes]:
        async with opened(alice) as (sending, told), opened(bob, BOB) as (_, listener):
            alice.send_errors = {errno.EAGAIN: 1.0}
            sending.sendto(b"last", BOB)
            for deed in end.split(", then "):
                getattr(sending, deed)()
            with pytest.raises(ClosedError):
                sending.sendto(b"more", BOB)
            await asyncio.sleep(MS)
            assert told.told[-1] == "lost"
            assert told.told.count("lost") == 1
            return listener.data

    assert run_pair(story) == ([b"last"] if end == "close" else [])


def test_what_has_arrived_is_forgotten_when_the_socket_closes() -> None:
    class Closer(Listener):
        transport: asyncio.DatagramTransport

        def datagram_received(self, data: Any, addr: Any) -> None:
            super().datagram_received(data, addr)
            self.transport.close()

    async def story(network: Any, alice: Any, bob: Any) -> list[bytes]:
        closer = Closer()
        async with opened(alice) as (sending, _):
            closer.transport = await bob.open(lambda: closer, SPEC)
            bob.pause()
            for number in range(3):
                sending.sendto(bytes([number]), BOB)
            await asyncio.sleep(MS)
            bob.resume()
            await asyncio.sleep(MS)
        closer.transport.refuse(OSError())  # type: ignore[attr-defined]
        await asyncio.sleep(MS)
        assert closer.errors == []
        return closer.data

    assert run_pair(story) == [b"\0"]


def test_who_keeps_a_slice_of_what_it_was_lent_is_found_out() -> None:
    class Keeper(Listener):
        kept: memoryview

        def datagram_received(self, data: Any, addr: Any) -> None:
            self.kept = data[1:]

    async def story(network: Any, alice: Any, bob: Any) -> list[Any]:
        errors: list[Any] = []
        network.loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
        transport = await bob.open(Keeper, SPEC)
        async with opened(alice) as (sending, _):
            sending.sendto(b"mine", BOB)
            await asyncio.sleep(MS)
        transport.close()
        return errors

    (error,) = run_pair(story)
    assert isinstance(error, BufferError)


def test_forgetting_a_socket_twice_changes_nothing() -> None:
    async def story(network: Any, alice: Any, bob: Any) -> None:
        async with opened(alice, ("10.0.0.1", 5)) as (transport, _):
            alice.forget(transport)
            alice.forget(transport)
            assert alice.socket_count == 0

    run_pair(story)


def test_a_socket_outlives_its_loop_without_harm() -> None:
    listener = Listener()

    async def story(network: Any, alice: Any, bob: Any) -> asyncio.DatagramTransport:
        transport: asyncio.DatagramTransport = await bob.open(lambda: listener, SPEC)
        return transport

    run_pair(story).close()
    assert listener.told == ["made"]
