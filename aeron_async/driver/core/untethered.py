"""Leaving slow subscribers behind that asked for it with `tether=false`.

A subscriber that stands in the last quarter of the window for too long loses its image, so that the
others need not wait for it, and joins again after a rest.

Source: Aeron `UntetheredSubscription`, `checkUntetheredSubscriptions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.driver.core.untethered_state import TetherEvent, TetherState
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from typing import Self

    from aeron_async.driver.core.subscriber_positions import (
        Subscribable,
        SubscribableListener,
        SubscriberPosition,
    )
    from aeron_async.logbuffer.metadata import LogMetadata

__all__ = ["UntetheredCheck", "UntetheredTimeouts"]

SHORTEST_TIMEOUT_NS: Final = 1_000_000
"""A channel may ask for timeouts of 0; going round and round without a pause it may not."""

log = get_logger(__name__)


@attrs.frozen(kw_only=True)
class UntetheredTimeouts:
    """How long an untethered subscriber stays in each state."""

    window_limit_ns: int
    linger_ns: int
    resting_ns: int

    @classmethod
    def of(cls, metadata: LogMetadata) -> Self:
        """Return what the metadata of the log says, from its channel and the context."""
        return cls(
            window_limit_ns=max(metadata.untethered_window_limit_timeout_ns, SHORTEST_TIMEOUT_NS),
            linger_ns=max(metadata.untethered_linger_timeout_ns, SHORTEST_TIMEOUT_NS),
            resting_ns=max(metadata.untethered_resting_timeout_ns, SHORTEST_TIMEOUT_NS),
        )


class UntetheredCheck:
    """Watches the untethered subscribers of one stream.

    Args:
        source: The stream.
        listener: Hears of images taken away and given back.
    """

    __slots__ = ("_listener", "_source", "_timeouts")

    def __init__(self, source: Subscribable, listener: SubscribableListener) -> None:
        self._source = source
        self._timeouts = UntetheredTimeouts.of(source.log.metadata)
        self._listener = listener

    def poll(self, now_ns: int, *, position: int, window_length: int) -> int:
        """Move each of them on if it is time to, and return the next deadline.

        That is now where one has moved: whoever waited for it may go on.

        Args:
            now_ns: The time now.
            position: What the window is measured back from, in bytes.
            window_length: How far a subscriber may be behind that; the last quarter is too far.
        """
        limit = position - window_length + window_length // 4
        deadline_ns = NEVER_NS
        for subscriber in self._source.subscribers.untethered:
            deadline_ns = min(deadline_ns, self._check(subscriber, limit, now_ns))
        return deadline_ns

    def poll_image(self, now_ns: int, window_length: int) -> int:
        """Do so for an image, whose window is measured back from its furthest reader.

        Args:
            now_ns: The time now.
            window_length: See `poll`.
        """
        subscribers = self._source.subscribers
        if not subscribers.untethered:
            return NEVER_NS
        position = max(subscribers.consumed(), default=0)
        return self.poll(now_ns, position=position, window_length=window_length)

    def forgive(self, late_ns: int, now_ns: int) -> None:
        """Let everyone stay as much longer as this driver was not running: nor were they."""
        for subscriber in self._source.subscribers.untethered:
            if subscriber.since_ns != NEVER_NS:
                subscriber.since_ns = min(subscriber.since_ns + late_ns, now_ns)

    def _check(self, subscriber: SubscriberPosition, limit: int, now_ns: int) -> int:
        timeouts = self._timeouts
        match subscriber.state:
            case TetherState.ACTIVE:
                if subscriber.position.get() > limit:
                    subscriber.since_ns = NEVER_NS
                    return NEVER_NS
                if subscriber.since_ns == NEVER_NS:
                    subscriber.since_ns = now_ns
                timeout_ns, event = timeouts.window_limit_ns, TetherEvent.LEFT_BEHIND
            case TetherState.LINGER:
                is_rejoin = subscriber.is_rejoin
                event = TetherEvent.SET_ASIDE if is_rejoin else TetherEvent.GIVEN_UP
                timeout_ns = timeouts.linger_ns
            case _:
                timeout_ns, event = timeouts.resting_ns, TetherEvent.REJOINED
        due_ns = subscriber.since_ns + timeout_ns
        if now_ns < due_ns:
            return due_ns
        self._move(subscriber, event, now_ns)
        return now_ns

    def _move(self, subscriber: SubscriberPosition, event: TetherEvent, now_ns: int) -> None:
        source = self._source
        if event is TetherEvent.REJOINED:
            subscriber.position.set(source.join_position)
        before = subscriber.state
        source.subscribers.move(subscriber, event, now_ns)
        log.info(
            "untethered_subscription_state_changed",
            before=before.name,
            after=subscriber.state.name,
            event_name=event.name,
            subscription_id=subscriber.subscription_id,
            session_id=source.session_id,
            stream_id=source.stream_id,
        )
        if event is TetherEvent.LEFT_BEHIND:
            self._listener.on_unavailable_image(source, subscriber)
        elif event is TetherEvent.REJOINED:
            self._listener.on_available_image(source, subscriber)
