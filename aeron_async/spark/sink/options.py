"""Options of `df.write.format("aeron")` and `df.writeStream.format("aeron")`."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Final, Self, final

import attrs

from aeron_async.errors import ConfigurationError
from aeron_async.protocol.channel_uri import ChannelUri, Media
from aeron_async.spark import option_values as values
from aeron_async.spark.options import OptionSpelling, option

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SinkOptions", "spellings"]

AT_LEAST_ONCE: Final = "at-least-once"
EFFECTIVELY_ONCE: Final = "effectively-once"
CONSUMED: Final = "consumed"
RECORDED: Final = "recorded"
NOTHING: Final = "none"
OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark reads itself and also passes to the sink."""
DEFAULT_SEGMENT_LENGTH: Final = 16 << 20
QUERY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
ELSEWHERE: Final[Mapping[str, str]] = {
    "topic": "did you mean channel, and streamId?",
    "kafka.bootstrap.servers": "did you mean channel?",
    "path": "rows are published: set channel; archive.path is where they are recorded",
    "aerondir": "every worker embeds a driver of its own: leave it out",
    "aeron.dir": "every worker embeds a driver of its own: leave it out",
    "stream": "did you mean streamId?",
    "timeout": "did you mean publishTimeoutMs?",
    "archive.dir": "did you mean archive.path?",
}


def read_query_id(name: str, value: str) -> str:
    """Return a name that can be part of a channel and of a path."""
    if QUERY_ID.fullmatch(value) is None:
        values.refuse(name, value, "up to 64 letters, digits, - or _")
    return value


def number(name: str, value: str) -> int:
    """Return a number that is not negative."""
    found = values.integer(name, value)
    return found if found >= 0 else values.refuse(name, value, "at least 0")


def read_stream_id(name: str, value: str) -> int:
    """Return a signed 32-bit integer."""
    found = values.integer(name, value)
    return found if -(1 << 31) <= found < 1 << 31 else values.refuse(name, value, "of 32 bits")


def read_channel(name: str, value: str) -> str:
    """Return a valid channel."""
    try:
        ChannelUri.parse(value)
    except ConfigurationError as error:
        values.refuse(name, value, f"a channel ({error})")
    return value


def is_segment_refused(length: int) -> bool:
    """Return whether archives refuse segment files of this length."""
    return length.bit_count() != 1 or not 1 << 16 <= length <= 1 << 30


def positive_ms(name: str, value: str) -> int:
    """Return milliseconds, at least one."""
    return values.duration_ms(name, value) or values.refuse(name, value, "at least 1 ms")


@final
@attrs.frozen(kw_only=True)
class SinkOptions:
    """Options of a query; times in milliseconds."""

    channel: str | None = option(
        "channel", read_channel, "where to publish; beats the column `channel`"
    )
    stream_id: int | None = option(
        "streamId", read_stream_id, "stream within the channel; beats the column `stream_id`"
    )
    delivery: str = option(
        "delivery",
        values.one_of(AT_LEAST_ONCE, EFFECTIVELY_ONCE),
        "at-least-once, or effectively-once, which needs an archive",
        default=AT_LEAST_ONCE,
        shown=AT_LEAST_ONCE,
    )
    wait_for: str | None = option(
        "waitFor",
        values.one_of(CONSUMED, RECORDED, NOTHING),
        "what a partition waits for when all its rows are published: consumed by every subscriber, "
        "recorded by an archive, or none; effectively-once is always recorded",
        shown=CONSUMED,
    )
    publish_timeout_ms: int = option(
        "publishTimeoutMs",
        positive_ms,
        "how long to wait for a subscriber, for room, and until rows are consumed or recorded",
        default=30_000,
        shown="30s",
    )
    linger_ms: int = option(
        "lingerMs",
        positive_ms,
        "how long a worker's driver stays when no task uses it",
        default=10_000,
        shown="10s",
    )
    max_streams: int = option(
        "maxStreams",
        values.count,
        "most streams that the rows of a worker may name",
        default=64,
        shown="64",
    )
    query_id: str | None = option(
        "queryId",
        read_query_id,
        "whose rows they are, for effectively-once; of a streaming query Spark knows it",
    )
    batch_id: int | None = option(
        "batchId", number, "likewise which batch; for a batch write or `foreachBatch`"
    )
    archive_path: str | None = option(
        "archive.path",
        values.text,
        "directory that every worker sees, for recordings of its own: one archive for each "
        "partition below it",
    )
    archive_segment_length: int = option(
        "archive.segmentLength",
        values.positive_size,
        "length of the files below archive.path; the longer, the longer every batch takes",
        default=DEFAULT_SEGMENT_LENGTH,
        shown="16m",
    )
    archive_control_channel: str | None = option(
        "archive.control.channel", read_channel, "of an archive that runs, in place of archive.path"
    )
    archive_control_stream_id: int = option(
        "archive.control.streamId", read_stream_id, "within that channel", default=10, shown="10"
    )
    archive_response_channel: str | None = option(
        "archive.response.channel",
        read_channel,
        "where the archive answers, as it sees this worker",
    )
    archive_recording_channel: str | None = option(
        "archive.recording.channel",
        read_channel,
        "where the archive hears the stream, if `channel` is not how it would subscribe",
    )
    archive_timeout_ms: int = option(
        "archive.timeoutMs",
        positive_ms,
        "how long an answer of the archive may take",
        default=5_000,
        shown="5s",
    )

    def __attrs_post_init__(self) -> None:
        for is_wrong, problem in self._problems():
            if is_wrong:
                raise ConfigurationError(problem)

    @property
    def is_effectively_once(self) -> bool:
        """Return whether each row is recorded exactly once."""
        return self.delivery == EFFECTIVELY_ONCE

    @property
    def waits_for(self) -> str:
        """Return what a partition waits for at its end."""
        return self.wait_for or (RECORDED if self.is_effectively_once else CONSUMED)

    @property
    def timeout_s(self) -> float:
        """Return `publishTimeoutMs` in seconds."""
        return self.publish_timeout_ms / 1_000

    @property
    def archive_timeout_s(self) -> float:
        """Return `archive.timeoutMs` in seconds."""
        return self.archive_timeout_ms / 1_000

    def _problems(self) -> list[tuple[bool, str]]:
        has_archive = self.archive_path is not None or self.archive_control_channel is not None
        is_ipc = self.channel is not None and ChannelUri.parse(self.channel).media is Media.IPC
        once = self.is_effectively_once
        return [
            (
                is_segment_refused(self.archive_segment_length),
                (
                    f"archive.segmentLength={self.archive_segment_length} must be a power of two "
                    "from 64k to 1g: change archive.segmentLength"
                ),
            ),
            (
                self.archive_path is not None and self.archive_control_channel is not None,
                "archive.path and archive.control.channel are two archives: give one of them",
            ),
            (
                once and not has_archive,
                (
                    "delivery=effectively-once reads from an archive what is there already: set "
                    "archive.path or archive.control.channel"
                ),
            ),
            (
                once and (self.channel is None or self.stream_id is None),
                "delivery=effectively-once writes one stream: set channel and streamId",
            ),
            (
                once and self.wait_for not in {None, RECORDED},
                (
                    f"waitFor={self.wait_for} with delivery=effectively-once, which waits until "
                    "rows are recorded: leave waitFor out"
                ),
            ),
            (
                not once and self.wait_for == RECORDED and self.archive_control_channel is None,
                (
                    "waitFor=recorded asks the archive that records the streams: set "
                    "archive.control.channel"
                ),
            ),
            (
                not once and self.archive_path is not None,
                (
                    "archive.path holds what delivery=effectively-once records: set that, or leave "
                    "archive.path out"
                ),
            ),
            (
                is_ipc and not (once and self.archive_path is not None),
                (
                    f"channel={self.channel} reaches no subscriber outside a worker's process: use "
                    "aeron:udp"
                ),
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
            field = FIELDS.get(key.lower())
            if field is None and key.lower() in OF_SPARK:
                continue
            if field is None:
                raise ConfigurationError(unknown(key))
            spelling: OptionSpelling = field.metadata["spelling"]
            found[field.name] = field.metadata["read"](spelling.name, value)
        return cls(**found)


FIELDS: Final[Mapping[str, Any]] = {
    field.metadata["spelling"].name.lower(): field for field in attrs.fields(SinkOptions)
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
