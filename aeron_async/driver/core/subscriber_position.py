"""The subscribers of a log in this driver: their positions, and which are left behind.

Invariant: the slowest subscriber that counts sets the pace; `SubscriberPositions` knows which that
is. A tethered subscriber always counts. An untethered one does not count while it rests.

A tethered subscriber is always ACTIVE. An untethered one goes through these states, each when
`UntetheredCheck` finds that its timeout has passed:

- ACTIVE, until it has stood in the last quarter of the window for too long: then it loses its
  image, so that the others need not wait for it;
- LINGER, in which it still holds the stream back, until its client has released the log;
- RESTING, in which it does not count, until it joins again; or CLOSED, if its subscription does
  not rejoin.

Source: Aeron `UntetheredSubscription`, `UntetheredSubscription.State`,
`checkUntetheredSubscriptions`, `Subscribable`, `aeron_subscription_tether_state_t`,
`aeron_subscribable_t`, `aeron_tetherable_position_t`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol, final

import attrs

from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Self

    from aeron_async.counters import Counter
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.logbuffer.metadata import LogMetadata
    from aeron_async.logbuffer.wake_flag import Doorbell

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
    """Where a subscriber position is in its life."""

    ACTIVE = auto()
    LINGER = auto()
    RESTING = auto()
    CLOSED = auto()


@final
class TetherEvent(Enum):
    """What can happen to the position of an untethered subscriber."""

    LEFT_BEHIND = auto()
    """It stood at the end of the window for the window limit timeout."""
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
        KeyError: The table has no such transition; a mistake of ours, never of a peer.
    """
    return TRANSITIONS[state, event]


WORKING: Final = frozenset({TetherState.ACTIVE, TetherState.LINGER})
"""States in which a position holds its stream back."""


# Positions, and streams that have them.


@attrs.define(kw_only=True, eq=False)
class SubscriberPosition:
    """How far one subscription has consumed one stream.

    Attributes:
        subscription_id: Registration id of the subscription.
        position: Moved by the client after it has taken a message, in bytes.
        is_tether: Whether it may hold the stream back for as long as it likes.
        is_rejoin: Whether it comes back after it was left behind.
        state: Where it is in its life; changed by its collection alone.
        since_ns: When it came into its state; of an active one, since when it has stood at the end
            of the window, or `NEVER_NS` where it does not.
        left_count: How often the stream has gone on without it: what it had not consumed by then
            may be written over.
    """

    subscription_id: int
    position: Counter
    is_tether: bool = True
    is_rejoin: bool = True
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
        active: Those whose clients have an image to read.
        untethered: Those that may be left behind.
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
        """Return whether a subscription reads the stream, or rests from it."""
        return subscription_id in self._all

    @property
    def has_working(self) -> bool:
        """Return whether anybody holds the stream back."""
        return bool(self._working)

    def consumed(self) -> list[int]:
        """Return the positions that count, in bytes."""
        return [position.get() for position in self._working]

    def join_position(self, position: int) -> int:
        """Return where one that comes now joins a stream that has come to `position`, in bytes."""
        return min([position, *self.consumed()])

    def have_consumed(self, position: int) -> bool:
        """Return whether all who still can have consumed everything before `position`.

        Differs: Aeron waits for those that linger, too, and with them for ever: their images have
        been taken away, and they never move again.
        """
        return all(each.position.get() >= position for each in self._all.values() if each.is_active)

    def add(self, subscriber: SubscriberPosition) -> None:
        """Let one more subscription read."""
        self._all[subscriber.subscription_id] = subscriber
        self._sort()

    def remove(self, subscription_id: int) -> SubscriberPosition | None:
        """Let a subscription go, and return the position it had, if it had one."""
        subscriber = self._all.pop(subscription_id, None)
        self._sort()
        return subscriber

    def clear(self) -> None:
        """Let everybody go."""
        self._all.clear()
        self._sort()

    def move(self, subscriber: SubscriberPosition, event: TetherEvent, now_ns: int) -> None:
        """Let something happen to one of them; who is closed is one of them no more."""
        was_working = subscriber.state in WORKING
        subscriber.state = next_state(subscriber.state, event)
        subscriber.left_count += was_working and subscriber.state not in WORKING
        subscriber.since_ns = NEVER_NS if subscriber.is_active else now_ns
        if subscriber.state is TetherState.CLOSED:
            del self._all[subscriber.subscription_id]
            subscriber.position.close()
        self._sort()

    def _sort(self) -> None:
        subscribers = self._all.values()
        self._working = [each.position for each in subscribers if each.state in WORKING]
        self.active = tuple(each for each in subscribers if each.is_active)
        self.untethered = tuple(each for each in subscribers if not each.is_tether)


class Subscribable(Protocol):
    """A stream with a log of this driver that subscriptions can read, whoever writes it.

    An image, a network publication with its spies, or an IPC publication. It is also what the
    reader's image asks how far it may read.
    """

    registration_id: int
    session_id: int
    stream_id: int
    log: LogBuffers
    subscribers: SubscriberPositions
    doorbell: Doorbell

    @property
    def rebuild_position(self) -> int:
        """Return the position, in bytes, up to which there is no gap."""
        ...

    @property
    def consumption_trigger(self) -> int:
        """Return the position, in bytes, beyond which progress is worth telling."""
        ...

    @property
    def join_position(self) -> int:
        """Return where a reader that comes now would start, in bytes."""
        ...

    @property
    def is_accepting_subscriptions(self) -> bool:
        """Return whether a reader that comes now would still get something."""
        ...

    def add_subscriber(self, subscriber: SubscriberPosition) -> None:
        """Let one more subscription read."""
        ...

    def remove_subscriber(self, subscription_id: int) -> SubscriberPosition | None:
        """Let a subscription go, and return the position it had, if it read this stream."""
        ...


class SubscribableListener(Protocol):
    """Who tells the clients of subscriptions what becomes of their images."""

    def on_image_progress(self, source: Subscribable) -> None:
        """More of the stream can be read, or its end is known."""
        ...

    def on_unavailable_image(self, source: Subscribable, subscriber: SubscriberPosition) -> None:
        """The subscription was left behind, or the stream is over: its client may read no more."""
        ...

    def on_available_image(self, source: Subscribable, subscriber: SubscriberPosition) -> None:
        """The subscription has joined again, where its position now is."""
        ...


def release_subscribers(source: Subscribable, listener: SubscribableListener) -> None:
    """Let everybody go who reads a stream, and free their positions."""
    for subscriber in source.subscribers:
        if subscriber.is_active:
            listener.on_unavailable_image(source, subscriber)
        source.remove_subscriber(subscriber.subscription_id)
        subscriber.position.close()


# Which are left behind.

SHORTEST_TIMEOUT_NS: Final = 1_000_000
"""A channel may ask for timeouts of 0; going round and round without a pause it may not."""

log: Final = get_logger(__name__)


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
