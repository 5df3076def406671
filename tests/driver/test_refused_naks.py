"""A publication that refuses the same NAK again and again says so."""

from __future__ import annotations

from structlog.testing import capture_logs

from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.logbuffer.position import max_message_length
from tests.driver.fakes import MS, SOURCE, nak
from tests.driver.rigs import PublicationRig
from tests.logbuffer.logs import TERM_LENGTH


def test_a_nak_that_is_refused_again_and_again_is_told_once_a_second_with_its_source() -> None:
    """1,955 NAKs were refused, and neither end said a word."""
    rig = PublicationRig()
    rig.connect(0)
    rig.offer(bytes(992))
    rig.poll(0)
    with capture_logs() as lines:
        for count in range(2_500):
            rig.hear_nak(nak(256, 64), count * MS, source=SOURCE)
    told = [line for line in lines if line["event"] == "naks_refused"]
    assert rig.counts[DriverCounterId.NAKS_REJECTED] == 2_500
    assert len(told) == 3
    assert told[0]["source"] == SOURCE
    assert (told[0]["position"], told[0]["count"]) == (256, 8)
    assert told[0]["reason"] == "no frame begins there"


def test_naks_that_are_refused_once_are_no_news() -> None:
    rig = PublicationRig()
    rig.connect(0)
    rig.offer(bytes(992))
    rig.poll(0)
    with capture_logs() as lines:
        for position in range(32, 960, 32):
            rig.hear_nak(nak(position, 64), MS, source=SOURCE)
    assert not [line for line in lines if line["event"] == "naks_refused"]


def test_a_nak_for_data_that_has_left_the_log_says_that_its_receiver_is_too_slow() -> None:
    rig = PublicationRig()
    rig.connect(0)
    # More than half a term and the longest message: the log still has what is asked for.
    sent = 0
    while sent < TERM_LENGTH // 2 + max_message_length(TERM_LENGTH) + 2_048:
        rig.offer(bytes(992))
        sent += 1_024
        rig.poll(0)
        rig.hear(sent, 0)
        rig.poll(0)
    assert rig.publication.sender_position == sent
    with capture_logs() as lines:
        for count in range(8):
            rig.hear_nak(nak(0, 1_024), count * MS, source=SOURCE)
    (line,) = [line for line in lines if line["event"] == "naks_refused"]
    assert line["reason"] == "the data has left the log"
    assert "fc=min" in line["remedy"]
    assert rig.counts[DriverCounterId.NAKS_REJECTED] == 8
    assert rig.poll(8 * MS) == []
