"""What network and IPC publications share: the life of a stream written in this driver.

A publication is ACTIVE while a client holds it. It is DRAINING until all that was offered has been
sent or, on IPC, consumed. In LINGER it still resends, and announces the end of the stream, until
its receiver has sent a goodbye or the linger timeout has passed. A DONE publication is no longer
used.

`TRANSITIONS` lists which state may follow which; `PublicationLife` decides when.

Spies and IPC subscribers read directly from the log of a `SubscribablePublication`, up to the
furthest claim; they stop at a frame that is not committed yet. The publication wakes them when
there may be more to read.

Source: Aeron `NetworkPublication.State`, `NetworkPublication.onTimeEvent`,
`IpcPublication.onTimeEvent`, `NetworkPublication`, `IpcPublication`, `Subscribable`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol, final

from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.driver.core.publisher_window import BlockedPublisherCheck
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
    from aeron_async.driver.core.network_publication import QuietSender
    from aeron_async.driver.core.stream_params import PublicationParams
    from aeron_async.driver.core.subscriber_position import SubscribableListener, SubscriberPosition
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.logs import LogBudget

__all__ = [
    "TRANSITIONS",
    "PublicationEvent",
    "PublicationLife",
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


# When the state changes.

log: Final = get_logger(__name__)


class PublicationLife:
    """The states of one publication.

    Args:
        log_buffers: Gives the session id and the stream id, for the log.
        channel: The channel as its first client wrote it.
        linger_timeout_ns: How long to linger for receivers that have sent no goodbye.
        log_budget: Limits the log lines where a peer can cause them; None means no limit.
    """

    __slots__ = (
        "_channel",
        "_linger_deadline_ns",
        "_linger_timeout_ns",
        "_peer_log",
        "_session_id",
        "_stream_id",
        "state",
    )

    def __init__(
        self,
        log_buffers: LogBuffers,
        channel: str,
        *,
        linger_timeout_ns: int,
        log_budget: LogBudget | None = None,
    ) -> None:
        self._peer_log = within(log_budget, log)
        self.state: PublicationState = PublicationState.ACTIVE
        self._channel = channel
        self._session_id = log_buffers.session_id
        self._stream_id = log_buffers.stream_id
        self._linger_timeout_ns = linger_timeout_ns
        self._linger_deadline_ns = NEVER_NS

    @property
    def is_active(self) -> bool:
        """Return whether clients may offer."""
        return self.state is PublicationState.ACTIVE

    def release(self, position: int) -> None:
        """Start to drain."""
        self._set_state(PublicationEvent.RELEASED, position)

    def linger(self, event: PublicationEvent, position: int, now_ns: int) -> None:
        """Start to linger.

        Args:
            event: `DRAINED` or `REVOKED`.
            position: Up to where the stream was sent, in bytes; for the log.
            now_ns: The time now.
        """
        self._set_state(event, position)
        self._linger_deadline_ns = now_ns + self._linger_timeout_ns

    def leave(self, position: int, now_ns: int, *, is_over: bool) -> int:
        """End a linger that is over, or has lasted for its timeout; return the next deadline."""
        if not is_over and now_ns < self._linger_deadline_ns:
            return self._linger_deadline_ns
        self._set_state(PublicationEvent.LINGERED, position)
        return NEVER_NS

    def has_lingered(self, now_ns: int, *, for_ns: int) -> bool:
        """Return whether it has lingered for at least `for_ns`."""
        return now_ns >= self._linger_deadline_ns - self._linger_timeout_ns + for_ns

    def fail(self, position: int) -> None:
        """Go to DONE at once, from any state."""
        self._set_state(PublicationEvent.FAILED, position)

    def _set_state(self, event: PublicationEvent, position: int) -> None:
        before, self.state = self.state, next_state(self.state, event)
        self._peer_log.info(
            "publication_state_changed",
            before=before.name,
            after=self.state.name,
            channel=self._channel,
            session_id=self._session_id,
            stream_id=self._stream_id,
            position=position,
        )


# The publication.


class WindowListener(Protocol):
    """What hears of a publication's window: each client that holds it, and what answers by it."""

    def on_window_changed(self) -> None:
        """The publisher limit rose, data was sent, or the connection came or went."""
        ...


class SubscribablePublication(ABC):
    """A stream that clients of this driver write, and that subscriptions of it may read.

    Args:
        registration_id: Identifies the publication within its driver.
        channel: The channel as its first client wrote it.
        log: The terms the publication writes to.
        params: Its parameters from the channel and the context.
        context: The driver's settings.
        system_counters: The driver's counters.
        readers: Notifies the clients of the subscriptions that read the log.
        linger_timeout_ns: How long it lingers once it has drained.
        now_ns: The time now.

    Attributes:
        start: Where the stream began.
        subscribers: The subscriptions of this driver that read the log.
        consumption_trigger: When a reader passes this position the publication must be polled.
        failure: The error that failed it; the next poll raises it.
        window_listeners: What is told, in this order, that the window may have changed. They only
            wake tasks and agents: no call of theirs comes back into the publication.
        wake_flag: Publishers and readers set it; the poll clears it.
        polled_ns: When it was last polled.
        has_sent_burst: Whether that poll sent more than one datagram.
        quiet: The fast paths that need no poll, if it has any.
    """

    quiet: QuietSender | None = None

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
        position = producer_position(log)
        self.start: StartPosition = StartPosition.of(log, position)
        self.subscribers: SubscriberPositions = SubscriberPositions()
        self.window_listeners: list[WindowListener] = []
        self.wake_flag: WakeFlag = WakeFlag()
        self.polled_ns = 0
        self.has_sent_burst = False
        self.consumption_trigger: int = position
        self.failure: Exception | None = None
        self._strategy: object = None
        self._revoked = system_counters[SystemCounterId.PUBLICATIONS_REVOKED]
        self._readers = readers
        self._untethered = UntetheredCheck(self, readers)
        is_asked_by_peer = params.handshake_length is not None
        self._life = PublicationLife(
            log,
            channel,
            linger_timeout_ns=linger_timeout_ns,
            log_budget=system_counters.log_budget if is_asked_by_peer else None,
        )
        self._blocked_check = BlockedPublisherCheck(
            log,
            system_counters[SystemCounterId.UNBLOCKED_PUBLICATIONS],
            timeout_ns=context.publication_unblock_timeout_ns,
            position=position,
            now_ns=now_ns,
        )

    def _on_window_changed(self) -> None:
        for listener in self.window_listeners:
            listener.on_window_changed()

    @property
    def state(self) -> PublicationState:
        """Return the state of the publication."""
        return self._life.state

    @property
    def producer_position(self) -> int:
        """Return the position up to which the publishers have claimed the log, in bytes."""
        return producer_position(self.log)

    @property
    def rebuild_position(self) -> int:
        """Return the position up to which its log may be read: the furthest claim, in bytes."""
        return producer_position(self.log)

    @property
    @abstractmethod
    def join_position(self) -> int:
        """Return where a reader that joins now starts, in bytes."""

    @property
    @abstractmethod
    def is_accepting_subscriptions(self) -> bool:
        """Return whether a reader that joins now can still read something."""

    @abstractmethod
    def poll(self, now_ns: int) -> int:
        """Do all that is due, and return the next deadline."""

    @abstractmethod
    def _close_to_publishers(self, position: int) -> None:
        """Pull the publisher limit to `position`, where it stays."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Mark the publication as not connected."""

    @abstractmethod
    def _advance(self, now_ns: int) -> int:
        """Change the state as far as possible, and return the next deadline."""

    @property
    @abstractmethod
    def _consumed_position(self) -> int:
        """Return the position up to which the stream was sent or, on IPC, consumed, in bytes."""

    def add_subscriber(self, subscriber: SubscriberPosition) -> None:
        """Add a subscription as a reader; the caller then polls the publication."""
        self.subscribers.add(subscriber)

    def remove_subscriber(self, subscription_id: int) -> SubscriberPosition | None:
        """Remove a subscription and return its position; the caller then polls the publication."""
        return self.subscribers.remove(subscription_id)

    def release(self, now_ns: int) -> None:
        """End the stream as the last client closes it: refuse offers, drain, then linger."""
        if self._life.is_active:
            self._end()
            self._life.release(self._consumed_position)
            if len(self.subscribers):
                self.subscribers.on_progress()
            self._advance(now_ns)

    def revoke(self, now_ns: int) -> None:
        """Take the stream back: undelivered data is lost, and readers see that it was revoked.

        Source: Aeron `NetworkPublication.revoke`, `IpcPublication.revoke`.
        """
        if self._life.is_active:
            self.log.metadata.is_publication_revoked = True
            self._end()
            self._disconnect()
            self._revoked.increment()
            self._life.linger(PublicationEvent.REVOKED, self._consumed_position, now_ns)
            release_subscribers(self, self._readers)
            self._advance(now_ns)

    def fail(self, error: Exception) -> None:
        """End at once after `poll` raised `error`.

        Local readers are notified; receivers have to wait for their own timeout.
        """
        self.failure = error
        self._life.fail(self._consumed_position)
        release_subscribers(self, self._readers)

    def cause_of_failure(self, error: Exception) -> str:
        """Return why the publication has failed, as the end of a sentence."""
        return cause_of_failure(error, self._strategy, kind="flow control")

    def _end(self) -> None:
        """End the stream at the producer position."""
        position = self.producer_position
        self._close_to_publishers(position)
        self.log.metadata.end_of_stream_position = position

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

    def _tell_readers(self, producer_position: int, *, trigger: int) -> None:
        """Wake the readers if there may be more to read: a frame is readable once committed.

        Args:
            producer_position: Up to where the log is claimed, in bytes.
            trigger: A reader that passes this position may let the limit rise.
        """
        if not self.subscribers.have_consumed(producer_position):
            self.subscribers.on_progress()
        # The publication may also be waiting for a reader that has read everything.
        self.consumption_trigger = min(trigger, producer_position - 1)
