"""Counter of the position up to which a recording has been written.

Key: recording id i64, session id i32, length of the source identity i32, source identity, archive
id i64.

Source: Aeron `RecordingPos`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.counters import Counter, CountersManager

__all__ = ["RECORDING_POSITION_TYPE_ID", "recording_counter"]

RECORDING_POSITION_TYPE_ID: Final = 100
HEAD: Final = Struct("<qii")
ARCHIVE_ID: Final = Struct("<q")
KEY_LENGTH: Final = 112
LONGEST_SOURCE: Final = KEY_LENGTH - HEAD.size - ARCHIVE_ID.size


def recording_counter(
    counters: CountersManager,
    descriptor: RecordingDescriptor,
    *,
    session_id: int,
    source_identity: str,
    archive_id: int,
    owner_id: int,
) -> Counter:
    """Allocate the counter of a recording that is about to start.

    Raises:
        RegistrationError: No counter is left.
    """
    source = source_identity.encode("ascii", "replace")[:LONGEST_SOURCE]
    key = HEAD.pack(descriptor.recording_id, session_id, len(source)) + source
    label = (
        f"rec-pos: {descriptor.recording_id} {session_id} {descriptor.stream_id} "
        f"{descriptor.stripped_channel} - archiveId={archive_id}"
    )
    return counters.allocate(
        RECORDING_POSITION_TYPE_ID,
        key + ARCHIVE_ID.pack(archive_id),
        label,
        owner_id=owner_id,
    )
