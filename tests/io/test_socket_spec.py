from __future__ import annotations

import socket

import pytest

from aeron_async.driver.media.sockets import SocketAddress, SocketSpec, literal
from aeron_async.errors import ConfigurationError


def test_the_family_follows_from_the_local_address() -> None:
    assert SocketSpec(local=("0.0.0.0", 0)).family == socket.AF_INET
    assert SocketSpec(local=("::", 0)).family == socket.AF_INET6


def test_nothing_is_shared_and_no_buffer_asked_for_unless_said() -> None:
    spec = SocketSpec(local=("127.0.0.1", 0), remote=("127.0.0.1", 40456))
    assert not spec.reuse_address
    assert not spec.reuse_port
    assert spec.socket_sndbuf_length == spec.socket_rcvbuf_length == 0


@pytest.mark.parametrize(
    ("local", "remote", "message"),
    [
        (("localhost", 0), None, "'localhost' is not a numeric address"),
        (("127.0.0.1", 65536), None, "127.0.0.1:65536 must be between 0 and 65535"),
        (("127.0.0.1", 0), ("127.0.0.1", 0), "127.0.0.1:0 must be between 1 and 65535"),
        (("127.0.0.1", 0), ("::1", 40456), r"\[::1\]:40456: both must be IPv4, or both IPv6"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused(
    local: SocketAddress, remote: SocketAddress | None, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SocketSpec(local=local, remote=remote)


@pytest.mark.parametrize("length", [-1, 2**31])
def test_a_buffer_length_that_the_system_cannot_hold_is_refused(length: int) -> None:
    with pytest.raises(ConfigurationError, match=f"socket_rcvbuf_length={length}"):
        SocketSpec(local=("127.0.0.1", 0), socket_rcvbuf_length=length)
    with pytest.raises(ConfigurationError, match=f"socket_sndbuf_length={length}"):
        SocketSpec(local=("127.0.0.1", 0), socket_sndbuf_length=length)


def test_only_numeric_hosts_are_literal() -> None:
    assert str(literal("10.0.0.1")) == "10.0.0.1"
    assert str(literal("fe80::1%eth0")) == "fe80::1%eth0"
    assert literal("localhost") is None


@pytest.mark.parametrize(
    ("local", "group"),
    [
        ("0.0.0.0", "10.0.0.1"),
        ("0.0.0.0", "ff02::1"),
        ("::", "224.0.1.1"),
        ("::", "fd00::1"),
    ],
)
def test_a_group_is_a_multicast_address_of_the_sockets_family(local: str, group: str) -> None:
    with pytest.raises(ConfigurationError, match=r"group=.* must be an IPv[46] multicast group"):
        SocketSpec(local=(local, 7), group=group)


def test_a_group_is_numeric() -> None:
    with pytest.raises(ConfigurationError, match="resolve the name first"):
        SocketSpec(local=("0.0.0.0", 7), group="group")


@pytest.mark.parametrize("ttl", [-1, 256])
def test_hops_have_limits(ttl: int) -> None:
    with pytest.raises(ConfigurationError, match=f"ttl={ttl} must be between 0 and 255"):
        SocketSpec(local=("0.0.0.0", 7), ttl=ttl)
