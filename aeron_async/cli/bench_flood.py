"""The floor of throughput: bare datagrams in runs, as fast as two processes pass them on.

No frames, no order, no repair, no flow control: what is lost is lost, and counted is what arrived.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.driver.media.sockets import UDP_GRO, UDP_SEGMENT, offers_segmentation

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FloodPlan", "drain", "flood"]

RUN_LENGTH_MAX: Final = 65_000
"""A run is sent as one datagram, of less than 64 KiB with its headers."""
RUN_COUNT_MAX: Final = 64
BUFFER_LENGTH: Final = 4 * 1024 * 1024
SILENCE_S: Final = 0.5
START_TIMEOUT_S: Final = 20.0
CHECK_COUNT: Final = 64


@attrs.frozen(kw_only=True)
class FloodPlan:
    """What is sent.

    Attributes:
        port: Where to, on this machine.
        mtu_length: Of a datagram, in bytes.
        seconds: How long.
    """

    port: int
    mtu_length: int = 1_408
    seconds: float = 2.0


def flood(plan: FloodPlan) -> dict[str, float]:
    """Send runs of datagrams, one call a run, where the system cuts them; else one by one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_LENGTH)
        sock.connect(("127.0.0.1", plan.port))
        count = 1
        if offers_segmentation(sock):
            count = max(1, min(RUN_COUNT_MAX, RUN_LENGTH_MAX // plan.mtu_length))
        if count > 1:
            sock.setsockopt(socket.SOL_UDP, UDP_SEGMENT, plan.mtu_length)
        run, sent = bytes(plan.mtu_length * count), 0
        end_s = time.perf_counter() + plan.seconds
        while time.perf_counter() < end_s:
            for _ in range(CHECK_COUNT):
                sock.send(run)
            sent += CHECK_COUNT * count
    return {"datagrams_sent": sent}


def drain(plan: FloodPlan, *, ready: Callable[[], object] = lambda: None) -> dict[str, float]:
    """Receive until nothing comes any more, and return how much came a second."""
    buffer = bytearray(65_536)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_LENGTH)
        if offers_segmentation(sock):
            sock.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
        sock.bind(("127.0.0.1", plan.port))
        sock.settimeout(START_TIMEOUT_S)
        ready()
        length = sock.recv_into(buffer)
        started_s = last_s = time.perf_counter()
        sock.settimeout(SILENCE_S)
        received = 0
        while length:
            try:
                length = sock.recv_into(buffer)
            except TimeoutError:
                break
            received += length
            last_s = time.perf_counter()
    datagrams = received / plan.mtu_length
    elapsed_s = max(last_s - started_s, 1e-9)
    return {"mb_per_s": received / elapsed_s / 1e6, "datagrams_per_s": datagrams / elapsed_s}
