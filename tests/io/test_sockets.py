from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from aeron_async.driver.media.network import system_interfaces
from aeron_async.driver.media.sockets import (
    REPORTED_PER_GRANTED,
    BufferLengths,
    ShortageLog,
    SocketSpec,
    open_socket,
    system_address,
    two_tuple,
)
from aeron_async.errors import ErrorCode, RegistrationError

if TYPE_CHECKING:
    from aeron_async.driver.media.sockets import SocketAddress

LOOPBACK = ("127.0.0.1", 0)


def taken(sock: socket.socket) -> SocketAddress:
    return two_tuple(sock.getsockname())


def test_a_socket_is_non_blocking_and_shares_nothing() -> None:
    with open_socket(SocketSpec(local=LOOPBACK)) as sock:
        assert not sock.getblocking()
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 0
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT) == 0


def test_a_port_is_shared_when_both_sides_say_so() -> None:
    with open_socket(SocketSpec(local=LOOPBACK, reuse_port=True, reuse_address=True)) as first:
        spec = SocketSpec(local=taken(first), reuse_port=True, reuse_address=True)
        with open_socket(spec) as second:
            assert taken(second) == taken(first)


def test_an_ipv6_socket_leaves_the_ipv4_port_alone() -> None:
    with open_socket(SocketSpec(local=("::", 0))) as sock:
        assert sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
        with open_socket(SocketSpec(local=("0.0.0.0", taken(sock)[1]))) as other:
            assert taken(other)[1] == taken(sock)[1]


def test_a_taken_port_is_named_with_what_to_change() -> None:
    with open_socket(SocketSpec(local=LOOPBACK)) as sock:
        port = taken(sock)[1]
        with pytest.raises(RegistrationError) as refusal:
            open_socket(SocketSpec(local=("127.0.0.1", port)))
    assert refusal.value.code is ErrorCode.CHANNEL_ENDPOINT_ERROR
    assert str(refusal.value) == (
        f"cannot bind 127.0.0.1:{port}: Address already in use; "
        "another socket holds this port: choose another one, or stop its program"
    )


def test_an_address_of_another_machine_is_named_with_what_to_change() -> None:
    with pytest.raises(
        RegistrationError, match=r"192\.0\.2\.1:0.*choose one of its own"
    ) as refusal:
        open_socket(SocketSpec(local=("192.0.2.1", 0)))
    assert refusal.value.code is ErrorCode.CHANNEL_ENDPOINT_ERROR


def test_a_connection_that_the_system_refuses_is_named() -> None:
    # The broadcast address needs a permission that no unicast channel asks for.
    spec = SocketSpec(local=LOOPBACK, remote=("255.255.255.255", 40456))
    with pytest.raises(RegistrationError, match=r"connect to 255\.255\.255\.255:40456"):
        open_socket(spec)


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EMFILE, "raise `ulimit -n`"),
        (errno.EAFNOSUPPORT, "use the other (IPv4 or IPv6)"),
        (errno.EIO, "check the endpoint, control and interface of the channel"),
    ],
)
def test_a_socket_that_cannot_be_made_says_what_to_change(
    monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(RegistrationError) as refusal:
        open_socket(SocketSpec(local=LOOPBACK))
    assert refusal.value.code is ErrorCode.CHANNEL_ENDPOINT_ERROR
    assert str(refusal.value).startswith("cannot open a socket for 127.0.0.1:0: no; ")
    assert str(refusal.value).endswith(remedy)


def test_a_buffer_is_granted_in_the_units_it_was_asked_in() -> None:
    spec = SocketSpec(local=LOOPBACK, socket_rcvbuf_length=65536, socket_sndbuf_length=32768)
    with open_socket(spec) as sock:
        granted = BufferLengths.of(sock, spec)
    assert granted.granted_rcvbuf_length == 65536
    assert granted.granted_sndbuf_length == 32768


def test_a_default_buffer_is_what_the_kernel_reports() -> None:
    spec = SocketSpec(local=LOOPBACK)
    with open_socket(spec) as sock:
        granted = BufferLengths.of(sock, spec)
        assert granted.granted_rcvbuf_length == sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    with capture_logs() as lines:
        ShortageLog().note(spec, granted)
    assert lines == []


class ClampingSocket:
    """A kernel that grants 200 000 bytes, whatever it is asked for."""

    def getsockopt(self, level: int, option: int) -> int:
        return 200_000 * REPORTED_PER_GRANTED


def test_a_clamped_buffer_is_told_once_with_the_setting_to_raise() -> None:
    shortages = ShortageLog()
    with capture_logs() as lines:
        for rcvbuf_length, sndbuf_length in ((300_000, 0), (300_000, 0), (0, 400_000)):
            spec = SocketSpec(
                local=("127.0.0.1", 40456),
                socket_rcvbuf_length=rcvbuf_length,
                socket_sndbuf_length=sndbuf_length,
            )
            granted = BufferLengths.of(ClampingSocket(), spec)  # type: ignore[arg-type]
            shortages.note(spec, granted)
    assert lines == [
        {
            "event": "socket_buffer_clamped",
            "log_level": "warning",
            "local": "127.0.0.1:40456",
            "asked_length": asked_length,
            "granted_length": 200_000,
            "remedy": f"sysctl -w {sysctl}={asked_length}",
        }
        for asked_length, sysctl in (
            (300_000, "net.core.rmem_max"),
            (400_000, "net.core.wmem_max"),
        )
    ]


def test_an_interface_that_has_no_number_is_found_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(name: str) -> int:
        raise OSError(errno.ENODEV, name)

    monkeypatch.setattr(socket, "if_nametoindex", refuse)
    found = system_interfaces()
    assert found
    assert {each.index for each in found} == {0}


def test_loopback_is_among_the_interfaces_of_this_machine() -> None:
    loopback = next(each for each in system_interfaces() if each.address == "127.0.0.1")
    assert loopback.is_up
    assert loopback.is_loopback
    assert loopback.prefix_length == 8
    assert loopback.index == socket.if_nametoindex(loopback.name)


def test_links_go_by_number() -> None:
    assert system_address(("10.0.0.1", 7)) == ("10.0.0.1", 7)
    assert system_address(("fe80::1%3", 7)) == ("fe80::1", 7, 0, 3)
    name = socket.if_indextoname(1)
    assert system_address((f"fe80::1%{name}", 7)) == ("fe80::1", 7, 0, 1)
    assert two_tuple(("fe80::1", 7, 0, 3)) == ("fe80::1%3", 7)
    assert two_tuple(("fe80::1%eth0", 7, 0, 3)) == ("fe80::1%eth0", 7)
    with pytest.raises(RegistrationError, match="cannot bind"):
        open_socket(SocketSpec(local=("fe80::1%no-such-link", 0)))
