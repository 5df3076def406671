"""Which interface a channel means, on a machine that is made up."""

from __future__ import annotations

import pytest

from aeron_async.driver.core.udp_channel import Interface
from aeron_async.driver.media.channel_resolver import find_interface, find_named_interface
from aeron_async.driver.media.network import InterfaceAddress
from aeron_async.errors import ErrorCode, RegistrationError


def entry(
    name: str, index: int, address: str, prefix_length: int, **more: bool
) -> InterfaceAddress:
    return InterfaceAddress(
        name=name, index=index, address=address, prefix_length=prefix_length, **more
    )


LO = entry("lo", 1, "127.0.0.1", 8, is_loopback=True, is_multicast=False)
LO6 = entry("lo", 1, "::1", 128, is_loopback=True, is_multicast=False)
ETH0 = entry("eth0", 2, "10.0.0.7", 8)
ETH1 = entry("eth1", 3, "10.1.0.7", 24)
ETH1_TOO = entry("eth1", 3, "10.1.0.8", 24)
ETH2 = entry("eth2", 4, "192.168.1.7", 30, is_up=False)
TUN = entry("tun0", 5, "10.9.0.1", 32, is_multicast=False)
ETH0_V6 = entry("eth0", 2, "fd00::7", 64)
ETH0_LINK = entry("eth0", 2, "fe80::7", 64)
TABLE = (LO, LO6, ETH0, ETH1, ETH1_TOO, ETH2, TUN, ETH0_V6, ETH0_LINK)


@pytest.mark.parametrize(
    ("host", "prefix_length", "expected"),
    [
        ("127.0.0.1", None, LO),
        ("127.0.0.1", 24, LO),
        ("127.0.0.99", 24, LO),
        ("10.0.0.0", 8, ETH1),
        ("10.0.0.0", 16, ETH0),
        ("10.0.0.7", None, ETH0),
        ("10.1.0.8", 32, ETH1_TOO),
        ("10.1.0.0", 24, ETH1),
        ("0.0.0.0", 0, ETH1),
        ("::", 0, ETH0_V6),
        ("::1", None, LO6),
        ("::1", 128, LO6),
        ("fe80::", 10, ETH0_LINK),
        ("fd00::1", 64, ETH0_V6),
    ],
)
def test_the_longest_netmask_of_those_that_match_wins(
    host: str, prefix_length: int | None, expected: InterfaceAddress
) -> None:
    found = find_interface(TABLE, host, prefix_length=prefix_length, port=7)
    assert found == Interface(
        address=expected.address, index=expected.index, name=expected.name, port=7
    )


def test_loopback_is_taken_where_there_is_nothing_better() -> None:
    assert find_interface((LO, ETH2, TUN), "0.0.0.0", prefix_length=0).name == "lo"


def test_loopback_never_replaces_what_was_found_before_it() -> None:
    assert find_interface((ETH0, LO), "0.0.0.0", prefix_length=0).name == "eth0"


def test_loopback_that_carries_multicast_is_as_good_as_another() -> None:
    loopback = entry("lo0", 1, "127.0.0.1", 8, is_loopback=True)
    assert find_interface((ETH0, loopback), "0.0.0.0", prefix_length=0).name == "eth0"
    wide = entry("eth9", 9, "10.0.0.1", 4)
    assert find_interface((wide, loopback), "0.0.0.0", prefix_length=0).name == "lo0"


@pytest.mark.parametrize(
    ("host", "prefix_length", "text"),
    [
        ("172.16.0.1", None, "172.16.0.1/32"),
        ("172.16.0.0", 12, "172.16.0.0/12"),
        ("192.168.1.7", None, "192.168.1.7/32"),
        ("10.9.0.1", None, "10.9.0.1/32"),
        ("2001:db8::", 32, "2001:db8::/32"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(
    host: str, prefix_length: int | None, text: str
) -> None:
    with pytest.raises(RegistrationError) as refusal:
        find_interface(TABLE, host, prefix_length=prefix_length)
    assert refusal.value.code is ErrorCode.INVALID_CHANNEL
    assert f"matches {text}" in str(refusal.value)
    assert "eth0 10.0.0.7/8; " in str(refusal.value)
    assert "eth2 192.168.1.7/30, down" in str(refusal.value)


def test_a_machine_without_interfaces_says_so() -> None:
    with pytest.raises(RegistrationError, match="there are: none"):
        find_interface((), "0.0.0.0", prefix_length=0)


def test_a_name_stands_for_the_first_address_of_the_family() -> None:
    assert find_named_interface(TABLE, "lo", is_ipv6=False).address == "127.0.0.1"
    assert find_named_interface(TABLE, "lo", is_ipv6=True).address == "::1"
    assert find_named_interface(TABLE, "eth1", is_ipv6=False, port=9) == Interface(
        address="10.1.0.7", index=3, name="eth1", port=9
    )


@pytest.mark.parametrize(
    ("name", "is_ipv6", "reason"),
    [
        ("missing", False, "unknown interface missing"),
        ("eth2", False, "unknown interface eth2, or it is down"),
        ("eth1", True, "interface eth1 has no IPv6 address"),
        ("Eth1", False, "unknown interface Eth1"),
    ],
)
def test_a_name_without_such_an_address_is_refused(
    name: str,
    is_ipv6: bool,  # noqa: FBT001 - a parameter of the test
    reason: str,
) -> None:
    with pytest.raises(RegistrationError, match=reason) as refusal:
        find_named_interface(TABLE, name, is_ipv6=is_ipv6)
    assert refusal.value.code is ErrorCode.INVALID_CHANNEL
