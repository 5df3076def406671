"""What images may take of a driver, whoever asks for them.

A SETUP costs its sender 40 bytes, and asks for three terms. What cannot be granted is told by a few
comparisons, before anything is allocated; the reason is put into words only for the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from aeron_async.errors import ErrorCode
from aeron_async.logbuffer.position import PARTITION_COUNT, compute_position, position_bits
from aeron_async.protocol.header import DATA_HEADER_LENGTH

if TYPE_CHECKING:
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.protocol.setup import Setup

__all__ = ["ImageBudget", "Refusal", "start_position", "window_refusal"]

TOO_MUCH: Final = "{} would be {}, and the limit is {}: raise {}"
TOO_MUCH_TWICE: Final = f"{TOO_MUCH}; {TOO_MUCH}"
BEFORE_ITS_START: Final = (
    "active term id {} lies before the initial term id {}: the sender of this SETUP is no driver "
    "of Aeron's"
)
NO_ROOM_FOR_DATA: Final = "mtu is {}: must be more than {}, the length of a data header"
WINDOW_TOO_SHORT: Final = (
    "mtu would be {}, and the limit is {}: raise rcv-wnd, or lower mtu at the publisher"
)


class Refusal(NamedTuple):
    """Why a stream is not joined, put into words only where they are read.

    Attributes:
        sentence: For the log of the receiver, with places for the values.
        values: What `format` puts there.
        brief: For the publisher, with places for the same values.
        code: For the publisher.
    """

    sentence: str
    values: tuple[object, ...] = ()
    brief: str = "the stream cannot be joined, and the log of the receiver says why"
    code: ErrorCode = ErrorCode.GENERIC

    @classmethod
    def by_limits(cls, *limits: tuple[str, int, int, str]) -> Refusal:
        """Return that of a stream that exceeds one limit or two.

        Args:
            limits: What would be too much, how much, the limit, and the setting that says so.
        """
        values = tuple(value for limit in limits for value in limit)
        code = ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE
        if len(limits) == 1:
            return cls(TOO_MUCH, values, "the receiver's {3} is {2}", code)
        return cls(TOO_MUCH_TWICE, values, "{3} is {2}, {7} is {6}", code)

    def reason(self) -> str:
        """Return the whole reason, for the log."""
        return self.sentence.format(*self.values) if self.values else self.sentence

    def brief_reason(self) -> str:
        """Return the reason as the publisher is told."""
        return self.brief.format(*self.values)


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
            limit = self._image_limit
            return Refusal.by_limits(("sessions", image_count + 1, limit, self._image_setting))
        log_length = self.log_length + PARTITION_COUNT * term_length
        asked = (
            ("term-length", term_length, context.max_image_term_length, "max_image_term_length"),
            ("image logs", log_length, context.image_log_budget_length, "image_log_budget_length"),
        )
        # Both at once: otherwise one is found to be too low when the other has been raised.
        limits = [each for each in asked if each[1] > each[2]]
        if limits:
            return Refusal.by_limits(*limits)
        if setup.mtu_length <= DATA_HEADER_LENGTH:
            return Refusal(NO_ROOM_FOR_DATA, (setup.mtu_length, DATA_HEADER_LENGTH))
        if start_position(setup) < 0:
            return Refusal(BEFORE_ITS_START, (setup.active_term_id, setup.initial_term_id))
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
        values = setup.mtu_length, window_length
        brief = "mtu {} exceeds the receiver's window of {}"
        return Refusal(WINDOW_TOO_SHORT, values, brief, ErrorCode.NOT_SUPPORTED)
    return None
