"""The life of a publication image as a table.

An image is ACTIVE while its source is heard and somebody reads it. Then it is DRAINING: it tells
the source goodbye and waits for its readers to take what has arrived. It LINGERs, out of the
receiver's sight, while clients may still look at its log, until it is DONE.

Source: Aeron `PublicationImage.State`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OUT_OF_SIGHT", "TRANSITIONS", "ImageEvent", "ImageState", "next_state"]


@final
class ImageState(Enum):
    """Where an image is in its life."""

    ACTIVE = auto()
    DRAINING = auto()
    LINGER = auto()
    DONE = auto()


OUT_OF_SIGHT: Final = frozenset({ImageState.LINGER, ImageState.DONE})
"""States in which neither the network nor the readers have to do with an image."""


@final
class ImageEvent(Enum):
    """What can happen to an image."""

    STREAM_ENDED = auto()
    """The source said so, and everything up to its end has arrived."""
    REVOKED = auto()
    """The source took the stream back."""
    SOURCE_SILENT = auto()
    """Nothing was heard for the image liveness timeout."""
    ABANDONED = auto()
    """The last subscription let go of it."""
    SUPERSEDED = auto()
    """A new response stream of the same server takes its place."""
    DRAINED = auto()
    """The readers have taken all that arrived, and the goodbye phase is over."""
    UNREAD = auto()
    """The readers took nothing for the image liveness timeout, and another stream waits."""
    LINGERED = auto()
    """No subscription holds it, or the image liveness timeout has passed again."""
    GAP_UNFILLED = auto()
    """What was missing did not come in time, though the source was heard."""
    CONTRADICTED = auto()
    """The source says that it sent something else than what readers were shown."""
    WENT_ON = auto()
    """The source is heard to go on behind what was taken for its end."""
    FAILED = auto()
    """Something broke that is this image's own, such as its congestion control."""


TRANSITIONS: Final[Mapping[tuple[ImageState, ImageEvent], ImageState]] = {
    (ImageState.ACTIVE, ImageEvent.STREAM_ENDED): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageEvent.REVOKED): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageEvent.SOURCE_SILENT): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageEvent.ABANDONED): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageEvent.SUPERSEDED): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageEvent.GAP_UNFILLED): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageEvent.CONTRADICTED): ImageState.DRAINING,
    (ImageState.DRAINING, ImageEvent.WENT_ON): ImageState.ACTIVE,
    (ImageState.DRAINING, ImageEvent.DRAINED): ImageState.LINGER,
    (ImageState.DRAINING, ImageEvent.UNREAD): ImageState.LINGER,
    (ImageState.LINGER, ImageEvent.LINGERED): ImageState.DONE,
    (ImageState.ACTIVE, ImageEvent.FAILED): ImageState.DRAINING,
    (ImageState.DRAINING, ImageEvent.FAILED): ImageState.LINGER,
    (ImageState.LINGER, ImageEvent.FAILED): ImageState.DONE,
}


def next_state(state: ImageState, event: ImageEvent) -> ImageState:
    """Return the state after `event`.

    Raises:
        KeyError: The table has no such transition; a mistake of ours, never of a peer.
    """
    return TRANSITIONS[state, event]
