"""A channel of every mode, resolved: what is sent to, bound, joined, reported to, and its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.destination_tracker import DestinationTracker
from aeron_async.driver.core.udp_channel import Interface, UdpChannel, needs_unique_suffix
from aeron_async.driver.media.channel_resolver import (
    resolve_publication,
    resolve_receive_destination,
    resolve_send_destination,
    resolve_subscription,
)
from aeron_async.driver.media.network import InterfaceAddress
from aeron_async.driver.media.sockets import (
    SocketSpec,
    WildcardPorts,
    receive_socket_spec,
    send_socket_specs,
)
from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.protocol.channel_uri import ChannelUri, ControlMode
from tests.driver.fakes import Counts

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

CONTEXT = DriverContext(socket_rcvbuf_length=256 * 1024, socket_multicast_ttl=3)
ANY = ("0.0.0.0", 0)
ANY6 = ("::", 0)
NAMES = {
    "localhost": "127.0.0.1",
    "node": "10.0.0.5",
    "group": "224.0.1.1",
    "even": "224.0.1.2",
    "v6": "fd00::5",
}
TABLE = (
    InterfaceAddress(name="lo", index=1, address="127.0.0.1", prefix_length=8, is_loopback=True),
    InterfaceAddress(name="eth0", index=2, address="10.0.0.7", prefix_length=24),
    InterfaceAddress(name="eth0", index=2, address="fd00::7", prefix_length=64),
    InterfaceAddress(name="eth1", index=3, address="10.1.0.7", prefix_length=16),
)
ETH0 = Interface(address="10.0.0.7", index=2, name="eth0")


class Names:
    """A network that only knows names and interfaces."""

    async def open(
        self, protocol_factory: Callable[[], asyncio.DatagramProtocol], spec: SocketSpec
    ) -> asyncio.DatagramTransport:
        message = "nothing is opened here"
        raise AssertionError(message)

    async def resolve(
        self, host: str, port: int, *, is_re_resolution: bool = False
    ) -> tuple[str, int]:
        return NAMES.get(host, host), port

    async def interfaces(self) -> tuple[InterfaceAddress, ...]:
        return TABLE


NETWORK = Names()


async def publication(text: str, unique_suffix: str = "3") -> UdpChannel:
    uri = ChannelUri.parse(f"aeron:udp?{text}")
    return await resolve_publication(NETWORK, uri, unique_suffix=unique_suffix)


async def subscription(text: str, unique_suffix: str = "3") -> UdpChannel:
    uri = ChannelUri.parse(f"aeron:udp?{text}")
    return await resolve_subscription(NETWORK, uri, unique_suffix=unique_suffix)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("endpoint=node:7", "UDP-0.0.0.0:0-node:7"),
        ("endpoint=10.0.0.5:7", "UDP-0.0.0.0:0-10.0.0.5:7"),
        ("endpoint=[::1]:7", "UDP-[::]:0-[::1]:7"),
        ("endpoint=[fe80::1%eth0]:7", "UDP-[::]:0-[fe80::1%eth0]:7"),
        ("endpoint=node:7|interface=10.0.0.0/8", "UDP-10.0.0.7:0-node:7"),
        ("endpoint=node:7|interface=10.0.0.0:9/8", "UDP-10.0.0.7:9-node:7"),
        ("endpoint=node:7|interface={eth1}:9", "UDP-10.1.0.7:9-node:7"),
        ("endpoint=node:7|interface=0.0.0.0:9", "UDP-0.0.0.0:9-node:7"),
        ("endpoint=224.0.1.1:7", "UDP-10.0.0.7:0-224.0.1.1:7"),
        ("endpoint=group:7", "UDP-10.0.0.7:0-224.0.1.1:7"),
        ("endpoint=224.0.1.1:7|interface=localhost", "UDP-127.0.0.1:0-224.0.1.1:7"),
        ("endpoint=224.0.1.1:7|interface={eth1}", "UDP-10.1.0.7:0-224.0.1.1:7"),
        ("endpoint=[ff02::1]:7|tags=4", "UDP-[fd00::7]:0-[ff02::1]:7"),
        ("endpoint=node:7|control=localhost:8", "UDP-localhost:8-node:7"),
        ("endpoint=node:7|control=localhost:8|interface={eth0}", "UDP-localhost:8-node:7"),
        ("control=localhost:8|control-mode=dynamic", "UDP-localhost:8-0.0.0.0:0"),
        ("control=[::1]:8|control-mode=dynamic", "UDP-[::1]:8-[::]:0"),
        ("control=v6:8|control-mode=manual", "UDP-v6:8-[::]:0"),
        ("endpoint=node:0|control=localhost:8|control-mode=dynamic", "UDP-localhost:8-node:0-3"),
        ("control=localhost:0|control-mode=dynamic", "UDP-localhost:0-0.0.0.0:0-3"),
        ("control=localhost:0|control-mode=dynamic|tags=4,5", "UDP-localhost:0-0.0.0.0:0#4"),
        ("control-mode=manual", "UDP-0.0.0.0:0-0.0.0.0:0-3"),
        ("control-mode=manual|tags=4", "UDP-0.0.0.0:0-0.0.0.0:0#4"),
        ("tags=5", "UDP-0.0.0.0:0-0.0.0.0:0#5"),
        (
            "control-mode=response|control=localhost:8|response-correlation-id=9",
            "UDP-localhost:8-0.0.0.0:0",
        ),
        ("control-mode=response|response-correlation-id=9", "UDP-0.0.0.0:0-0.0.0.0:0-3"),
    ],
)
async def test_every_mode_has_aerons_canonical_form(text: str, form: str) -> None:
    made = await publication(text)
    assert made.canonical_form == form
    assert needs_unique_suffix(made.uri) is (form[-2:] == "-3" or "#" in form)
    # The identity is the same at both ends, so that a spy finds its publication.
    assert (await subscription(text)).canonical_form == form


@pytest.mark.parametrize(
    ("spellings", "form"),
    [
        (("[FF02::FD]", "[ff02:0::00fd]", "[ff02::fd]"), "UDP-[fd00::7]:0-[ff02::fd]:7"),
        (("[0:0:0:0:0:0:0:1]", "[::0001]", "[::1]"), "UDP-[::]:0-[::1]:7"),
        (("[FE80:0::1%eth0]", "[fe80::1%eth0]"), "UDP-[::]:0-[fe80::1%eth0]:7"),
        (("[::FFFF:7f00:1]", "[::ffff:127.0.0.1]"), "UDP-[::]:0-[::ffff:127.0.0.1]:7"),
    ],
)
async def test_spellings_of_one_ipv6_address_are_one_endpoint(
    spellings: tuple[str, ...], form: str
) -> None:
    """IPv6 literals were compared as text."""
    for spelling in spellings:
        made = await publication(f"endpoint={spelling}:7")
        assert made.canonical_form == form
        assert (await subscription(f"endpoint={spelling}:7")).canonical_form == form
        assert made.remote_data == (await publication(f"endpoint={spellings[-1]}:7")).remote_data
        assert str(made.uri.endpoint) == f"{spelling}:7"


async def test_spellings_of_one_ipv6_control_address_are_one_endpoint_and_scopes_are_not() -> None:
    """Likewise for control addresses and interfaces; a scope is part of the address."""
    long, short = [
        await publication(f"control=[{each}]:8|control-mode=manual") for each in ("0::0:1", "::1")
    ]
    assert long.canonical_form == short.canonical_form == "UDP-[::1]:8-[::]:0"
    assert long.local_data == short.local_data
    forms = {
        (await publication(f"endpoint=[fe80::1%{scope}]:7")).canonical_form
        for scope in ("eth0", "eth1")
    }
    assert len(forms) == 2
    any_address = await publication("endpoint=[::1]:7|interface=[0:0::0]:9")
    assert any_address.local_data == ("::", 9)


async def test_what_a_name_resolver_spells_otherwise_is_the_same_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A resolver of one's own may answer in any spelling."""
    monkeypatch.setitem(NAMES, "v6", "FD00:0:0::5")
    assert (await publication("endpoint=v6:7")).remote_data == ("fd00::5", 7)


async def test_a_destination_written_long_is_found_by_its_status_messages() -> None:
    """The system gives addresses in their usual spelling."""
    uri = ChannelUri.parse("aeron:udp?endpoint=[0:0:0:0:0:0:0:1]:7")
    channel = await resolve_send_destination(NETWORK, uri)
    counts = Counts()
    tracker = DestinationTracker(is_manual=True, limit=4, count=counts.new(), refused=counts.new())
    tracker.add(uri, channel.remote_data, 5, 0)
    assert tracker.registration_id_of(77, ("::1", 7)) == 5


async def test_two_channels_with_port_0_are_two_and_with_one_tag_are_one() -> None:
    first, second = [await subscription("endpoint=node:0", each) for each in ("1", "2")]
    assert first.canonical_form != second.canonical_form
    first, second = [await subscription("endpoint=node:0|tags=8", each) for each in ("1", "2")]
    assert first.canonical_form == second.canonical_form


async def test_a_name_and_its_address_are_two_channels() -> None:
    by_name, by_number = [await subscription(f"endpoint={each}:7") for each in ("node", "10.0.0.5")]
    assert by_name.remote_data == by_number.remote_data
    assert by_name.canonical_form != by_number.canonical_form


async def test_a_unicast_publication_sends_from_one_connected_socket() -> None:
    made = await publication("endpoint=node:7")
    assert (made.remote_data, made.local_data) == (("10.0.0.5", 7), ANY)
    assert (made.remote_control, made.interface, made.ttl) == (None, None, 0)
    assert made.has_explicit_endpoint
    assert not made.has_explicit_control
    assert not made.has_group_semantics
    assert send_socket_specs(made, CONTEXT) == (
        SocketSpec(
            local=ANY,
            remote=("10.0.0.5", 7),
            socket_rcvbuf_length=256 * 1024,
            is_batching=True,
        ),
        None,
    )


async def test_a_unicast_publication_with_control_sends_from_there() -> None:
    made = await publication("endpoint=node:7|control=localhost:8")
    assert made.has_explicit_control
    assert made.remote_control is None
    data, control = send_socket_specs(made, CONTEXT)
    assert (data.local, data.remote, control) == (("127.0.0.1", 8), ("10.0.0.5", 7), None)


async def test_a_multicast_publication_has_a_socket_for_data_and_one_for_control() -> None:
    made = await publication("endpoint=224.0.1.1:7|ttl=5|so-sndbuf=64k|interface=10.0.0.0/24")
    assert made.is_multicast
    assert made.has_group_semantics
    assert made.ttl == 5
    assert made.remote_control == ("224.0.1.2", 7)
    assert made.interface == ETH0
    data, control = send_socket_specs(made, CONTEXT)
    lengths: dict[str, Any] = {
        "socket_sndbuf_length": 64 * 1024,
        "socket_rcvbuf_length": 256 * 1024,
        "is_batching": True,
    }
    assert data == SocketSpec(
        local=("10.0.0.7", 0), remote=("224.0.1.1", 7), interface=ETH0, ttl=5, **lengths
    )
    assert control == SocketSpec(
        local=("0.0.0.0", 7),
        group="224.0.1.2",
        interface=ETH0,
        ttl=5,
        reuse_address=True,
        reuse_port=True,
        **lengths,
    )


async def test_a_multicast_subscription_joins_the_group_and_reports_to_the_next() -> None:
    made = await subscription("endpoint=224.0.1.1:7|so-rcvbuf=128k|rcv-wnd=128k")
    assert (made.remote_data, made.remote_control) == (("224.0.1.1", 7), ("224.0.1.2", 7))
    assert receive_socket_spec(made, CONTEXT) == SocketSpec(
        local=("0.0.0.0", 7),
        group="224.0.1.1",
        interface=ETH0,
        ttl=3,
        reuse_address=True,
        reuse_port=True,
        socket_rcvbuf_length=128 * 1024,
        is_batching=True,
    )
    # A buffer that the channel or the context has chosen stays as it is.
    assert receive_socket_spec(made, DriverContext()).wished_rcvbuf_length == 0
    unbatched = attrs.evolve(CONTEXT, socket_batching=False)
    assert not receive_socket_spec(made, unbatched).is_batching


async def test_an_ipv6_group_is_joined_at_the_ipv6_wildcard() -> None:
    made = await subscription("endpoint=[ff02::1%eth0]:7")
    assert made.interface == Interface(address="fd00::7", index=2, name="eth0")
    spec = receive_socket_spec(made, CONTEXT)
    assert (spec.local, spec.group) == (("::", 7), "ff02::1")
    assert made.remote_control == ("ff02::2", 7)


async def test_a_group_wins_over_an_explicit_control_address() -> None:
    made = await subscription("endpoint=224.0.1.1:7|control=224.0.1.2:7")
    assert made.is_multicast
    assert not made.has_explicit_control
    assert made.remote_control == ("224.0.1.2", 7)


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("control=localhost:8|control-mode=dynamic", ("127.0.0.1", 8)),
        ("control=localhost:8|control-mode=manual", ("127.0.0.1", 8)),
        ("control-mode=manual", ANY),
        ("control-mode=manual|interface={eth0}", ("10.0.0.7", 0)),
        ("control-mode=response|response-correlation-id=9", ANY),
        ("control-mode=response|control=v6:8|response-correlation-id=9", ("fd00::5", 8)),
        ("endpoint=node:7|control=localhost:8|control-mode=dynamic", ("127.0.0.1", 8)),
        ("tags=5", ANY),
    ],
)
async def test_whoever_sends_to_many_or_on_request_has_one_unconnected_socket(
    text: str, local: tuple[str, int]
) -> None:
    data, control = send_socket_specs(await publication(text), CONTEXT)
    assert (data.local, data.remote, data.group, control) == (local, None, None, None)


async def test_modes_have_names() -> None:
    manual, dynamic, response = [
        await publication(text)
        for text in (
            "control-mode=manual",
            "control=localhost:8|control-mode=dynamic",
            "control-mode=response|response-correlation-id=9",
        )
    ]
    assert (manual.is_manual, manual.is_dynamic, manual.is_response) == (True, False, False)
    assert (dynamic.is_manual, dynamic.is_dynamic, dynamic.is_response) == (False, True, False)
    assert response.is_response
    assert response.control_mode is ControlMode.RESPONSE
    assert manual.has_group_semantics
    assert dynamic.is_multi_destination
    assert not response.has_group_semantics


async def test_a_subscription_reports_to_its_control_address() -> None:
    made = await subscription("endpoint=node:0|control=localhost:8|control-mode=dynamic")
    assert (made.remote_data, made.remote_control) == (("10.0.0.5", 0), ("127.0.0.1", 8))
    assert receive_socket_spec(made, CONTEXT).local == ("10.0.0.5", 0)
    without = await subscription("control=v6:8|control-mode=response")
    assert (without.remote_data, without.remote_control) == (ANY6, ("fd00::5", 8))


async def test_a_channel_with_nothing_but_a_tag_has_no_address() -> None:
    assert (await publication("tags=5")).is_wildcard
    assert (await subscription("control-mode=manual")).is_wildcard
    assert not (await publication("control-mode=manual|interface={eth0}")).is_wildcard
    assert not (await subscription("endpoint=0.0.0.0:7")).is_wildcard
    assert (await subscription("endpoint=[::]:0")).is_wildcard


async def test_destinations_have_no_suffix_and_the_buffers_of_their_owner() -> None:
    uri = ChannelUri.parse("aeron:udp?endpoint=node:0|control=localhost:8")
    made = await resolve_receive_destination(NETWORK, uri)
    assert made.canonical_form == "UDP-localhost:8-node:0"
    assert made.remote_control == ("127.0.0.1", 8)
    owner = await subscription("control-mode=manual|so-rcvbuf=128k|rcv-wnd=128k")
    spec = receive_socket_spec(made, CONTEXT, owner=owner)
    assert (spec.local, spec.socket_rcvbuf_length) == (("10.0.0.5", 0), 128 * 1024)
    uri = ChannelUri.parse("aeron:udp?endpoint=group:7")
    destination = await resolve_receive_destination(NETWORK, uri)
    assert receive_socket_spec(destination, CONTEXT).group == "224.0.1.1"
    sent = await resolve_send_destination(NETWORK, ChannelUri.parse("aeron:udp?endpoint=node:7"))
    assert sent.remote_data == ("10.0.0.5", 7)


async def test_managed_ports_are_for_explicit_control_and_for_receivers() -> None:
    ports = WildcardPorts(40_000, 40_001)
    dynamic = await publication("control=localhost:0|control-mode=dynamic")
    assert send_socket_specs(dynamic, CONTEXT, ports=ports)[0].wildcard_ports is ports
    plain = await publication("endpoint=node:7")
    assert send_socket_specs(plain, CONTEXT, ports=ports)[0].wildcard_ports is None
    any_port = await subscription("endpoint=node:0")
    assert receive_socket_spec(any_port, CONTEXT, ports=ports).wildcard_ports is ports


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("endpoint=even:7", "224.0.1.2:7' ends in an even byte"),
        ("endpoint=node:7|control=v6:8", "mix IPv4 and IPv6"),
        ("endpoint=v6:7|interface=localhost", "mix IPv4 and IPv6"),
        ("endpoint=node:7|interface={lo1}", "unknown interface lo1"),
        ("endpoint=node:7|interface=172.16.0.1", "matches 172.16.0.1/32"),
        ("endpoint=[ff02::1]:7|interface={eth1}", "eth1 has no IPv6 address"),
        ("endpoint=v6:7|interface={eth1}", "eth1 has no IPv6 address"),
    ],
)
async def test_addresses_that_do_not_fit_are_refused_once_they_are_known(
    text: str, reason: str
) -> None:
    for resolve in (publication, subscription):
        with pytest.raises(RegistrationError, match=reason) as refusal:
            await resolve(text)
        assert refusal.value.code is ErrorCode.INVALID_CHANNEL


async def test_a_data_group_that_ends_in_255_is_controlled_at_0() -> None:
    made = await publication("endpoint=224.9.9.255:7")
    assert made.remote_control == ("224.9.9.0", 7)


def test_a_range_of_ports_goes_round_and_leaves_out_port_0() -> None:
    assert WildcardPorts.of((0, 0)) is None
    ports = WildcardPorts.of((0, 3))
    assert ports is not None
    assert list(ports.candidates()) == [1, 2, 3]
    ports.take(2)
    assert list(ports.candidates()) == [3, 1, 2]
    ports.take(3)
    assert list(ports.candidates()) == [1, 2, 3]


async def test_a_link_local_address_keeps_its_scope_and_another_does_not() -> None:
    assert (await publication("endpoint=[fe80::1%eth0]:7")).remote_data == ("fe80::1%eth0", 7)
    assert (await publication("endpoint=[fe80::1]:7")).remote_data == ("fe80::1", 7)
    assert (await publication("endpoint=[fd00::1%eth0]:7")).remote_data == ("fd00::1", 7)
    assert (await publication("endpoint=[ff02::1%eth0]:7")).remote_data == ("ff02::1", 7)


@pytest.mark.parametrize(
    ("more", "context", "length"),
    [
        ("", {}, 4 * 1024 * 1024),
        ("|rcv-wnd=auto", {"receiver_window_auto": False}, 4 * 1024 * 1024),
        ("|so-rcvbuf=0", {}, 0),
        ("|rcv-wnd=128k", {}, 0),
        ("", {"socket_rcvbuf_length": 1024 * 1024}, 0),
        ("", {"receiver_window_auto": False}, 0),
    ],
)
async def test_a_window_that_grows_wishes_for_a_buffer(
    more: str, context: dict[str, Any], length: int
) -> None:
    made = await subscription(f"endpoint=node:7{more}")
    spec = receive_socket_spec(made, DriverContext(**context))
    assert spec.wished_rcvbuf_length == length
    # What was not chosen is what the system is asked for if it grants no more.
    assert spec.socket_rcvbuf_length == context.get("socket_rcvbuf_length", 128 * 1024)
