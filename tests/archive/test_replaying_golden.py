"""What the official archive recorded is replayed: every message, at its position."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from aeron_async.archive.disk.descriptor import RecordingState
from tests.archive.golden import RECORDINGS, copy_of, recording_facts
from tests.archive.test_replaying_to_publications import received

if TYPE_CHECKING:
    from pathlib import Path

    from tests.archive.conftest import OpenArchive

REPLAYED = [
    each
    for each in RECORDINGS
    if recording_facts(*each)["state"] == RecordingState.VALID and each[0] != "A3-recovered"
]


@pytest.mark.parametrize(("name", "recording_id"), REPLAYED)
async def test_a_golden_recording_has_its_messages(
    open_archive: OpenArchive, tmp_path: Path, name: str, recording_id: int
) -> None:
    each = recording_facts(name, recording_id)
    directory = copy_of(name, tmp_path)
    checksum = "crc32" if name == "A4-crc32" else None
    async with open_archive(
        directory=str(directory), record_checksum=checksum, replay_checksum=checksum
    ) as (aeron, archive):
        found = [message async for message in archive.replay(recording_id)]
        assert [len(message.data) for message in found] == each["message_lengths"]
        assert [message.position for message in found] == each["message_end_positions"]
        digest = hashlib.sha256(b"".join(message.data for message in found)).hexdigest()
        assert digest == each["messages_sha256"]
        if found:
            subscription = await aeron.add_subscription("aeron:ipc", 9)
            await archive.start_replay(recording_id, "aeron:ipc", 9)
            again = await received(subscription)
            assert [(each.data, each.position, each.reserved_value) for each in again] == [
                (each.data, each.position, each.reserved_value) for each in found
            ]
