"""An archive over a directory of its own, beside the client that it records for."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async import Aeron, DriverContext, MediaDriver
from aeron_async.archive.context import ArchiveContext
from aeron_async.archive.local_archive import LocalArchive
from aeron_async.clock import NS_PER_SECOND
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    OpenArchive = Callable[..., AbstractAsyncContextManager[tuple[Aeron, LocalArchive]]]

SEGMENT_LENGTH = 65_536
DRIVER_KINDS = ("embedded", pytest.param("attached", marks=needs_compiled))


@asynccontextmanager
async def client_of(kind: str, context: DriverContext, directory: Path) -> AsyncIterator[Aeron]:
    """A client with a driver of its own, or one that is attached to a driver by a directory."""
    if kind == "embedded":
        async with Aeron.connect(context=context) as aeron:
            yield aeron
        return
    shared = attrs.evolve(context, aeron_directory=str(directory), counters_buffer_length=1 << 20)
    async with (
        MediaDriver.launch(shared),
        Aeron.connect(directory=directory, context=context) as aeron,
    ):
        yield aeron


@pytest.fixture
def driver_kind() -> str:
    """Return "embedded", or "attached" for a client of a directory; a module may take both."""
    return "embedded"


@pytest.fixture
def open_archive(tmp_path: Path, driver_kind: str) -> OpenArchive:
    """Return what opens a client and an archive; opened again it finds what it had recorded."""

    @asynccontextmanager
    async def opened(
        *, waiting_hint_ns: int = 2 * NS_PER_SECOND, **settings: Any
    ) -> AsyncIterator[tuple[Aeron, LocalArchive]]:
        settings = {
            "directory": str(tmp_path / "archive"),
            "segment_length": SEGMENT_LENGTH,
            "low_storage_threshold": 0,
            **settings,
        }
        context = DriverContext(
            ipc_term_buffer_length=SEGMENT_LENGTH, waiting_hint_ns=waiting_hint_ns
        )
        async with (
            client_of(driver_kind, context, tmp_path / "aeron") as aeron,
            LocalArchive.open(aeron, ArchiveContext(**settings)) as archive,
        ):
            yield aeron, archive

    return opened
