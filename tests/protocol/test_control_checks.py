"""Which control frames are believed: each limit from both of its sides."""

from __future__ import annotations

import attrs
import pytest

from aeron_async.protocol.datagram import check_nak, check_setup, check_status_message
from aeron_async.protocol.header import StatusMessageFlags
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage

TERM_LENGTH = 65536
SETUP = Setup(
    term_offset=0,
    session_id=1,
    stream_id=2,
    initial_term_id=3,
    active_term_id=3,
    term_length=TERM_LENGTH,
    mtu_length=1408,
)
NAK = Nak(session_id=1, stream_id=2, term_id=3, term_offset=0, length=32)
SM = StatusMessage(session_id=1, stream_id=2, receiver_id=3)


@pytest.mark.parametrize("term_length", [2**16, 2**17, 2**30])
def test_a_setup_with_a_legal_term_is_believed(term_length: int) -> None:
    assert check_setup(attrs.evolve(SETUP, term_length=term_length, term_offset=term_length - 32))


@pytest.mark.parametrize(
    "term_length", [-(2**31), -65536, 0, 2**15, 2**16 + 32, 3 * 2**16, 2**30 + 1]
)
def test_a_setup_with_another_term_length_is_not(term_length: int) -> None:
    assert not check_setup(attrs.evolve(SETUP, term_length=term_length))


@pytest.mark.parametrize("term_offset", [-32, 1, 16, TERM_LENGTH, TERM_LENGTH + 32])
def test_a_setup_with_an_offset_outside_its_term_is_not(term_offset: int) -> None:
    assert not check_setup(attrs.evolve(SETUP, term_offset=term_offset))


@pytest.mark.parametrize(
    ("mtu_length", "expected"),
    [
        (32, True),
        (65504, True),
        (0, False),
        (-32, False),
        (48, False),
        (1407, False),
        (65536, False),
    ],
)
def test_a_setup_has_an_mtu_of_whole_alignments_within_a_udp_payload(
    mtu_length: int, *, expected: bool
) -> None:
    assert check_setup(attrs.evolve(SETUP, mtu_length=mtu_length)) is expected


@pytest.mark.parametrize(
    ("term_offset", "length", "expected"),
    [
        (0, 0, True),
        (0, TERM_LENGTH, True),
        (0, TERM_LENGTH + 1, False),
        (TERM_LENGTH - 32, 32, True),
        (TERM_LENGTH - 32, 33, False),
        (TERM_LENGTH, 0, False),
        (-32, 32, False),
        (33, 32, False),
        (32, -1, False),
        (32, 2**31 - 1, False),
    ],
)
def test_a_nak_asks_for_bytes_of_one_term(term_offset: int, length: int, *, expected: bool) -> None:
    nak = attrs.evolve(NAK, term_offset=term_offset, length=length)
    assert check_nak(nak, TERM_LENGTH) is expected


@pytest.mark.parametrize(
    ("receiver_window", "expected"),
    [(0, True), (TERM_LENGTH // 2, True), (TERM_LENGTH // 2 + 1, False), (-1, False)],
)
def test_a_window_is_at_most_half_a_term(receiver_window: int, *, expected: bool) -> None:
    sm = attrs.evolve(SM, receiver_window=receiver_window)
    assert check_status_message(sm, TERM_LENGTH) is expected


@pytest.mark.parametrize(
    ("term_offset", "expected"),
    [(0, True), (TERM_LENGTH - 32, True), (TERM_LENGTH, False), (-32, False), (1, False)],
)
def test_a_consumption_offset_lies_in_its_term(term_offset: int, *, expected: bool) -> None:
    sm = attrs.evolve(SM, consumption_term_offset=term_offset)
    assert check_status_message(sm, TERM_LENGTH) is expected


def test_a_status_message_of_an_unknown_publication_is_held_to_the_longest_term() -> None:
    assert check_status_message(attrs.evolve(SM, receiver_window=2**29))
    assert not check_status_message(attrs.evolve(SM, receiver_window=2**29 + 1))


def test_an_eliciting_status_message_says_nothing_and_is_believed() -> None:
    sm = attrs.evolve(SM, session_id=0, stream_id=0, flags=StatusMessageFlags.SEND_SETUP)
    assert check_status_message(sm, TERM_LENGTH)
