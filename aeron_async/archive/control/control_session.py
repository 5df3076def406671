"""One client of a served archive: its admission, its requests and its answers.

`ControlSession` executes requests one after the other, in order; a listing runs beside them. All
its messages go through one bounded queue. So a slow client delays only itself, and its session ends
when the queue is full or one message waits too long.

Source: Aeron `ControlSession`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aeron_async.archive.control.authentication import AskAgain, Verdict
from aeron_async.archive.control.handlers import (
    DELETIONS,
    HANDLERS,
    LASTING,
    LISTINGS,
    STARTS,
    listing,
    refusal_of,
)
from aeron_async.archive.control.messages import (
    CODEC,
    PROTOCOL_VERSION,
    Challenge,
    ChallengeResponse,
    ControlResponse,
    KeepAliveRequest,
    Ping,
    ReplayTokenRequest,
    ResponseCode,
    major_of,
    version_text,
)
from aeron_async.archive.control.response_channel import source_of, unanswered_bound
from aeron_async.archive.resources import handshake_limit
from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import (
    AeronError,
    ArchiveError,
    ArchiveErrorCode,
    NotConnectedError,
    OfferTimeoutError,
)
from aeron_async.logs import get_logger, within
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from aeron_async.archive.control.messages import AuthConnectRequest, Request
    from aeron_async.archive.control.sbe import SbeMessage
    from aeron_async.archive.control.server import ControlServer
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.client.image import Image
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.tasks import TaskOwner

__all__ = [
    "ControlSession",
]


T = TypeVar("T")

LOG: Final = get_logger(__name__)
TIMEOUT_MIN_S: Final = 0.001
"""Least time to connect, for a client whose host name was resolved at the last moment."""


class SessionEndedError(ArchiveError):
    """Ends the tasks of a session; never leaves this module."""


class ControlSession:
    """The session of one client; `run` is its task.

    Args:
        server: Server that admitted the connect request.
        session_id: Id that the client puts into its requests.
        connect: The connect request.
        image: Image of the requests; those from other images are refused.
        channel: Channel for the answers.
        handshake_length: Bytes that may be sent there before the client has answered.

    Attributes:
        is_connected: Whether a subscriber at the response channel takes the answers.
        is_accepted: Whether the client was admitted.
        is_active: Whether the client has sent a request since: it received the session id.
        answers_session_id: Session id of the publication of answers, once that exists.
    """

    is_connected: bool
    is_accepted: bool

    def __init__(
        self,
        server: ControlServer,
        *,
        session_id: int,
        connect: AuthConnectRequest,
        image: Image,
        channel: ChannelUri,
        handshake_length: int,
    ) -> None:
        self.session_id = session_id
        self.image = image
        self._server = server
        self._settings = server.settings
        self._connect = connect
        self._channel = channel
        self._handshake_length = handshake_length
        # Clients can cause these lines at any rate, so they have a log budget.
        self._peer_log = within(server.aeron.driver.conductor.log_budget, LOG)
        self.is_connected = self.is_accepted = False
        self.answers_session_id: int | None = None
        self._requests: asyncio.Queue[Request] = asyncio.Queue(self._settings.max_pending_requests)
        most = self._settings.max_pending_responses
        # Encoded messages, and whether each is a piece of a listing.
        self._responses: asyncio.Queue[tuple[bytes, bool]] = asyncio.Queue(most)
        # A listing would otherwise fill the queue, and leave no room for other answers.
        self._room_for_pieces = asyncio.Semaphore(max(1, most // 2))
        self._challenge_response: asyncio.Future[ChallengeResponse] | None = None
        self._has_asked = asyncio.Event()
        self._listing: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._timeout = self._settings.connect_timeout_ns / NS_PER_SECOND

    @property
    def is_active(self) -> bool:  # noqa: D102 - an attribute, described above
        return self._has_asked.is_set()

    # Calls from the server.

    def start(self, tasks: TaskOwner) -> None:
        """Start the task of the session."""
        self._task = tasks.start(self.run(), f"aeron-archive-control-session-{self.session_id}")
        # A task cancelled before its first step runs nothing of `run`, not even `finally`.
        self._task.add_done_callback(lambda _: self._server.forget(self))

    def put(self, request: Request) -> None:
        """Queue a request. A client that is not admitted may only answer a challenge."""
        if isinstance(request, ChallengeResponse):
            waiting = self._challenge_response
            if waiting is not None and not waiting.done():
                waiting.set_result(request)
        elif self.is_accepted:
            if not self.is_active:
                self._has_asked.set()
                self._server.on_active(self)
            if isinstance(request, KeepAliveRequest):
                return
            try:
                self._requests.put_nowait(request)
            except asyncio.QueueFull:
                self.end(
                    f"{self._settings.max_pending_requests} requests wait to be carried out: "
                    "max_pending_requests"
                )

    def say(self, message: SbeMessage) -> None:
        """Queue a message to the client."""
        self._put(CODEC.encode(message))

    def end(self, reason: str) -> None:
        """End the session."""
        self._server.on_ended(self, reason)
        if self._task is not None:
            self._task.cancel()

    # The task of the session.

    async def run(self) -> None:
        """Admit the client and execute its requests until the session ends."""
        publication: ExclusivePublication | None = None
        try:
            loop = asyncio.get_running_loop()
            deadline = loop.time() + self._settings.unconnected_session_timeout_ns / NS_PER_SECOND
            publication = await self._add_publication(deadline)
            # A client chose the channel: why it waits belongs in the log of the session, not in its
            # own.
            publication.logs_waits = False
            self.answers_session_id = publication.session_id
            await publication.wait_connected(timeout=max(deadline - loop.time(), TIMEOUT_MIN_S))
            self.is_connected = True
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send_all(publication))
                await self._let_in()
                group.create_task(self._ping_on(publication))
                await self._serve(group)
        except* (SessionEndedError, AeronError) as errors:
            reason = "; ".join(str(each) for each in leaves(errors))
            self._server.on_ended(self, reason)
        finally:
            self._server.forget(self)
            if publication is not None:
                publication.revoke()

    async def _add_publication(self, deadline: float) -> ExclusivePublication:
        """Return the publication for the answers.

        Args:
            deadline: When the session loses its place, in seconds of the loop.

        Raises:
            SessionEndedError: Adding the publication takes longer.
            AeronError: The driver refuses the channel.
        """
        server = self._server
        source = source_of(self.image.source_identity)
        channel = await self._within(
            deadline,
            server.look_ups.numeric(self._channel, source=source, deadline=deadline),
            failure="the host name in the response channel was not looked up",
        )
        return await self._within(
            deadline,
            server.aeron.add_exclusive_publication(
                channel,
                self._connect.response_stream_id,
                on_disconnected="raise",
                handshake_length=handshake_limit(server.aeron, self._handshake_length),
            ),
            failure="the driver did not add the publication for the answers",
        )

    async def _within(self, deadline: float, doing: Awaitable[T], *, failure: str) -> T:
        """Await something until the deadline at which the session loses its place.

        Raises:
            SessionEndedError: It takes longer.
        """
        try:
            async with asyncio.timeout_at(deadline):
                return await doing
        except AeronError:
            # An AeronTimeoutError is a TimeoutError too, and has a better text.
            raise
        except TimeoutError:
            message = (
                f"{failure} within "
                f"unconnected_session_timeout_ns={self._settings.unconnected_session_timeout_ns}"
            )
            raise SessionEndedError(message) from None

    async def _let_in(self) -> None:
        """Authenticate the client, and repeat the answer until the client sends a request.

        Raises:
            SessionEndedError: The client is not admitted.
        """
        connect = self._connect
        if major_of(connect.version) != major_of(PROTOCOL_VERSION):
            text = (
                f"invalid client version {version_text(connect.version)}, archive is "
                f"{version_text(PROTOCOL_VERSION)}"
            )
            await self._refuse(connect.correlation_id, self.session_id, text)
        verdict, correlation_id = await self._authenticate()
        if verdict is not Verdict.ACCEPT:
            code = ArchiveErrorCode.AUTHENTICATION_REJECTED
            await self._refuse(correlation_id, code, "authentication rejected")
        if not self._server.try_accept():
            most = self._settings.max_sessions
            text = f"archive is full: sessions={most} are open, as many as max_sessions allows"
            await self._refuse(correlation_id, ArchiveErrorCode.GENERIC, text)
        self.is_accepted = True
        try:
            async with asyncio.timeout(self._timeout):
                while not self.is_active:
                    self._answer(correlation_id, self.session_id)
                    await self._pause(self._has_asked.wait())
        except TimeoutError:
            message = (
                "the client was accepted but sent no request within "
                f"connect_timeout_ns={self._settings.connect_timeout_ns}"
            )
            raise SessionEndedError(message) from None

    async def _authenticate(self) -> tuple[Verdict, int]:
        """Return the verdict of the authenticator, and the correlation id of the message it judged.

        If the authenticator raises, for credentials that it cannot read, the client is rejected.

        Raises:
            SessionEndedError: The client did not answer.
        """
        connect = self._connect
        correlation_id = connect.correlation_id
        try:
            authenticator = self._settings.authenticator_supplier()
            verdict = authenticator.on_connect(connect.encoded_credentials)
            while isinstance(verdict, AskAgain):
                answer = await self._ask_again(verdict, correlation_id)
                correlation_id = answer.correlation_id
                verdict = authenticator.on_challenge_response(answer.encoded_credentials)
        except SessionEndedError:
            raise
        except Exception as error:  # noqa: BLE001 - one client must not affect the others
            self._on_authenticator_failed(f"it raised {type(error).__name__}: {error}")
            return Verdict.REJECT, correlation_id
        returned: object = verdict
        if not isinstance(returned, Verdict):
            self._on_authenticator_failed(f"it returned {returned!r}, which is no Verdict")
            return Verdict.REJECT, correlation_id
        return returned, correlation_id

    def _on_authenticator_failed(self, what: str) -> None:
        self._peer_log.error(
            "archive_authenticator_failed",
            source=self.image.source_identity,
            error=printable(what),
            consequence="the client was rejected",
        )

    async def _ask_again(self, verdict: AskAgain, correlation_id: int) -> ChallengeResponse:
        """Send a challenge until it is answered.

        Raises:
            SessionEndedError: The client does not answer.
        """
        answer: asyncio.Future[ChallengeResponse] = asyncio.get_running_loop().create_future()
        self._challenge_response = answer
        challenge = Challenge(
            control_session_id=self.session_id,
            correlation_id=correlation_id,
            version=PROTOCOL_VERSION,
            encoded_challenge=verdict.challenge,
        )
        try:
            async with asyncio.timeout(self._timeout):
                while not answer.done():
                    self.say(challenge)
                    await self._pause(asyncio.wait((answer,)))
        except TimeoutError:
            message = "a challenge was not answered"
            raise SessionEndedError(message) from None
        return answer.result()

    async def _refuse(self, correlation_id: int, relevant_id: int, text: str) -> None:
        """Send a refusal repeatedly, because the client may not be connected at once, then end.

        Raises:
            SessionEndedError: Always, after the connect timeout.
        """
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    self._answer(correlation_id, relevant_id, ResponseCode.ERROR, text)
                    await self._pause(self._has_asked.wait())
        except TimeoutError:
            raise SessionEndedError(text) from None

    async def _pause(self, until: Any) -> None:
        try:
            async with asyncio.timeout(self._settings.resend_interval_ns / NS_PER_SECOND):
                await until
        except TimeoutError:
            pass

    async def _ping_on(self, publication: ExclusivePublication) -> None:
        """Check at intervals that the client is connected.

        Raises:
            SessionEndedError: The client is not connected.
        """
        while True:
            await asyncio.sleep(self._settings.liveness_interval_ns / NS_PER_SECOND)
            if not publication.is_connected:
                message = "control response publication is not connected"
                raise SessionEndedError(message)
            if self._responses.empty():
                self.say(Ping(control_session_id=self.session_id))

    async def _send_all(self, publication: ExclusivePublication) -> None:
        """Send the queued messages in order.

        Raises:
            SessionEndedError: The client does not take them.
        """
        while True:
            data, is_piece = await self._responses.get()
            if is_piece:
                self._room_for_pieces.release()
            try:
                await publication.offer(data, timeout=self._timeout)
            except NotConnectedError:
                message = "control response publication is not connected"
                raise SessionEndedError(message) from None
            except OfferTimeoutError:
                timeout_ms = self._settings.connect_timeout_ns // 1_000_000
                message = f"failed to send response for more than connectTimeoutMs={timeout_ms}"
                raise SessionEndedError(message) from None

    # Requests.

    async def _serve(self, group: asyncio.TaskGroup) -> None:
        """Execute requests in order."""
        while True:
            request = await self._requests.get()
            if isinstance(request, LISTINGS):
                if self._listing is not None and not self._listing.done():
                    error = ArchiveError(
                        "active listing already in progress", code=ArchiveErrorCode.ACTIVE_LISTING
                    )
                    self._answer_error(request, error)
                else:
                    self._listing = group.create_task(self._list(request))
            elif isinstance(request, ReplayTokenRequest):
                token = self._server.tokens.add(self, request.recording_id)
                self._answer(request.correlation_id, token)
            else:
                await self._carry_out(request)

    async def _carry_out(self, request: Request) -> None:
        """Execute a request, and answer it."""
        handler = HANDLERS.get(type(request))
        if handler is None:
            message = f"{type(request).__name__} is none of a client's requests"
            self._answer_error(request, ArchiveError(message))
            return
        router = self._server.router
        is_start = isinstance(request, STARTS)
        if is_start:
            router.hold()
        try:
            # An error after the answer is sent as a second answer.
            late = (partial(self._on_late_error, request),) if isinstance(request, LASTING) else ()
            more = unanswered_bound(request, self._channel)
            relevant_id = await handler(self._server.archive, request, *late, **more)
        except Exception as error:  # noqa: BLE001 - one client must not affect the others
            self._answer_error(request, refusal_of(request, error, self._peer_log))
        else:
            self._answer(request.correlation_id, relevant_id)
            if is_start:
                router.own(relevant_id, self, request.correlation_id)
            elif isinstance(request, DELETIONS):
                router.tell_of_deletion(self, request)
        finally:
            if is_start:
                router.release()

    async def _list(self, request: Request) -> None:
        """Send a listing as fast as the client takes it."""
        try:
            async for data in listing(self._server.archive, request):
                await self._room_for_pieces.acquire()
                self._put(data, is_piece=True)
        except ArchiveError as error:
            self._answer_error(request, error)

    # Answers.

    def _answer(
        self,
        correlation_id: int,
        relevant_id: int,
        code: ResponseCode = ResponseCode.OK,
        text: str = "",
    ) -> None:
        self.say(
            ControlResponse(
                control_session_id=self.session_id,
                correlation_id=correlation_id,
                relevant_id=relevant_id,
                code=code,
                version=PROTOCOL_VERSION,
                error_message=text,
            )
        )

    def _answer_error(self, request: Request, error: ArchiveError) -> None:
        self._answer(request.correlation_id, error.code, ResponseCode.ERROR, str(error))

    def _on_late_error(self, request: Request, error: AeronError) -> None:
        self._answer_error(request, refusal_of(request, error, self._peer_log))

    def _put(self, data: bytes, *, is_piece: bool = False) -> None:
        try:
            self._responses.put_nowait((data, is_piece))
        except asyncio.QueueFull:
            self.end(
                f"{self._settings.max_pending_responses} responses wait to be sent: "
                "max_pending_responses"
            )


def leaves(errors: BaseExceptionGroup[Any]) -> list[BaseException]:
    """Return the exceptions of a group and of its nested groups."""
    found: list[BaseException] = []
    for each in errors.exceptions:
        found += leaves(each) if isinstance(each, BaseExceptionGroup) else [each]
    return found
