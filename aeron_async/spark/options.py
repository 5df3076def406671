"""Options of `spark.read.format("aeron_archive")`, and how a remote archive is reached.

Spark passes options as text, with names in any case. An unknown name is refused with a suggestion.
Importing this module is cheap, because it travels with each task.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final, Self, final

import attrs

from aeron_async.errors import ConfigurationError
from aeron_async.spark import option_values as values
from aeron_async.spark.option_values import EARLIEST, LATEST, Positions, TimestampFrom

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "REPLAY",
    "ArchiveAccess",
    "ArchiveOptions",
    "OptionSpelling",
    "spellings",
]

REPLAY: Final = "replay"
"""The value of the option `access` that reads by replay."""


@final
@attrs.frozen
class ArchiveAccess:
    """How to reach an archive over its control channel.

    Attributes:
        control_channel: Control channel of the archive.
        response_channel: Channel of its responses and replays; None for this host.
        timeout_ms: How long a response may take.
        retries: How often to repeat a request without a response.
    """

    control_channel: str
    response_channel: str | None = None
    timeout_ms: int = 5_000
    retries: int = 3

    @classmethod
    def of(cls, options: ArchiveOptions) -> ArchiveAccess:
        """Return the access that the options of a query describe."""
        channel = options.archive_control_channel
        assert channel is not None, "the options were checked"
        return cls(
            channel,
            options.archive_response_channel,
            options.archive_timeout_ms,
            options.archive_retries,
        )


SELECTORS: Final = ("recordingIds", "streamId", "channelPattern")
DEFAULT_BYTES_PER_PARTITION: Final = 256 << 20
DEFAULT_ROWS_PER_BATCH: Final = 16_384
DEFAULT_BYTES_PER_BATCH: Final = 16 << 20
LARGEST_BYTES_PER_BATCH: Final = 1 << 30
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


@final
@attrs.frozen
class OptionSpelling:
    """How one option is spelled and read.

    Attributes:
        name: Spelling in a query.
        default: Default as the documentation shows it.
        says: What the option does.
    """

    name: str
    default: str
    says: str


def option(
    name: str,
    read: Callable[[str, str], Any],
    says: str,
    *,
    default: Any = None,
    shown: str = "",
) -> Any:
    """Declare a field that an option sets."""
    metadata = {"read": read, "spelling": OptionSpelling(name, shown, says)}
    return attrs.field(default=default, metadata=metadata)


@final
@attrs.frozen(kw_only=True)
class ArchiveOptions:
    """Options of a query; sizes in bytes, times in milliseconds."""

    path: str = option("path", values.text, "directory of the archive", default="")
    access: str = option(
        "access",
        values.one_of("files", REPLAY),
        "how recordings are read: files, which every executor must see under the same path; or "
        "replay, by archive.control.channel",
        default="files",
        shown="files",
    )
    recording_ids: tuple[int, ...] | None = option(
        "recordingIds", values.ids, "these recordings: `3,4`; a selector"
    )
    stream_id: int | None = option(
        "streamId", values.integer, "all recordings of a stream; a selector, also with channel"
    )
    channel: str | None = option(
        "channel", values.text, "of the stream, as URI; with streamId or alone"
    )
    channel_pattern: str | None = option(
        "channelPattern", values.pattern, "a regular expression for whole channels; a selector"
    )
    stream_ids: tuple[int, ...] | None = option(
        "streamIds", values.ids, "only these streams of channelPattern"
    )
    starting_positions: Positions = option(
        "startingPositions",
        values.positions,
        'earliest, latest, or by recording `{"3": 1024}`; -2 is earliest, -1 latest',
        default=Positions(EARLIEST),
        shown="earliest",
    )
    ending_positions: Positions = option(
        "endingPositions",
        values.positions,
        "the same for the end; batch only",
        default=Positions(LATEST),
        shown="latest",
    )
    starting_timestamp: int | None = option(
        "startingTimestamp",
        values.integer,
        "from the first message that is not older, in ms since 1970; needs timestampFrom",
    )
    starting_offsets_by_timestamp: Mapping[int, int] = option(
        "startingOffsetsByTimestamp",
        values.timestamps_ms,
        'the same by recording: `{"3": 1700000000000}`',
        default=attrs.Factory(dict),
    )
    starting_offsets_by_timestamp_strategy: str = option(
        "startingOffsetsByTimestampStrategy",
        values.one_of("error", "latest"),
        "where no message is that young: error, or latest, which begins at the end",
        default="error",
        shown="error",
    )
    ending_timestamp: int | None = option(
        "endingTimestamp",
        values.integer,
        "up to before the first message that is not older; batch only, needs timestampFrom",
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger", values.positive_size, "most of a micro-batch, of all recordings"
    )
    max_rows_per_trigger: int | None = option(
        "maxRowsPerTrigger", values.count, "the same in messages; one of both"
    )
    min_bytes_per_trigger: int | None = option(
        "minBytesPerTrigger", values.positive_size, "wait until there is so much"
    )
    max_trigger_delay_ms: int = option(
        "maxTriggerDelay",
        values.duration_ms,
        "but no longer than this",
        default=DEFAULT_MAX_TRIGGER_DELAY_MS,
        shown="15m",
    )
    min_partitions: int | None = option(
        "minPartitions", values.count, "split into at least so many, where terms let it"
    )
    max_bytes_per_partition: int = option(
        "maxBytesPerPartition",
        values.positive_size,
        "split recordings, at terms, into parts of this size",
        default=DEFAULT_BYTES_PER_PARTITION,
        shown="256m",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        values.boolean,
        "fail on what is damaged or gone; else skip it, log it, and go on",
        default=True,
        shown="true",
    )
    include_headers: bool = option(
        "includeHeaders", values.boolean, "header fields as columns", default=False, shown="false"
    )
    include_channel: bool = option(
        "includeChannel", values.boolean, "the channel as a column", default=False, shown="false"
    )
    include_padding: bool = option(
        "includePadding",
        values.boolean,
        "padding as rows; needs fragmentMode=frame",
        default=False,
        shown="false",
    )
    fragment_mode: str = option(
        "fragmentMode",
        values.one_of("message", "frame"),
        "a row for each message, or for each frame",
        default="message",
        shown="message",
    )
    verify_checksum: str | None = option(
        "verifyChecksum",
        values.one_of("crc32", "crc32c"),
        "check every frame; the recording was made with that checksum",
    )
    columns: tuple[str, ...] | None = option(
        "columns", values.names, "build only these, in this order; `.schema(...)` does the same"
    )
    rows_per_batch: int = option(
        "rowsPerBatch",
        values.count,
        "most rows handed to Spark at once",
        default=DEFAULT_ROWS_PER_BATCH,
        shown="16384",
    )
    bytes_per_batch: int = option(
        "bytesPerBatch",
        values.positive_size,
        "most payload handed to Spark at once; one message may be more",
        default=DEFAULT_BYTES_PER_BATCH,
        shown="16m",
    )
    filter_pushdown: bool = option(
        "filterPushdown",
        values.boolean,
        "skip what filters on position, recording_id, stream_id and channel rule out; needs "
        "spark.sql.python.filterPushdown.enabled=true, and a `load()` for each query",
        default=False,
        shown="false",
    )
    decoder: str | None = option(
        "decoder",
        values.text,
        "columns of one's own: `struct:`, `sbe:`, `json:`, `msgpack:`, or `module:callable`",
    )
    timestamp_from: TimestampFrom | None = option(
        "timestampFrom",
        values.timestamp_from,
        "`reserved[:unit]` or `payload:<offset>:<type>[:unit]`; units ns, us, ms, s",
    )
    position_source: str = option(
        "positionSource",
        values.one_of("auto", "catalog", "counter", "control", "scan"),
        "who knows where a recording ends that has not stopped",
        default="auto",
        shown="auto",
    )
    safety_lag_bytes: int | None = option(
        "safetyLagBytes",
        values.size,
        "stay so far behind that end; 64k when a live archive is scanned",
        shown="0",
    )
    archive_control_channel: str | None = option(
        "archive.control.channel",
        values.text,
        "of a live archive, for access=replay and positionSource=control",
    )
    archive_response_channel: str | None = option(
        "archive.response.channel", values.text, "where it answers, and replays"
    )
    archive_timeout_ms: int = option(
        "archive.timeoutMs",
        values.duration_ms,
        "how long an answer may take",
        default=5_000,
        shown="5000",
    )
    archive_retries: int = option(
        "archive.retries", values.integer, "how often to ask again", default=3, shown="3"
    )
    aeron_directory: str | None = option(
        "aeron.dir", values.text, "of a live archive's driver, for positionSource=counter"
    )

    def __attrs_post_init__(self) -> None:
        for is_wrong, problem in self._problems():
            if is_wrong:
                raise ConfigurationError(problem)

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
                self.bytes_per_batch > LARGEST_BYTES_PER_BATCH,
                f"bytesPerBatch={self.bytes_per_batch} must be at most 1g: change bytesPerBatch",
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

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Parse options; names may have any case, values are text.

        Raises:
            ConfigurationError: A name is unknown, a value is invalid, or two options contradict
                each other.
        """
        found = {}
        for key, value in given.items():
            name = key.lower()
            field = FIELDS.get(name)
            if field is None:
                raise ConfigurationError(unknown(key))
            spelling: OptionSpelling = field.metadata["spelling"]
            found[field.name] = field.metadata["read"](spelling.name, value)
        return cls(**found)


FIELDS: Final[Mapping[str, Any]] = {
    field.metadata["spelling"].name.lower(): field for field in attrs.fields(ArchiveOptions)
}


def spellings() -> list[OptionSpelling]:
    """Return every option, in the order of the documentation."""
    return [field.metadata["spelling"] for field in FIELDS.values()]


def unknown(key: str) -> str:
    """Return the error text for an unknown option."""
    hint = ELSEWHERE.get(key.lower())
    if hint is None:
        near = difflib.get_close_matches(key.lower(), FIELDS, n=1)
        hint = f"did you mean {FIELDS[near[0]].metadata['spelling'].name}?" if near else ""
    known = ", ".join(each.name for each in spellings())
    return f"no option is named {key!r}: {hint or 'look below'} The options are {known}"
