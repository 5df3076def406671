"""Which recordings of an archive a query means."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aeron_async.archive.channel_stripping import stripped_channel
from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.errors import ConfigurationError, UnknownRecordingError
from aeron_async.protocol.channel_uri import ChannelUri

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.spark.options import ArchiveOptions

__all__ = ["is_selective", "open_directory", "read_recordings"]


def open_directory(options: ArchiveOptions) -> OsDirectory:
    """Return the directory of the archive.

    Raises:
        ConfigurationError: There is none.
    """
    try:
        return OsDirectory(options.path, create=False)
    except FileNotFoundError as error:
        message = f"path={options.path!r} is no directory on this host: change path"
        raise ConfigurationError(message) from error


def read_recordings(
    directory: OsDirectory, options: ArchiveOptions
) -> dict[int, RecordingDescriptor]:
    """Return the recordings that a query means, by their ids, in order.

    Raises:
        ConfigurationError: There is no catalog.
        UnknownRecordingError: One that is named by its id is not there.
        ArchiveFileError: The catalog is damaged.
    """
    try:
        catalog = Catalog.open_to_read(directory)
    except FileNotFoundError as error:
        message = (
            f"path={options.path!r} has no archive.catalog, so it is no directory of an archive: "
            "change path"
        )
        raise ConfigurationError(message) from error
    try:
        ids = list(catalog.ids()) if options.recording_ids is None else options.recording_ids
        is_meant = selector(options)
        found = {}
        for recording_id in sorted(set(ids)):
            if recording_id not in catalog:
                raise UnknownRecordingError(unknown(recording_id, directory, catalog))
            descriptor = catalog.get(recording_id)
            if is_meant(descriptor):
                found[recording_id] = descriptor
        return found
    finally:
        catalog.close()


def is_selective(options: ArchiveOptions) -> bool:
    """Return whether a query means some recordings, and not all."""
    given = (options.recording_ids, options.stream_id, options.channel, options.channel_pattern)
    return any(each is not None for each in given)


def selector(options: ArchiveOptions) -> Callable[[RecordingDescriptor], bool]:
    """Return what tells whether a recording is meant."""
    channel = options.channel
    if channel is not None:
        channel = stripped_channel(ChannelUri.parse(channel))
    pattern = None if options.channel_pattern is None else re.compile(options.channel_pattern)

    def is_meant(each: RecordingDescriptor) -> bool:
        return (
            (options.stream_id is None or each.stream_id == options.stream_id)
            and (options.stream_ids is None or each.stream_id in options.stream_ids)
            and (channel is None or each.stripped_channel == channel)
            and (pattern is None or pattern.fullmatch(each.stripped_channel) is not None)
        )

    return is_meant


def unknown(recording_id: int, directory: OsDirectory, catalog: Catalog) -> str:
    """Return what to say of an id that nothing has."""
    ids = list(catalog.ids())
    shown = ", ".join(map(str, ids[:20])) + (", ..." if len(ids) > 20 else "")  # noqa: PLR2004 - enough to see a slip
    return (
        f"no recording has the id {recording_id} in {directory.path}, which has "
        f"{shown or 'none'}: change recordingIds"
    )
