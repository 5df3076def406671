"""An IPC publication and its window: publishers and subscribers are clients of this driver.

Invariant: the limit of `IpcWindow` is one window ahead of the slowest subscriber. It rises only in
steps of an eighth of that window, and everything below it has been cleaned. Nothing is kept for
resending.

Invariant: `IpcPublication` never laps the slowest subscriber that counts. Its consumer position,
the furthest that any subscriber has reached, only grows. A late subscriber joins at the slowest
subscriber, or at the consumer position if there is none, so it misses nothing that another one has
yet to read.

Source: Aeron `IpcPublication`, `IpcPublication.updatePublisherPositionAndLimit`,
`aeron_ipc_publication.c`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.publication import (
    PublicationEvent,
    PublicationState,
    SubscribablePublication,
)
from aeron_async.driver.core.publisher_window import RETRY_INTERVAL_NS
from aeron_async.driver.core.rare_changes import RARE_CHANGES
from aeron_async.driver.core.subscriber_position import release_subscribers
from aeron_async.logbuffer.log_buffers import clean_to, producer_position

if TYPE_CHECKING:
    from aeron_async.counters import Counter
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.stream_counters import IpcPublicationCounters
    from aeron_async.driver.core.stream_params import PublicationParams
    from aeron_async.driver.core.subscriber_position import SubscribableListener, SubscriberPosition
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.logbuffer.log_buffers import LogBuffers

__all__ = [
    "IpcPublication",
    "IpcPublicationListener",
    "IpcWindow",
]

TRIP_GAIN_SHIFT: Final = 3
"""The limit rises in steps of at least an eighth of the window; less is not worth a wake-up."""


class IpcWindow:
    """The position below which an offer may begin, shown by a counter.

    It runs `window_length` ahead of the slowest subscriber; the log behind that one is cleaned.
    """

    limit: int

    def __init__(
        self, log: LogBuffers, counter: Counter, *, window_length: int, position: int
    ) -> None:
        self._log = log
        self._counter = counter
        self._window_length = window_length
        self._trip_gain = window_length >> TRIP_GAIN_SHIFT
        self._clean_position = position
        self._trip_limit = self.limit = position
        counter.set(position)

    @property
    def consumption_trigger(self) -> int:
        """Return the position beyond which the slowest subscriber lets the limit rise."""
        return self._trip_limit - self._window_length

    def advance(self, min_position: int) -> bool:
        """Raise the limit if the slowest subscriber allows a whole step; return whether it rose."""
        limit = min_position + self._window_length
        if limit <= self._trip_limit:
            return False
        self._clean(min_position)
        self._trip_limit = limit + self._trip_gain
        self._set(limit)
        return True

    def retract(self, consumer_position: int) -> None:
        """Pull the limit back to what has been consumed, because there is no subscriber."""
        if self.limit > consumer_position:
            self._trip_limit = consumer_position
            self._set(consumer_position)
            self._clean(consumer_position)

    def close(self, producer_position: int) -> None:
        """Allow no appends after `producer_position`."""
        self._set(producer_position)

    def _clean(self, position: int) -> None:
        # One step per call, never past the end of a term: a stall here would stall the whole loop.
        self._clean_position = clean_to(
            self._log, clean_position=self._clean_position, position=position
        )

    def _set(self, limit: int) -> None:
        self.limit = limit
        self._counter.set(limit)


class IpcPublicationListener(Protocol):
    """What the owner of an IPC publication implements to hear about its changes."""

    def on_image_rejected(self, publication: IpcPublication, reason: str) -> None:
        """A subscriber rejected the stream; its publishers must be informed."""
        ...

    def on_accepting_subscriptions(self, publication: IpcPublication) -> None:
        """The cool-down after a rejection is over: matching subscriptions may join again."""
        ...


class IpcPublication(SubscribablePublication):
    """One stream between clients of this driver; it is connected while it has a subscriber."""

    __slots__ = (
        "_consumer_position",
        "_cool_down_deadline_ns",
        "_image_liveness_timeout_ns",
        "_listener",
        "_told_position",
        "_window",
        "counters",
        "is_connected",
    )

    def __init__(
        self,
        *,
        registration_id: int,
        channel: str,
        log: LogBuffers,
        params: PublicationParams,
        context: DriverContext,
        counters: IpcPublicationCounters,
        system_counters: SystemCounters,
        listener: IpcPublicationListener,
        readers: SubscribableListener,
        now_ns: int,
    ) -> None:
        # Readers are notified before their log is freed and stop using it: no linger is needed.
        super().__init__(
            registration_id=registration_id,
            channel=channel,
            log=log,
            params=params,
            context=context,
            system_counters=system_counters,
            readers=readers,
            linger_timeout_ns=0,
            now_ns=now_ns,
        )
        self.counters = counters
        self.is_connected: bool = False
        self._listener = listener
        self._image_liveness_timeout_ns = context.image_liveness_timeout_ns
        self._cool_down_deadline_ns = NEVER_NS
        self._consumer_position = self._told_position = producer_position(log)
        self._window = IpcWindow(
            log,
            counters.publisher_limit,
            window_length=params.publication_window_length,
            position=self._consumer_position,
        )

    @property
    def publisher_limit(self) -> int:
        """Return the position below which an offer may begin, in bytes."""
        return self._window.limit

    @property
    def seen_position(self) -> int:
        """Return the position up to which the readers were notified, in bytes."""
        return self._told_position

    @property
    def consumer_position(self) -> int:
        """Return the furthest position that any subscriber has ever reached, in bytes."""
        return max([self._consumer_position, *self.subscribers.consumed()])

    @property
    def has_unread(self) -> bool:
        """Return whether something was claimed that no subscriber has read: it may never come."""
        return self.producer_position > self.consumer_position

    @property
    def join_position(self) -> int:
        """Return where a subscriber that joins now starts, in bytes."""
        return self.subscribers.join_position(self.consumer_position)

    @property
    def is_cooling_down(self) -> bool:
        """Return whether the stream was rejected a short while ago."""
        return self._cool_down_deadline_ns != NEVER_NS

    @property
    def is_accepting_subscriptions(self) -> bool:
        """Return whether a subscriber that joins now can still read something."""
        if self.is_cooling_down:
            return False
        if self.state is PublicationState.DRAINING:
            return not self.subscribers.have_consumed(self.producer_position)
        return self.state is PublicationState.ACTIVE

    def add_subscriber(self, subscriber: SubscriberPosition) -> None:
        """Add a subscription as a reader, and wake publishers that wait for one."""
        super().add_subscriber(subscriber)
        self._update_window()
        # In any case: the first reader that waits makes a difference to those who watch the log.
        self._on_window_changed()

    def remove_subscriber(self, subscription_id: int) -> SubscriberPosition | None:
        """Remove a subscription and return its position; the caller then polls the publication."""
        # Recorded before the removal: the next subscriber may have to join where this one stopped.
        self._consumer_position = self.consumer_position
        subscriber = super().remove_subscriber(subscription_id)
        if self._update_window():
            self._on_window_changed()
        return subscriber

    def reject(self, reason: str, now_ns: int) -> None:
        """Remove all subscribers, tell the publishers why, and accept none for a while.

        The cool-down lasts for the image liveness timeout.
        """
        self._listener.on_image_rejected(self, reason)
        if self.state is PublicationState.ACTIVE:
            self._cool_down_deadline_ns = now_ns + self._image_liveness_timeout_ns
        release_subscribers(self, self._readers)

    def poll(self, now_ns: int) -> int:
        """Update the limit, wake the readers, change the state; return the next deadline.

        To be called whenever something was appended, and whenever a subscriber has passed the
        consumption trigger.
        """
        self.wake_flag.is_set = False
        if self.state is PublicationState.DONE:
            return NEVER_NS
        if self._update_window():
            self._on_window_changed()
        return self._advance(now_ns)

    def skip_linger(self) -> None:
        """Do nothing: an IPC publication never lingers."""

    def _close_to_publishers(self, position: int) -> None:
        self._window.close(position)

    def _disconnect(self) -> None:
        self._set_connected(is_connected=False)

    @property
    def _consumed_position(self) -> int:
        return self._consumer_position

    def _update_window(self) -> bool:
        """Update the connection and the limit; return whether that concerns the publishers."""
        consumed = self.subscribers.consumed()
        self._consumer_position = max([self._consumer_position, *consumed])
        if self.state is not PublicationState.ACTIVE:
            return False
        is_changed = self._set_connected(is_connected=bool(consumed))
        if consumed:
            is_changed = self._window.advance(min(consumed)) or is_changed
        else:
            self._window.retract(self._consumer_position)
        producer_position = self.producer_position
        if producer_position != self._told_position:
            self._told_position = producer_position
            self.counters.publisher_position.set(producer_position)
            is_changed = True
        return is_changed

    def _set_connected(self, *, is_connected: bool) -> bool:
        if is_connected == self.is_connected:
            return False
        self.is_connected = is_connected
        RARE_CHANGES.note()
        self.log.metadata.is_connected = is_connected
        return True

    def _advance(self, now_ns: int) -> int:
        """Change the state as far as the time and the subscribers allow."""
        producer_position = self.producer_position
        self.counters.publisher_position.set(producer_position)
        if len(self.subscribers):
            self._tell_readers(producer_position, trigger=self._window.consumption_trigger)
        if self.state is PublicationState.ACTIVE:
            deadline_ns = self._check_readers_and_publishers(producer_position, now_ns)
            return min(deadline_ns, self._check_cool_down(now_ns))
        if self.state is PublicationState.DRAINING:
            if not self.subscribers.have_consumed(producer_position):
                # A claim that is never committed must not hold up what was committed after it.
                is_unblocked = self._blocked_check.unblock(self._consumer_position)
                # No publisher is watched any more, and a reader that has come to a claim passes no
                # trigger: so look again, as Aeron does in every cycle.
                return now_ns if is_unblocked else now_ns + RETRY_INTERVAL_NS
            release_subscribers(self, self._readers)
            self._linger(PublicationEvent.DRAINED, now_ns)
        return self._leave(now_ns, is_over=True)

    def _check_cool_down(self, now_ns: int) -> int:
        if now_ns < self._cool_down_deadline_ns:
            return self._cool_down_deadline_ns
        self._cool_down_deadline_ns = NEVER_NS
        self._listener.on_accepting_subscriptions(self)
        return now_ns
