"""The subscribers of a log in this driver: their positions, and which ones are left behind.

Invariant: the slowest subscriber that counts limits the stream. `SubscriberPositions` knows which
ones count: a tethered subscriber always does, an untethered one does not while it rests.

A tethered subscriber is always ACTIVE. An untethered one goes through these states, each time
`UntetheredCheck` finds that its timeout has passed:

- ACTIVE, until it has been in the last quarter of the window for too long; then it loses its image,
  so that the other subscribers need not wait for it;
- LINGER, in which it still limits the stream, so that its client has time to release the log;
- RESTING, in which it does not count, until it rejoins; or CLOSED, if its subscription does not
  rejoin.

Source: Aeron `UntetheredSubscription`, `UntetheredSubscription.State`,
`checkUntetheredSubscriptions`, `Subscribable`, `aeron_subscription_tether_state_t`,
`aeron_subscribable_t`, `aeron_tetherable_position_t`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol, final

import attrs

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.rare_changes import RARE_CHANGES
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Self

    from aeron_async.counters import Counter
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.logbuffer.metadata import LogMetadata
    from aeron_async.logbuffer.wake_flag import WakeFlag

__all__ = [
    "TRANSITIONS",
    "Subscribable",
    "SubscribableListener",
    "SubscriberPosition",
    "SubscriberPositions",
    "TetherEvent",
    "TetherState",
    "UntetheredCheck",
    "UntetheredTimeouts",
    "next_state",
    "release_subscribers",
]


# The table of states.


@final
class TetherState(Enum):
    """The states of a subscriber position."""

    ACTIVE = auto()
    LINGER = auto()
    RESTING = auto()
    CLOSED = auto()


@final
class TetherEvent(Enum):
    """The events that change the state of an untethered subscriber."""

    LEFT_BEHIND = auto()
    """It was in the last quarter of the window for the window limit timeout."""
    SET_ASIDE = auto()
    """The linger timeout passed, and its subscription rejoins."""
    GIVEN_UP = auto()
    """The linger timeout passed, and its subscription does not rejoin."""
    REJOINED = auto()
    """The resting timeout passed."""


TRANSITIONS: Final[Mapping[tuple[TetherState, TetherEvent], TetherState]] = {
    (TetherState.ACTIVE, TetherEvent.LEFT_BEHIND): TetherState.LINGER,
    (TetherState.LINGER, TetherEvent.SET_ASIDE): TetherState.RESTING,
    (TetherState.LINGER, TetherEvent.GIVEN_UP): TetherState.CLOSED,
    (TetherState.RESTING, TetherEvent.REJOINED): TetherState.ACTIVE,
}


def next_state(state: TetherState, event: TetherEvent) -> TetherState:
    """Return the state after `event`.

    Raises:
        KeyError: The table has no such transition; only a bug of ours can cause that.
    """
    return TRANSITIONS[state, event]


WORKING: Final = frozenset({TetherState.ACTIVE, TetherState.LINGER})
"""States in which a position limits its stream."""


# Positions, and the streams that have them.


class HandlerOwner(Protocol):
    """A client that may have a handler for its messages.

    Attributes:
        is_expecting: Whether a lane that wakes the client calls `deliver` afterwards in any case.
    """

    is_expecting: bool

    def on_image_progress(self) -> None:
        """Wake the client: more can be read."""
        ...

    @property
    def deliver(self) -> Callable[[], object] | None:
        """Return what hands arrived messages to the handler at once; None if there is none."""
        ...


@attrs.define(kw_only=True, eq=False)
class SubscriberPosition:
    """How far one subscription has consumed one stream.

    Attributes:
        subscription_id: Registration id of the subscription.
        position: The consumption position in bytes; the client moves it after each message.
        on_progress: Wakes the client: more can be read, or the end of the stream is known.
        client: The owner of a handler that may be called at once; None if there is none.
        is_tether: Whether it limits the stream without a timeout.
        is_rejoin: Whether it rejoins after it was left behind.
        is_polling: Whether its client looks by itself, and waits for no call of `on_progress`.
        state: Its state; changed by `SubscriberPositions` alone.
        since_ns: When it entered its state. While it is ACTIVE: since when it has been in the
            last quarter of the window, or `NEVER_NS` if it is not.
        left_count: How often the stream continued without it; the log may then have been
            overwritten before it was read.
    """

    subscription_id: int
    position: Counter
    on_progress: Callable[[], object]
    client: HandlerOwner | None = None
    is_tether: bool = True
    is_rejoin: bool = True
    is_polling: bool = False
    state: TetherState = TetherState.ACTIVE
    since_ns: int = NEVER_NS
    left_count: int = 0

    @property
    def is_active(self) -> bool:
        """Return whether its client has an image to read."""
        return self.state is TetherState.ACTIVE


class SubscriberPositions:
    """The subscribers of one stream, oldest first.

    Attributes:
        active: Subscribers whose clients have an image to read.
        untethered: Subscribers that may be left behind.
    """

    __slots__ = ("_all", "_working", "active", "untethered")

    def __init__(self) -> None:
        self.active: tuple[SubscriberPosition, ...] = ()
        self.untethered: tuple[SubscriberPosition, ...] = ()
        self._all: dict[int, SubscriberPosition] = {}
        self._working: list[Counter] = []

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[SubscriberPosition]:
        return iter(tuple(self._all.values()))

    def has(self, subscription_id: int) -> bool:
        """Return whether a subscription reads the stream, or is resting."""
        return subscription_id in self._all

    @property
    def has_working(self) -> bool:
        """Return whether any subscriber limits the stream."""
        return bool(self._working)

    @property
    def has_waiting(self) -> bool:
        """Return whether a client waits to be woken when there is more to read."""
        return any(not each.is_polling for each in self.active)

    def consumed(self) -> list[int]:
        """Return the positions of the subscribers that count, in bytes."""
        return [position.get() for position in self._working]

    def join_position(self, position: int) -> int:
        """Return where a new subscriber joins a stream that has reached `position`, in bytes."""
        return min([position, *self.consumed()])

    def have_consumed(self, position: int) -> bool:
        """Return whether all active subscribers have consumed everything before `position`.

        Differs: Aeron also waits for subscribers in LINGER, and never finishes waiting: they have
        lost their images, so their positions no longer move.
        """
        return all(each.position.get() >= position for each in self._all.values() if each.is_active)

    def add(self, subscriber: SubscriberPosition) -> None:
        """Add a subscriber, the youngest."""
        RARE_CHANGES.note()
        # In pieces, here and in `remove`: one client may have thousands.
        self._all[subscriber.subscription_id] = subscriber
        if subscriber.state in WORKING:
            self._working.append(subscriber.position)
        if subscriber.is_active:
            self.active = (*self.active, subscriber)
        if not subscriber.is_tether:
            self.untethered = (*self.untethered, subscriber)

    def remove(self, subscription_id: int) -> SubscriberPosition | None:
        """Remove a subscription and return its position, if it had one."""
        subscriber = self._all.pop(subscription_id, None)
        if subscriber is not None:
            RARE_CHANGES.note()
            if subscriber.state in WORKING:
                self._working.remove(subscriber.position)
            self.active = without(self.active, subscriber)
            self.untethered = without(self.untethered, subscriber)
        return subscriber

    def clear(self) -> None:
        """Remove all subscribers."""
        self._all.clear()
        self._sort()

    def on_progress(self) -> None:
        """Wake the active readers: more can be read, or the end of the stream is known."""
        for subscriber in self.active:
            subscriber.on_progress()

    def move(self, subscriber: SubscriberPosition, event: TetherEvent, now_ns: int) -> None:
        """Change the state of a subscriber; remove it if it is closed."""
        was_working = subscriber.state in WORKING
        subscriber.state = next_state(subscriber.state, event)
        subscriber.left_count += was_working and subscriber.state not in WORKING
        subscriber.since_ns = NEVER_NS if subscriber.is_active else now_ns
        if subscriber.state is TetherState.CLOSED:
            del self._all[subscriber.subscription_id]
            subscriber.position.close()
        self._sort()

    def _sort(self) -> None:
        RARE_CHANGES.note()
        subscribers = self._all.values()
        self._working = [each.position for each in subscribers if each.state in WORKING]
        self.active = tuple(each for each in subscribers if each.is_active)
        self.untethered = tuple(each for each in subscribers if not each.is_tether)


def without(
    subscribers: tuple[SubscriberPosition, ...], subscriber: SubscriberPosition
) -> tuple[SubscriberPosition, ...]:
    """Return the others."""
    if subscriber not in subscribers:
        return subscribers
    index = subscribers.index(subscriber)
    return subscribers[:index] + subscribers[index + 1 :]


class Subscribable(Protocol):
    """A stream with a log in this driver that subscriptions can read.

    It is an image, a network publication with its spies, or an IPC publication. The reader's image
    asks it how far the log may be read.
    """

    registration_id: int
    session_id: int
    stream_id: int
    log: LogBuffers
    subscribers: SubscriberPositions
    wake_flag: WakeFlag

    @property
    def rebuild_position(self) -> int:
        """Return the position, in bytes, up to which there is no gap."""
        ...

    @property
    def consumption_trigger(self) -> int:
        """Return the position, in bytes, beyond which a reader's progress must cause a poll."""
        ...

    @property
    def join_position(self) -> int:
        """Return where a reader that joins now starts, in bytes."""
        ...

    @property
    def is_accepting_subscriptions(self) -> bool:
        """Return whether a reader that joins now can still read something."""
        ...

    def add_subscriber(self, subscriber: SubscriberPosition) -> None:
        """Add a subscription as a reader."""
        ...

    def remove_subscriber(self, subscription_id: int) -> SubscriberPosition | None:
        """Remove a subscription and return its position, if it read this stream."""
        ...


class SubscribableListener(Protocol):
    """Notifies the clients of subscriptions of changes to their images."""

    def on_unavailable_image(self, source: Subscribable, subscriber: SubscriberPosition) -> None:
        """The subscription was left behind, or the stream is over: its client must stop reading."""
        ...

    def on_available_image(self, source: Subscribable, subscriber: SubscriberPosition) -> None:
        """The subscription has rejoined at its current position."""
        ...


def release_subscribers(source: Subscribable, listener: SubscribableListener) -> None:
    """Remove all subscribers of a stream, and free their positions."""
    for subscriber in source.subscribers:
        if subscriber.is_active:
            listener.on_unavailable_image(source, subscriber)
        source.remove_subscriber(subscriber.subscription_id)
        subscriber.position.close()


# Untethered subscribers.

SHORTEST_TIMEOUT_NS: Final = 1_000_000
"""A channel may ask for timeouts of 0; this keeps the states from cycling without a pause."""

log: Final = get_logger(__name__)


@attrs.frozen(kw_only=True)
class UntetheredTimeouts:
    """How long an untethered subscriber stays in each state."""

    window_limit_ns: int
    linger_ns: int
    resting_ns: int

    @classmethod
    def of(cls, metadata: LogMetadata) -> Self:
        """Return the timeouts in the metadata of the log, from its channel and the context."""
        return cls(
            window_limit_ns=max(metadata.untethered_window_limit_timeout_ns, SHORTEST_TIMEOUT_NS),
            linger_ns=max(metadata.untethered_linger_timeout_ns, SHORTEST_TIMEOUT_NS),
            resting_ns=max(metadata.untethered_resting_timeout_ns, SHORTEST_TIMEOUT_NS),
        )


class UntetheredCheck:
    """Checks the untethered subscribers of one stream.

    Args:
        source: The stream.
        listener: Called when an image is taken away or given back.
    """

    __slots__ = ("_listener", "_source", "_timeouts")

    def __init__(self, source: Subscribable, listener: SubscribableListener) -> None:
        self._source = source
        self._timeouts = UntetheredTimeouts.of(source.log.metadata)
        self._listener = listener

    def poll(self, now_ns: int, *, position: int, window_length: int) -> int:
        """Change the state of each subscriber that is due, and return the next deadline.

        The deadline is now if a state has changed: a publisher or source may have waited for it.

        Args:
            now_ns: The time now.
            position: The front of the window, in bytes.
            window_length: How far a subscriber may be behind that; the last quarter is too far.
        """
        limit = position - window_length + window_length // 4
        deadline_ns = NEVER_NS
        for subscriber in self._source.subscribers.untethered:
            deadline_ns = min(deadline_ns, self._check(subscriber, limit, now_ns))
        return deadline_ns

    def poll_image(self, now_ns: int, window_length: int) -> int:
        """Do the same for an image; the front of its window is the position of its fastest reader.

        Args:
            now_ns: The time now.
            window_length: See `poll`.
        """
        subscribers = self._source.subscribers
        if not subscribers.untethered:
            return NEVER_NS
        position = max(subscribers.consumed(), default=0)
        return self.poll(now_ns, position=position, window_length=window_length)

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
