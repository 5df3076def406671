"""What network and IPC publications share: the life of a stream written in this driver.

A publication is ACTIVE while a client holds it. It is DRAINING until all it was given has been
sent or, on IPC, consumed. In LINGER it resends, and says that the stream has ended, until its
receiver has said goodbye or the linger timeout has passed. When DONE, nothing of it is used any
more.

`TRANSITIONS` says which state may follow which; `PublicationLife` says when.

Spies and IPC subscribers read the log of a `SubscribablePublication` where it lies, up to the
furthest claim; a frame that is not committed yet stops them. The publication wakes them whenever
there may be more.

Source: Aeron `NetworkPublication.State`, `NetworkPublication.onTimeEvent`,
`IpcPublication.onTimeEvent`, `NetworkPublication`, `IpcPublication`, `Subscribable`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

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
from aeron_async.logbuffer.wake_flag import Doorbell
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
    """Where a network publication is in its life."""

    ACTIVE = auto()
    DRAINING = auto()
    LINGER = auto()
    DONE = auto()


@final
class PublicationEvent(Enum):
    """What can happen to a network publication."""

    RELEASED = auto()
    """The last client let go of it."""
    REVOKED = auto()
    """A client took the stream back, undelivered data and all."""
    DRAINED = auto()
    """All was sent, or nobody is left to send it to."""
    LINGERED = auto()
    """The receiver said goodbye, or the linger timeout passed."""
    FAILED = auto()
    """Something broke that is this publication's own, such as its flow control."""


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
        KeyError: The table has no such transition; a mistake of ours, never of a peer.
    """
    return TRANSITIONS[state, event]


# When the state changes.

log: Final = get_logger(__name__)


class PublicationLife:
    """The states of one publication.

    Args:
        log_buffers: Name the publication in the log, as does its channel.
        channel: The channel as its first client wrote it.
        linger_timeout_ns: How long it lingers for whoever has not said goodbye.
        log_budget: For its log lines, where a peer has asked for it; None is without limit.

    Attributes:
        state: Where it is.
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
        """Let an active publication drain."""
        self._set_state(PublicationEvent.RELEASED, position)

    def linger(self, event: PublicationEvent, position: int, now_ns: int) -> None:
        """Let a publication linger that is drained or revoked.

        Args:
            event: `DRAINED` or `REVOKED`.
            position: Up to where it was sent, in bytes; for the log.
            now_ns: The time now.
        """
        self._set_state(event, position)
        self._linger_deadline_ns = now_ns + self._linger_timeout_ns

    def leave(self, position: int, now_ns: int, *, is_over: bool) -> int:
        """End a linger that is over, or has lasted long enough; return the next deadline."""
        if not is_over and now_ns < self._linger_deadline_ns:
            return self._linger_deadline_ns
        self._set_state(PublicationEvent.LINGERED, position)
        return NEVER_NS

    def has_lingered(self, now_ns: int, *, for_ns: int) -> bool:
        """Return whether it has lingered for so long, while this driver was running."""
        return now_ns >= self._linger_deadline_ns - self._linger_timeout_ns + for_ns

    def fail(self, position: int) -> None:
        """Be done at once, whatever was to come."""
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


class SubscribablePublication(ABC):
    """A stream that is written in this driver, and may be read in it.

    Args:
        registration_id: Names the publication within its driver.
        channel: The channel as its first client wrote it.
        log: The terms it is written to.
        params: What the channel and the context say of it.
        context: The driver's settings.
        system_counters: The driver's.
        readers: Tells the clients of those that read the log.
        linger_timeout_ns: How long it lingers when it has drained.
        now_ns: The time now.

    Attributes:
        start: Where the stream began.
        subscribers: Subscriptions of this driver that read the log.
        consumption_trigger: One that passes this position should let the publication be polled.
        failure: Why it has failed, or will when it is polled next.
        doorbell: Rung by its publishers and readers, and silent again once it is polled.
        polled_ns: When it was polled last.
        has_sent_burst: Whether that sent more than one datagram.
        quiet: What it does without a poll, if it can do anything.
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
        self.doorbell: Doorbell = Doorbell()
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

    @property
    def state(self) -> PublicationState:
        """Return where the publication is in its life."""
        return self._life.state

    @property
    def producer_position(self) -> int:
        """Return the position up to which the publishers have claimed the log, in bytes."""
        return producer_position(self.log)

    @property
    def rebuild_position(self) -> int:
        """Return the position up to which its log may be read: as far as anything was claimed."""
        return producer_position(self.log)

    @property
    @abstractmethod
    def join_position(self) -> int:
        """Return where a reader that comes now would start, in bytes."""

    @property
    @abstractmethod
    def is_accepting_subscriptions(self) -> bool:
        """Return whether a reader that comes now would still get something."""

    @abstractmethod
    def poll(self, now_ns: int) -> int:
        """Do all that is due, and return the next deadline."""

    @abstractmethod
    def _close_to_publishers(self, position: int) -> None:
        """Pull the publisher limit to `position`, for good."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Say that nobody is there."""

    @abstractmethod
    def _advance(self, now_ns: int) -> int:
        """Move through the states as far as may be, and return the next deadline."""

    @property
    @abstractmethod
    def _consumed_position(self) -> int:
        """Up to where the stream has come on its way out: sent, or consumed."""

    def add_subscriber(self, subscriber: SubscriberPosition) -> None:
        """Let one more subscription read; the publication wants to be polled then."""
        self.subscribers.add(subscriber)

    def remove_subscriber(self, subscription_id: int) -> SubscriberPosition | None:
        """Let a subscription go, and return the position it had; poll the publication then."""
        return self.subscribers.remove(subscription_id)

    def release(self, now_ns: int) -> None:
        """Let the last client go: no more offers, let what is left be taken, then linger."""
        if self._life.is_active:
            self._end()
            self._life.release(self._consumed_position)
            if len(self.subscribers):
                self._readers.on_image_progress(self)
            self._advance(now_ns)

    def revoke(self, now_ns: int) -> None:
        """Take the stream back: whatever has not arrived yet is lost, and the readers know why.

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
        """End at once: receivers are left to their timeout, and local readers told.

        Args:
            error: What `poll` raised.
        """
        self.failure = error
        self._life.fail(self._consumed_position)
        release_subscribers(self, self._readers)

    def cause_of_failure(self, error: Exception) -> str:
        """Say why the publication has failed, as the end of a sentence."""
        return cause_of_failure(error, self._strategy, kind="flow control")

    def _end(self) -> None:
        """Let the stream end where its publishers are."""
        position = self.producer_position
        self._close_to_publishers(position)
        self.log.metadata.end_of_stream_position = position

    def _check_readers_and_publishers(self, producer_position: int, now_ns: int) -> int:
        """Look after slow readers and stuck publishers, and return the next deadline."""
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
        """Tell the readers if there may be more: claims show only when they are committed.

        Args:
            producer_position: Up to where the log is claimed, in bytes.
            trigger: A reader that passes this position may let the limit rise.
        """
        if not self.subscribers.have_consumed(producer_position):
            self._readers.on_image_progress(self)
        # Whoever has read all there was may be what the publication waits for, too.
        self.consumption_trigger = min(trigger, producer_position - 1)
