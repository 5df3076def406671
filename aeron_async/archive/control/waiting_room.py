"""The clients that have asked to be let in, and have not shown that they hear the answers.

Invariant: at most so many sessions of one source, and so many in all, are open to clients that have
not used the session id that they were told; each costs memory and datagrams, and the request may
have come from anywhere. Requests beyond that wait, which costs their bytes only; those beyond that
are refused.

A source none of whose clients was silent or refused goes before others, and takes their place, also
among the requests that wait. What is remembered of a source goes with it.

Differs: Aeron opens a session for each request, and waits 5 s for each client.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.clock import NS_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.archive.control.control_session import ControlSession
    from aeron_async.archive.control.requests import AuthConnectRequest
    from aeron_async.archive.control.settings import ControlSettings
    from aeron_async.client.image import Image
    from aeron_async.clock import Clock

__all__ = ["WaitingRoom"]

YOUNG_SHIFT: Final = 1
"""A session makes way for another source's after half of its time."""
WAITING_MAX: Final = 256
"""Requests that wait for a session, of all sources."""
WAITING_BYTES_MAX: Final = 1 << 20
"""Of their bytes: an honest request has a few hundred, a stranger's up to max_request_length."""
LOOKS: Final = 10
"""How often waiting requests are looked at in the time that a session has."""


@attrs.frozen(eq=False)
class Newcomer:
    """A request to be let in that waits for its turn.

    Attributes:
        request: As it came.
        image: By which it came.
        length: Of the request, in bytes.
        deadline_ns: After this the client does not wait any more.
    """

    request: AuthConnectRequest
    image: Image
    length: int
    deadline_ns: int


class WaitingRoom:
    """The sessions that wait for their clients, and the requests that wait for a session.

    Args:
        settings: The bounds.
        clock: Reads the time.
        open_session: Opens a session for a request, with its image and its length in bytes.

    Attributes:
        displaced_count: Requests that waited, and were refused in favour of others.
    """

    def __init__(
        self,
        settings: ControlSettings,
        clock: Clock,
        open_session: Callable[[AuthConnectRequest, Image, int], ControlSession],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._open_session = open_session
        self._opened_ns: dict[ControlSession, int] = {}
        self._newcomers: deque[Newcomer] = deque()
        # Of sources that have asked and are not gone: nothing else may be remembered of strangers.
        self._failures: dict[Image, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.displaced_count = 0

    @property
    def session_count(self) -> int:
        """Return how many sessions wait for their clients."""
        return len(self._opened_ns)

    @property
    def newcomer_count(self) -> int:
        """Return how many requests wait for a session."""
        return len(self._newcomers)

    def try_enter(self, request: AuthConnectRequest, image: Image, length: int) -> bool:
        """Open a session, now or when there is room; False where too many wait already."""
        self._failures.setdefault(image, 0)
        if not self._newcomers and self._make_room(image):
            self._open(request, image, length)
            return True
        waiting_count = sum(each.image is image for each in self._newcomers)
        if waiting_count >= self._settings.max_unconnected_sessions_per_image:
            return False
        deadline_ns = self._clock.now_ns() + self._settings.connect_timeout_ns
        newcomer = Newcomer(request, image, length, deadline_ns)
        self._newcomers.append(newcomer)
        self._let_in()
        while (refused := self._one_too_many()) is not None:
            self._newcomers.remove(refused)
            if refused is newcomer:
                return False
            self.displaced_count += 1
        return True

    def _one_too_many(self) -> Newcomer | None:
        """Return which request is refused where too many wait: the youngest of one source.

        That is a source that has failed, if there is one; else the one that waits with the most
        requests. So a source that waits with one is not pushed out by those that wait with four.
        """
        waiting = self._newcomers
        length = sum(each.length for each in waiting)
        if len(waiting) <= WAITING_MAX and length <= WAITING_BYTES_MAX:
            return None
        counts = Counter(each.image for each in waiting)
        # Of equals `max` takes the first, and the youngest is looked at first.
        return max(
            reversed(waiting), key=lambda each: (self._has_failed(each.image), counts[each.image])
        )

    def leave(self, session: ControlSession, *, is_failed: bool) -> None:
        """Let a session go that was let in, or has ended; leaving twice is leaving once.

        Args:
            session: Of a client.
            is_failed: Whether the client was not let in.
        """
        if self._opened_ns.pop(session, None) is None:
            return
        if is_failed:
            self._count_failure(session.image)
        elif session.image in self._failures:
            self._failures[session.image] = 0
        self._let_in()

    def forget(self, image: Image) -> None:
        """Forget a source that is gone, and what it asked for."""
        self._failures.pop(image, None)
        self._newcomers = deque(each for each in self._newcomers if each.image is not image)

    def close(self) -> None:
        """Let nobody in any more."""
        self._newcomers.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _open(self, request: AuthConnectRequest, image: Image, length: int) -> None:
        session = self._open_session(request, image, length)
        self._opened_ns[session] = self._clock.now_ns()

    def _let_in(self) -> None:
        """Open sessions for the requests that wait, as far as there is room."""
        now_ns = self._clock.now_ns()
        waiting = sorted(self._newcomers, key=lambda each: self._has_failed(each.image))
        for each in waiting:
            if each.deadline_ns <= now_ns:
                self._newcomers.remove(each)
            elif self._make_room(each.image):
                self._newcomers.remove(each)
                self._open(each.request, each.image, each.length)
        if self._newcomers and self._timer is None:
            delay_ns = self._settings.unconnected_session_timeout_ns // LOOKS
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(delay_ns / NS_PER_SECOND, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._let_in()

    def _make_room(self, image: Image) -> bool:
        """Return whether a session of a source may be opened; end one of another's for it."""
        settings = self._settings
        own_count = sum(each.image is image for each in self._opened_ns)
        if own_count >= settings.max_unconnected_sessions_per_image:
            return False
        if len(self._opened_ns) < settings.max_unconnected_sessions:
            return True
        if own_count or self._has_failed(image):
            return False
        victim = self._victim()
        if victim is None:
            return False
        del self._opened_ns[victim]
        self._count_failure(victim.image)
        victim.end("made way for another client: its own has not answered")
        return True

    def _victim(self) -> ControlSession | None:
        """Return which session makes way: of a source that has failed, or one that is not young.

        A client that takes answers has shown where it is, and may be answering a challenge: it
        makes way after those that have not, and stays young for longer.
        """
        settings, now_ns = self._settings, self._clock.now_ns()
        for is_connected, time_ns in (
            (False, settings.unconnected_session_timeout_ns),
            (True, settings.connect_timeout_ns),
        ):
            those = [each for each in self._opened_ns if each.is_connected == is_connected]
            failed = [each for each in those if self._has_failed(each.image)]
            if failed:
                return failed[0]
            if those and now_ns - self._opened_ns[those[0]] >= time_ns >> YOUNG_SHIFT:
                return those[0]
        return None

    def _has_failed(self, image: Image) -> bool:
        return self._failures.get(image, 0) > 0

    def _count_failure(self, image: Image) -> None:
        if image in self._failures:
            self._failures[image] += 1
