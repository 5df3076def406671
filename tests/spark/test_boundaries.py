"""Where messages end on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aeron_async.spark.boundaries import DiskBoundaries
from tests.archive.disk.conftest import Kept, recorded
from tests.archive.disk.streams import TERM

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return recorded(tmp_path_factory.mktemp("archive"))


def boundaries(
    kept: Kept, *, by_message: bool = True, with_padding: bool = False
) -> DiskBoundaries:
    return DiskBoundaries(
        kept.directory, {0: kept.descriptor}, by_message=by_message, with_padding=with_padding
    )


def ends(kept: Kept) -> list[int]:
    return [*kept.starts[1:], kept.stop]


def is_data(kept: Kept) -> list[bool]:
    return [kept.data[start - 4_096 + 6] == 1 for start in kept.starts]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_the_last_end_within_a_limit_is_that_of_a_walk(kept: Kept, data: st.DataObject) -> None:
    start = data.draw(st.sampled_from(kept.starts))
    limit = data.draw(st.integers(start, kept.stop))
    wanted = max((each for each in ends(kept) if start < each <= limit), default=start)
    # Padding ends where a term does, as whatever is before it.
    assert boundaries(kept).last_end(0, start, limit) == wanted


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_rows_are_counted_without_padding_unless_it_is_a_row(
    kept: Kept, data: st.DataObject
) -> None:
    with_padding = data.draw(st.booleans())
    number = data.draw(st.integers(0, len(kept.starts) - 1))
    rows = data.draw(st.integers(1, 700))
    found, count = boundaries(kept, by_message=False, with_padding=with_padding).end_of_rows(
        0, kept.starts[number], kept.stop, rows
    )
    counted = [
        end
        for end, is_row in zip(ends(kept), is_data(kept), strict=True)
        if end > kept.starts[number] and (is_row or with_padding)
    ]
    assert found == (counted[rows - 1] if rows <= len(counted) else kept.stop)
    assert count == min(rows, len(counted))


def test_the_first_end_is_that_of_the_next_frame(kept: Kept) -> None:
    for start, end in zip(kept.starts[:50], ends(kept)[:50], strict=True):
        assert boundaries(kept).first_end(0, start, kept.stop) == end


def test_nothing_ends_behind_the_last_one(kept: Kept) -> None:
    assert boundaries(kept).first_end(0, kept.stop, kept.stop) == kept.stop


def test_damage_is_passed_by_with_its_term(tmp_path: Path) -> None:
    kept = recorded(tmp_path)
    number = next(n for n, start in enumerate(kept.starts) if start > 3 * TERM + 5_000)
    base = kept.files()[1]
    file = kept.directory.open(f"0-{base}.rec")
    file.write([b"\xff" * 32], kept.starts[number] - base)
    file.close()
    found = boundaries(kept)
    assert found.first_end(0, kept.starts[number], kept.stop) == 4 * TERM
    assert found.last_end(0, kept.starts[0], kept.starts[number] + 9_000) == kept.starts[number]
    assert (
        found.last_end(0, kept.starts[number], kept.starts[number] + 9_000) == kept.starts[number]
    )


def test_a_file_that_is_not_there_is_passed_by_term_by_term(tmp_path: Path) -> None:
    kept = recorded(tmp_path)
    base = kept.files()[1]
    (tmp_path / f"0-{base}.rec").unlink()
    assert boundaries(kept).first_end(0, base, kept.stop) == base + TERM
    assert boundaries(kept).last_end(0, base, base + TERM + 64) == base + TERM
