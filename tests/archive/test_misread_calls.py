"""What an archive is asked with is checked before it is asked, here and from afar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async.archive import (
    ArchiveContext,
    ControlServer,
    ControlSettings,
    LocalArchive,
    RemoteArchive,
    SourceLocation,
    subscribe,
)
from aeron_async.archive.arguments import check_location
from aeron_async.errors import UnknownRecordingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

NO_IDS: list[Any] = ["x", None, True, 1.5, 2**63]
CONTROL = "aeron:ipc?term-length=64k"


@pytest.fixture(params=["local", "remote"])
async def archive(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[LocalArchive | RemoteArchive]:
    context = ArchiveContext(directory=str(tmp_path), low_storage_threshold=0)
    async with (
        aa.Aeron.connect(context=aa.DriverContext(term_buffer_length=65_536)) as aeron,
        LocalArchive.open(aeron, context) as local,
    ):
        if request.param == "local":
            yield local
            return
        settings = ControlSettings(local_control_channel=CONTROL)
        async with (
            ControlServer(local, aeron, settings),
            RemoteArchive.connect(aeron, control_channel=CONTROL) as remote,
        ):
            yield remote


async def taken(found: Any) -> None:
    """Wait for whatever it was, as its caller would."""
    if hasattr(found, "__aiter__"):
        await anext(found)
    else:
        await found


async def test_an_id_or_a_position_is_a_whole_number(archive: LocalArchive | RemoteArchive) -> None:
    """Text was an unknown recording, true was the first one, or it failed on its way there."""
    calls: list[Callable[[Any], object]] = [
        archive.describe,
        archive.start_position,
        archive.stop_position,
        archive.recording_position,
        archive.max_recorded_position,
        archive.attach_segments,
        archive.delete_detached_segments,
        archive.purge_recording,
        archive.stop_recording_by_identity,
        archive.stop_recording_subscription,
        archive.stop_replay,
        archive.replay,
        lambda wrong: archive.purge_segments(wrong, 0),
        lambda wrong: archive.purge_segments(0, wrong),
        lambda wrong: archive.detach_segments(wrong, 0),
        lambda wrong: archive.detach_segments(0, wrong),
        lambda wrong: archive.truncate(wrong, 0),
        lambda wrong: archive.truncate(0, wrong),
        lambda wrong: archive.start_replay(wrong, "aeron:ipc", 1),
        lambda wrong: archive.start_replay(0, "aeron:ipc", 1, length=wrong),
        lambda wrong: archive.extend_recording(wrong, "aeron:ipc", 1),
        lambda wrong: archive.extending_publication(wrong, "aeron:ipc", 1),
        archive.recordings,
    ]
    for wrong in NO_IDS:
        for call in calls:
            with pytest.raises(aa.ConfigurationError, match="must be a whole number"):
                await taken(call(wrong))
    for wrong in ("x", True, 1.5):
        with pytest.raises(aa.ConfigurationError, match="from_position="):
            archive.replay(0, wrong)  # type: ignore[arg-type]
        with pytest.raises(aa.ConfigurationError, match="to_position="):
            archive.replay(0, 0, wrong)  # type: ignore[arg-type]
        with pytest.raises(aa.ConfigurationError, match="recording_id="):
            await archive.stop_all_replays(wrong)  # type: ignore[arg-type]
    for unknown in (-1, 7):
        with pytest.raises(UnknownRecordingError):
            await archive.describe(unknown)


async def test_a_recording_says_what_it_cannot_be_asked_with(
    archive: LocalArchive | RemoteArchive,
) -> None:
    async def wanted(_: object) -> None:
        pytest.fail("nobody awaits it")

    given: list[tuple[dict[str, Any], str]] = [
        ({"on_failed": 5}, "on_failed=5 must be a function"),
        ({"on_failed": wanted}, "on_failed is an `async def`"),
        ({"source_location": "here"}, "source_location='here' must be SourceLocation.LOCAL"),
        ({"source_location": 2}, "source_location=2"),
        ({"source_location": True}, "source_location=True"),
        ({"source_location": None}, "source_location=None"),
    ]
    for keywords, pattern in given:
        with pytest.raises(aa.ConfigurationError, match=pattern):
            await archive.start_recording("aeron:ipc", 1, **keywords)
        with pytest.raises(aa.ConfigurationError, match=pattern):
            await archive.extend_recording(0, "aeron:ipc", 1, **keywords)
    assert await archive.recording_subscriptions() == []


async def test_the_name_of_a_place_is_the_place(
    archive: LocalArchive | RemoteArchive, unused_udp_port: int
) -> None:
    """`"LOCAL"` was taken for REMOTE: it subscribed beside the publication it was to spy upon."""
    local: Any = "LOCAL"
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    await archive.start_recording(channel, 1, source_location=local)
    aeron = archive.aeron if isinstance(archive, RemoteArchive) else archive._resources.aeron
    assert [each.channel for each in aeron._subscriptions if each.stream_id == 1] == [
        channel.replace("aeron:", "aeron-spy:aeron:")
    ]


def test_a_place_is_taken_by_name_and_by_number() -> None:
    for given in ("local", "Local", " LOCAL ", 0, SourceLocation.LOCAL):
        assert check_location(given) is SourceLocation.LOCAL
    for given in ("remote", "REMOTE", 1, SourceLocation.REMOTE):
        assert check_location(given) is SourceLocation.REMOTE


async def test_a_gap_is_raised_or_reported(archive: LocalArchive | RemoteArchive) -> None:
    aeron = archive.aeron if isinstance(archive, RemoteArchive) else archive._resources.aeron
    wrong: list[Any] = ["foo", None, True, ["raise"]]
    for on_gap in wrong:
        with pytest.raises(aa.ConfigurationError, match='must be "raise" or "report"'):
            subscribe(archive, aeron, 0, "aeron:ipc", 1, on_gap=on_gap)
