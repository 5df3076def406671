"""Publications: offers, claims, and the wait for a subscriber and for window space.

An offer that can be appended at once waits for nothing. Otherwise it joins a line, and only the
first in line tries again, each time the window has changed; so offers are served in the order in
which they came. A claim reserves space in the log, into which the caller writes without a copy.

Invariant: while any offer waits in line, `_calls_until_check` is 0; so `offer` checks the line
only then.

Source: Aeron `Publication`, `BufferClaim`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, final

import attrs
from anyio.abc import ObjectSendStream
from anyio.lowlevel import checkpoint_if_cancelled

from aeron_async._speedups import WHY_PURE
from aeron_async.client.arguments import (
    Offered,
    check_on_disconnected,
    check_on_error,
    destination_uri,
)
from aeron_async.client.arrow import arrow_array
from aeron_async.client.batch_offer import BatchOffer
from aeron_async.client.buffer_claim import BufferClaim
from aeron_async.client.client_conductor import BY_FORK, Closing, check_process
from aeron_async.client.home_loop import HomeLoop, YieldBudget, refuse_elsewhere
from aeron_async.client.streams import STREAM_ERRORS, AeronAttribute, as_anyio
from aeron_async.client.typed import TypedOffers
from aeron_async.client.waiters import (
    BY_RECEIVERS,
    BY_SENDER,
    UNCONNECTED,
    Notify,
    OfferWaiters,
    Wait,
    offer_timeout,
    watched_wait,
    watching,
)
from aeron_async.client.why import explain_publication, stream_named
from aeron_async.driver.commands import PublicationErrorFrame
from aeron_async.errors import (
    AeronError,
    ErrorCode,
    MaxPositionExceededError,
    NotConnectedError,
)
from aeron_async.logbuffer.appender import AppendResult, ConcurrentAppender, SharedAppender
from aeron_async.protocol.arguments import check_timeout
from aeron_async.protocol.channel_uri import Media
from aeron_async.waits import PublicationSeen

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from types import TracebackType

    from aeron_async.client.arguments import OnDisconnected
    from aeron_async.client.arrow import ArrowArray
    from aeron_async.client.client_conductor import ClientConductor
    from aeron_async.client.waiters import Place, WaitWatch
    from aeron_async.counters import Counter
    from aeron_async.driver.commands import PublicationReady
    from aeron_async.logbuffer.appender import Appender
    from aeron_async.logbuffer.wake_flag import WakeFlag
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.waits import Why

__all__ = [
    "OfferOutcome",
    "Offering",
    "Publication",
    "PublicationBase",
    "PublicationErrorHandler",
]


class Offering:
    """The part of a publication that is compiled: `offer`, and what it needs.

    Attributes:
        _calls_until_check: Offers that may be made before the turn is checked again; see
            `YieldBudget`.
        _is_closed: Whether the publication is closed.
        _home: The only event loop that may offer.
    """

    _calls_until_check: int = 0
    _is_closed: bool
    _home: HomeLoop

    def _attach(self, writer: Any, limit: Any, wake_flag: WakeFlag) -> None:
        """Give the compiled offer its writer, its limit and its wake flag; this one needs none."""

    def _detach(self) -> None:
        """Release what `_attach` has taken."""

    def _offer(self, data: Offered, reserved_value: int) -> int:
        """Append if that can be done now; return the position, or a negative `AppendResult`."""
        raise NotImplementedError

    def _offer_fast(self, _data: Offered, _reserved_value: int) -> int:
        """Append as `_offer` does in the usual case; negative if that must do it. Here always."""
        return -1

    def _offer_list(self, *_given: object) -> tuple[int, int]:
        """Append several messages; return how many, and where they end. Here always none."""
        return 0, 0

    _offer_column = _offer_list

    def _offer_waiting(
        self, data: Offered, reserved_value: int, timeout: float | None
    ) -> Coroutine[Any, Any, int]:
        """Offer in all other cases: check the arguments, yield to the loop, wait for space."""
        raise NotImplementedError

    async def offer(
        self,
        data: Offered,
        *,
        reserved_value: int = 0,
        timeout: float | None = None,
    ) -> int:
        """Append one message, waiting for a subscriber and for window space; return its position.

        Waiting offers are served in the order in which they came.

        Args:
            data: The message, up to `max_message_length` bytes: bytes, another buffer, or a list or
                tuple of buffers.
            reserved_value: 64 bits for the application, sent with the message.
            timeout: Most seconds to wait; None sets no limit.

        Raises:
            OfferTimeoutError: The timeout passed; nothing was appended.
            ConfigurationError: The timeout is not a number of seconds, even if there is no wait.
            ClosedError: The publication was closed, before or during the call.
            DriverTimeoutError: The driver was lost during the call, and the client reconnects.
            NotConnectedError: No subscriber is connected, and `on_disconnected` is "raise".
            MessageTooLongError: The message is longer than `max_message_length`.
            MaxPositionExceededError: The stream is at its last position.
        """
        if timeout is not None:
            timeout = check_timeout(timeout)
        if self._calls_until_check > 0:
            self._calls_until_check -= 1
            position = self._offer(data, reserved_value)
            if position >= 0:
                return position
        return await self._offer_waiting(data, reserved_value, timeout)


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.paths import Offering


@final
class OfferOutcome(Enum):
    """Why an offer was not appended, where a later one may be; a final failure raises instead."""

    NOT_CONNECTED = AppendResult.NOT_CONNECTED
    """No subscriber is connected."""
    BACK_PRESSURED = AppendResult.BACK_PRESSURED
    """The window is full: the subscribers must first consume more."""
    ADMIN_ACTION = AppendResult.ADMIN_ACTION
    """The log has rotated to its next term: try again at once."""


PublicationErrorHandler = Callable[[PublicationErrorFrame], object]
"""Called in the event loop; an exception goes to the loop's exception handler."""


@attrs.define(eq=False)
class PublicationEvents:
    """The `PublicationListener` of one publication, which the driver calls."""

    on_window_changed: Callable[[], None]
    on_publication_error: Callable[[PublicationErrorFrame], None]
    on_publication_failed: Callable[[Exception], None]
    offers: OfferWaiters
    has_error_handler: bool
    appender: Appender | None = None


class PublicationBase(Offering, ABC):
    """One stream to publish on, created by `Aeron.add_publication`.

    Attributes:
        channel: The channel as requested.
        stream_id: Stream id within the channel.
        session_id: Session id of this publication, within channel and stream.
        initial_term_id: Id of the first term of the stream.
        term_length: Length of a term, in bytes.
        mtu_length: Longest datagram payload, in bytes.
        max_payload_length: Longest message that fits one frame, in bytes.
        max_message_length: Longest message that can be offered, in bytes.
        last_error: Why a receiver last rejected or refused the stream; None if none did.
        logs_waits: Whether a long wait for a subscriber or for window space is logged.
    """

    logs_waits = True

    def __init__(
        self,
        conductor: ClientConductor,
        uri: ChannelUri,
        stream_id: int,
        *,
        on_disconnected: OnDisconnected,
        on_error: PublicationErrorHandler | None = None,
    ) -> None:
        # `tests/client/test_instance_attributes.py` limits how many attributes an instance has.
        self.channel: str = str(uri)
        self.stream_id = stream_id
        self._conductor = conductor
        self._on_disconnected = check_on_disconnected(on_disconnected)
        self._on_error = check_on_error(on_error)
        self._is_closed = False
        self._changed = Notify()
        self._line = OfferWaiters()
        self._offer_wait = Wait(self, "offer", self._line.since_ns)
        self._news = (-1, 0)
        self._yield_budget = YieldBudget(conductor.home.loop, conductor.clock)
        self._calls_until_check = self._yield_budget.stride
        self._home = conductor.home
        self._closed: Closing | None = None
        self._is_started = False
        self.last_error: str | None = None
        self._listener = PublicationEvents(
            self._on_window_changed,
            self._on_publication_error,
            self._on_publication_failed,
            self._line,
            has_error_handler=on_error is not None,
        )

    def _start(self, ready: PublicationReady) -> None:
        """Set up the publication with what the driver has created, before the caller gets it.

        Raises:
            ClosedError: The publication has failed since the driver created it.
        """
        self._check_open()
        self._ready = ready
        self._appender = self._listener.appender = self._make_appender()
        self._is_started = True
        self._limit: Counter = ready.publisher_limit
        self._wake_sender = ready.wake_flag.set
        self._attach(self._appender.writer, self._limit.cell, ready.wake_flag)
        self.session_id: int = ready.session_id
        self.initial_term_id: int = ready.log.initial_term_id
        self.term_length: int = ready.log.term_length
        self.mtu_length: int = ready.log.mtu_length
        self.max_payload_length: int = self._appender.max_payload_length
        self.max_message_length: int = self._appender.max_message_length

    def _move(self, ready: PublicationReady, lost: Callable[[], Exception] | None = None) -> None:
        """Use another log: the driver is gone, and `lost` makes the errors of waits; or is back."""
        self._appender.detach()
        self._news = (-1, 0)
        self._start(ready)
        if lost is not None:
            self._line.fail(lost)
            self._changed.fail(lost)
        self._on_window_changed()

    @abstractmethod
    def _make_appender(self) -> Appender: ...

    @property
    def local_address(self) -> str:
        """Return the address the socket is bound to, as `host:port`; empty for IPC."""
        return self._ready.local_address

    @property
    def _waits(self) -> WaitWatch:
        return self._conductor.waits

    @property
    def position(self) -> int:
        """Return the position at which the next message would start, in bytes.

        Raises:
            ClosedError: The publication is closed.
        """
        self._check_open()
        return self._appender.position

    @property
    def position_limit(self) -> int:
        """Return the position below which an offer may begin, in bytes.

        Raises:
            ClosedError: The publication is closed.
        """
        self._check_open()
        return self._limit.get()

    @property
    def available_window(self) -> int:
        """Return how many bytes are left up to the limit; negative if the last message passed it.

        Raises:
            ClosedError: The publication is closed.
        """
        return self.position_limit - self.position

    @property
    def is_connected(self) -> bool:
        """Return whether a subscriber is connected."""
        check_process(self._closed, self)
        return not self._is_closed and self._ready.log.metadata.is_connected == 1

    @property
    def is_closed(self) -> bool:
        """Return whether the publication is closed: by the caller, its client or its driver."""
        return self._is_closed

    async def wait_connected(self, timeout: float | None = None) -> None:
        """Wait until a subscriber is connected and the window has space.

        Args:
            timeout: Most seconds to wait; None sets no limit.

        Raises:
            AeronTimeoutError: The timeout passed.
            ClosedError: The publication was closed, before or during the call.
        """
        await watched_wait(
            self,
            self._changed,
            lambda: self.is_connected and self.available_window > 0,
            "wait_connected",
            timeout,
            self._ready.window_watch,
        )

    async def drain(self, timeout: float | None = None) -> None:
        """Wait until everything that was offered before this call has been sent.

        Datagrams that are then lost are still resent while the publication is open or lingers. Over
        IPC nothing is sent: what was offered is there.

        Args:
            timeout: Most seconds to wait; None sets no limit.

        Raises:
            AeronTimeoutError: The timeout passed.
            ClosedError: The publication was closed, before or during the call.
        """
        self._check_open()
        position, is_ipc = self.position, self._ready.uri.media is Media.IPC
        await watched_wait(
            self,
            self._changed,
            lambda: self._ready.sender_position.get() >= position or is_ipc,
            "drain",
            timeout,
            self._ready.sent_watch,
        )

    async def add_destination(self, channel: str | ChannelUri) -> int:
        """Send to one more destination, with `control-mode=manual`; return its id.

        Args:
            channel: Channel of the destination, such as `aeron:udp?endpoint=127.0.0.1:20121`.

        Raises:
            ChannelUriError: The channel is invalid, or cannot be a destination.
            RegistrationError: The publication's channel takes no destinations, or the name does not
                resolve.
            ClosedError: The publication was closed, before or during the call.
        """
        self._check_open()
        return await self._conductor.add_publication_destination(
            self._ready.registration_id, destination_uri(channel, is_sent_to=True)
        )

    async def remove_destination(self, destination: str | ChannelUri | int) -> None:
        """Stop sending to a destination.

        Args:
            destination: The channel that was added, or the id that `add_destination` returned.

        Raises:
            RegistrationError: The publication has no such destination. A driver in another process
                does not say so.
            ClosedError: The publication was closed, before or during the call.
        """
        self._check_open()
        await self._conductor.remove_publication_destination(
            self._ready.registration_id,
            destination
            if isinstance(destination, int)
            else destination_uri(destination, is_sent_to=True),
        )

    def close(self) -> None:
        """Close now; what was offered is still sent. Closing a closed publication does nothing.

        Raises:
            WrongLoopError: Its event loop is not running in this thread; it stays open.
        """
        self._end(self._conductor.release_publication)

    async def aclose(self) -> None:
        """Close now; what was offered is still sent. Closing a closed publication does nothing.

        Raises:
            WrongLoopError: The publication belongs to another event loop; it stays open.
        """
        self.close()
        await asyncio.sleep(0)

    def _revoke(self) -> None:
        self._end(self._conductor.revoke_publication)

    def _end(self, remove: Callable[[int], object]) -> None:
        check_process(self._closed, self)
        if not self._is_closed:
            self._check_loop()
            self._mark_closed(self._conductor.closing)
            remove(self._ready.registration_id)

    def _wake(self) -> None:
        """Wake the driver after a claim was committed or aborted."""
        if not self._is_closed:
            self._wake_sender()

    # Events of the driver.

    def _on_window_changed(self) -> None:
        """Wake the first waiting offer if the window has changed, and all tasks in other waits."""
        if self._line and not self._is_closed:
            # An offer that found no space need not try again only because something was sent.
            news = self._look_around()
            if news != self._news:
                self._news = news
                self._line.wake_first()
        self._changed.notify()

    def _look_around(self) -> tuple[int, int]:
        """Return what decides, apart from other offers, whether an offer finds space."""
        return self._limit.get(), self._ready.log.metadata.is_connected

    def _on_publication_error(self, error: PublicationErrorFrame) -> None:
        """Store why a receiver refuses the stream; call `on_error` in the loop's next turn."""
        did = "rejected" if error.code == ErrorCode.IMAGE_REJECTED else "refused"
        self.last_error = f"a receiver {did} the stream with code {error.code}: {error.message}"
        self._on_window_changed()
        if self._on_error is not None:
            # Not now: the driver is processing a datagram, and the handler may close anything.
            asyncio.get_running_loop().call_soon(self._tell_of_error, error)

    def _on_publication_failed(self, error: Exception) -> None:
        """Close without a request to the driver, which has already removed the publication."""
        self._mark_closed(Closing(str(error), error))
        if self._is_started:
            self._conductor.forget_publication(self._ready.registration_id)

    def _on_driver_closed(self, error: Exception | None) -> None:
        """Close without a request to the driver, which is closed."""
        self._mark_closed(Closing.by_driver(error))

    def _on_forked(self) -> None:
        """Close in a child process, without waking the parent's tasks."""
        self._is_closed = True
        self._closed = BY_FORK
        if self._is_started:
            self._appender.detach()
        self._detach()

    def _tell_of_error(self, error: PublicationErrorFrame) -> None:
        if self._on_error is None or self._is_closed:
            return
        try:
            self._on_error(error)
        except Exception as failure:  # noqa: BLE001 - it is reported; no handler may stop an agent
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"error handler of {self!r} failed", "exception": failure}
            )

    # Waiting.

    async def _wait_for_room(
        self, attempt: Callable[[], int], result: int, timeout: float | None, operation: str
    ) -> int:
        """Wait in line and try whenever this task is woken, until success or the timeout."""
        if not self._line:
            # The state in which the attempt has just failed: only another state is worth a new one.
            self._news = self._look_around()
        if self._ready.window_watch is None:
            return await self._wait_in_line(attempt, result, timeout, operation)
        with watching(self._ready.window_watch):
            # Another process may have stored what this waits for before the watch began.
            if not self._line and (result := attempt()) >= 0:
                return result
            return await self._wait_in_line(attempt, result, timeout, operation)

    async def _wait_in_line(
        self, attempt: Callable[[], int], result: int, timeout: float | None, operation: str
    ) -> int:
        started_ns = self._conductor.clock.now_ns()
        if not self._line:
            # One that joins a line has made no attempt, and does not know what holds it back.
            self._line.block(self._blocked_by(result), started_ns)
        place = self._line.join(started_ns)
        if self.logs_waits and not self._offer_wait.is_watched:
            self._waits.begin(self._offer_wait)
        # Without a budget `offer` checks the line; see the invariant of this module.
        self._calls_until_check = 0
        try:
            if timeout is None:
                return await self._attempt_in_line(attempt, result, place)
            async with asyncio.timeout(timeout):
                return await self._attempt_in_line(attempt, result, place)
        except AeronError:
            raise
        except TimeoutError:
            # There may be room of which this process was not told yet.
            if not self._line.is_first(place):
                self._line.wake_first()
            elif (result := attempt()) >= 0:
                return result
            waited_ns = self._conductor.clock.now_ns() - started_ns
            raise offer_timeout(self._explain(), operation, waited_ns) from None
        finally:
            self._line.leave(place)
            if not self._line:
                self._line.unblock(self._conductor.clock.now_ns())
                self._calls_until_check = self._yield_budget.stride
            elif self.logs_waits and not self._offer_wait.is_watched:
                # The next in line may have begun to wait after the log line was written.
                self._waits.begin(self._offer_wait)

    async def _attempt_in_line(self, attempt: Callable[[], int], result: int, place: Place) -> int:
        while result < 0:
            if result == AppendResult.NOT_CONNECTED and self._on_disconnected == "raise":
                message = (
                    f"no subscriber of {self.channel} stream {self.stream_id}: call wait_connected "
                    "first, or leave out on_disconnected to let an offer wait; "
                    "aeron_async.why(publication) says what the driver has seen"
                )
                raise NotConnectedError(message)
            await self._line.wait(place)
            result = attempt()
            if result < 0:
                self._line.block(self._blocked_by(result), self._conductor.clock.now_ns())
        return result

    def _blocked_by(self, result: int) -> int:
        """Return what holds back an offer that had this result."""
        if result == AppendResult.NOT_CONNECTED:
            return UNCONNECTED
        ready = self._ready
        if ready.sender_limit is None:
            return BY_SENDER
        # A frame is sent when all of it fits.
        left = ready.sender_limit.get() - ready.sender_position.get()
        return BY_RECEIVERS if left < ready.log.mtu_length else BY_SENDER

    def _explain(self) -> Why:
        """Return why the publication waits; see `aeron_async.why`."""
        seen = PublicationSeen()
        if self._is_started and not self._is_closed:
            seen = attrs.evolve(
                self._ready.seen(),
                is_connected=self.is_connected,
                position=self.position,
                position_limit=self.position_limit,
                last_error=self.last_error,
            )
        stream = stream_named(self.channel, self.stream_id)
        return explain_publication(stream, seen, is_closed=self._is_closed)

    def _mark_closed(self, closed: Closing) -> None:
        self._is_closed = True
        if self._is_started:
            self._appender.detach()
        self._detach()
        self._closed = closed
        self._line.wake_all()
        self._changed.notify()

    def _check_open(self) -> None:
        """Raise `ClosedError` if the publication is closed."""
        if self._is_closed:
            self._raise_closed()

    def _raise_closed(self) -> NoReturn:
        assert self._closed is not None
        self._closed.raise_error(f"the publication on {self.channel} stream {self.stream_id}")

    def _check_loop(self) -> None:
        if not self._home.is_here():
            refuse_elsewhere(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return f"<{type(self).__name__} {self.channel} stream {self.stream_id}, {state}>"


BEHIND_OTHERS: Final = int(AppendResult.BACK_PRESSURED)
"""Result of an offer that does not try because others wait: it would find no space either."""


class Publication(PublicationBase, TypedOffers, ObjectSendStream[Offered]):
    """A publication that clients of one driver share if they add the same channel and stream.

    A message is bytes, any other buffer, or a list or tuple of buffers, which are sent as one. A
    publication is also an anyio stream, with `send` in place of `offer`.
    """

    _appender: Appender

    def _make_appender(self) -> Appender:
        log = self._ready.log
        # Publishers of other processes may share a log that is a file.
        return ConcurrentAppender(log) if log.file else SharedAppender(log)

    async def _offer_waiting(
        self, data: Offered, reserved_value: int, timeout: float | None
    ) -> int:
        """Offer in all other cases; see `offer`."""
        return await self._append(
            lambda: self._offer(data, reserved_value),
            timeout,
            lambda: self._appender.check_offer(data, reserved_value),
        )

    async def _append(
        self,
        attempt: Callable[[], int],
        timeout: float | None,
        check: Callable[[], object],
        operation: str = "offer",
    ) -> int:
        """Append now, or after waiting in line for space; return the position.

        Args:
            attempt: Appends; returns the position, or a negative `AppendResult`.
            timeout: Most seconds to wait.
            check: Raises for arguments that the attempt would refuse, before the task waits.
            operation: What the caller called, for the error of a timeout.
        """
        timeout = check_timeout(timeout)
        if self._calls_until_check <= 0 and await self._is_behind_others():
            check()
            position = BEHIND_OTHERS
        else:
            self._calls_until_check -= 1
            position = attempt()
        if position < 0:
            position = await self._wait_for_room(attempt, position, timeout, operation)
        return position

    async def offer_many(self, messages: Iterable[Offered], *, timeout: float | None = None) -> int:
        """Append messages one after the other; return the position after the last.

        If the call is cancelled or a timeout passes, the messages before that point have been
        appended, and none after it; `BatchOffer` says how many those are.

        Args:
            messages: A list of `bytes` is appended in pieces; other messages as `BatchOffer` says.
            timeout: Most seconds to wait for each message; None sets no limit.

        Raises:
            OfferTimeoutError: `accepted` of `messages` were appended. Other errors are as for
                `offer`, with a note that says at which message: those before it were appended.
            ConfigurationError: `messages` is one message, or not iterable.
        """
        if type(messages) is not list:
            return await BatchOffer(self, messages, timeout=timeout)
        timeout = check_timeout(timeout)
        count, position = self._offer_list(messages, 0)
        if count and count == len(messages):
            return position
        rest = BatchOffer(self, messages, timeout=timeout)
        if count:
            rest.accepted, rest.position = count, position
        return await rest

    async def offer_arrow(self, messages: ArrowArray, *, timeout: float | None = None) -> int:
        """Append the binaries or strings of an Arrow array, as `offer_many` does.

        Raises:
            ConfigurationError: It is no such array, or has nulls.
        """
        return await BatchOffer(self, arrow_array(messages), timeout=timeout)

    async def send(self, item: Offered) -> None:
        """Append one message as `offer` does; for code that is written for anyio streams.

        Raises:
            ClosedResourceError: The publication was closed, before or during the call.
            BrokenResourceError: The driver failed; or no subscriber is connected, and
                `on_disconnected` is "raise"; or the stream is at its last position.
            MessageTooLongError: The message is longer than `max_message_length`.
        """
        check_process(self._closed, self)
        await checkpoint_if_cancelled()
        try:
            await self.offer(item)
        except STREAM_ERRORS as error:
            raise as_anyio(error) from error

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """Return the attributes that `extra` can read; see `AeronAttribute`."""
        return {
            AeronAttribute.channel: lambda: self.channel,
            AeronAttribute.stream_id: lambda: self.stream_id,
            AeronAttribute.session_id: lambda: self.session_id,
            AeronAttribute.local_address: lambda: self.local_address,
        }

    def try_offer(self, data: Offered, *, reserved_value: int = 0) -> int | OfferOutcome:
        """Append one message if that can be done now; return its position, or why not.

        It does not wait in line: it may succeed before offers that wait.

        Raises:
            ClosedError: The publication is closed.
            MessageTooLongError: The message is longer than `max_message_length`.
            MaxPositionExceededError: The stream is at its last position.
        """
        result = self._offer_fast(data, reserved_value)
        if result < 0:
            result = self._offer(data, reserved_value)
        return result if result >= 0 else OfferOutcome(result)

    def try_claim(self, length: int) -> BufferClaim | OfferOutcome:
        """Claim space for one message of `length` bytes if there is some now, or return why not.

        Args:
            length: Length of the message, in bytes; at most `max_payload_length`.

        Raises:
            ClosedError: The publication is closed.
            MessageTooLongError: The length exceeds one frame.
            MaxPositionExceededError: The stream is at its last position.
        """
        result = self._claim(length)
        return result if isinstance(result, BufferClaim) else OfferOutcome(result)

    async def claim(self, length: int, *, timeout: float | None = None) -> BufferClaim:
        """Claim space for one message of `length` bytes, waiting for it as `offer` does.

        Args:
            length: Length of the message, in bytes; at most `max_payload_length`.
            timeout: Most seconds to wait; None sets no limit.

        Raises:
            OfferTimeoutError: The timeout passed; nothing was claimed.
            ClosedError: The publication was closed, before or during the call.
            NotConnectedError: No subscriber is connected, and `on_disconnected` is "raise".
            MessageTooLongError: The length exceeds one frame.
            MaxPositionExceededError: The stream is at its last position.
        """
        claimed: list[BufferClaim] = []

        def attempt() -> int:
            result = self._claim(length)
            if isinstance(result, BufferClaim):
                claimed.append(result)
                return result.position
            return result

        await self._append(
            attempt, timeout, lambda: self._appender.check_claim(length), operation="claim"
        )
        return claimed[0]

    def _offer(self, data: Offered, reserved_value: int) -> int:
        """Append if that can be done now; return the position, or a negative `AppendResult`."""
        self._check_usable()
        appender = self._appender
        while True:
            # Read the limit each time: a woken sender may have sent at once, and raised the limit.
            limit = self._limit.get()
            if isinstance(data, list):  # `offer` joins a tuple.
                result = appender.offer_vector(data, limit=limit, reserved_value=reserved_value)
            else:
                result = appender.offer(data, limit=limit, reserved_value=reserved_value)
            if result >= 0:
                self._wake_sender()
                return result
            if result != AppendResult.ADMIN_ACTION:
                return self._refused(result)
            # The term is full: its padding must be sent, and the next attempt uses the next term.
            self._wake_sender()

    def _claim(self, length: int) -> BufferClaim | int:
        self._check_usable()
        while True:
            result = self._appender.try_claim(length, limit=self._limit.get())
            if not isinstance(result, int):
                return BufferClaim(self, result)
            if result != AppendResult.ADMIN_ACTION:
                return self._refused(result)
            self._wake_sender()

    async def _is_behind_others(self) -> bool:
        """Return whether offers wait; if none does and the turn is over, yield to the loop."""
        self._check_usable()
        if not self._line:
            turn = self._yield_budget
            is_over = turn.is_over()
            self._calls_until_check = turn.stride
            if is_over:
                await asyncio.sleep(0)
                turn.begin()
        return bool(self._line)

    def _check_usable(self) -> None:
        if self._is_closed:
            self._raise_closed()
        if not self._home.is_here():
            self._check_loop()

    def _refused(self, result: int) -> int:
        if result == AppendResult.MAX_POSITION_EXCEEDED:
            message = (
                f"the stream is at position {self.position}, and with terms of "
                f"{self.term_length} bytes it ends at {self._appender.max_position}: add another "
                "publication, or raise term-length"
            )
            raise MaxPositionExceededError(message)
        # Who makes room in another process may be asleep, and a loop of `try_offer` without an
        # await lets no ring that is owed happen. A driver of this process must not be woken here:
        # it would work at once, and open the window before this offer waits for that.
        if self._ready.window_watch is not None:
            self._wake_sender()
        return result
