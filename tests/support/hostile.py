"""What a stranger may send who knows a stream and wants it harm, one function for each attack.

There is no authentication on the wire, so whoever knows the session id and the position of a stream
can write frames that nobody can tell from its own. Those are left out: valid data within the window
with another payload, the end of the stream announced within the window, a goodbye with the receiver
id of the real receiver. `could_be_genuine` says which, and everything else must change nothing.

Source: the table of hostile peers in the documentation (`hostile-peers.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import (
    DATA_HEADER_LENGTH,
    FRAME_ALIGNMENT,
    DataFlags,
    RttFlags,
    StatusMessageFlags,
    wrap_int32,
)
from aeron_async.protocol.rtt import RttMeasurement
from tests.support.victim import (
    INT32,
    Shot,
    Target,
    Victim,
    any_int32,
    any_int64,
    could_be_genuine,
)

if TYPE_CHECKING:
    from random import Random

__all__ = ["ATTACKS", "Attack", "shots"]

LONGEST_DATAGRAM: Final = 65_507
"""The most that UDP over IPv4 can carry, in bytes."""
MANY_SESSIONS: Final = 5_000
FLIPPED_BITS_MAX: Final = 8


Attack = Callable[[Victim, "Random"], Shot]
"""Makes one datagram; whatever it draws, it draws from the dice."""


# At the publication.


def nak_for_a_huge_range(victim: Victim, random: Random) -> Shot:
    """Ask for all there is, with 28 bytes."""
    term_id, term_offset = victim.place(max(0, victim.position - random.randrange(4096)))
    length = random.choice((victim.term_length - term_offset, victim.term_length // 2, INT32 - 1))
    return Target.SENDER, victim.nak(term_id, term_offset, length)


def nak_storm(victim: Victim, random: Random) -> Shot:
    """Ask for one small range after the other, none of them twice in a row."""
    behind = random.randrange(victim.term_length // 2)
    term_id, term_offset = victim.place(max(0, victim.position - behind))
    return Target.SENDER, victim.nak(term_id, term_offset, victim.mtu_length)


def nak_inside_a_frame(victim: Victim, random: Random) -> Shot:
    """Ask from where payload lies, which may look like a header."""
    term_id, term_offset = victim.place(max(0, victim.position - random.randrange(8192)))
    term_offset = min(term_offset + random.choice((1, 8, 31, 32, 64, 96)), victim.term_length - 1)
    return Target.SENDER, victim.nak(term_id, term_offset, random.randrange(1, 8192))


def nak_for_anything(victim: Victim, random: Random) -> Shot:
    """Ask for what never was, and never can be."""
    return Target.SENDER, victim.nak(any_int32(random), any_int32(random), any_int32(random))


def sm_out_of_bounds(victim: Victim, random: Random) -> Shot:
    """Claim to have consumed what was never sent, or what was long ago."""
    away = random.randrange(2, 2**10) * victim.term_length
    term_id, term_offset = victim.place(victim.position + random.choice((-away, away)))
    return Target.SENDER, victim.sm(random, term_id, term_offset, victim.term_length // 4)


def sm_with_any_window(victim: Victim, random: Random) -> Shot:
    """Claim to have room for everything, or for less than nothing."""
    half_term = victim.term_length // 2
    window_length = random.choice((INT32 - 1, -INT32, -1, half_term + 1, half_term, 0))
    return Target.SENDER, victim.sm(random, *victim.place(victim.position), window_length)


def sm_of_impossible_terms(victim: Victim, random: Random) -> Shot:
    """Name terms and offsets that no stream has."""
    return Target.SENDER, victim.sm(random, any_int32(random), any_int32(random), any_int32(random))


def sm_that_asks_for_setups(victim: Victim, random: Random) -> Shot:
    """Ask for a SETUP, and again."""
    flags = StatusMessageFlags.SEND_SETUP
    return Target.SENDER, victim.sm(random, 0, 0, 0, flags)


def sm_goodbye_of_a_stranger(victim: Victim, random: Random) -> Shot:
    """Leave for somebody who never was there."""
    place = victim.place(victim.position)
    flags = StatusMessageFlags.END_OF_STREAM
    return Target.SENDER, victim.sm(random, *place, 0, flags)


def error_of_a_stranger(victim: Victim, random: Random) -> Shot:
    """Reject the stream for somebody who never was there."""
    error = ErrorFrame(
        session_id=victim.session_id,
        stream_id=victim.stream_id,
        receiver_id=any_int64(random),
        error_code=13,
        message=random.randbytes(random.choice((0, 20, 1023))),
        error_length=random.choice((0, 20, 1023, -1, INT32 - 1)),
    )
    return Target.SENDER, error.encode()


def rttm_flood(victim: Victim, random: Random) -> Shot:
    """Ask either end to measure the round trip, or answer what it never asked."""
    rttm = RttMeasurement(
        session_id=victim.session_id,
        stream_id=victim.stream_id,
        echo_timestamp_ns=any_int64(random),
        reception_delta_ns=any_int64(random),
        receiver_id=random.choice((0, any_int64(random))),
        flags=random.choice((RttFlags.REPLY, RttFlags.REPLY, RttFlags(0))),
    )
    return random.choice(tuple(Target)), rttm.encode()


# At the subscription.


def setup_of_enormous_terms(victim: Victim, random: Random) -> Shot:
    """Begin thousands of streams with the longest terms there are."""
    return Target.RECEIVER, victim.setup(session_id=_session(random), term_length=2**30)


def setup_flood(victim: Victim, random: Random) -> Shot:
    """Begin thousands of streams with terms that any receiver would take."""
    term_length = random.choice((2**16, 2**24))
    return Target.RECEIVER, victim.setup(session_id=_session(random), term_length=term_length)


def setup_of_the_stream_with_other_terms(victim: Victim, random: Random) -> Shot:
    """Begin the stream that is there again, as another one."""
    other = random.choice(
        (
            {"initial_term_id": _far_term(victim, random)},
            {"term_length": 2**16 if victim.term_length > 2**16 else 2**17},
            {"term_length": random.choice((0, -1, 65_537, INT32 - 1))},
            {"mtu_length": random.choice((0, 32, 100, victim.mtu_length + 32, INT32 - 1))},
        )
    )
    if "initial_term_id" in other:
        other["active_term_id"] = other["initial_term_id"]
    return Target.RECEIVER, victim.setup(**other)


def streams_that_only_claim(victim: Victim, random: Random) -> Shot:
    """Begin streams, and say that much of them was sent: will it be asked for, again and again?"""
    session_id = _session(random) % 64
    if random.random() < 0.5:
        return Target.RECEIVER, victim.setup(session_id=session_id, term_length=2**16)
    term_offset = random.randrange(0, 2**15, FRAME_ALIGNMENT)
    return Target.RECEIVER, victim.data(0, victim.initial_term_id, term_offset, session_id)


def streams_full_of_gaps(victim: Victim, random: Random) -> Shot:
    """Begin streams, and send every other frame of them."""
    session_id = _session(random) % 16
    if random.random() < 0.1:
        return Target.RECEIVER, victim.setup(session_id=session_id, term_length=2**16)
    term_offset = random.randrange(0, 2**15, 2 * FRAME_ALIGNMENT)
    return Target.RECEIVER, victim.data(32, victim.initial_term_id, term_offset, session_id)


def data_of_strangers(victim: Victim, random: Random) -> Shot:
    """Send data of unknown sessions: each might be asked for a SETUP, wherever it says it is."""
    return Target.RECEIVER, victim.data(32, any_int32(random), 0, any_int32(random))


def replayed_data(victim: Victim, random: Random) -> Shot:
    """Send again what was consumed long ago, with another payload."""
    half_term = victim.term_length // 2
    position = victim.position - half_term - FRAME_ALIGNMENT - random.randrange(half_term)
    return Target.RECEIVER, victim.data(64, *victim.place(position)) + random.randbytes(32)


def data_of_far_terms(victim: Victim, random: Random) -> Shot:
    """Send data of terms that were not reached, or that lie before the first."""
    away = random.randrange(3, 2**10) * victim.term_length
    term_id, term_offset = victim.place(victim.position + random.choice((-away, away)))
    return Target.RECEIVER, victim.data(32, term_id, term_offset)


def short_frames(victim: Victim, random: Random) -> Shot:
    """Send frames that are shorter than their header, right where the stream is."""
    place = victim.place(victim.position + random.randrange(victim.term_length // 2))
    frame_length = random.choice((*range(1, 32), -1, -INT32))
    return Target.RECEIVER, victim.data(frame_length, *place)


def heartbeats_far_away(victim: Victim, random: Random) -> Shot:
    """Say that the stream is, or ends, where it cannot be."""
    away = random.randrange(3, 2**10) * victim.term_length
    place = victim.place(victim.position + random.choice((-away, away)))
    flags = random.choice((DataFlags.UNFRAGMENTED, DataFlags.END_OF_STREAM, DataFlags.REVOKED))
    return Target.RECEIVER, victim.data(0, *place, flags=flags)


def heartbeats_ahead(victim: Victim, random: Random) -> Shot:
    """Say that more was sent than was, as far ahead as is believed."""
    place = victim.place(victim.position + random.randrange(victim.term_length // 2))
    return Target.RECEIVER, victim.data(0, *place)


# At either.


def one_byte(victim: Victim, random: Random) -> Shot:
    """Send as little as there is; what is empty never gets to a driver that asks for bytes."""
    del victim
    return random.choice(tuple(Target)), random.randbytes(1)


def longest_datagrams(victim: Victim, random: Random) -> Shot:
    """Send as much as there is: data that covers more than a term, or what is no frame."""
    body = bytes(LONGEST_DATAGRAM - DATA_HEADER_LENGTH)
    frame_length = random.choice((LONGEST_DATAGRAM, 32, INT32 - 1, 0))
    place = victim.place(victim.position)
    return random.choice(tuple(Target)), victim.data(frame_length, *place) + body


def noise(victim: Victim, random: Random) -> Shot:
    """Send random bytes."""
    del victim
    return random.choice(tuple(Target)), random.randbytes(random.randint(1, 1408))


def truncated_frames(victim: Victim, random: Random) -> Shot:
    """Send real frames without their end."""
    target, frame = _real_frame(victim, random)
    return target, frame[: random.randrange(1, len(frame))]


def flipped_bits(victim: Victim, random: Random) -> Shot:
    """Send real frames with some bits turned over."""
    while True:
        target, frame = _real_frame(victim, random)
        damaged = bytearray(frame)
        for _ in range(random.randint(1, FLIPPED_BITS_MAX)):
            damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        if not could_be_genuine(victim, bytes(damaged)):
            return target, bytes(damaged)


ATTACKS: Final[tuple[Attack, ...]] = (
    nak_for_a_huge_range,
    nak_storm,
    nak_inside_a_frame,
    nak_for_anything,
    sm_out_of_bounds,
    sm_with_any_window,
    sm_of_impossible_terms,
    sm_that_asks_for_setups,
    sm_goodbye_of_a_stranger,
    error_of_a_stranger,
    rttm_flood,
    setup_of_enormous_terms,
    setup_flood,
    setup_of_the_stream_with_other_terms,
    streams_that_only_claim,
    streams_full_of_gaps,
    data_of_strangers,
    replayed_data,
    data_of_far_terms,
    short_frames,
    heartbeats_far_away,
    heartbeats_ahead,
    one_byte,
    longest_datagrams,
    noise,
    truncated_frames,
    flipped_bits,
)
"""Every attack there is, by name."""


def shots(victim: Victim, random: Random, attacks: Sequence[Attack] = ATTACKS) -> Iterator[Shot]:
    """Yield datagrams without end, each of an attack that is drawn anew.

    Args:
        victim: Whom to shoot at; its position may change meanwhile.
        random: The dice; the same seed shoots the same.
        attacks: Which to draw from.
    """
    while True:
        yield random.choice(attacks)(victim, random)


def _real_frame(victim: Victim, random: Random) -> Shot:
    """Return a frame such as the stream's own ends send."""
    place = victim.place(victim.position)
    receiver_window = victim.term_length // 4
    return random.choice(
        (
            (Target.SENDER, victim.nak(*place, 64)),
            (Target.SENDER, victim.sm(random, *place, receiver_window)),
            rttm_flood(victim, random),
            error_of_a_stranger(victim, random),
            (Target.RECEIVER, victim.setup()),
            (Target.RECEIVER, victim.data(0, *place)),
            replayed_data(victim, random),
        )
    )


def _session(random: Random) -> int:
    return random.randrange(MANY_SESSIONS)


def _far_term(victim: Victim, random: Random) -> int:
    """Return a first term from which the stream's data lies far out of any window."""
    return wrap_int32(victim.initial_term_id + random.randrange(2**20, 2**30))
