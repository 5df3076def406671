"""The life of a subscriber position as a table.

A tethered subscriber is ACTIVE for good: it holds its stream back. An untethered one that stands at
the end of the window for too long has its image taken away and LINGERs, still holding the stream
back, until its client has let go of the log. Then it is RESTING, counted by nobody, until it may
join again; or CLOSED where the subscription does not rejoin.

Source: Aeron `UntetheredSubscription.State`, `aeron_subscription_tether_state_t`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TRANSITIONS", "TetherEvent", "TetherState", "next_state"]


@final
class TetherState(Enum):
    """Where a subscriber position is in its life."""

    ACTIVE = auto()
    LINGER = auto()
    RESTING = auto()
    CLOSED = auto()


@final
class TetherEvent(Enum):
    """What can happen to the position of an untethered subscriber."""

    LEFT_BEHIND = auto()
    """It stood at the end of the window for the window limit timeout."""
    SET_ASIDE = auto()
    """The linger timeout passed, and its subscription rejoins."""
    GIVEN_UP = auto()
    """The linger timeout passed, and its subscription does not rejoin."""
    REJOINED = auto()
    """The resting timeout passed."""


TRANSITIONS: Final[Mapping[tuple[TetherState, TetherEvent], TetherState]] = {
    (TetherState.ACTIVE, TetherEvent.LEFT_BEHIND): TetherState.LINGER,
    (TetherState.LINGER, TetherEvent.SET_ASIDE): TetherState.RESTING,
    (TetherState.LINGER, TetherEvent.GIVEN_UP): TetherState.CLOSED,
    (TetherState.RESTING, TetherEvent.REJOINED): TetherState.ACTIVE,
}


def next_state(state: TetherState, event: TetherEvent) -> TetherState:
    """Return the state after `event`.

    Raises:
        KeyError: The table has no such transition; a mistake of ours, never of a peer.
    """
    return TRANSITIONS[state, event]
