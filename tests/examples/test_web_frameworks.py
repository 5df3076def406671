"""Apps of FastAPI, Starlette and aiohttp that open Aeron: requests, failed starts, orderly ends."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async import rpc
from tests.examples.programs import EXAMPLES, channel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import ModuleType

fastapi = pytest.importorskip("fastapi", reason="pip install fastapi")
httpx = pytest.importorskip("httpx2", reason="pip install httpx2")
aiohttp = pytest.importorskip("aiohttp", reason="pip install aiohttp")
web = pytest.importorskip("aiohttp.web", reason="pip install aiohttp")
test_utils = pytest.importorskip("aiohttp.test_utils", reason="pip install aiohttp")
applications = pytest.importorskip("starlette.applications", reason="pip install starlette")
testclient = pytest.importorskip("starlette.testclient", reason="pip install starlette httpx2")

TIMEOUT_S = 30
NOWHERE = "aeron:udp?endpoint=127.0.0.1"


@pytest.fixture(name="example")
def load(monkeypatch: pytest.MonkeyPatch, unused_udp_port: int) -> Callable[[str], ModuleType]:
    """Return a function that imports an example, with a channel of its own."""
    monkeypatch.setenv("CHANNEL", channel(unused_udp_port))

    def example(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"{name}_under_test", EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return example


@pytest.fixture(name="opened")
def watch_clients(monkeypatch: pytest.MonkeyPatch) -> list[aa.Aeron]:
    """Return a list of every client that is connected from now on."""
    opened: list[aa.Aeron] = []
    enter = aa.Aeron.__aenter__

    async def note(aeron: aa.Aeron) -> aa.Aeron:
        opened.append(aeron)
        return await enter(aeron)

    monkeypatch.setattr(aa.Aeron, "__aenter__", note)
    return opened


def test_fastapi_calls_the_service_and_says_that_it_is_ready(
    example: Callable[[str], ModuleType], opened: list[aa.Aeron]
) -> None:
    module = example("service_in_fastapi")
    with testclient.TestClient(module.app) as browser:
        answer = browser.post("/orders/ACME")
        assert (answer.status_code, answer.json()) == (200, "placed ACME")
        refused = browser.get("/ready")
        assert refused.status_code == 503
        assert "the publication of stream 1001" in refused.text
        assert "has no subscriber" in refused.text
    (aeron,) = opened
    assert aeron.is_closed


async def test_fastapi_becomes_ready_with_a_subscriber(
    example: Callable[[str], ModuleType], unused_udp_port: int
) -> None:
    module = example("service_in_fastapi")
    async with module.lifespan(module.app) as state:
        bound = httpx.ASGITransport(with_state(module.app, state))
        async with (
            httpx.AsyncClient(transport=bound, base_url="http://app") as browser,
            aa.Aeron.connect() as aeron,
            aeron.add_subscription(channel(unused_udp_port), stream_id=1001),
        ):
            await state["ticks"].wait_connected(timeout=TIMEOUT_S)
            answer = await browser.get("/ready")
            assert (answer.status_code, answer.text) == (200, "ready")


async def test_an_app_that_has_lost_its_driver_is_not_ready(
    example: Callable[[str], ModuleType],
) -> None:
    module = example("service_in_fastapi")
    started: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def live() -> None:
        """Hold the lifespan in a task of its own, as servers do."""
        async with module.lifespan(module.app) as state:
            started.set_result(state)
            await asyncio.Event().wait()

    living = asyncio.ensure_future(live())
    state = await started
    bound = httpx.ASGITransport(with_state(module.app, state), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=bound, base_url="http://app") as browser:
        await state["aeron"].driver.aclose()
        assert state["aeron"].is_closed
        assert (await browser.get("/ready")).status_code == 500
    with pytest.raises(aa.ClosedError, match="is served no more"):
        await living


async def test_an_aiohttp_app_that_has_lost_its_driver_ends_with_the_reason(
    example: Callable[[str], ModuleType],
) -> None:
    module = example("service_in_aiohttp")

    async def live() -> None:
        """Run the app as `web.run_app` does, in one task."""
        app = module.create_app()
        runner = web.AppRunner(app)
        try:
            await runner.setup()
            started.set_result(app[module.AERON])
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    started: asyncio.Future[aa.Aeron] = asyncio.get_running_loop().create_future()
    living = asyncio.ensure_future(live())
    await (await started).driver.aclose()
    with pytest.raises(aa.ClosedError, match="is served no more"):
        await living
    assert living.cancelling() == 0


def with_state(app: Any, state: dict[str, Any]) -> Callable[..., Any]:
    """Return an app with the state of its lifespan: httpx does not run the lifespan itself."""

    async def run(scope: Any, receive: Any, send: Any) -> None:
        await app(scope | {"state": dict(state)}, receive, send)

    return run


@pytest.mark.parametrize("name", ["service_in_fastapi", "service_in_aiohttp"])
async def test_a_start_that_fails_closes_what_was_open(
    name: str,
    example: Callable[[str], ModuleType],
    opened: list[aa.Aeron],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = example(name)
    monkeypatch.setattr(module, "TICKS", NOWHERE)
    before = asyncio.all_tasks()
    with pytest.raises(aa.ChannelUriError):
        await start(module)
    (aeron,) = opened
    assert aeron.is_closed
    assert asyncio.all_tasks() == before


async def start(module: ModuleType) -> None:
    """Start an app the way its server does."""
    if hasattr(module, "lifespan"):
        async with module.lifespan(module.app):
            pytest.fail("it has started")
    runner = web.AppRunner(module.create_app())
    try:
        await runner.setup()
    finally:
        await runner.cleanup()


def test_a_client_of_starlette_sees_the_start_fail(
    example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, opened: list[aa.Aeron]
) -> None:
    module = example("service_in_fastapi")
    monkeypatch.setattr(module, "TICKS", NOWHERE)
    with pytest.raises(aa.ChannelUriError), testclient.TestClient(module.app):
        pytest.fail("it has started")
    assert opened[0].is_closed


async def test_aiohttp_calls_the_service_and_says_that_it_is_ready(
    example: Callable[[str], ModuleType], unused_udp_port: int, opened: list[aa.Aeron]
) -> None:
    app = example("service_in_aiohttp").create_app()
    async with test_utils.TestClient(test_utils.TestServer(app)) as browser:
        async with browser.post("/orders/ACME") as answer:
            assert (answer.status, await answer.text()) == (200, "placed ACME")
        async with browser.get("/ready") as answer:
            assert answer.status == 503
            assert "has no subscriber" in await answer.text()
        async with (
            aa.Aeron.connect() as aeron,
            aeron.add_subscription(channel(unused_udp_port), stream_id=1001) as subscription,
        ):
            await subscription.wait_connected(timeout=TIMEOUT_S)
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    async with browser.get("/ready") as answer:
                        if answer.status == 200:
                            break
    assert all(aeron.is_closed for aeron in opened)
    assert len(opened) == 2


async def test_an_app_may_start_and_end_in_different_tasks(
    example: Callable[[str], ModuleType], opened: list[aa.Aeron]
) -> None:
    """Fixtures of aiohttp and pytest do that: nothing holds a cancel scope open."""
    runner = web.AppRunner(example("service_in_aiohttp").create_app())
    await asyncio.create_task(runner.setup())
    await asyncio.create_task(runner.cleanup())
    assert opened[0].is_closed


@asynccontextmanager
async def noted(notes: list[str], name: str) -> AsyncIterator[None]:
    """Note that everything below this line of a block has closed."""
    yield
    notes.append(name)


def test_an_end_closes_from_the_last_line_to_the_first_and_finishes_calls_that_run() -> None:
    notes: list[str] = []
    service = rpc.Server("orders")
    end = asyncio.Event()

    @service.unary
    async def place(request: bytes) -> bytes:
        await end.wait()
        notes.append("a call that runs has its answer")
        return request

    @asynccontextmanager
    async def lifespan(_app: Any) -> AsyncIterator[dict[str, Any]]:
        async with (
            noted(notes, "the driver is closed"),
            aa.Aeron.connect() as aeron,
            noted(notes, "the service is closed"),
            service.serve(aeron, "aeron:ipc", grace=TIMEOUT_S) as serving,
            noted(notes, "the client is closed"),
            rpc.Client(aeron, "aeron:ipc", "orders") as client,
        ):
            call = asyncio.create_task(client.call("place", b"x", timeout=TIMEOUT_S))
            while not serving.counts.under_way:
                await asyncio.sleep(0)
            yield {"aeron": aeron}
            end.set()
            assert await call == b"x"

    with testclient.TestClient(applications.Starlette(lifespan=lifespan)):
        assert notes == []
    assert notes == [
        "a call that runs has its answer",
        "the client is closed",
        "the service is closed",
        "the driver is closed",
    ]
