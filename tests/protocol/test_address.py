from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.errors import ConfigurationError
from aeron_async.protocol.address import (
    Address,
    InterfaceSpec,
    multicast_control_address,
    usual_spelling,
)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost:40456", "localhost", 40456),
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("my_host-1.example.com:65535", "my_host-1.example.com", 65535),
        ("[::1]:40456", "::1", 40456),
        ("[fe80::1%eth0]:40456", "fe80::1", 40456),
        ("[::ffff:10.0.0.1]:1", "::ffff:10.0.0.1", 1),
        ("[::FFFF:a00:1]:1", "::ffff:10.0.0.1", 1),
        ("[FF02:0::00FD]:1", "ff02::fd", 1),
    ],
)
def test_an_address_is_a_host_and_a_port_and_keeps_its_text(
    text: str, host: str, port: int
) -> None:
    address = Address.parse(text)
    assert (address.host, address.port, address.text) == (host, port, text)
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("localhost", "write host:port, such as localhost:40456"),
        ("[::1]", r"write host:port, such as \[::1\]:40456"),
        ("localhost:", "port between 0 and 65535"),
        ("localhost:65536", "port between 0 and 65535"),
        ("localhost:-1", "port between 0 and 65535"),
        ("localhost:0x10", "port between 0 and 65535"),
        ("localhost:010", "port between 0 and 65535"),
        ("localhost:99999999999999999999", "port between 0 and 65535"),
        ("[::1]40456", "port between 0 and 65535"),
        ("::1:40456", "needs brackets"),
        ("fe80::1", "needs brackets"),
        (":40456", "no usable host"),
        ("", "no usable host"),
        ("a b:40456", "no usable host"),
        ("a" * 384 + ":1", "at most 383"),
        ("256.0.0.1:1", "not an IPv4 address"),
        ("127.1:1", "not an IPv4 address"),
        ("10.0.0.01:1", "not an IPv4 address"),
        ("[127.0.0.1]:1", "IPv6 literal in brackets"),
        ("[localhost]:1", "IPv6 literal in brackets"),
        ("[]:1", "IPv6 literal in brackets"),
        ("[::1%]:1", "IPv6 literal in brackets"),
        ("[::1", "IPv6 literal in brackets"),
    ],
)
def test_what_is_no_address_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        Address.parse(text)


def test_an_address_can_be_made_of_a_host_and_a_port() -> None:
    assert Address.of("127.0.0.1", 7) == Address.parse("127.0.0.1:7")
    assert Address.of("::1", 7) == Address.parse("[::1]:7")
    with pytest.raises(ConfigurationError):
        Address.of("localhost", 65536)


def test_a_literal_is_told_from_a_name() -> None:
    assert Address.parse("10.0.0.1:1").ip == ip_address("10.0.0.1")
    assert Address.parse("[fe80::1%eth0]:1").ip == ip_address("fe80::1")
    assert Address.parse("localhost:1").ip is None


@pytest.mark.parametrize(
    ("text", "is_multicast"),
    [
        ("223.255.255.255:1", False),
        ("224.0.0.0:1", True),
        ("239.255.255.255:1", True),
        ("240.0.0.1:1", False),
        ("[ff02::1]:1", True),
        ("[fe80::1]:1", False),
        ("[::ffff:224.0.0.1]:1", False),
        ("group.example:1", False),
    ],
)
def test_multicast_groups_are_known_by_their_literals(text: str, *, is_multicast: bool) -> None:
    assert Address.parse(text).is_multicast is is_multicast


@pytest.mark.parametrize(
    ("data", "control"),
    [
        ("224.0.1.1:40456", "224.0.1.2:40456"),
        ("239.1.2.255:7", "239.1.2.0:7"),
        ("[ff02::1]:7", "[ff02::2]:7"),
        ("[ff02::1%eth0]:7", "[ff02::2]:7"),
        ("[ff02::ff]:7", "[ff02::]:7"),
    ],
)
def test_a_group_is_controlled_one_address_higher_without_carry(data: str, control: str) -> None:
    assert multicast_control_address(Address.parse(data)).text == control


@pytest.mark.parametrize("text", ["224.0.1.2:1", "[ff02::2]:1"])
def test_an_even_group_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="must be odd"):
        multicast_control_address(Address.parse(text))


@pytest.mark.parametrize("text", ["10.0.0.1:1", "localhost:1"])
def test_what_is_no_group_has_no_control_address(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not the literal address of a multicast group"):
        multicast_control_address(Address.parse(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost", ("localhost", None, 0, None)),
        ("127.0.0.1/24", ("127.0.0.1", None, 0, 24)),
        ("10.0.0.0/8", ("10.0.0.0", None, 0, 8)),
        ("0.0.0.0/0", ("0.0.0.0", None, 0, 0)),
        ("192.168.1.7:40457", ("192.168.1.7", None, 40457, None)),
        ("192.168.1.7:40457/32", ("192.168.1.7", None, 40457, 32)),
        ("localhost/128", ("localhost", None, 0, 128)),
        ("[::1]", ("::1", None, 0, None)),
        ("[fe80::1%2]:40457/64", ("fe80::1", None, 40457, 64)),
        ("{lo}", (None, "lo", 0, None)),
        ("{eth0}:40457", (None, "eth0", 40457, None)),
    ],
)
def test_an_interface_is_given_by_address_and_prefix_or_by_name(
    text: str, expected: tuple[str | None, str | None, int, int | None]
) -> None:
    spec = InterfaceSpec.parse(text)
    assert (spec.host, spec.interface_name, spec.port, spec.prefix_length) == expected
    assert str(spec) == spec.text == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no usable host"),
        ("/24", "no usable host"),
        ("127.0.0.1/33", "between 0 and 32"),
        ("127.0.0.1/", "between 0 and 32"),
        ("127.0.0.1/08", "between 0 and 32"),
        ("[::1]/129", "between 0 and 128"),
        ("127.0.0.1/24:40457", "between 0 and 32"),
        ("127.0.0.1:", "port between 0 and 65535"),
        ("::1", "needs brackets"),
        ("{}", "in braces"),
        ("{eth0", "in braces"),
        ("{a-name-that-is-16}", "in braces"),
        ("{eth0}7", "port between 0 and 65535"),
        ("{eth0}:65536", "port between 0 and 65535"),
        ("{eth0}:", "port between 0 and 65535"),
        ("{eth0}/24", "port between 0 and 65535"),
    ],
)
def test_what_is_no_interface_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        InterfaceSpec.parse(text)


def test_an_interface_has_an_ip_address_where_it_is_a_literal() -> None:
    assert InterfaceSpec.parse("10.0.0.0/8").ip == ip_address("10.0.0.0")
    assert InterfaceSpec.parse("localhost").ip is None
    assert InterfaceSpec.parse("{lo}").ip is None


@given(st.ip_addresses(), st.integers(0, 65535))
def test_every_literal_and_port_make_an_address(ip: object, port: int) -> None:
    address = Address.of(str(ip).partition("%")[0], port)
    assert Address.parse(str(address)) == address
    assert address.ip == ip_address(address.host)


@given(st.text(alphabet="[]{}:%/.-_ 0159afzé", max_size=24))
def test_any_text_is_an_address_or_a_configuration_error(text: str) -> None:
    for parse in (Address.parse, InterfaceSpec.parse):
        with suppress(ConfigurationError):
            assert str(parse(text)) == text


def test_a_scope_is_kept_beside_the_address() -> None:
    assert Address.parse("[fe80::1%eth0]:7").scope == "eth0"
    assert Address.parse("[fe80::1]:7").scope is None
    assert Address.parse("localhost:7").scope is None


def test_what_is_no_literal_stays_as_it_is_spelled() -> None:
    assert usual_spelling("a:b") == "a:b"
