"""Every option: how it is spelled, what it takes, and what is said of what it does not take."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.spark.option_values import Positions, TimestampFrom
from aeron_async.spark.options import ArchiveOptions


def parse(**given: str) -> ArchiveOptions:
    return ArchiveOptions.parse({"path": "/archive", **given})


def parse_dotted(name: str, value: str) -> ArchiveOptions:
    return ArchiveOptions.parse({"path": "/archive", name: value})


def test_names_are_taken_in_any_case() -> None:
    assert parse(MAXBYTESPERPARTITION="64m").max_bytes_per_partition == 64 << 20


@pytest.mark.parametrize(
    ("name", "value", "field", "wanted"),
    [
        ("recordingIds", "3, 4", "recording_ids", (3, 4)),
        ("recordingIds", "[3,4]", "recording_ids", (3, 4)),
        ("streamId", "-7", "stream_id", -7),
        ("channel", "aeron:ipc", "channel", "aeron:ipc"),
        ("channelPattern", "aeron:udp.*", "channel_pattern", "aeron:udp.*"),
        ("startingPositions", "earliest", "starting_positions", Positions(-2)),
        ("startingPositions", "LATEST", "starting_positions", Positions(-1)),
        (
            "startingPositions",
            '{"3": 1024, "4": "latest"}',
            "starting_positions",
            Positions(-2, {3: 1024, 4: -1}),
        ),
        ("endingPositions", '{"3": -2}', "ending_positions", Positions(-1, {3: -2})),
        ("maxBytesPerTrigger", "16m", "max_bytes_per_trigger", 16 << 20),
        ("maxRowsPerTrigger", "1000", "max_rows_per_trigger", 1_000),
        ("minBytesPerTrigger", "1g", "min_bytes_per_trigger", 1 << 30),
        ("maxTriggerDelay", "2m", "max_trigger_delay_ms", 120_000),
        ("maxTriggerDelay", "500", "max_trigger_delay_ms", 500),
        ("minPartitions", "8", "min_partitions", 8),
        ("failOnDataLoss", "False", "fail_on_data_loss", False),
        ("fragmentMode", "FRAME", "fragment_mode", "frame"),
        ("verifyChecksum", "crc32c", "verify_checksum", "crc32c"),
        ("columns", "position, payload", "columns", ("position", "payload")),
        ("rowsPerBatch", "1", "rows_per_batch", 1),
        ("bytesPerBatch", "1 MiB", "bytes_per_batch", 1 << 20),
        ("safetyLagBytes", "0", "safety_lag_bytes", 0),
        ("positionSource", "scan", "position_source", "scan"),
        ("archive.timeoutMs", "1s", "archive_timeout_ms", 1_000),
        ("archive.retries", "0", "archive_retries", 0),
        ("aeron.dir", "/dev/shm/aeron", "aeron_directory", "/dev/shm/aeron"),  # noqa: S108 - Aeron's own
        ("timestampFrom", "reserved", "timestamp_from", TimestampFrom(None, "<i8", 1)),
        (
            "timestampFrom",
            "reserved_value:ms",
            "timestamp_from",
            TimestampFrom(None, "<i8", 1_000_000),
        ),
        (
            "timestampFrom",
            "payload:8:uint64be:us",
            "timestamp_from",
            TimestampFrom(8, ">u8", 1_000),
        ),
    ],
)
def test_a_value_is_read(name: str, value: str, field: str, wanted: object) -> None:
    assert getattr(parse_dotted(name, value), field) == wanted


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("streamId", "x", "a whole number"),
        ("streamId", "9" * 19, "at most 9223372036854775807"),
        ("recordingIds", "1,b", "numbers, such as 3,4"),
        ("channel", " ", "not empty"),
        ("channelPattern", "(", "a regular expression"),
        ("startingPositions", "first", "earliest, latest, or positions"),
        ("startingPositions", "{}", "earliest, latest, or positions"),
        ("startingPositions", '{"a": 1}', "earliest, latest, or positions"),
        ("startingPositions", '{"1": true}', "earliest, latest, or positions"),
        ("startingPositions", '{"1": -3}', "earliest, latest, or positions"),
        ("startingPositions", '{"1": 1.5}', "earliest, latest, or positions"),
        ("startingOffsetsByTimestamp", '{"1": "latest"}', "milliseconds since 1970"),
        ("maxBytesPerTrigger", "0", "at least 1, got 0; in bytes"),
        ("maxBytesPerTrigger", "12q", "a size in bytes, such as"),
        ("maxBytesPerTrigger", "999999999999g", "at most 9223372036854775807"),
        ("maxRowsPerTrigger", "0", "at least 1"),
        ("maxTriggerDelay", "soon", "a time, such as"),
        ("failOnDataLoss", "yes", "none of 1, on, true, 0, off, false"),
        ("fragmentMode", "both", "one of message, frame"),
        ("access", "network", "one of files, replay"),
        ("columns", "a,,b", "names, such as position,payload"),
        ("timestampFrom", "payload:8", "reserved"),
        ("timestampFrom", "payload:8:float", "reserved"),
        ("timestampFrom", "reserved:days", "reserved"),
    ],
)
def test_a_value_that_is_none_is_refused(name: str, value: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_dotted(name, value)
    message = str(caught.value)
    assert says in message
    assert message.startswith(f"{name} ")
    assert repr(value.strip()) in message or ", got " in message


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("startingOffsets", "did you mean startingPositions?"),
        ("subscribe", "did you mean streamId and channel?"),
        ("subscribePattern", "did you mean channelPattern?"),
        ("assign", "did you mean recordingIds?"),
        ("kafka.bootstrap.servers", "did you mean path"),
        ("kafka.group.id", "no consumer groups"),
        ("enable.auto.commit", "checkpoint"),
        ("location", "use CREATE TEMPORARY VIEW"),
        ("maxOffsetsPerTrigger", "did you mean maxBytesPerTrigger"),
        ("maxBytePerTrigger", "did you mean maxBytesPerTrigger?"),
        ("recordingid", "did you mean recordingIds?"),
        ("zzzzzzzz", "The options are path"),
    ],
)
def test_a_name_that_is_none_is_refused_with_the_right_one(name: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_dotted(name, "1")
    assert says in str(caught.value)
    assert "maxBytesPerPartition" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"recordingIds": "1", "streamId": "2"}, "recordingIds and streamId or channel"),
        ({"channel": "aeron:ipc", "channelPattern": "a"}, "give one of them"),
        ({"streamIds": "1"}, "use streamId for one stream"),
        ({"maxBytesPerTrigger": "1", "maxRowsPerTrigger": "1"}, "give one of them"),
        ({"includePadding": "true"}, "set fragmentMode=frame"),
        ({"startingTimestamp": "1"}, "set timestampFrom"),
        ({"startingOffsetsByTimestamp": '{"1": 1}'}, "set timestampFrom"),
        ({"endingTimestamp": "1"}, "set timestampFrom"),
        ({"bytesPerBatch": "2g"}, "bytesPerBatch must be at most 1073741824"),
        ({"positionSource": "control"}, "set archive.control.channel"),
    ],
)
def test_options_that_contradict_one_another_are_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        parse(**given)


def test_a_path_is_needed() -> None:
    with pytest.raises(ConfigurationError, match="no path"):
        ArchiveOptions.parse({})


def test_positions_not_named_are_those_of_others() -> None:
    assert parse(startingPositions='{"3": 64}').starting_positions.of(4) == -2
    assert parse(endingPositions='{"3": 64}').ending_positions.of(4) == -1


def test_the_options_import_neither_the_driver_nor_the_logs() -> None:
    """They travel with each task."""
    code = (
        "import sys, aeron_async.spark.options; "
        "print([name for name in sys.modules if name.startswith('aeron_async')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in ("driver", "client", "logs", "archive"):
        assert f"aeron_async.{name}" not in done.stdout


def test_a_path_keeps_its_blanks_and_a_number_does_not() -> None:
    options = ArchiveOptions.parse({"path": "/data/archive ", "streamId": " 7 "})
    assert (options.path, options.stream_id) == ("/data/archive ", 7)


def test_a_name_that_is_given_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="streamId is given twice"):
        ArchiveOptions.parse({"path": "/a", "streamId": "7", "STREAMID": "8"})


def test_a_recording_id_is_written_in_ascii() -> None:
    with pytest.raises(ConfigurationError, match="startingPositions"):
        ArchiveOptions.parse({"path": "/a", "startingPositions": '{"²": 5}'})
