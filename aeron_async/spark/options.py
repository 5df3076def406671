"""Options of `spark.read.format("aeron_archive")`.

Spark passes options as text, with names in any case. An unknown name is refused with a suggestion.
Importing this module is cheap, because it travels with each task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, final

import attrs

from aeron_async.settings import OptionSettings, choice, declare, flag, integer, text
from aeron_async.spark.option_values import (
    EARLIEST,
    LATEST,
    NAMES,
    NUMBERS,
    Pattern,
    Positions,
    PositionsByRecording,
    TimesByRecording,
    TimestampFrom,
    TimestampSource,
    byte_size,
    duration_ms,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["REPLAY", "ArchiveOptions"]

REPLAY: Final = "replay"
"""The value of the option `access` that reads by replay."""


DEFAULT_BYTES_PER_PARTITION: Final = 256 << 20
DEFAULT_ROWS_PER_BATCH: Final = 16_384
DEFAULT_BYTES_PER_BATCH: Final = 16 << 20
LARGEST_BYTES_PER_BATCH: Final = 1 << 30
ALL: Final = "all"
DEFAULT_MAX_TRIGGER_DELAY_MS: Final = 15 * 60_000
ELSEWHERE: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "did you mean path, the archive's directory?",
    "assign": "did you mean recordingIds?",
    "subscribe": "did you mean streamId and channel?",
    "subscribepattern": "did you mean channelPattern?",
    "startingoffsets": "did you mean startingPositions?",
    "endingoffsets": "did you mean endingPositions?",
    "endingoffsetsbytimestamp": "did you mean endingTimestamp?",
    "maxoffsetspertrigger": "did you mean maxBytesPerTrigger, or maxRowsPerTrigger?",
    "minoffsetspertrigger": "did you mean minBytesPerTrigger?",
    "kafkaconsumer.polltimeoutms": "did you mean archive.timeoutMs?",
    "fetchoffset.numretries": "did you mean archive.retries?",
    "fetchoffset.retryintervalms": "did you mean archive.timeoutMs?",
    "groupidprefix": "recordings have no consumer groups: leave it out",
    "kafka.group.id": "recordings have no consumer groups: leave it out",
    "auto.offset.reset": "did you mean startingPositions?",
    "enable.auto.commit": "Spark's checkpoint knows what has been read: leave it out",
    "location": "CREATE TABLE loses the options in Spark 4.3: use CREATE TEMPORARY VIEW",
    "paths": "one archive at a time: load() takes one path, and union() puts tables together",
}
"""Options of Spark's Kafka connector, or of Spark itself, and their counterparts here."""


NO_TIMES: Final[Mapping[int, int]] = {}


@final
@attrs.frozen(kw_only=True)
class ArchiveOptions(OptionSettings):
    """Options of a query; sizes in bytes, times in milliseconds."""

    _NOUN: ClassVar[str] = "option"
    _HINTS: ClassVar[Mapping[str, str]] = ELSEWHERE

    path: str = text("path", "", "Directory of the archive, or its URL in a store such as S3.")
    access: str = choice(
        "access",
        "files",
        "How Spark reads recordings: `files`, which every executor sees under the same path, or "
        "`replay` over `archive.control.channel`.",
        choices=("files", REPLAY),
    )
    recording_ids: tuple[int, ...] | None = declare(
        "recordingIds", None, "Reads only these recordings.", kind=NUMBERS, unset=ALL
    )
    stream_id: int | None = integer(
        "streamId", None, "Reads only the recordings of this stream.", unset=ALL
    )
    channel: str | None = text(
        "channel", None, "Reads only the recordings of this channel.", unset=ALL
    )
    channel_pattern: str | None = declare(
        "channelPattern",
        None,
        "Reads only the recordings whose whole channel matches.",
        kind=Pattern(),
        unset=ALL,
    )
    stream_ids: tuple[int, ...] | None = declare(
        "streamIds", None, "Reads only these streams of `channelPattern`.", kind=NUMBERS, unset=ALL
    )
    starting_positions: Positions = declare(
        "startingPositions",
        Positions(EARLIEST),
        'Where reading begins; by recording it is `{"3": 1024}`, where -2 is earliest, -1 latest.',
        kind=PositionsByRecording(others=EARLIEST),
    )
    ending_positions: Positions = declare(
        "endingPositions",
        Positions(LATEST),
        "Where a batch query ends, written as `startingPositions`.",
        kind=PositionsByRecording(others=LATEST),
    )
    starting_timestamp: int | None = integer(
        "startingTimestamp",
        None,
        "Begins at the first message that is not older, in ms since 1970; needs `timestampFrom`.",
    )
    starting_offsets_by_timestamp: Mapping[int, int] = declare(
        "startingOffsetsByTimestamp",
        NO_TIMES,
        'Begins each recording at a time of its own: `{"3": 1700000000000}`.',
        kind=TimesByRecording(),
    )
    starting_offsets_by_timestamp_strategy: str = choice(
        "startingOffsetsByTimestampStrategy",
        "error",
        "What happens if all messages are older: the query fails, or begins at the end.",
        choices=("error", "latest"),
    )
    ending_timestamp: int | None = integer(
        "endingTimestamp",
        None,
        "Ends a batch query before the first message that is not older; needs `timestampFrom`.",
    )
    max_bytes_per_trigger: int | None = byte_size(
        "maxBytesPerTrigger", None, "Length that a micro-batch reads at most of all recordings."
    )
    max_rows_per_trigger: int | None = integer(
        "maxRowsPerTrigger",
        None,
        "Messages that a micro-batch reads at most; not with `maxBytesPerTrigger`.",
        minimum=1,
    )
    min_bytes_per_trigger: int | None = byte_size(
        "minBytesPerTrigger", None, "Length that a micro-batch waits for."
    )
    max_trigger_delay_ms: int = duration_ms(
        "maxTriggerDelay",
        DEFAULT_MAX_TRIGGER_DELAY_MS,
        "How long a micro-batch waits for `minBytesPerTrigger`.",
    )
    min_partitions: int | None = integer(
        "minPartitions",
        None,
        "Number of partitions to make at least, if the recordings have as many terms.",
        minimum=1,
    )
    max_bytes_per_partition: int = byte_size(
        "maxBytesPerPartition",
        DEFAULT_BYTES_PER_PARTITION,
        "Length of the partitions into which recordings are split, at the ends of terms.",
    )
    fail_on_data_loss: bool = flag(
        "failOnDataLoss",
        True,
        "Whether a query fails on data that is damaged or missing; if not, it skips and logs it.",
    )
    include_headers: bool = flag(
        "includeHeaders", False, "Whether rows have the fields of the frame header as columns."
    )
    include_channel: bool = flag(
        "includeChannel", False, "Whether rows have the channel as a column."
    )
    include_padding: bool = flag(
        "includePadding", False, "Whether padding makes rows; needs `fragmentMode=frame`."
    )
    fragment_mode: str = choice(
        "fragmentMode",
        "message",
        "Whether each row is a message or a frame.",
        choices=("message", "frame"),
    )
    verify_checksum: str | None = choice(
        "verifyChecksum",
        None,
        "Checksum to verify in every frame; the recording was made with it.",
        choices=("crc32", "crc32c"),
    )
    columns: tuple[str, ...] | None = declare(
        "columns",
        None,
        "Columns to return, in this order; `.schema(...)` does the same.",
        kind=NAMES,
        unset=ALL,
    )
    rows_per_batch: int = integer(
        "rowsPerBatch", DEFAULT_ROWS_PER_BATCH, "Rows that Spark receives at once.", minimum=1
    )
    bytes_per_batch: int = byte_size(
        "bytesPerBatch",
        DEFAULT_BYTES_PER_BATCH,
        "Payload that Spark receives at once; a single message may be longer.",
        maximum=LARGEST_BYTES_PER_BATCH,
    )
    filter_pushdown: bool = flag(
        "filterPushdown",
        False,
        "Whether to skip data that filters on `position`, `recording_id`, `stream_id` and "
        "`channel` exclude; needs `spark.sql.python.filterPushdown.enabled=true`, and a `load()` "
        "for each query.",
    )
    decoder: str | None = text(
        "decoder",
        None,
        "Decodes payloads into columns: `struct:`, `sbe:`, `json:`, `msgpack:` or "
        "`module:callable`.",
    )
    timestamp_from: TimestampFrom | None = declare(
        "timestampFrom",
        None,
        "Where each message holds its time; the unit is ns, us, ms or s.",
        kind=TimestampSource(),
    )
    position_source: str = choice(
        "positionSource",
        "auto",
        "What tells where a recording ends that is still active.",
        choices=("auto", "catalog", "counter", "control", "scan"),
    )
    safety_lag_bytes: int | None = byte_size(
        "safetyLagBytes",
        None,
        "Length to leave out before that end; 64k if a live archive is scanned.",
        minimum=0,
        unset="0",
    )
    archive_control_channel: str | None = text(
        "archive.control.channel",
        None,
        "Control channel of a live archive, for `access=replay` and `positionSource=control`.",
    )
    archive_response_channel: str | None = text(
        "archive.response.channel",
        None,
        "Channel of the archive's responses and replays; by default on this host.",
    )
    archive_timeout_ms: int = duration_ms(
        "archive.timeoutMs", 5_000, "How long a response of the archive may take."
    )
    archive_retries: int = integer(
        "archive.retries", 3, "How often a request without a response is repeated.", minimum=0
    )
    aeron_directory: str | None = text(
        "aeron.dir",
        None,
        "Directory of a live archive's driver, for `positionSource=counter`.",
        env_name="",
    )

    def _problems(self) -> list[tuple[bool, str]]:
        given = [
            name
            for name, value in (
                ("recordingIds", self.recording_ids),
                ("streamId or channel", self.stream_id if self.channel is None else self.channel),
                ("channelPattern", self.channel_pattern),
            )
            if value is not None
        ]
        is_by_time = self.starting_timestamp is not None or self.starting_offsets_by_timestamp
        needs_time = is_by_time or self.ending_timestamp is not None
        return [
            *self._problems_of_access(),
            (len(given) > 1, f"{' and '.join(given)} select recordings: give one of them"),
            (
                self.stream_ids is not None and self.channel_pattern is None,
                "streamIds narrows channelPattern, which is not given: use streamId for one stream",
            ),
            (
                self.max_bytes_per_trigger is not None and self.max_rows_per_trigger is not None,
                "maxBytesPerTrigger and maxRowsPerTrigger limit the same: give one of them",
            ),
            (
                self.include_padding and self.fragment_mode != "frame",
                "includePadding=true, and padding is no message: set fragmentMode=frame",
            ),
            (
                bool(needs_time) and self.timestamp_from is None,
                "positions by time, and frames carry none by themselves: set timestampFrom",
            ),
            (
                self.position_source == "control" and self.archive_control_channel is None,
                "positionSource=control asks a live archive: set archive.control.channel",
            ),
        ]

    def _problems_of_access(self) -> list[tuple[bool, str]]:
        is_replayed = self.access == REPLAY
        return [
            (
                not self.path and not is_replayed,
                "no path: load() needs the directory of an archive, or access=replay",
            ),
            (
                bool(self.path) and is_replayed,
                f"path={self.path!r}, and access=replay reads no files: leave one of them out",
            ),
            (
                is_replayed and self.archive_control_channel is None,
                "access=replay asks an archive to replay: set archive.control.channel",
            ),
            (
                is_replayed and self.position_source not in {"auto", "control"},
                f"access=replay asks the archive: leave positionSource={self.position_source} out",
            ),
            (
                is_replayed and self.verify_checksum is not None,
                f"replays have no checksums: leave verifyChecksum={self.verify_checksum} out",
            ),
        ]
