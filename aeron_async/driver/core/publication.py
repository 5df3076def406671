"""What network and IPC publications share: the life of a stream written in this driver.

A publication is ACTIVE while a client holds it. It is DRAINING until all that was offered has been
sent or, on IPC, consumed. In LINGER it still resends, and announces the end of the stream, until
its receiver has sent a goodbye or the linger timeout has passed. A DONE publication is no longer
used.

`TRANSITIONS` lists which state may follow which; `SubscribablePublication` decides when.

Spies and IPC subscribers read directly from the log of a `SubscribablePublication`, up to the
furthest claim; they stop at a frame that is not committed yet. The publication wakes them when
there may be more to read.

The methods of `SubscribablePublication` are of four kinds: what each kind of publication defines;
polling, which the sender does; the state of the publication; and its readers and publishers.

Source: Aeron `NetworkPublication.State`, `NetworkPublication.onTimeEvent`,
`IpcPublication.onTimeEvent`, `NetworkPublication`, `IpcPublication`, `Subscribable`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol, final

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.lanes import OfferSending
from aeron_async.driver.core.publisher_window import BlockedPublisherCheck
from aeron_async.driver.core.rare_changes import RARE_CHANGES
from aeron_async.driver.core.strategies import cause_of_failure
from aeron_async.driver.core.stream_params import StartPosition
from aeron_async.driver.core.subscriber_position import (
    SubscriberPositions,
    UntetheredCheck,
    release_subscribers,
)
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.logbuffer.log_buffers import producer_position
from aeron_async.logbuffer.wake_flag import WakeFlag
from aeron_async.logs import get_logger, within

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.outbox import HeartbeatBatch
    from aeron_async.driver.core.stream_params import PublicationParams
    from aeron_async.driver.core.subscriber_position import SubscribableListener, SubscriberPosition
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.logbuffer.log_buffers import LogBuffers

__all__ = [
    "TRANSITIONS",
    "PublicationEvent",
    "PublicationState",
    "SubscribablePublication",
    "next_state",
]


# The table of states.


@final
class PublicationState(Enum):
    """The states of a publication."""

    ACTIVE = auto()
    DRAINING = auto()
    LINGER = auto()
    DONE = auto()


@final
class PublicationEvent(Enum):
    """The events that change the state of a publication."""

    RELEASED = auto()
    """The last client closed it."""
    REVOKED = auto()
    """A client revoked the stream; undelivered data is lost."""
    DRAINED = auto()
    """Everything was sent, or no receiver is left to send it to."""
    LINGERED = auto()
    """The receiver sent its goodbye, or the linger timeout passed."""
    FAILED = auto()
    """Something failed that belongs to this publication only, such as its flow control."""


TRANSITIONS: Final[Mapping[tuple[PublicationState, PublicationEvent], PublicationState]] = {
    (PublicationState.ACTIVE, PublicationEvent.RELEASED): PublicationState.DRAINING,
    (PublicationState.ACTIVE, PublicationEvent.REVOKED): PublicationState.LINGER,
    (PublicationState.DRAINING, PublicationEvent.DRAINED): PublicationState.LINGER,
    (PublicationState.LINGER, PublicationEvent.LINGERED): PublicationState.DONE,
    (PublicationState.ACTIVE, PublicationEvent.FAILED): PublicationState.DONE,
    (PublicationState.DRAINING, PublicationEvent.FAILED): PublicationState.DONE,
    (PublicationState.LINGER, PublicationEvent.FAILED): PublicationState.DONE,
}


def next_state(state: PublicationState, event: PublicationEvent) -> PublicationState:
    """Return the state after `event`.

    Raises:
        KeyError: The table has no such transition; only a bug of ours can cause that.
    """
    return TRANSITIONS[state, event]


# The publication.

logger: Final = get_logger(__name__)


class WindowListener(Protocol):
    """What hears of a publication's window: each client that holds it, and what answers by it."""

    def on_window_changed(self) -> None:
        """The publisher limit rose, data was sent, or the connection came or went."""
        ...


class SubscribablePublication(OfferSending, ABC):
    """A stream that clients of this driver write, and that subscriptions of it may read.

    Attributes:
        state: Only `_set_state` changes it.
        consumption_trigger: When a reader passes this position the publication must be polled.
        failure: The error that failed it; the next poll raises it.
    """

    # Without slots, the objects of a class share one table of names, in CPython up to 30; with
    # more attributes each object has a table of its own, of 2 kB.
    __slots__ = (
        "__weakref__",
        "_blocked_check",
        "_linger_deadline_ns",
        "_linger_timeout_ns",
        "_readers",
        "_revoked",
        "_state_log",
        "_strategy",
        "_untethered",
        "channel",
        "consumption_trigger",
        "entity_tag",
        "failure",
        "log",
        "params",
        "registration_id",
        "session_id",
        "start",
        "state",
        "stream_id",
        "subscribers",
    )

    def __init__(
        self,
        *,
        registration_id: int,
        channel: str,
        log: LogBuffers,
        params: PublicationParams,
        context: DriverContext,
        system_counters: SystemCounters,
        readers: SubscribableListener,
        linger_timeout_ns: int,
        now_ns: int,
    ) -> None:
        self.registration_id = registration_id
        self.channel = channel
        self.log = log
        self.params = params
        self.session_id: int = log.session_id
        self.stream_id: int = log.stream_id
        # Clients can change what the log says of it.
        self.entity_tag: int = log.metadata.entity_tag
        position = producer_position(log)
        self.start: StartPosition = StartPosition.of(log, position)
        self.subscribers: SubscriberPositions = SubscriberPositions()
        self.window_listeners = []
        self.wake_flag = WakeFlag()
        self.polled_ns = 0
        self.has_sent_burst = False
        self.consumption_trigger: int = position
        self.failure: Exception | None = None
        self.state: PublicationState = PublicationState.ACTIVE
        # A peer that makes this driver publish must not fill its log.
        is_asked_by_peer = params.handshake_length is not None
        self._state_log = within(system_counters.log_budget if is_asked_by_peer else None, logger)
        self._linger_timeout_ns = linger_timeout_ns
        self._linger_deadline_ns = NEVER_NS
        self._strategy: object = None
        self._revoked = system_counters[SystemCounterId.PUBLICATIONS_REVOKED]
        self._readers = readers
        self._untethered = UntetheredCheck(self, readers)
        self._blocked_check = BlockedPublisherCheck(
            log,
            system_counters[SystemCounterId.UNBLOCKED_PUBLICATIONS],
            timeout_ns=context.publication_unblock_timeout_ns,
            position=position,
            now_ns=now_ns,
        )

    @property
    def producer_position(self) -> int:
        """Return the position up to which the publishers have claimed the log, in bytes."""
        return producer_position(self.log)

    @property
    def rebuild_position(self) -> int:
        """Return the position up to which its log may be read: the furthest claim, in bytes."""
        return producer_position(self.log)

    def readable_position(self, _position: int) -> int:
        """Return the rebuild position; see `ImagePort`."""
        return self.rebuild_position

    # What each kind of publication defines.

    @property
    @abstractmethod
    def publisher_limit(self) -> int:
        """Return the position below which an offer may begin, in bytes."""

    @property
    @abstractmethod
    def seen_position(self) -> int:
        """Return the position up to which the driver has acted on what was published, in bytes."""

    @property
    @abstractmethod
    def join_position(self) -> int:
        """Return where a reader that joins now starts, in bytes."""

    @property
    @abstractmethod
    def is_accepting_subscriptions(self) -> bool:
        """Return whether a reader that joins now can still read something."""

    @property
    @abstractmethod
    def _consumed_position(self) -> int:
        """Return the position up to which the stream was sent or, on IPC, consumed, in bytes."""

    @abstractmethod
    def _close_to_publishers(self, position: int) -> None:
        """Pull the publisher limit to `position`, where it stays."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Mark the publication as not connected."""

    @abstractmethod
    def _advance(self, now_ns: int) -> int:
        """Change the state as far as possible, and return the next deadline."""

    # Polling. A kind of publication without a fast way leaves all to `poll`.

    def send_data_fast(self, now_ns: int) -> bool:
        """Send a lone offer without a poll; return False if `poll` must be called."""
        del now_ns
        return False

    def heartbeat_fast(
        self, now_ns: int, due_ns: int = 0, batch: HeartbeatBatch | None = None
    ) -> int:
        """Send a heartbeat that is due, and return the next deadline; 0: `poll` must be called.

        Args:
            now_ns: The time now.
            due_ns: A heartbeat that would be due by this time may leave now, with the others.
            batch: What it leaves with; None lets it leave alone.
        """
        del now_ns, due_ns, batch
        return 0

    @abstractmethod
    def poll(self, now_ns: int) -> int:
        """Do all that is due, and return the next deadline."""

    # The state.

    def release(self, now_ns: int) -> None:
        """End the stream as the last client closes it: refuse offers, drain, then linger."""
        if self.state is PublicationState.ACTIVE:
            self._end()
            self._set_state(PublicationEvent.RELEASED)
            if len(self.subscribers):
                self.subscribers.on_progress()
            self._advance(now_ns)

    def revoke(self, now_ns: int) -> None:
        """Take the stream back: undelivered data is lost, and readers see that it was revoked.

        Source: Aeron `NetworkPublication.revoke`, `IpcPublication.revoke`.
        """
        if self.state is PublicationState.ACTIVE:
            self.log.metadata.is_publication_revoked = True
            self._end()
            self._disconnect()
            self._revoked.increment()
            self._linger(PublicationEvent.REVOKED, now_ns)
            release_subscribers(self, self._readers)
            self._advance(now_ns)

    def fail(self, error: Exception) -> None:
        """End at once, from any state, after `poll` raised `error`.

        Local readers are notified; receivers have to wait for their own timeout. Publishers of
        other processes find the publication not connected, and no room in it.
        """
        self.failure = error
        self._close_to_publishers(self.producer_position)
        self._disconnect()
        self._set_state(PublicationEvent.FAILED)
        release_subscribers(self, self._readers)

    def cause_of_failure(self, error: Exception) -> str:
        """Return why the publication has failed, as the end of a sentence."""
        return cause_of_failure(error, self._strategy, kind="flow control")

    def _end(self) -> None:
        """End the stream at the producer position."""
        position = self.producer_position
        self._close_to_publishers(position)
        self.log.metadata.end_of_stream_position = position

    def _linger(self, event: PublicationEvent, now_ns: int) -> None:
        """Start to linger, because it was drained or revoked."""
        self._set_state(event)
        self._linger_deadline_ns = now_ns + self._linger_timeout_ns

    def _has_lingered(self, now_ns: int, *, for_ns: int) -> bool:
        """Return whether it has lingered for at least `for_ns`."""
        return now_ns >= self._linger_deadline_ns - self._linger_timeout_ns + for_ns

    def _leave(self, now_ns: int, *, is_over: bool) -> int:
        """End a linger that is over, or has lasted for its timeout; return the next deadline."""
        if not is_over and now_ns < self._linger_deadline_ns:
            return self._linger_deadline_ns
        self._set_state(PublicationEvent.LINGERED)
        return NEVER_NS

    def _set_state(self, event: PublicationEvent) -> None:
        before, self.state = self.state, next_state(self.state, event)
        RARE_CHANGES.note()
        self._state_log.info(
            "publication_state_changed",
            before=before.name,
            after=self.state.name,
            channel=self.channel,
            session_id=self.session_id,
            stream_id=self.stream_id,
            position=self._consumed_position,
        )

    # Readers and publishers.

    def add_subscriber(self, subscriber: SubscriberPosition) -> None:
        """Add a subscription as a reader; the caller then polls the publication."""
        self.subscribers.add(subscriber)

    def remove_subscriber(self, subscription_id: int) -> SubscriberPosition | None:
        """Remove a subscription and return its position; the caller then polls the publication."""
        return self.subscribers.remove(subscription_id)

    def _on_window_changed(self) -> None:
        for listener in self.window_listeners:
            listener.on_window_changed()

    def _tell_readers(self, producer_position: int, *, trigger: int) -> None:
        """Wake the readers if there may be more to read: a frame is readable once committed.

        A reader that passes `trigger` may let the limit rise.
        """
        # The publication may also be waiting for a reader that has read everything.
        self.consumption_trigger = min(trigger, producer_position - 1)
        if not self.subscribers.have_consumed(producer_position):
            self.subscribers.on_progress()

    def _check_readers_and_publishers(self, producer_position: int, now_ns: int) -> int:
        """Check for slow readers and blocked publishers, and return the next deadline."""
        deadline_ns = self._untethered.poll(
            now_ns,
            position=self._consumed_position,
            window_length=self.params.publication_window_length,
        )
        if self.params.is_exclusive:
            return deadline_ns
        blocked_ns = self._blocked_check.poll(
            sender_position=self._consumed_position,
            producer_position=producer_position,
            now_ns=now_ns,
        )
        return min(deadline_ns, blocked_ns)
