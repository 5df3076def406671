"""An archive over a directory of its own, beside the client that it records for."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async import Aeron, DriverContext
from aeron_async.archive.context import ArchiveContext
from aeron_async.archive.local_archive import LocalArchive
from aeron_async.clock import NS_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    OpenArchive = Callable[..., AbstractAsyncContextManager[tuple[Aeron, LocalArchive]]]

SEGMENT_LENGTH = 65_536


@pytest.fixture
def open_archive(tmp_path: Path) -> OpenArchive:
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
        driver = DriverContext(
            ipc_term_buffer_length=SEGMENT_LENGTH, waiting_hint_ns=waiting_hint_ns
        )
        async with (
            Aeron.connect(context=driver) as aeron,
            await LocalArchive.open(aeron, ArchiveContext(**settings)) as archive,
        ):
            yield aeron, archive

    return opened
