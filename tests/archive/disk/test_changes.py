"""A recording loses its end, its beginning, or everything; in the middle of that, all may stop."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.changes import (
    Retention,
    attach_segments,
    clear_behind_stop,
    delete_detached_segments,
    detach_segments,
    expired_segments,
    purge_recording,
    purge_segments,
    truncate,
)
from aeron_async.archive.disk.files import OsFile
from aeron_async.archive.disk.verify import Finding, Severity, verify
from aeron_async.errors import (
    ArchiveError,
    ArchiveErrorCode,
    ArchiveFileError,
    ConfigurationError,
    InvalidPositionError,
    UnknownRecordingError,
)
from tests.archive.disk.streams import described, read_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.archive.disk.conftest import Kept

FILES = [0, 131_072, 262_144, 393_216, 524_288]


def holds(kept: Kept, start: int, stop: int) -> None:
    """Hold a recording against what was recorded, and what is behind it against zeros."""
    found = Catalog.open_to_read(kept.directory).get(0)
    assert (found.start_position, found.stop_position) == (start, stop)
    wanted = kept.data[start - 4_096 : stop - 4_096]
    assert read_all(kept.directory, found, start, stop) == wanted
    last = stop & -131_072
    if last in kept.files():
        data = (kept.path / f"0-{last}.rec").read_bytes()
        assert len(data) == 131_072
        assert not any(data[stop - last :])


# Truncating.


def test_a_file_with_nothing_behind_the_end_is_left_alone(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever died between cutting it off and making it whole would leave it too short.
    monkeypatch.setattr(OsFile, "set_length", None)
    assert clear_behind_stop(kept.directory, kept.catalog, 0) == 0
    monkeypatch.undo()
    holds(kept, 4_096, kept.stop)


def test_a_file_that_is_too_short_gets_its_length_and_keeps_its_end(kept: Kept) -> None:
    file = kept.directory.open("0-524288.rec")
    file.set_length(kept.stop - 524_288)
    file.close()
    noted = [each for each in verify(kept.directory) if isinstance(each, Finding)]
    assert [each.severity for each in noted] == [Severity.NOTE]
    assert clear_behind_stop(kept.directory, kept.catalog, 0) == 0
    holds(kept, 4_096, kept.stop)


def test_a_recording_is_truncated_within_a_segment(kept: Kept) -> None:
    place = next(each for each in kept.starts if each > 300_000)
    assert truncate(kept.directory, kept.catalog, 0, place) == 2
    assert kept.files() == FILES[:3]
    holds(kept, 4_096, place)
    assert truncate(kept.directory, kept.catalog, 0, place) == 0
    holds(kept, 4_096, place)


@pytest.mark.parametrize(
    ("place", "removed", "left"),
    [(262_144, 3, FILES[:2]), (4_096, 5, []), (524_288, 1, FILES[:4])],
)
def test_a_recording_is_truncated_to_a_segment_or_to_nothing(
    kept: Kept, place: int, removed: int, left: list[int]
) -> None:
    assert truncate(kept.directory, kept.catalog, 0, place) == removed
    assert kept.files() == left
    holds(kept, 4_096, place)


def test_truncating_to_the_end_changes_nothing(kept: Kept) -> None:
    assert truncate(kept.directory, kept.catalog, 0, kept.stop) == 0
    holds(kept, 4_096, kept.stop)


def test_a_position_that_is_none_is_refused_before_anything_changes(kept: Kept) -> None:
    middle = next(each for each in kept.starts if each > 300_000 and each + 32 not in kept.starts)
    for position in (0, 33, kept.stop + 32, middle + 32):
        with pytest.raises(InvalidPositionError) as caught:
            truncate(kept.directory, kept.catalog, 0, position)
        assert caught.value.nearest is not None
        assert str(caught.value.nearest) in str(caught.value)
        holds(kept, 4_096, kept.stop)


def test_of_one_file_none_may_go(kept: Kept) -> None:
    kept.catalog.update(0, stop_position=64_000)
    with pytest.raises(InvalidPositionError, match="has one file, from 0 on") as caught:
        purge_segments(kept.directory, kept.catalog, 0, 131_072)
    assert caught.value.nearest == 4_096


def test_what_goes_on_is_not_truncated_nor_purged(kept: Kept) -> None:
    kept.catalog.update(0, stop_position=-1)
    for act in (truncate, purge_recording, clear_behind_stop):
        arguments = (0, 4_096) if act is truncate else (0,)
        with pytest.raises(ArchiveError, match="active recording 0") as caught:
            act(kept.directory, kept.catalog, *arguments)
        assert caught.value.code is ArchiveErrorCode.ACTIVE_RECORDING
    with pytest.raises(UnknownRecordingError):
        truncate(kept.directory, kept.catalog, 5, 4_096)


def test_what_a_truncation_left_when_it_died_is_cleared_before_an_extension(kept: Kept) -> None:
    place = next(each for each in kept.starts if each > 300_000)
    kept.catalog.update(0, stop_position=place)
    assert clear_behind_stop(kept.directory, kept.catalog, 0) == 2
    holds(kept, 4_096, place)


# The beginning.


def test_detached_segments_stay_when_a_recording_of_which_nothing_is_left_is_extended(
    kept: Kept,
) -> None:
    truncate(kept.directory, kept.catalog, 0, 393_216)
    detach_segments(kept.directory, kept.catalog, 0, 393_216)
    assert clear_behind_stop(kept.directory, kept.catalog, 0) == 0
    assert kept.files() == FILES[:3]
    assert attach_segments(kept.directory, kept.catalog, 0) == 3
    holds(kept, 4_096, 393_216)


def test_segments_are_detached_attached_and_removed(kept: Kept) -> None:
    detach_segments(kept.directory, kept.catalog, 0, 262_144)
    assert kept.files() == FILES
    holds(kept, 262_144, kept.stop)
    assert attach_segments(kept.directory, kept.catalog, 0) == 2
    holds(kept, 4_096, kept.stop)
    assert attach_segments(kept.directory, kept.catalog, 0) == 0
    detach_segments(kept.directory, kept.catalog, 0, 393_216)
    assert delete_detached_segments(kept.directory, kept.catalog, 0) == 3
    assert attach_segments(kept.directory, kept.catalog, 0) == 0
    assert kept.files() == FILES[3:]
    holds(kept, 393_216, kept.stop)


def test_segments_are_purged_and_asking_again_finishes_it(kept: Kept) -> None:
    assert purge_segments(kept.directory, kept.catalog, 0, 262_144) == 2
    assert kept.files() == FILES[2:]
    assert purge_segments(kept.directory, kept.catalog, 0, 262_144) == 0
    # One that died behind the catalog.
    kept.catalog.update(0, start_position=393_216)
    assert purge_segments(kept.directory, kept.catalog, 0, 393_216) == 1
    holds(kept, 393_216, kept.stop)


@pytest.mark.parametrize(
    ("position", "match", "nearest"),
    [
        (100_000, "invalid new start 100000: .*; the nearest: 131072$", 131_072),
        (300_000, "every 131072 bytes, .* the nearest: 262144 and 393216$", 262_144),
        (390_000, "from 131072 to 524288; the nearest: 262144 and 393216$", 393_216),
        (0, "invalid new start 0: .*; the nearest: 131072$", 131_072),
        (655_360, "invalid new start 655360: .*; the nearest: 524288$", 524_288),
        (600_000, "invalid new start 600000: .*; the nearest: 524288$", 524_288),
        (-131_072, "invalid new start -131072: .*; the nearest: 131072$", 131_072),
    ],
)
def test_a_new_start_that_is_none_is_refused(
    kept: Kept, position: int, match: str, nearest: int
) -> None:
    for act in (detach_segments, purge_segments):
        with pytest.raises(InvalidPositionError, match=match) as caught:
            act(kept.directory, kept.catalog, 0, position)
        assert caught.value.nearest == nearest
    holds(kept, 4_096, kept.stop)


def test_of_what_goes_on_the_segment_that_is_written_stays(kept: Kept) -> None:
    kept.catalog.update(0, stop_position=-1)
    with pytest.raises(InvalidPositionError, match=r"to 131072; the nearest: 131072$"):
        purge_segments(kept.directory, kept.catalog, 0, 262_144, recorded_position=262_000)
    with pytest.raises(InvalidPositionError, match="has one file, from 0 on"):
        detach_segments(kept.directory, kept.catalog, 0, 131_072)
    assert purge_segments(kept.directory, kept.catalog, 0, 131_072, recorded_position=262_000) == 1


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda file: file.set_length(100), "100 bytes, and a segment has 131072"),
        (lambda file: (file.set_length(0), file.set_length(131_072)), "no frame in its first term"),
        (lambda file: file.write([b"\1"], 16), "a frame of stream 1"),
    ],
)
def test_a_segment_that_does_not_belong_is_not_attached(
    kept: Kept, damage: Any, match: str
) -> None:
    detach_segments(kept.directory, kept.catalog, 0, 262_144)
    file = kept.directory.open("0-131072.rec")
    damage(file)
    file.close()
    with pytest.raises(ArchiveFileError, match=match):
        attach_segments(kept.directory, kept.catalog, 0)
    holds(kept, 262_144, kept.stop)


# All of it.


def test_a_recording_is_purged_and_asking_again_finishes_it(kept: Kept) -> None:
    assert purge_recording(kept.directory, kept.catalog, 0) == 5
    assert kept.files() == []
    with pytest.raises(UnknownRecordingError):
        purge_recording(kept.directory, kept.catalog, 0)
    kept.directory.open("0-0.rec", create=True).close()
    kept.directory.open("7-0.rec", create=True).close()
    assert purge_recording(kept.directory, kept.catalog, 0) == 1
    with pytest.raises(UnknownRecordingError):
        purge_recording(kept.directory, kept.catalog, 7)
    assert kept.catalog.add(described()).recording_id == 1


# What may go.


def expired(kept: Kept, *, now_ms: int = 0, replay: int | None = None, **limits: int) -> list[int]:
    found = expired_segments(
        kept.directory,
        kept.descriptor,
        Retention(**limits),
        now_ms=now_ms,
        end=kept.stop,
        lowest_replay=replay,
    )
    if found is None:
        return []
    assert found.new_start_position == found.bases[-1] + 131_072
    return list(found.bases)


def test_whole_segments_go_by_position_bytes_or_age(kept: Kept) -> None:
    assert expired(kept) == []
    assert expired(kept, before_position=393_215) == FILES[:2]
    assert expired(kept, before_position=1 << 40) == FILES[:4]
    assert expired(kept, max_bytes=kept.stop - 262_144) == FILES[:2]
    assert expired(kept, max_bytes=0) == FILES[:4]
    newest = max(kept.directory.modified_ms(f"0-{each}.rec") for each in FILES)
    assert expired(kept, max_age_ms=5, now_ms=newest + 6) == FILES[:4]
    assert expired(kept, max_age_ms=1 << 40, now_ms=newest) == []
    assert expired(kept, max_age_ms=1 << 40, max_bytes=0, now_ms=newest) == FILES[:4]


def test_nothing_goes_that_is_replayed(kept: Kept) -> None:
    assert expired(kept, max_bytes=0, replay=262_143) == FILES[:1]
    assert expired(kept, max_bytes=0, replay=4_096) == []


def test_a_file_that_is_not_there_ends_what_may_go(kept: Kept) -> None:
    kept.directory.remove("0-131072.rec")
    assert expired(kept, max_bytes=0) == FILES[:1]


def test_a_limit_below_zero_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="max_bytes -1 is negative"):
        Retention(max_bytes=-1)


# What is no plain file.


@pytest.mark.parametrize("kind", ["a symbolic link", "a named pipe"])
@pytest.mark.parametrize(
    "change",
    [
        lambda kept: purge_recording(kept.directory, kept.catalog, 0),
        lambda kept: purge_segments(kept.directory, kept.catalog, 0, 131_072),
        lambda kept: truncate(kept.directory, kept.catalog, 0, 4_096),
        lambda kept: delete_detached_segments(kept.directory, kept.catalog, 0),
    ],
    ids=["purge_recording", "purge_segments", "truncate", "delete_detached_segments"],
)
def test_what_would_be_left_behind_is_named_before_anything_is_removed(
    kept: Kept, tmp_path: Path, kind: str, change: Callable[[Kept], int]
) -> None:
    """A purge reported success, and left a link."""
    path = kept.path / "0-131072.rec"
    path.rename(tmp_path / "elsewhere")
    if kind == "a symbolic link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        os.mkfifo(path)
    before = kept.files()
    with pytest.raises(ArchiveFileError, match=f"0-131072.rec, offset 0: {kind}, and"):
        change(kept)
    assert kept.files() == before
    assert 0 in kept.catalog
    wanted = f"{kind}, but a segment is a plain file: it is not read"
    found = [each for each in verify(kept.directory) if isinstance(each, Finding)]
    assert wanted in [each.what for each in found if each.severity is Severity.PROBLEM]
    with pytest.raises(ArchiveFileError, match=kind):
        read_all(kept.directory, kept.catalog.get(0), 4_096, kept.stop)
    path.unlink()
    change(kept)
