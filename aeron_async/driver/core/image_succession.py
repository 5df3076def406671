"""Rules by which a new response stream may take the place of an old one.

A server that restarts names a new session for its responses, or begins the old one again. Both are
said by frames that a stranger can forge, so neither ends a stream that is heard: honest publishers
send a heartbeat every 100 ms, and only a stream that has missed five of them gives way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.context import HEARTBEAT_INTERVAL_NS
from aeron_async.driver.core.image_state import ImageState
from aeron_async.protocol.datagram import check_setup

if TYPE_CHECKING:
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.publication_image import PublicationImage
    from aeron_async.protocol.setup import Setup

__all__ = ["SUCCESSION_SILENCE_NS", "begins_again", "gives_way", "gives_way_ns"]

SUCCESSION_SILENCE_NS: Final = 5 * HEARTBEAT_INTERVAL_NS
"""How long a response stream has to be silent before another may take its place."""


def gives_way(image: PublicationImage, now_ns: int) -> bool:
    """Return whether a response stream has ended, or is silent, so that another may follow it."""
    return now_ns >= gives_way_ns(image)


def gives_way_ns(image: PublicationImage) -> int:
    """Return since when another stream may follow, or from when if nothing more is heard of it."""
    if image.state is not ImageState.ACTIVE:
        return image.ended_ns
    heard_ns = max((each.last_activity_ns for each in image.connections), default=0)
    return heard_ns + SUCCESSION_SILENCE_NS


def begins_again(image: PublicationImage, setup: Setup, source: Address, now_ns: int) -> bool:
    """Return whether a SETUP begins a new response stream with the session of an image.

    Its terms tell. Of a server that fixes session and initial term alike, two lives look the same.

    Args:
        image: Has the session; it follows the session that answers.
        setup: What came.
        source: Where it came from.
        now_ns: The time now.
    """
    log = image.log
    if source != image.source or not gives_way(image, now_ns) or not check_setup(setup):
        return False
    terms = setup.initial_term_id, setup.term_length, setup.mtu_length
    return terms != (log.initial_term_id, log.term_length, log.mtu_length)
