"""Client session with a remote archive: requests, their answers, and its errors.

A `ControlConnection` may have any number of requests in progress. Each has a correlation id, which
ties the answer to the `Pending` request. Listings are the exception: an archive works on one
listing of a session at a time.

Source: Aeron `AeronArchive`, `ControlResponsePoller`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from aeron_async.archive.control.authentication import CredentialsSupplier, FixedCredentials
from aeron_async.archive.control.messages import (
    CODEC,
    PROTOCOL_VERSION,
    AuthConnectRequest,
    Challenge,
    ChallengeResponse,
    CloseSessionRequest,
    ControlResponse,
    RecordingDescriptorMessage,
    RecordingSignalMessage,
    RecordingSubscriptionDescriptor,
    Request,
    ResponseCode,
)
from aeron_async.archive.control.settings import CONTROL_STREAM_ID
from aeron_async.client.waiters import Wait
from aeron_async.client.why import SILENCE_NS, seconds
from aeron_async.errors import (
    AeronError,
    AeronTimeoutError,
    ArchiveError,
    ArchiveErrorCode,
    ClosedError,
    ConfigurationError,
    InvalidPositionError,
    ProtocolError,
    StorageError,
    UnknownRecordingError,
)
from aeron_async.logs import get_logger, within
from aeron_async.protocol.arguments import check_function
from aeron_async.protocol.channel_uri import ChannelUri, ControlMode
from aeron_async.tasks import TaskOwner
from aeron_async.text import printable
from aeron_async.waits import PublicationSeen, WaitReason, Why

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.archive.control.sbe import SbeMessage
    from aeron_async.client.image import Image
    from aeron_async.client.publication import Publication
    from aeron_async.client.subscription import Subscription
    from aeron_async.logs import LogBudget

__all__ = [
    "ControlConnection",
    "archive_error",
    "credentials_supplier",
    "unanswered",
    "unknown_recording",
    "where_answers_go",
    "why_no_archive",
]

# Errors.

KINDS: Final[dict[ArchiveErrorCode, type[ArchiveError]]] = {
    ArchiveErrorCode.UNKNOWN_RECORDING: UnknownRecordingError,
    ArchiveErrorCode.INVALID_POSITION: InvalidPositionError,
    ArchiveErrorCode.STORAGE_SPACE: StorageError,
}
"""Error codes with an exception class of their own."""
NO_ARCHIVE: Final = frozenset(
    {WaitReason.NO_ANSWER, WaitReason.NO_SUBSCRIPTION_HERE, WaitReason.DRIVER_ELSEWHERE}
)
"""Reasons why a session cannot open because no archive receives the request."""
CHANNEL_LENGTH_MAX: Final = 300
"""In characters; a shown channel is cut, so that the remedy behind it stays visible."""
TEXT_LENGTH_MAX: Final = 1_000
"""In characters; limits the error text of a remote archive."""


def archive_error(code: int, text: str) -> ArchiveError:
    """Return the error for an archive's error code; an unknown code becomes a generic one."""
    text = printable(text, TEXT_LENGTH_MAX)
    known = ArchiveErrorCode(code) if code in set(ArchiveErrorCode) else ArchiveErrorCode.GENERIC
    kind = KINDS.get(known)
    return ArchiveError(text, code=known) if kind is None else kind(text)


def unanswered(
    error: AeronTimeoutError, publication: Publication, timeout: float
) -> AeronTimeoutError:
    """Return the timeout error to raise if a session could not be opened."""
    why = error.why
    if why is None or why.reason not in NO_ARCHIVE:
        return AeronTimeoutError(f"no archive: {error}", why=why)
    why = why_no_archive(why, publication)
    channel = printable(publication.channel, CHANNEL_LENGTH_MAX)
    sent_to = why.seen.sent_to if isinstance(why.seen, PublicationSeen) else ()
    return AeronTimeoutError(
        f"no archive answers at {', '.join(sent_to) or channel} (control channel "
        f"{channel} stream {publication.stream_id}) within {timeout:g} s: "
        f"{why.remedy}; if it only starts late, raise timeout",
        why=why,
    )


def why_no_archive(why: Why, publication: Publication) -> Why:
    """Return why requests reach no archive, with a remedy that fits an archive."""
    if why.reason not in NO_ARCHIVE:
        return why
    remedy = (
        "start one there (`aeron-async archive serve DIRECTORY --control CHANNEL`), or correct the "
        f"address, or the control stream id ({publication.stream_id} here, default "
        f"{CONTROL_STREAM_ID})"
    )
    if why.reason is WaitReason.DRIVER_ELSEWHERE:
        remedy = f"{remedy}; {why.remedy}"
    return attrs.evolve(why, remedy=remedy)


def where_answers_go(response_channel: str) -> str:
    """Return the remedy for an archive that receives requests and whose answers do not arrive."""
    uri = ChannelUri.parse(response_channel)
    if uri.control_mode is ControlMode.RESPONSE and uri.control is not None:
        return (
            f"its answers are to come from {uri.control}, which must be an address of the archive, "
            "with a port that is free there; give another control in response_channel, or instead "
            "of control and control-mode an endpoint as the archive sees this host"
        )
    shown = printable(response_channel, CHANNEL_LENGTH_MAX)
    return (
        f"its answers go to {shown}, which must lead from the archive to this client; "
        "give response_channel as the archive sees this host"
    )


def unknown_recording(recording_id: int) -> UnknownRecordingError:
    """Return the error about an unknown recording, with the text of the official archive."""
    return UnknownRecordingError(f"unknown recording id: {recording_id}")


# The session.

LOG: Final = get_logger(__name__)
MOST_LATE: Final = 4_096
"""Requests for which late errors are still reported; the oldest are forgotten."""

UNHEARD: Final = frozenset(
    {
        WaitReason.NOTHING_HEARD,
        WaitReason.NO_PUBLICATION_HERE,
        WaitReason.DRIVER_ELSEWHERE,
        # The remedy of the subscription is for the author of a server.
        WaitReason.NO_RESPONSE_SESSION,
    }
)
"""Reasons why no answer has arrived; any other reason of the subscription is more precise."""


def credentials_supplier(credentials: object) -> CredentialsSupplier:
    """Return the credentials supplier for what a caller has given.

    Raises:
        ConfigurationError: It is neither bytes nor a supplier. The text names only its type,
            because the value is secret.
    """
    if isinstance(credentials, bytes | bytearray | memoryview):
        return FixedCredentials(bytes(credentials))
    for name in ("encoded_credentials", "on_challenge"):
        method = getattr(credentials, name, None)
        if isinstance(credentials, type) or not callable(method):
            message = (
                f"credentials of type {type(credentials).__name__} must be bytes, or an object "
                "with the methods encoded_credentials() and on_challenge(challenge)"
            )
            raise ConfigurationError(message)
        check_function(method, f"credentials.{name}")
    return cast("CredentialsSupplier", credentials)


def encoded(credentials: object, method: str) -> bytes:
    """Return the bytes that a credentials supplier has returned.

    Raises:
        ConfigurationError: It is not bytes; the text names only its type.
    """
    if not isinstance(credentials, bytes | bytearray | memoryview):
        message = (
            f"credentials.{method} returned {type(credentials).__name__}, and must return bytes"
        )
        raise ConfigurationError(message)
    return bytes(credentials)


class Pending:
    """A request that waits for its answer, or for the pieces of a listing before it."""

    def __init__(self, *, piece_count: int = 0) -> None:
        self.answered: asyncio.Future[SbeMessage] = asyncio.get_running_loop().create_future()
        self.pieces: list[SbeMessage] = []
        self.is_sent = False
        self._piece_count = piece_count

    def put(self, message: SbeMessage) -> None:
        """Take a message; a listing is complete with its last piece or with an answer."""
        if self.answered.done():
            return
        if isinstance(message, RecordingDescriptorMessage | RecordingSubscriptionDescriptor):
            self.pieces.append(message)
            if len(self.pieces) < self._piece_count:
                return
        self.answered.set_result(message)

    def fail(self, error: AeronError) -> None:
        """Fail the request: no answer will come."""
        if not self.answered.done():
            self.answered.set_exception(error)
            # If the caller has stopped waiting, nothing retrieves the error: mark it as retrieved.
            self.answered.exception()


class Connecting:
    """The wait for a session: for a connected publication first, then for an answer.

    Args:
        publication: Publication for requests.
        subscription: Subscription for answers.
        response_channel: Response channel as sent to the archive.
    """

    def __init__(
        self, publication: Publication, subscription: Subscription, response_channel: str
    ) -> None:
        self.channel: str = publication.channel
        self.stream_id: int = publication.stream_id
        self._publication = publication
        self._subscription = subscription
        self._response_channel = response_channel

    def _explain(self) -> Why:
        """Return why there is no session yet."""
        if not self._publication.is_connected:
            return why_no_archive(self._publication._explain(), self._publication)
        why = self._subscription._explain()
        if why.reason not in UNHEARD:
            # Something has arrived, so the remedy of the subscription is right.
            return why
        return attrs.evolve(why, remedy=where_answers_go(self._response_channel))


class Answering:
    """The wait for an answer, once there is a session.

    Args:
        publication: Publication for requests.
        name: Name of the request.
        timeout: Seconds after which the request is given up.
    """

    def __init__(self, publication: Publication, name: str, timeout: float) -> None:
        self.channel: str = publication.channel
        self.stream_id: int = publication.stream_id
        self._publication = publication
        self._name = name
        self._timeout = timeout

    def _explain(self) -> Why:
        """Return why there is no answer yet."""
        why = self._publication._explain()
        if why.reason is not WaitReason.NOTHING:
            return why
        seen = why.seen
        assert isinstance(seen, PublicationSeen), "a publication was asked"
        # Nobody here hears the archive of IPC, or of a stream that another process sends.
        silent_ns = min((each.silent_ns for each in seen.receivers), default=None)
        remedy = f"does it still run? if it is only busy, raise timeout ({self._timeout:g} s)"
        if silent_ns is None:
            sight = "the request was offered, and no answer has come"
        elif silent_ns < SILENCE_NS:
            sight = "its driver is there, and no answer has come"
        else:
            sight = f"its driver was last heard {seconds(silent_ns)} ago"
            remedy = (
                "does it still run? if it is gone, this session ends, too, after "
                "image_liveness_timeout_ns"
            )
        return attrs.evolve(
            why,
            reason=WaitReason.NOT_ANSWERED,
            subject=f"the archive on {self.channel} stream {self.stream_id} has not answered a "
            f"{self._name}",
            sight=sight,
            remedy=remedy,
        )


class ControlConnection:
    """A session with an archive; `open` starts it.

    Args:
        publication: Publication for requests.
        subscription: Subscription for answers; the connection reads and closes it.
        timeout: Seconds to wait for any answer.
        first_correlation_id: Start of the count; other clients may share the response channel.
        log_budget: Budget of log lines about malformed answers, which any host can send.

    Attributes:
        control_session_id: Session id that the archive has given.
        on_signal: Called with each recording signal.
        on_lost: Called once when no answer can come any more.
    """

    def __init__(
        self,
        publication: Publication,
        subscription: Subscription,
        *,
        timeout: float,
        first_correlation_id: int,
        log_budget: LogBudget,
    ) -> None:
        self.publication = publication
        self.control_session_id: int = -1
        self.on_signal: Callable[[RecordingSignalMessage], object] = lambda _: None
        self.on_lost: Callable[[AeronError], object] = lambda _: None
        self.timeout = timeout
        self._peer_log = within(log_budget, LOG)
        self._subscription = subscription
        # Before the session `open` logs the waiting; during the session silence is normal.
        subscription.logs_waits = False
        self._correlation_id = first_correlation_id
        self._pending: dict[int, Pending] = {}
        self._late: dict[int, Callable[[ArchiveError], object]] = {}
        self._listing = asyncio.Lock()
        self._left: Pending | None = None
        self._image: Image | None = None
        self._lost: AeronError | None = None
        self._tasks = TaskOwner()
        self._tasks.start(self._read(), "aeron-archive-responses")

    # Opening.

    async def open(
        self, *, response_channel: str, response_stream_id: int, credentials: CredentialsSupplier
    ) -> None:
        """Open the session.

        Raises:
            AeronTimeoutError: The archive does not answer.
            ArchiveError: The archive refuses.
        """
        waits = self.publication._waits
        started_ns = waits.now_ns()
        # One wait, and so one line at most, for both the publication and the subscription.
        wait = Wait(
            Connecting(self.publication, self._subscription, response_channel),
            "connect",
            lambda: started_ns,
        )
        waits.begin(wait)
        self.publication.logs_waits = False
        try:
            await self._open(response_channel, response_stream_id, credentials)
        finally:
            self.publication.logs_waits = True
            waits.end(wait)

    async def _open(
        self, response_channel: str, response_stream_id: int, credentials: CredentialsSupplier
    ) -> None:
        try:
            await self.publication.wait_connected(timeout=self.timeout)
        except AeronTimeoutError as error:
            raise unanswered(error, self.publication, self.timeout) from None
        identity = encoded(credentials.encoded_credentials(), "encoded_credentials()")
        correlation_id = self.next_correlation_id()
        message = await self._exchange(
            AuthConnectRequest(
                correlation_id=correlation_id,
                response_stream_id=response_stream_id,
                version=PROTOCOL_VERSION,
                response_channel=response_channel,
                encoded_credentials=identity,
                client_info="name=aeron_async",
            ),
            correlation_id,
        )
        if isinstance(message, Challenge):
            correlation_id = self.next_correlation_id()
            answer = encoded(credentials.on_challenge(message.encoded_challenge), "on_challenge()")
            message = await self._exchange(
                ChallengeResponse(
                    control_session_id=message.control_session_id,
                    correlation_id=correlation_id,
                    encoded_credentials=answer,
                ),
                correlation_id,
            )
        assert isinstance(message, ControlResponse), "nothing else is put into a request"
        if message.code != ResponseCode.OK:
            raise archive_error(message.relevant_id, message.error_message)
        self.control_session_id = message.control_session_id

    def next_correlation_id(self) -> int:
        """Return a correlation id that this session has not used."""
        self._correlation_id += 1
        return self._correlation_id

    # Asking.

    async def ask(
        self,
        kind: type[Request],
        *,
        on_late_error: Callable[[ArchiveError], object] | None = None,
        through: Publication | None = None,
        **fields: Any,
    ) -> int:
        """Send a request and return the number in its answer.

        Args:
            kind: Class of the request.
            on_late_error: Called with an error that comes after the answer; see `forget`.
            through: Publication to send on, if not that of the session.
            fields: Fields of the request.

        Raises:
            ArchiveError: The archive refuses, or is gone.
            AeronTimeoutError: The archive does not answer.
            ClosedError: The session was closed, before or during the call.
        """
        correlation_id = self.next_correlation_id()
        request = kind(
            control_session_id=self.control_session_id, correlation_id=correlation_id, **fields
        )
        if on_late_error is not None:
            self._late[correlation_id] = on_late_error
            if len(self._late) > MOST_LATE:
                del self._late[next(iter(self._late))]
        message = await self._exchange(request, correlation_id, through=through)
        assert isinstance(message, ControlResponse), "only listings have other answers"
        if message.code == ResponseCode.RECORDING_UNKNOWN:
            raise unknown_recording(message.relevant_id)
        if message.code != ResponseCode.OK:
            raise archive_error(message.relevant_id, message.error_message)
        return message.relevant_id

    async def list_pieces(
        self, kind: type[Request], *, count: int, **fields: Any
    ) -> tuple[list[SbeMessage], ControlResponse | None]:
        """Request a listing; return its pieces, and the answer if there were fewer than `count`.

        Raises:
            ArchiveError: See `ask`, also for the other errors.
        """
        async with self._listing:
            await self._see_off()
            correlation_id = self.next_correlation_id()
            request = kind(
                control_session_id=self.control_session_id, correlation_id=correlation_id, **fields
            )
            pending = Pending(piece_count=count)
            try:
                last = await self._exchange(request, correlation_id, pending)
            finally:
                if pending.is_sent and not pending.answered.done():
                    # The caller has stopped waiting, but the archive continues to send pieces.
                    self._pending[correlation_id] = self._left = pending
                    pending.answered.add_done_callback(
                        lambda _: self._pending.pop(correlation_id, None)
                    )
        if not isinstance(last, ControlResponse):
            return pending.pieces, None
        if last.code == ResponseCode.ERROR:
            raise archive_error(last.relevant_id, last.error_message)
        return pending.pieces, last

    async def _see_off(self) -> None:
        """Wait for the end of an abandoned listing: a session may have one listing at a time."""
        left = self._left
        if left is not None:
            await asyncio.wait((left.answered,), timeout=self.timeout)
            left.answered.cancel()
            self._left = None

    async def _exchange(
        self,
        request: SbeMessage,
        correlation_id: int,
        pending: Pending | None = None,
        *,
        through: Publication | None = None,
    ) -> SbeMessage:
        self._check_open()
        waiting = Pending() if pending is None else pending
        self._pending[correlation_id] = waiting
        publication = self.publication if through is None else through
        answering = Answering(publication, type(request).__name__, self.timeout)
        waits, sent_ns = publication._waits, 0
        wait = Wait(answering, "request", lambda: sent_ns)
        try:
            async with asyncio.timeout(self.timeout):
                await publication.offer(CODEC.encode(request))
                waiting.is_sent = True
                # Opening a session is one wait already, with one line.
                if self._has_session:
                    sent_ns = waits.now_ns()
                    waits.begin(wait)
                # `shield`: an abandoned listing still uses the answer after this task is cancelled.
                return await asyncio.shield(waiting.answered)
        except TimeoutError:
            if self._has_session:
                why = answering._explain()
                what = f"{why.sight}; {why.remedy}"
            else:
                why, what = None, remedy(request, self._subscription)
            message = (
                f"the archive on {publication.channel} stream {publication.stream_id} did not "
                f"answer a {type(request).__name__} within {self.timeout} s: {what}"
            )
            raise AeronTimeoutError(message, why=why) from None
        finally:
            waits.end(wait)
            del self._pending[correlation_id]

    def forget(self, on_late_error: Callable[[ArchiveError], object]) -> None:
        """Stop reporting late errors to a function; see `ask`."""
        self._late = {key: each for key, each in self._late.items() if each != on_late_error}

    # Listening.

    async def _read(self) -> None:
        """Pass every answer to its request, until the subscription ends."""
        try:
            async for each in self._subscription:
                try:
                    message = CODEC.decode(each.data)
                except ProtocolError as error:
                    self._peer_log.warning("archive_response_malformed", error=str(error))
                    continue
                self._take(message, each.image)
        except ClosedError as error:
            # The client did not close it: the driver is gone.
            self.lose(ArchiveError(f"the session with the archive is lost: {error}"))
        else:
            self.lose(ClosedError("the session with the archive is closed"))

    def _take(self, message: SbeMessage, image: Image) -> None:
        session_id = getattr(message, "control_session_id", -1)
        if self.control_session_id not in {-1, session_id}:
            # The message is for another client with the same response channel.
            return
        if isinstance(message, RecordingSignalMessage):
            self.on_signal(message)
            return
        if not isinstance(message, Request):
            return
        pending = self._pending.get(message.correlation_id)
        if pending is not None:
            self._image = image
            pending.put(message)
        elif isinstance(message, ControlResponse) and message.code == ResponseCode.ERROR:
            late = self._late.get(message.correlation_id)
            if late is not None:
                late(archive_error(message.relevant_id, message.error_message))

    def on_unavailable_image(self, image: Image) -> None:
        """Note that the archive is gone, or has ended the session."""
        if image is self._image:
            self.lose(ArchiveError("the archive has ended the session, or is gone: connect again"))

    def lose(self, error: AeronError) -> None:
        """Fail all requests in progress: no answer will come."""
        if self._lost is None:
            self._lost = error
            for pending in self._pending.values():
                pending.fail(error)
            self.on_lost(error)

    @property
    def _has_session(self) -> bool:
        """Whether the archive has opened a session."""
        return self.control_session_id != -1

    def _check_open(self) -> None:
        if self._lost is not None:
            raise type(self._lost)(str(self._lost))

    # Closing.

    async def aclose(self) -> None:
        """Send a close request if the session is open, and close; a second call does nothing."""
        if self._lost is None and self._has_session:
            goodbye = CloseSessionRequest(control_session_id=self.control_session_id)
            with suppress(AeronError):
                self.publication.try_offer(CODEC.encode(goodbye))
        self.lose(ClosedError("the session with the archive is closed"))
        # Close before the first await: a cancelled caller leaves nothing open.
        self.publication.close()
        self._subscription.close()
        await self._tasks.aclose()


def remedy(request: SbeMessage, subscription: Subscription) -> str:
    """Return what to do about a request that was not answered."""
    if not isinstance(request, AuthConnectRequest):
        return "raise timeout"
    why = subscription._explain()
    if why.reason in UNHEARD or subscription.is_connected:
        return where_answers_go(request.response_channel)
    return f"{why.sight}; {why.remedy}"
