"""Why an image ended, and where: what its clients are told.

Source: Aeron has none; its images end without a word of the reason.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import final

import attrs

__all__ = ["ImageEnd", "ImageEndReason"]


@final
class ImageEndReason(Enum):
    """Why an image is over."""

    END_OF_STREAM = auto()
    """The publisher ended the stream, and all of it arrived."""
    REVOKED = auto()
    """The publisher took the stream back."""
    SOURCE_SILENT = auto()
    """Nothing was heard of the publisher for the image liveness timeout."""
    GAP_UNFILLED = auto()
    """What was missing did not come for the image gap timeout, though the publisher was heard."""
    CONTRADICTED = auto()
    """The publisher says that it sent something else than what readers were shown."""
    SUPERSEDED = auto()
    """Another stream took its place: the one that a server answers on now."""
    FAILED = auto()
    """Something broke in this driver, such as the congestion control of the image."""
    LEFT_BEHIND = auto()
    """The stream went on without this subscription, which has `tether=false`."""
    CLOSED = auto()
    """The subscription, its client or the driver was closed."""


@attrs.frozen(kw_only=True)
class ImageEnd:
    """Why an image ended, and where.

    Attributes:
        reason: Why.
        position: Up to where the stream was whole, in bytes.
        start_position: Where what is missing or contradicted begins; else the same as `position`.
        end_position: Where it ends, as far as that is known.
    """

    reason: ImageEndReason
    position: int
    start_position: int
    end_position: int

    @classmethod
    def at(cls, reason: ImageEndReason, position: int) -> ImageEnd:
        """Return the end of an image of which nothing is missing up to a position."""
        return cls(reason=reason, position=position, start_position=position, end_position=position)
