"""The life of a network publication as a table.

A publication is ACTIVE while a client holds it. Then it is DRAINING until all it was given has been
sent, and LINGERs to resend and to say that the stream has ended, until its receiver has said
goodbye or the linger timeout has passed. When DONE, nothing of it is used any more.

Source: Aeron `NetworkPublication.State`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TRANSITIONS", "PublicationEvent", "PublicationState", "next_state"]


@final
class PublicationState(Enum):
    """Where a network publication is in its life."""

    ACTIVE = auto()
    DRAINING = auto()
    LINGER = auto()
    DONE = auto()


@final
class PublicationEvent(Enum):
    """What can happen to a network publication."""

    RELEASED = auto()
    """The last client let go of it."""
    REVOKED = auto()
    """A client took the stream back, undelivered data and all."""
    DRAINED = auto()
    """All was sent, or nobody is left to send it to."""
    LINGERED = auto()
    """The receiver said goodbye, or the linger timeout passed."""
    FAILED = auto()
    """Something broke that is this publication's own, such as its flow control."""


TRANSITIONS: Final[Mapping[tuple[PublicationState, PublicationEvent], PublicationState]] = {
    (PublicationState.ACTIVE, PublicationEvent.RELEASED): PublicationState.DRAINING,
    (PublicationState.ACTIVE, PublicationEvent.REVOKED): PublicationState.LINGER,
    (PublicationState.DRAINING, PublicationEvent.DRAINED): PublicationState.LINGER,
    (PublicationState.LINGER, PublicationEvent.LINGERED): PublicationState.DONE,
    (PublicationState.ACTIVE, PublicationEvent.FAILED): PublicationState.DONE,
    (PublicationState.DRAINING, PublicationEvent.FAILED): PublicationState.DONE,
    (PublicationState.LINGER, PublicationEvent.FAILED): PublicationState.DONE,
}


def next_state(state: PublicationState, event: PublicationEvent) -> PublicationState:
    """Return the state after `event`.

    Raises:
        KeyError: The table has no such transition; a mistake of ours, never of a peer.
    """
    return TRANSITIONS[state, event]
