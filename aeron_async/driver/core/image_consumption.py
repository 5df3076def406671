"""What the readers of an image have taken, and what follows from that for its log and its sources.

Source: Aeron `PublicationImage.trackRebuild`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.logbuffer.cleaner import clean_to

if TYPE_CHECKING:
    from aeron_async.driver.core.image_feedback import ImageFeedback
    from aeron_async.driver.core.subscriber_positions import SubscriberPositions
    from aeron_async.logbuffer.term_log import LogBuffers

__all__ = ["ImageConsumption"]


class ImageConsumption:
    """Makes room behind the slowest reader, and lets the sources know.

    Args:
        log: Where the image is rebuilt.
        subscribers: Its readers.
        feedback: Tells the sources.
        position: Where the image joined, in bytes.
    """

    __slots__ = ("_clean_position", "_feedback", "_log", "_subscribers")

    def __init__(
        self,
        log: LogBuffers,
        subscribers: SubscriberPositions,
        feedback: ImageFeedback,
        position: int,
    ) -> None:
        self._log = log
        self._subscribers = subscribers
        self._feedback = feedback
        self._clean_position = position

    def schedule(self, position: int, window_length: int, *, is_forced: bool) -> None:
        """Let a status message say how far the slowest has come, if that is worth one.

        Args:
            position: Of the slowest reader, in bytes.
            window_length: What the sources may send beyond, in bytes.
            is_forced: Whether the sources are to know in any case.
        """
        if self._feedback.schedule(position, window_length, is_forced=is_forced):
            self._clean_position = clean_to(
                self._log,
                clean_position=self._clean_position,
                position=position - self._log.term_length,
            )

    def report(self, now_ns: int) -> bool:
        """Send the status message that is due by now; return False where nobody reads."""
        consumed = self._subscribers.consumed()
        if not consumed:
            return False
        feedback = self._feedback
        self.schedule(min(consumed), feedback.window_length, is_forced=False)
        feedback.poll(now_ns)
        return True
