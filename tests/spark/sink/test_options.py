"""The options of the sink: spelled as users do, and refused with the name that was meant."""

from __future__ import annotations

import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.spark.sink.options import SinkOptions

CHANNEL = "aeron:udp?endpoint=127.0.0.1:20121"
ONCE = {"channel": CHANNEL, "streamId": "1", "delivery": "effectively-once", "archive.path": "/a"}


def test_names_are_read_in_any_case() -> None:
    found = SinkOptions.parse({"CHANNEL": CHANNEL, "streamid": "-7", "PublishTimeoutMs": "2s"})
    assert (found.channel, found.stream_id, found.timeout_s) == (CHANNEL, -7, 2.0)


def test_without_wishes_a_task_waits_until_its_rows_are_consumed() -> None:
    found = SinkOptions.parse({})
    assert (found.is_effectively_once, found.waits_for) == (False, "consumed")


def test_what_is_written_once_is_recorded() -> None:
    found = SinkOptions.parse(ONCE)
    assert (found.is_effectively_once, found.waits_for) == (True, "recorded")


def test_what_spark_reads_itself_is_let_through() -> None:
    assert SinkOptions.parse({"checkpointLocation": "/c", "queryName": "q"}) == SinkOptions()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"chanel": "x"}, "did you mean channel"),
        ({"topic": "x"}, "did you mean channel"),
        ({"aeronDir": "aeron-of-somebody"}, "every worker embeds a driver"),
        ({"path": "/x"}, "set channel"),
        ({"zzzzzz": "x"}, "The options are channel, streamId"),
        ({"channel": "tcp:1"}, "channel must be a channel, got 'tcp:1'"),
        ({"channel": "aeron:ipc"}, "outside a worker's process"),
        ({"streamId": "2147483648"}, "at most 2147483647"),
        ({"streamId": "x"}, "a whole number"),
        ({"delivery": "exactly-once"}, "one of at-least-once, effectively-once"),
        ({"waitFor": "ever"}, "one of consumed, recorded, none"),
        ({"publishTimeoutMs": "0"}, "at least 1, got 0; in milliseconds"),
        ({"queryId": "a b"}, "letters, digits"),
        ({"batchId": "-1"}, "at least 0"),
        ({"archive.segmentLength": "65537"}, "a power of two, got 65537"),
        ({"archive.segmentLength": "32k"}, "at least 65536, got 32768"),
        ({"waitFor": "recorded"}, "set archive.control.channel"),
        ({"archive.path": "/a"}, "delivery=effectively-once records"),
        ({**ONCE, "archive.control.channel": CHANNEL}, "two archives"),
        ({"delivery": "effectively-once", "channel": CHANNEL, "streamId": "1"}, "set archive.path"),
        ({"delivery": "effectively-once", "archive.path": "/a"}, "set channel and streamId"),
        ({**ONCE, "waitFor": "consumed"}, "leave waitFor out"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        SinkOptions.parse(given)


def test_a_recording_of_a_worker_s_own_needs_no_network() -> None:
    assert SinkOptions.parse({**ONCE, "channel": "aeron:ipc"}).channel == "aeron:ipc"
