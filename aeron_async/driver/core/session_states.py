"""The streams and sessions of one receive endpoint: wanted, pending or ignored.

Invariant: stream and session ids come off the wire, so only a bounded number is remembered:

- `PendingSetups`: sessions that were asked for a SETUP. All wait for the same time, so they expire
  in the order in which they were asked. When it is full, no further session is asked.
- `Strangers`: streams that no subscription wants. When it is full, the one noted first is dropped.
- `SessionStates`: sessions without an image, of all streams together. When it is full, the one
  heard least recently is dropped, and sessions that cool down last of all, so that no flood of
  unknown sessions brings back an image that was released. Images are kept in `StreamInterest`, and
  are never dropped for lack of room.

Invariant: no response stream that is still heard is replaced by another. A server that restarts
announces a new session for its responses, or restarts the old one, and a stranger can forge the
frames for either. An honest publisher sends a heartbeat every 100 ms, so only a stream that has
missed five of them may be replaced.

Source: Aeron `Receiver.pendingSetupMessages`, `DataPacketDispatcher.StreamInterest`,
`DataPacketDispatcher.SessionInterest`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.context import HEARTBEAT_INTERVAL_NS
from aeron_async.driver.core.image_state import ImageState
from aeron_async.protocol.datagram import check_setup

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.counters import Counter
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.publication_image import PublicationImage
    from aeron_async.protocol.setup import Setup

__all__ = [
    "SUCCESSION_SILENCE_NS",
    "PendingSetups",
    "SessionState",
    "SessionStates",
    "Strangers",
    "StreamInterest",
    "begins_again",
    "gives_way",
    "gives_way_ns",
]


class PendingSetups:
    """The sessions that were asked for a SETUP.

    Args:
        limit: Most sessions at once.
        timeout_ns: How long each SETUP is awaited.
    """

    def __init__(self, limit: int, timeout_ns: int) -> None:
        self._limit = limit
        self._timeout_ns = timeout_ns
        self._expiry_ns: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._expiry_ns)

    def try_add(self, stream_id: int, session_id: int, now_ns: int) -> bool:
        """Add a session; return False if there are too many."""
        pending = self._expiry_ns
        while pending and pending[oldest := next(iter(pending))] <= now_ns:
            del pending[oldest]
        if len(pending) >= self._limit:
            return False
        # Removed first, so that a session that is asked again expires last.
        pending.pop((stream_id, session_id), None)
        pending[stream_id, session_id] = now_ns + self._timeout_ns
        return True

    def remove(self, stream_id: int, session_id: int) -> None:
        """Remove a session."""
        self._expiry_ns.pop((stream_id, session_id), None)


MAX_STRANGERS: Final = 8
"""Most streams that are remembered."""


class Strangers:
    """The streams that arrived without a subscription."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[tuple[int, int], tuple[Address, list[int]]] = {}

    def note(self, stream_id: int, session_id: int, source: Address, now_ns: int) -> None:
        """Record a datagram of a stream; the source kept is that of the first one."""
        entries = self._entries
        entry = entries.get((stream_id, session_id))
        if entry is not None:
            entry[1][0] = now_ns
            return
        if len(entries) >= MAX_STRANGERS:
            del entries[next(iter(entries))]
        entries[stream_id, session_id] = source, [now_ns]

    def heard_since(self, since_ns: int) -> list[tuple[int, int, Address]]:
        """Return stream id, session id and source of the streams heard since `since_ns`."""
        return [
            (stream_id, session_id, source)
            for (stream_id, session_id), (source, heard_ns) in self._entries.items()
            if heard_ns[0] >= since_ns
        ]


class StreamInterest:
    """The sessions of one stream on one endpoint.

    Attributes:
        images: Active images by session id.
        is_all_sessions: Whether a subscription takes every session.
        session_ids: Sessions that subscriptions ask for by id.
    """

    def __init__(self) -> None:
        self.images: dict[int, PublicationImage] = {}
        self.is_all_sessions = False
        self.session_ids: set[int] = set()

    @property
    def is_wanted(self) -> bool:
        """Return whether any subscription is left."""
        return self.is_all_sessions or bool(self.session_ids)

    def wants(self, session_id: int) -> bool:
        """Return whether some subscription takes this session."""
        return self.is_all_sessions or session_id in self.session_ids

    def forget_unwanted_images(self) -> None:
        """Drop the images of sessions that no subscription takes."""
        self.images = {key: image for key, image in self.images.items() if self.wants(key)}


@final
class SessionState(Enum):
    """Why data of a session that has no image is ignored."""

    PENDING_SETUP = auto()
    """Its sender was asked for a SETUP, which has not come yet."""
    COOL_DOWN = auto()
    """Its image went away without an end of stream."""
    NO_INTEREST = auto()
    """No subscription wants it."""


class SessionStates:
    """The sessions without an image, by stream and session id.

    Args:
        limit: Most sessions at once.
        evicted: Counts sessions that were dropped for lack of room.

    Attributes:
        strangers: Sessions of streams without a subscription.
    """

    def __init__(self, limit: int, evicted: Counter) -> None:
        self._limit = limit
        self._evicted = evicted
        self.strangers: Strangers = Strangers()
        # Both in the order in which the sessions were last heard.
        self._states: dict[tuple[int, int], tuple[SessionState, int]] = {}
        self._cool_downs: dict[tuple[int, int], None] = {}

    def __len__(self) -> int:
        return len(self._states) + len(self._cool_downs)

    def state_of(self, stream_id: int, session_id: int, now_ns: int) -> SessionState | None:
        """Return why a session, which was just heard, is ignored; None if it is not."""
        key = stream_id, session_id
        if key in self._cool_downs:
            del self._cool_downs[key]
            self._cool_downs[key] = None
            return SessionState.COOL_DOWN
        entry = self._states.pop(key, None)
        if entry is None or now_ns >= entry[1]:
            return None
        self._states[key] = entry
        return entry[0]

    def of_stream(self, stream_id: int) -> list[tuple[int, SessionState]]:
        """Return the sessions of a stream and why each is ignored, the last heard at the end.

        A session whose time is up stays in the result until it is heard again.
        """
        states = [(key, state) for key, (state, _) in self._states.items()]
        cool_downs = [(key, SessionState.COOL_DOWN) for key in self._cool_downs]
        return [(key[1], state) for key, state in states + cool_downs if key[0] == stream_id]

    def set_state(
        self, stream_id: int, session_id: int, state: SessionState, *, expiry_ns: int = NEVER_NS
    ) -> None:
        """Ignore the session until `expiry_ns`; a cool-down ends only by `forget`."""
        key = stream_id, session_id
        self._states.pop(key, None)
        self._cool_downs.pop(key, None)
        if len(self) >= self._limit:
            oldest = self._states or self._cool_downs
            del oldest[next(iter(oldest))]
            self._evicted.increment()
        if state is SessionState.COOL_DOWN:
            self._cool_downs[key] = None
        else:
            self._states[key] = state, expiry_ns

    def forget(self, stream_id: int, session_id: int, state: SessionState) -> None:
        """Stop ignoring a session, if it is in that state."""
        key = stream_id, session_id
        if state is SessionState.COOL_DOWN:
            self._cool_downs.pop(key, None)
        elif key in self._states and self._states[key][0] is state:
            del self._states[key]

    def forget_uninterest(self, stream_id: int, session_id: int | None) -> None:
        """Stop ignoring what is now subscribed to: one session of a stream, or all of them."""
        if session_id is not None:
            self.forget(stream_id, session_id, SessionState.NO_INTEREST)
            return
        self._states = {
            key: entry
            for key, entry in self._states.items()
            if key[0] != stream_id or entry[0] is not SessionState.NO_INTEREST
        }

    def keep(self, stream_id: int, is_wanted: Callable[[int], bool]) -> None:
        """Drop the sessions of a stream that no subscription wants any more."""
        for states in (self._states, self._cool_downs):
            unwanted = [key for key in states if key[0] == stream_id and not is_wanted(key[1])]
            for key in unwanted:
                del states[key]


# The succession of response streams.

SUCCESSION_SILENCE_NS: Final = 5 * HEARTBEAT_INTERVAL_NS
"""How long a response stream must be silent before another may replace it."""


def gives_way(image: PublicationImage, now_ns: int) -> bool:
    """Return whether a response stream has ended or is silent, so that another may replace it."""
    return now_ns >= gives_way_ns(image)


def gives_way_ns(image: PublicationImage) -> int:
    """Return when another stream may replace this one, if nothing more of it is heard."""
    if image.state is not ImageState.ACTIVE:
        return image.life.ended_ns
    heard_ns = max((each.last_activity_ns for each in image.connections), default=0)
    return heard_ns + SUCCESSION_SILENCE_NS


def begins_again(image: PublicationImage, setup: Setup, source: Address, now_ns: int) -> bool:
    """Return whether a SETUP begins a new response stream with the session of an image.

    Other terms in the SETUP show that. If a server uses the same session and initial term id after
    a restart, the two streams cannot be told apart.

    Args:
        image: The image with that session; its readers follow the session that answers.
        setup: The SETUP.
        source: The address it came from.
        now_ns: The time now.
    """
    log = image.log
    if source != image.source or not gives_way(image, now_ns) or not check_setup(setup):
        return False
    terms = setup.initial_term_id, setup.term_length, setup.mtu_length
    return terms != (log.initial_term_id, log.term_length, log.mtu_length)
