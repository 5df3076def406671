"""Hostile peers: an honest stream comes through, whatever a third host sends to either end."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeron_async.protocol.datagram import check_data, frame_type
from aeron_async.protocol.header import FrameType
from tests.sim.hostile import Figures, run_attacked
from tests.support import hostile
from tests.support.hostile import ATTACKS, Attack, shots
from tests.support.victim import Target, Victim, could_be_genuine

AMPLIFICATION_MAX: Final = 3
"""Bytes for each hostile byte, as in RFC 9000, section 8.1."""
ONCE_LENGTH: Final = 256 * 1024
"""What can be had once, however little is sent for it: 63 images, each with its status messages and
NAKs for as long as its source counts as alive, and some resends. In bytes."""

INVALID: Final = "Invalid packets"
NAKS: Final = "NAKs not answered"
MOVES: Final = {
    "nak_for_a_huge_range": NAKS,
    "nak_storm": NAKS,
    "nak_inside_a_frame": NAKS,
    "nak_for_anything": INVALID,
    "sm_out_of_bounds": "Status Messages rejected",
    "sm_with_any_window": INVALID,
    "sm_of_impossible_terms": INVALID,
    "sm_that_asks_for_setups": "Status Messages received",
    "sm_goodbye_of_a_stranger": "Goodbyes ignored",
    "error_of_a_stranger": "Error Frames ignored",
    "rttm_flood": "RTT measurements not answered",
    "setup_of_enormous_terms": "Images refused",
    "setup_flood": "Images refused",
    "setup_of_the_stream_with_other_terms": "Setups rejected",
    "streams_that_only_claim": "NAKs sent",
    "streams_full_of_gaps": "NAKs sent",
    "data_of_strangers": "Setups not elicited",
    "replayed_data": "Flow control under runs",
    "data_of_far_terms": "Packets of a term before the first",
    "short_frames": INVALID,
    "heartbeats_far_away": "Packets of a term before the first",
    "heartbeats_ahead": "Heartbeats received",
    "one_byte": INVALID,
    "longest_datagrams": INVALID,
    "noise": INVALID,
    "truncated_frames": INVALID,
    "flipped_bits": INVALID,
}
"""The counter that shows each attack."""


@cache
def undisturbed(seed: int = 1) -> Figures:
    return run_attacked(seed=seed)


def check_amplification(figures: Figures, *, seed: int = 1, once_length: int = 0) -> None:
    """Check that the two hosts sent little for each byte shot at them."""
    allowed = AMPLIFICATION_MAX * figures.shot_length + once_length
    assert figures.sent_length - undisturbed(seed).sent_length <= allowed
    assert figures.reflected_length <= allowed


@pytest.mark.untraced
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_honest_stream_comes_through_an_attack(attack: Attack) -> None:
    figures = run_attacked(attack)
    is_once = attack is hostile.streams_that_only_claim
    check_amplification(figures, once_length=ONCE_LENGTH if is_once else 0)
    label = MOVES[attack.__name__]
    assert figures.count(label) >= undisturbed().count(label) + 100


@pytest.mark.parametrize("seed", range(3))
def test_an_honest_stream_comes_through_all_attacks_at_once(seed: int) -> None:
    check_amplification(run_attacked(*ATTACKS, seed=seed), seed=seed)


@pytest.mark.untraced
def test_a_stream_that_has_nothing_to_say_ends_though_others_claim_that_it_said_more() -> None:
    run_attacked(hostile.heartbeats_ahead, is_idle=True)


@pytest.mark.untraced
@settings(max_examples=4, deadline=None)
@given(attacks=st.lists(st.sampled_from(ATTACKS), min_size=2, max_size=6))
def test_an_honest_stream_comes_through_any_mixture(attacks: list[Attack]) -> None:
    check_amplification(run_attacked(*attacks), once_length=ONCE_LENGTH)


def test_every_attack_has_a_counter_and_every_function_is_an_attack() -> None:
    assert set(MOVES) == {attack.__name__ for attack in ATTACKS}
    functions = {
        name
        for name, value in vars(hostile).items()
        if getattr(value, "__module__", "") == hostile.__name__ and not name.startswith("_")
    }
    assert functions == {*MOVES, "shots"}


def victim(position: int) -> Victim:
    return Victim(
        session_id=-77,
        stream_id=1001,
        initial_term_id=2**31 - 2,
        term_length=2**16,
        mtu_length=1408,
        position=position,
    )


@pytest.mark.parametrize("position", [0, 4_096, 10_000_000, 2**47 - 64])
def test_a_seed_shoots_the_same_and_nothing_that_only_a_signature_could_tell(position: int) -> None:
    each = victim(position)
    drawn = [shot for shot, _ in zip(shots(each, Random(5)), range(2_000), strict=False)]
    again = [shot for shot, _ in zip(shots(each, Random(5)), range(2_000), strict=False)]
    assert drawn == again
    for target, datagram in drawn:
        assert 0 < len(datagram) <= 65_507
        if target is Target.RECEIVER and could_be_genuine(each, datagram):
            assert not is_data(each, datagram), "only what is no valid data"


def is_data(victim: Victim, datagram: bytes) -> bool:
    if frame_type(datagram) not in {FrameType.PAD, FrameType.DATA}:
        return False
    initial_term_id, term_length = victim.initial_term_id, victim.term_length
    return check_data(datagram, initial_term_id=initial_term_id, term_length=term_length) > 0
