"""What images may take of a driver, whoever asks for them.

A SETUP costs its sender 40 bytes, and asks for three terms. What cannot be granted is told by a few
comparisons, before anything is allocated; the reason is put into words only for the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from aeron_async.logbuffer.position import PARTITION_COUNT, compute_position, position_bits
from aeron_async.protocol.header import DATA_HEADER_LENGTH

if TYPE_CHECKING:
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.protocol.setup import Setup

__all__ = ["ImageBudget", "Refusal", "start_position", "window_refusal"]

Refusal: TypeAlias = tuple[str, tuple[object, ...]]
"""A sentence, and the values that `format` puts into it."""

TOO_MUCH: Final = "{} would be {}, and the limit is {}: raise {}"
BEFORE_ITS_START: Final = (
    "active term id {} lies before the initial term id {}: the sender of this SETUP is no driver "
    "of Aeron's"
)
NO_ROOM_FOR_DATA: Final = "mtu is {}: must be more than {}, the length of a data header"


class ImageBudget:
    """What the images of one driver have taken, and the most they may take.

    Args:
        context: The limits.

    Attributes:
        log_length: What their logs take, in bytes.
    """

    def __init__(self, context: DriverContext) -> None:
        self.log_length = 0
        self._context = context
        # Differs: Aeron's own limit is none unless set. Ours holds beside it.
        self._image_limit, self._image_setting = min(
            (context.max_images_per_stream, "max_images_per_stream"),
            (context.stream_session_limit, "stream_session_limit"),
        )

    def refusal(self, setup: Setup, *, image_count: int) -> Refusal | None:
        """Return why a stream is refused, or None where there is room for its image.

        Args:
            setup: What it asks for.
            image_count: How many images of the stream there are at the endpoint.
        """
        context, term_length = self._context, setup.term_length
        if image_count >= self._image_limit:
            return TOO_MUCH, ("sessions", image_count + 1, self._image_limit, self._image_setting)
        limit = context.max_image_term_length
        if term_length > limit:
            return TOO_MUCH, ("term-length", term_length, limit, "max_image_term_length")
        log_length = self.log_length + PARTITION_COUNT * term_length
        limit = context.image_log_budget_length
        if log_length > limit:
            return TOO_MUCH, ("image logs", log_length, limit, "image_log_budget_length")
        if setup.mtu_length <= DATA_HEADER_LENGTH:
            return NO_ROOM_FOR_DATA, (setup.mtu_length, DATA_HEADER_LENGTH)
        if start_position(setup) < 0:
            return BEFORE_ITS_START, (setup.active_term_id, setup.initial_term_id)
        return None

    def take(self, term_length: int) -> None:
        """Take note of an image that was made."""
        self.log_length += PARTITION_COUNT * term_length

    def give_back(self, term_length: int) -> None:
        """Take note of an image whose log was freed."""
        self.log_length -= PARTITION_COUNT * term_length


def start_position(setup: Setup) -> int:
    """Return where a stream is joined, in bytes; negative where no stream can be."""
    return compute_position(
        setup.active_term_id,
        setup.term_offset,
        initial_term_id=setup.initial_term_id,
        bits=position_bits(setup.term_length),
    )


def window_refusal(setup: Setup, receiver_window_length: int) -> Refusal | None:
    """Return why a stream is refused whose datagrams its window cannot hold, or None.

    Args:
        setup: What it asks for.
        receiver_window_length: As the subscription has it, in bytes.
    """
    window_length = min(receiver_window_length, setup.term_length // 2)
    if setup.mtu_length > window_length:
        setting = "rcv-wnd, or lower mtu at the publisher"
        return TOO_MUCH, ("mtu", setup.mtu_length, window_length, setting)
    return None
