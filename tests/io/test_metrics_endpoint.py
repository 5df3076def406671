"""The server of metrics: what it answers, and what hostile clients get and cost."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections import Counter
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from aeron_async.errors import ClosedError, ConfigurationError
from aeron_async.metrics.endpoint import MetricsServer, ServerLimits, serve_metrics
from tests.metrics.snapshots import CHANNEL, everything, publication, samples, snapshot

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from aeron_async.stats import Stats

LONG_S = 60.0
SHORT_S = 0.02
PATIENT = ServerLimits(request_s=LONG_S, answer_s=LONG_S, leftover_s=LONG_S)


@asynccontextmanager
async def connected(
    server: MetricsServer,
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def answer_to(server: MetricsServer, request: bytes) -> tuple[int, dict[str, str], str]:
    """Return the status, the headers and the body of the answer to these bytes."""
    async with connected(server) as (reader, writer):
        writer.write(request)
        async with asyncio.timeout(LONG_S):
            return taken_apart(await reader.read())


def taken_apart(answer: bytes) -> tuple[int, dict[str, str], str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    assert first.startswith("HTTP/1.1 ")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body.decode()


def asked(path: str, *, method: str = "GET", host: str = "localhost", more: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode("latin-1")


async def until_refused(server: MetricsServer, reason: str, count: int = 1) -> None:
    async with asyncio.timeout(LONG_S):
        while server.refused[reason] < count:
            await asyncio.sleep(0)


async def test_a_page_is_served_with_its_type_and_length() -> None:
    async with serve_metrics(everything) as server:
        status, headers, body = await answer_to(server, asked("/metrics"))
    assert status == 200
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert headers["Content-Length"] == str(len(body.encode()))
    assert headers["Connection"] == "close"
    found = samples(body)
    assert found["aeron_snapshot_age_seconds", frozenset()] >= 0
    (info,) = [dict(labels) for name, labels in found if name == "aeron_info"]
    assert info.keys() == {"version", "kernel", "loop"}
    assert info["loop"] in {"asyncio", "uvloop"}


async def test_counters_go_on_from_page_to_page() -> None:
    steps = iter(range(10))

    def take() -> Stats:
        step = next(steps)
        return snapshot([publication(1, 100 * step)], at_s=step)

    async with serve_metrics(take) as server:
        pages = [(await answer_to(server, asked("/metrics")))[2] for _ in range(3)]
    line = f'aeron_publication_sent_bytes_total{{stream="1",channel="{CHANNEL}"}}'
    for page, sent in zip(pages, (0, 100, 200), strict=True):
        assert f"{line} {sent}\n" in page


async def test_many_clients_at_once_get_whole_pages_one_after_another() -> None:
    steps = iter(range(100))

    def take() -> Stats:
        step = next(steps)
        rows = [publication(each, step) for each in range(400)]
        return snapshot(rows, at_s=step)

    async with serve_metrics(take) as server:
        answers = await asyncio.gather(*(answer_to(server, asked("/metrics")) for _ in range(8)))
    sums = sorted(
        sum(v for (name, _), v in samples(body).items() if name.endswith("sent_bytes_total"))
        for _, _, body in answers
    )
    assert sums == [400 * step for step in range(8)]


@pytest.mark.parametrize(
    ("reasons", "status", "body"),
    [
        ((), 200, "ready\n"),
        ("one text", 503, "one text\n"),
        (["no subscriber of orders", "disk full\x1b[2J"], 503,
         "no subscriber of orders\ndisk full\\x1b[2J\n"),
    ],
)  # fmt: skip
async def test_it_says_whether_the_service_is_ready_and_why_not(
    reasons: Sequence[str], status: int, body: str
) -> None:
    async with serve_metrics(everything, ready=lambda: reasons) as server:
        assert (await answer_to(server, asked("/ready")))[::2] == (status, body)
        assert (await answer_to(server, asked("/live")))[::2] == (200, "live\n")


async def test_reasons_are_bounded() -> None:
    reasons = [f"{each:04}" + "x" * 1_000 for each in range(1_000)]
    async with serve_metrics(everything, ready=lambda: reasons) as server:
        status, _, body = await answer_to(server, asked("/ready"))
    assert status == 503
    assert body.splitlines()[-1] == "... and 900 more reasons"
    assert len(body) < 101 * 501


@pytest.mark.parametrize("path", ["/metrics", "/live", "/ready", "/nowhere"])
async def test_head_has_no_body(path: str) -> None:
    async with serve_metrics(everything) as server:
        status, _, body = await answer_to(server, asked(path, method="HEAD"))
    assert status == (404 if path == "/nowhere" else 200)
    assert body == ""


async def test_what_follows_a_question_mark_does_not_matter() -> None:
    async with serve_metrics(everything) as server:
        assert (await answer_to(server, asked("/live?now=1")))[0] == 200


TOO_LONG = "X: " + "a" * 9_000 + "\r\n"
REFUSED = {
    "another path": (asked("/"), 404, "path"),
    "a path with marks": (asked("/<script>"), 404, "path"),
    "another method": (asked("/metrics", method="POST"), 405, "method"),
    "no method": (asked("/metrics", method="get me"), 400, "malformed"),
    "garbage": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", 400, "malformed"),
    "nothing": (b"\r\n\r\n", 400, "malformed"),
    "another version": (b"GET / HTTP/2.0\r\n\r\n", 400, "malformed"),
    "no version": (b"GET /metrics\r\n\r\n", 400, "malformed"),
    "a header without colon": (asked("/live", more="nonsense\r\n"), 400, "malformed"),
    "a header that goes on": (asked("/live", more="A: b\r\n c\r\n"), 400, "malformed"),
    "a blank before the colon": (asked("/live", more="A : b\r\n"), 400, "malformed"),
    "a zero byte": (asked("/live", more="A: \0\r\n"), 400, "malformed"),
    "a line feed alone": (asked("/live", more="A: b\nC: d\r\n"), 400, "malformed"),
    "blanks": (asked("/live", more="A:" + " \t" * 4_000 + "\0\r\n"), 400, "malformed"),
    "no host": (b"GET /live HTTP/1.1\r\n\r\n", 400, "malformed"),
    "two hosts": (asked("/live", more="Host: localhost\r\n"), 400, "malformed"),
    "another host": (asked("/live", host="evil.example"), 421, "host"),
    "a host with marks": (asked("/live", host="localhost@evil.example"), 421, "host"),
    "a host that begins well": (asked("/live", host="127.0.0.1.evil.example"), 421, "host"),
    "an address of a network": (asked("/live", host="10.0.0.1:80"), 421, "host"),
    "no name": (asked("/live", host=""), 421, "host"),
    "long headers": (asked("/live", more=TOO_LONG), 431, "long_request"),
    "a long line": (b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\n\r\n", 431, "long_request"),
    "no end": (b"a" * 100_000, 431, "long_request"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_no_request_for_it_is_refused_and_counted(name: str) -> None:
    request, expected, reason = REFUSED[name]
    async with serve_metrics(everything, limits=PATIENT) as server:
        status, headers, body = await answer_to(server, request)
        assert (status, server.refused) == (expected, {reason: 1})
        assert ("Allow" in headers) is (status == 405)
        assert body.isascii()
        assert body.removesuffix("\n").isprintable()
        page = (await answer_to(server, asked("/metrics")))[2]
    assert f'aeron_metrics_requests_refused_total{{reason="{reason}"}} 1\n' in page


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:9464", "127.0.0.1", "127.8.0.1:1", "[::1]", "[::1]:9464"]
)
async def test_names_of_this_machine_are_accepted(host: str) -> None:
    async with serve_metrics(everything) as server:
        assert (await answer_to(server, asked("/live", host=host)))[0] == 200


async def test_an_older_client_need_not_name_the_host() -> None:
    async with serve_metrics(everything) as server:
        assert (await answer_to(server, b"GET /live HTTP/1.0\r\n\r\n"))[0] == 200


async def test_at_other_addresses_any_host_is_accepted() -> None:
    async with serve_metrics(everything, host="0.0.0.0") as server:
        assert (await answer_to(server, asked("/live", host="metrics.example")))[0] == 200


async def test_all_addresses_are_listened_at_only_if_that_is_said() -> None:
    with pytest.raises(ConfigurationError, match=r"say 0\.0\.0\.0 or ::"):
        async with serve_metrics(everything, host=""):
            pass


async def test_a_request_may_come_byte_by_byte() -> None:
    async with serve_metrics(everything, limits=PATIENT) as server, connected(server) as (r, w):
        for byte in asked("/live"):
            w.write(bytes([byte]))
            await asyncio.sleep(0)
        assert taken_apart(await r.read())[0] == 200


async def test_a_client_that_never_ends_its_request_is_told_so_and_loses_its_place() -> None:
    limits = ServerLimits(request_s=SHORT_S, leftover_s=SHORT_S)
    async with serve_metrics(everything, limits=limits) as server, connected(server) as (r, w):
        w.write(b"GET /live HTTP/1.1\r\nHost: localhost\r\nX: ")
        async with asyncio.timeout(LONG_S):
            status, _, body = taken_apart(await r.read())
        assert (status, body) == (408, "the request took longer than 0.02 s\n")
        assert server.refused == {"slow_request": 1}


async def test_a_client_that_closed_its_half_gets_the_answer() -> None:
    async with serve_metrics(everything, limits=PATIENT) as server, connected(server) as (r, w):
        w.write(asked("/live"))
        w.write_eof()
        assert taken_apart(await r.read())[2] == "live\n"


async def test_a_client_that_closed_before_the_end_is_counted() -> None:
    async with serve_metrics(everything, limits=PATIENT) as server, connected(server) as (r, w):
        w.write(b"GET /li")
        w.write_eof()
        assert await r.read() == b""
        assert server.refused == {"gone": 1}


async def test_of_requests_in_one_go_the_first_is_answered() -> None:
    requests = asked("/live") + asked("/metrics") * 500
    async with serve_metrics(everything, limits=PATIENT) as server:
        status, _, body = await answer_to(server, requests)
    assert (status, body) == (200, "live\n")


async def flood(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x" * 100_000)
        await writer.drain()
        await asyncio.sleep(0)


async def test_a_client_that_sends_without_end_is_let_go() -> None:
    async with serve_metrics(everything, limits=PATIENT) as server, connected(server) as (_, w):
        w.write(asked("/live"))
        with pytest.raises(OSError, match=r"reset|[Bb]roken|lost"):
            await flood(w)


async def test_a_client_that_does_not_read_is_dropped() -> None:
    # Long names: some megabytes, which no buffer of the system takes.
    channel = "aeron:udp?endpoint=" + "a" * 180
    page = snapshot([publication(each, channel=channel) for each in range(2_000)])
    limits = ServerLimits(answer_s=0.2, leftover_s=LONG_S)
    async with serve_metrics(lambda: page, max_series=2_000, limits=limits) as server:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.setblocking(False)
        with client:
            await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", server.port))
            await asyncio.get_running_loop().sock_sendall(client, asked("/metrics"))
            await until_refused(server, "slow_reader")
        assert (await answer_to(server, asked("/live")))[0] == 200


async def test_the_ninth_client_is_refused_and_a_place_comes_back() -> None:
    async with serve_metrics(everything, limits=PATIENT) as server:
        clients = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(8)]
        status, _, body = await answer_to(server, b"")
        assert (status, body) == (503, "all 8 connections are in use\n")
        assert server.refused == {"busy": 1}
        clients[3][1].transport.abort()
        await until_refused(server, "gone")
        assert (await answer_to(server, asked("/live")))[0] == 200
        for _, writer in clients:
            writer.transport.abort()


async def test_a_crowd_that_comes_and_goes_leaves_nothing() -> None:
    async with serve_metrics(everything, limits=PATIENT) as server:
        for _ in range(100):
            async with connected(server):
                pass
        async with asyncio.timeout(LONG_S):
            while (await answer_to(server, asked("/live")))[0] != 200:
                await asyncio.sleep(0)
    assert set(server.refused) <= {"busy", "gone"}


async def test_a_driver_that_is_closed_is_an_error_that_is_logged_once() -> None:
    def take() -> Stats:
        message = "the driver has been closed\x1b[2J"
        raise ClosedError(message)

    def ready() -> Sequence[str]:
        message = "no such archive"
        raise LookupError(message)

    async with serve_metrics(take, ready=ready) as server:
        with capture_logs() as lines:
            answers = [await answer_to(server, asked(path)) for path in ("/metrics", "/ready")]
        assert (await answer_to(server, asked("/live")))[0] == 200
    assert [(status, body) for status, _, body in answers] == [
        (500, "/metrics failed: ClosedError: the driver has been closed\\x1b[2J\n"),
        (500, "/ready failed: LookupError: no such archive\n"),
    ]
    assert [line["event"] for line in lines] == ["metrics_not_served"]
    assert server.refused == {"failed": 2}


@pytest.mark.parametrize(
    ("result", "shown"),
    [(True, "True"), (False, "False"), (None, "None"), (b"no", "b'no'"), (everything(), "Stats")],
    ids=["true", "false", "none", "bytes", "snapshot"],
)
async def test_what_is_no_list_of_reasons_is_told_and_never_counts_as_ready(
    result: Any, shown: str
) -> None:
    async with serve_metrics(everything, ready=lambda: result) as server:
        with capture_logs() as lines:
            status, _, body = await answer_to(server, asked("/ready"))
    assert status == 500
    assert f"`ready` has returned {shown}, and must return a list of texts" in body
    assert f"`ready` has returned {shown}, and" in lines[0]["error"]


@pytest.mark.parametrize("is_awaited", [False, True])
async def test_what_is_no_snapshot_is_told(is_awaited: bool) -> None:  # noqa: FBT001 - pytest gives it
    async def later() -> Any:
        return {}

    take: Any = later if is_awaited else dict
    async with serve_metrics(take) as server:
        with capture_logs() as lines:
            status, _, body = await answer_to(server, asked("/metrics"))
    assert status == 500
    assert "what `take` returns must be a snapshot" in body
    assert body.endswith("got dict\n")
    assert "what `take` returns must be a snapshot" in lines[0]["error"]


async def test_a_port_in_use_is_named_with_the_setting() -> None:
    async with serve_metrics(everything) as server:
        text = (
            rf"127\.0\.0\.1 port {server.port} cannot .*: Address already in use; .* `port`, or 0"
        )
        with pytest.raises(OSError, match=text) as caught:
            async with serve_metrics(everything, port=server.port):
                pass
    assert caught.value.errno == errno.EADDRINUSE


async def test_an_address_of_another_machine_is_named_with_the_setting() -> None:
    with pytest.raises(OSError, match=r"192\.0\.2\.1 port 0 cannot .*; `host` must be an address"):
        async with serve_metrics(everything, host="192.0.2.1"):
            pass


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError("no address fits"), "no address fits; `host` must"),
        (socket.gaierror(socket.EAI_NONAME, "no such name"), "no such name; `host` must"),
        (PermissionError(errno.EACCES, "bind"), "Permission denied; choose another `port`"),
    ],
)
async def test_whatever_the_loop_says_is_told(
    error: OSError, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_arguments: Any, **_more: Any) -> None:
        raise error

    monkeypatch.setattr(asyncio, "start_server", refuse)
    with pytest.raises(OSError, match=text) as caught:
        async with serve_metrics(everything, host="there"):
            pass
    assert caught.value.errno == error.errno


async def test_leaving_the_block_ends_every_connection() -> None:
    before = asyncio.all_tasks()
    async with serve_metrics(everything, limits=PATIENT) as server:
        idle = await asyncio.open_connection("127.0.0.1", server.port)
        half = await asyncio.open_connection("127.0.0.1", server.port)
        half[1].write(b"GET /live")
        answered = await asyncio.open_connection("127.0.0.1", server.port)
        answered[1].write(asked("/live"))
        await answered[0].readuntil(b"live\n")
    assert asyncio.all_tasks() == before
    for reader, writer in (idle, half, answered):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.transport.abort()
    with pytest.raises(OSError, match=r"refused|failed"):
        await asyncio.open_connection("127.0.0.1", server.port)


async def test_cancelling_the_service_ends_it() -> None:
    started: asyncio.Future[MetricsServer] = asyncio.get_running_loop().create_future()

    async def serve() -> None:
        async with serve_metrics(everything, limits=PATIENT) as server:
            started.set_result(server)
            await asyncio.Event().wait()

    task = asyncio.ensure_future(serve())
    server = await started
    async with connected(server) as (_, writer):
        writer.write(b"GET")
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    with pytest.raises(OSError, match=r"refused|failed"):
        await asyncio.open_connection("127.0.0.1", server.port)


class Gone:
    """A connection that the loop hands over when the server has been closed."""

    def __init__(self) -> None:
        self.transport = self
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


async def test_a_connection_that_is_handed_over_too_late_is_ended() -> None:
    async with serve_metrics(everything) as server:
        pass
    late: Any = Gone()
    server._on_client(late, late)
    assert late.is_aborted


async def test_a_connection_is_ended_whose_task_has_not_begun() -> None:
    early: Any = Gone()
    async with serve_metrics(everything) as server:
        server._on_client(early, early)
    assert early.is_aborted


async def waits() -> list[str]:
    return []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"take": 7}, "take=7 must be a function"),
        ({"take": everything()}, "^take=Stats must be a function .* and do not call it$"),
        ({"ready": waits}, "ready"),
        ({"port": 65_536}, "port=65536 must be a whole number from 0 to 65535"),
        ({"max_series": 0}, "max_series=0"),
    ],
)
async def test_arguments_are_checked_before_anything_is_opened(
    arguments: dict[str, Any], error: str
) -> None:
    with pytest.raises(ConfigurationError, match=error):
        async with serve_metrics(**{"take": everything, **arguments}):
            pass


async def test_the_loop_turns_while_a_page_is_written() -> None:
    page = snapshot([publication(each) for each in range(500)])
    turns = Counter[str]()

    async def turn() -> None:
        while True:
            turns["of others"] += 1
            await asyncio.sleep(0)

    async with serve_metrics(lambda: page) as server:
        task = asyncio.ensure_future(turn())
        pieces = await server._page()
        task.cancel()
    assert sum(map(len, pieces)) > 500_000
    assert turns["of others"] > 2


@pytest.mark.parametrize("name", ["request_bytes", "request_s", "answer_s", "connections"])
def test_limits_are_checked(name: str) -> None:
    fields: dict[str, Any] = {name: 0}
    with pytest.raises(ConfigurationError, match=f"{name}=0 must be above 0"):
        ServerLimits(**fields)


async def test_a_port_that_is_taken_is_an_error_and_leaves_nothing() -> None:
    before = threading.active_count(), asyncio.all_tasks()
    async with serve_metrics(everything) as server:
        with pytest.raises(OSError, match="in use"):
            async with serve_metrics(everything, port=server.port):
                pass
    assert (threading.active_count(), asyncio.all_tasks()) == before
