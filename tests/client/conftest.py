"""One driver, one client and one channel for each test, all on loopback.

The driver is embedded or serves an attached client: see `tests/drivers.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import aeron_async as aa
from aeron_async import _speedups
from tests.drivers import ATTACHED, EMBEDDED, KIND, attach_clients

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

STREAM_ID = 1001


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if KIND == EMBEDDED and metafunc.definition.get_closest_marker("both_drivers") is not None:
        needs_compiled = pytest.mark.skipif(bool(_speedups.WHY_PURE), reason="needs compiled code")
        kinds = [EMBEDDED, pytest.param(ATTACHED, marks=needs_compiled)]
        metafunc.parametrize("_kind_of_driver", kinds, indirect=True)


@pytest.fixture(autouse=True)
def _kind_of_driver(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Let the clients of the test attach to their drivers, if that is how it runs."""
    if getattr(request, "param", KIND) == ATTACHED:
        for marker in request.node.iter_markers("embedded_only"):
            pytest.skip(f"only with an embedded driver: {marker.args[0]}")
        attach_clients(monkeypatch, tmp_path)


@pytest.fixture
def context() -> aa.DriverContext:
    # Some tests take every counter: of the usual buffer, that would be 65,536.
    return aa.DriverContext(
        term_buffer_length=64 * 1024,
        ipc_term_buffer_length=64 * 1024,
        counters_buffer_length=1024 * 1024,
    )


@pytest.fixture
async def driver(context: aa.DriverContext) -> AsyncIterator[aa.MediaDriver]:
    async with aa.MediaDriver.launch(context, seed=7) as driver:
        yield driver


@pytest.fixture
async def aeron(driver: aa.MediaDriver) -> AsyncIterator[aa.Aeron]:
    async with aa.Aeron.connect(driver) as aeron:
        yield aeron


@pytest.fixture
def channel(unused_udp_port: int) -> str:
    return f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"


@pytest.fixture
async def subscription(aeron: aa.Aeron, channel: str) -> aa.Subscription:
    return await aeron.add_subscription(channel, STREAM_ID)


@pytest.fixture
async def publication(
    aeron: aa.Aeron, channel: str, subscription: aa.Subscription
) -> aa.Publication:
    publication = await aeron.add_publication(channel, STREAM_ID)
    await publication.wait_connected(timeout=5)
    await subscription.wait_connected(timeout=5)
    return publication
