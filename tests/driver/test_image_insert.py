"""What an image takes, what it drops, and which counter moves: every bound on both sides."""

from __future__ import annotations

import pytest

from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.protocol.header import DataFlags
from tests.driver.fakes import (
    EOS,
    HALF_TERM,
    SECOND,
    data,
    heartbeat,
    pad,
    payload,
)
from tests.driver.rigs import ImageRig
from tests.logbuffer.logs import INITIAL_TERM_ID, MTU_LENGTH, TERM_LENGTH

OVER_RUNS = SystemCounterId.FLOW_CONTROL_OVER_RUNS
UNDER_RUNS = SystemCounterId.FLOW_CONTROL_UNDER_RUNS
INVALID = SystemCounterId.INVALID_PACKETS
HEARTBEATS = SystemCounterId.HEARTBEATS_RECEIVED
START = 2 * TERM_LENGTH


def liveness_after(rig: ImageRig, datagram: bytes, now_ns: int) -> tuple[bool, bool]:
    """Return whether a datagram refreshed the image, and whether its connection."""
    before = rig.image.last_packet_ns, rig.connection().last_activity_ns
    rig.feed(datagram, now_ns)
    after = rig.image.last_packet_ns, rig.connection().last_activity_ns
    return after[0] != before[0], after[1] != before[1]


def counted(rig: ImageRig) -> list[int]:
    return [rig[each] for each in (OVER_RUNS, UNDER_RUNS, INVALID, HEARTBEATS)]


@pytest.fixture
def rig() -> ImageRig:
    """Return an image whose last status message said position 2 terms."""
    rig = ImageRig(join_position=START)
    rig.image.poll(0)
    rig.outbox.take()
    return rig


def test_data_is_placed_and_read_in_order(rig: ImageRig) -> None:
    rig.feed(data(START, 128), 1)
    rig.feed(data(START + 128, 90), 1)
    rig.image.poll(1)
    assert rig.image.rebuild_position == rig.image.hwm_position == START + 224
    assert rig.counters.receiver_position.get() == START + 224
    assert rig.counters.receiver_hwm.get() == START + 224
    assert rig.progress == 1
    assert rig.read() == [payload(START, 128), payload(START + 128, 90)]
    assert counted(rig) == [0, 0, 0, 0]


def test_a_poll_that_finds_nothing_new_wakes_nobody(rig: ImageRig) -> None:
    rig.feed(data(START, 128), 1)
    rig.image.poll(1)
    rig.feed(data(START, 128), 2)
    rig.image.poll(2)
    assert rig.progress == 1


@pytest.mark.parametrize(("length", "is_taken"), [(HALF_TERM, True), (HALF_TERM + 32, False)])
def test_data_may_end_half_a_term_beyond_the_last_status_message_and_no_further(
    rig: ImageRig,
    length: int,
    is_taken: bool,  # noqa: FBT001 - a table of cases
) -> None:
    refreshed = liveness_after(rig, pad(START, length), 5)
    assert refreshed == (is_taken, is_taken)
    assert counted(rig) == [not is_taken, 0, 0, 0]
    assert rig.image.hwm_position == (START + length if is_taken else START)


def test_the_bound_is_the_last_sent_status_message_not_the_window() -> None:
    rig = ImageRig(window_length=4_096)
    rig.image.poll(0)
    rig.feed(data(HALF_TERM - 64, 64), 1)
    assert rig.image.hwm_position == HALF_TERM
    assert counted(rig) == [0, 0, 0, 0]


def test_a_status_message_that_is_scheduled_and_not_sent_does_not_move_the_bound() -> None:
    rig = ImageRig(window_length=4_096)
    rig.image.poll(0)
    rig.feed(data(0, 2_048), 0)
    rig.image.poll(0)
    rig.consume_to(2_048)
    rig.feed(data(HALF_TERM, 64), 0)
    assert rig[OVER_RUNS] == 1
    rig.image.poll(1)
    rig.feed(data(HALF_TERM, 64), 1)
    assert rig[OVER_RUNS] == 1


@pytest.mark.parametrize(
    ("distance", "counts"), [(HALF_TERM, [0, 0, 0, 1]), (HALF_TERM + 32, [1, 0, 0, 0])]
)
def test_a_heartbeat_is_bound_like_data(rig: ImageRig, distance: int, counts: list[int]) -> None:
    is_taken = counts[3] == 1
    assert liveness_after(rig, heartbeat(START + distance), 5) == (is_taken, is_taken)
    assert counted(rig) == counts
    assert rig.image.hwm_position == START + distance * is_taken


@pytest.mark.parametrize(
    ("position", "counts"),
    [(START - TERM_LENGTH, [0, 0, 0, 1]), (START - TERM_LENGTH - 32, [0, 1, 0, 0])],
)
def test_a_heartbeat_may_be_a_term_behind_and_no_more(
    rig: ImageRig, position: int, counts: list[int]
) -> None:
    is_taken = counts[3] == 1
    assert liveness_after(rig, heartbeat(position), 5) == (is_taken, is_taken)
    assert counted(rig) == counts
    assert rig.image.hwm_position == START


def test_in_the_first_term_no_heartbeat_is_too_old() -> None:
    rig = ImageRig(join_position=HALF_TERM)
    rig.feed(heartbeat(0), 1)
    assert counted(rig) == [0, 0, 0, 1]


def test_data_behind_the_last_status_message_is_dropped_and_does_not_keep_the_image_alive(
    rig: ImageRig,
) -> None:
    assert liveness_after(rig, data(START - 64, 64), 5) == (False, True)
    assert counted(rig) == [0, 1, 0, 0]
    assert rig.image.hwm_position == START


@pytest.mark.parametrize(("end", "is_near"), [(HALF_TERM, True), (HALF_TERM + 32, False)])
def test_old_data_refreshes_the_connection_within_a_window(
    rig: ImageRig,
    end: int,
    is_near: bool,  # noqa: FBT001 - a table of cases
) -> None:
    assert liveness_after(rig, data(START - end - 64, 64), 5) == (False, is_near)
    assert counted(rig) == [0, 1, 0, 0]


def test_data_at_the_last_status_message_is_no_under_run(rig: ImageRig) -> None:
    rig.feed(data(START, 64), 5)
    assert rig[UNDER_RUNS] == 0


def test_consumed_data_may_come_again_until_a_status_message_has_said_so(rig: ImageRig) -> None:
    rig.feed(data(START, 64), 1)
    rig.image.poll(1)
    rig.read()
    rig.image.poll(2)
    rig.feed(data(START, 64), 3)
    assert counted(rig) == [0, 0, 0, 0]
    rig.image.poll(3)
    assert rig.read() == []


@pytest.mark.parametrize("kind", [data(0, 64, term_id=INITIAL_TERM_ID - 1), heartbeat(-32)])
def test_what_is_of_a_term_before_the_first_is_dropped_and_counted(
    rig: ImageRig, kind: bytes
) -> None:
    assert liveness_after(rig, kind, 5) == (False, False)
    assert counted(rig) == [0, 0, 0, 0]
    assert rig[DriverCounterId.OLD_TERM_PACKETS] == 1


def test_what_was_consumed_and_comes_again_changes_nothing_but_counters(rig: ImageRig) -> None:
    for position in range(START - 2_048, START, 64):
        before = [bytes(term) for term in rig.log.terms], rig.image.hwm_position
        rig.feed(data(position, 64, flags=EOS), 5)
        assert ([bytes(term) for term in rig.log.terms], rig.image.hwm_position) == before
    assert rig[UNDER_RUNS] == 32
    assert not rig.image.is_end_of_stream
    rig.image.poll(6)
    assert rig.image.rebuild_position == START


def test_a_datagram_longer_than_the_mtu_is_bound_by_its_term_and_the_last_status_message(
    rig: ImageRig,
) -> None:
    # As in Aeron the MTU binds senders; a receiver takes what fits.
    longest = 65_504
    rig.feed(data(START, HALF_TERM), 1)
    assert rig.image.hwm_position == START + HALF_TERM
    rig.feed(data(START, longest), 1)
    assert counted(rig) == [1, 0, 0, 0], "beyond half a term"
    rig.feed(data(START + 64, longest), 1)
    assert counted(rig) == [1, 0, 1, 0], "beyond its term"
    assert rig.image.hwm_position == START + HALF_TERM


@pytest.mark.parametrize(
    "datagram",
    [
        data(START, 64, term_offset=TERM_LENGTH),
        data(START, 64, term_offset=-32),
        data(START, 64, term_offset=16),
        heartbeat(START) + bytes(32),
        data(START, 64) + data(START, 64),
        data(START, 64) + data(START + 64, 64)[:32],
        b"\x01" + data(START, 32)[1:],
        b"\x1f" + data(START, 32)[1:],
        data(START, 64) + b"\x1f" + data(START + 64, 32)[1:],
        data(START, 64) + b"\x1f" + data(START + 64, 32)[1:] + data(START + 96, 64),
        data(START, 64) + heartbeat(START + 64),
        data(START + TERM_LENGTH - 32, 64),
        data(START, 64) + data(START + 64, 64)[:6] + b"\x05\x00" + data(START + 64, 64)[8:],
    ],
    ids=[
        "offset at the term's end",
        "offset negative",
        "offset unaligned",
        "heartbeat with a tail",
        "second frame elsewhere",
        "second frame cut",
        "length of 1",
        "length of 31",
        "second length of 31",
        "second length of 31 in the middle",
        "heartbeat behind a frame",
        "frame beyond the term",
        "second frame of another kind",
    ],
)
def test_a_datagram_that_cannot_be_meant_is_counted_and_changes_nothing(
    rig: ImageRig, datagram: bytes
) -> None:
    assert liveness_after(rig, datagram, 5) == (False, False)
    assert counted(rig) == [0, 0, 1, 0]
    assert not any(map(any, rig.log.terms))


def test_a_datagram_of_many_frames_and_a_padding_header_is_placed_whole(rig: ImageRig) -> None:
    end = START + TERM_LENGTH
    for position in range(START, end - 1_024, 8_192):
        rig.feed(pad(position, min(8_192, end - 1_024 - position)), 1)
        rig.image.poll(1)
        rig.read()
        rig.image.poll(1)
    rig.feed(data(end - 1_024, 64) + data(end - 960, 128) + pad(end - 832, 832), 2)
    rig.image.poll(2)
    assert rig.image.rebuild_position == rig.image.hwm_position == end
    assert rig.read() == [payload(end - 1_024, 64), payload(end - 960, 128)]
    assert rig.readers[0][0].position == end
    rig.feed(data(end, 96), 3)
    rig.image.poll(3)
    assert rig.read() == [payload(end, 96)]


def test_padding_counts_in_full_against_the_bound() -> None:
    # As the official receiver drops the last datagram of a term that its sender thought fitting.
    rig = ImageRig(join_position=TERM_LENGTH - HALF_TERM - 32)
    rig.feed(data(TERM_LENGTH - 352, 96) + pad(TERM_LENGTH - 256, 256), 1)
    assert rig[OVER_RUNS] == 1
    rig.feed(data(TERM_LENGTH - 352, 96), 1)
    assert rig[OVER_RUNS] == 1


def test_a_padding_header_of_32_bytes_moves_the_high_water_mark_by_all_of_its_length(
    rig: ImageRig,
) -> None:
    datagram = pad(START, 6_400)
    assert len(datagram) == 32
    rig.feed(datagram, 1)
    rig.image.poll(1)
    assert rig.counters.receiver_hwm.get() == START + 6_400
    assert rig.counters.receiver_position.get() == START + 6_400


def test_of_a_datagram_that_is_there_in_part_the_rest_is_placed(rig: ImageRig) -> None:
    rig.feed(data(START, 64), 1)
    rig.feed(data(START, 64) + data(START + 64, 64), 2)
    rig.image.poll(2)
    assert rig.image.rebuild_position == rig.image.hwm_position == START + 128
    assert rig.read() == [payload(START, 64), payload(START + 64, 64)]


def test_term_ids_that_wrap_are_placed_like_others() -> None:
    rig = ImageRig(join_position=TERM_LENGTH - 64, spec={"initial_term_id": 2**31 - 1})
    rig.image.poll(0)
    for position in (TERM_LENGTH - 64, TERM_LENGTH):
        datagram = data(position, 64, initial_term_id=2**31 - 1)
        rig.feed(datagram, 1)
    rig.image.poll(1)
    assert rig.image.rebuild_position == TERM_LENGTH + 64
    assert len(rig.read()) == 2


def test_a_setup_keeps_the_connection_but_not_the_image_alive(rig: ImageRig) -> None:
    assert rig.image.on_setup(
        (INITIAL_TERM_ID, TERM_LENGTH, MTU_LENGTH),
        (INITIAL_TERM_ID + 2, 0),
        destination=rig.outbox,
        source=rig.image.source,
        now_ns=4 * SECOND,
    )
    assert rig.connection().last_activity_ns == 4 * SECOND
    assert rig.image.last_packet_ns == 0


@pytest.mark.parametrize(
    "terms",
    [
        (INITIAL_TERM_ID + 1, TERM_LENGTH, MTU_LENGTH),
        (INITIAL_TERM_ID, 2 * TERM_LENGTH, MTU_LENGTH),
        (INITIAL_TERM_ID, TERM_LENGTH, MTU_LENGTH + 32),
    ],
    ids=["initial term", "term length", "mtu"],
)
def test_a_setup_of_another_stream_under_the_same_ids_keeps_nothing(
    rig: ImageRig, terms: tuple[int, int, int]
) -> None:
    assert not rig.image.on_setup(
        terms,
        (INITIAL_TERM_ID, 0),
        destination=rig.outbox,
        source=rig.image.source,
        now_ns=4 * SECOND,
    )
    assert rig.connection().last_activity_ns == 0


def test_an_end_of_stream_says_where_the_stream_ends(rig: ImageRig) -> None:
    assert rig.log.metadata.end_of_stream_position == 2**63 - 1
    rig.feed(heartbeat(START + 640, EOS), 1)
    assert rig.image.is_end_of_stream
    assert rig.log.metadata.end_of_stream_position == START + 640
    assert rig.progress == 1
    assert rig.image.hwm_position == START + 640


def test_the_first_end_of_stream_is_believed(rig: ImageRig) -> None:
    rig.feed(heartbeat(START + 640, EOS), 1)
    rig.feed(heartbeat(START + 960, EOS), 2)
    assert rig.log.metadata.end_of_stream_position == START + 640
    assert rig.progress == 1
    assert rig[HEARTBEATS] == 2


def test_an_end_of_stream_too_far_ahead_is_not_believed(rig: ImageRig) -> None:
    rig.feed(heartbeat(START + HALF_TERM + 32, EOS), 1)
    assert not rig.image.is_end_of_stream


def test_a_flag_on_data_does_not_end_the_stream(rig: ImageRig) -> None:
    rig.feed(data(START, 64, flags=EOS), 1)
    assert not rig.image.is_end_of_stream


def test_a_revoked_stream_has_ended(rig: ImageRig) -> None:
    rig.feed(heartbeat(START, EOS | DataFlags.REVOKED), 1)
    assert rig.image.is_end_of_stream
