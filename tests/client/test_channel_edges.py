"""The edges of channels that the reference names, each as a driver meets it."""

from __future__ import annotations

import pytest

import aeron_async as aa
from aeron_async.protocol.address import Address, InterfaceSpec, multicast_control_address
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.protocol.units import parse_duration_ns, parse_size
from tests.drivers import contradiction, endpoint_error

LOCAL = "aeron:udp?endpoint=localhost:40456"


def refused(text: str) -> str:
    with pytest.raises(aa.ChannelUriError) as caught:
        ChannelUri.parse(text)
    return str(caught.value)


def test_ipc_may_have_a_question_mark_but_udp_needs_an_address() -> None:
    assert ChannelUri.parse("aeron:ipc") == ChannelUri.parse("aeron:ipc?")
    assert "needs an address" in refused("aeron:udp")
    assert "unknown media" in refused("aeron:tcp?endpoint=localhost:1")


def test_an_endpoint_needs_a_port_up_to_65535_and_ipv6_its_brackets() -> None:
    assert "no port" in refused("aeron:udp?endpoint=localhost")
    assert "between 0 and 65535" in refused("aeron:udp?endpoint=localhost:65536")
    assert "needs brackets" in refused("aeron:udp?endpoint=::1:40456")
    assert ChannelUri.parse("aeron:udp?endpoint=[::1%lo]:65535").endpoint == Address(
        "::1", 65535, "[::1%lo]:65535"
    )


def test_an_even_group_is_refused_and_the_last_byte_of_255_wraps_to_0() -> None:
    assert "must be odd" in refused("aeron:udp?endpoint=224.20.30.40:40456")
    control = multicast_control_address(Address.parse("224.20.30.255:40456"))
    assert control.text == "224.20.30.0:40456"


@pytest.mark.parametrize(
    ("text", "host", "name", "prefix_length"),
    [
        ("127.0.0.1/24", "127.0.0.1", None, 24),
        ("10.0.0.0/8", "10.0.0.0", None, 8),
        ("{lo}", None, "lo", None),
        ("{missing}", None, "missing", None),
    ],
)
def test_an_interface_is_a_prefix_or_a_name(
    text: str, host: str | None, name: str | None, prefix_length: int | None
) -> None:
    spec = InterfaceSpec.parse(text)
    assert (spec.host, spec.interface_name, spec.prefix_length) == (host, name, prefix_length)


async def test_one_endpoint_written_twice_is_two_and_the_second_cannot_be_bound(
    unused_udp_port: int,
) -> None:
    driver = aa.MediaDriver.launch(aa.DriverContext())
    async with driver, aa.Aeron.connect(driver) as aeron:
        by_name = f"aeron:udp?endpoint=localhost:{unused_udp_port}"
        await aeron.add_subscription(by_name, 1)
        await aeron.add_subscription(by_name, 2)
        with pytest.raises(aa.RegistrationError, match="another socket holds this port") as caught:
            await aeron.add_subscription(f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}", 3)
        assert caught.value.code is endpoint_error(aeron)


async def test_port_0_twice_is_two_sockets_unless_one_tag_makes_them_one() -> None:
    driver = aa.MediaDriver.launch(aa.DriverContext())
    async with driver, aa.Aeron.connect(driver) as aeron:
        channel = "aeron:udp?endpoint=localhost:0"
        first, second = [await aeron.add_subscription(channel, each) for each in (1, 2)]
        assert first.local_address != second.local_address
        first, second = [await aeron.add_subscription(f"{channel}|tags=7", each) for each in (1, 2)]
        assert first.local_address == second.local_address


async def test_a_subscription_takes_its_port_from_the_range_of_the_driver(
    unused_udp_port: int,
) -> None:
    context = aa.DriverContext(receiver_wildcard_port_range=(unused_udp_port, unused_udp_port))
    driver = aa.MediaDriver.launch(context)
    async with driver, aa.Aeron.connect(driver) as aeron:
        channel = "aeron:udp?endpoint=localhost:0"
        subscription = await aeron.add_subscription(channel, 1)
        assert subscription.local_address == f"127.0.0.1:{unused_udp_port}"
        with pytest.raises(aa.RegistrationError, match="widen the setting"):
            await aeron.add_subscription(channel, 1)
        await subscription.aclose()
        again = await aeron.add_subscription(channel, 1)
        assert again.local_address == f"127.0.0.1:{unused_udp_port}"


@pytest.mark.parametrize("value", ["term-length=64k", "term-length=1g", "mtu=1408"])
def test_lengths_of_the_right_shape_are_taken(value: str) -> None:
    assert str(ChannelUri.parse(f"{LOCAL}|{value}")).endswith(value)


@pytest.mark.parametrize("value", ["term-length=48k", "term-length=2g", "mtu=1400", "mtu=32"])
def test_lengths_of_another_shape_are_refused(value: str) -> None:
    assert value.partition("=")[0] in refused(f"{LOCAL}|{value}")


def test_a_publication_window_lies_between_the_mtu_and_half_a_term() -> None:
    assert "at least mtu" in refused(f"{LOCAL}|mtu=1408|pub-wnd=1k")
    assert "at most half" in refused(f"{LOCAL}|term-length=64k|pub-wnd=33k")


def test_durations_have_four_units_and_minutes_are_none_of_them() -> None:
    texts = ("100", "100ns", "5us", "7ms", "2s")
    assert [parse_duration_ns(text) for text in texts] == [100, 100, 5_000, 7_000_000, 2 * 10**9]
    for text in ("1m", "-1s"):
        with pytest.raises(aa.ConfigurationError):
            parse_duration_ns(text)


def test_sizes_have_one_letter_and_no_fraction() -> None:
    assert [parse_size(text) for text in ("64k", "64K", "1m")] == [65_536, 65_536, 1_048_576]
    for text in ("1.5m", "64kb"):
        with pytest.raises(aa.ConfigurationError):
            parse_size(text)


def test_a_position_has_three_parts_and_may_stand_at_the_end_of_its_term() -> None:
    assert "together" in refused(f"{LOCAL}|init-term-id=1|term-id=1")
    assert "multiple of 32" in refused(f"{LOCAL}|init-term-id=1|term-id=1|term-offset=8")
    uri = ChannelUri.parse(f"{LOCAL}|init-term-id=1|term-id=1|term-offset=65536|term-length=64k")
    assert uri.term_offset == uri.term_length


async def test_an_unreliable_subscription_contradicts_a_reliable_one_of_its_session_only() -> None:
    driver = aa.MediaDriver.launch(aa.DriverContext())
    async with driver, aa.Aeron.connect(driver) as aeron:
        channel = "aeron:udp?endpoint=localhost:0|tags=8"
        await aeron.add_subscription(f"{channel}|reliable=true", 1)
        with pytest.raises(contradiction(aeron), match="reliable"):
            await aeron.add_subscription(f"{channel}|reliable=false", 1)
        await aeron.add_subscription(f"{channel}|reliable=false|session-id=5", 1)


def test_a_spy_is_of_udp_and_no_publication() -> None:
    assert "subscribe to aeron:ipc directly" in refused("aeron-spy:aeron:ipc")
    with pytest.raises(aa.ChannelUriError, match="for subscriptions"):
        ChannelUri.parse(f"aeron-spy:{LOCAL}").check_publication()


def test_a_key_is_given_once() -> None:
    assert "given twice" in refused(f"{LOCAL}|ttl=1|ttl=1")
    assert "given twice" in refused(f"{LOCAL}|alias=a|alias=b")
