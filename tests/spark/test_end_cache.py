"""Where growing recordings end, when the source that knows it comes and goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.spark.readable_end import GRACE_NS, EndCache
from tests.spark.growing import GrowingArchive

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.archive.disk.descriptor import RecordingDescriptor


class Counters:
    """Says where recordings end, until it is gone."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}
        self.invalidations = 0

    def invalidate(self) -> None:
        self.invalidations += 1

    def counted(self) -> dict[int, int]:
        return {}

    def of(self, descriptor: RecordingDescriptor) -> int:
        if descriptor.recording_id not in self.ends:
            message = "no counter shows it"
            raise ConfigurationError(message)
        return self.ends[descriptor.recording_id]


def test_who_is_gone_for_a_while_is_waited_for(tmp_path: Path) -> None:
    archive = GrowingArchive(tmp_path)
    recording = archive.record()
    counters = Counters()
    cache = EndCache(archive.directory, counters)
    descriptor = archive.catalog.get(0)
    recording.write(3)
    with pytest.raises(ConfigurationError):
        cache.of(descriptor, 0)
    known = counters.ends[0] = recording.position
    assert cache.of(descriptor, 0) == known
    recording.write(3)
    del counters.ends[0]
    assert cache.of(descriptor, GRACE_NS - 1) == known
    with pytest.raises(ConfigurationError):
        cache.of(descriptor, GRACE_NS)
    counters.ends[0] = recording.position
    assert cache.of(descriptor, GRACE_NS) == recording.position


def test_a_new_recording_is_given_time_to_be_counted_and_an_old_one_is_not(
    tmp_path: Path,
) -> None:
    archive = GrowingArchive(tmp_path)
    old = archive.record()
    counters = Counters()
    cache = EndCache(archive.directory, counters)
    old.write(3)
    counters.ends[0] = old.position
    assert cache.of(archive.catalog.get(0), 5) == old.position
    new = archive.record()
    new.write(3)
    met = 7
    assert cache.of(archive.catalog.get(1), met) == 0
    assert cache.of(archive.catalog.get(1), met + GRACE_NS - 1) == 0
    with pytest.raises(ConfigurationError):
        cache.of(archive.catalog.get(1), met + GRACE_NS)
    counters.ends[1] = new.position
    assert cache.of(archive.catalog.get(1), met + GRACE_NS) == new.position
    # Who begins with a recording that nobody counts is told so at once.
    again = EndCache(archive.directory, Counters())
    for now_ns in (5, 6):
        with pytest.raises(ConfigurationError):
            again.of(archive.catalog.get(1), now_ns)


def test_what_is_written_and_not_yet_counted_is_read_when_it_is(tmp_path: Path) -> None:
    archive = GrowingArchive(tmp_path)
    recording = archive.record()
    counters = Counters()
    cache = EndCache(archive.directory, counters)
    descriptor = archive.catalog.get(0)
    recording.write(3)
    counters.ends[0] = recording.ends[0]
    assert cache.of(descriptor, 0) == recording.ends[0]
    counters.ends[0] = recording.ends[2]
    # Nothing new is on the disk, so it is asked again only after 10 ms.
    assert cache.of(descriptor, 9_999_999) == recording.ends[0]
    assert cache.of(descriptor, 10_000_000) == recording.ends[2]


def test_all_recordings_of_a_look_share_what_was_found_out(tmp_path: Path) -> None:
    archive = GrowingArchive(tmp_path)
    counters = Counters()
    cache = EndCache(archive.directory, counters)
    for number in range(3):
        archive.record(stream_id=number).write(1)
        counters.ends[number] = 0
        cache.of(archive.catalog.get(number), 0)
    assert counters.invalidations == 0
    cache.invalidate()
    assert counters.invalidations == 1
