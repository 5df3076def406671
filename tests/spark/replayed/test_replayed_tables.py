"""What is replayed is what the files hold: the same rows, from the same positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async.errors import (
    ArchiveError,
    ConfigurationError,
    DataLossError,
    InvalidPositionError,
    UnknownRecordingError,
)
from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.planning import partitions_of, plan_batch
from aeron_async.spark.worker import close_connection
from tests.spark.recordings import TERM, RecordingMaker, options_for, scanned
from tests.spark.sink.neighbours import served_archive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

START = 3 * TERM + 64
PAYLOADS = [bytes([number % 251]) * (number * 37 % 1_500) for number in range(600)]
LONG = bytes(range(256)) * 60


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return an archive of two recordings: messages of all lengths, and a start in a term."""
    maker = RecordingMaker(tmp_path)
    for number, payload in enumerate(PAYLOADS):
        maker.message(payload, reserved=number)
    maker.stop()
    late = RecordingMaker(tmp_path, start=START, stream_id=1002, checksum="crc32c")
    late.message(b"first")
    for _ in range(20):
        late.message(LONG)
    late.padding(-late.position % TERM)
    late.message(b"last")
    late.stop()
    return tmp_path


@pytest.fixture
def control(directory: Path, unused_udp_port_factory: Callable[[], int]) -> Iterator[str]:
    """Return where the archive can be asked."""
    channel = f"aeron:udp?endpoint=localhost:{unused_udp_port_factory()}"
    with served_archive(directory, channel):
        yield channel
        close_connection()


def replaying(control: str, **given: str) -> ArchiveOptions:
    return ArchiveOptions.parse({"access": "replay", "archive.control.channel": control, **given})


@pytest.mark.parametrize("mode", ["message", "frame"])
def test_a_replayed_table_is_that_of_the_files(directory: Path, control: str, mode: str) -> None:
    given = {"fragmentMode": mode, "includeHeaders": "true", "includeChannel": "true"}
    if mode == "frame":
        given["includePadding"] = "true"
    near, _ = scanned(options_for(directory, **given))
    far, counts = scanned(replaying(control, **given))
    if mode == "frame":
        # A replay has none; those of padding are null in files as well.
        assert any(near.pop("frame_checksum"))
        assert not any(far.pop("frame_checksum"))
    assert far == near
    assert len(far["position"]) >= len(PAYLOADS) + 22
    assert (counts.damaged_places, counts.broken_messages) == (0, 0)


def test_parts_of_a_recording_are_replayed_by_themselves(directory: Path, control: str) -> None:
    near, _ = scanned(options_for(directory))
    options = replaying(control)
    groups = partitions_of(plan_batch(options), max_bytes=TERM, min_partitions=None)
    assert len(groups) > 8
    found = [scanned(options, list(group))[0]["position"] for group in reversed(groups)]
    assert [each for part in reversed(found) for each in part] == near["position"]


@pytest.mark.parametrize("piece_length", [64, 1 << 12, 1 << 21])
def test_pieces_of_any_length_are_replayed(
    directory: Path, control: str, piece_length: int
) -> None:
    near, _ = scanned(options_for(directory, recordingIds="1"))
    far, _ = scanned(replaying(control, recordingIds="1"), piece_length=piece_length)
    assert far == near


def test_a_query_selects_and_begins_and_ends_as_in_files(directory: Path, control: str) -> None:
    near, _ = scanned(options_for(directory))
    some = {
        "recordingIds": "0",
        "startingPositions": f'{{"0": {near["position"][5]}}}',
        "endingPositions": f'{{"0": {near["position"][500]}}}',
    }
    far, _ = scanned(replaying(control, **some))
    assert far["payload"] == PAYLOADS[5:500]
    by_time = {"timestampFrom": "reserved:ms", "startingTimestamp": "595", "recordingIds": "0"}
    far, _ = scanned(replaying(control, **by_time))
    assert far["payload"] == PAYLOADS[595:]
    far, _ = scanned(replaying(control, streamId="1002", columns="position,length"))
    assert far["position"] == near["position"][len(PAYLOADS) :]


def test_what_cannot_be_is_refused_with_the_words_of_files(control: str) -> None:
    with pytest.raises(UnknownRecordingError, match="which has 0, 1: change recordingIds"):
        plan_batch(replaying(control, recordingIds="7"))
    with pytest.raises(ConfigurationError, match=r"no recording in the archive at .* is selected"):
        plan_batch(replaying(control, streamId="9"))
    with pytest.raises(InvalidPositionError, match="in the middle of a frame"):
        plan_batch(replaying(control, recordingIds="1", startingPositions=f'{{"1": {START + 32}}}'))
    with pytest.raises(DataLossError, match="it holds"):
        plan_batch(replaying(control, startingPositions='{"1": 0}', recordingIds="1"))


def test_a_recording_that_went_since_it_was_planned_is_an_error(
    directory: Path, control: str
) -> None:
    options = replaying(control, recordingIds="0")
    (part,) = plan_batch(options)
    for each in directory.glob("0-*.rec"):
        each.unlink()
    with pytest.raises(ArchiveError):
        scanned(options, [part])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"path": "/a"}, "access=replay reads no files"),
        ({"positionSource": "scan"}, "leave positionSource=scan out"),
        ({"verifyChecksum": "crc32"}, "leave verifyChecksum=crc32 out"),
    ],
)
def test_options_that_need_files_are_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        replaying("aeron:udp?endpoint=localhost:1", **given)


def test_a_replay_needs_an_archive_to_ask() -> None:
    with pytest.raises(ConfigurationError, match=r"set archive\.control\.channel"):
        ArchiveOptions.parse({"access": "replay"})
