"""What a batch leaves to those behind it, and who may go on with a lake."""

from __future__ import annotations

import json
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest

from aeron_async.archive.disk import changes
from aeron_async.archive.disk.catalog import Catalog
from aeron_async.errors import ArchiveError, ConfigurationError, DataLossError
from aeron_async.spark.follower import Follower
from aeron_async.spark.lake.maintenance import maintain_table
from aeron_async.spark.lake.tables import BATCHES, Lake, gold
from aeron_async.spark.offsets import IdRanges, Offsets, RecordingOffset
from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.pipeline import batches
from aeron_async.spark.pipeline.batches import BATCHES_SCHEMA, Edges, last_runs
from aeron_async.spark.pipeline.gold import GAPS, RUNS, table_of
from aeron_async.spark.pipeline.runs import GapKind, Run
from tests.archive.golden import golden_path
from tests.spark.pipeline.local import LocalJob, planned, write_gold
from tests.spark.pipeline.test_task import DAY_NS, QUOTE, SPEC, quotes

COUNT = 3_000


def run_of(recording_id: int, end: int, name: str = "") -> Run:
    return Run(
        recording_id=recording_id,
        session_id=1,
        stream_id=2,
        name=name,
        first_position=end - 64,
        end_position=end,
        messages=1,
        first_number=5 if name else None,
        last_number=end if name else None,
    )


def of(*runs: Run) -> pa.Table:
    return table_of(runs, RUNS)


def ends(runs: pa.Table) -> list[tuple[int, str, int]]:
    columns = (runs.column(name).to_pylist() for name in ("recording_id", "name", "end_position"))
    return sorted(zip(*columns, strict=True))


def kept(lake: Lake) -> list[str]:
    return (lake.state / "edges").names()


def test_the_last_run_is_that_which_came_last() -> None:
    runs = of(run_of(1, 64), run_of(2, 64), run_of(1, 128), run_of(1, 96, "a.b"))
    assert ends(last_runs(runs)) == [(1, "", 128), (1, "a.b", 96), (2, "", 64)]
    assert last_runs(of()).num_rows == 0


@pytest.mark.parametrize("session_id", [1, 2])
def test_of_a_recording_that_was_cut_what_was_recorded_since_counts(
    tmp_path: Path, session_id: int
) -> None:
    cut, since = run_of(1, 640), attrs.evolve(run_of(1, 128), session_id=session_id)
    assert ends(last_runs(of(cut, since))) == [(1, "", 128)]
    # Also if that is found out again, and the newest file is not the last by its name.
    lake = Lake(tmp_path)
    for batch, run in ((1, cut), (2, since)):
        write_gold(lake, "runs", of(run), batch)
    assert maintain_table(lake.path(gold("runs"))).joined_files == 2
    assert ends(Edges(lake).before(3)) == [(1, "", 128)]
    write_gold(lake, "runs", of(attrs.evolve(since, end_position=64)), 3)
    assert ends(Edges(lake).before(4)) == [(1, "", 64)]


@pytest.mark.parametrize("session_id", [5, 6])
@pytest.mark.parametrize("count", [1, 9])
def test_what_is_recorded_over_a_cut_is_in_all_tables(
    tmp_path: Path, session_id: int, count: int
) -> None:
    """The last batch was cut off whole, and the recording ends before or behind where it did."""
    maker = quotes(tmp_path / "archive", [(n, DAY_NS, 1) for n in range(12)])
    ((whole,),) = planned(tmp_path / "archive")
    ends = [*maker.positions, maker.position]
    job = local(tmp_path / "archive", tmp_path / "lake")
    job.begin()
    job.process(0, [attrs.evolve(whole, end=ends[9])])
    job.process(1, [attrs.evolve(whole, start=ends[9])])
    catalog = Catalog.open(maker.directory, capacity=4_096)
    changes.truncate(maker.directory, catalog, 0, ends[6])
    more = catalog.update(0, stop_position=-1, stop_timestamp_ms=-1, session_id=session_id)
    maker.extend(more, ends[6])
    for number in range(6, 6 + count):
        maker.message(QUOTE.pack(number, DAY_NS, 2))
    maker.stop()
    catalog.close()
    ((again,),) = planned(tmp_path / "archive")
    job.process(2, [attrs.evolve(again, start=ends[6])])
    report = job.reports[-1]
    assert (report.messages, report.decoded) == (count, {"quotes": count})
    assert report.positions == {0: maker.position}
    for table in ("bronze", "silver/quotes"):
        rows = job.lake.read(table, pa.schema([("position", pa.int64())]))
        assert rows.num_rows == 12 + count
    # What is missing is nothing; the numbers begin again.
    gaps = job.lake.read(gold("gaps"), GAPS).to_pylist()
    assert [(each["name"], each["kind"], each["missing"]) for each in gaps] == [
        ("quotes.sequence", GapKind.BACKWARDS, -6)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_what_was_kept_is_what_all_runs_say_also_for_a_batch_that_is_done_again(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    lake, everything = Lake(tmp_path), list[Run]()
    edges = Edges(lake)
    for batch in range(20):
        before = edges.before(batch)
        assert ends(before) == ends(last_runs(of(*everything)))
        if chance.random() < 0.2:
            continue
        runs = [run_of(chance.randrange(3), 64 * (batch + 2), chance.choice(["", "a.b"]))]
        write_gold(lake, "runs", of(*runs), batch)
        for _ in range(chance.choice([1, 1, 2])):
            before = Edges(lake).before(batch)
            edges.keep(batch, pa.concat_tables([before, of(*runs)]), range(3))
        everything += runs
    assert len(kept(lake)) == 2


@pytest.mark.parametrize("data", [b"", b"PAR1", b"[{"])
def test_what_cannot_be_read_is_found_again(tmp_path: Path, data: bytes) -> None:
    lake = Lake(tmp_path)
    for batch, end in ((0, 64), (1, 128)):
        write_gold(lake, "runs", of(run_of(1, end)), batch)
        Edges(lake).keep(batch, of(run_of(1, end)), [1])
    lake.state.write("edges/1.parquet", data)
    assert ends(Edges(lake).before(2)) == [(1, "", 128)]
    assert Edges(Lake(tmp_path / "none")).before(2).num_rows == 0


def test_recordings_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    edges = Edges(Lake(tmp_path))
    edges.keep(0, of(run_of(1, 64), run_of(2, 64)), [2])
    assert ends(edges.before(1)) == [(2, "", 64)]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    rows = [(n, DAY_NS, 1) for n in range(COUNT)]
    quotes(tmp_path / "archive", rows)
    return tmp_path / "archive"


def local(archive: Path, lake: Path, query: str = "q", **more: str) -> LocalJob:
    given = {"decode": SPEC, "sequence": "quotes=sequence"} | more
    return LocalJob(archive, lake, query, **given)


def test_a_batch_is_noted_when_all_tables_have_it(archive: Path, tmp_path: Path) -> None:
    job = local(archive, tmp_path / "lake")
    job.begin()
    offsets = job.lake.checkpoint / "offsets"
    offsets.mkdir()
    (offsets / "0").write_text('v1\n{"batchWatermarkMs":0}\n{"v":1}')
    job.process(0, *planned(archive, 99))
    (row,) = job.lake.read(BATCHES, BATCHES_SCHEMA).to_pylist()
    (report,) = job.reports
    assert (row["ingest_batch"], row["query"], row["messages"]) == (0, "q", COUNT)
    assert (row["bytes"], json.loads(row["decoded"])) == (report.bytes, {"quotes": COUNT})
    assert json.loads(row["offsets"]) == {"v": 1}
    assert json.loads(row["versions"])["silver/quotes"] == 1
    # Parts that lie side by side are one run, and have no gap between them.
    runs = job.lake.read(gold("runs"), RUNS).to_pylist()
    assert [(each["name"], each["messages"]) for each in runs] == [
        ("", COUNT),
        ("quotes.sequence", COUNT),
    ]
    assert report.gaps == job.lake.read(gold("gaps"), GAPS).num_rows == 0
    job.process(0, *planned(archive, 99))
    assert len(job.reports) == 1


def test_of_two_jobs_that_do_one_batch_the_second_is_refused(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [local(archive, tmp_path / "lake") for _ in range(2)]
    for each in jobs:
        each.begin()
    first, second = jobs
    plans = planned(archive, 2)
    written = second.job._written

    def overtaken(*given: object) -> object:
        found = written(*given)  # type: ignore[arg-type] # as it is called
        first.process(0, plans[0])
        return found

    monkeypatch.setattr(second.job, "_written", overtaken)
    with pytest.raises(ArchiveError, match="another job has committed batch 0 to table silver"):
        second.process(0, plans[0])
    monkeypatch.undo()
    # It goes on when it is started again.
    second.process(0, plans[0])
    second.process(1, plans[1])
    assert sum(each.messages for each in [*first.reports, *second.reports]) == COUNT
    for table in ("bronze", "silver/quotes"):
        number = pa.schema([("position", pa.int64())])
        assert len(set(second.lake.read(table, number).column(0).to_pylist())) == COUNT


def test_a_lake_that_lost_its_checkpoint_is_left_alone_or_taken_over(
    archive: Path, tmp_path: Path
) -> None:
    place, plans = tmp_path / "lake", planned(archive, 3)
    old = local(archive, place)
    assert "startingPositions" not in old.begin()
    old.process(0, plans[0])
    # Of the second batch only some tables have their part.
    commit = old.job._commit_gold
    old.job._commit_gold = None  # type: ignore[assignment,method-assign]
    with pytest.raises(TypeError):
        old.process(1, plans[1])
    old.job._commit_gold = commit  # type: ignore[method-assign]
    shutil.rmtree(old.lake.checkpoint)

    new = local(archive, place, "other")
    with pytest.raises(ConfigurationError, match=r"no _checkpoint.*--take-over to go on"):
        new.begin()
    end = plans[0][-1].end
    wanted = {"startingPositions": json.dumps({"0": end})}
    assert wanted.items() <= new.begin(take_over=True).items()
    # Also when it is started again before its first batch, and then without the flag.
    assert wanted.items() <= new.begin().items()
    new.process(0, plans[1])
    again = local(archive, place, "other")
    assert "startingPositions" not in again.begin()
    again.process(0, plans[1])
    again.process(1, plans[2])
    batches = again.lake.read(BATCHES, BATCHES_SCHEMA).sort_by("ingest_batch")
    assert batches.column("query").to_pylist() == ["q", "other", "other"]
    assert batches.column("ingest_batch").to_pylist() == [0, 1, 2]
    for table in ("bronze", "silver/quotes"):
        read = again.lake.read(table, pa.schema([("position", pa.int64())]))
        assert read.num_rows == len(set(read.column(0).to_pylist())) == COUNT
    assert again.lake.read(gold("gaps"), GAPS).num_rows == 0


STARTS = {
    "startingTimestamp": "5",
    "STARTINGTIMESTAMP": "5",
    "startingOffsetsByTimestamp": '{"0": 5}',
    "startingPositions": "latest",
}


@pytest.mark.parametrize("name", STARTS)
def test_who_takes_over_begins_behind_what_is_there_wherever_a_new_lake_would_begin(
    archive: Path, tmp_path: Path, name: str
) -> None:
    place, plans = tmp_path / "lake", planned(archive, 3)
    source = {name: STARTS[name]}
    given: dict[str, Any] = {"decode": SPEC, "timestamp_from": "reserved", "source": source}
    old = LocalJob(archive, place, **given)
    assert source.items() <= old.begin().items()
    old.process(0, plans[0])
    shutil.rmtree(old.lake.checkpoint)
    options = LocalJob(archive, place, "other", **given).begin(take_over=True)
    follower = Follower(ArchiveOptions.parse(options))
    start = follower.initial()
    (part,) = follower.ranges(start, follower.latest(start, None))
    assert (part.start, part.end) == (plans[0][-1].end, plans[-1][-1].end)


def note_offsets(job: LocalJob, batch_id: int, offsets: Offsets) -> None:
    """Write the offsets at which a batch ends, as Spark does before it begins."""
    folder = job.lake.checkpoint / "offsets"
    folder.mkdir(exist_ok=True)
    (folder / str(batch_id)).write_text(f"v1\n{{}}\n{json.dumps(offsets.to_json())}")


def test_what_was_recorded_behind_an_end_before_a_lake_is_taken_over_is_read(
    tmp_path: Path,
) -> None:
    maker = quotes(tmp_path / "archive", [(n, DAY_NS, 1) for n in range(10)])
    job = local(tmp_path / "archive", tmp_path / "lake")
    job.begin()
    # It was read to its end some batches ago, so that the offsets do not list it any more.
    note_offsets(job, 0, Offsets(met=IdRanges((0, 1)), newest_ms=1))
    job.process(0, *planned(tmp_path / "archive"))
    end = maker.position
    catalog = Catalog.open(maker.directory, capacity=4_096)
    maker.extend(
        catalog.update(0, stop_position=-1, stop_timestamp_ms=-1, session_id=6, correlation_id=7),
        end,
    )
    maker.message(QUOTE.pack(10, DAY_NS, 1))
    maker.stop()
    catalog.close()
    shutil.rmtree(job.lake.checkpoint)
    options = local(tmp_path / "archive", tmp_path / "lake", "other").begin(take_over=True)
    assert json.loads(options["startingPositions"]) == {"0": end}


def test_a_checkpoint_that_is_older_than_the_lake_passes_nothing_over(
    archive: Path, tmp_path: Path
) -> None:
    plans = planned(archive, 3)
    job = local(archive, tmp_path / "lake")
    job.begin()
    ends = [
        Offsets({0: RecordingOffset.of(plan[-1].descriptor, plan[-1].end)}, met=IdRanges((0, 1)))
        for plan in plans
    ]
    ends = [attrs.evolve(each, newest_ms=1) for each in ends]
    for batch in (0, 1):
        note_offsets(job, batch, ends[batch])
        job.process(batch, plans[batch])
    # The same batch again ends where it did; that of a copy from before it ends farther.
    again = local(archive, tmp_path / "lake")
    again.begin()
    again.process(1, plans[1])
    note_offsets(again, 1, ends[2])
    with pytest.raises(ArchiveError, match=r"has batch 1, .* remove _checkpoint and give --take-"):
        again.process(1, plans[1] + plans[2])
    shutil.rmtree(again.lake.checkpoint)
    new = local(archive, tmp_path / "lake", "other")
    assert json.loads(new.begin(take_over=True)["startingPositions"]) == {"0": plans[1][-1].end}


@pytest.mark.parametrize(
    ("kind", "moment"),
    [*(("delta", moment) for moment in range(11)), ("parquet", 3), ("parquet", 8)],
)
def test_a_batch_that_ends_between_two_commits_is_completed(
    archive: Path, tmp_path: Path, moment: int, kind: str
) -> None:
    """Its query does it again; files of the attempt that failed are of no table."""
    plans = planned(archive, 2)
    job = local(archive, tmp_path / "lake", format=kind, timestamp_from="reserved")
    job.begin()
    job.process(0, plans[0])
    commit, seen = job.job._store.commit, 0

    def failing(*given: Any, **more: Any) -> None:
        nonlocal seen
        if seen == moment:
            raise KeyboardInterrupt
        seen += 1
        commit(*given, **more)

    job.job._store.commit = failing  # type: ignore[method-assign]
    with suppress(KeyboardInterrupt):
        job.process(1, plans[1])
    again = local(archive, tmp_path / "lake", format=kind, timestamp_from="reserved")
    again.begin()
    again.process(1, plans[1])
    for table in ("bronze", "silver/quotes"):
        read = again.lake.read(table, pa.schema([("position", pa.int64())]))
        assert read.num_rows == len(set(read.column(0).to_pylist())) == COUNT
    count = pa.schema([("messages", pa.int64())])
    for table, times in (("rates_second", 1), ("rates_minute", 1), ("runs", 2), ("decoded", 1)):
        found = again.lake.read(gold(table), count).column(0).to_pylist()
        assert sum(found) == times * COUNT, table
    rows = again.lake.read(BATCHES, BATCHES_SCHEMA).sort_by("ingest_batch").to_pylist()
    assert [each["ingest_batch"] for each in rows] == [0, 1]
    assert again.lake.read(gold("gaps"), GAPS).num_rows == 0


def test_where_a_batch_ends_is_on_the_disk_before_a_table_has_it(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = local(archive, tmp_path / "lake")
    job.begin()
    (plan,) = planned(archive)
    offset = RecordingOffset.of(plan[-1].descriptor, plan[-1].end)
    note_offsets(job, 0, Offsets({0: offset}, met=IdRanges((0, 1)), newest_ms=1))
    steps: list[str] = []
    commit = job.job._store.commit

    def noted(table: str, *given: Any, **more: Any) -> None:
        steps.append(table)
        commit(table, *given, **more)

    monkeypatch.setattr(job.job._store, "commit", noted)
    monkeypatch.setattr(batches, "sync", lambda path: steps.append(path.name))
    job.process(0, plan)
    assert steps[:6] == ["0", "metadata", "offsets", "_checkpoint", "lake", "silver/quotes"]


def test_an_archive_that_was_created_again_takes_over_no_lake(
    archive: Path, tmp_path: Path
) -> None:
    job = local(archive, tmp_path / "lake")
    job.begin()
    (plan,) = planned(archive)
    other = attrs.evolve(plan[-1].descriptor, start_timestamp_ms=0)
    offset = RecordingOffset.of(other, plan[-1].end)
    note_offsets(job, 0, Offsets({0: offset}, met=IdRanges((0, 1)), newest_ms=1))
    job.process(0, plan)
    shutil.rmtree(job.lake.checkpoint)
    with pytest.raises(DataLossError, match=r"created again, so .* begin another LAKE"):
        local(archive, tmp_path / "lake", "other").begin(take_over=True)


def test_what_was_noted_of_a_batch_that_is_taken_out_is_forgotten(
    archive: Path, tmp_path: Path
) -> None:
    place, plans = tmp_path / "lake", planned(archive, 3)
    old = local(archive, place)
    old.begin()
    old.process(0, plans[0])
    old.job._commit_batch = None  # type: ignore[assignment,method-assign]
    with pytest.raises(TypeError):
        old.process(1, [*plans[1], *plans[2]])
    shutil.rmtree(old.lake.checkpoint)
    new = local(archive, place, "other")
    new.begin(take_over=True)
    # A batch without a message notes nothing.
    new.process(0)
    for batch, plan in enumerate(plans[1:], 1):
        new.process(batch, plan)
    read = new.lake.read("silver/quotes", pa.schema([("position", pa.int64())]))
    assert read.num_rows == len(set(read.column(0).to_pylist())) == COUNT


@pytest.mark.parametrize("checkpoint", ["removed", "taken over"])
def test_a_job_whose_lake_was_taken_over_commits_nothing(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: str
) -> None:
    place, plans = tmp_path / "lake", planned(archive, 3)
    old = local(archive, place)
    old.begin()
    old.process(0, plans[0])
    written = old.job._written

    def overtaken(*given: object) -> object:
        found = written(*given)  # type: ignore[arg-type] # as it is called
        shutil.rmtree(old.lake.checkpoint)
        if checkpoint == "taken over":
            new = local(archive, place, "other")
            new.begin(take_over=True)
            new.process(0, plans[1])
        return found

    monkeypatch.setattr(old.job, "_written", overtaken)
    with pytest.raises(ArchiveError, match=r"written by query 'q', and its _checkpoint is that of"):
        old.process(1, plans[1])
    read = old.lake.read("bronze", pa.schema([("position", pa.int64())]))
    assert read.num_rows == len(set(read.column(0).to_pylist()))


def test_a_checkpoint_of_another_lake_is_refused(archive: Path, tmp_path: Path) -> None:
    job = local(archive, tmp_path / "lake")
    job.begin()
    job.process(0, *planned(archive))
    (job.lake.checkpoint / "metadata").write_text('{"id": "strange"}')
    with pytest.raises(ConfigurationError, match=r"belongs to query q.*is that of query strange"):
        local(archive, tmp_path / "lake").begin(take_over=True)


def test_a_decoder_may_get_a_field_and_none_may_change(archive: Path, tmp_path: Path) -> None:
    place, plans = tmp_path / "lake", planned(archive, 2)
    first = local(archive, place, decode="1001:quotes=struct:<sequence:q,sent:q")
    first.begin()
    first.process(0, plans[0])
    wider = local(archive, place)
    wider.begin()
    wider.process(1, plans[1])
    read = wider.lake.read("silver/quotes", pa.schema([("price", pa.int64())]))
    prices = read.column("price").to_pylist()
    assert prices.count(None) == first.reports[0].messages
    assert prices.count(1) == wider.reports[0].messages
    other = local(archive, place, decode="1001:quotes=struct:<sequence:q,sent:q,price:d")
    with pytest.raises(ConfigurationError, match="column 'price' as long, and now it is double"):
        other.begin()


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_lake_may_do_without_bronze(archive: Path, tmp_path: Path, kind: str) -> None:
    job = LocalJob(archive, tmp_path / "lake", decode=SPEC, bronze=False, format=kind)
    job.begin()
    job.process(0, *planned(archive))
    assert "bronze" not in job.lake.tables()
    assert job.reports[0].messages == job.reports[0].decoded["quotes"] == COUNT


def test_attempts_of_earlier_batches_are_removed(archive: Path, tmp_path: Path) -> None:
    job = local(archive, tmp_path / "lake", format="parquet")
    job.begin()
    attempts = Path(str(job.lake.attempts))
    (attempts / ".strange").mkdir(parents=True)
    left = [attempts / each / "bronze" for each in ("0", "1")]
    for each in left:
        each.mkdir(parents=True)
    job.process(1, *planned(archive))
    assert [each.exists() for each in left] == [False, True]


def test_recordings_that_settings_mean_no_more_can_be_done_again(tmp_path: Path) -> None:
    archive = golden_path("A3-several-recordings")
    job = LocalJob(archive, tmp_path, source={"recordingIds": "5"})
    job.begin()
    assert list(job.job.recordings()) == [5]
    job.process(0, *planned(archive))
    assert {4, 5} <= set(job.reports[0].positions)


def test_a_lake_of_another_archive_is_left_alone(archive: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.check_settings({"archive": "/elsewhere"})
    with pytest.raises(ConfigurationError, match="begun with archive='/elsewhere'"):
        local(archive, tmp_path / "lake").begin()
