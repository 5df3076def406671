"""What a publication is, apart from being offered to: its identity, its state, and its waiting."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, Self

import attrs

from aeron_async.client.arguments import (
    check_on_disconnected,
    check_on_error,
    destination_uri,
)
from aeron_async.client.offer_timeout import offer_timeout
from aeron_async.client.signal import Signal
from aeron_async.client.turn import Turn
from aeron_async.client.wait_watch import Wait
from aeron_async.client.waiting_line import WaitingLine
from aeron_async.client.watched_wait import watched_wait
from aeron_async.client.why_publication import explain_publication, stream_named
from aeron_async.driver.commands import PublicationErrorFrame
from aeron_async.errors import (
    ClosedError,
    ErrorCode,
    NotConnectedError,
    PublicationError,
    WrongLoopError,
)
from aeron_async.kernel import Offering
from aeron_async.logbuffer.appender import AppendResult
from aeron_async.waits import PublicationSeen

if TYPE_CHECKING:
    from types import TracebackType

    from aeron_async.client.aeron import Aeron
    from aeron_async.client.arguments import OnDisconnected
    from aeron_async.client.waiting_line import Place
    from aeron_async.counters import Counter
    from aeron_async.driver.commands import PublicationReady
    from aeron_async.logbuffer.appender import Appender
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.waits import Why

__all__ = ["PublicationBase", "PublicationErrorHandler"]

PublicationErrorHandler = Callable[[PublicationErrorFrame], object]
"""Called in the event loop; an exception goes to the loop's exception handler."""


class PublicationBase(Offering, ABC):
    """One stream to publish on; made by `Aeron.add_publication`.

    Attributes:
        channel: As it was asked for.
        stream_id: Within the channel.
        session_id: Of this publication, within channel and stream.
        initial_term_id: First term of the stream.
        term_length: In bytes.
        mtu_length: Longest datagram payload, in bytes.
        max_payload_length: Longest message that fits one frame, in bytes.
        max_message_length: Longest message at all, in bytes.
        local_address: What the socket is bound to, as `host:port`.
        logs_waits: Whether a wait for a subscriber or for room is logged when it lasts for long.
    """

    logs_waits = True

    def __init__(
        self,
        aeron: Aeron,
        uri: ChannelUri,
        stream_id: int,
        *,
        on_disconnected: OnDisconnected,
        on_error: PublicationErrorHandler | None = None,
    ) -> None:
        self.channel = str(uri)
        self.stream_id = stream_id
        self._aeron = aeron
        self._on_disconnected = check_on_disconnected(on_disconnected)
        self._on_error = check_on_error(on_error)
        self._is_closed = False
        self._changed = Signal()
        self._line = WaitingLine()
        self.waits = aeron.waits
        self._offer_wait = Wait(self, "offer", self._line.since_ns)
        self._news = (-1, 0)
        self._loop_turn = Turn(aeron.home.loop, aeron.clock)
        self._turn_budget = self._loop_turn.stride
        self._home = aeron.home
        self._closed_because: Exception | None = None
        self._is_started = False
        self.last_error: str | None = None

    def _start(self, ready: PublicationReady) -> None:
        """Take what the driver has made; called once, before anybody else has the object.

        Raises:
            ClosedError: It has failed since.
        """
        self.check_open()
        self._ready = ready
        self._appender = self._make_appender()
        self._is_started = True
        self._limit: Counter = ready.publisher_limit
        self._metadata = ready.log.metadata
        self._wake_sender = ready.doorbell.ring
        self._attach(self._appender.writer, self._limit.cell, ready.doorbell)
        self.session_id = ready.session_id
        self.initial_term_id = ready.log.initial_term_id
        self.term_length = ready.log.term_length
        self.mtu_length = ready.log.mtu_length
        self.max_payload_length = self._appender.max_payload_length
        self.max_message_length = self._appender.max_message_length
        self.local_address = ready.local_address

    @abstractmethod
    def _make_appender(self) -> Appender: ...

    @property
    def position(self) -> int:
        """Return where the next message would start, in bytes.

        Raises:
            ClosedError: The publication is closed.
        """
        self.check_open()
        return self._appender.position

    @property
    def position_limit(self) -> int:
        """Return the position below which an offer may begin, in bytes.

        Raises:
            ClosedError: The publication is closed.
        """
        self.check_open()
        return self._limit.get()

    @property
    def available_window(self) -> int:
        """Return how many bytes may be offered now; negative when the last message ran over."""
        return self.position_limit - self.position

    @property
    def is_connected(self) -> bool:
        """Return whether a subscriber is there."""
        return not self._is_closed and self._metadata.is_connected == 1

    @property
    def is_closed(self) -> bool:
        """Return whether the publication is closed, by whomever."""
        return self._is_closed

    async def wait_connected(self, timeout: float | None = None) -> None:
        """Wait until a subscriber is there and there is room for it.

        Args:
            timeout: Seconds to wait at most; None waits as long as it takes.

        Raises:
            AeronTimeoutError: The timeout passed.
            ClosedError: The publication was closed, before or meanwhile.
        """
        await watched_wait(
            self,
            self._changed,
            lambda: self.is_connected and self.available_window > 0,
            "wait_connected",
            timeout,
        )

    async def drain(self, timeout: float | None = None) -> None:
        """Wait until everything offered has been sent.

        What is lost on the way is still resent while the publication is open or lingers.

        Args:
            timeout: Seconds to wait at most; None waits as long as it takes.

        Raises:
            AeronTimeoutError: The timeout passed.
            ClosedError: The publication was closed, before or meanwhile.
        """
        await watched_wait(
            self,
            self._changed,
            lambda: self._ready.sender_position.get() >= self.position,
            "drain",
            timeout,
        )

    async def add_destination(self, channel: str | ChannelUri) -> int:
        """Send to one more receiver, of a channel with `control-mode=manual`; return its id.

        Args:
            channel: Such as `aeron:udp?endpoint=127.0.0.1:20121`.

        Raises:
            ChannelUriError: The channel cannot be meant, or is no destination.
            RegistrationError: The publication's channel takes none, or the name does not resolve.
            ClosedError: The publication was closed, before or meanwhile.
        """
        self.check_open()
        return await self._aeron.add_publication_destination(
            self._ready.registration_id, destination_uri(channel, is_sent_to=True)
        )

    async def remove_destination(self, destination: str | ChannelUri | int) -> None:
        """Send to a receiver no more.

        Args:
            destination: The channel that was added, or the id that adding it returned.

        Raises:
            RegistrationError: It is none of the publication's destinations.
            ClosedError: The publication was closed, before or meanwhile.
        """
        self.check_open()
        await self._aeron.remove_publication_destination(
            self._ready.registration_id,
            destination
            if isinstance(destination, int)
            else destination_uri(destination, is_sent_to=True),
        )

    def close(self) -> None:
        """Close now; what was offered is still sent. Closing twice is closing once.

        Raises:
            WrongLoopError: The event loop it belongs to is not running here; it stays open.
        """
        if not self._is_closed:
            self._check_loop()
            self._mark_closed(None)
            self._aeron.release_publication(self, self._ready.registration_id)

    async def aclose(self) -> None:
        """Close now; what was offered is still sent. Closing twice is closing once.

        Raises:
            WrongLoopError: It belongs to another event loop; it stays open.
        """
        self.close()
        await asyncio.sleep(0)

    def _revoke(self) -> None:
        if not self._is_closed:
            self._check_loop()
            self._mark_closed(None)
            self._aeron.revoke_publication(self, self._ready.registration_id)

    def wake_sender(self) -> None:
        """Let the driver look at what was appended; for claims."""
        if not self._is_closed:
            self._wake_sender()

    # What the driver says.

    def on_window_changed(self) -> None:
        """Wake whoever waits for room, one after the other, and for anything else."""
        if self._line and not self._is_closed:
            # Who found no room need not look again because something was sent.
            news = self._look_around()
            if news != self._news:
                self._news = news
                self._line.ring()
        self._changed.ring()

    def _look_around(self) -> tuple[int, int]:
        """Return what decides whether an offer finds room, apart from other offers."""
        return self._limit.get(), self._metadata.is_connected

    def on_publication_error(self, error: PublicationErrorFrame) -> None:
        """Remember why a receiver does not take the stream, and tell of it in the next turn."""
        did = "rejected" if error.code == ErrorCode.IMAGE_REJECTED else "refused"
        self.last_error = f"a receiver {did} the stream with code {error.code}: {error.message}"
        self.on_window_changed()
        if self._on_error is not None:
            # Not now: the driver is in the middle of a datagram, and a handler may close anything.
            asyncio.get_running_loop().call_soon(self._tell_of_error, error)

    def on_publication_failed(self, error: Exception) -> None:
        """Close without asking the driver: there it is gone already."""
        self._mark_closed(error)
        self._aeron.forget_publication(self)

    def on_driver_closed(self, error: Exception | None) -> None:
        """Close without asking the driver: it is gone."""
        self._mark_closed(error)

    def _tell_of_error(self, error: PublicationErrorFrame) -> None:
        if self._on_error is None or self._is_closed:
            return
        try:
            self._on_error(error)
        except Exception as failure:  # noqa: BLE001 - it is reported; no handler may stop an agent
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"error handler of {self!r} failed", "exception": failure}
            )

    # How it waits.

    async def _wait_for_room(
        self, attempt: Callable[[], int], result: int, timeout: float | None
    ) -> int:
        """Wait in line and try when it is our turn, until it works or the timeout passes."""
        started_ns = self._aeron.clock.now_ns()
        if not self._line:
            # What the attempt that has just failed saw: only another state of things is news.
            self._news = self._look_around()
        place = self._line.join(started_ns)
        if self.logs_waits and not self._offer_wait.is_watched:
            self.waits.begin(self._offer_wait)
        # While anybody waits there is no budget, and so `offer` need look at the line only without.
        self._turn_budget = 0
        try:
            if timeout is None:
                return await self._attempt_in_line(attempt, result, place)
            async with asyncio.timeout(timeout):
                return await self._attempt_in_line(attempt, result, place)
        except TimeoutError:
            waited_ns = self._aeron.clock.now_ns() - started_ns
            raise offer_timeout(self.explain(), waited_ns) from None
        finally:
            self._line.leave(place)
            if not self._line:
                self._turn_budget = self._loop_turn.stride
            elif self.logs_waits and not self._offer_wait.is_watched:
                # The next in line may have begun to wait after the line was written.
                self.waits.begin(self._offer_wait)

    async def _attempt_in_line(self, attempt: Callable[[], int], result: int, place: Place) -> int:
        while result < 0:
            if result == AppendResult.NOT_CONNECTED and self._on_disconnected == "raise":
                message = f"no subscriber of {self.channel} stream {self.stream_id}"
                raise NotConnectedError(message)
            await self._line.wait(place)
            result = attempt()
        return result

    def explain(self) -> Why:
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

    def _mark_closed(self, because: Exception | None) -> None:
        self._is_closed = True
        if self._is_started:
            self._appender.detach()
        self._detach()
        self._closed_because = because
        self._line.ring_all()
        self._changed.ring()

    def check_open(self) -> None:
        """Raise `ClosedError` where it is closed."""
        if self._is_closed:
            self._raise_closed()

    def _raise_closed(self) -> NoReturn:
        message = f"the publication on {self.channel} stream {self.stream_id} is closed"
        if isinstance(self._closed_because, PublicationError):
            message = f"{message}: {self._closed_because}"
        raise ClosedError(message) from self._closed_because

    def _check_loop(self) -> None:
        if not self._home.is_here():
            message = f"{self!r} belongs to another event loop, or thread: use and close it there"
            raise WrongLoopError(message)

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
