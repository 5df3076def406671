"""The settings of an archive: declared once, checked once, and never changed.

Source: Aeron `Archive.Configuration`, `Archive.Context`, `AeronArchive.Configuration`.
"""

from __future__ import annotations

from typing import ClassVar, Final, final

import attrs

from aeron_async.archive.disk.catalog import DEFAULT_CAPACITY, LARGEST_CAPACITY
from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.segments import (
    DEFAULT_SEGMENT_LENGTH,
    LONGEST_SEGMENT,
    SHORTEST_SEGMENT,
)
from aeron_async.client.arguments import publication_uri, subscription_uri
from aeron_async.clock import NS_PER_SECOND
from aeron_async.protocol.units import INT32_MAX, INT32_MIN, INT64_MAX
from aeron_async.settings import (
    EnvironmentSettings,
    duration,
    integer,
    size,
    text,
)

__all__ = ["ArchiveContext"]

MOST_SYNCED: Final = 2
NULL_ID: Final = -1
LONGEST_FRAME: Final = 65_536


@final
@attrs.frozen(kw_only=True)
class ArchiveContext(EnvironmentSettings):
    """The settings of an archive; a setting that is not given has Aeron's default.

    Sizes are in bytes and durations in nanoseconds; either may be text as in a channel URI, such as
    `"64k"` or `"5s"`. The constructor does not read the environment; `from_environment` does.
    `settings` describes every field.

    Raises:
        ConfigurationError: A value is beyond its limits; names the setting.
    """

    _PREFIX: ClassVar[str] = "AERON_ARCHIVE_"

    directory: str = text(
        "aeron.archive.dir", "aeron-archive", "Directory of the recordings and of their catalog."
    )
    mark_file_dir: str | None = text(
        "aeron.archive.mark.file.dir",
        None,
        "Directory of the mark file; by default that of the recordings.",
    )
    segment_length: int = size(
        "aeron.archive.segment.file.length",
        DEFAULT_SEGMENT_LENGTH,
        "Length of each file of a recording; the length of a term if that is more.",
        minimum=SHORTEST_SEGMENT,
        maximum=LONGEST_SEGMENT,
        power_of_two=True,
    )
    file_sync_level: int = integer(
        "aeron.archive.file.sync.level",
        0,
        "Whether a write waits for the disk: 0 does not, 1 waits for data, 2 also for metadata.",
        minimum=0,
        maximum=MOST_SYNCED,
    )
    catalog_file_sync_level: int = integer(
        "aeron.archive.catalog.file.sync.level",
        0,
        "The same level for writes to the catalog; at least that of the recordings.",
        minimum=0,
        maximum=MOST_SYNCED,
    )
    catalog_capacity: int = size(
        "aeron.archive.catalog.capacity",
        DEFAULT_CAPACITY,
        "Length of a new catalog; the archive extends the catalog as needed.",
        minimum=32,
        maximum=LARGEST_CAPACITY,
    )
    record_checksum: str | None = text(
        "aeron.archive.record.checksum",
        None,
        "Checksum that the archive stores in recorded frames: crc32, crc32c or none.",
    )
    replay_checksum: str | None = text(
        "aeron.archive.replay.checksum",
        None,
        "Checksum that the archive verifies when it replays: crc32, crc32c or none.",
    )
    max_concurrent_recordings: int = integer(
        "aeron.archive.max.concurrent.recordings",
        20,
        "Maximum number of active recording requests; each may record several sources.",
        minimum=1,
    )
    max_recorded_images: int = integer(
        "aeron.archive.max.recorded.images",
        256,
        "Maximum number of sources recorded at once, one thread each (not in Aeron).",
        minimum=1,
    )
    max_concurrent_replays: int = integer(
        "aeron.archive.max.concurrent.replays",
        20,
        "Maximum number of replays published at once.",
        minimum=1,
    )
    file_io_max_length: int = size(
        "aeron.archive.file.io.max.length",
        1 << 20,
        "Maximum length of one write to a file, and of one read for a replay.",
        minimum=LONGEST_FRAME,
        maximum=1 << 30,
    )
    low_storage_threshold: int = size(
        "aeron.archive.low.storage.space.threshold",
        DEFAULT_SEGMENT_LENGTH,
        "Free space on the disk that a new recording needs; it is refused with this or less.",
        maximum=INT64_MAX,
    )
    archive_id: int = integer(
        "aeron.archive.id",
        NULL_ID,
        "Id that tells the archives of one driver apart; -1 draws one for the mark file.",
    )
    replay_linger_timeout_ns: int = duration(
        "aeron.archive.replay.linger.timeout",
        5 * NS_PER_SECOND,
        "How long a replay still resends lost data after its end.",
    )
    connect_timeout_ns: int = duration(
        "aeron.archive.connect.timeout",
        5 * NS_PER_SECOND,
        "How long a replay or a response waits for its subscriber.",
        minimum=1,
    )
    max_unconnected_sessions: int = integer(
        "aeron.archive.max.unconnected.sessions",
        32,
        "Maximum number of sessions whose clients have not answered yet (not in Aeron).",
        minimum=1,
    )
    max_unconnected_sessions_per_image: int = integer(
        "aeron.archive.max.unconnected.sessions.per.image",
        4,
        "Maximum number of such sessions that one publication may open (not in Aeron).",
        minimum=1,
    )
    unconnected_session_timeout_ns: int = duration(
        "aeron.archive.unconnected.session.timeout",
        NS_PER_SECOND,
        "How long a new session waits for its client to receive responses (not in Aeron).",
        minimum=1,
    )
    control_channel: str | None = text(
        "aeron.archive.control.channel",
        None,
        "Channel of the requests from other machines; by default there is none.",
    )
    control_stream_id: int = integer(
        "aeron.archive.control.stream.id",
        10,
        "Stream id of the control channel.",
        minimum=INT32_MIN,
        maximum=INT32_MAX,
    )
    local_control_channel: str = text(
        "aeron.archive.local.control.channel",
        "aeron:ipc?term-length=64k",
        "Channel of the requests from clients of the same driver.",
    )
    local_control_stream_id: int = integer(
        "aeron.archive.local.control.stream.id",
        10,
        "Stream id of the local control channel.",
        minimum=INT32_MIN,
        maximum=INT32_MAX,
    )
    recording_events_channel: str | None = text(
        "aeron.archive.recording.events.channel",
        None,
        "Channel that publishes the progress of recordings; by default there is none.",
    )
    recording_events_stream_id: int = integer(
        "aeron.archive.recording.events.stream.id",
        30,
        "Stream id of the recording events.",
        minimum=INT32_MIN,
        maximum=INT32_MAX,
    )

    def __attrs_post_init__(self) -> None:
        checksum_named(self.record_checksum)
        checksum_named(self.replay_checksum)
        if self.catalog_file_sync_level < self.file_sync_level:
            self._refuse("catalog_file_sync_level", "must be at least", "file_sync_level")
        for given in (self.control_channel, self.local_control_channel):
            if given is not None:
                subscription_uri(given, 0)
        if self.recording_events_channel is not None:
            publication_uri(self.recording_events_channel, 0)
