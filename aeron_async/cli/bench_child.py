"""Process that plays one role of a measurement: a stream, a round trip, or a bare flood.

`python -m aeron_async.cli.bench_child ROLE PLAN` starts it; PLAN is JSON. Roles that a peer waits
for print one line of JSON when they are ready, and every role prints one line with its figures at
the end.

A stream begins with a warm-up that does not count. A subscriber counts the messages between the
mark after the warm-up and the mark at the end, and compares every message with the expected one. A
flood is bare datagrams: no frames, order, repair or flow control.

A round trip is measured from when its message was due, not from when it was sent, so messages that
one slow answer delays count as late too.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import signal
import socket
import sys
import time
from array import array
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.cli.bench_processes import BenchError, check_mark, make_mark, make_messages
from aeron_async.cli.figures import LatencySummary
from aeron_async.cli.output import complain
from aeron_async.cli.ping import TIMESTAMP, Pinger, sleep_until
from aeron_async.cli.runner import ExitCode, loop_factory
from aeron_async.client.aeron import Aeron
from aeron_async.clock import NS_PER_SECOND
from aeron_async.driver.media.sockets import UDP_GRO, UDP_SEGMENT, offers_segmentation
from aeron_async.errors import AeronError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence

    from aeron_async.client.subscription import Subscription

__all__ = [
    "ROLES",
    "FloodPlan",
    "RoundTripPlan",
    "StreamPlan",
    "drain",
    "echo_client",
    "echo_server",
    "exchange",
    "figures_of",
    "flood",
    "offer_parts",
    "ping",
    "play",
    "pong",
    "publish",
    "ready",
    "say",
    "subscribe",
    "take_parts",
]

RUN_LENGTH_MAX: Final = 65_000
"""Length of a batch of segments, which is sent as one UDP datagram of less than 64 KiB."""
RUN_COUNT_MAX: Final = 64
BUFFER_LENGTH: Final = 4 * 1024 * 1024
FLOOD_SILENCE_S: Final = 0.5
START_TIMEOUT_S: Final = 20.0
CHECK_COUNT: Final = 64


@attrs.frozen(kw_only=True)
class FloodPlan:
    """Plan of a flood.

    Attributes:
        port: Destination port on this machine.
        mtu_length: Length of a datagram, in bytes.
        seconds: Duration.
    """

    port: int
    mtu_length: int = 1_408
    seconds: float = 2.0


def flood(plan: FloodPlan) -> dict[str, float]:
    """Send datagrams, as segment batches if the system supports them, else one by one."""
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
    """Receive until no datagram comes for a while, and return the rate."""
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
        sock.settimeout(FLOOD_SILENCE_S)
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


CONNECT_TIMEOUT_S: Final = 20.0
STREAM_ID = 1001


@attrs.frozen(kw_only=True)
class StreamPlan:
    """Plan of a stream.

    Attributes:
        channel: Channel of this end.
        length: Length of a message, in bytes.
        seconds: Duration of the part that counts.
        warm_up_s: Duration of the warm-up.
    """

    channel: str
    length: int = 100
    seconds: float = 2.0
    warm_up_s: float = 0.3


async def publish(aeron: Aeron, plan: StreamPlan) -> dict[str, float]:
    """Offer messages, and return the figures of the part that counts."""
    publication = await aeron.add_exclusive_publication(plan.channel, STREAM_ID)
    await publication.wait_connected(CONNECT_TIMEOUT_S)
    figures = await offer_parts(publication.offer, plan)
    await publication.drain(CONNECT_TIMEOUT_S)
    return figures


async def offer_parts(
    offer: Callable[[bytes], Awaitable[object]], plan: StreamPlan
) -> dict[str, float]:
    """Offer both parts, each with its mark, and return the figures of the second."""
    messages = make_messages(plan.length)
    figures: dict[str, float] = {}
    for seconds in (plan.warm_up_s, plan.seconds):
        count, started_s, started_cpu_s = 0, time.perf_counter(), time.process_time()
        end_s = started_s + seconds
        while time.perf_counter() < end_s:
            for message in messages:
                await offer(message)
            count += len(messages)
        await offer(make_mark(count))
        share = (time.process_time() - started_cpu_s) / (time.perf_counter() - started_s)
        figures = {"offered": count, "publisher_share": share}
    return figures


async def subscribe(
    aeron: Aeron, plan: StreamPlan, *, ready: Callable[[], object] = lambda: None
) -> dict[str, float]:
    """Receive messages, and return the rate in the part that counts.

    Args:
        aeron: Client that subscribes.
        plan: Plan of the stream.
        ready: Called when messages may come.

    Raises:
        BenchError: A message is not the expected one.
    """
    subscription = await aeron.add_subscription(plan.channel, STREAM_ID)
    ready()
    return await take_parts(partial(receive_part, subscription), plan)


async def take_parts(
    receive: Callable[[Iterator[bytes]], Awaitable[int]], plan: StreamPlan
) -> dict[str, float]:
    """Receive both parts, and return the figures of the second.

    Args:
        receive: Takes messages up to the next mark, and returns their number.
        plan: Plan of the stream.
    """
    messages = make_messages(plan.length)
    await receive(cycle(messages))
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    count = await receive(cycle(messages))
    elapsed_s = time.perf_counter() - started_s
    return {
        "messages": count,
        "messages_per_s": count / elapsed_s,
        "mb_per_s": count * plan.length / elapsed_s / 1e6,
        "subscriber_share": (time.process_time() - started_cpu_s) / elapsed_s,
    }


async def receive_part(subscription: Subscription, wanted: Iterator[bytes]) -> int:
    """Receive messages up to the next mark, and return their number.

    Raises:
        BenchError: A message is not the expected one.
    """
    count, due = 0, wanted.__next__
    async for message in subscription:
        if message.data != due():
            check_mark(message.data, count)
            break
        count += 1
    return count


async def exchange(aeron: Aeron, plan: StreamPlan) -> dict[str, float]:
    """Publish and subscribe in one event loop, and return the figures of both."""
    ready = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            subscribing = group.create_task(subscribe(aeron, plan, ready=ready.set))
            await ready.wait()
            publishing = group.create_task(publish(aeron, plan))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return publishing.result() | subscribing.result()


ANSWER_TIMEOUT_S: Final = 10.0
PING_STREAM_ID: Final = 1002
PONG_STREAM_ID: Final = 1003


@attrs.frozen(kw_only=True)
class RoundTripPlan:
    """Plan of round trips.

    Attributes:
        there: Channel of pings, or the port of the echo.
        back: Channel of pongs; unused by the echo.
        length: Length of a message, in bytes.
        rate: Messages per second.
        seconds: Duration of the part that counts.
        warm_up_s: Duration of the warm-up.
    """

    there: str
    back: str = ""
    length: int = 100
    rate: float = 10_000.0
    seconds: float = 2.0
    warm_up_s: float = 0.5

    def counts(self) -> tuple[int, int]:
        """Return the number of pings in the warm-up, and of those that count."""
        return max(1, int(self.rate * self.warm_up_s)), max(1, int(self.rate * self.seconds))


def figures_of(latencies_ns: array[int]) -> dict[str, float]:
    """Return percentiles in microseconds."""
    summary = LatencySummary.of(latencies_ns)
    assert summary is not None, "at least one was sent"
    names = {"p50_us": "50", "p99_us": "99", "p99_9_us": "99.9"}
    return {name: summary.percentiles[each] / 1_000 for name, each in names.items()}


async def ping(aeron: Aeron, plan: RoundTripPlan) -> dict[str, float]:
    """Send pings to a pong, and return percentiles of the round trips."""
    subscription = await aeron.add_subscription(plan.back, PONG_STREAM_ID)
    publication = await aeron.add_exclusive_publication(plan.there, PING_STREAM_ID)
    await publication.wait_connected(CONNECT_TIMEOUT_S)
    await subscription.wait_connected(CONNECT_TIMEOUT_S)
    pinger = Pinger(publication, subscription, size=plan.length, timeout=ANSWER_TIMEOUT_S)
    warm_up_count, count = plan.counts()
    await pinger.measure(warm_up_count, rate=plan.rate)
    return figures_of(await pinger.measure(count, rate=plan.rate))


async def pong(
    aeron: Aeron, plan: RoundTripPlan, *, ready: Callable[[], object] = lambda: None
) -> dict[str, float]:
    """Send every ping back; return the number of pings, and the share of a core that was used."""
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
    """Sends every datagram back."""

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override] # a datagram endpoint makes no other
        self.sendto = transport.sendto

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        self.sendto(data, addr)


class _Timing(asyncio.DatagramProtocol):
    """Measures the round trip of every datagram that comes back."""

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
    """Return a socket whose buffer holds what arrives while a busy machine delays its process."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_LENGTH)
    return sock


async def echo_server(plan: RoundTripPlan, *, ready: Callable[[], object]) -> dict[str, float]:
    """Echo datagrams until the process is terminated."""
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
    """Send bare datagrams to the echo at a rate, and return percentiles of the round trips.

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
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await timing.done
    except TimeoutError:
        lost = timing.due_count - len(timing.latencies_ns)
        message = f"{lost} bare datagrams did not come back"
        raise BenchError(message) from None
    finally:
        transport.close()
    return figures_of(timing.latencies_ns[warm_up_count:])


LIFE_S: Final = 600
"""Upper limit on the life of a role, in case the process that started it is gone."""

if TYPE_CHECKING:
    Figures = dict[str, float]
    Role = Callable[[dict[str, Any]], Coroutine[object, object, Figures] | Figures]


def say(**fields: object) -> None:
    """Print one line of JSON for the process that started this one."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def ready() -> None:
    """Report that the peer may begin."""
    say(ready=True)


async def _publish(plan: dict[str, Any]) -> dict[str, float]:
    async with Aeron.connect() as aeron:
        return await publish(aeron, StreamPlan(**plan))


async def _subscribe(plan: dict[str, Any]) -> dict[str, float]:
    async with Aeron.connect() as aeron:
        return await subscribe(aeron, StreamPlan(**plan), ready=ready)


async def _exchange(plan: dict[str, Any]) -> dict[str, float]:
    async with Aeron.connect() as aeron:
        return await exchange(aeron, StreamPlan(**plan))


async def _ping(plan: dict[str, Any]) -> dict[str, float]:
    async with Aeron.connect() as aeron:
        return await ping(aeron, RoundTripPlan(**plan))


async def _pong(plan: dict[str, Any]) -> dict[str, float]:
    async with Aeron.connect() as aeron:
        return await pong(aeron, RoundTripPlan(**plan), ready=ready)


async def _echo_client(plan: dict[str, Any]) -> dict[str, float]:
    return await echo_client(RoundTripPlan(**plan))


async def _echo_server(plan: dict[str, Any]) -> dict[str, float]:
    return await echo_server(RoundTripPlan(**plan), ready=ready)


def _flood(plan: dict[str, Any]) -> dict[str, float]:
    return flood(FloodPlan(**plan))


def _drain(plan: dict[str, Any]) -> dict[str, float]:
    return drain(FloodPlan(**plan), ready=ready)


ROLES: Final[Mapping[str, Role]] = {
    "publish": _publish,
    "subscribe": _subscribe,
    "exchange": _exchange,
    "ping": _ping,
    "pong": _pong,
    "echo_client": _echo_client,
    "echo_server": _echo_server,
    "flood": _flood,
    "drain": _drain,
}


def play(roles: Mapping[str, Role], arguments: Sequence[str]) -> int:
    """Play a role, and print its figures; return the exit code.

    Args:
        roles: Functions by name.
        arguments: The role, and its plan as JSON; `loop` in the plan selects the event loop, by
            default uvloop.
    """
    name, plan = arguments[0], json.loads(arguments[1])
    factory = loop_factory(plan.pop("loop", None))
    signal.alarm(LIFE_S)
    try:
        figures = roles[name](plan)
        if inspect.iscoroutine(figures):
            with asyncio.Runner(loop_factory=factory) as runner:
                figures = runner.run(figures)
    except (AeronError, OSError) as error:
        complain(error)
        return ExitCode.FAILURE
    finally:
        signal.alarm(0)
    say(figures=figures)
    return ExitCode.SUCCESS


if __name__ == "__main__":
    sys.exit(play(ROLES, sys.argv[1:]))
