"""JSON in pieces: what it means, and how long a piece is."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async import stats_json
from aeron_async.stats import LossStats, PublicationStats, Table
from aeron_async.stats_columns import Groups
from aeron_async.stats_json import (
    CELLS_MAX,
    NESTED_MAX,
    ROWS_MAX,
    TEXT_MAX,
    Kept,
    decode_json,
    encode_json,
    groups_of,
    json_pieces,
)
from tests.snapshots import ARCHIVE, FAST, PUBLICATION, stats, stats_of_many

if TYPE_CHECKING:
    from aeron_async.stats import Stats


@pytest.fixture(params=["msgspec", "json"], autouse=True)
def _encoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "json":
        monkeypatch.setattr(stats_json, "_fast_encode", None)
        monkeypatch.setattr(stats_json, "msgspec", None)
    elif stats_json.msgspec is None:
        pytest.skip("msgspec is not installed: pip install msgspec")


def joined(value: object) -> Any:
    return json.loads(b"".join(json_pieces(value)))


@pytest.mark.parametrize(
    "snapshot",
    [stats(), stats_of_many(0), stats_of_many(2_500), stats().with_archive(ARCHIVE)],
)
def test_the_pieces_of_a_snapshot_are_its_plain_values(snapshot: Stats) -> None:
    assert joined(snapshot) == snapshot.to_dict()


def test_a_publication_with_many_receivers_is_made_in_pieces() -> None:
    many = tuple(attrs.evolve(FAST, id=str(number)) for number in range(3 * ROWS_MAX + 1))
    rows = [PUBLICATION, attrs.evolve(PUBLICATION, receivers=many), PUBLICATION]
    snapshot = attrs.evolve(stats(), publications=Table.of(PublicationStats, rows))

    assert joined(snapshot) == snapshot.to_dict()
    longest = max(piece.count(b"window_bytes") for piece in json_pieces(snapshot))
    assert longest == ROWS_MAX


@pytest.mark.parametrize(
    ("values", "lengths"),
    [
        ([], []),
        ([None], [1]),
        ([1] * (CELLS_MAX + 1), [CELLS_MAX, 1]),
        ([None] * CELLS_MAX + ["a"], [CELLS_MAX, 1]),
        (["a" * TEXT_MAX, "b", "c"], [1, 2]),
        ([""] * (CELLS_MAX + 1), [CELLS_MAX, 1]),
        ([(1,) * (ROWS_MAX // 2)] * 3, [1, 1, 1]),
        ([LossStats("gap", 1, 1)] * (ROWS_MAX + 1), [ROWS_MAX, 1]),
    ],
)
def test_a_group_of_cells_has_a_limit(values: list[object], lengths: list[int]) -> None:
    groups = list(groups_of(values))

    assert [len(each) for each in groups] == lengths
    assert [each for group in groups for each in group] == values


@given(
    value=st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text()
        | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_value_comes_back(value: object) -> None:
    assert json.loads(b"".join(json_pieces(value))) == value
    assert json.loads(encode_json(value)) == value


@pytest.mark.parametrize("text", ["\ud800", 'a"\\\n\x00\x7f', "é" * TEXT_MAX, "x" * 3 * TEXT_MAX])
def test_any_text_comes_back(text: str) -> None:
    assert joined(text) == text
    assert joined([text, None, text]) == [text, None, text]


def groups(sizes: list[int]) -> Groups[LossStats]:
    """Return cells of so many rows each."""
    count = sum(sizes)
    columns: list[list[Any]] = [
        ["gap", 'so"me,thing', "\ud800"] * count,
        list(range(count)),
        [None] * count,
    ]
    table = Table(LossStats, count, lambda: [each[:count] for each in columns])
    return Groups(table, list(accumulate(sizes, initial=0)))


@given(sizes=st.lists(st.integers(0, 3), max_size=20) | st.lists(st.just(1), max_size=20))
def test_cells_that_are_columns_are_written_as_rows(sizes: list[int]) -> None:
    cells = groups(sizes)
    assert joined(cells) == [[stats_json.plain_of(row) for row in cell] for cell in cells]


@pytest.mark.parametrize(
    "sizes",
    [
        [NESTED_MAX, NESTED_MAX + 1, 0, 1],
        [0] * (CELLS_MAX + 1),
        [3 * NESTED_MAX + 1],
        [1] * (2 * NESTED_MAX),
        [0, 2 * NESTED_MAX, 0],
    ],
)
def test_cells_that_are_columns_are_written_in_pieces(sizes: list[int]) -> None:
    cells = groups(sizes)
    assert list(map(len, joined(cells))) == sizes == list(map(len, cells))
    pieces = list(json_pieces(cells))
    assert max(piece.count(b"cause") for piece in pieces) <= NESTED_MAX
    assert max(piece.count(b"[") for piece in pieces) <= CELLS_MAX


def test_a_column_that_stays_is_written_once() -> None:
    kept: Kept = {}
    first = stats_of_many(3)
    assert json.loads(b"".join(json_pieces(first, kept))) == first.to_dict()
    before = {name: pieces for name, (_, pieces) in kept.items()}
    moved = [attrs.evolve(row, position=row.position + 1) for row in first.publications]
    second = attrs.evolve(first, publications=Table.of(PublicationStats, moved))

    assert json.loads(b"".join(json_pieces(second, kept))) == second.to_dict()
    changed = {name for name, (_, pieces) in kept.items() if pieces is not before[name]}
    assert changed == {"publications position"}
    fewer = stats_of_many(2)
    assert json.loads(b"".join(json_pieces(fewer, kept))) == fewer.to_dict()
    assert kept.keys() == before.keys()


def test_what_json_has_nothing_for_is_refused() -> None:
    with pytest.raises(TypeError):
        encode_json(object())


@pytest.mark.parametrize("line", [b"", b"{", b"\xff", b"[" * 100_000, b'"\x00'])
def test_what_is_no_json_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_json(line)
