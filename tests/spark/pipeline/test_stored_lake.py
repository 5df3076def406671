"""Lakes in a store: what a lake in a folder has, and nothing lost or doubled by whoever writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from aeron_async.cli.main import main
from aeron_async.errors import ArchiveError, ConfigurationError
from aeron_async.spark.lake import TableSnapshot, lake_tables, maintain
from aeron_async.spark.lake.commits import JOBS
from aeron_async.spark.lake.maintenance import MaintenanceSettings
from aeron_async.spark.lake.reading import load_table
from aeron_async.spark.lake.tables import BATCHES, Lake, gold
from aeron_async.spark.offsets import IdRanges, Offsets, RecordingOffset
from aeron_async.spark.pipeline.batches import BATCHES_SCHEMA
from aeron_async.spark.pipeline.gold import GAPS, RATES, RUNS
from aeron_async.spark.pipeline.report import render_report
from aeron_async.spark.pipeline.runs import Run
from tests.spark.pipeline.local import LocalJob, planned
from tests.spark.pipeline.test_task import DAY_NS, SPEC, quotes
from tests.spark.sessions import LONG
from tests.spark.stores import folder_as_store, s3_server
from tests.tracing import untraced_environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.spark.stores import S3

COUNT = 3_000
GIVEN = {"decode": SPEC, "sequence": "quotes=sequence", "timestamp_from": "reserved"}
AT_ONCE = MaintenanceSettings(min_files=2, retention_hours=0, may_break_readers=True)
POSITION = pa.schema([("position", pa.int64())])


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture(params=["folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return where a lake may be: a folder that is used as a store, and S3."""
    if request.param == "folder":
        folder_as_store(monkeypatch)
        return (tmp_path / "stored").as_uri()
    server: S3 = request.getfixturevalue("s3")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://feeds/{tmp_path.name}/lake"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    quotes(tmp_path / "archive", [(n + n // 700, DAY_NS, 1) for n in range(COUNT)])
    return tmp_path / "archive"


class Jobs:
    """Jobs on one lake, each with a query of its own as Spark would give it.

    In a folder each one but the first takes over, behind a checkpoint that somebody has removed.
    """

    def __init__(self, archive: Path, place: Any) -> None:
        self._archive, self._place, self._count = archive, place, 0

    def begin(self, **more: Any) -> tuple[LocalJob, dict[str, str]]:
        self._count += 1
        job = LocalJob(self._archive, self._place, f"query {self._count}", **{**GIVEN, **more})
        if job.lake.root.is_local:
            shutil.rmtree(job.lake.checkpoint, ignore_errors=True)
        return job, job.begin(take_over=True)


def count(lake: Lake, table: str) -> int:
    """Return the rows of a table, each of which is another message."""
    found = lake.read(table, POSITION).column(0).to_pylist()
    assert len(found) == len(set(found))
    return len(found)


def test_a_lake_in_a_store_is_one_in_a_folder(archive: Path, tmp_path: Path, url: str) -> None:
    plans = planned(archive, 3)
    local, stored = Jobs(archive, tmp_path / "local"), Jobs(archive, url)
    here = local.begin()[0]
    there = here
    for batch, plan in enumerate(plans):
        here.process(batch, plan)
        # Each job has read one batch; the next one begins behind it.
        there, options = stored.begin()
        wanted = json.dumps({"0": plans[batch - 1][-1].end}) if batch else None
        assert options.get("startingPositions") == wanted
        there.process(0, plan)
        assert there.reports[0].batch_id == batch
    assert there.lake.tables() == here.lake.tables()
    assert not there.lake.root.is_local
    for table, folder in lake_tables(url).items():
        rows = [
            TableSnapshot.open(each).arrow().to_table() for each in (folder, here.lake.path(table))
        ]
        alike = [
            each.drop_columns(
                [n for n in ("query", "committed", "offsets", "versions") if n in each.column_names]
            )
            for each in rows
        ]
        order = [(name, "ascending") for name in alike[0].column_names if name != "payload"]
        assert alike[0].sort_by(order) == alike[1].sort_by(order), table
    batches = there.lake.read(BATCHES, BATCHES_SCHEMA).sort_by("ingest_batch")
    assert batches.column("query").to_pylist() == ["query 1", "query 2", "query 3"]
    assert not [each for each in there.lake.root.folders() if each == "_checkpoint"]


def test_a_lake_in_a_store_is_maintained_queried_and_reported(
    archive: Path, url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job, _ = Jobs(archive, url).begin()
    plans = planned(archive, 3)
    for batch, plan in enumerate(plans):
        job.process(batch, plan)
    before = TableSnapshot.open(f"{url}/silver/quotes")
    wanted = {each.table: each for each in maintain(url, AT_ONCE, is_plan=True)}
    done = {each.table: each for each in maintain(url, AT_ONCE)}
    assert wanted["silver/quotes"].joined_files == done["silver/quotes"].joined_files == 3
    assert done["silver/quotes"].replaced_files == 3
    assert done["silver/quotes"].removed_bytes > 0
    after = TableSnapshot.open(f"{url}/silver/quotes")
    assert len(after.paths()) == 1
    assert after.arrow().count_rows() == after.polars().collect().height == COUNT
    with pytest.raises(FileNotFoundError):
        before.arrow().to_table()
    assert next(maintain(url, AT_ONCE)).joined_files == 0
    sql = "SELECT count(*) AS n, sum(price)::BIGINT AS s FROM silver_quotes"
    assert main(["pipeline", "query", url, sql, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"n": COUNT, "s": COUNT}
    page = tmp_path / "page.html"
    assert main(["pipeline", "report", url, "-o", str(page)]) == 0
    assert f"{COUNT:,}" in page.read_text()
    assert main(["pipeline", "maintain", url, "--dry-run"]) == 0
    assert "silver/quotes: 1 file" in capsys.readouterr().out
    job.process(3)
    assert count(Lake(url), "silver/quotes") == COUNT


def test_of_two_jobs_on_a_lake_the_elder_is_refused_and_nothing_is_lost(
    archive: Path, url: str
) -> None:
    jobs, plans = Jobs(archive, url), planned(archive, 3)
    elder, _ = jobs.begin()
    elder.process(0, plans[0])
    younger, options = jobs.begin()
    assert json.loads(options["startingPositions"]) == {"0": plans[0][-1].end}
    with pytest.raises(ArchiveError, match=r"another job has taken over this lake: table silver"):
        elder.process(1, plans[1])
    younger.process(0, plans[1])
    with pytest.raises(ArchiveError, match="let one of the two jobs end"):
        elder.process(2, plans[2])
    younger.process(1, plans[2])
    for table in ("bronze", "silver/quotes"):
        assert count(younger.lake, table) == COUNT
    assert (
        sum(younger.lake.read(gold("rates_second"), RATES).column("messages").to_pylist()) == COUNT
    )


def test_two_jobs_that_begin_a_lake_at_once_have_a_turn_each(archive: Path, url: str) -> None:
    jobs, (plan,) = Jobs(archive, url), planned(archive)
    first, _ = jobs.begin()
    second, _ = jobs.begin()
    second.process(0, plan)
    with pytest.raises(ArchiveError, match="this job has turn 1"):
        first.process(0, plan)
    assert count(second.lake, "bronze") == COUNT


MOMENTS = range(1, 11)
"""Commits of a batch after which its job is stopped and taken over; there are at most ten."""


@pytest.mark.parametrize(
    ("kind", "moment"), [*(("folder", each) for each in MOMENTS), ("store", 2), ("store", 7)]
)
def test_a_job_that_is_taken_over_between_two_commits_leaves_nothing_behind(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, moment: int
) -> None:
    """It goes on after that, as a process does that was stopped for a while."""
    folder_as_store(monkeypatch)
    place = tmp_path / "lake" if kind == "folder" else (tmp_path / "stored").as_uri()
    check_taken_over(Jobs(archive, place), planned(archive, 3), moment)


@pytest.mark.parametrize("moment", [1, 4])
def test_the_same_in_s3(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: S3, moment: int
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    check_taken_over(Jobs(archive, f"s3://feeds/{tmp_path.name}/lake"), planned(archive, 3), moment)


def check_taken_over(jobs: Jobs, plans: list[Any], moment: int) -> None:
    old, _ = jobs.begin()
    old.process(0, plans[0])
    commit, seen, taken, left = old.job._store.commit, 0, list[LocalJob](), list[Any]()

    def stopped(*given: Any, **more: Any) -> None:
        nonlocal seen
        commit(*given, **more)
        seen += 1
        if seen == moment:
            new, options = jobs.begin()
            taken.append(new)
            end = json.loads(options["startingPositions"])["0"]
            left.extend(each for each in plans if each[0].start >= end)
            if moment % 2:
                # It has committed a batch before the other one goes on.
                new.process(0, left.pop(0))

    old.job._store.commit = stopped  # type: ignore[method-assign]
    was_refused = False
    try:
        old.process(1, plans[1])
    except ArchiveError as error:
        assert "another job has taken over" in str(error)  # noqa: PT017 - not at each moment
        was_refused = True
    if not taken:
        # It has fewer commits.
        assert seen < moment
        return
    (new,) = taken
    # It was too late only for a batch that was complete.
    assert was_refused == (len(left) + moment % 2 == 2)
    for place, plan in enumerate(left, 1):
        new.process(place, plan)
    for table in ("bronze", "silver/quotes"):
        assert count(new.lake, table) == COUNT
    for table in ("rates_second", "rates_minute"):
        read = new.lake.read(gold(table), pa.schema([("messages", pa.int64())]))
        assert sum(read.column(0).to_pylist()) == COUNT
    runs = [Run(**row) for row in new.lake.read(gold("runs"), RUNS).to_pylist()]
    assert Counter(each.name for each in runs for _ in range(each.messages)) == {
        "": COUNT,
        "quotes.sequence": COUNT,
    }
    gaps = new.lake.read(gold("gaps"), GAPS)
    assert sum(each.gaps for each in runs) == gaps.num_rows == (COUNT - 1) // 700


TURNS = 3
RACER = """
import json, sys, uuid
from pathlib import Path
import pytest
from aeron_async.errors import ArchiveError
from tests.spark.pipeline.local import LocalJob, planned
from tests.spark.pipeline.test_stored_lake import GIVEN
from tests.spark.sessions import LONG
from tests.spark.stores import folder_as_store
archive, url, parts, turns = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with pytest.MonkeyPatch.context() as patch:
    if url.startswith("file"):
        folder_as_store(patch)
    plans = planned(archive, parts)
    print("ready", flush=True)
    sys.stdin.readline()
    refused = 0
    for turn in range(turns):
        try:
            job = LocalJob(archive, url, uuid.uuid4().hex, **GIVEN)
            options = job.begin()
            end = json.loads(options.get("startingPositions", '{"0": 0}'))["0"]
            left = [each for each in plans if each[0].start >= end]
            for batch, plan in enumerate(left[:2]):
                job.process(batch, plan)
        except ArchiveError as error:
            assert "another job" in str(error) or "had other commits" in str(error), error
            refused += 1
print(refused, flush=True)
"""


@LONG
@pytest.mark.processes
def test_jobs_that_race_for_a_lake_lose_and_double_nothing(tmp_path: Path, url: str) -> None:
    archive = tmp_path / "long"
    quotes(archive, [(n, DAY_NS, 1) for n in range(4 * COUNT)])
    arguments = [sys.executable, "-c", RACER, str(archive), url, "12", str(TURNS)]
    racers = [
        subprocess.Popen(
            arguments,
            env=untraced_environment() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for each in racers:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in racers:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    refused = [int(each.communicate(timeout=300)[0]) for each in racers]
    assert [each.returncode for each in racers] == [0, 0]
    plans = planned(archive, 12)
    last, options = Jobs(archive, url).begin()
    end = json.loads(options.get("startingPositions", '{"0": 0}'))["0"]
    for batch, plan in enumerate([each for each in plans if each[0].start >= end]):
        last.process(batch, plan)
    for table in ("bronze", "silver/quotes"):
        assert count(last.lake, table) == 4 * COUNT
    rates = last.lake.read(gold("rates_second"), RATES)
    assert sum(rates.column("messages").to_pylist()) == 4 * COUNT
    # Each turn of both may be refused, and one of them may never be.
    assert 0 <= sum(refused) <= 2 * TURNS


def test_all_tables_have_the_turn_of_who_has_taken_over(archive: Path, url: str) -> None:
    jobs = Jobs(archive, url)
    for turn in (1, 2, 3):
        job, _ = jobs.begin()
        turns = {load_table(place).transaction_version(JOBS) for place in lake_tables(url).values()}
        assert turns == {turn} == {job.job._store.turn}


def test_files_of_a_job_that_failed_are_of_no_table_and_removed(
    archive: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, plans = Jobs(archive, url), planned(archive, 2)
    old, _ = jobs.begin()
    old.process(0, plans[0])
    old.job._commit_gold = None  # type: ignore[assignment,method-assign]
    with pytest.raises(TypeError):
        old.process(1, plans[1])
    new, _ = jobs.begin()
    assert count(new.lake, "bronze") == count(new.lake, "silver/quotes") < COUNT
    new.process(0, plans[1])
    removed = {each.table: each for each in maintain(url, AT_ONCE)}
    # Two were joined, and one was rolled back.
    assert removed["bronze"].replaced_files + removed["bronze"].unknown_files == 3
    assert count(Lake(url), "bronze") == COUNT


def test_who_goes_on_begins_where_the_last_batch_ended_whatever_the_settings_say(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_as_store(monkeypatch)
    jobs, plans = Jobs(archive, (tmp_path / "stored").as_uri()), planned(archive, 3)
    source = {"startingpositions": "latest", "startingTimestamp": "5"}
    job, options = jobs.begin(source=source)
    assert source.items() <= options.items()
    job.process(0, plans[0])
    # Spark had written no offsets: the messages of the lake say where it ended.
    options = jobs.begin(source=source)[1]
    starting = {name: each for name, each in options.items() if name.lower().startswith("start")}
    assert starting == {"startingPositions": json.dumps({"0": plans[0][-1].end})}
    job, _ = jobs.begin()
    # Of the second batch nothing is a message behind some position.
    passed = plans[1][-1].end + 64
    offset = RecordingOffset.of(plans[0][0].descriptor, passed)
    given = Offsets({0: offset}, met=IdRanges((0, 1)), newest_ms=1).to_json()
    (job.lake.checkpoint / "offsets").mkdir()
    (job.lake.checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(given)}")
    job.process(0, plans[1])
    assert jobs.begin()[1]["startingPositions"] == json.dumps({"0": passed})


def test_parquet_needs_a_folder(archive: Path, url: str) -> None:
    with pytest.raises(ConfigurationError, match="--format parquet needs a folder"):
        Jobs(archive, url).begin(format="parquet")


def test_what_is_no_lake_is_told(
    url: str, capsys: pytest.CaptureFixture[str], archive: Path
) -> None:
    for command in (["report", url], ["query", url, "SELECT 1"], ["maintain", url]):
        assert main(["pipeline", *command]) == 2
        told = capsys.readouterr().err
        assert "lake" in told
        assert "check the URL" in told
    Jobs(archive, url).begin()
    with pytest.raises(ConfigurationError, match="has no messages yet"):
        render_report(Lake(url), 0)


def test_a_bucket_that_is_not_there_is_told(
    archive: Path, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ArchiveError, match="check the URL"):
        Jobs(archive, "s3://not-there/lake").begin()


def test_secrets_of_a_url_are_told_nowhere(
    archive: Path, s3: S3, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in s3.environment:
        monkeypatch.delenv(name, raising=False)
    url = s3.url("with-secrets")
    job, _ = Jobs(archive, url).begin()
    job.process(0, *planned(archive))
    assert count(job.lake, "bronze") == COUNT
    assert str(job.lake.root) == "s3://feeds/with-secrets"
    noted = "".join(str(job.lake.begun()))
    assert main(["pipeline", "maintain", url]) == 0
    assert main(["pipeline", "query", url, "SELECT nothing FROM bronze"]) == 1
    found = capsys.readouterr()
    for each in (s3.environment["AWS_ACCESS_KEY_ID"], s3.environment["AWS_SECRET_ACCESS_KEY"]):
        assert each not in noted + found.out + found.err
