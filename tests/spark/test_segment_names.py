"""Names of segments, parsed all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.segments import parse_segment_name, segment_name
from aeron_async.spark import segment_names
from aeron_async.spark.ranges import RecordingRange
from aeron_async.spark.segment_names import SegmentNames, missing_segments
from tests.archive.disk.streams import TERM, described

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

LARGEST = (1 << 63) - 1
NUMBERS = st.integers(0, LARGEST) | st.integers(0, 40)
NAMES = (
    st.builds(segment_name, NUMBERS, NUMBERS)
    | st.text(alphabet="0123456789-.rec\n\udc80٣a", max_size=14)
    | st.sampled_from(
        [
            *("", ".rec", "-.rec", "5-.rec", "-5.rec", "1-2-3.rec", "00-0.rec", "1-01.rec"),
            *("1-2.rec.rec", "3-\n5-0.rec", "archive.catalog", f"{LARGEST + 1}-0.rec"),
            *("1-9999999999999999999.rec", "0-1000000000000000000.rec", "1-2.REC", "1-2.rec.prep"),
        ]
    )
)


@given(st.lists(NAMES, max_size=30))
def test_they_are_those_that_the_archive_gives(names: list[str]) -> None:
    wanted: dict[int, list[int]] = {}
    for each in filter(None, map(parse_segment_name, names)):
        wanted.setdefault(each[0], []).append(each[1])
    found = SegmentNames(names)
    for recording_id in {*wanted, 0, 1, 40, LARGEST - 1}:
        assert found.bases(recording_id).tolist() == sorted(wanted.get(recording_id, []))


class CountingDirectory:
    """Counts what is asked of a directory."""

    def __init__(self, directory: OsDirectory) -> None:
        self._directory = directory
        self.listed = 0
        self.looked_up = 0

    def names(self) -> list[str]:
        self.listed += 1
        return self._directory.names()

    def modified_ms(self, name: str) -> int:
        self.looked_up += 1
        return self._directory.modified_ms(name)


def test_few_files_are_looked_up_and_many_are_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = []
    for recording_id in range(5):
        descriptor = attrs.evolve(described(), recording_id=recording_id, segment_length=TERM)
        parts.append(RecordingRange(descriptor, 96, 7 * TERM + 64))
        for base in range(0, 8 * TERM, TERM):
            if (recording_id, base) not in {(1, 0), (3, 4 * TERM), (3, 7 * TERM)}:
                (tmp_path / segment_name(recording_id, base)).touch()
    # One that no archive makes does not stand for another one.
    (tmp_path / f"3-{4 * TERM + 32}.rec").touch()
    wanted = [
        (parts[1], 96, "1-0.rec"),
        (parts[3], 4 * TERM, f"3-{4 * TERM}.rec"),
        (parts[3], 7 * TERM, f"3-{7 * TERM}.rec"),
    ]
    few: Any = CountingDirectory(OsDirectory(tmp_path))
    assert list(missing_segments(few, parts)) == wanted
    assert (few.listed, few.looked_up) == (0, 40)
    monkeypatch.setattr(segment_names, "FEW", 39)
    many: Any = CountingDirectory(OsDirectory(tmp_path))
    assert list(missing_segments(many, parts)) == wanted
    assert (many.listed, many.looked_up) == (1, 0)
