"""What one forged frame does to an image: nothing, or its end, told aloud; never silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from aeron_async.driver.core.image_state import ImageEndReason, ImageState
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.protocol.header import DataFlags
from aeron_async.protocol.nak import Nak
from tests.driver.fakes import EOS, MS, SECOND, data, heartbeat, pad, setup
from tests.driver.rigs import ImageRig, connect
from tests.driver.stage import Stage
from tests.logbuffer.logs import INITIAL_TERM_ID, TERM_LENGTH

if TYPE_CHECKING:
    from collections.abc import Callable

REVOKED = EOS | DataFlags.REVOKED
CONFLICTS = DriverCounterId.FRAME_CONFLICTS


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.send(20)
    return stage


def end_behind(stage: Stage) -> bytes:
    return heartbeat(stage.starts[5], EOS)


def revocation_behind(stage: Stage) -> bytes:
    return heartbeat(stage.starts[5], REVOKED)


def shorter_ahead(stage: Stage) -> bytes:
    return data(stage.starts[22], 32)


def longer_ahead(stage: Stage) -> bytes:
    return data(stage.starts[22], stage.starts[24] - stage.starts[22] + 32)


def padding_ahead(stage: Stage) -> bytes:
    return pad(stage.starts[22], stage.starts[26] - stage.starts[22] + 32)


def inside_a_frame_ahead(stage: Stage) -> bytes:
    return data(stage.starts[22] + 32, 96)


def other_flags_ahead(stage: Stage) -> bytes:
    return data(stage.starts[22], stage.starts[23] - stage.starts[22], flags=DataFlags(0x80))


def beyond_what_was_sent(stage: Stage) -> bytes:
    return data(stage.starts[60] + 32, 64)


def heartbeat_ahead(stage: Stage) -> bytes:
    return heartbeat(stage.starts[70])


def end_ahead(stage: Stage) -> bytes:
    return heartbeat(stage.starts[24] + 32, EOS)


def end_here(stage: Stage) -> bytes:
    return heartbeat(stage.position, EOS)


def end_long_ahead(stage: Stage) -> bytes:
    return heartbeat(stage.starts[80], EOS)


def revocation_ahead(stage: Stage) -> bytes:
    return heartbeat(stage.starts[24] + 32, REVOKED)


def duplicate_of_another_length(stage: Stage) -> bytes:
    return data(stage.starts[18], 4_000)


def padding_behind(stage: Stage) -> bytes:
    return pad(stage.starts[18], 512)


def inside_a_frame_behind(stage: Stage) -> bytes:
    return data(stage.starts[17] + 32, 96)


HARMLESS = [
    end_behind,
    revocation_behind,
    shorter_ahead,
    longer_ahead,
    padding_ahead,
    inside_a_frame_ahead,
    other_flags_ahead,
    beyond_what_was_sent,
    heartbeat_ahead,
    end_here,
    end_ahead,
    duplicate_of_another_length,
    padding_behind,
    inside_a_frame_behind,
]


@pytest.mark.parametrize("forge", HARMLESS)
@pytest.mark.parametrize("lost", [(), (22,), (20, 22)], ids=str)
def test_a_forged_frame_costs_a_stream_nothing(
    stage: Stage, forge: Callable[[Stage], bytes], lost: tuple[int, ...]
) -> None:
    """The publisher decides what lies there, and its stream goes on."""
    stage.rig.feed(forge(stage), stage.now_ns)
    stage.settle()
    stage.send(10, lost=lost)
    stage.pass_time(2 * SECOND)
    stage.send(60)
    stage.pass_time(8 * SECOND)
    if 22 in lost and forge is shorter_ahead:
        # The genuine frame came too late: only when its place had been read.
        ended = stage.image.life.ended
        assert ended is not None
        assert ended.reason is ImageEndReason.CONTRADICTED
    elif not (22 in lost and forge is other_flags_ahead):
        # But for one of the same length, whose genuine twin was lost: nobody asks for that.
        stage.expect_everything()


@pytest.mark.parametrize("forge", HARMLESS)
def test_a_forged_frame_costs_a_stream_nothing_that_stands_still(
    stage: Stage, forge: Callable[[Stage], bytes]
) -> None:
    """A publisher that says it has sent no more is believed, for as long as it says so."""
    stage.rig.feed(forge(stage), stage.now_ns)
    stage.pass_time(20 * SECOND)
    stage.expect_everything()
    stage.send(70)
    stage.pass_time(2 * SECOND)
    stage.expect_everything()


@pytest.mark.parametrize(
    "forge",
    [
        pytest.param(lambda stage: data(stage.position, 32), id="shorter"),
        pytest.param(lambda stage: data(stage.position, 2_048), id="longer"),
        pytest.param(lambda stage: pad(stage.position, 4_096), id="padding"),
        pytest.param(
            lambda stage: data(stage.position, 64, flags=DataFlags(0x40)), id="other flags"
        ),
    ],
)
@pytest.mark.parametrize("lost", [(), (20,)], ids=str)
def test_what_was_read_and_is_contradicted_by_the_publisher_ends_the_image_aloud(
    stage: Stage, forge: Callable[[Stage], bytes], lost: tuple[int, ...]
) -> None:
    """It cannot be taken back, so the reader is told, and the stream joined again."""
    stage.rig.feed(forge(stage), stage.now_ns)
    stage.settle()
    with capture_logs() as lines:
        stage.send(10, lost=lost, in_one_go=False)
        stage.pass_time(2 * SECOND)
    assert stage.rig.state() is ImageState.LINGER
    ended = stage.image.life.ended
    assert ended is not None
    assert ended.reason is ImageEndReason.CONTRADICTED
    assert ended.start_position <= stage.starts[21]
    assert stage.rig[DriverCounterId.IMAGES_BROKEN] == 1
    assert [line["reason"] for line in lines if line["event"] == "image_broken"] == ["CONTRADICTED"]
    conflicts = [line for line in lines if line["event"] == "frame_conflict"]
    assert 1 <= len(conflicts) <= 3
    assert conflicts[0]["source"] == conflicts[0]["datagram_source"] == stage.image.source
    assert stage.rig[CONFLICTS] >= len(conflicts)


def test_a_gap_that_nobody_fills_ends_the_image_aloud_within_its_timeout(stage: Stage) -> None:
    """A stream that stands still says so."""
    stage.is_deaf = True
    stage.send(4, lost=(21,))
    begun_ns = stage.now_ns
    with capture_logs() as lines:
        stage.pass_time(4_900 * MS)
        assert stage.rig.state() is ImageState.ACTIVE
        stage.pass_time(400 * MS)
    assert stage.rig.state() is ImageState.LINGER, "and no goodbye holds up the next image"
    assert stage.now_ns - begun_ns < 6 * SECOND
    ended = stage.image.life.ended
    assert ended is not None
    assert ended.reason is ImageEndReason.GAP_UNFILLED
    assert ended.position == ended.start_position == stage.starts[21]
    assert ended.end_position == stage.starts[22]
    (line,) = [line for line in lines if line["event"] == "image_broken"]
    assert (line["reason"], line["position"]) == ("GAP_UNFILLED", stage.starts[21])


def test_the_silence_of_a_source_does_not_count_for_a_gap(stage: Stage) -> None:
    stage.is_deaf = True
    stage.send(4, lost=(21,))
    stage.pass_time(9 * SECOND, heartbeats=False)
    assert stage.rig.state() is ImageState.ACTIVE
    stage.is_deaf = False
    stage.pass_time(SECOND)
    stage.expect_everything()


def test_an_end_behind_what_was_reported_is_counted_and_changes_nothing(stage: Stage) -> None:
    """No publisher ends a stream that has been further on."""
    for flags in (EOS, REVOKED):
        stage.rig.feed(heartbeat(stage.starts[10], flags), stage.now_ns)
        stage.settle()
    assert stage.rig[DriverCounterId.STREAM_ENDS_IGNORED] == 2
    assert not stage.image.is_end_of_stream
    assert not stage.rig.log.metadata.is_publication_revoked


def test_the_true_end_of_a_stream_ends_it_at_once(stage: Stage) -> None:
    stage.rig.feed(heartbeat(stage.position, EOS), stage.now_ns)
    stage.settle()
    assert stage.rig.state() is ImageState.DRAINING
    ended = stage.image.life.ended
    assert ended is not None
    assert ended.reason is ImageEndReason.END_OF_STREAM


def test_an_end_is_withdrawn_when_the_publisher_goes_on(stage: Stage) -> None:
    """Data behind an end shows that there was none."""
    stage.rig.feed(end_here(stage), stage.now_ns)
    stage.settle()
    assert stage.rig.state() is ImageState.DRAINING
    stage.send(1)
    assert stage.rig.state() is ImageState.ACTIVE
    assert stage.image.life.ended is None
    assert stage.rig[DriverCounterId.STREAM_ENDS_WITHDRAWN] == 1
    stage.pass_time(2 * SECOND)
    stage.expect_everything()


def test_a_stranger_who_goes_on_contradicting_gets_few_questions_out_of_an_image(
    stage: Stage,
) -> None:
    for _ in range(20_000):
        stage.now_ns += MS // 10
        stage.rig.feed(data(stage.starts[18], 4_000), stage.now_ns)
        stage.image.poll(stage.now_ns)
    assert stage.rig[CONFLICTS] == 20_000
    assert len(stage.rig.outbox.take_frames(Nak)) <= 10


@pytest.mark.parametrize("slot", [0, 32, 64])
def test_no_number_of_forged_frames_ends_a_stream_whose_publisher_answers(
    stage: Stage, slot: int
) -> None:
    """What was read is believed as long as the publisher sends the same again."""
    for _ in range(200):
        stage.rig.feed(data(stage.starts[17] + slot, 96), stage.now_ns)
        stage.pass_time(10 * MS)
    stage.send(10)
    stage.pass_time(6 * SECOND)
    stage.expect_everything()


@pytest.mark.parametrize("is_filled_by_a_stranger", [True, False])
def test_a_place_that_was_in_conflict_is_asked_about_once_more_when_it_is_shown(
    stage: Stage, *, is_filled_by_a_stranger: bool
) -> None:
    """The genuine frame has made room for itself, and another forged one takes it."""
    place = stage.starts[stage.sent]
    length = stage.starts[stage.sent + 1] - place
    stage.rig.feed(data(place + 32, 96), stage.now_ns)
    stage.rig.feed(stage.frame(stage.sent), stage.now_ns)
    assert stage.rig[CONFLICTS] == 1
    if is_filled_by_a_stranger:
        stage.rig.feed(data(place, length, flags=DataFlags(0x80)), stage.now_ns)
        stage.image.poll(stage.now_ns)
        assert stage.image.rebuild_position > place
    stage.send(3, lost=(stage.sent,))
    stage.pass_time(5 * SECOND)
    ended = stage.image.life.ended
    if not is_filled_by_a_stranger:
        stage.expect_everything()
        return
    assert ended is not None
    assert ended.reason is ImageEndReason.CONTRADICTED
    assert ended.start_position == place


@pytest.mark.parametrize("repeated_after_ms", [0, 50, 150, 350])
def test_a_stranger_who_repeats_its_frame_does_not_speak_for_the_publisher(
    stage: Stage, repeated_after_ms: int
) -> None:
    """What was shown comes again once, and something else after every other question."""
    place = stage.starts[stage.sent]
    forged = data(place, stage.starts[stage.sent + 1] - place, flags=DataFlags(0x80))
    stage.rig.feed(forged, stage.now_ns)
    stage.settle()
    stage.send(1)
    stage.pass_time(repeated_after_ms * MS)
    stage.rig.feed(forged, stage.now_ns)
    stage.pass_time(5 * SECOND)
    ended = stage.image.life.ended
    assert ended is not None
    assert ended.reason is ImageEndReason.CONTRADICTED


def test_an_image_of_forged_terms_asks_for_the_true_ones_and_ends_when_they_come(
    stage: Stage,
) -> None:
    """Where the first SETUP was forged, data fits, and what the image reports does not."""
    image = stage.image
    begun_ns = stage.now_ns
    while image.life.ended is None and stage.now_ns < begun_ns + 5 * SECOND:
        stage.hear_setup(2**20)
        stage.pass_time(100 * MS)
    ended = image.life.ended
    assert ended is not None
    assert ended.reason is ImageEndReason.CONTRADICTED
    assert 2 * SECOND < stage.now_ns - begun_ns < 4 * SECOND
    assert stage.setup_request_count == 6


def test_a_source_that_is_silent_is_not_judged_by_its_silence(stage: Stage) -> None:
    """A publisher whose loop stands still answers no question, and sends no heartbeat either."""
    for _ in range(3):
        stage.hear_setup(2**20)
    stage.pass_time(9 * SECOND, heartbeats=False)
    # Those that left while it was heard a second ago.
    assert 1 <= stage.setup_request_count <= 3
    stage.hear_setup(stage.rig.log.term_length)
    stage.send(10)
    stage.pass_time(SECOND)
    stage.expect_everything()


def test_a_source_that_has_ended_its_stream_is_not_asked(stage: Stage) -> None:
    """It sends no SETUP any more, and the tail of its stream is repaired as ever."""
    stage.is_deaf = True
    stage.send(4, lost=(22,))
    stage.rig.feed(heartbeat(stage.position, EOS), stage.now_ns)
    for _ in range(4):
        stage.hear_setup(2**20)
        stage.pass_time(900 * MS)
        stage.rig.feed(heartbeat(stage.position, EOS), stage.now_ns)
    assert stage.setup_request_count == 0
    stage.is_deaf = False
    stage.pass_time(2 * SECOND)
    assert stage.read == [stage.message(index) for index in range(stage.sent)]


def test_foreign_setups_before_a_question_do_not_count_for_it(stage: Stage) -> None:
    for _ in range(2):
        stage.hear_setup(2**20)
        stage.pass_time(5 * SECOND)
    stage.hear_setup(2**20)
    stage.pass_time(5 * SECOND)
    assert stage.setup_request_count == 18
    stage.send(10)
    stage.pass_time(SECOND)
    stage.expect_everything()


@pytest.mark.parametrize("answered", [0, 2, 4])
def test_setups_of_other_terms_end_no_image_whose_source_confirms_its_own(
    stage: Stage, answered: int
) -> None:
    for count in range(100):
        stage.hear_setup(2**20)
        stage.pass_time(100 * MS)
        if count % 20 == answered * 4:
            stage.hear_setup(stage.rig.log.term_length)
    stage.send(10)
    stage.pass_time(SECOND)
    stage.expect_everything()


def test_one_forged_setup_that_nobody_answers_is_asked_about_for_three_seconds(
    stage: Stage,
) -> None:
    stage.hear_setup(2**20)
    stage.pass_time(10 * SECOND)
    assert stage.setup_request_count == 6
    stage.send(10)
    stage.pass_time(SECOND)
    stage.expect_everything()


def test_setups_of_other_terms_from_the_images_own_address_end_one_that_never_began() -> None:
    rig = ImageRig()
    rig.image.poll(0)
    terms = setup(term_length=2**20).initial_term_id, 2**20, rig.log.mtu_length
    for count in range(5, 8):
        connection = connect(rig.image, rig.outbox, rig.image.source, 0)
        assert rig.image.life.ended is None
        assert not rig.image.on_setup(
            terms,
            (terms[0], 0),
            destination=connection.destination,
            source=connection.source,
            now_ns=count * 100 * MS,
        )
        rig.image.poll(count * 100 * MS)
    ended = rig.image.life.ended
    assert ended is not None
    assert ended.reason is ImageEndReason.CONTRADICTED


def test_a_source_of_other_terms_is_found_out_by_what_fits_nowhere(stage: Stage) -> None:
    """No SETUP would come: its publisher is connected, by the image's status messages."""
    stage.rig.feed(data(0, 64, term_offset=TERM_LENGTH), stage.now_ns)
    stage.rig.feed(stage.frame(stage.sent), stage.now_ns)
    read_count = len(stage.read)
    for count in range(1, 31):
        stage.pass_time(100 * MS)
        assert len(stage.read) == read_count, "what follows may not follow"
        if stage.setup_request_count * 5 > count:
            stage.hear_setup(2**20)
    stage.pass_time(100 * MS)
    ended = stage.image.life.ended
    assert ended is not None
    assert ended.reason is ImageEndReason.CONTRADICTED


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_datagram_that_fits_nowhere_ends_no_image_whose_source_has_its_terms(
    stage: Stage, *, is_answered: bool
) -> None:
    """Readers wait for the answer, and for no other one for half a minute."""
    forged = data(0, 64, term_offset=TERM_LENGTH)
    stage.rig.feed(forged, stage.now_ns)
    stage.send(5)
    assert len(stage.read) == 20
    stage.pass_time(10 * MS)
    assert stage.setup_request_count == 1
    if is_answered:
        stage.hear_setup(stage.rig.log.term_length)
    stage.pass_time(210 * MS if is_answered else 3_100 * MS)
    stage.expect_everything()
    for _ in range(20):
        stage.rig.feed(forged, stage.now_ns)
        stage.send(1)
        stage.pass_time(SECOND)
        stage.expect_everything()
    assert stage.setup_request_count == (1 if is_answered else 6)
    stage.pass_time(10 * SECOND)
    stage.rig.feed(forged, stage.now_ns)
    stage.pass_time(50 * MS)
    assert stage.setup_request_count == (2 if is_answered else 7)


def held_back(stage: Stage) -> int:
    """Let the source send what fits nowhere, then a frame that fits; return what was read."""
    stage.rig.feed(data(0, 64, term_offset=TERM_LENGTH), stage.now_ns)
    stage.send(1)
    stage.pass_time(10 * MS)
    assert stage.setup_request_count == 1
    return len(stage.read)


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_the_end_of_a_stream_shows_nothing_that_was_sent_in_other_terms(
    stage: Stage, *, is_confirmed: bool
) -> None:
    """A publisher closes while its image asks; it answers no more."""
    read_count = held_back(stage)
    if is_confirmed:
        stage.hear_setup(stage.rig.log.term_length)
    stage.hear_setup(2**20)
    stage.rig.feed(heartbeat(stage.position, EOS), stage.now_ns)
    stage.pass_time(SECOND, heartbeats=False)
    ended = stage.image.life.ended
    assert ended is not None
    if is_confirmed:
        assert ended.reason is ImageEndReason.END_OF_STREAM
        assert len(stage.read) == read_count + 1
    else:
        assert ended.reason is ImageEndReason.CONTRADICTED
        assert len(stage.read) == read_count


def test_a_stranger_that_confirms_forged_terms_does_not_get_shown_what_is_held(
    stage: Stage,
) -> None:
    """Answers of both kinds release nothing: the image holds back, and ends."""
    read_count = held_back(stage)
    for _ in range(32):
        stage.hear_setup(stage.rig.log.term_length)
        stage.hear_setup(2**20)
        stage.pass_time(100 * MS)
        assert len(stage.read) == read_count
    ended = stage.image.life.ended
    assert ended is not None
    assert ended.reason is ImageEndReason.CONTRADICTED


def test_a_revocation_that_is_withdrawn_settles_no_doubt(stage: Stage) -> None:
    """What readers were given is forged, whether or not the stream was revoked since."""
    # A reader that is behind keeps the image from being done with.
    stage.rig.read = lambda **_: []  # type: ignore[method-assign]
    length = stage.starts[21] - stage.starts[20]
    stage.rig.feed(data(stage.position, length, flags=DataFlags(0x80)), stage.now_ns)
    stage.settle()
    stage.is_deaf = True
    stage.send(3)
    stage.pass_time(10 * MS)
    stage.rig.feed(heartbeat(stage.position, REVOKED), stage.now_ns)
    stage.pass_time(50 * MS, heartbeats=False)
    assert stage.image.state is ImageState.DRAINING
    stage.is_deaf = False
    stage.send(3)
    stage.pass_time(2 * SECOND)
    ended = stage.image.life.ended
    assert ended is not None
    assert ended.reason is ImageEndReason.CONTRADICTED


def test_an_image_that_was_contradicted_shows_nothing_more() -> None:
    """A reader that is always behind read on for ever, and its image never ended."""
    stage = Stage()
    stage.send(20)
    shown = stage.image.rebuild_position
    stage.image._doubts.prove_contradiction(shown, shown, shown)
    # The reader takes nothing, and the publisher goes on.
    stage.rig.read = lambda **_: []  # type: ignore[method-assign]
    for _ in range(10):
        stage.send(2)
        stage.pass_time(100 * MS)
        assert stage.image.rebuild_position == shown
    assert stage.image.life.ended is not None
    assert stage.image.life.ended.position == shown


@pytest.mark.parametrize("is_ahead", [False, True])
def test_a_source_that_begins_elsewhere_ends_an_image_that_never_began(*, is_ahead: bool) -> None:
    """The SETUP that was forged had the true terms, and another position."""
    rig = ImageRig(join_position=4 * TERM_LENGTH)
    rig.image.poll(0)
    terms = INITIAL_TERM_ID, rig.log.term_length, rig.log.mtu_length
    for count in range(5, 8):
        assert rig.image.life.ended is None
        connection = connect(rig.image, rig.outbox, rig.image.source, 0)
        assert not rig.image.on_setup(
            terms,
            (INITIAL_TERM_ID + (5 if is_ahead else 3), TERM_LENGTH - 32),
            destination=connection.destination,
            source=connection.source,
            now_ns=count * 100 * MS,
        )
        rig.image.poll(count * 100 * MS)
    ended = rig.image.life.ended
    assert ended is not None
    assert ended.reason is ImageEndReason.CONTRADICTED


def test_an_image_that_hears_other_setups_alone_for_three_seconds_ends(stage: Stage) -> None:
    """A frame was forged beside the SETUP, so that the image has begun."""
    for _ in range(35):
        assert stage.image.life.ended is None
        stage.pass_time(100 * MS, heartbeats=False)
        stage.hear_setup(2**20)
    stage.pass_time(100 * MS, heartbeats=False)
    ended = stage.image.life.ended
    assert ended is not None
    assert ended.reason is ImageEndReason.CONTRADICTED


def test_a_stranger_that_confirms_forged_terms_does_not_keep_a_stream_still(stage: Stage) -> None:
    """It says what the image has, and its source what is true; the image stands still."""
    for tenth in range(60):
        if stage.image.life.ended is not None:
            break
        stage.pass_time(100 * MS, heartbeats=False)
        # The publisher sends on, beyond what the image thinks it may, and a stranger keeps it idle.
        stage.rig.feed(data(stage.position + stage.rig.log.term_length // 2, 64), stage.now_ns)
        stage.rig.feed(heartbeat(stage.position), stage.now_ns)
        if tenth % 4 == 0:
            stage.hear_setup(stage.rig.log.term_length)
            stage.hear_setup(2**20)
    ended = stage.image.life.ended
    assert ended is not None
    assert ended.reason is ImageEndReason.CONTRADICTED


def test_heartbeats_that_are_read_at_once_with_forged_ones_count(stage: Stage) -> None:
    """What is read in one batch has one time, and the publisher says where it is."""
    behind = heartbeat(stage.starts[10])
    for _ in range(40):
        stage.rig.feed(behind, stage.now_ns)
        stage.rig.feed(heartbeat(stage.position), stage.now_ns)
        stage.pass_time(51 * MS, heartbeats=False)
        stage.rig.feed(behind, stage.now_ns)
        stage.pass_time(49 * MS, heartbeats=False)
    stage.expect_everything()


def test_a_publisher_that_has_not_come_as_far_as_was_read_is_believed(stage: Stage) -> None:
    """A frame forged at the end of a stream that stands still is found out by its heartbeats."""
    stage.rig.feed(data(stage.position, 64), stage.now_ns)
    stage.settle()
    stage.pass_time(3 * SECOND)
    ended = stage.image.life.ended
    assert ended is not None
    assert ended.reason is ImageEndReason.CONTRADICTED


def test_a_stream_goes_on_while_forged_frames_use_up_its_walks(stage: Stage) -> None:
    """Ways to far places are paid for by time; the first gap needs none, and moves on."""
    stage.is_deaf = True
    stage.send(40, lost=(22, 30))
    forged = [data(stage.starts[58] + 32, length) for length in (64, 96)]
    for _ in range(3_000):
        for each in forged:
            stage.rig.feed(each, stage.now_ns)
    assert stage.rig[DriverCounterId.LATE_PACKETS_DROPPED] > 0
    stage.is_deaf = False
    for _ in range(40):
        for each in 100 * forged:
            stage.rig.feed(each, stage.now_ns)
        stage.pass_time(50 * MS)
    stage.send(20)
    stage.pass_time(SECOND)
    stage.expect_everything()
