"""Server of an archive: admits clients, and routes their requests and signals.

A client may send its first request from a forged address, and each session costs memory and
datagrams. So the server limits sessions whose client has not yet used its session id.
`ControlServer` counts, logs and drops requests that are malformed or do not belong to a session.

Invariant: `WaitingRoom` bounds these sessions, per source and in all. Requests beyond the limit
wait, which costs only their bytes; if too many wait, one is refused.

A source none of whose clients was silent or refused comes before the other sources: it takes the
place of their sessions, and of their waiting requests. `WaitingRoom` forgets a source when its
image is gone.

Differs: Aeron opens a session for each request, and waits 5 s for each client.

Source: Aeron `ArchiveConductor`, `ArchiveConductor.generateReplayToken`, `ControlSession`,
`ControlSession.sendSignal`, `ControlSessionAdapter`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final, Self, final

import attrs

from aeron_async.archive.api import RecordingSignal
from aeron_async.archive.arguments import check_archive_and_aeron
from aeron_async.archive.control.control_session import ControlSession
from aeron_async.archive.control.messages import (
    CODEC,
    AuthConnectRequest,
    BoundedReplayRequest,
    Challenge,
    CloseSessionRequest,
    ControlResponse,
    RecordingSignalMessage,
    ReplayRequest,
    Request,
)
from aeron_async.archive.control.recording_events import RecordingEvents
from aeron_async.archive.control.response_channel import SENT_PER_BYTE, LookUps, response_channel
from aeron_async.archive.control.settings import ControlSettings
from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import ArchiveError, ChannelUriError, ProtocolError
from aeron_async.logs import LogBudget, get_logger
from aeron_async.protocol.channel_uri import ChannelUri, Media
from aeron_async.tasks import TaskOwner
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from aeron_async.archive.api import RecordingSignalEvent
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.client.image import Image
    from aeron_async.client.subscription import Subscription
    from aeron_async.clock import Clock

__all__ = [
    "ControlServer",
    "ReplayTokens",
    "SignalRouter",
    "WaitingRoom",
]


# Tokens for replays.


def replaced_channel(request: Any, image: Image) -> Any:
    """Return a replay request whose channel names the image that it answers."""
    uri = ChannelUri.parse(request.replay_channel)
    channel = str(uri.replace(response_correlation_id=image.correlation_id))
    return attrs.evolve(request, replay_channel=channel)


MOST_TOKENS: Final = 1_024
"""Most tokens that are valid at once; the oldest is dropped for a new one."""


def unguessable_id() -> int:
    """Return 63 random bits from the system, which fit a signed field of 64."""
    return int.from_bytes(os.urandom(8)) >> 1


class ReplayTokens:
    """The valid replay tokens.

    Args:
        clock: Reads the time.
        timeout_ns: How long a token is valid.
    """

    def __init__(self, clock: Clock, *, timeout_ns: int) -> None:
        self._clock = clock
        self._timeout_ns = timeout_ns
        self._tokens: dict[int, tuple[ControlSession, int, int]] = {}

    def add(self, session: ControlSession, recording_id: int) -> int:
        """Return a new token for replays of one recording by one session."""
        now_ns = self._clock.now_ns()
        self._tokens = {key: each for key, each in self._tokens.items() if each[2] > now_ns}
        while len(self._tokens) >= MOST_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        # Never -1, which means no token, and hard to guess.
        token = unguessable_id()
        self._tokens[token] = (session, recording_id, now_ns + self._timeout_ns)
        return token

    def session_of(self, token: int, recording_id: int) -> ControlSession | None:
        """Return the session of a token, if the token is valid for that recording."""
        found = self._tokens.get(token)
        if found is None:
            return None
        session, meant_id, deadline_ns = found
        is_good = meant_id == recording_id and self._clock.now_ns() < deadline_ns
        return session if is_good else None

    def forget(self, session: ControlSession) -> None:
        """Drop the tokens of a session."""
        self._tokens = {key: each for key, each in self._tokens.items() if each[0] is not session}


# Recording signals.

MOST_OWNERS: Final = 4_096
"""Subscriptions whose requesting session is remembered; the oldest are forgotten."""
MOST_HELD: Final = 4_096
"""Signals that are kept until their session is known."""


class SignalRouter:
    """Passes each recording signal to the session that requested the recording."""

    def __init__(self) -> None:
        self._owners: dict[int, tuple[ControlSession, int]] = {}
        self._held: deque[RecordingSignalEvent] = deque(maxlen=MOST_HELD)
        self._starting_count = 0

    def hold(self) -> None:
        """Keep signals without a known session, until `release`: a running request may own them.

        A recording may start before its request is answered, and only the answer ties the
        subscription to a session.
        """
        self._starting_count += 1

    def own(self, subscription_id: int, session: ControlSession, correlation_id: int) -> None:
        """Send the signals of a subscription to a session from now on, and those kept for it."""
        while len(self._owners) >= MOST_OWNERS:
            del self._owners[next(iter(self._owners))]
        self._owners[subscription_id] = (session, correlation_id)
        held = list(self._held)
        self._held.clear()
        for event in held:
            self.on_signal(event)

    def release(self) -> None:
        """Stop keeping signals, if no other request is running."""
        self._starting_count -= 1
        if self._starting_count == 0:
            self._held.clear()

    def forget(self, session: ControlSession) -> None:
        """Send a session no more signals."""
        self._owners = {
            key: (owner, each)
            for key, (owner, each) in self._owners.items()
            if owner is not session
        }

    def on_signal(self, event: RecordingSignalEvent) -> None:
        """Pass a signal to its session."""
        if event.signal is RecordingSignal.DELETE:
            # The session that asked for a deletion gets this signal after the answer.
            return
        found = self._owners.get(event.subscription_id)
        if found is not None:
            session, correlation_id = found
            session.say(
                RecordingSignalMessage(
                    control_session_id=session.session_id,
                    correlation_id=correlation_id,
                    recording_id=event.recording_id,
                    subscription_id=event.subscription_id,
                    position=event.position,
                    signal=event.signal,
                )
            )
        elif self._starting_count > 0:
            self._held.append(event)

    def tell_of_deletion(self, session: ControlSession, request: Any) -> None:
        """Send the delete signal to the session that asked for the deletion."""
        session.say(
            RecordingSignalMessage(
                control_session_id=session.session_id,
                correlation_id=request.correlation_id,
                recording_id=request.recording_id,
                subscription_id=-1,
                position=-1,
                signal=RecordingSignal.DELETE,
            )
        )


# Admission of clients.

YOUNG_SHIFT: Final = 1
"""A session may be displaced by another source's after this half of its time."""
WAITING_MAX: Final = 256
"""Most requests that wait for a session, of all sources."""
WAITING_BYTES_MAX: Final = 1 << 20
"""Most bytes of waiting requests; an honest one has a few hundred bytes."""
LOOKS: Final = 10
"""How often waiting requests are checked during the time of one session."""


@attrs.frozen(eq=False)
class Newcomer:
    """A connect request that waits for a session.

    Attributes:
        request: The request.
        image: Image that it came by.
        length: Length of the request, in bytes.
        deadline_ns: When the client stops waiting.
    """

    request: AuthConnectRequest
    image: Image
    length: int
    deadline_ns: int


class WaitingRoom:
    """The sessions that wait for their clients, and the requests that wait for a session.

    Args:
        settings: The limits.
        clock: Reads the time.
        open_session: Opens a session for a request, given its image and its length in bytes.

    Attributes:
        displaced_count: Waiting requests that were refused in favour of others.
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
        # Failures of each source that has an open image; no other source is remembered.
        self._failures: dict[Image, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.displaced_count: int = 0

    @property
    def session_count(self) -> int:
        """Return how many sessions wait for their clients."""
        return len(self._opened_ns)

    @property
    def newcomer_count(self) -> int:
        """Return how many requests wait for a session."""
        return len(self._newcomers)

    def try_enter(self, request: AuthConnectRequest, image: Image, length: int) -> bool:
        """Open a session, now or when there is room; return False if too many wait already."""
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
        """Return the request to refuse if too many wait: the youngest of one source.

        That is a source that has failed, if there is one; else the source with the most waiting
        requests. So a source with one waiting request is not displaced by sources with four.
        """
        waiting = self._newcomers
        length = sum(each.length for each in waiting)
        if len(waiting) <= WAITING_MAX and length <= WAITING_BYTES_MAX:
            return None
        counts = Counter(each.image for each in waiting)
        # Of equals `max` takes the first, so `reversed` makes it the youngest.
        return max(
            reversed(waiting), key=lambda each: (self._has_failed(each.image), counts[each.image])
        )

    def leave(self, session: ControlSession, *, is_failed: bool) -> None:
        """Remove a session that was admitted, or has ended; a second call does nothing.

        Args:
            session: Session of a client.
            is_failed: Whether the client was not admitted.
        """
        if self._opened_ns.pop(session, None) is None:
            return
        if is_failed:
            self._count_failure(session.image)
        elif session.image in self._failures:
            self._failures[session.image] = 0
        self._let_in()

    def forget(self, image: Image) -> None:
        """Forget a source whose image is gone, and its requests."""
        self._failures.pop(image, None)
        self._newcomers = deque(each for each in self._newcomers if each.image is not image)

    def close(self) -> None:
        """Open no more sessions."""
        self._newcomers.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _open(self, request: AuthConnectRequest, image: Image, length: int) -> None:
        session = self._open_session(request, image, length)
        self._opened_ns[session] = self._clock.now_ns()

    def _let_in(self) -> None:
        """Open sessions for the waiting requests, as far as there is room."""
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
        """Return whether a source may open a session; end another source's session if needed."""
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
        victim.end("another client took its place: its own client has not answered")
        return True

    def _victim(self) -> ControlSession | None:
        """Return the session to displace: of a source that has failed, or one that is not young.

        A client that takes answers has proved its address, and may be answering a challenge. It is
        displaced after clients that have not, and counts as young for longer.
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


# The server.

LOG: Final = get_logger(__name__)
NO_TOKEN: Final = -1
SERVED: Final = ("archive_id", "recording_sessions", "signals")
"""Attributes that the archive must have."""


@final
class ControlServer:
    """Serves an archive while the context is open: `async with ControlServer(...)`.

    Args:
        archive: An `Archive` that is a `ServedArchive` too; the server does not close it.
        aeron: A started client, for subscriptions and publications.
        settings: Channels and limits.

    Attributes:
        dropped_requests: Requests that were malformed, without a session, or from a wrong source.
        look_ups: Resolves the host names in response channels of new clients.
        waiting_room: The clients that are not admitted yet.
        events: Publishes recording events; None if they are not configured.

    Raises:
        ConfigurationError: An argument has the wrong type, or both are swapped.
    """

    def __init__(self, archive: Any, aeron: Aeron, settings: ControlSettings | None = None) -> None:
        check_archive_and_aeron("ControlServer", archive, aeron, needs=SERVED)
        self.aeron = aeron
        self.archive = archive
        self.settings: ControlSettings = ControlSettings() if settings is None else settings
        self.router: SignalRouter = SignalRouter()
        self.tokens: ReplayTokens = ReplayTokens(
            aeron.clock, timeout_ns=self.settings.connect_timeout_ns
        )
        self.look_ups: LookUps = LookUps(aeron.driver.conductor.look_up)
        self.waiting_room: WaitingRoom = WaitingRoom(self.settings, aeron.clock, self._open)
        self.dropped_requests: int = 0
        self._refused_sessions = 0
        self.events: RecordingEvents | None = None
        self._events_publication: ExclusivePublication | None = None
        self._log_budget = LogBudget(aeron.clock.now_ns)
        self._sessions: dict[int, ControlSession] = {}
        self._subscriptions: list[Subscription] = []
        self._tasks = TaskOwner(self._on_failed)

    @property
    def refused_sessions(self) -> int:
        """Return how many connect requests were refused because of a limit."""
        return self._refused_sessions + self.waiting_room.displaced_count

    @property
    def session_count(self) -> int:
        """Return how many sessions there are."""
        return len(self._sessions)

    async def start(self) -> None:
        """Start to receive requests.

        Raises:
            RegistrationError: The driver refuses a channel; the server is then closed.
        """
        try:
            await self._start()
        except BaseException:
            await self.aclose()
            raise

    async def _start(self) -> None:
        settings = self.settings
        # Shared with the driver: the same remote hosts cause the lines of both.
        self._log_budget = self.aeron.driver.conductor.log_budget
        self._tasks.start(self._route(), "aeron-archive-signals")
        if settings.recording_events_channel is not None:
            self._events_publication = await self.aeron.add_exclusive_publication(
                settings.recording_events_channel, settings.recording_events_stream_id
            )
            self.events = RecordingEvents(self.archive, self._events_publication, self._log_budget)
            self._tasks.start(self.events.run(), "aeron-archive-events")
        heard: tuple[Media, int] | None = None
        for channel, stream_id in (
            (settings.control_channel, settings.control_stream_id),
            (settings.local_control_channel, settings.local_control_stream_id),
        ):
            if channel is None:
                continue
            kind = (ChannelUri.parse(channel).media, stream_id)
            if kind == heard:
                # Two subscriptions would hear each request twice.
                continue
            heard = kind if kind[0] is Media.IPC else None
            subscription = await self.aeron.add_subscription(
                channel, stream_id, on_unavailable_image=self._on_unavailable_image
            )
            # An archive without requests is healthy: its subscription logs no waiting.
            subscription.logs_waits = False
            self._subscriptions.append(subscription)
            self._tasks.start(self._hear(subscription), "aeron-archive-control")

    async def aclose(self) -> None:
        """End all sessions and stop receiving; a second call does nothing."""
        # Close before the first await: a cancelled caller leaves nothing open.
        self.waiting_room.close()
        self.look_ups.close()
        for subscription in self._subscriptions:
            subscription.close()
        if self._events_publication is not None:
            self._events_publication.close()
        await self._tasks.aclose()
        await self.look_ups.wait_closed()

    def forget(self, session: ControlSession) -> None:
        """Forget a session that has ended."""
        self._sessions.pop(session.session_id, None)
        self.waiting_room.leave(session, is_failed=not session.is_active)
        self.router.forget(session)
        self.tokens.forget(session)

    def try_accept(self) -> bool:
        """Return whether a client may be admitted; False if `max_sessions` are active.

        Only clients that have used their session count. Other sessions may come from forged
        requests, and must not keep real clients out; the waiting room limits those.
        """
        active_count = sum(each.is_active for each in self._sessions.values())
        if active_count >= self.settings.max_sessions:
            self._refused_sessions += 1
            return False
        return True

    def on_active(self, session: ControlSession) -> None:
        """Count a client as admitted: it has used the session id that it was sent.

        That a subscriber takes the answers proves less: a forged request may name any subscription,
        even one of the archive itself.
        """
        self.waiting_room.leave(session, is_failed=False)

    def on_ended(self, session: ControlSession, reason: str) -> None:
        """Log why a session ends; for clients that never answered, at most one line a second."""
        cause = None if session.is_connected else "unconnected"
        if LOG.is_enabled_for(logging.INFO) and self._log_budget.allows(
            "archive_control_session_ended", cause
        ):
            LOG.info("archive_control_session_ended", session_id=session.session_id, reason=reason)

    def _on_failed(self, task: asyncio.Task[None]) -> None:
        LOG.error("archive_control_task_failed", task=task.get_name(), exc_info=task.exception())

    async def _route(self) -> None:
        """Pass the signals of recordings to the router."""
        signals = self.archive.signals()
        while True:
            try:
                async for event in signals:
                    self.router.on_signal(event)
            except ArchiveError as error:
                # Signals came too fast and some were lost; a new reader gets those that follow.
                signals = self.archive.signals()
                LOG.warning("archive_signals_lost", error=str(error))
                await asyncio.sleep(0)
            else:
                return

    async def _hear(self, subscription: Subscription) -> None:
        """Receive requests until the subscription is closed."""
        async for each in subscription:
            self.on_request(each.data, each.image)

    def on_request(self, data: bytes | memoryview, image: Image) -> None:
        """Handle one request; raise nothing, however malformed it is."""
        limit = self.settings.max_request_length
        if len(data) > limit:
            self._drop(image, f"{len(data)} bytes, more than max_request_length of {limit}")
            return
        try:
            request = CODEC.decode(data)
            if isinstance(request, AuthConnectRequest):
                self._on_connect(request, image, len(data))
            else:
                self._take(request, image)
        except (ProtocolError, ChannelUriError) as error:
            self._drop(image, str(error))

    def _take(self, request: object, image: Image) -> None:
        if isinstance(request, ReplayRequest | BoundedReplayRequest) and (
            request.replay_token != NO_TOKEN
        ):
            session = self.tokens.session_of(request.replay_token, request.recording_id)
            if session is not None:
                session.put(replaced_channel(request, image))
            else:
                self._drop(
                    image, f"unknown session or token timeout, replayToken={request.replay_token}"
                )
            return
        if isinstance(request, ControlResponse | Challenge):
            self._on_own_answer(request.control_session_id, image)
        if not isinstance(request, Request | CloseSessionRequest):
            self._drop(image, f"{type(request).__name__} is none of a client's requests")
            return
        session = self._sessions.get(request.control_session_id)
        if session is None or session.image is not image:
            # A request from another image may be forged.
            self._drop(image, f"no session {request.control_session_id} of that source")
        elif isinstance(request, CloseSessionRequest):
            session.end("session closed")
        else:
            session.put(request)

    def _on_own_answer(self, session_id: int, image: Image) -> None:
        """End a session whose answers arrive at the archive's own control channel."""
        session = self._sessions.get(session_id)
        if session is not None and session.answers_session_id == image.session_id:
            session.end(
                "its answers reach the archive itself: change the response channel or stream"
            )

    def _on_connect(self, request: AuthConnectRequest, image: Image, length: int) -> None:
        response_channel(request.response_channel, image, self.settings)
        if image.is_closed:
            self._drop(image, "its image is closed")
            return
        if not self.waiting_room.try_enter(request, image, length):
            self._refused_sessions += 1
            self._drop(image, "too many sessions, of its source or of all, wait for their clients")

    def _open(self, request: AuthConnectRequest, image: Image, length: int) -> ControlSession:
        session_id = self._new_session_id()
        session = ControlSession(
            self,
            session_id=session_id,
            connect=request,
            image=image,
            channel=response_channel(request.response_channel, image, self.settings),
            handshake_length=SENT_PER_BYTE * length,
        )
        self._sessions[session_id] = session
        session.start(self._tasks)
        return session

    def _new_session_id(self) -> int:
        """Return an id that cannot be guessed, so that using it proves that the answer arrived.

        Differs: Aeron numbers its sessions consecutively.
        """
        while (session_id := unguessable_id()) in self._sessions:
            pass
        return session_id

    def _drop(self, image: Image, reason: str) -> None:
        self.dropped_requests += 1
        if self._log_budget.allows("archive_request_dropped", image.source_identity):
            LOG.warning(
                "archive_request_dropped",
                source=image.source_identity,
                reason=printable(reason),
                dropped_requests=self.dropped_requests,
            )

    def _on_unavailable_image(self, image: Image) -> None:
        self.waiting_room.forget(image)
        for session in list(self._sessions.values()):
            if session.image is image:
                session.end("request publication image unavailable")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
