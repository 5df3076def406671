"""The settings of an archive: declared once, checked once, and never changed.

Source: Aeron `Archive.Configuration`, `Archive.Context`, `AeronArchive.Configuration`.
"""

from __future__ import annotations

import os
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, final

import attrs

from aeron_async.archive.disk.catalog import DEFAULT_CAPACITY, LARGEST_CAPACITY
from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.segments import DEFAULT_SEGMENT_LENGTH, check_segment_length
from aeron_async.client.arguments import publication_uri, subscription_uri
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.units import (
    IN_BYTES,
    IN_NANOSECONDS,
    INT64_MAX,
    parse_duration_ns,
    parse_size,
)
from aeron_async.unused_variables import warn_of_unused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "ArchiveContext",
    "ArchiveSetting",
    "channel",
    "count",
    "duration",
    "name",
    "setting_of",
    "size",
]

KEY: Final = "aeron_async.archive.context"
INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
UNITS: Final[Mapping[Callable[[str], object], str]] = MappingProxyType(
    {parse_size: IN_BYTES, parse_duration_ns: IN_NANOSECONDS}
)
INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1


@attrs.frozen(kw_only=True)
class ArchiveSetting:
    """The declaration of a setting.

    Attributes:
        name: Aeron's property, such as `aeron.archive.dir`.
        default: Default value, in the unit of the field.
        doc: Description in one sentence.
        minimum: Least number.
        maximum: Largest number.
        parse: Parses its text.
        is_optional: Whether it may be None.
    """

    name: str
    default: object
    doc: str
    parse: Callable[[str], object]
    minimum: int = 0
    maximum: int = INT64_MAX
    is_optional: bool = False

    @property
    def env_name(self) -> str:
        """Return the environment variable, such as `AERON_ARCHIVE_DIR`."""
        return self.name.upper().replace(".", "_")

    def convert(self, value: object) -> object:
        """Return a size or a duration given as text, such as `64k` or `5s`, as a number.

        Raises:
            ConfigurationError: The text is not valid for this kind of setting.
        """
        if isinstance(value, str) and self.parse in {parse_size, parse_duration_ns}:
            return self.read(value)
        return value

    def read(self, text: str) -> object:
        """Parse the text of a value.

        Raises:
            ConfigurationError: The text is not valid for this kind of setting.
        """
        try:
            return self.parse(text.strip())
        except ConfigurationError as error:
            message = f"{self} cannot be read: {error}"
            raise ConfigurationError(message) from error

    def check(self, value: object) -> None:
        """Refuse a value of the wrong type, or beyond the limits.

        Raises:
            ConfigurationError: Names the property, the variable, the limit and the value.
        """
        if value is None and self.is_optional:
            return
        if isinstance(self.default, int):
            is_number = isinstance(value, int) and not isinstance(value, bool)
            if not is_number or not self.minimum <= int(str(value)) <= self.maximum:
                message = (
                    f"{self} must be a whole number from {self.minimum} to {self.maximum}, "
                    f"got {value!r}{UNITS.get(self.parse, '')}"
                )
                raise ConfigurationError(message)
        elif not isinstance(value, str):
            message = f"{self} must be text, got {value!r}"
            raise ConfigurationError(message)

    def __str__(self) -> str:
        return f"{self.name} ({self.env_name})"


def parse_integer(text: str) -> int:
    """Parse a whole number.

    Raises:
        ConfigurationError: The text is not a whole number.
    """
    if INTEGER.fullmatch(text) is None:
        message = f"{text!r} is not a whole number"
        raise ConfigurationError(message)
    return int(text)


def setting_of(attribute: attrs.Attribute[Any]) -> ArchiveSetting:
    """Return the declaration of a field that the functions below made."""
    setting: ArchiveSetting = attribute.metadata[KEY]
    return setting


def size(property_name: str, default: int, doc: str, **more: Any) -> Any:
    """Declare a setting in bytes."""
    return field(property_name, default, doc, parse=parse_size, **more)


def duration(property_name: str, default: int, doc: str, **more: Any) -> Any:
    """Declare a setting in nanoseconds."""
    return field(property_name, default, doc, parse=parse_duration_ns, **more)


def count(property_name: str, default: int, doc: str, **more: Any) -> Any:
    """Declare a setting that is another number."""
    return field(property_name, default, doc, parse=parse_integer, **more)


def name(property_name: str, default: str | None, doc: str, **more: Any) -> Any:
    """Declare a setting that is text."""
    return field(property_name, default, doc, parse=str, **more)


def channel(property_name: str, default: str | None, doc: str) -> Any:
    """Declare a setting that is a channel, or None for no channel."""
    return field(property_name, default, doc, parse=str, is_optional=True)


def field(
    property_name: str, default: object, doc: str, *, parse: Callable[[str], object], **more: Any
) -> Any:
    """Declare a setting."""
    setting = ArchiveSetting(name=property_name, default=default, doc=doc, parse=parse, **more)
    return attrs.field(
        default=default, converter=setting.convert, validator=validate, metadata={KEY: setting}
    )


def validate(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Check the value of a setting."""
    setting_of(attribute).check(value)


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
    """The settings of an archive; a setting that is not given has Aeron's default.

    Sizes are in bytes and durations in nanoseconds; either may be text as in a channel URI, such as
    `"64k"` or `"5s"`. The constructor does not read the environment; `from_environment` does.
    `settings` describes every field.

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
        """Return a context from the given settings, then the environment, then the defaults.

        Args:
            environ: Variables by name; those of this process if not given.
            overrides: Settings by field name, as for the class itself.

        Raises:
            ConfigurationError: A value cannot be parsed, or as for the class itself.
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
        """Return the declaration of every setting, by field name."""
        return _SETTINGS


_SETTINGS: Final[Mapping[str, ArchiveSetting]] = MappingProxyType(
    {attribute.name: setting_of(attribute) for attribute in attrs.fields(ArchiveContext)}
)
