"""The server of the monitor: what pages are told, who may ask, and what hostile clients get."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import socket
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import attrs
import pytest

pytest.importorskip("starlette", reason="pip install 'aeron-async[web]'")
pytest.importorskip("uvicorn", reason="pip install 'aeron-async[web]'")

from aeron_async.cli.monitor.hub import MonitorHub
from aeron_async.cli.monitor.server import (
    Guard,
    MonitorLimits,
    is_address,
    listening_at,
    new_token,
)
from aeron_async.errors import ConfigurationError, DriverError
from aeron_async.stats import PublicationStats, Stats
from tests.cli.monitors import MadeUp, applied, monitor_of, without_spark
from tests.cli.top_worlds import healthy, publication, small_buffer, stats

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.monitors import Monitor

TOKEN = "0123456789abcdef" * 2
ASKS = Guard(is_loopback=True, token=TOKEN, cookie="monitor_1")
STATIC = files("aeron_async.cli.monitor") / "static"
SHA_256 = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


async def until(is_true: Callable[[], bool]) -> None:
    while not is_true():
        await asyncio.sleep(0)


def large(at: float) -> Stats:
    """Return a snapshot of half a megabyte, of which everything changes each time."""
    rows = [
        publication(at * at, registration_id=each, stream_id=each, channel="x" * 400 + str(at))
        for each in range(1_000)
    ]
    return stats(at, rows)


# What pages are told.


async def test_a_page_gets_one_whole_state_and_then_differences() -> None:
    async with monitor_of(MadeUp(small_buffer)) as monitor, monitor.watching() as page:
        assert await page.message() == "retry: 1000"
        name, kind, state = await page.event()
        assert kind == "state"
        assert state["drivers"]["0"]["host"] == "box"
        assert state["drivers"]["0"]["pid"] == 42
        boot, _, number = name.partition("-")
        for step in range(1, 4):
            name, kind, news = await page.event()
            assert kind == "difference"
            assert name == f"{boot}-{int(number) + step}"
            state = applied(state, news)
        assert state["order"][0] == "0-img-2"
        assert state["streams"]["0-img-2"]["cause"]["word"] == "socket_drop"
        assert "so-rcvbuf" in state["streams"]["0-img-2"]["cause"]["remedy"]


async def test_differences_lead_to_what_a_new_page_is_told() -> None:
    source = MadeUp(small_buffer)
    async with monitor_of(source) as monitor, monitor.watching() as page:
        _, _, state = await page.event()
        source.error = DriverError("gone")
        while not state["drivers"]["0"]["failure"]:
            _, _, news = await page.event()
            state = applied(state, news)
        async with monitor.watching() as other:
            _, kind, whole = await other.event()
            assert kind == "state"
        assert without_spark(whole) == without_spark(state)
        assert whole["events"] == state["events"]


async def test_a_state_is_encoded_once_for_all_pages_and_never_without_one() -> None:
    async with monitor_of() as monitor:
        hub = monitor.hub
        await until(lambda: hub.version > 3)
        assert (hub.whole_state_count, hub.difference_count) == (0, 0)
        pages = [hub.enter() for _ in range(5)]
        told = {hub.news_for(page) for page in pages if page is not None}
        assert len(told) == 1
        assert hub.whole_state_count == 1


async def test_a_page_that_was_too_slow_for_a_difference_gets_the_newest_state() -> None:
    async with monitor_of() as monitor:
        hub = monitor.hub
        page = hub.enter()
        assert page is not None
        first = hub.news_for(page)
        assert first is not None
        assert first[0] == "state"
        assert hub.news_for(page) is None
        version = hub.version
        await until(lambda: hub.version >= version + 3)
        late = hub.news_for(page)
        assert late is not None
        assert late[0] == "state"
        assert page.version == hub.version


async def test_a_page_hears_that_nothing_is_new() -> None:
    limits = MonitorLimits(comment_s=0.01)
    async with monitor_of(limits=limits, interval=60) as monitor, monitor.watching() as page:
        await page.event()
        assert await page.message() == ": nothing new"
        assert await page.message() == ": nothing new"


async def test_a_driver_that_goes_and_comes_back_is_shown_as_such() -> None:
    one, two = MadeUp(name="/run/one"), MadeUp(name="/run/two")
    async with monitor_of(one, two) as monitor, monitor.watching() as page:
        _, _, state = await page.event()

        async def until_one_is(verdict: str) -> None:
            nonlocal state
            while state["drivers"]["0"]["verdict"] != verdict:
                state = applied(state, (await page.event())[2])

        await until_one_is("fine")
        one.error = DriverError("its socket is closed")
        await until_one_is("gone")
        assert "its socket is closed" in state["drivers"]["0"]["sentence"]
        assert "0-pub-1" in state["streams"]
        assert state["drivers"]["1"]["failure"] == ""
        one.error = None
        await until_one_is("fine")
        said = [each["text"] for each in state["events"] if each["driver"] == "0"]
        assert said[-2:] == ["it does not answer: its socket is closed", "it answers again"]
    assert one.is_closed
    assert two.is_closed


async def test_a_driver_that_never_answers_holds_up_no_other() -> None:
    stuck, other = MadeUp(name="/run/stuck"), MadeUp(name="/run/other")
    stuck.is_stuck = True
    async with monitor_of(other, stuck) as monitor, monitor.watching() as page:
        _, _, state = await page.event()
        for _ in range(3):
            state = applied(state, (await page.event())[2])
        assert state["drivers"]["0"]["verdict"] == "fine"
        assert state["drivers"]["1"]["verdict"] == "gone"
        assert monitor.hub.failures() == [("/run/stuck", "no answer yet")]


async def test_a_monitor_that_is_interrupted_in_its_first_look_leaves_nothing() -> None:
    stuck = MadeUp()
    stuck.is_stuck = True
    entering = asyncio.ensure_future(MonitorHub([stuck], host="box").__aenter__())
    await until(lambda: len(asyncio.all_tasks()) == 3)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert stuck.is_closed
    assert len(asyncio.all_tasks()) == 1


async def test_pages_of_one_thing() -> None:
    async with monitor_of(MadeUp(small_buffer)) as monitor:
        await until(lambda: monitor.hub.version > 5)
        stream = (await monitor.ask("/api/stream?id=0-img-2")).value
        assert [each["word"] for each in stream["causes"]] == ["socket_drop", "gap"]
        assert {each["cause"] for each in stream["losses"]} == {"socket_drop", "gap"}
        assert stream["readers"][0]["registration_id"] == 3
        assert stream["episodes"][0]["count"] > 0
        history = (await monitor.ask("/api/history?id=0-img-2")).value
        assert len(history["time"]) == len(history["rate"]) == len(history["socket_drop"])
        assert history["rate"][-1] == 1_000_000
        driver = (await monitor.ask("/api/driver?id=0")).value
        assert driver["budgets"][0]["limit"] == 1_000_000
        assert driver["sockets"][0]["recent"] > 0
        graph = (await monitor.ask("/api/topology")).value
        assert [each["label"] for each in graph["edges"] if each["trouble"]] == ["socket_drop"]
        for path in ("/api/stream?id=9-img-2", "/api/history?id=", "/api/driver?id=x", "/none"):
            assert (await monitor.ask(path)).status == 404
        assert monitor.server.refused == {"path": 4}


# The files of the page.


@pytest.mark.parametrize("name", sorted(SHA_256))
def test_what_others_wrote_is_unchanged(name: str) -> None:
    assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == SHA_256[name]


async def test_all_files_are_served_with_a_strict_policy() -> None:
    kinds = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    async with monitor_of() as monitor:
        names = [each.name for each in STATIC.iterdir() if each.name != "index.html"]
        for name in ("", "favicon.ico", *names):
            answer = await monitor.ask(f"/{name}")
            assert answer.status == 200
            kind = kinds.get(name.rpartition(".")[2])
            assert kind is None or answer.headers["content-type"].startswith(kind)
            assert answer.headers["content-security-policy"].startswith("default-src 'self'; ")
            assert "unsafe" not in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
        head = await monitor.ask("/", "HEAD")
        assert (head.status, head.body) == (200, b"")
        assert (await monitor.ask("/index.html")).status == 404
        assert (await monitor.ask("/../hub.py")).status == 404


def test_the_page_makes_no_markup_of_texts() -> None:
    own = [each for each in STATIC.iterdir() if "uPlot" not in each.name]
    for each in own:
        text = each.read_text()
        if each.name.endswith(".js"):
            found = re.search(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function"
                r"|javascript:|\.style\b|DOMParser|createContextualFragment",
                text,
            )
            assert found is None, (each.name, found)
        if each.name.endswith(".html"):
            assert re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]* src=)", text) is None
    html = (STATIC / "index.html").read_text()
    for path in re.findall(r'(?:src|href)="([^"#]+)"', html):
        assert (STATIC / path).is_file()


# Who may ask.


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1:9", "[::1]:1", "LOCALHOST:80", "127.3.2.1"]
)
async def test_names_of_this_machine_are_taken(host: str) -> None:
    async with monitor_of() as monitor:
        assert (await monitor.ask("/", Host=host)).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "10.0.0.1", "", "127.0.0.1@evil", "[::1"]
)
async def test_names_of_others_are_refused(host: str) -> None:
    async with monitor_of() as monitor:
        for path in ("/", "/events", "/api/topology", "/none"):
            answer = await monitor.ask(path, Host=host)
            assert answer.status == 421
        assert monitor.server.refused == {"host": 4}


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("10.0.0.1:80", True),
        ("[fe80::1]", True),
        ("box", True),
        ("BOX:7", True),
        ("localhost", True),
        ("evil.example", False),
        ("10.0.0.1.evil.example", False),
    ],
)
def test_names_at_an_address_of_the_network(host: str, is_own: bool) -> None:  # noqa: FBT001 - a row
    assert Guard(is_loopback=False, names=frozenset({"box"}), token=TOKEN).is_own(host) is is_own


async def test_other_methods_are_for_this_page_only_and_refused_then_too() -> None:
    async with monitor_of() as monitor:
        own = f"http://127.0.0.1:{monitor.port}"
        for method in ("POST", "DELETE", "PUT", "OPTIONS"):
            assert (await monitor.ask("/", method)).status == 403
            assert (await monitor.ask("/", method, Origin="http://evil.example")).status == 403
            assert (await monitor.ask("/", method, Origin="null")).status == 403
            assert (await monitor.ask("/", method, Origin=own)).status == 405
        assert (await monitor.ask("/events", "HEAD")).status == 405
        assert monitor.server.refused == {"origin": 12, "method": 5}


async def test_pages_of_other_sites_may_only_link_to_this_one() -> None:
    foreign = {"Sec_Fetch_Site": "cross-site"}
    async with monitor_of() as monitor:
        assert (await monitor.ask("/events", **foreign)).status == 403
        assert (await monitor.ask("/api/topology", **foreign)).status == 403
        assert (await monitor.ask("/main.js", Sec_Fetch_Site="same-site")).status == 403
        assert (await monitor.ask("/", **foreign, Sec_Fetch_Mode="no-cors")).status == 403
        assert (await monitor.ask("/", **foreign, Sec_Fetch_Mode="navigate")).status == 200
        assert (await monitor.ask("/main.js", Sec_Fetch_Site="same-origin")).status == 200
        assert monitor.hub.watcher_count == 0


async def test_a_token_is_exchanged_for_a_cookie() -> None:
    async with monitor_of(guard=ASKS) as monitor:
        for path in ("/", "/events", "/api/topology", "/main.js"):
            assert (await monitor.ask(path)).status == 401
        for wrong in (TOKEN[:-1], TOKEN.upper(), "", "%C3%A9"):
            assert (await monitor.ask(f"/?token={wrong}")).status == 401
            assert (await monitor.ask("/", Cookie=f"monitor_1={wrong}")).status == 401
        assert monitor.server.refused == {"token": 12}
        answer = await monitor.ask(f"/?token={TOKEN}")
        assert (answer.status, answer.headers["location"], answer.body) == (303, "/", b"")
        cookie, *attributes = answer.headers["set-cookie"].split("; ")
        assert {each.lower() for each in attributes} == {"httponly", "path=/", "samesite=strict"}
        assert (await monitor.ask("/", Cookie=cookie)).status == 200
        assert (await monitor.ask("/", Cookie=f"a=b; {cookie}")).status == 200
        page = await monitor.connect("/events", Cookie=cookie)
        assert (await page.head())[0] == 200
        page.close()


async def test_a_token_is_in_no_log(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with monitor_of(guard=ASKS) as monitor:
            await monitor.ask(f"/?token={TOKEN}")
            await monitor.ask("/", Cookie=f"monitor_1={TOKEN}")
            await monitor.ask(f"/api/stream?id=x&token={TOKEN}", Host="evil")
    out, err = capfd.readouterr()
    assert TOKEN not in caplog.text + out + err
    assert TOKEN not in repr(ASKS)


def test_a_token_has_128_bits_and_is_new() -> None:
    assert re.fullmatch("[0-9a-f]{32}", new_token())
    assert new_token() != new_token()


# Hostile clients.


async def test_pages_beyond_the_limit_are_told_so() -> None:
    async with monitor_of(max_watchers=2) as monitor:
        async with monitor.watching() as page, monitor.watching() as other:
            await page.event()
            await other.event()
            answer = await monitor.ask("/events")
            assert answer.status == 503
            assert b"close one" in answer.body
            assert monitor.hub.refused_watcher_count == 1
        await until(lambda: monitor.hub.watcher_count == 0)
        async with monitor.watching() as page:
            await page.event()


async def test_a_page_that_does_not_read_is_dropped() -> None:
    limits = MonitorLimits(read_s=1)
    async with monitor_of(MadeUp(large), limits=limits) as monitor:
        lazy = socket.socket()
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        with lazy:
            lazy.connect(("127.0.0.1", monitor.port))
            lazy.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with monitor.watching() as page:
                while monitor.hub.slow_watcher_count == 0:
                    await page.event()
                assert monitor.server.refused["slow_reader"] == 1
                # The other one goes on.
                await page.event()


async def test_a_page_that_leaves_gives_its_place_back() -> None:
    async with monitor_of() as monitor:
        async with monitor.watching() as page:
            await page.event()
            assert monitor.hub.watcher_count == 1
        await until(lambda: monitor.hub.watcher_count == 0)


async def test_connections_beyond_the_limit_are_ended() -> None:
    limits = MonitorLimits(connections=2)
    async with monitor_of(limits=limits) as monitor:
        held = [await asyncio.open_connection("127.0.0.1", monitor.port) for _ in range(2)]
        await until(lambda: connections_of(monitor) == 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", monitor.port)
        with pytest.raises((ConnectionError, EOFError)):
            await reader.readexactly(1)
        writer.transport.abort()
        assert monitor.server.refused == {"connections": 1}
        for _, each in held:
            each.transport.abort()
        await until(lambda: connections_of(monitor) == 0)
        assert (await monitor.ask("/")).status == 200


def connections_of(monitor: Monitor) -> int:
    return monitor.server.connection_count


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: loc"])
async def test_a_request_that_does_not_end_is_ended(sent: bytes) -> None:
    limits = MonitorLimits(answer_s=0.05)
    async with monitor_of(limits=limits) as monitor:
        reader, writer = await asyncio.open_connection("127.0.0.1", monitor.port)
        writer.write(sent)
        with pytest.raises((ConnectionError, EOFError)):
            await reader.readexactly(1)
        writer.transport.abort()
        assert monitor.server.refused == {"slow": 1}


async def test_a_page_that_watches_outlives_the_time_of_a_request() -> None:
    limits = MonitorLimits(answer_s=0.25)
    async with monitor_of(limits=limits) as monitor, monitor.watching() as page:
        first, _, _ = await page.event()
        number = int(first.partition("-")[2])
        while int((await page.event())[0].partition("-")[2]) < number + 40:
            pass
        assert monitor.server.refused == {}


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x00" * 100 + b"\r\n\r\n",
        b"\r\n" * 10,
    ],
)
async def test_what_is_no_request_is_refused(sent: bytes) -> None:
    async with monitor_of() as monitor:
        reader, writer = await asyncio.open_connection("127.0.0.1", monitor.port)
        writer.write(sent)
        assert (await reader.readuntil(b"\r\n")).split()[1] in {b"400", b"404", b"431"}
        writer.transport.abort()
        assert (await monitor.ask("/")).status == 200


# The end.


async def test_the_end_ends_pages_at_once_and_in_order() -> None:
    async with monitor_of(interval=60) as monitor:
        async with monitor.watching() as page:
            await page.event()
            monitor.hub.stop()
            with pytest.raises(EOFError):
                await page.message()
        assert (await monitor.ask("/events")).status == 503


async def test_the_end_waits_for_no_client(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with monitor_of(MadeUp(large), interval=60) as monitor:
            idle = socket.create_connection(("127.0.0.1", monitor.port))
            lazy = socket.create_connection(("127.0.0.1", monitor.port))
            lazy.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: monitor.hub.watcher_count == 1)
            await until(lambda: connections_of(monitor) == 2)
        idle.close()
        lazy.close()
    assert caplog.text == ""


@pytest.mark.parametrize("address", ["", "localhost", "evil.example", "127.0.0.1/8", "1.2.3"])
def test_an_address_must_be_a_literal_one(address: str) -> None:
    assert not is_address(address)
    with pytest.raises(ConfigurationError, match="no address to listen at"):
        listening_at(address, 0)


def test_a_port_that_is_in_use_is_named() -> None:
    with listening_at("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"127.0.0.1 port {port} cannot be listened"):
            listening_at("127.0.0.1", port)


async def test_a_snapshot_of_a_stranger_is_a_failure_of_its_driver() -> None:
    def odd(at: float) -> Stats:
        found = healthy(at)
        odd_bytes: Any = "<b>"
        row = attrs.evolve(found.publications[0], window_bytes=odd_bytes)
        return attrs.evolve(
            found, publications=type(found.publications).of(PublicationStats, [row])
        )

    async with monitor_of(MadeUp(odd), MadeUp(name="/run/good")) as monitor:
        async with monitor.watching() as page:
            _, _, state = await page.event()
        assert "cannot be read" in state["drivers"]["0"]["failure"]
        assert state["drivers"]["1"]["failure"] == ""
