"""Options of `df.write.format("aeron")` and `df.writeStream.format("aeron")`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final, final

import attrs

from aeron_async.errors import ConfigurationError
from aeron_async.protocol.channel_uri import ChannelUri, Media
from aeron_async.protocol.units import INT32_MAX, INT32_MIN
from aeron_async.settings import (
    OptionSettings,
    Text,
    choice,
    declare,
    integer,
    text,
)
from aeron_async.spark.option_values import byte_size, duration_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SinkOptions"]

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


@final
class ChannelText(Text):
    """A channel URI."""

    LIMITS: ClassVar[str] = "a channel"

    def refusal(self, value: object) -> str:
        """Refuse what is no channel."""
        if not (reason := Text.refusal(self, value)):
            try:
                ChannelUri.parse(str(value))
            except ConfigurationError as error:
                return f"must be a channel, got {value!r}: {error}"
        return reason


@final
class QueryId(Text):
    """A name that can be part of a channel and of a path."""

    LIMITS: ClassVar[str] = "up to 64 letters, digits, - or _"

    def refusal(self, value: object) -> str:
        """Refuse other characters."""
        if isinstance(value, str) and QUERY_ID.fullmatch(value):
            return ""
        return f"must be {self.LIMITS}, got {value!r}"


@final
@attrs.frozen(kw_only=True)
class SinkOptions(OptionSettings):
    """Options of a query; times in milliseconds."""

    _NOUN: ClassVar[str] = "option"
    _HINTS: ClassVar[Mapping[str, str]] = ELSEWHERE
    _IGNORED: ClassVar[frozenset[str]] = OF_SPARK

    channel: str | None = declare(
        "channel",
        None,
        "Channel of all rows; it overrides the column `channel`.",
        kind=ChannelText(),
    )
    stream_id: int | None = integer(
        "streamId",
        None,
        "Stream id of all rows; it overrides the column `stream_id`.",
        minimum=INT32_MIN,
        maximum=INT32_MAX,
    )
    delivery: str = choice(
        "delivery",
        AT_LEAST_ONCE,
        "How often a row may arrive; `effectively-once` needs an archive.",
        choices=(AT_LEAST_ONCE, EFFECTIVELY_ONCE),
    )
    wait_for: str | None = choice(
        "waitFor",
        None,
        "What a partition waits for after its last row: that every subscriber has consumed the "
        "rows, that an archive has recorded them, or nothing; `effectively-once` waits for "
        "`recorded`.",
        choices=(CONSUMED, RECORDED, NOTHING),
        unset=CONSUMED,
    )
    publish_timeout_ms: int = duration_ms(
        "publishTimeoutMs",
        30_000,
        "How long a task waits for a subscriber, for window space, and until rows are consumed or "
        "recorded.",
        minimum=1,
    )
    linger_ms: int = duration_ms(
        "lingerMs",
        10_000,
        "How long a worker keeps its driver after the last task.",
        minimum=1,
    )
    max_streams: int = integer(
        "maxStreams", 64, "Number of streams that the rows of a worker may name.", minimum=1
    )
    query_id: str | None = declare(
        "queryId",
        None,
        "Id of the query, for `effectively-once`; Spark gives one to a streaming query.",
        kind=QueryId(),
    )
    batch_id: int | None = integer(
        "batchId",
        None,
        "Id of the batch, for a batch write or `foreachBatch` with `effectively-once`.",
        minimum=0,
    )
    archive_path: str | None = text(
        "archive.path",
        None,
        "Directory that every worker sees; each partition records into an archive below it.",
    )
    archive_segment_length: int = byte_size(
        "archive.segmentLength",
        DEFAULT_SEGMENT_LENGTH,
        "Length of the files below `archive.path`; longer files make each batch slower.",
        minimum=1 << 16,
        maximum=1 << 30,
        power_of_two=True,
    )
    archive_control_channel: str | None = declare(
        "archive.control.channel",
        None,
        "Control channel of a running archive, in place of `archive.path`.",
        kind=ChannelText(),
    )
    archive_control_stream_id: int = integer(
        "archive.control.streamId",
        10,
        "Stream id of that control channel.",
        minimum=INT32_MIN,
        maximum=INT32_MAX,
    )
    archive_response_channel: str | None = declare(
        "archive.response.channel",
        None,
        "Channel of the archive's responses, as the archive's host sees this worker.",
        kind=ChannelText(),
    )
    archive_recording_channel: str | None = declare(
        "archive.recording.channel",
        None,
        "Channel on which the archive subscribes to the stream, if that is not `channel`.",
        kind=ChannelText(),
    )
    archive_timeout_ms: int = duration_ms(
        "archive.timeoutMs", 5_000, "How long a response of the archive may take.", minimum=1
    )

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
