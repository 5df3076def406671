"""Groups on the machine's own interfaces: each socket hears the group that it has joined."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.udp_channel import Interface
from aeron_async.driver.media.channel_resolver import (
    find_interface,
    resolve_publication,
    resolve_subscription,
)
from aeron_async.driver.media.network import system_interfaces
from aeron_async.driver.media.sockets import (
    IP_MULTICAST_ALL,
    SocketSpec,
    WildcardPorts,
    open_socket,
    receive_socket_spec,
    send_socket_specs,
)
from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.protocol.channel_uri import ChannelUri
from tests.by_hand import joins_group, sends_to_group
from tests.io.recorder import opened

if TYPE_CHECKING:
    from aeron_async.driver.media.network import Network

# Groups of the second kind never leave the machine, whichever interface they are joined on.
FIRST = {4: "224.20.30.39", 6: "[ff01::3a:3b]"}
SECOND = {4: "224.20.30.41", 6: "[ff01::3a:3d]"}


def find_usable(version: int) -> Interface | None:
    """Return loopback, or the best interface where loopback has no way for groups, or None."""
    any_host, loopback = ("0.0.0.0", "127.0.0.1") if version == 4 else ("::", "::1")
    table = system_interfaces()
    for host, prefix_length in ((loopback, None), (any_host, 0)):
        try:
            found = find_interface(table, host, prefix_length=prefix_length)
            spec = SocketSpec(
                local=(found.address, 0), remote=(FIRST[version].strip("[]"), 9), interface=found
            )
            with open_socket(spec) as sock:
                sock.send(b"x")
        except (OSError, RegistrationError):
            continue
        return found
    return None


def usable(version: int) -> Interface:
    """Return the interface for groups; without a way to them the test is skipped."""
    found = find_usable(version)
    if found is None:
        if sends_to_group(version, FIRST[version].strip("[]")):
            pytest.fail(f"a plain socket sends to IPv{version} groups, and no interface is found")
        pytest.skip(f"this machine has no interface for IPv{version} multicast")
    return found


@pytest.fixture(params=[4, 6], ids=["IPv4", "IPv6"])
def version(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture
def interface(version: int) -> Interface:
    return usable(version)


def channel(group: str, port: int, interface: Interface) -> ChannelUri:
    host = f"[{interface.address}]" if ":" in interface.address else interface.address
    return ChannelUri.parse(f"aeron:udp?endpoint={group}:{port}|interface={host}")


async def receiver_spec(network: Network, uri: ChannelUri) -> SocketSpec:
    resolved = await resolve_subscription(network, uri, unique_suffix="")
    return receive_socket_spec(resolved, DriverContext())


async def test_two_groups_on_one_port_each_hear_only_their_own(
    network: Network, version: int, interface: Interface, unused_udp_port: int
) -> None:
    first = channel(FIRST[version], unused_udp_port, interface)
    second = channel(SECOND[version], unused_udp_port, interface)
    to_first, _ = send_socket_specs(await resolve_publication(network, first), DriverContext())
    to_second, _ = send_socket_specs(await resolve_publication(network, second), DriverContext())
    async with (
        opened(network, await receiver_spec(network, first)) as at_first,
        opened(network, await receiver_spec(network, first)) as also_at_first,
        opened(network, await receiver_spec(network, second)) as at_second,
        opened(network, to_first) as first_sender,
        opened(network, to_second) as second_sender,
    ):
        for data in (b"1", b"2"):
            first_sender.transport.sendto(data)
            second_sender.transport.sendto(data * 2)
        for each in (at_first, also_at_first, at_second):
            await each.until(lambda each=each: len(each.received) >= 2)  # type: ignore[misc]
        assert at_first.received == also_at_first.received == [b"1", b"2"]
        assert at_second.received == [b"11", b"22"]
        assert at_first.addresses[0] == first_sender.address


async def test_receivers_report_to_the_control_group_and_senders_hear_it(
    network: Network, version: int, interface: Interface, unused_udp_port: int
) -> None:
    uri = channel(FIRST[version], unused_udp_port, interface)
    publication = await resolve_publication(network, uri)
    _, control = send_socket_specs(publication, DriverContext())
    assert control is not None
    assert publication.remote_control is not None
    async with (
        opened(network, control) as sender,
        opened(network, await receiver_spec(network, uri)) as receiver,
    ):
        receiver.transport.sendto(b"status", publication.remote_control)
        await sender.until(lambda: sender.received)
        assert sender.received == [b"status"]
        assert receiver.received == []


def test_multicast_leaves_with_the_hops_it_is_given(version: int, interface: Interface) -> None:
    level, option = (
        (socket.IPPROTO_IP, socket.IP_MULTICAST_TTL)
        if version == 4
        else (socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS)
    )
    remote = (FIRST[version].strip("[]"), 9)
    for ttl, expected in ((7, 7), (0, 1)):
        spec = SocketSpec(local=(interface.address, 0), remote=remote, interface=interface, ttl=ttl)
        with open_socket(spec) as sock:
            assert sock.getsockopt(level, option) == expected


def test_an_interface_without_a_number_leaves_the_choice_to_the_system() -> None:
    spec = SocketSpec(
        local=("0.0.0.0", 0), group="224.20.30.39", interface=Interface(address="127.0.0.1")
    )
    with open_socket(spec) as sock:
        assert sock.getsockname()[1]
    with open_socket(SocketSpec(local=("127.0.0.1", 0), remote=("224.20.30.39", 9))) as sock:
        assert sock.getpeername() == ("224.20.30.39", 9)


def test_a_group_that_no_interface_can_join_is_refused() -> None:
    nowhere = Interface(address="192.0.2.77", index=2**30)
    spec = SocketSpec(local=("0.0.0.0", 0), group="224.20.30.39", interface=nowhere)
    with pytest.raises(RegistrationError, match=r"interface") as refusal:
        open_socket(spec)
    assert refusal.value.code is ErrorCode.CHANNEL_ENDPOINT_ERROR


async def test_the_best_interface_serves_a_channel_that_names_none(network: Network) -> None:
    uri = ChannelUri.parse("aeron:udp?endpoint=224.20.30.39:40456")
    resolved = await resolve_subscription(network, uri, unique_suffix="")
    best = find_interface(await network.interfaces(), "0.0.0.0", prefix_length=0)
    assert resolved.interface == best
    assert resolved.canonical_form == f"UDP-{best.address}:0-224.20.30.39:40456"


def test_a_link_local_address_is_bound_on_its_own_link() -> None:
    table = [each for each in system_interfaces() if each.address.startswith("fe80:")]
    if not table:
        pytest.skip("this machine has no link-local IPv6 address")
    found = find_interface(table, table[0].address)
    spec = SocketSpec(local=(found.address, 0), remote=("ff02::3a:3b", 9), interface=found)
    with open_socket(spec) as sock:
        assert sock.getsockname()[3] == found.index


async def test_ports_of_a_range_are_taken_in_turn_until_there_are_none(
    network: Network, unused_udp_port: int
) -> None:
    ports = WildcardPorts(unused_udp_port, unused_udp_port)
    spec = SocketSpec(local=("127.0.0.1", 0), wildcard_ports=ports)
    async with opened(network, spec) as first:
        assert first.address[1] == unused_udp_port
        with pytest.raises(RegistrationError, match=r"no available ports .* widen the setting"):
            async with opened(network, spec):
                pass
    async with opened(network, spec) as again:
        assert again.address[1] == unused_udp_port


def test_what_is_wrong_with_the_address_is_not_taken_for_a_port_in_use() -> None:
    spec = SocketSpec(local=("192.0.2.199", 0), wildcard_ports=WildcardPorts(40_000, 40_001))
    with pytest.raises(RegistrationError, match="no interface of this machine has this address"):
        open_socket(spec)


async def test_a_link_local_address_with_its_scope_is_reached_and_answered(
    network: Network,
) -> None:
    table = [each for each in await network.interfaces() if each.address.startswith("fe80:")]
    if not table:
        pytest.skip("this machine has no link-local IPv6 address")
    host, name = table[0].address, table[0].name
    scoped = f"[{host}%{name}]"
    receiving = await resolve_subscription(
        network, ChannelUri.parse(f"aeron:udp?endpoint={scoped}:0"), unique_suffix="1"
    )
    async with opened(network, receive_socket_spec(receiving, DriverContext())) as receiver:
        port = receiver.address[1]
        uri = ChannelUri.parse(f"aeron:udp?endpoint={scoped}:{port}")
        spec, _ = send_socket_specs(await resolve_publication(network, uri), DriverContext())
        async with opened(network, spec) as sender:
            sender.transport.sendto(b"data")
            await receiver.until(lambda: receiver.received)
            assert receiver.addresses == [(f"{host}%{table[0].index}", sender.address[1])]
            receiver.transport.sendto(b"status", receiver.addresses[0])
            await sender.until(lambda: sender.received)
            assert sender.received == [b"status"]


def test_other_systems_have_no_switch_for_foreign_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.platform", "elsewhere")
    with open_socket(SocketSpec(local=("0.0.0.0", 0), group="224.20.30.39")) as sock:
        assert sock.getsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL) == 1


def test_a_member_hears_no_group_that_it_has_not_joined() -> None:
    with open_socket(SocketSpec(local=("0.0.0.0", 0), group="224.20.30.39")) as sock:
        assert sock.getsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL) == 0


def test_an_ipv6_group_may_be_joined_wherever_the_system_likes() -> None:
    if not joins_group(6, "ff01::3a:3b"):
        pytest.skip("this machine has no interface for IPv6 multicast: a plain socket joins none")
    with open_socket(SocketSpec(local=("::", 0), group="ff01::3a:3b")) as sock:
        assert sock.getsockname()[1]
