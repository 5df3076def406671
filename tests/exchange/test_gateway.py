"""The gateway, with an engine in the same process: what browsers may send, and what they get."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("fastapi", reason="pip install 'aeron-async[exchange]'")
pytest.importorskip("httpx2", reason="pip install httpx2")

import uvicorn
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from aeron_async.errors import (
    CallFailedError,
    CallLostError,
    CallTimeoutError,
    NoServerError,
    RpcError,
    Status,
)
from examples.exchange import browsers
from examples.exchange import desk as desks
from examples.exchange.desk import Desk
from examples.exchange.gateway import UNREAD_S, listening, make_app
from examples.exchange.matching import Exchange
from examples.exchange.messages import ACK, LEVEL, Fill, Level, Progress, Trade, decode_command
from examples.exchange.services import OrderBody, Services

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

ORDER = {
    "account": "ann",
    "client_order_id": 1,
    "symbol": "AERN",
    "side": "BUY",
    "price": 10_000,
    "quantity": 5,
}


class Engine:
    """An exchange without a log: its effects reach the desk at once."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.exchange = Exchange()
        self.error: RpcError | None = None
        self._opened: Services | None = None

    async def submit(self, request: bytes) -> bytes:
        if self.error is not None:
            raise self.error
        effects = self.exchange.apply(self.exchange.sequence + 1, decode_command(request))
        changes: list[Level | Trade] = [*effects.trades, *effects.levels]
        for change in changes:
            self.desk.on_change(change)
        for fill in effects.fills:
            self.desk.on_fill(fill)
        return ACK.encode(effects.ack)

    async def metrics(self) -> str:
        return "aeron_info 1\n"

    @property
    def opened(self) -> Services:
        if self._opened is None:
            self._opened = Services(self.desk, self.submit, self.metrics)
        return self._opened

    @asynccontextmanager
    async def services(self) -> AsyncGenerator[Services]:
        yield self.opened


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def client(engine: Engine) -> Generator[TestClient]:
    host = {"Host": "127.0.0.1:8000"}
    with TestClient(make_app(engine.services), headers=host) as client:
        yield client


def test_an_order_is_answered_and_shown(client: TestClient) -> None:
    answer = client.post("/api/orders", json=ORDER).json()
    assert (answer["status"], answer["remaining"], answer["is_repeated"]) == ("RESTING", 5, 0)
    assert client.post("/api/orders", json=ORDER).json()["is_repeated"] == 1
    assert client.get("/api/book/AERN").json()["bids"] == [[10_000, 5, 1]]
    cancelled = client.delete("/api/orders/1?account=ann&client_order_id=2").json()
    assert (cancelled["status"], cancelled["remaining"]) == ("CANCELLED", 5)
    assert client.get("/api/book/AERN").json()["bids"] == []


@pytest.mark.parametrize(
    "change",
    [
        {"account": "<b>"},
        {"account": ""},
        {"client_order_id": 0},
        {"client_order_id": 2**53},
        {"symbol": "../etc"},
        {"side": "HOLD"},
        {"price": -1},
        {"quantity": 0},
        {"quantity": 1.5},
        {"quantity": 10**9},
    ],
    ids=str,
)
def test_what_is_no_order_is_refused(client: TestClient, change: dict[str, Any]) -> None:
    assert client.post("/api/orders", json=ORDER | change).status_code == 422


@pytest.mark.parametrize(
    "path", ["0?account=ann&client_order_id=2", "1?account=%3Cb&client_order_id=2", "1?account=a"]
)
def test_what_is_no_cancel_is_refused(client: TestClient, path: str) -> None:
    assert client.delete(f"/api/orders/{path}").status_code == 422


@pytest.mark.parametrize("path", ["orders", "orders?account=%3Cb%3E", "market?symbol=none"])
def test_a_websocket_for_nobody_is_refused(client: TestClient, path: str) -> None:
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(f"/ws/{path}"):
        pass


def test_an_engine_that_does_not_answer_is_told_with_what_to_do(
    client: TestClient, engine: Engine
) -> None:
    engine.error = CallLostError("the server was lost")
    answer = client.post("/api/orders", json=ORDER)
    assert answer.status_code == 503
    assert "same client_order_id" in answer.json()["detail"]
    engine.error = CallFailedError("4096 commands wait", status=Status.RESOURCE_EXHAUSTED)
    assert "refused" in client.post("/api/orders", json=ORDER).json()["detail"]


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (CallLostError("the server was lost"), True),
        (CallTimeoutError("no answer", was_sent=True), True),
        (NoServerError("nobody is there"), True),
        # It ends in order with commands under way, which may be recorded.
        (CallFailedError("the server closes", status=Status.UNAVAILABLE), True),
        (CallFailedError("it closes", status=Status.UNAVAILABLE, is_never_begun=True), False),
        (CallFailedError("4096 commands wait", status=Status.RESOURCE_EXHAUSTED), False),
        (CallFailedError("no command", status=Status.INVALID_ARGUMENT), False),
    ],
    ids=str,
)
def test_a_browser_is_told_whether_to_send_an_order_again(
    client: TestClient,
    engine: Engine,
    error: RpcError,
    again: bool,  # noqa: FBT001 - pytest gives it
) -> None:
    engine.error = error
    with client.websocket_connect("/ws/orders?account=ann") as browser:
        browser.send_json(ORDER | {"type": "order"})
        said = browser.receive_json()
    assert (said["type"], said["client_order_id"], said["again"]) == ("error", 1, again)
    assert ("refused" in said["error"]) is not again


def test_fills_go_to_their_account_only(client: TestClient) -> None:
    with (
        client.websocket_connect("/ws/orders?account=ann") as ann,
        client.websocket_connect("/ws/orders?account=bob") as bob,
    ):
        ann.send_json(ORDER | {"type": "order"})
        assert ann.receive_json()["status"] == "RESTING"
        bob.send_json(ORDER | {"type": "order", "account": "bob", "side": "SELL", "quantity": 3})
        said = [bob.receive_json() for _ in range(2)]
        assert {each["type"] for each in said} == {"ack", "fill"}
        fill = ann.receive_json()
        assert (fill["account"], fill["quantity"], fill["remaining"]) == ("ann", 3, 2)
        ann.send_json({"type": "cancel", "account": "ann", "client_order_id": 9, "order_id": 1})
        assert ann.receive_json()["status"] == "CANCELLED"


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"type": "order"}', '{"type": "<b>"}', "9" * 5_000, "\x00", "nonsense"],
    ids=repr,
)
def test_a_message_that_makes_no_sense_is_answered_without_its_text(
    client: TestClient, text: str
) -> None:
    with client.websocket_connect("/ws/orders?account=ann") as socket:
        socket.send_text(text)
        said = socket.receive_json()
        assert said["type"] == "error"
        assert "nonsense" not in said["error"]
        assert len(said["error"]) < 1_000
        # Others are still taken.
        socket.send_json(ORDER | {"type": "order"})
        assert socket.receive_json()["type"] == "ack"


@pytest.mark.parametrize("path", ["orders?account=ann", "market?symbol=AERN"])
def test_a_browser_that_sends_no_text_is_left(
    client: TestClient, engine: Engine, path: str
) -> None:
    with client.websocket_connect(f"/ws/{path}") as socket:
        socket.send_bytes(b"\xff")
    assert engine.opened.browser_count == 0


def test_a_websocket_is_for_one_account(client: TestClient) -> None:
    with client.websocket_connect("/ws/orders?account=bob") as socket:
        socket.send_json(ORDER | {"type": "order"})
        assert "account ann is not bob" in socket.receive_json()["error"]


def test_a_browser_is_shown_the_newest_book(client: TestClient) -> None:
    with client.websocket_connect("/ws/market?symbol=AERN") as socket:
        assert socket.receive_json()["type"] == "status"
        assert socket.receive_json()["bids"] == []
        client.post("/api/orders", json=ORDER)
        assert socket.receive_json()["bids"] == [[10_000, 5, 1]]


def test_there_is_a_limit_of_browsers(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsers, "BROWSERS_MOST", 1)
    with (
        client.websocket_connect("/ws/market?symbol=AERN"),
        pytest.raises(WebSocketDisconnect) as refused,
        client.websocket_connect("/ws/market?symbol=AERN"),
    ):
        pass
    assert refused.value.code == 1013
    with client.websocket_connect("/ws/market?symbol=AERN") as socket:
        assert socket.receive_json()["type"] == "status"


def test_only_pages_of_the_gateway_may_trade(client: TestClient) -> None:
    own = {"Origin": "http://127.0.0.1:8000"}
    for headers in (
        {"Origin": "https://elsewhere.example"},
        {"Origin": "ftp://127.0.0.1:8000"},
        {"Origin": "http://127.0.0.1:8001"},
        {"Origin": "null"},
        {"Host": "elsewhere.example"},
        {"Host": "testserver"},
        {"Host": "[::1"},
        {"Host": "127.0.0.1:8000@elsewhere.example"},
        {"Host": ""},
    ):
        assert client.post("/api/orders", json=ORDER, headers=headers).status_code == 403
        with (
            pytest.raises(WebSocketDisconnect),
            client.websocket_connect("/ws/orders?account=ann", headers=headers),
        ):
            pass
    assert client.post("/api/orders", json=ORDER, headers=own).status_code == 200
    own = {"Origin": "http://localhost", "Host": "localhost"}
    assert client.post("/api/orders", json=ORDER, headers=own).status_code == 200


def test_a_request_that_is_too_long_is_not_read(client: TestClient) -> None:
    assert client.post("/api/orders", content=bytes(5_000)).status_code == 413
    for length in ("9" * 5_000, "-1", "1,1", ""):
        headers = {"Content-Length": length}
        assert client.post("/api/orders", headers=headers).status_code == 413
    chunked = client.post("/api/orders", content=iter([b"{", b"}"]))
    assert chunked.status_code == 413


def test_the_page_may_load_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    assert "http://" not in page.text
    assert "https://" not in page.text
    for name in ("exchange.js", "exchange.css", "favicon.svg"):
        assert f"/static/{name}" in page.text
        assert client.get(f"/static/{name}").status_code == 200
    assert "innerHTML" not in client.get("/static/exchange.js").text
    assert client.get("/metrics").text == "aeron_info 1\n"
    assert client.get("/api/book/none").status_code == 404
    assert client.get("/api/symbols").json()[0] == "AERN"


async def test_a_screen_is_made_once_for_all_browsers() -> None:
    engine = Engine()
    first = engine.desk.screen("AERN")
    assert engine.desk.screen("AERN") is first
    waiting = asyncio.create_task(
        engine.desk.wait_changed("AERN", engine.desk.book.symbols["AERN"].version)
    )
    other = asyncio.create_task(
        engine.desk.wait_changed("BOLT", engine.desk.book.symbols["BOLT"].version)
    )
    await engine.opened.carry_out(OrderBody.model_validate(ORDER).command())
    assert await waiting == engine.desk.book.symbols["AERN"].version
    assert not other.done()
    other.cancel()
    assert engine.desk.screen("AERN") != first


def fill(number: int) -> Fill:
    return Fill(number, "ann", 1, "AERN", "BUY", 100, 1, 0)


async def test_fills_that_a_browser_does_not_take_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(desks, "FILLS_WAITING_MOST", 2)
    monkeypatch.setattr(desks, "LISTENERS_MOST", 1)
    desk = Desk()
    with desk.fills_of("ann") as queue:
        assert queue is not None
        with desk.fills_of("ann") as refused:
            assert refused is None
        for number in range(1, 4):
            desk.on_fill(fill(number))
        assert [each.number for each in await queue.take()] == [2, 3]
        assert queue.missed_count == 1
    desk.on_fill(fill(4))
    assert list(queue.fills) == []


def test_what_is_no_market_data_is_counted() -> None:
    desk = Desk()
    level = LEVEL.encode(Level("AERN", "BUY", 1, 1, 1))
    no_side = level.replace(b"AERN\0\0\0\0\x01", b"AERN\0\0\0\0\x07")
    no_price = b"\x09\0" + level[2:17]
    for data in (b"", b"nonsense", bytes(100), no_side, no_price):
        message: Any = SimpleNamespace(data=data)
        desk._on_market(message)
    assert desk.status()["undecodable"] == 5


def test_replicas_agree_or_it_is_said() -> None:
    desk = Desk()
    desk.on_checkpoint("engine", Progress(64, 1, 7))
    assert desk.status()["agreed"] == 0
    desk.on_checkpoint("market", Progress(64, 1, 7))
    assert desk.status()["agreed"] == 64
    desk.on_checkpoint("market", Progress(128, 1, 8))
    desk.on_checkpoint("engine", Progress(128, 1, 9))
    assert (desk.status()["agreed"], desk.status()["differing"]) == (64, 128)


class Browser:
    """A websocket whose browser reads, or does not."""

    def __init__(self, *, is_stuck: bool) -> None:
        self.is_stuck = is_stuck
        self.sent: list[str] = []
        self.closed: list[int] = []
        self.gone = asyncio.Event()

    async def accept(self) -> None:
        pass

    async def send_text(self, text: str) -> None:
        if self.is_stuck:
            await asyncio.Event().wait()
        self.sent.append(text)

    async def receive_text(self) -> str:
        await self.gone.wait()
        raise WebSocketDisconnect(1000)

    async def close(self, code: int, _reason: str) -> None:
        self.closed.append(code)
        if self.is_stuck:
            await asyncio.Event().wait()


async def test_a_browser_that_does_not_read_is_ended_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(browsers, "PATIENCE_S", 0.05)
    monkeypatch.setattr(browsers, "CLOSE_S", 0.05)
    monkeypatch.setattr(browsers, "FRAME_S", 0.001)
    engine = Engine()
    services = engine.opened
    stuck, reading = Browser(is_stuck=True), Browser(is_stuck=False)

    def served(browser: Any) -> asyncio.Task[None]:
        return asyncio.create_task(
            browsers.serve(
                browser,
                services,
                lambda: browsers.show(browser, engine.desk, "AERN"),
                lambda: browsers.ignore(browser),
            )
        )

    tasks = [served(stuck), served(reading)]
    number = 0
    while not stuck.closed:
        number += 1
        body = ORDER | {"client_order_id": number}
        await services.carry_out(OrderBody.model_validate(body).command())
        await asyncio.sleep(0)
    assert stuck.closed == [1008]
    await tasks[0]
    assert (stuck.sent, services.browser_count) == ([], 1)
    # More has changed than was drawn, and the newest is what is drawn in the end.
    while reading.sent[-1] != engine.desk.screen("AERN"):
        await asyncio.sleep(0)
    assert 1 < len(reading.sent) < engine.desk.book.symbols["AERN"].version
    reading.gone.set()
    await asyncio.gather(*tasks)
    assert services.browser_count == 0


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux has it")
def test_the_system_ends_a_connection_that_is_not_read() -> None:
    with listening(uvicorn.Config("none", host="127.0.0.1", port=0, log_config=None)) as found:
        unread_ms = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert unread_ms == 1_000 * UNREAD_S > 1_000 * browsers.PATIENCE_S
