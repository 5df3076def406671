"""Opens what a recording needs: its file, and the counter that shows how far it is.

Source: Aeron `ArchiveConductor.startRecordingSession`, `RecordingSession.init`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from aeron_async.archive.disk.checksums import checksum_named
from aeron_async.archive.disk.recording_writer import RecordingWriter
from aeron_async.archive.disk_threads import finished
from aeron_async.archive.recording_counter import recording_counter
from aeron_async.archive.recording_session import RecordingSession

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.resources import ArchiveResources
    from aeron_async.client.image import Image

__all__ = ["open_session"]


async def open_session(
    resources: ArchiveResources, image: Image, descriptor: RecordingDescriptor
) -> RecordingSession:
    """Return what records an image; nothing is left open if that cannot be had.

    Args:
        resources: Of the archive.
        image: To be recorded.
        descriptor: Of the recording, in the catalog already.

    Raises:
        StorageError: The file cannot be had.
        RegistrationError: No counter is left.
    """
    context = resources.context
    opening = resources.disk.begin(
        partial(
            RecordingWriter,
            resources.directory,
            descriptor,
            position=image.join_position,
            checksum=checksum_named(context.record_checksum),
            sync_level=context.file_sync_level,
        )
    )
    try:
        writer = await finished(opening)
    except asyncio.CancelledError:
        if not opening.cancelled() and opening.exception() is None:
            # It was opened all the same, and nobody else would close it.
            await resources.disk.run(opening.result().close)
        raise
    try:
        counter = recording_counter(
            resources.aeron.counters,
            descriptor,
            session_id=image.session_id,
            source_identity=image.source_identity,
            archive_id=resources.archive_id,
            owner_id=resources.aeron.client_id,
        )
    except BaseException:
        await resources.disk.run(writer.close)
        raise
    return RecordingSession(
        descriptor=descriptor,
        image=image,
        subscription=image.subscription,
        writer=writer,
        counter=counter,
        disk=resources.disk,
        longest_write=context.file_io_max_length,
    )
