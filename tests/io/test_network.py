from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.driver.media import network as network_module
from aeron_async.driver.media.loop_transport import LoopTransport
from aeron_async.driver.media.network import SystemNetwork, TransportKind
from aeron_async.driver.media.socket_transport import SocketTransport
from aeron_async.driver.media.sockets import SocketSpec
from aeron_async.errors import ConfigurationError, ErrorCode, RegistrationError
from tests.io.recorder import LOOPBACK, Recorder, opened
from tests.logs import captured_logs

if TYPE_CHECKING:
    from aeron_async.driver.media.network import Network

IPV6_LOOPBACK = ("::1", 0)
MESSAGES = [b"%d" % number for number in range(500)]


@pytest.mark.parametrize("local", [LOOPBACK, IPV6_LOOPBACK], ids=["ipv4", "ipv6"])
async def test_datagrams_arrive_in_order_with_their_source(
    network: Network, local: tuple[str, int]
) -> None:
    spec = SocketSpec(local=local, socket_rcvbuf_length=1024 * 1024)
    async with opened(network, spec) as receiver, opened(network, spec) as sender:
        for message in MESSAGES:
            sender.transport.sendto(message, receiver.address)
        await receiver.until(lambda: len(receiver.received) == len(MESSAGES))
        assert receiver.received == MESSAGES
        assert set(receiver.addresses) == {sender.address}
        assert not receiver.errors
        assert not sender.errors
        assert not sender.pauses


@pytest.mark.parametrize("local", [LOOPBACK, IPV6_LOOPBACK], ids=["ipv4", "ipv6"])
async def test_a_connected_socket_hears_nobody_else(
    network: Network, local: tuple[str, int]
) -> None:
    async with (
        opened(network, SocketSpec(local=local)) as peer,
        opened(network, SocketSpec(local=local, remote=peer.address)) as connected,
        opened(network, SocketSpec(local=local)) as stranger,
    ):
        assert connected.transport.get_extra_info("peername") == peer.address
        connected.transport.sendto(b"question")
        await peer.until(lambda: peer.received)
        stranger.transport.sendto(b"noise", connected.address)
        peer.transport.sendto(b"answer", peer.addresses[0])
        await connected.until(lambda: connected.received)
        assert connected.received == [b"answer"]
        assert connected.addresses == [peer.address]


async def test_any_buffer_can_be_sent_and_reused_at_once(network: Network) -> None:
    async with opened(network) as receiver, opened(network) as sender:
        block = bytearray(b"first")
        sender.transport.sendto(memoryview(block), receiver.address)
        block[:] = b"second"
        sender.transport.sendto(block, receiver.address)
        sender.transport.sendto(bytes(65507), receiver.address)
        await receiver.until(lambda: len(receiver.received) == 3)
        assert receiver.received == [b"first", b"second", bytes(65507)]


async def test_the_wildcard_address_and_port_are_told_as_bound(network: Network) -> None:
    async with opened(network, SocketSpec(local=("0.0.0.0", 0))) as receiver:
        host, port = receiver.address
        assert host == "0.0.0.0"
        assert port > 0
        assert receiver.transport.get_extra_info("peername") is None
        assert receiver.transport.get_extra_info("socket").fileno() > 0
        assert receiver.transport.get_extra_info("unheard of", "default") == "default"


async def test_an_absent_peer_is_reported_and_not_raised(
    network: Network, unused_udp_port: int
) -> None:
    spec = SocketSpec(local=LOOPBACK, remote=("127.0.0.1", unused_udp_port))
    async with opened(network, spec) as sender:
        for _ in range(2):
            sender.errors.clear()
            sender.transport.sendto(b"anyone?")
            await sender.until(lambda: sender.errors)
            assert [type(error) for error in sender.errors] == [ConnectionRefusedError]
        assert not sender.transport.is_closing()


async def test_a_peer_that_was_absent_is_heard_when_it_comes(
    network: Network, unused_udp_port: int
) -> None:
    peer_address = ("127.0.0.1", unused_udp_port)
    async with opened(network, SocketSpec(local=LOOPBACK, remote=peer_address)) as sender:
        sender.transport.sendto(b"anyone?")
        await sender.until(lambda: sender.errors)
        async with opened(network, SocketSpec(local=peer_address)) as peer:
            peer.transport.sendto(b"here", sender.address)
            await sender.until(lambda: sender.received)
            assert sender.received == [b"here"]


async def test_an_error_fetched_by_a_send_leaves_the_socket_listening(
    network: Network, unused_udp_port: int
) -> None:
    peer_address = ("127.0.0.1", unused_udp_port)
    spec = SocketSpec(local=LOOPBACK, remote=peer_address)
    async with opened(network) as receiver, opened(network, spec) as sender:
        # Both become ready in one turn; the first then fetches the error that woke the second.
        receiver.on_datagram = lambda _: sender.transport.sendto(b"anyone?")
        receiver.transport.sendto(b"go", receiver.address)
        sender.transport.sendto(b"anyone?")
        await sender.until(lambda: sender.errors)
        async with opened(network, SocketSpec(local=peer_address)) as peer:
            peer.transport.sendto(b"here", sender.address)
            await sender.until(lambda: sender.received)
            assert sender.received == [b"here"]


async def test_what_the_system_refuses_to_send_is_reported_before_sendto_returns(
    network: Network,
) -> None:
    async with opened(network) as receiver, opened(network) as sender:
        sender.transport.sendto(bytes(65508), receiver.address)
        assert [error.errno for error in sender.errors if isinstance(error, OSError)] == [
            errno.EMSGSIZE
        ]
        sender.transport.sendto(b"shorter", receiver.address)
        await receiver.until(lambda: receiver.received)
        assert receiver.received == [b"shorter"]


async def test_a_mistaken_send_is_refused_aloud(network: Network) -> None:
    async with (
        opened(network) as receiver,
        opened(network, SocketSpec(local=LOOPBACK, remote=receiver.address)) as connected,
    ):
        with pytest.raises(ValueError, match="must be given; it is None"):
            receiver.transport.sendto(b"where to?")
        with pytest.raises(ValueError, match="must be None, the socket is connected"):
            connected.transport.sendto(b"twice told", receiver.address)
        with pytest.raises(ValueError, match="empty datagram"):
            connected.transport.sendto(b"")


async def test_the_write_buffer_is_one_datagram_whatever_is_asked(network: Network) -> None:
    async with opened(network) as sender:
        sender.transport.set_write_buffer_limits(high=1024, low=512)
        assert sender.transport.get_write_buffer_limits() == (0, 0)
        assert sender.transport.get_write_buffer_size() == 0


async def test_granted_buffers_can_be_asked_for(network: Network) -> None:
    spec = SocketSpec(local=LOOPBACK, socket_rcvbuf_length=65536, socket_sndbuf_length=32768)
    with captured_logs() as lines:
        async with opened(network, spec) as receiver:
            assert receiver.transport.get_extra_info("granted_rcvbuf_length") == 65536
            assert receiver.transport.get_extra_info("granted_sndbuf_length") == 32768
    assert lines == []


async def test_a_taken_port_is_refused(network: Network) -> None:
    async with opened(network) as receiver:
        with pytest.raises(RegistrationError, match="Address already in use") as refusal:
            await network.open(Recorder, SocketSpec(local=receiver.address))
    assert refusal.value.code is ErrorCode.CHANNEL_ENDPOINT_ERROR


async def test_the_protocol_knows_its_transport_before_open_returns(network: Network) -> None:
    recorder = Recorder()
    transport = await network.open(lambda: recorder, SocketSpec(local=LOOPBACK))
    assert recorder.transport is transport
    transport.close()
    await recorder.until(lambda: recorder.lost)


async def test_a_faulty_protocol_stops_nobody(network: Network) -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))

    def fail_once(data: bytes) -> None:
        if data == b"1":
            message = "bad datagram"
            raise KeyError(message)

    async with opened(network) as receiver, opened(network) as sender:
        receiver.on_datagram = fail_once
        for message in (b"0", b"1", b"2"):
            sender.transport.sendto(message, receiver.address)
        await receiver.until(lambda: len(receiver.received) == 3)
        assert receiver.received == [b"0", b"1", b"2"]
        assert [type(report["exception"]) for report in reports] == [KeyError]
        assert reports[0]["transport"] is receiver.transport
        assert reports[0]["protocol"] is receiver


async def test_auto_watches_the_socket_on_both_loops() -> None:
    async with opened(SystemNetwork()) as receiver:
        assert isinstance(receiver.transport, SocketTransport)


class Unwatching:
    """A loop that cannot watch a socket, as the one of Windows."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def remove_reader(self, _: object) -> None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


@pytest.fixture
def unwatching_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    running_loop = asyncio.get_running_loop

    class Asyncio:
        get_running_loop = staticmethod(lambda: Unwatching(running_loop()))

    monkeypatch.setattr(network_module, "asyncio", Asyncio)


@pytest.mark.parametrize(
    ("transport", "burst_limit", "message"),
    [
        ("udp", 64, "transport='udp' must be one of auto, socket, loop"),
        ("auto", 0, "burst_limit=0 must be 1 or more"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(
    transport: TransportKind, burst_limit: int, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SystemNetwork(transport, burst_limit)


async def test_auto_falls_back_to_the_transport_of_the_loop(unwatching_loop: None) -> None:
    async with opened(SystemNetwork()) as receiver:
        assert isinstance(receiver.transport, LoopTransport)


async def test_a_loop_that_cannot_open_leaves_no_socket(
    unwatching_loop: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **options: Any) -> None:
        taken.append(options["sock"])
        message = "not here"
        raise OSError(message)

    taken: list[Any] = []
    monkeypatch.setattr(Unwatching, "create_datagram_endpoint", refuse, raising=False)
    with pytest.raises(OSError, match="not here"):
        await SystemNetwork().open(Recorder, SocketSpec(local=LOOPBACK))
    assert taken[0].fileno() == -1


async def test_a_socket_demanded_of_a_loop_that_cannot_watch_is_refused(
    unwatching_loop: None,
) -> None:
    with pytest.raises(ConfigurationError, match="choose 'auto' or 'loop'"):
        await SystemNetwork("socket").open(Recorder, SocketSpec(local=LOOPBACK))
