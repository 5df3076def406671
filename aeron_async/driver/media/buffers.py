"""How much socket buffer the kernel granted, and a word to the operator where it falls short.

A receive buffer smaller than the receiver window loses datagrams in every burst, and nothing but
retransmission tells of it; so the shortage is said aloud once, with the setting that cures it.
"""

from __future__ import annotations

import math
import socket
import sys
from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.driver.core.udp_channel import format_address
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aeron_async.driver.media.socket_spec import SocketSpec

__all__ = ["BufferLengths", "DropLog", "ShortageLog"]

# Linux doubles the length it was asked for, to cover its own bookkeeping, and reports the double.
REPORTED_PER_GRANTED: Final = 2 if sys.platform == "linux" else 1

DROP_LOG_INTERVAL_S: Final = 1.0

_log: Final[Any] = get_logger(__name__)


@attrs.frozen(kw_only=True)
class BufferLengths:
    """Lengths of a socket's buffers, in bytes, comparable with what was asked for.

    Where the system's default was taken, a length is what the kernel reports, as Aeron takes it.

    Attributes:
        granted_sndbuf_length: Of SO_SNDBUF.
        granted_rcvbuf_length: Of SO_RCVBUF.
    """

    granted_sndbuf_length: int
    granted_rcvbuf_length: int

    @classmethod
    def of(cls, sock: socket.socket, spec: SocketSpec) -> BufferLengths:
        """Read what an open socket has."""
        return cls(
            granted_sndbuf_length=_granted(sock, socket.SO_SNDBUF, spec.socket_sndbuf_length),
            granted_rcvbuf_length=_granted(sock, socket.SO_RCVBUF, spec.socket_rcvbuf_length),
        )


class ShortageLog:
    """Writes one warning for each setting and length asked for in vain, however many sockets ask.

    Differs: Aeron compares with the length that Linux doubled, so a buffer granted only half in
    full passes there without a word.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[str, int]] = set()

    def note(self, spec: SocketSpec, granted: BufferLengths) -> None:
        """Warn where a buffer is shorter than asked."""
        self._compare(
            "net.core.wmem_max", spec, spec.socket_sndbuf_length, granted.granted_sndbuf_length
        )
        self._compare(
            "net.core.rmem_max", spec, spec.socket_rcvbuf_length, granted.granted_rcvbuf_length
        )

    def _compare(self, sysctl: str, spec: SocketSpec, asked: int, granted: int) -> None:
        if granted >= asked or (sysctl, asked) in self._seen:
            return
        self._seen.add((sysctl, asked))
        _log.warning(
            "socket_buffer_clamped",
            local=format_address(spec.local),
            asked_length=asked,
            granted_length=granted,
            remedy=f"sysctl -w {sysctl}={asked}",
        )


class DropLog:
    """Writes a warning for what sockets had no room for, at most once a second for all."""

    def __init__(self) -> None:
        self._count = 0
        self._next_s = -math.inf

    def note(self, count: int, extra: Mapping[str, Any], now_s: float) -> None:
        """Warn of datagrams that were dropped, with all those since the last warning.

        Args:
            count: Of the datagrams.
            extra: Of the socket's transport: `sockname` and `granted_rcvbuf_length`.
            now_s: The loop's time.
        """
        self._count += count
        if now_s < self._next_s:
            return
        self._next_s = now_s + DROP_LOG_INTERVAL_S
        _log.warning(
            "datagrams_dropped",
            local=format_address(extra.get("sockname", ("", 0))),
            count=self._count,
            granted_rcvbuf_length=extra.get("granted_rcvbuf_length", 0),
            remedy="raise socket_rcvbuf_length, or so-rcvbuf of the channel (SO_RCVBUF), "
            "and sysctl net.core.rmem_max with it",
        )
        self._count = 0


def _granted(sock: socket.socket, option: int, asked: int) -> int:
    reported = sock.getsockopt(socket.SOL_SOCKET, option)
    return reported // REPORTED_PER_GRANTED if asked else reported
