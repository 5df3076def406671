"""Against Aeron itself: its own driver, samples and tools, over loopback.

The programs are looked for in the folders that AERON_BIN names, then on PATH. Without them every
test here is skipped.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.interop.libaeron import OfficialClient, official_client
from tests.interop.official import OfficialDriver, official_driver
from tests.interop.ours import our_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    import aeron_async as aa

ON_EVERY_LOOP = "test_throughput.py"


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]] | None:
    if item.path.name != ON_EVERY_LOOP:
        return None
    uvloop = pytest.importorskip("uvloop", reason="pip install uvloop")
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/interop/"):
            item.add_marker(pytest.mark.interop)


@pytest.fixture
async def official() -> AsyncIterator[OfficialDriver]:
    """A driver of Aeron's own; when the test has passed, its error counters are still zero."""
    async with official_driver() as driver:
        yield driver


@pytest.fixture
async def aeron(official: OfficialDriver) -> AsyncIterator[aa.Aeron]:
    """A client of ours that closes first: while the official driver can still say goodbye."""
    async with our_client() as aeron:
        yield aeron


@pytest.fixture
def channel(unused_udp_port: int) -> str:
    return f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"


@pytest.fixture
async def client(official: OfficialDriver) -> AsyncIterator[OfficialClient]:
    """The official client of the official driver, in this process."""
    async with official_client(official) as client:
        yield client
