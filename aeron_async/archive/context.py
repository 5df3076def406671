"""Everything about an archive that can be set, checked once and never changed.

Source: Aeron `Archive.Context`, `Archive.Configuration`, `AeronArchive.Configuration`.
"""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, final

import attrs

from aeron_async.archive.disk.catalog_file import DEFAULT_CAPACITY, LARGEST_CAPACITY
from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.segments import DEFAULT_SEGMENT_LENGTH, check_segment_length
from aeron_async.archive.setting import (
    INT32_MAX,
    INT32_MIN,
    ArchiveSetting,
    channel,
    count,
    duration,
    name,
    setting_of,
    size,
)
from aeron_async.client.arguments import publication_uri, subscription_uri
from aeron_async.errors import ConfigurationError
from aeron_async.unused_variables import warn_of_unused

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ArchiveContext"]

MOST_SYNCED: Final = 2
NULL_ID: Final = -1
INT64_MIN: Final = -(2**63)
LONGEST_FRAME: Final = 65_536
SECOND: Final = 1_000_000_000


def stream(property_name: str, default: int, doc: str) -> Any:
    """Declare a stream id."""
    return count(property_name, default, doc, minimum=INT32_MIN, maximum=INT32_MAX)


@final
@attrs.frozen(kw_only=True)
class ArchiveContext:
    """The settings of an archive: what is not given has Aeron's default.

    Sizes are in bytes and durations in nanoseconds, or either is text as in a channel: `"64k"`,
    `"5s"`. Reads no environment; `from_environment` does. Every field is described by `settings`.

    Raises:
        ConfigurationError: A value is beyond its limits; names the setting.
    """

    directory: str = name(
        "aeron.archive.dir", "aeron-archive", "Where recordings and their catalog lie."
    )
    mark_file_dir: str | None = name(
        "aeron.archive.mark.file.dir",
        None,
        "Where the mark file lies, if not in the directory itself.",
        is_optional=True,
    )
    segment_length: int = size(
        "aeron.archive.segment.file.length",
        DEFAULT_SEGMENT_LENGTH,
        "Length of each file of a recording; raised to the length of a term.",
    )
    file_sync_level: int = count(
        "aeron.archive.file.sync.level",
        0,
        "Whether recording waits for the disk: 0 does not, 1 does, 2 also for facts of the file.",
        maximum=MOST_SYNCED,
    )
    catalog_file_sync_level: int = count(
        "aeron.archive.catalog.file.sync.level",
        0,
        "Likewise for the catalog; at least as much as for recordings.",
        maximum=MOST_SYNCED,
    )
    catalog_capacity: int = size(
        "aeron.archive.catalog.capacity",
        DEFAULT_CAPACITY,
        "Length of a new catalog, which grows by itself.",
        minimum=32,
        maximum=LARGEST_CAPACITY,
    )
    record_checksum: str | None = name(
        "aeron.archive.record.checksum",
        None,
        "Checksum that is put into what is recorded: crc32, crc32c, or none.",
        is_optional=True,
    )
    replay_checksum: str | None = name(
        "aeron.archive.replay.checksum",
        None,
        "Checksum that is looked at when it is replayed.",
        is_optional=True,
    )
    max_concurrent_recordings: int = count(
        "aeron.archive.max.concurrent.recordings",
        20,
        "Most requests to record at once; one may record several sources.",
        minimum=1,
    )
    max_recorded_images: int = count(
        "aeron.archive.max.recorded.images",
        256,
        "Most sources recorded at once, each by a thread; others are passed over. Ours.",
        minimum=1,
    )
    max_concurrent_replays: int = count(
        "aeron.archive.max.concurrent.replays", 20, "Most replays published at once.", minimum=1
    )
    file_io_max_length: int = size(
        "aeron.archive.file.io.max.length",
        1 << 20,
        "Most bytes that are written, or read for a replay, in one go.",
        minimum=LONGEST_FRAME,
        maximum=1 << 30,
    )
    low_storage_threshold: int = size(
        "aeron.archive.low.storage.space.threshold",
        DEFAULT_SEGMENT_LENGTH,
        "No recording begins while the disk has no more room than this.",
    )
    archive_id: int = count(
        "aeron.archive.id",
        NULL_ID,
        "Tells archives apart that share a driver; -1 draws one, and keeps it in the mark file.",
        minimum=INT64_MIN,
    )
    replay_linger_timeout_ns: int = duration(
        "aeron.archive.replay.linger.timeout",
        5 * SECOND,
        "How long a replay still resends what was lost, after its end.",
    )
    connect_timeout_ns: int = duration(
        "aeron.archive.connect.timeout",
        5 * SECOND,
        "How long a replay, or a response, waits for who subscribes to it.",
        minimum=1,
    )
    max_unconnected_sessions: int = count(
        "aeron.archive.max.unconnected.sessions",
        32,
        "Most sessions at once whose clients have not answered yet. Ours.",
        minimum=1,
    )
    max_unconnected_sessions_per_image: int = count(
        "aeron.archive.max.unconnected.sessions.per.image",
        4,
        "Likewise, of those that one publication of requests opened. Ours.",
        minimum=1,
    )
    unconnected_session_timeout_ns: int = duration(
        "aeron.archive.unconnected.session.timeout",
        SECOND,
        "How long a new session waits for its client to take answers. Ours.",
        minimum=1,
    )
    control_channel: str | None = channel(
        "aeron.archive.control.channel", None, "Where requests come from other machines."
    )
    control_stream_id: int = stream(
        "aeron.archive.control.stream.id", 10, "Stream of the control channel."
    )
    local_control_channel: str = name(
        "aeron.archive.local.control.channel",
        "aeron:ipc?term-length=64k",
        "Where requests come from the same driver.",
    )
    local_control_stream_id: int = stream(
        "aeron.archive.local.control.stream.id", 10, "Stream of the local control channel."
    )
    recording_events_channel: str | None = channel(
        "aeron.archive.recording.events.channel",
        None,
        "Where the progress of recordings is published; nowhere by default.",
    )
    recording_events_stream_id: int = stream(
        "aeron.archive.recording.events.stream.id", 30, "Stream of the recording events."
    )

    def __attrs_post_init__(self) -> None:
        check_segment_length(self.segment_length)
        checksum_named(self.record_checksum)
        checksum_named(self.replay_checksum)
        if self.catalog_file_sync_level < self.file_sync_level:
            message = (
                f"{_SETTINGS['catalog_file_sync_level']} must be at least "
                f"{_SETTINGS['file_sync_level']}, got {self.catalog_file_sync_level} and "
                f"{self.file_sync_level}"
            )
            raise ConfigurationError(message)
        if not self.directory:
            message = f"{_SETTINGS['directory']} is empty: it names a directory"
            raise ConfigurationError(message)
        for given in (self.control_channel, self.local_control_channel):
            if given is not None:
                subscription_uri(given, 0)
        if self.recording_events_channel is not None:
            publication_uri(self.recording_events_channel, 0)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> Self:
        """Take what is given, else what the environment says, else the defaults.

        Args:
            environ: Variables by name; those of this process unless given.
            overrides: Settings by field name, as for the class itself.

        Raises:
            ConfigurationError: A value cannot be read, or as for the class itself.
        """
        variables = os.environ if environ is None else environ
        found: dict[str, Any] = {}
        for field_name, setting in cls.settings().items():
            text = variables.get(setting.env_name)
            if text and field_name not in overrides:
                found[field_name] = setting.read(text)
        names = {setting.env_name for setting in cls.settings().values()}
        warn_of_unused(variables, names, prefix="AERON_ARCHIVE_")
        return cls(**found, **overrides)

    @classmethod
    def settings(cls) -> Mapping[str, ArchiveSetting]:
        """Return what is known of every setting, by field name."""
        return _SETTINGS


_SETTINGS: Final[Mapping[str, ArchiveSetting]] = MappingProxyType(
    {attribute.name: setting_of(attribute) for attribute in attrs.fields(ArchiveContext)}
)
