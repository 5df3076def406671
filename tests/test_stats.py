"""The statistics of a driver as columns: rows, differences, and their way through JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.stats import LossStats, ReceiverStats, Stats, SubscriptionStats, Table
from aeron_async.stats_columns import Columns, Groups
from tests.snapshots import (
    ARCHIVE,
    DRIVER,
    FAST,
    IMAGE,
    PUBLICATION,
    RECORDING,
    SECOND_NS,
    SLOW,
    archive,
    stats,
)

if TYPE_CHECKING:
    from aeron_async.stats import ArchiveStats


def test_a_table_makes_its_columns_once_and_rows_of_them() -> None:
    calls = []

    def make() -> list[list[object]]:
        calls.append(1)
        return [[1, 2], ["", ""], [5, 6], [0, 0], [None, 7], [0, 0], [None, None]]

    table = Table(SubscriptionStats, 2, make)

    assert len(table) == 2
    assert not calls
    assert [each.registration_id for each in table] == [1, 2]
    assert table.column("message_count") == [None, 7]
    assert table[-1] == SubscriptionStats(2, "", 6, 0, 7, 0, None)
    assert table[1:] == [table[1]]
    assert calls == [1]
    assert table == Table.of(SubscriptionStats, list(table))
    with pytest.raises(KeyError):
        table.column("colour")


def test_a_column_is_made_when_it_is_asked_for_of_what_was_taken_and_other_columns() -> None:
    made: list[str] = []

    def maker(name: str) -> Any:
        def make(taken: list[int], columns: Columns) -> list[int]:
            made.append(name)
            return taken if name == "count" else [2 * each for each in columns["count"]]

        return make

    columns = Columns([3, 4], {"cause": lambda *_: ["a", "b"], "count": maker("count")})
    assert (len(columns), list(columns)) == (2, ["cause", "count"])
    makers = {"cause": lambda *_: ["a", "b"], "count": maker("count"), "bytes": maker("bytes")}
    table = Table(LossStats, 2, Columns([3, 4], makers))
    assert not made
    assert table.column("bytes") == [6, 8]
    assert made == ["bytes", "count"]
    assert list(table) == [LossStats("a", 3, 6), LossStats("b", 4, 8)]
    table.complete()
    assert made == ["bytes", "count"]
    with pytest.raises(KeyError):
        table.column("colour")


def test_cells_that_are_columns_are_tuples_of_rows() -> None:
    rows = [LossStats("gap", number, number) for number in range(5)]
    cells = Groups(Table.of(LossStats, rows), [0, 2, 2, 5])

    assert list(cells) == [(rows[0], rows[1]), (), (rows[2], rows[3], rows[4])]
    assert (cells[0], cells[-1], cells[1:]) == ((rows[0], rows[1]), tuple(rows[2:]), [(), cells[2]])
    assert cells == list(cells)
    assert cells != [(), (), ()]
    assert (cells.filled, cells.are_single) == ([0, 2], False)
    assert Groups(Table.of(LossStats, rows), [0, 1, 2, 3, 4, 5]).are_single
    assert Groups(Table.of(LossStats, []), [0, 0]).filled == []
    with pytest.raises(IndexError):
        cells[3]


def test_the_slowest_receiver_allows_the_least_to_be_sent() -> None:
    assert PUBLICATION.slowest_receiver is SLOW
    assert attrs.evolve(PUBLICATION, receivers=()).slowest_receiver is None
    assert PUBLICATION.blocked_ns == SECOND_NS


def test_a_publication_is_as_far_behind_as_its_slowest_receiver_with_what_was_not_sent() -> None:
    spy = ReceiverStats("spy", "5", "", 2_000, None, None, 8_000)
    for receivers, backlog, lag in (
        ((SLOW, FAST), 0, 3_000),
        ((SLOW, FAST), 4_000, 7_000),
        # What a spy lacks was counted from what was published.
        ((SLOW, spy), 4_000, 8_000),
        ((SLOW, FAST), None, 3_000),
        ((), 500, 500),
        ((), None, None),
    ):
        row = attrs.evolve(PUBLICATION, receivers=receivers, backlog_bytes=backlog)
        assert row.lag_bytes == lag


def test_losses_add_up() -> None:
    assert (IMAGE.loss_count, IMAGE.lost_bytes) == (3, 3_100)


def test_a_difference_is_by_the_second_and_by_cause() -> None:
    later = stats(
        attrs.evolve(
            PUBLICATION,
            position=14_000,
            backlog_bytes=3_000,
            message_count=70,
            blocked_sender_limit_ns=2 * SECOND_NS,
            nak_count=6,
            retransmitted_bytes=700,
        ),
        attrs.evolve(
            IMAGE,
            position=13_000,
            nak_count=4,
            losses=(LossStats("gap", 4, 5_000), LossStats("over_run", 2, 20)),
        ),
        at_ns=3 * SECOND_NS,
        driver=attrs.evolve(DRIVER, counters={"bytes_sent": 300}),
    )

    rates = later.diff(stats())

    publication, image = rates.publications[1], rates.images[2]
    assert rates.seconds == 2
    assert (publication.bytes_per_second, publication.messages_per_second) == (2_000, 10)
    assert publication.backlog_bytes_per_second == 1_500
    assert publication.blocked_ratio == {
        "sender_limit": 0.5,
        "publisher_limit": 0,
        "not_connected": 0,
    }
    assert (publication.naks_per_second, publication.retransmitted_bytes_per_second) == (2, 100)
    assert (image.bytes_per_second, image.naks_per_second) == (2_000, 1)
    assert image.losses_per_second == {"gap": 1, "over_run": 1}
    assert image.lost_bytes_per_second == {"gap": 1_000, "over_run": 10}
    assert rates.subscriptions[3].messages_per_second == 0
    assert rates.counters == {"bytes_sent": 100}


def test_a_count_that_was_unknown_has_no_rate() -> None:
    unknown = stats(attrs.evolve(PUBLICATION, message_count=None))
    rates = stats(at_ns=2 * SECOND_NS).diff(unknown)
    assert rates.publications[1].messages_per_second is None


def test_waits_that_were_not_measured_before_have_no_rate() -> None:
    """All of an hour's waits would else have been in one second."""
    unmeasured = stats(attrs.evolve(PUBLICATION, blocked_sender_limit_ns=None))
    rates = stats(at_ns=2 * SECOND_NS).diff(unmeasured)
    assert set(rates.publications[1].blocked_ratio) == {"publisher_limit", "not_connected"}


def test_a_stream_that_is_new_began_at_its_own_position() -> None:
    new = attrs.evolve(PUBLICATION, registration_id=9), attrs.evolve(IMAGE, registration_id=8)

    rates = stats(*new, at_ns=2 * SECOND_NS).diff(stats())

    assert rates.publications[9].bytes_per_second == 0
    assert rates.publications[9].messages_per_second == 50
    assert rates.images[8].bytes_per_second == 9_000
    assert rates.images[8].losses_per_second == {"gap": 2, "forged": 1}


def test_what_a_source_does_not_measure_has_no_rate() -> None:
    publication = attrs.evolve(
        PUBLICATION,
        blocked_sender_limit_ns=None,
        blocked_publisher_limit_ns=None,
        nak_count=None,
        retransmitted_bytes=None,
        backlog_bytes=None,
    )
    image = attrs.evolve(IMAGE, nak_count=None)

    rates = stats(publication, image, at_ns=2 * SECOND_NS).diff(stats(publication, image))

    assert publication.blocked_ns is None
    assert rates.publications[1].blocked_ratio == {"not_connected": 0}
    assert rates.publications[1].naks_per_second is None
    assert rates.publications[1].retransmitted_bytes_per_second is None
    assert rates.publications[1].backlog_bytes_per_second is None
    assert rates.images[2].naks_per_second is None


@pytest.mark.parametrize(
    "other",
    [
        stats(),
        stats(at_ns=0, driver=attrs.evolve(DRIVER, pid=43)),
        stats(at_ns=0, driver=attrs.evolve(DRIVER, started_ns=5)),
    ],
    ids=["not earlier", "another process", "another driver of the same process"],
)
def test_a_difference_needs_an_earlier_snapshot_of_the_same_driver(other: Stats) -> None:
    with pytest.raises(ConfigurationError, match="earlier snapshot of the same driver"):
        stats().diff(other)


@pytest.mark.parametrize(("other", "kind"), [(None, "NoneType"), ({}, "dict"), (1, "int")])
def test_a_difference_needs_a_snapshot(other: Any, kind: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^earlier must be a snapshot, .* got {kind}$"):
        stats().diff(other)


def test_statistics_go_through_json_unchanged() -> None:
    there = Stats.from_dict(json.loads(json.dumps(stats().to_dict())))

    assert there == stats()
    assert there.publications[0].receivers == (SLOW, FAST)


def test_an_archive_goes_through_json_with_the_statistics_of_its_driver() -> None:
    ours = stats().with_archive(ARCHIVE)

    there = Stats.from_dict(json.loads(json.dumps(ours.to_dict())))

    assert there == ours != stats()
    assert there.archive == ARCHIVE
    assert ours.with_archive(None) == stats()


def test_statistics_without_an_archive_are_those_of_versions_that_know_none() -> None:
    fields = stats().to_dict()

    assert "archive" not in fields
    assert Stats.from_dict({**fields, "archive": None}).archive is None


def test_what_another_version_does_not_know_of_an_archive_is_empty() -> None:
    fields = stats().with_archive(ARCHIVE).to_dict()
    fields["archive"] = {
        "archive_id": 77,
        "colour": "red",
        "recordings": {"recording_id": [5], "recorded_bytes": [10], "colour": ["red"]},
    }

    there = Stats.from_dict(fields).archive

    assert there is not None
    assert (there.free_bytes, there.free_age_ns, there.recorded_bytes) == (None, None, 0)
    assert (there.recordings[0].recording_id, there.recordings[0].lag_bytes) == (5, None)
    assert there.lag_bytes is None


def test_what_is_recorded_in_a_second_is_by_recording_and_by_session() -> None:
    extended = attrs.evolve(RECORDING, recording_id=6, recorded_bytes=500)
    earlier = stats().with_archive(archive(RECORDING, extended))
    now = archive(
        attrs.evolve(RECORDING, recorded_bytes=9_000),
        attrs.evolve(extended, start_position=9_024, recorded_bytes=600),
        attrs.evolve(RECORDING, recording_id=9, recorded_bytes=40),
    )

    rates = stats(at_ns=3 * SECOND_NS).with_archive(now).diff(earlier)

    assert rates.archive == {5: 500, 6: 300, 9: 20}


@pytest.mark.parametrize("before", [None, attrs.evolve(ARCHIVE, archive_id=78)])
def test_without_an_earlier_snapshot_of_an_archive_it_has_no_rates(
    before: ArchiveStats | None,
) -> None:
    later = stats(at_ns=3 * SECOND_NS)

    assert later.with_archive(ARCHIVE).diff(stats().with_archive(before)).archive == {}
    assert later.diff(stats().with_archive(ARCHIVE)).archive == {}


def test_the_lag_of_an_archive_is_that_of_the_recording_furthest_behind() -> None:
    slow = attrs.evolve(RECORDING, recording_id=6, lag_bytes=2_000)
    unknown = attrs.evolve(RECORDING, recording_id=7, lag_bytes=None)

    assert archive(RECORDING, slow, unknown).lag_bytes == 2_000
    assert archive(unknown).lag_bytes is None
    assert archive().lag_bytes == 0


def test_what_another_version_does_not_know_is_empty_and_what_it_adds_is_left_out() -> None:
    fields = stats().to_dict()
    del fields["publications"]["receivers"], fields["images"]["lag_ns"], fields["driver"]["cycles"]
    del fields["driver"]["loop_lag_count"], fields["driver"]["started_ns"]
    fields["publications"]["colour"] = ["red"]

    there = Stats.from_dict(fields)

    assert there.publications[0].receivers == ()
    assert there.images[0].lag_ns is None
    assert there.driver.cycles == ()
    assert (there.driver.loop_lag_count, there.driver.started_ns) == (None, None)


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {**stats().to_dict(), "publications": {}},
        {**stats().to_dict(), "publications": {"registration_id": [1], "channel": []}},
        {**stats().to_dict(), "images": 7},
        {**stats().to_dict(), "driver": None},
        {**stats().to_dict(), "archive": 7},
        {**stats().to_dict(), "archive": {"archive_id": 1}},
        {**stats().to_dict(), "archive": {"archive_id": 1, "recordings": {"recording_id": 7}}},
        {**stats().to_dict(), "epoch_ns": "soon"},
        {**stats().to_dict(), "epoch_ns": float("inf")},
    ],
)
def test_what_is_no_statistics_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="no statistics of a driver"):
        Stats.from_dict(broken)


@pytest.mark.parametrize("odd", ["a", {"a": 1}, {1}, b"a", range(1)])
@pytest.mark.parametrize("name", ["registration_id", "channel", "receivers", "nested"])
def test_a_column_that_is_no_list_is_refused(name: str, odd: object) -> None:
    fields = stats().to_dict()
    table = fields["publications"]
    table.update({"receivers": [odd]} if name == "nested" else {name: odd})

    with pytest.raises(ConfigurationError, match="where a list must be"):
        Stats.from_dict(fields)
