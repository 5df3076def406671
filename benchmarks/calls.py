"""Question: what does a call cost, beside gRPC, NATS, ZeroMQ, and a plain echo of our own?

`python -m benchmarks.calls` starts a server and a client in a process each, on uvloop, and lets the
client call: a request of 100 bytes, an answer of the same. One after the other gives the median
latency; 256 under way at once give calls a second, and those of the worst second. The peers take
turns, as often as `--runs` says, and the medians of the runs are shown. Outcomes are counted: a
call that fails counts for nobody.

The aims: 1.3 times the latency of our own echo at most; 20 times the calls of grpc.aio, 3 times
those of nats-py, 5 times those of pyzmq at least.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import socket
import statistics
import sys
from collections import Counter
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Final

import uvloop

import aeron_async as aa
from aeron_async import rpc
from aeron_async.cli.bench_processes import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    Call = Callable[[bytes], Awaitable[bytes]]

REQUEST: Final = bytes(100)
TIMEOUT_S: Final = 5
STREAM_ID: Final = 1001
START_S: Final = 20
"""How long a process may take to begin."""
NEEDED: Final = {"grpc.aio": "grpc", "nats-py": "nats", "pyzmq": "zmq"}
AIMS: Final = {"grpc.aio": 20.0, "nats-py": 3.0, "pyzmq": 5.0}
PING_AIM: Final = 1.3
OURS: Final = "ours, def"
PING: Final = "our own echo"


def channel_at(port: int) -> str:
    """Return the channel of our service."""
    return f"aeron:udp?endpoint=127.0.0.1:{port}|control=127.0.0.1:{port + 1}"


def make_service() -> rpc.Server:
    """Return our service."""
    server = rpc.Server("echo")

    @server.unary
    def plain(request: bytes) -> bytes:
        return request

    @server.unary
    async def waiting(request: bytes) -> bytes:
        return request

    return server


@asynccontextmanager
async def serve_ours(port: int) -> AsyncGenerator[None, None]:
    """Serve calls over Aeron."""
    async with aa.Aeron.connect() as aeron, make_service().serve(aeron, channel_at(port)):
        yield


def ours(method: str) -> Callable[[int], Any]:
    """Return what connects to a method of ours."""

    @asynccontextmanager
    async def connect(port: int) -> AsyncGenerator[Call, None]:
        async with (
            aa.Aeron.connect() as aeron,
            rpc.Client(aeron, channel_at(port), "echo") as client,
        ):
            await client.wait_connected(TIMEOUT_S)

            async def call(request: bytes) -> bytes:
                return await client.call(method, request)

            yield call

    return connect


@asynccontextmanager
async def serve_ping(port: int) -> AsyncGenerator[None, None]:
    """Send each message back, without an envelope."""
    async with aa.Aeron.connect() as aeron:
        back = await aeron.add_exclusive_publication(
            f"aeron:udp?endpoint=127.0.0.1:{port + 1}", STREAM_ID
        )
        requests = await aeron.add_subscription(f"aeron:udp?endpoint=127.0.0.1:{port}", STREAM_ID)
        requests.on_message(lambda message: back.try_offer(message.data) and None)
        yield


@asynccontextmanager
async def connect_ping(port: int) -> AsyncGenerator[Call, None]:
    """Send one message at a time, and wait for it."""
    async with aa.Aeron.connect() as aeron:
        answers = await aeron.add_subscription(
            f"aeron:udp?endpoint=127.0.0.1:{port + 1}", STREAM_ID
        )
        out = await aeron.add_exclusive_publication(
            f"aeron:udp?endpoint=127.0.0.1:{port}", STREAM_ID
        )
        await out.wait_connected(TIMEOUT_S)
        await answers.wait_connected(TIMEOUT_S)

        async def call(request: bytes) -> bytes:
            await out.offer(request)
            return (await anext(answers)).data

        yield call


@asynccontextmanager
async def serve_grpc(port: int) -> AsyncGenerator[None, None]:
    """Serve bytes as they are, without protobuf."""
    import grpc  # noqa: PLC0415 - it is optional

    async def echo(request: bytes, _: Any) -> bytes:
        return request

    handlers = {"echo": grpc.unary_unary_rpc_method_handler(echo)}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("calls", handlers)])
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    yield
    await server.stop(None)


@asynccontextmanager
async def connect_grpc(port: int) -> AsyncGenerator[Call, None]:
    """Call by one channel."""
    import grpc  # noqa: PLC0415 - it is optional

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await asyncio.wait_for(channel.channel_ready(), TIMEOUT_S)
        echo = channel.unary_unary("/calls/echo")

        async def call(request: bytes) -> bytes:
            answer: bytes = await echo(request, timeout=TIMEOUT_S)
            return answer

        yield call


@asynccontextmanager
async def serve_nats(port: int) -> AsyncGenerator[None, None]:
    """Start a server of NATS, and answer."""
    broker = await asyncio.create_subprocess_exec(
        "nats-server", "-a", "127.0.0.1", "-p", str(port),
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        client = await connected_nats(port)

        async def answer(message: Any) -> None:
            await message.respond(message.data)

        await client.subscribe("echo", cb=answer)
        await client.flush()
        yield
        await client.close()
    finally:
        broker.terminate()
        await broker.wait()


async def connected_nats(port: int) -> Any:
    """Return a client of NATS, whose server may still be starting."""
    import nats  # noqa: PLC0415 - it is optional

    async def ignore(_: Exception) -> None:
        """Try again."""

    return await nats.connect(
        f"nats://127.0.0.1:{port}", reconnect_time_wait=0.1, allow_reconnect=True,
        max_reconnect_attempts=50, error_cb=ignore,
    )  # fmt: skip


@asynccontextmanager
async def connect_nats(port: int) -> AsyncGenerator[Call, None]:
    """Request by one connection."""
    client = await connected_nats(port)

    async def call(request: bytes) -> bytes:
        answer: bytes = (await client.request("echo", request, timeout=TIMEOUT_S)).data
        return answer

    yield call
    await client.close()


@asynccontextmanager
async def serve_zmq(port: int) -> AsyncGenerator[None, None]:
    """Answer with the frames that came."""
    import zmq  # noqa: PLC0415 - it is optional
    import zmq.asyncio  # noqa: PLC0415

    router = zmq.asyncio.Context.instance().socket(zmq.ROUTER)
    router.set_hwm(0)
    router.bind(f"tcp://127.0.0.1:{port}")

    async def answer() -> None:
        while True:
            await router.send_multipart(await router.recv_multipart())

    async with asyncio.TaskGroup() as group:
        task = group.create_task(answer())
        yield
        task.cancel()
    router.close(0)


@asynccontextmanager
async def connect_zmq(port: int) -> AsyncGenerator[Call, None]:
    """Call by one DEALER; the answers are told apart by a number."""
    import zmq  # noqa: PLC0415 - it is optional
    import zmq.asyncio  # noqa: PLC0415

    dealer = zmq.asyncio.Context.instance().socket(zmq.DEALER)
    dealer.set_hwm(0)
    dealer.connect(f"tcp://127.0.0.1:{port}")
    waiting: dict[bytes, asyncio.Future[bytes]] = {}
    loop, count = asyncio.get_running_loop(), 0

    async def read() -> None:
        while True:
            number, answer = await dealer.recv_multipart()
            waiting.pop(number).set_result(answer)

    async def call(request: bytes) -> bytes:
        nonlocal count
        count += 1
        number = b"%d" % count
        future = waiting[number] = loop.create_future()
        await dealer.send_multipart([number, request])
        answer: bytes = await future
        return answer

    async with asyncio.TaskGroup() as group:
        task = group.create_task(read())
        yield call
        task.cancel()
    dealer.close(0)


PEERS: Final[dict[str, tuple[Callable[[int], Any], Callable[[int], Any]]]] = {
    OURS: (serve_ours, ours("plain")),
    "ours, async def": (serve_ours, ours("waiting")),
    PING: (serve_ping, connect_ping),
    "grpc.aio": (serve_grpc, connect_grpc),
    "nats-py": (serve_nats, connect_nats),
    "pyzmq": (serve_zmq, connect_zmq),
}


def why_absent(peer: str) -> str:
    """Return what is missing for a peer; empty if nothing is."""
    module = NEEDED.get(peer)
    if module is not None and find_spec(module) is None:
        return f"{peer} is not installed: pip install 'aeron-async[bench]'"
    if peer == "nats-py" and not shutil.which("nats-server"):
        return "there is no nats-server: apt install nats-server"
    return ""


# What a client does.


async def one_after_the_other(call: Call, count: int) -> dict[str, float]:
    """Return the median and the 99th percentile of calls that follow each other."""
    for _ in range(count // 10):
        await call(REQUEST)
    took = []
    for _ in range(count):
        began = perf_counter()
        await call(REQUEST)
        took.append(perf_counter() - began)
    took.sort()
    return {"p50_us": took[count // 2] * 1e6, "p99_us": took[count * 99 // 100] * 1e6}


async def at_once(call: Call, under_way: int, seconds: float) -> dict[str, Any]:
    """Return how many calls were answered a second, and in the worst one."""
    outcomes: Counter[str] = Counter()
    in_second: Counter[int] = Counter()
    began, used = perf_counter(), process_time()

    async def caller() -> None:
        while (now := perf_counter() - began) < seconds:
            try:
                answer = await call(REQUEST)
            except Exception as error:  # noqa: BLE001 - each is an outcome
                outcomes[type(error).__name__] += 1
                continue
            outcomes["answered" if answer == REQUEST else "wrong"] += 1
            in_second[int(now)] += 1

    await asyncio.gather(*(caller() for _ in range(under_way)))
    took = perf_counter() - began
    answered = outcomes["answered"]
    return {
        "calls_per_s": answered / took,
        "worst_second": float(min(in_second[each] for each in range(max(1, int(seconds))))),
        "client_us": (process_time() - used) / max(answered, 1) * 1e6,
        "outcomes": dict(outcomes),
    }


async def client_of(peer: str, port: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one run."""
    async with PEERS[peer][1](port) as call:
        figures: dict[str, Any] = await one_after_the_other(call, options.count)
        if peer != PING:
            figures.update(await at_once(call, options.under_way, options.seconds))
    return figures


# The processes.


async def serve(peer: str, port: int) -> None:
    """Serve until the standard input ends."""
    async with PEERS[peer][0](port):
        print("up", flush=True)
        await asyncio.to_thread(sys.stdin.read)


def command(role: str, peer: str, port: int, options: argparse.Namespace) -> list[str]:
    """Return the command of a process."""
    return [
        sys.executable, "-m", "benchmarks.calls", "--role", role, "--only", peer,
        "--port", str(port), "--seconds", str(options.seconds), "--count", str(options.count),
        "--under-way", str(options.under_way),
    ]  # fmt: skip


async def measured(peer: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a server and a client in a process each; return what the client measured.

    Raises:
        RuntimeError: One of them ended without what it should say.
    """
    pipe, port = asyncio.subprocess.PIPE, pair_of_ports()
    server = await asyncio.create_subprocess_exec(
        *command("server", peer, port, options), stdin=pipe, stdout=pipe
    )
    try:
        assert server.stdout is not None
        async with asyncio.timeout(START_S):
            if await server.stdout.readline() != b"up\n":
                message = f"the server of {peer} has not begun"
                raise RuntimeError(message)
        client = await asyncio.create_subprocess_exec(
            *command("client", peer, port, options), stdout=pipe
        )
        try:
            async with asyncio.timeout(START_S + 3 * options.seconds + options.count / 100):
                output, _ = await client.communicate()
        finally:
            with suppress(ProcessLookupError):
                client.kill()
        if client.returncode:
            message = f"the client of {peer} ended with {client.returncode}"
            raise RuntimeError(message)
        figures: dict[str, Any] = json.loads(output)
        return figures
    finally:
        with suppress(ProcessLookupError):
            server.terminate()
        await server.wait()


def pair_of_ports() -> int:
    """Return a port that was free a moment ago, as the next one was."""
    while True:
        port = free_port()
        with suppress(OSError):
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                for each in (port, port + 1):
                    with socket.socket(socket.AF_INET, kind) as one:
                        one.bind(("127.0.0.1", each))
            return port


# The table.


def table(runs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return the medians of the runs, the ratios, and whether each aim is met."""
    names = ("p50 us", "p99 us", "calls/s", "worst s", "client us", " outcomes")
    lines = ["{:16} {:>8} {:>8} {:>10} {:>9} {:>9} {}".format("", *names)]
    medians: dict[str, dict[str, float]] = {}
    for peer, found in runs.items():
        if not found:
            continue
        mid = medians[peer] = {
            name: statistics.median(each[name] for each in found)
            for name, value in found[0].items()
            if isinstance(value, float)
        }
        outcomes: Counter[str] = Counter()
        for each in found:
            outcomes.update(each.get("outcomes", {}))
        told = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
        rate, worst = mid.get("calls_per_s", 0), mid.get("worst_second", 0)
        lines.append(
            f"{peer:16} {mid['p50_us']:8.0f} {mid['p99_us']:8.0f} {rate:10,.0f} {worst:9,.0f} "
            f"{mid.get('client_us', 0):9.1f}  {told}"
        )
    ours_now = medians.get(OURS)
    if ours_now is None:
        return lines
    if PING in medians:
        times = ours_now["p50_us"] / medians[PING]["p50_us"]
        lines.append(
            f"{times:.2f} times the latency of our own echo; the aim is {PING_AIM} at most"
        )
    for peer, aim in AIMS.items():
        if medians.get(peer, {}).get("calls_per_s"):
            times = ours_now["calls_per_s"] / medians[peer]["calls_per_s"]
            lines.append(f"{times:.1f} times the calls of {peer}; the aim is {aim:g} at least")
    return lines


async def compare(options: argparse.Namespace) -> int:
    """Let the peers take turns; print the table."""
    chosen = [each for each in PEERS if not options.only or each.startswith(options.only)]
    for peer in list(chosen):
        if why := why_absent(peer):
            print(why)
            chosen.remove(peer)
    runs: dict[str, list[dict[str, Any]]] = {each: [] for each in chosen}
    failures = 0
    for number in range(options.runs):
        for peer in chosen:
            try:
                runs[peer].append(await measured(peer, options))
            except (RuntimeError, TimeoutError) as error:
                failures += 1
                print(f"run {number + 1} of {peer}: {str(error) or 'it took too long'}")
    print("\n".join(table(runs)))
    return 1 if failures else 0


def main(arguments: list[str] | None = None) -> int:
    """Compare all, or be one process of a comparison."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of the calls at once")
    parser.add_argument("--count", type=int, default=3_000, help="calls one after the other")
    parser.add_argument("--under-way", type=int, default=256)
    parser.add_argument("--only", default="", help="the start of the names of peers")
    parser.add_argument("--role", choices=["server", "client"], help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.role == "server":
        uvloop.run(serve(options.only, options.port))
        return 0
    if options.role == "client":
        print(json.dumps(uvloop.run(client_of(options.only, options.port, options))))
        return 0
    return asyncio.run(compare(options))


if __name__ == "__main__":
    sys.exit(main())
