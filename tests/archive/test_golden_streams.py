"""What the official archive recorded is published and recorded again: the files are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.archive.disk.descriptor import RecordingState
from tests.archive.golden import RECORDINGS, facts, golden_path, recording_facts
from tests.captures import captures_path

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async import ExclusivePublication
    from tests.archive.conftest import OpenArchive

pytestmark = pytest.mark.skipif(
    not facts(),
    reason=f"no archives of the official driver in {captures_path()}/archives: set AERON_CAPTURES",
)

HEADER = 32
# One was truncated or cut off afterwards, one has parts of two sessions, one begins in mid message.
OTHERWISE_MADE = {("A2-mid-term-start", 1), ("A3-several-recordings", 4)}


def is_published_in_one_go(name: str, recording_id: int) -> bool:
    each = recording_facts(name, recording_id)
    return (
        each["state"] == RecordingState.VALID
        and each.get("messages", 0) > 0
        and not name.startswith("A5")
        and name != "A3-recovered"
        and (name, recording_id) not in OTHERWISE_MADE
    )


STREAMS = [each for each in RECORDINGS if is_published_in_one_go(*each)]


def payload(k: int, length: int) -> bytes:
    """Return message k of a golden stream; see the conventions in its README."""
    data = bytearray((31 * k + 7 * j) % 256 for j in range(length))
    if length >= 4:
        data[:4] = k.to_bytes(4, "little")
    return bytes(data)


def channel_of(each: dict[str, Any]) -> str:
    """Return a channel whose stream begins as the golden one did."""
    terms, offset = divmod(each["start_position"], each["term_buffer_length"])
    term_id = (each["initial_term_id"] + terms + 2**31) % 2**32 - 2**31
    return (
        f"aeron:ipc?term-length={each['term_buffer_length']}|mtu={each['mtu_length']}"
        f"|session-id={each['session_id']}|init-term-id={each['initial_term_id']}"
        f"|term-id={term_id}|term-offset={offset}"
    )


def framed_length(length: int, mtu_length: int) -> int:
    """Return what a message takes with all its headers, in bytes."""
    most = mtu_length - HEADER
    whole, rest = divmod(length, most)
    last = (rest + HEADER + 31) & -32 if rest or not whole else 0
    return whole * mtu_length + last


async def publish(publication: ExclusivePublication, each: dict[str, Any]) -> None:
    """Offer the messages of a golden stream, and append its padding where it had some."""
    # Padding that a message makes because it does not fit comes by itself.
    padding = {position: length for position, length, *_ in each["padding_frames"]}
    term_length = publication.term_length
    for index, length in enumerate(each["message_lengths"]):
        needed = framed_length(length, publication.mtu_length)
        await pad(publication, padding, needed)
        k = each["first_message_index"] + index
        reserved = 1_000_003 * (k + 1) if each["reserved_value_rule"] != "0" else 0
        position = await publication.offer(payload(k, length), reserved_value=reserved)
        assert position == each["message_end_positions"][index]
    await pad(publication, padding, term_length)


async def pad(publication: ExclusivePublication, padding: dict[int, int], needed: int) -> None:
    term_length = publication.term_length
    while (length := padding.pop(publication.position, None)) is not None:
        left = term_length - publication.position % term_length
        if length == left < needed < term_length:
            return
        await publication.append_padding(length - HEADER)


@pytest.mark.parametrize(("name", "recording_id"), STREAMS)
async def test_a_golden_stream_gives_the_golden_files(
    open_archive: OpenArchive, tmp_path: Path, name: str, recording_id: int
) -> None:
    each = recording_facts(name, recording_id)
    settings = {"segment_length": each["segment_file_length"]}
    if name == "A4-crc32":
        settings["record_checksum"] = "crc32"
    channel, stream_id = each["original_channel"], each["stream_id"]
    is_ipc = channel == "aeron:ipc"
    async with open_archive(**settings) as (aeron, archive):
        await archive.start_recording("aeron:ipc", stream_id)
        publication = await aeron.add_exclusive_publication(channel_of(each), stream_id)
        await publish(publication, each)
        if each["stop_position"] == -1:
            stop_position = each["end_position"]
        else:
            stop_position = each["stop_position"]
        assert publication.position == stop_position
        await archive.stop_recording("aeron:ipc", stream_id)
        ours = await archive.describe(0)
        replayed = [message.data async for message in archive.replay(0)]
    assert [len(data) for data in replayed] == each["message_lengths"]
    found = {
        path.name.partition("-")[2]: path.read_bytes()
        for path in (tmp_path / "archive").glob("*.rec")
    }
    golden = {
        path.name.partition("-")[2]: path.read_bytes()
        for path in golden_path(name).glob(f"{recording_id}-*.rec")
    }
    assert found.keys() == golden.keys()
    assert all(found[key] == golden[key] for key in golden)
    for ours_name, golden_name in (
        ("start_position", "start_position"),
        ("initial_term_id", "initial_term_id"),
        ("term_length", "term_buffer_length"),
        ("segment_length", "segment_file_length"),
        ("mtu_length", "mtu_length"),
        ("session_id", "session_id"),
        ("stream_id", "stream_id"),
        ("control_session_id", "control_session_id"),
        ("correlation_id", "correlation_id"),
    ):
        assert getattr(ours, ours_name) == each[golden_name]
    assert ours.stop_position == stop_position
    if is_ipc:
        assert ours.stripped_channel == each["stripped_channel"]
        assert ours.original_channel == each["original_channel"]
        assert ours.source_identity == each["source_identity"]


def test_there_are_golden_streams() -> None:
    assert len(STREAMS) > 15
