"""Why an offer that does not wait appended nothing.

Source: Aeron `Publication.NOT_CONNECTED` and its neighbours.
"""

from __future__ import annotations

from enum import Enum
from typing import final

from aeron_async.logbuffer.appender import AppendResult

__all__ = ["OfferOutcome"]


@final
class OfferOutcome(Enum):
    """The expected, as a value; what can never succeed raises instead."""

    NOT_CONNECTED = AppendResult.NOT_CONNECTED
    """No subscriber is there, or none yet."""
    BACK_PRESSURED = AppendResult.BACK_PRESSURED
    """The subscribers have no room for more, for now."""
    ADMIN_ACTION = AppendResult.ADMIN_ACTION
    """The log went on to its next term: try again at once."""
