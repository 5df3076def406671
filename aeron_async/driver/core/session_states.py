"""The streams and sessions of one receive endpoint: wanted, pending, ignored or succeeded.

Invariant: stream and session ids come off the wire, so only a bounded number is remembered:

- `PendingSetups`: sessions that were asked for a SETUP. All wait equally long, so they expire in
  the order in which they were asked; when it is full, no further one is asked;
- `Strangers`: streams that no subscription wants. The one noted first makes way;
- `SessionStates`: sessions without an image, over all streams together. The one heard of least
  recently makes way, and sessions that cool down go last, so that no flood of unknown ones brings
  back an image that was released. Images are kept in `StreamInterest`, and never make way.

Invariant: no response stream that is still heard gives way to another. A server that restarts
names a new session for its responses, or begins the old one again, and a stranger can forge the
frames that say either. An honest publisher sends a heartbeat every 100 ms, so only a stream that
has missed five of them gives way.

Source: Aeron `Receiver.pendingSetupMessages`, `DataPacketDispatcher.StreamInterest`,
`DataPacketDispatcher.SessionInterest`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

from aeron_async.driver.core.context import HEARTBEAT_INTERVAL_NS
from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.loss_detector import NEVER_NS
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
    """The sessions that are waited for.

    Args:
        limit: Most sessions at once.
        timeout_ns: How long each is waited for.
    """

    def __init__(self, limit: int, timeout_ns: int) -> None:
        self._limit = limit
        self._timeout_ns = timeout_ns
        self._expiry_ns: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._expiry_ns)

    def try_add(self, stream_id: int, session_id: int, now_ns: int) -> bool:
        """Wait for a session; False when there are too many to wait for another."""
        pending = self._expiry_ns
        while pending and pending[oldest := next(iter(pending))] <= now_ns:
            del pending[oldest]
        if len(pending) >= self._limit:
            return False
        # Taken out first: one that was forgotten meanwhile and is asked again expires last.
        pending.pop((stream_id, session_id), None)
        pending[stream_id, session_id] = now_ns + self._timeout_ns
        return True

    def remove(self, stream_id: int, session_id: int) -> None:
        """Wait for a session no more."""
        self._expiry_ns.pop((stream_id, session_id), None)


MAX_STRANGERS: Final = 8
"""Streams that are remembered."""


class Strangers:
    """The streams that arrived and were not wanted."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[tuple[int, int], tuple[Address, list[int]]] = {}

    def note(self, stream_id: int, session_id: int, source: Address, now_ns: int) -> None:
        """Remember that a datagram of a stream came; the source is that of its first one."""
        entries = self._entries
        entry = entries.get((stream_id, session_id))
        if entry is not None:
            entry[1][0] = now_ns
            return
        if len(entries) >= MAX_STRANGERS:
            del entries[next(iter(entries))]
        entries[stream_id, session_id] = source, [now_ns]

    def heard_since(self, since_ns: int) -> list[tuple[int, int, Address]]:
        """Return stream id, session id and source of the streams that were heard since a time."""
        return [
            (stream_id, session_id, source)
            for (stream_id, session_id), (source, heard_ns) in self._entries.items()
            if heard_ns[0] >= since_ns
        ]


class StreamInterest:
    """The sessions of one stream on one endpoint.

    Attributes:
        images: Active images by session id.
        is_all_sessions: Whether some subscription takes every session.
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
    """The sessions that are remembered, by stream and session id.

    Args:
        limit: Most sessions at once.
        evicted: Counts those that made way.

    Attributes:
        strangers: Sessions of streams that nobody wants.
    """

    def __init__(self, limit: int, evicted: Counter) -> None:
        self._limit = limit
        self._evicted = evicted
        self.strangers: Strangers = Strangers()
        # Both in the order in which they were last heard of.
        self._states: dict[tuple[int, int], tuple[SessionState, int]] = {}
        self._cool_downs: dict[tuple[int, int], None] = {}

    def __len__(self) -> int:
        return len(self._states) + len(self._cool_downs)

    def state_of(self, stream_id: int, session_id: int, now_ns: int) -> SessionState | None:
        """Return why a session that is heard of now is ignored, or None when it is not."""
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
        """Return the sessions of a stream and why they are ignored, that heard of last at the end.

        Those whose time is up are among them until they are heard of again.
        """
        states = [(key, state) for key, (state, _) in self._states.items()]
        cool_downs = [(key, SessionState.COOL_DOWN) for key in self._cool_downs]
        return [(key[1], state) for key, state in states + cool_downs if key[0] == stream_id]

    def set_state(
        self, stream_id: int, session_id: int, state: SessionState, *, expiry_ns: int = NEVER_NS
    ) -> None:
        """Ignore the session until `expiry_ns`; a cool-down has no such end."""
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
        """Stop ignoring what somebody wants now: one session of a stream, or all of them."""
        if session_id is not None:
            self.forget(stream_id, session_id, SessionState.NO_INTEREST)
            return
        self._states = {
            key: entry
            for key, entry in self._states.items()
            if key[0] != stream_id or entry[0] is not SessionState.NO_INTEREST
        }

    def keep(self, stream_id: int, is_wanted: Callable[[int], bool]) -> None:
        """Forget the sessions of a stream that nobody wants any more."""
        for states in (self._states, self._cool_downs):
            unwanted = [key for key in states if key[0] == stream_id and not is_wanted(key[1])]
            for key in unwanted:
                del states[key]


# The succession of response streams.

SUCCESSION_SILENCE_NS: Final = 5 * HEARTBEAT_INTERVAL_NS
"""How long a response stream has to be silent before another may take its place."""


def gives_way(image: PublicationImage, now_ns: int) -> bool:
    """Return whether a response stream has ended, or is silent, so that another may follow it."""
    return now_ns >= gives_way_ns(image)


def gives_way_ns(image: PublicationImage) -> int:
    """Return since when another stream may follow, or from when if nothing more is heard of it."""
    if image.state is not ImageState.ACTIVE:
        return image.ended_ns
    heard_ns = max((each.last_activity_ns for each in image.connections), default=0)
    return heard_ns + SUCCESSION_SILENCE_NS


def begins_again(image: PublicationImage, setup: Setup, source: Address, now_ns: int) -> bool:
    """Return whether a SETUP begins a new response stream with the session of an image.

    Its terms tell. Of a server that fixes session and initial term alike, two lives look the same.

    Args:
        image: Has the session; it follows the session that answers.
        setup: What came.
        source: Where it came from.
        now_ns: The time now.
    """
    log = image.log
    if source != image.source or not gives_way(image, now_ns) or not check_setup(setup):
        return False
    terms = setup.initial_term_id, setup.term_length, setup.mtu_length
    return terms != (log.initial_term_id, log.term_length, log.mtu_length)
