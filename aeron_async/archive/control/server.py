"""Serves an archive: hears requests on its control channels, and keeps a session for each client.

What comes from outside is bounded, and what is malformed or foreign is counted, logged and dropped.

Source: Aeron `ControlSessionAdapter`, `ArchiveConductor`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Any, Final, Self, final

from aeron_async.archive.argument_order import check_archive_and_aeron
from aeron_async.archive.control.control_session import ControlSession, replaced_channel
from aeron_async.archive.control.messages import CODEC, Challenge, ControlResponse
from aeron_async.archive.control.recording_events import RecordingEvents
from aeron_async.archive.control.replay_tokens import ReplayTokens
from aeron_async.archive.control.requests import (
    AuthConnectRequest,
    BoundedReplayRequest,
    CloseSessionRequest,
    ReplayRequest,
    Request,
)
from aeron_async.archive.control.response_channel import SENT_PER_BYTE, LookUps, response_channel
from aeron_async.archive.control.settings import ControlSettings
from aeron_async.archive.control.signal_router import SignalRouter
from aeron_async.archive.control.waiting_room import WaitingRoom
from aeron_async.errors import ArchiveError, ChannelUriError, ProtocolError
from aeron_async.logs import LogBudget, get_logger
from aeron_async.text import printable

if TYPE_CHECKING:
    from types import TracebackType

    from aeron_async.client.aeron import Aeron
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.client.image import Image
    from aeron_async.client.subscription import Subscription

__all__ = ["ControlServer"]

LOG: Final = get_logger(__name__)
NO_TOKEN: Final = -1
SESSION_ID_BITS: Final = 63
SERVED: Final = ("archive_id", "recording_sessions", "signals")
"""What an archive must have to be served."""


@final
class ControlServer:
    """Serves an archive for as long as it is open: `async with ControlServer(...)`.

    Args:
        archive: An `Archive` that is a `ServedArchive` too; it stays open.
        aeron: Whose subscriptions and publications it uses; started.
        settings: Where and how.

    Attributes:
        dropped_requests: Requests that were malformed, or of nobody's session, or from elsewhere.
        look_ups: Looks up the names that those clients want to be answered at.
        waiting_room: The clients that have not been let in yet.
        events: Tells everybody what becomes of recordings, where that is wanted.

    Raises:
        ConfigurationError: The archive or the client is something else, or they are exchanged.
    """

    def __init__(self, archive: Any, aeron: Aeron, settings: ControlSettings | None = None) -> None:
        check_archive_and_aeron("ControlServer", archive, aeron, needs=SERVED)
        self.aeron = aeron
        self.archive = archive
        self.settings = ControlSettings() if settings is None else settings
        self.router = SignalRouter()
        self.tokens = ReplayTokens(aeron.clock, timeout_ns=self.settings.connect_timeout_ns)
        self.look_ups = LookUps(aeron.driver.conductor.look_up)
        self.waiting_room = WaitingRoom(self.settings, aeron.clock, self._open)
        self.dropped_requests = 0
        self._refused_sessions = 0
        self.events: RecordingEvents | None = None
        self._events_publication: ExclusivePublication | None = None
        self._log_budget = LogBudget(aeron.clock.now_ns)
        self._sessions: dict[int, ControlSession] = {}
        self._subscriptions: list[Subscription] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def refused_sessions(self) -> int:
        """Return how many clients were one too many, or came while too many had not answered."""
        return self._refused_sessions + self.waiting_room.displaced_count

    @property
    def session_count(self) -> int:
        """Return how many clients there are."""
        return len(self._sessions)

    async def start(self) -> None:
        """Begin to hear requests.

        Raises:
            RegistrationError: The driver cannot have a channel; nothing is heard then.
        """
        try:
            await self._start()
        except BaseException:
            await self.aclose()
            raise

    async def _start(self) -> None:
        settings = self.settings
        # Shared: the peers of the driver and those of the archive are the same strangers.
        self._log_budget = self.aeron.driver.conductor.log_budget
        self._keep(asyncio.create_task(self._route(), name="aeron-archive-signals"))
        if settings.recording_events_channel is not None:
            self._events_publication = await self.aeron.add_exclusive_publication(
                settings.recording_events_channel, settings.recording_events_stream_id
            )
            self.events = RecordingEvents(self.archive, self._events_publication, self._log_budget)
            self._keep(asyncio.create_task(self.events.run(), name="aeron-archive-events"))
        for channel, stream_id in (
            (settings.control_channel, settings.control_stream_id),
            (settings.local_control_channel, settings.local_control_stream_id),
        ):
            if channel is None:
                continue
            subscription = await self.aeron.add_subscription(
                channel, stream_id, on_unavailable_image=self._on_unavailable_image
            )
            # An archive that nobody asks for anything is well.
            subscription.logs_waits = False
            self._subscriptions.append(subscription)
            self._keep(asyncio.create_task(self._hear(subscription), name="aeron-archive-control"))

    async def aclose(self) -> None:
        """End all sessions, and hear nothing more; closing twice is closing once."""
        # At once: who is cancelled meanwhile has left nothing open.
        self.waiting_room.close()
        self.look_ups.close()
        for subscription in self._subscriptions:
            subscription.close()
        if self._events_publication is not None:
            self._events_publication.close()
        while tasks := [each for each in self._tasks if not each.done()]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await self.look_ups.wait_closed()

    def forget(self, session: ControlSession) -> None:
        """Know nothing more of a session that has ended."""
        self._sessions.pop(session.session_id, None)
        self.waiting_room.leave(session, is_failed=not session.is_active)
        self.router.forget(session)
        self.tokens.forget(session)

    def try_accept(self, session: ControlSession) -> bool:
        """Return whether a client may be let in; False where there are as many as there may be."""
        accepted_count = sum(
            each.is_accepted and each is not session for each in self._sessions.values()
        )
        if accepted_count >= self.settings.max_sessions:
            self._refused_sessions += 1
            return False
        return True

    def on_active(self, session: ControlSession) -> None:
        """Take a client for one that is there: it has used the id that it was told.

        That its answers are taken proves less: a stranger may name anybody's subscription, or one
        of the archive's own.
        """
        self.waiting_room.leave(session, is_failed=False)

    def on_ended(self, session: ControlSession, reason: str) -> None:
        """Log why a session ends; of those that nobody answered, one a second."""
        cause = None if session.is_connected else "unconnected"
        if LOG.is_enabled_for(logging.INFO) and self._log_budget.allows(
            "archive_control_session_ended", cause
        ):
            LOG.info("archive_control_session_ended", session_id=session.session_id, reason=reason)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            LOG.error("archive_control_task_failed", task=task.get_name(), exc_info=error)

    async def _route(self) -> None:
        """Hand on what becomes of recordings."""
        signals = self.archive.signals()
        while True:
            try:
                async for event in signals:
                    self.router.on_signal(event)
            except ArchiveError as error:
                # So many came at once that some were lost; those that come now are not.
                signals = self.archive.signals()
                LOG.warning("archive_signals_lost", error=str(error))
                await asyncio.sleep(0)
            else:
                return

    async def _hear(self, subscription: Subscription) -> None:
        """Take requests, until the subscription is closed."""
        async for each in subscription:
            self.on_request(each.data, each.image)

    def on_request(self, data: bytes | memoryview, image: Image) -> None:
        """Take one request; nothing that is wrong with it raises."""
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
            # From another image it may be anybody.
            self._drop(image, f"no session {request.control_session_id} of that source")
        elif isinstance(request, CloseSessionRequest):
            session.end("session closed")
        else:
            session.put(request)

    def _on_own_answer(self, session_id: int, image: Image) -> None:
        """End a session that is answered at the archive's own control channel."""
        session = self._sessions.get(session_id)
        if session is not None and session.answers_session_id == image.session_id:
            session.end("its answers come to the archive itself: response channel and stream")

    def _on_connect(self, request: AuthConnectRequest, image: Image, length: int) -> None:
        response_channel(request.response_channel, image, self.settings)
        if image.is_closed:
            self._drop(image, "its source is gone")
            return
        if not self.waiting_room.try_enter(request, image, length):
            self._refused_sessions += 1
            self._drop(image, "too many of its sessions, or of all, wait for an answer already")

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
        self._keep(session.start())
        return session

    def _new_session_id(self) -> int:
        """Return an id that nobody guesses: to use it is to have heard the answer.

        Differs: Aeron counts them.
        """
        while (session_id := secrets.randbits(SESSION_ID_BITS)) in self._sessions:
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
