"""`pipeline maintain` and `pipeline query`: what they print, and what they never do."""

from __future__ import annotations

import _thread
import csv
import io
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deltalake", reason="pip install 'aeron-async[spark]'")
pytest.importorskip("duckdb", reason="pip install 'aeron-async[spark]'")

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from aeron_async.cli import pipeline_query
from aeron_async.cli.main import main
from aeron_async.cli.pipeline_maintain import format_report, hours_of
from aeron_async.cli.pipeline_query import Interruptible, plain, unique
from aeron_async.errors import ConfigurationError
from aeron_async.spark.lake.maintenance import TableReport
from tests.kept_folders import copy_of_made
from tests.spark.lake.lakes import little_lake, make_table
from tests.tracing import untraced_environment

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_S = 20
HOSTILE = '\x1b[2J[red]x[/red]\u202e\nnext, "line"'


def make_lake(lake: Path) -> None:
    little_lake(lake)
    table = make_table(lake / "bronze", pa.schema([("channel", pa.string())]), [])
    write_deltalake(str(table), pa.table({"channel": [HOSTILE, None]}), mode="append")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return copy_of_made(make_lake, tmp_path / "lake")


def run(*arguments: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> tuple[str, str]:
    assert main(["pipeline", *arguments]) == code
    found = capsys.readouterr()
    return found.out, found.err


def test_small_files_are_joined_and_reported(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = run("maintain", str(lake), "--dry-run", capsys=capsys)
    assert "silver/quotes: 8 files" in out
    assert "would join 8 files" in out
    assert "nothing was changed" in err
    assert DeltaTable(str(lake / "silver" / "quotes")).version() == 8
    out, _ = run("maintain", str(lake), "--json", capsys=capsys)
    reports = {each["table"]: each for each in map(json.loads, out.splitlines())}
    assert reports["silver/quotes"]["made_files"] == 2
    out, _ = run("maintain", str(lake), capsys=capsys)
    assert "silver/quotes: 2 files, " in out
    assert out.count("nothing to do") == 3


def test_one_run_is_limited_and_says_what_is_left(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = run("maintain", str(lake), "--max-bytes", "1", capsys=capsys)
    assert "joined 4 files" in out
    assert "4 small files left to join" in err


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--retention", "1h"], "--may-break-readers"),
        (["--retention", "1m"], "24h or 7d"),
        (["--target-size", "0"], "must be from 1"),
        (["--max-bytes", "0"], "must be from 1"),
    ],
)
def test_what_may_not_be_is_refused(
    lake: Path, arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err = run("maintain", str(lake), *arguments, capsys=capsys, code=2)
    assert part in err
    assert len(err.splitlines()) == 1


def test_a_short_retention_needs_consent(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("maintain", str(lake), capsys=capsys)
    out, _ = run("maintain", str(lake), "--retention", "0h", "--may-break-readers", capsys=capsys)
    assert "removed 8 replaced files and 0 unknown files" in out


def test_hours_and_reports_are_read_and_written() -> None:
    assert (hours_of("24h"), hours_of("7d")) == (24, 168)
    for text in ("", "24", "h", "-1h", "1.5h", "9999999h"):
        with pytest.raises(ConfigurationError, match="24h or 7d"):
            hours_of(text)
    report = TableReport(table="bronze", is_plan=False, files=3, bytes=2_000)
    assert format_report(report) == "bronze: 3 files, 2.0 kB; nothing to do"
    report.refused_files, report.log_files, report.has_checkpoint = 2, 1, True
    assert format_report(report) == (
        "bronze: 3 files, 2.0 kB; 2 files had been joined by another process, "
        "removed 1 file of the log, wrote a checkpoint"
    )


def test_a_query_prints_a_table(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = (
        "SELECT stream_id, count(*) AS n, min(date) AS day FROM silver_quotes GROUP BY 1 ORDER BY 1"
    )
    out, err = run("query", str(lake), sql, capsys=capsys)
    assert [line.split() for line in out.splitlines()] == [
        ["stream_id", "n", "day"],
        ["1001", "400", "2026-11-18"],
        ["1002", "400", "2026-11-19"],
    ]
    assert err == ""
    out, _ = run("query", str(lake), "SHOW TABLES", capsys=capsys)
    assert out.split() == ["name", "bronze", "gold_rates_second", "silver_quotes"]


def test_rows_are_bounded(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("query", str(lake), "SELECT position FROM silver_quotes", "--output", "csv")
    out, err = run(*arguments, "--limit", "5", capsys=capsys)
    assert len(out.splitlines()) == 6
    assert "only the first 5 rows: --limit shows more" in err
    out, err = run(*arguments, "--limit", "800", capsys=capsys)
    assert (len(out.splitlines()), err) == (801, "")
    endless = ("query", str(lake), "SELECT * FROM range(1000000000000)", "--output", "json")
    out, _ = run(*endless, "--limit", "3", capsys=capsys)
    assert [json.loads(line) for line in out.splitlines()] == [{"range": n} for n in range(3)]


def test_hostile_texts_do_nothing_to_a_terminal(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = "SELECT channel, channel, 'payload'::BLOB AS payload FROM bronze ORDER BY 1"
    table, _ = run("query", str(lake), sql, capsys=capsys)
    assert all(line.isprintable() for line in table.splitlines())
    assert "\\x1b[2J[red]x[/red]\\u202e\\nnext" in table.replace("\n", "").replace(" ", "")
    text, _ = run("query", str(lake), sql, "--output", "csv", capsys=capsys)
    assert all(line.isprintable() for line in text.splitlines())
    rows = list(csv.reader(io.StringIO(text)))
    shown = '\\x1b[2J[red]x[/red]\\u202e\\nnext, "line"'
    assert rows[1:] == [[shown, shown, b"payload".hex()], ["", "", b"payload".hex()]]
    lines, _ = run("query", str(lake), sql, "--output", "json", capsys=capsys)
    assert lines.isascii()
    assert json.loads(lines.splitlines()[0]) == {
        "channel": HOSTILE,
        "channel_1": HOSTILE,
        "payload": b"payload".hex(),
    }


REFUSED = [
    "COPY (SELECT 1) TO '{}/x.csv'",
    "WITH x AS (COPY (SELECT 1) TO '{}/x.csv') SELECT 1",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{}/x.csv'",
    "EXPORT DATABASE '{}/x.csv'",
    "ATTACH '{}/x.csv'",
    "SELECT * FROM read_text('{}/secret')",
    "SELECT * FROM read_parquet('{}/secret.parquet')",
    "SELECT * FROM '{}/secret.parquet'",
    "SELECT * FROM glob('{}/*')",
    "SELECT * FROM read_csv('http://127.0.0.1:9/x')",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET temp_directory = '{}'",
    "SELECT 1; COPY (SELECT 1) TO '{}/x.csv'",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_a_query_reads_the_lake_and_nothing_else(
    lake: Path, tmp_path: Path, sql: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret").write_text("secret")
    pq.write_table(pa.table({"a": ["secret"]}), tmp_path / "secret.parquet")
    before = sorted(tmp_path.rglob("*"))
    code = main(["pipeline", "query", str(lake), sql.format(tmp_path)])
    found = capsys.readouterr()
    assert code in {1, 2}
    assert found.out == ""
    assert len(found.err.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_query_may_write_when_told(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "quotes.csv"
    sql = f"COPY (FROM silver_quotes SELECT count(*) AS n) TO '{target}'"
    _, err = run("query", str(lake), sql, capsys=capsys, code=1)
    assert "--unrestricted allows it" in err
    run("query", str(lake), sql, "--unrestricted", capsys=capsys)
    assert target.read_text().split() == ["n", "800"]


@pytest.mark.parametrize(
    ("sql", "part", "code"),
    [
        ("SELECT nothing FROM silver_quotes", "nothing", 1),
        ("SELEC 1", "SELEC", 1),
        ("SELECT interrupted", "interrupted", 1),
        ("", "must be one query, and is 0", 2),
        ("SELECT 1; SELECT 2", "must be one query, and is 2", 2),
        ("SELECT 1/0 FROM missing_\x1b[2J", "query failed", 1),
    ],
)
def test_an_error_is_one_line(
    lake: Path, sql: str, part: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err = run("query", str(lake), sql, capsys=capsys, code=code)
    assert part in err
    assert len(err.splitlines()) == 1
    assert err.strip().isprintable()


def test_tables_that_differ_in_case_only_are_refused(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_table(lake / "silver" / "QUOTES")
    _, err = run("query", str(lake), "SELECT 1", capsys=capsys, code=2)
    assert "silver_QUOTES, silver_quotes" in err


def test_what_is_no_lake_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["query", str(tmp_path), "SELECT 1"], ["maintain", str(tmp_path)]):
        _, err = run(*command, capsys=capsys, code=2)
        assert "has no Delta table" in err


def test_values_become_json_and_names_unique() -> None:
    assert plain([1.5, float("nan"), {"a": b"\x01"}, (True, None)]) == [
        1.5,
        "nan",
        {"a": "01"},
        [True, None],
    ]
    assert unique(["a", "a", "a_1", "a"]) == ["a", "a_1", "a_1_1", "a_2"]


INTERRUPTED = """
import os, signal, sys
from aeron_async.cli import main, pipeline_query
add_tables = pipeline_query.add_tables
def with_function(connection, *others):
    def interrupt(value: int) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return value
    connection.create_function("interrupt", interrupt)
    add_tables(connection, *others)
pipeline_query.add_tables = with_function
sys.exit(main.main(["pipeline", "query", sys.argv[1], sys.argv[2]]))
"""


@pytest.mark.processes
def test_ctrl_c_ends_a_query(lake: Path) -> None:
    """The signal comes from within the query, which otherwise has no end."""
    numbers = "range(10000000000)"
    endless = f"FROM {numbers} a, {numbers} b SELECT count(*) WHERE a.range = -1"
    done = subprocess.run(
        [
            *(sys.executable, "-c", INTERRUPTED, str(lake)),
            f"(FROM range(1) SELECT interrupt(range)) UNION ALL ({endless})",
        ],
        env=untraced_environment() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_ctrl_c_just_before_a_wait_ends_a_query_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the flag of the signal is set, and nothing wakes who waits."""
    waiting, interrupted = threading.Event(), threading.Event()

    def waited(*arguments: Any) -> Any:
        waiting.set()
        return wait(*arguments)

    def endless() -> None:
        waiting.wait(PATIENCE_S)
        _thread.interrupt_main()
        assert interrupted.wait(PATIENCE_S)

    monkeypatch.setattr(pipeline_query, "wait", waited)
    connection: Any = SimpleNamespace(interrupt=interrupted.set)
    with ThreadPoolExecutor(1) as pool, pytest.raises(KeyboardInterrupt):
        Interruptible(connection, pool)._wait(pool.submit(endless))
    assert interrupted.is_set()
