"""Who reads a log of this driver, and how far: subscribers of images, spies, and those of IPC.

Invariant: the slowest subscriber that counts sets the pace. Tethered ones always count; untethered
ones do not while they rest.

Source: Aeron `Subscribable`, `aeron_subscribable_t`, `aeron_tetherable_position_t`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import attrs

from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.driver.core.untethered_state import TetherState, next_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.counters import Counter
    from aeron_async.driver.core.untethered_state import TetherEvent
    from aeron_async.kernel import Doorbell
    from aeron_async.logbuffer.term_log import LogBuffers

__all__ = [
    "Subscribable",
    "SubscribableListener",
    "SubscriberPosition",
    "SubscriberPositions",
    "release_subscribers",
]

WORKING: Final = frozenset({TetherState.ACTIVE, TetherState.LINGER})
"""States in which a position holds its stream back."""


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
