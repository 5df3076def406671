"""Recording live while a job follows: what is said of its batches, and how both end."""

from __future__ import annotations

import asyncio
import json
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async.archive import ArchiveContext, RemoteArchive
from aeron_async.cli.main import main
from aeron_async.cli.pipeline_ingest import flags_of, json_of, line_of, live_streams
from aeron_async.cli.pipeline_run import LakeOptions
from aeron_async.errors import ArchiveError, ConfigurationError
from aeron_async.spark.pipeline import ingest as module
from aeron_async.spark.pipeline.ingest import IngestedBatch, StreamToRecord, ingest, job_command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

REPORT = {"batch_id": 0, "messages": 3, "gaps": 1, "seconds": 2.0, "positions": {"0": 64}}
# Stands for the job: says what it would, and ends when it is told to.
TALKS = f"""
import signal

# It waits for the signal; a handler could come in the middle of a line.
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGTERM}})
print("no report", flush=True)
print('{{"behind": {{}}}}', flush=True)
print({json.dumps(REPORT)!r}, flush=True)
signal.sigwait({{signal.SIGTERM}})
print({json.dumps(REPORT | {"batch_id": 1})!r}, flush=True)
"""
DEAF = f"""
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print({json.dumps(REPORT)!r}, flush=True)
while True:
    signal.pause()
"""
PATIENCE_S = 60


@pytest.fixture
def context(tmp_path: Path, unused_udp_port_factory: Callable[[], int]) -> ArchiveContext:
    control = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port_factory()}"
    return ArchiveContext(directory=str(tmp_path / "archive"), control_channel=control)


async def batches(
    context: ArchiveContext, stream: StreamToRecord, program: str
) -> list[IngestedBatch]:
    """Record a stream of two messages beside a job, cancel at its first report, return all."""
    told: asyncio.Queue[IngestedBatch] = asyncio.Queue()
    task = asyncio.create_task(
        ingest([stream], context, [sys.executable, "-c", program], told.put_nowait)
    )
    async with asyncio.timeout(PATIENCE_S), aa.Aeron.connect() as aeron:
        publication = await aeron.add_publication(stream.channel, stream.stream_id)
        await publication.offer(b"one")
        await publication.offer(b"two")
        assert context.control_channel is not None
        await until_recorded(aeron, context.control_channel, publication.position)
        batch = await told.get()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    return [batch, *(told.get_nowait() for _ in range(told.qsize()))]


async def until_recorded(aeron: aa.Aeron, control: str, position: int) -> None:
    async with RemoteArchive.connect(aeron, control_channel=control) as client:
        while position not in [
            await client.max_recorded_position(each.recording_id)
            async for each in client.recordings()
        ]:
            await asyncio.sleep(0)


async def test_a_batch_is_told_with_what_is_still_behind(
    context: ArchiveContext, unused_udp_port: int
) -> None:
    stream = StreamToRecord(f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}", 7)
    found = await batches(context, stream, TALKS)
    # Also what it said when it was told to end.
    assert [each.report["batch_id"] for each in found] == [0, 1]
    # Two frames of 64 bytes, of which the job says it has one.
    assert found[1].behind == {0: 64}


async def test_a_job_that_does_not_end_is_ended(
    context: ArchiveContext, unused_udp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENDING_SECONDS", 0.1)
    stream = StreamToRecord(f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}", 7)
    (batch,) = await batches(context, stream, DEAF)
    assert batch.report == REPORT


async def test_a_job_that_ends_by_itself_ends_all(
    context: ArchiveContext, unused_udp_port: int
) -> None:
    stream = StreamToRecord(f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}", 7)
    with pytest.raises(ArchiveError, match="ended by itself, with code 3"):
        await ingest([stream], context, [sys.executable, "-c", "raise SystemExit(3)"], print)


class Recordings:
    """An archive with some recordings of 1,000 bytes."""

    def __init__(self, *ids: int) -> None:
        self.ids = ids

    async def recordings(self) -> AsyncIterator[Any]:
        for each in self.ids:
            yield SimpleNamespace(recording_id=each, start_position=100)

    async def max_recorded_position(self, _recording_id: int) -> int:
        return 1_100


async def test_a_report_need_not_name_all_recordings() -> None:
    archive: Any = Recordings(1, 2, 3)
    known = {1: 600, 9: 5}
    assert await module.behind(archive, known, is_whole=False) == ({1: 500}, 2)
    # Of one that is gone nothing is kept.
    assert known == {1: 600}
    known |= {2: 1_100}
    assert await module.behind(archive, known, is_whole=True) == ({1: 500, 2: 0, 3: 1_000}, 0)


def test_streams_come_in_pairs() -> None:
    assert live_streams(("aeron:ipc", "-1", "aeron:udp?endpoint=a:1", "2")) == [
        StreamToRecord("aeron:ipc", -1),
        StreamToRecord("aeron:udp?endpoint=a:1", 2),
    ]
    for given, says in (
        ((), "pairs of CHANNEL STREAM"),
        (("aeron:ipc",), "add what is missing"),
        (("aeron:ipc", "x"), "must be a number"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            live_streams(given)


def test_the_job_is_told_what_we_were() -> None:
    options = LakeOptions(decode=["1=json:a int"], consumers=["x"], bronze=False)
    flags = list(flags_of(options))
    assert flags == [
        *("--decode", "1=json:a int", "--no-bronze", "--consumer", "x"),
    ]
    command = job_command("a", "b", "aeron:udp?endpoint=x:1", flags)
    assert command[3:7] == ["pipeline", "run", "a", "b"]
    assert "archive.control.channel=aeron:udp?endpoint=x:1" in command
    assert command[-len(flags) :] == flags


def test_a_batch_is_written_for_people_and_for_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line_of(IngestedBatch(REPORT, {0: 1_000}))
    line_of(IngestedBatch(REPORT, {}))
    line_of(IngestedBatch(REPORT, {0: 1}, 2))
    json_of(IngestedBatch(REPORT, {0: 5}))
    people, nothing, unknown, programs = capsys.readouterr().out.splitlines()
    assert people == "batch 0: 3 messages, 1 gap; 2.0 s; behind: recording 0 by 1,000 B"
    assert nothing.endswith("behind: nothing")
    assert unknown.endswith("by 1 B; 2 recordings without a report so far")
    assert json.loads(programs)["behind"] == {"0": 5}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ingest", "a", "b", "aeron:ipc"], "pairs of CHANNEL STREAM"),
        (["ingest", "a", "b", "aeron:ipc", "1", "--sequence", "x=y"], "none: give decode"),
        (["ingest", "a", "b", "aeron:ipc", "1", "--decode", "1=zip:x"], "decoder"),
        (["run", "/nowhere", "b"], "is no directory on this host"),
        (["run", "a", "b", "--available-now", "--trigger", "1m"], "give one"),
        (["run", "a", "b", "--format", "iceberg"], "delta, parquet"),
        (
            ["run", "s3://K:S@b00/a", "b", "--purge"],
            "of 's3://b00/a': name the archive by --control",
        ),
        (["demo", "/"], "not empty"),
    ],
)
def test_what_cannot_be_meant_is_said_before_anything_begins(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.splitlines()) == 1
