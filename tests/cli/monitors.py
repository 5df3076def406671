"""A monitor in this process, with drivers that are made up, and a browser that is a socket."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.cli.monitor.hub import MonitorHub
from aeron_async.cli.monitor.server import Guard, MonitorServer, listening_at, serve_monitor
from tests.cli.top_worlds import SECOND_NS, healthy

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from aeron_async.cli.monitor.server import MonitorLimits
    from aeron_async.stats import Stats

INTERVAL_S: Final = 0.01
LOOPBACK: Final = Guard(is_loopback=True)


class MadeUp:
    """A driver of which each look is half a second later; it may fail, or never answer."""

    def __init__(
        self,
        world: Callable[[float], Stats] = healthy,
        name: str = "/run/door",
        pid: int = 42,
        begin: float = 0,
    ) -> None:
        self.name = name
        self.remark = ""
        self.at = begin
        self.error: Exception | None = None
        self.is_stuck = False
        self.is_closed = False
        self._world = world
        self._pid = pid

    async def take(self) -> Stats:
        if self.is_stuck:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        self.at += 0.5
        found = self._world(self.at)
        return attrs.evolve(found, driver=attrs.evolve(found.driver, pid=self._pid))

    async def aclose(self) -> None:
        self.is_closed = True

    @property
    def now_ns(self) -> int:
        return int(self.at * SECOND_NS)


@attrs.frozen
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.body)


@attrs.define
class Monitor:
    """A monitor that serves."""

    hub: MonitorHub
    server: MonitorServer
    port: int

    async def connect(self, path: str, method: str = "GET", **headers: str) -> Browser:
        """Send a request; in names of headers stands `_` for `-`."""
        lines = {"Host": f"127.0.0.1:{self.port}"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**24)
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(f"{method} {path} HTTP/1.1\r\n{text}\r\n".encode())
        return Browser(reader, writer)

    async def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """Send a request, and return the answer."""
        browser = await self.connect(path, method, **headers)
        try:
            status, found = await browser.head()
            return Answer(status, found, await browser.reader.read())
        finally:
            browser.close()

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[Browser]:
        """Watch events."""
        browser = await self.connect("/events")
        try:
            status, headers = await browser.head()
            assert (status, headers["content-type"]) == (200, "text/event-stream")
            yield browser
        finally:
            browser.close()


@attrs.define
class Browser:
    """One connection of a browser."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    text: str = ""

    async def head(self) -> tuple[int, dict[str, str]]:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = (each.partition(": ") for each in lines[1:] if each)
        return int(lines[0].split()[1]), {name.lower(): value for name, _, value in headers}

    async def message(self) -> str:
        """Return the next event, comment or setting.

        Raises:
            EOFError: There is none.
        """
        while "\n\n" not in self.text:
            length = int((await self.reader.readuntil(b"\r\n")).strip(), 16)
            if length == 0:
                raise EOFError
            self.text += (await self.reader.readexactly(length + 2))[:-2].decode()
        found, _, self.text = self.text.partition("\n\n")
        return found

    async def event(self) -> tuple[str, str, Any]:
        """Return id, kind and value of the next event."""
        while not (found := await self.message()).startswith("id: "):
            pass
        lines = dict(each.split(": ", 1) for each in found.split("\n"))
        return lines["id"], lines["event"], json.loads(lines["data"])

    def close(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def monitor_of(
    *sources: Any,
    guard: Guard = LOOPBACK,
    limits: MonitorLimits | None = None,
    interval: float = INTERVAL_S,
    max_watchers: int = 16,
) -> AsyncGenerator[Monitor]:
    """Serve what some drivers do."""
    listener = listening_at("127.0.0.1", 0)
    port = listener.getsockname()[1]
    hub = MonitorHub(
        sources or [MadeUp()], host="box", interval=interval, max_watchers=max_watchers
    )
    with listener:
        async with hub, serve_monitor(hub, listener, guard, limits) as server:
            yield Monitor(hub, server, port)


def applied(state: dict[str, Any], news: dict[str, Any]) -> dict[str, Any]:
    """Return a state with a difference, as the page does it."""
    streams = {name: row for name, row in state["streams"].items() if name not in news["gone"]}
    for name, row in news["streams"].items():
        streams[name] = streams.get(name, {}) | row
    return state | {
        "drivers": state["drivers"] | news["drivers"],
        "streams": streams,
        "order": news.get("order", state["order"]),
        "events": [*state["events"], *news["events"]],
        "more_streams": news["more_streams"],
        "without_history": news["without_history"],
    }


def without_spark(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state without what the page adds by itself."""
    streams = {
        name: {key: value for key, value in row.items() if key != "spark"}
        for name, row in state["streams"].items()
    }
    return {"drivers": state["drivers"], "streams": streams, "order": state["order"]}
