"""Round trips at a rate, of messages and, beside them, of bare datagrams on the same event loop.

Each is measured from when it was due, not from when it left: what one slow answer holds up counts
as late too.
"""

from __future__ import annotations

import asyncio
import socket
import time
from array import array
from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.cli.bench_messages import BenchError
from aeron_async.cli.latency import LatencySummary
from aeron_async.cli.ping import TIMESTAMP, Pinger, sleep_until
from aeron_async.clock import NS_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.client.aeron import Aeron

__all__ = ["RoundTripPlan", "echo_client", "echo_server", "figures_of", "ping", "pong"]

CONNECT_TIMEOUT_S: Final = 20.0
SILENCE_S: Final = 10.0
BUFFER_LENGTH: Final = 4 * 1024 * 1024
PING_STREAM_ID: Final = 1002
PONG_STREAM_ID: Final = 1003


@attrs.frozen(kw_only=True)
class RoundTripPlan:
    """What goes there and back.

    Attributes:
        there: Channel of pings, or the port of the echo.
        back: Channel of pongs; of no use to the echo.
        length: Of a message, in bytes.
        rate: Messages a second.
        seconds: How long pings leave that count.
        warm_up_s: How long pings leave before.
    """

    there: str
    back: str = ""
    length: int = 100
    rate: float = 10_000.0
    seconds: float = 2.0
    warm_up_s: float = 0.5

    def counts(self) -> tuple[int, int]:
        """Return how many pings warm up, and how many count."""
        return max(1, int(self.rate * self.warm_up_s)), max(1, int(self.rate * self.seconds))


def figures_of(latencies_ns: array[int]) -> dict[str, float]:
    """Return the percentiles, in microseconds."""
    summary = LatencySummary.of(latencies_ns)
    assert summary is not None, "at least one was sent"
    names = {"p50_us": "50", "p99_us": "99", "p99_9_us": "99.9"}
    return {name: summary.percentiles[each] / 1_000 for name, each in names.items()}


async def ping(aeron: Aeron, plan: RoundTripPlan) -> dict[str, float]:
    """Send pings to a pong, and return how long they took."""
    subscription = await aeron.add_subscription(plan.back, PONG_STREAM_ID)
    publication = await aeron.add_exclusive_publication(plan.there, PING_STREAM_ID)
    await publication.wait_connected(CONNECT_TIMEOUT_S)
    await subscription.wait_connected(CONNECT_TIMEOUT_S)
    pinger = Pinger(publication, subscription, size=plan.length, timeout=SILENCE_S)
    warm_up_count, count = plan.counts()
    await pinger.measure(warm_up_count, rate=plan.rate)
    return figures_of(await pinger.measure(count, rate=plan.rate))


async def pong(
    aeron: Aeron, plan: RoundTripPlan, *, ready: Callable[[], object] = lambda: None
) -> dict[str, float]:
    """Send every ping back, and return how many there were, and what share of a core that took."""
    subscription = await aeron.add_subscription(plan.there, PING_STREAM_ID)
    publication = await aeron.add_exclusive_publication(plan.back, PONG_STREAM_ID)
    ready()
    count, due = 0, sum(plan.counts())
    started_s, started_cpu_s = 0.0, 0.0
    async for message in subscription:
        await publication.offer(message.data)
        if not count:
            started_s, started_cpu_s = time.perf_counter(), time.process_time()
        count += 1
        if count == due:
            break
    elapsed_s = time.perf_counter() - started_s
    share = (time.process_time() - started_cpu_s) / elapsed_s if elapsed_s else 0.0
    await publication.drain(CONNECT_TIMEOUT_S)
    return {"echoed": count, "pong_share": share}


class _Echo(asyncio.DatagramProtocol):
    """Sends every datagram back, and nothing else."""

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override] # a datagram endpoint makes no other
        self.sendto = transport.sendto

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        self.sendto(data, addr)


class _Timing(asyncio.DatagramProtocol):
    """Times every datagram that comes back."""

    def __init__(self, due_count: int) -> None:
        self.latencies_ns: array[int] = array("q")
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.due_count = due_count

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        del addr
        (due_ns,) = TIMESTAMP.unpack_from(data)
        self.latencies_ns.append(time.monotonic_ns() - due_ns)
        if len(self.latencies_ns) == self.due_count and not self.done.done():
            self.done.set_result(None)


def bare_socket() -> socket.socket:
    """Return a socket with room for what comes while its process is not run by a busy machine."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_LENGTH)
    return sock


async def echo_server(plan: RoundTripPlan, *, ready: Callable[[], object]) -> dict[str, float]:
    """Echo datagrams until the process is ended."""
    loop = asyncio.get_running_loop()
    sock = bare_socket()
    sock.bind(("127.0.0.1", int(plan.there)))
    transport, _ = await loop.create_datagram_endpoint(_Echo, sock=sock)
    ready()
    try:
        await asyncio.Event().wait()
    finally:
        transport.close()
    return {}


async def echo_client(plan: RoundTripPlan) -> dict[str, float]:
    """Send bare datagrams to the echo at the rate, and return how long they took.

    Raises:
        BenchError: Datagrams were lost.
    """
    loop = asyncio.get_running_loop()
    warm_up_count, count = plan.counts()
    sock = bare_socket()
    sock.connect(("127.0.0.1", int(plan.there)))
    transport, timing = await loop.create_datagram_endpoint(
        lambda: _Timing(warm_up_count + count), sock=sock
    )
    data, interval_ns = bytearray(plan.length), NS_PER_SECOND / plan.rate
    started_ns = time.monotonic_ns()
    for number in range(warm_up_count + count):
        due_ns = started_ns + int(number * interval_ns)
        await sleep_until(due_ns)
        TIMESTAMP.pack_into(data, 0, due_ns)
        transport.sendto(bytes(data))
    try:
        async with asyncio.timeout(SILENCE_S):
            await timing.done
    except TimeoutError:
        lost = timing.due_count - len(timing.latencies_ns)
        message = f"{lost} bare datagrams did not come back"
        raise BenchError(message) from None
    finally:
        transport.close()
    return figures_of(timing.latencies_ns[warm_up_count:])
