"""Session ids for publications that ask for none.

Source: Aeron `DriverConductor.nextAvailableSessionId`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.protocol.header import wrap_int32

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.core.publication_params import PublicationParams

__all__ = ["SessionIds", "chosen_session_id"]


class SessionIds:
    """A count through the signed 32-bit ids that leaves out a reserved range.

    Args:
        first: Where to start; random, so that a restarted driver does not meet its former self.
        reserved_low: First id never given out.
        reserved_high: Last id never given out.
    """

    def __init__(self, first: int, *, reserved_low: int, reserved_high: int) -> None:
        self._next = wrap_int32(first)
        self._reserved_low = reserved_low
        self._reserved_high = reserved_high

    def take(self, is_in_use: Callable[[int], bool]) -> int:
        """Return the next id that is neither reserved nor in use."""
        while True:
            if self._reserved_low <= self._next <= self._reserved_high:
                self._next = wrap_int32(self._reserved_high + 1)
            session_id = self._next
            self._next = wrap_int32(session_id + 1)
            if not is_in_use(session_id):
                return session_id


def chosen_session_id(
    session_ids: SessionIds,
    params: PublicationParams,
    is_in_use: Callable[[int], bool],
    *,
    where: str,
) -> int:
    """Return the session that the channel asks for, or the next free one.

    Args:
        session_ids: Where free ones come from.
        params: What the channel asks for.
        is_in_use: Says whether another publication has a session already.
        where: Stream and channel, for the message.

    Raises:
        RegistrationError: INVALID_CHANNEL; the session asked for is taken.

    Source: Aeron `DriverConductor.checkForSessionClash`.
    """
    if params.session_id is None:
        return session_ids.take(is_in_use)
    if is_in_use(params.session_id):
        message = (
            f"session-id={params.session_id} is in use by another publication of {where}: "
            "choose another, or leave session-id out"
        )
        raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)
    return params.session_id
