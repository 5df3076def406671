"""Counter of the position up to which a recording has been written.

Key: recording id i64, session id i32, length of the source identity i32, source identity, archive
id i64.

Source: Aeron `RecordingPos`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from aeron_async.counters import MAX_KEY_LENGTH, MAX_LABEL_LENGTH

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.counter import Counter

__all__ = ["RECORDING_POSITION_TYPE_ID", "key_and_label", "recording_counter"]

RECORDING_POSITION_TYPE_ID: Final = 100
HEAD: Final = Struct("<qii")
ARCHIVE_ID: Final = Struct("<q")
LONGEST_SOURCE: Final = MAX_KEY_LENGTH - HEAD.size - ARCHIVE_ID.size


def key_and_label(
    descriptor: RecordingDescriptor, *, session_id: int, source_identity: str, archive_id: int
) -> tuple[bytes, str]:
    """Return the key and the label of a recording's counter; what is too long is cut."""
    source = source_identity.encode("ascii", "replace")[:LONGEST_SOURCE]
    key = HEAD.pack(descriptor.recording_id, session_id, len(source)) + source
    label = (
        f"rec-pos: {descriptor.recording_id} {session_id} {descriptor.stream_id} "
        f"{descriptor.stripped_channel} - archiveId={archive_id}"
    )
    cut = label.encode("utf-8", "replace")[:MAX_LABEL_LENGTH].decode("utf-8", "ignore")
    return key + ARCHIVE_ID.pack(archive_id), cut


async def recording_counter(
    aeron: Aeron,
    descriptor: RecordingDescriptor,
    *,
    session_id: int,
    source_identity: str,
    archive_id: int,
) -> Counter:
    """Add the counter of a recording that is about to start.

    Raises:
        AeronError: See `Aeron.add_counter`.
    """
    key, label = key_and_label(
        descriptor,
        session_id=session_id,
        source_identity=source_identity,
        archive_id=archive_id,
    )
    return await aeron.add_counter(RECORDING_POSITION_TYPE_ID, label, key)
