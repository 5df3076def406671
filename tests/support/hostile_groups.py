"""Attacks on publications that have many receivers and ask none of them who it is.

A unicast publication hears one address; one with a group or with destinations hears every address.
So these attacks need no forged address, and they are made of frames that an honest receiver may
send: every sender that wants to be a receiver is one. What the attacks may cost is bounded, and
ends with them.

Source: the table of hostile peers in the documentation (`hostile-peers.md`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import ErrorFlags, StatusMessageFlags
from aeron_async.protocol.setup import ResponseSetup
from aeron_async.protocol.status_message import StatusMessage
from tests.support.victim import Shot, Target, Victim, any_int32, any_int64

if TYPE_CHECKING:
    from random import Random

    from tests.support.hostile import Attack

__all__ = ["GROUP_ATTACKS", "GROUP_TAG"]

GROUP_TAG: Final = 1_001
"""What tagged members say; whoever overhears one knows it."""
FAMILIAR_IDS: Final = 4


def unknown_destinations(victim: Victim, random: Random) -> Shot:
    """Announce one receiver after the other, as those of a dynamic channel announce themselves."""
    del victim
    announcement = StatusMessage(
        session_id=0,
        stream_id=0,
        receiver_id=any_int64(random),
        flags=StatusMessageFlags.SEND_SETUP,
    )
    return Target.SENDER, announcement.encode()


def unknown_members(victim: Victim, random: Random) -> Shot:
    """Join with one made-up receiver after the other, none of which is heard again."""
    position = victim.position - random.randrange(victim.term_length // 8)
    window_length = victim.term_length // 4
    return Target.SENDER, _member(victim, random, position, window_length, any_int64(random))


def members_without_room(victim: Victim, random: Random) -> Shot:
    """Join as receivers that have hardly any room, or none, and so stop whoever waits for all."""
    window_length = random.choice((0, 32, 1_024))
    receiver_id = random.randrange(FAMILIAR_IDS)
    return Target.SENDER, _member(victim, random, victim.position, window_length, receiver_id)


def members_that_come_and_go(victim: Victim, random: Random) -> Shot:
    """Join, leave, and reject the stream, over and over."""
    receiver_id = random.randrange(FAMILIAR_IDS)
    if random.random() < 0.3:
        error = ErrorFrame(
            flags=ErrorFlags.HAS_GROUP_TAG,
            session_id=victim.session_id,
            stream_id=victim.stream_id,
            receiver_id=receiver_id,
            group_tag=GROUP_TAG,
            error_code=13,
            message=b"not for me",
        )
        return Target.SENDER, error.encode()
    flags = random.choice((StatusMessageFlags(0), StatusMessageFlags.END_OF_STREAM))
    window_length = victim.term_length // 4
    shot = _member(victim, random, victim.position, window_length, receiver_id, flags=flags)
    return Target.SENDER, shot


def response_setups_of_a_stranger(victim: Victim, random: Random) -> Shot:
    """Name another session on which the stream is to be answered."""
    setup = ResponseSetup(
        session_id=victim.session_id,
        stream_id=victim.stream_id,
        response_session_id=any_int32(random),
    )
    return Target.SENDER, setup.encode()


GROUP_ATTACKS: Final[tuple[Attack, ...]] = (
    unknown_destinations,
    unknown_members,
    members_without_room,
    members_that_come_and_go,
    response_setups_of_a_stranger,
)
"""Every attack on those who have many receivers, by name."""


def _member(
    victim: Victim,
    random: Random,
    position: int,
    window_length: int,
    receiver_id: int,
    *,
    flags: StatusMessageFlags = StatusMessageFlags(0),  # noqa: B008 - no flags, which cannot change
) -> bytes:
    """Return a status message such as a member of the group would send."""
    term_id, term_offset = victim.place(max(0, position))
    return StatusMessage(
        session_id=victim.session_id,
        stream_id=victim.stream_id,
        consumption_term_id=term_id,
        consumption_term_offset=term_offset,
        receiver_window=window_length,
        receiver_id=receiver_id,
        flags=flags,
        group_tag=random.choice((None, GROUP_TAG)),
    ).encode()
