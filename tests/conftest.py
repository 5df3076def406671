"""Which loops the tests run on, and silence.

Tests that touch real sockets, and those of the client, run once on asyncio and once on uvloop;
pytest-asyncio's own `unused_udp_port` gives a free port of 127.0.0.1.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import settings

try:
    import uvloop
except ImportError:  # pragma: no cover - there is none for Windows
    LOOP_FACTORIES: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
        "asyncio": asyncio.new_event_loop
    }
else:
    LOOP_FACTORIES = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# A busy machine is no reason to fail, and a failing example must be the same for everybody.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")

ON_EVERY_LOOP = tuple(Path(__file__).parent / folder for folder in ("io", "client"))


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if any(item.path.is_relative_to(folder) for folder in ON_EVERY_LOOP):
        return LOOP_FACTORIES
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture(autouse=True)
def _quiet_logs() -> None:
    # `structlog.testing.capture_logs` still sees every line.
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
