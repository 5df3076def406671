"""The archive comes first, then its client; whatever else is given is refused at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async.archive import ArchiveContext, ControlServer, LocalArchive, subscribe
from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aeron_async import Aeron

CALLS: list[Callable[[Any, Any], object]] = [
    ControlServer,
    lambda archive, aeron: subscribe(archive, aeron, 0, "aeron:ipc", 1),
]


@pytest.mark.parametrize("call", CALLS, ids=["ControlServer", "subscribe"])
async def test_arguments_in_another_order_are_named(
    call: Callable[[Any, Any], object], tmp_path: Path
) -> None:
    """Not an AttributeError about a clock."""
    async with aa.MediaDriver.launch() as driver, aa.Aeron.connect(driver) as aeron:
        context = ArchiveContext(directory=str(tmp_path), low_storage_threshold=0)
        async with LocalArchive.open(aeron, context) as archive:
            call(archive, aeron)
            with pytest.raises(
                ConfigurationError, match="an Aeron and a LocalArchive: the archive comes first"
            ):
                call(aeron, archive)
            with pytest.raises(ConfigurationError, match="must be the client, an Aeron"):
                call(archive, archive)
        unopened = LocalArchive.open(aeron, context)
        with pytest.raises(ConfigurationError, match="must be an archive that is open"):
            call(unopened, aeron)
        async with unopened:
            pass


def test_the_type_of_what_was_given_is_named() -> None:
    aeron: Aeron | None = None
    with pytest.raises(ConfigurationError, match="given an int and a NoneType"):
        ControlServer(3, aeron)  # type: ignore[arg-type]


async def test_arguments_of_subscribe_are_checked_at_the_call(tmp_path: Path) -> None:
    context = ArchiveContext(directory=str(tmp_path), low_storage_threshold=0)
    async with aa.Aeron.connect() as aeron, LocalArchive.open(aeron, context) as archive:

        def call(recording_id: Any = 0, stream_id: Any = 1, from_position: Any = None) -> None:
            subscribe(
                archive, aeron, recording_id, "aeron:ipc", stream_id, from_position=from_position
            )

        for wrong in ("0", None, -1, True, 1.0):
            with pytest.raises(ConfigurationError, match="recording_id="):
                call(recording_id=wrong)
        for wrong in ("1", None, 2**31):
            with pytest.raises(ConfigurationError, match="stream_id"):
                call(stream_id=wrong)
        for wrong in ("0", -32, 1.5):
            with pytest.raises(ConfigurationError, match="from_position="):
                call(from_position=wrong)
        call(from_position=-1)


async def test_what_opens_an_archive_is_a_client_and_settings(tmp_path: Path) -> None:
    context = ArchiveContext(directory=str(tmp_path / "archive"))
    async with aa.Aeron.connect() as aeron:
        with pytest.raises(aa.ConfigurationError, match=r"give ArchiveContext\(directory="):
            LocalArchive.open(aeron, str(tmp_path))  # type: ignore[arg-type]
        with pytest.raises(
            aa.ConfigurationError, match="was given an ArchiveContext as its client"
        ):
            LocalArchive.open(context, aeron)  # type: ignore[arg-type]
