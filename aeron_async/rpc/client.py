"""Clients of a service: calls, deadlines, and which server gets what.

Invariant: a call is in exactly one place until it ends: the queue of the client, or the `calls` of
one link. It ends exactly once, with an answer or with one error.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final, Self, final
from zlib import crc32

import attrs

from aeron_async.client.arguments import check_limit
from aeron_async.client.home_loop import HomeLoop
from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import (
    AeronError,
    CallFailedError,
    CallLostError,
    CallNotSentError,
    CallTimeoutError,
    ClosedError,
    ConfigurationError,
    NoServerError,
    Status,
    WrongLoopError,
)
from aeron_async.protocol.arguments import check_number
from aeron_async.protocol.units import INT64_MAX
from aeron_async.rpc.client_link import ENDED, ClientCall, ClientLink, LinkState
from aeron_async.rpc.client_stream import ClientStream
from aeron_async.rpc.deadlines import Deadlines, nanoseconds
from aeron_async.rpc.envelope import (
    CONTINUED,
    IDEMPOTENT,
    INSTANCE_LENGTH,
    LAST,
    REPEATED,
    Extension,
    checked,
    method_id,
    pack_extensions,
)
from aeron_async.rpc.flows import InFlow, OutFlow, check_window
from aeron_async.rpc.short_ways import ShortBeginning
from aeron_async.rpc.typed_calls import Method
from aeron_async.rpc.wiring import REQUEST_STREAM_ID, Wiring
from aeron_async.tasks import running_loop
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from aeron_async.client.aeron import Aeron
    from aeron_async.codecs.base import Codec
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.trace_context import TraceContext

__all__ = ["CallCounts", "Client"]

RETRY_TOKENS: Final = 100
RETRY_RATIO: Final = 0.1
"""Of a call that was answered, in tokens: one repetition costs one, so a tenth may be repeated."""
KEYED_MOST: Final = 64
"""How many queued calls that belong to other servers are passed over in search of one for this."""
REQUEST: Final = "a request"
REFUSALS_MOST: Final = 3
"""How often one call is sent again after a server said that it did not begin."""


@attrs.frozen
class CallCounts:
    """What a client has counted.

    Attributes:
        answered: Calls that had an answer.
        failed: Calls that the server answered with an error.
        timed_out: Calls whose deadline passed.
        cancelled: Calls that the caller cancelled.
        lost: Calls that were sent, and whose server was lost.
        not_sent: Calls that no server got.
        repeated: How often a call was sent again.
        under_way: Calls that were sent and have no answer yet.
        queued: Calls that wait for a server, or for room.
        late: Messages for calls that had ended.
        malformed: Messages that were no envelope, or made no sense.
        links_lost: How often a link was lost.
    """

    answered: int
    failed: int
    timed_out: int
    cancelled: int
    lost: int
    not_sent: int
    repeated: int
    under_way: int
    queued: int
    late: int
    malformed: int
    links_lost: int


@final
class Client(ShortBeginning):
    """Calls the methods of a service: `async with Client(aeron, channel, "orders") as client`.

    Args:
        aeron: The client of Aeron whose streams it uses.
        channel: URI of the service, such as
            `aeron:udp?endpoint=host:20121|control=host:20122`; a list of several servers.
        service: Name of the service.
        stream_id: Stream id of the requests.
        response_stream_id: Stream id of the answers; the next one by default.
        name: What servers call this client in their logs.
        timeout: Seconds that a call may take by default; None for as long as it takes.
        connect_timeout: Seconds after which a call fails if no server is connected.
        ping_interval: Seconds of silence after which a server is asked whether it is there. It is
            lost after three of them, in which three pings were not answered.
        calls_at_once: Most calls that are under way on one server.
        queue_limit: Most calls that wait for a server, or for an answer of others.
        window_items: Most elements of one stream that wait for their reader.
        window_bytes: Most bytes of them, at least 128 KiB.
        payload_max: Most bytes of an answer, or of an element.
        random_bytes: Where identities, back-off and balance come from.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    _answered = _failed = _timed_out = _cancelled = _lost = _not_sent = _repeated = 0
    _is_closed = _is_pumping = False

    def __init__(
        self,
        aeron: Aeron,
        channel: str | ChannelUri | Sequence[str | ChannelUri],
        service: str,
        *,
        stream_id: int = REQUEST_STREAM_ID,
        response_stream_id: int | None = None,
        name: str = "",
        timeout: float | None = 5.0,
        connect_timeout: float = 1.0,
        ping_interval: float = 1.0,
        calls_at_once: int = 1_024,
        queue_limit: int = 8_192,
        window_items: int = 256,
        window_bytes: int = 1 << 20,
        payload_max: int = 4 << 20,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        single = isinstance(channel, str) or not isinstance(channel, (list, tuple))
        channels: Any = [channel] if single else channel
        if not channels:
            message = "channel=[]: give at least one server"
            raise ConfigurationError(message)
        self.clock = aeron.clock
        self.name = name or f"{service}-{os.getpid()}"
        self.service = service
        self.ping_interval_ns = nanoseconds(ping_interval, "ping_interval")
        self.window_items, self.window_bytes = check_window(window_items, window_bytes)
        self.payload_max = check_number(payload_max, "payload_max", minimum=1, maximum=INT64_MAX)
        self._aeron = aeron
        self._home: HomeLoop | None = None
        self._call_type = ClientCall
        self._timeout_ns = 0 if timeout is None else nanoseconds(timeout, "timeout")
        self._connect_timeout_ns = nanoseconds(connect_timeout, "connect_timeout")
        self._queue_limit = check_limit(queue_limit, "queue_limit")
        self._numbers: dict[str, int] = {}
        wirings = [Wiring(each, stream_id, response_stream_id) for each in channels]
        self.chunk = min(each.chunk for each in wirings)
        self._queue: deque[ClientCall] = deque()
        self._links = [
            ClientLink(self, aeron, wiring, self._queue, calls_at_once=calls_at_once)
            for wiring in wirings
        ]
        self._only_link = self._links[0] if len(self._links) == 1 else None
        self._now_ns = self.clock.now_ns
        self._deadlines: Deadlines[ClientCall] = Deadlines(self.clock, self._on_deadline)
        self._waiting: Deadlines[ClientCall] = Deadlines(self.clock, self._on_no_server)
        self._random_bytes = random_bytes
        self._tokens = float(RETRY_TOKENS)
        self._up = asyncio.Event()

    # Calls.

    async def call(
        self,
        method: str,
        request: bytes = b"",
        *,
        timeout: float | EllipsisType | None = ...,
        idempotent: bool = False,
        key: str | bytes | None = None,
        trace: TraceContext | None = None,
    ) -> bytes:
        """Call a method and return its answer.

        Args:
            method: Its name.
            request: Payload.
            timeout: Seconds until it ends in `CallTimeoutError`; that of the client by default,
                None for as long as it takes. The server learns it, and cancels the handler.
            idempotent: Whether it may run more than once: it is then sent again when its server is
                lost.
            key: Of several servers, those who call with one key reach the same one.
            trace: The span that calls.

        Raises:
            CallFailedError: The server answered with an error.
            CallTimeoutError: The deadline passed.
            CallNotSentError: No server got it; `NoServerError` if none is connected.
            CallLostError: It was sent, and the server was lost before it answered.
            ClosedError: The client is closed, or not open yet.
        """
        flags = LAST | IDEMPOTENT if idempotent else LAST
        call = None
        if timeout is ... and key is None and trace is None:
            call = self._begin_fast(method, request, flags)
        if call is None:
            if type(request) is not bytes:
                request = bytes(checked(request, REQUEST))
            if len(request) > self.chunk:
                return await self._call_large(method, request, timeout, idempotent, key, trace)
            call = self._new_call(method, request, flags, timeout, trace)
            self.begin(call, key)
        try:
            answer = await call.answer
        except asyncio.CancelledError:
            self._cancelled += 1
            self.abandon(call)
            raise
        except CallFailedError:
            self._failed += 1
            raise
        finally:
            call.let_go(ENDED)
        self._answered += 1
        if self._tokens < RETRY_TOKENS:
            self._tokens += RETRY_RATIO
        return answer

    def method(
        self,
        name: str,
        *,
        request: Codec[Any] | None = None,
        response: Codec[Any] | None = None,
        idempotent: bool = False,
    ) -> Method[Any, Any]:
        """Return a method to call like a function, with values by codecs.

        Args:
            name: Its name.
            request: Makes the payload of a request, or of an element; None for bytes.
            response: Makes a value of an answer, or of an element; None for bytes.
            idempotent: Whether calls may run more than once.

        Raises:
            ConfigurationError: What is given is no codec.
        """
        return Method(self, name, request, response, idempotent=idempotent)

    def stream(
        self,
        method: str,
        request: bytes | None = None,
        *,
        timeout: float | EllipsisType | None = ...,
        key: str | bytes | None = None,
        trace: TraceContext | None = None,
    ) -> ClientStream:
        """Return a call that streams: `async with client.stream("ticks", b"") as ticks`.

        Args:
            method: Its name.
            request: The whole request, for methods that stream answers only; None to `send`
                elements.
            timeout: As for `call`.
            key: As for `call`.
            trace: As for `call`.
        """
        is_whole = request is not None
        whole = bytes(checked(request, REQUEST)) if is_whole else b""
        if len(whole) > self.chunk:
            message = (
                f"a request of {len(whole)} bytes; at most {self.chunk} where answers "
                f"stream: give None, and send it in elements"
            )
            raise ConfigurationError(message)
        call = self._new_call(method, whole, LAST if is_whole else 0, timeout, trace)
        call.outflow = None if is_whole else OutFlow()
        return ClientStream(self, call, key)

    async def wait_connected(self, timeout: float | None = None) -> None:
        """Wait until a server is connected.

        Raises:
            NoServerError: None is, after so many seconds; or those that are there cannot be used.
            ClosedError: The client or its Aeron is closed, or the client is not open yet.
        """
        self._check_open()
        if self._aeron.is_closed:
            message = f"the Aeron of the client of {self.service!r} is closed"
            raise ClosedError(message)
        try:
            async with asyncio.timeout(timeout):
                while not (self.is_connected or self._is_closed):
                    # Set when a server takes calls, or when all that were found refuse them.
                    await self._up.wait()
                    if self._refusal():
                        break
        except TimeoutError:
            text = self._no_server_text(f"within {timeout:g} s", "the timeout of wait_connected")
            raise NoServerError(text) from None
        self._check_open()
        if not self.is_connected:
            raise NoServerError(self._no_server_text(""))

    @property
    def is_connected(self) -> bool:
        """Return whether a server takes calls."""
        return any(each.state is LinkState.UP for each in self._links)

    @property
    def counts(self) -> CallCounts:
        """Return what was counted."""
        return CallCounts(
            answered=self._answered,
            failed=self._failed,
            timed_out=self._timed_out,
            cancelled=self._cancelled,
            lost=self._lost,
            not_sent=self._not_sent,
            repeated=self._repeated,
            under_way=sum(len(each.calls) for each in self._links),
            queued=sum(not each.is_over for each in self._queue),
            late=sum(each.late_count for each in self._links),
            malformed=sum(each.malformed_count for each in self._links),
            links_lost=sum(each.lost_count for each in self._links),
        )

    # Beginning and ending a call.

    def _new_call(
        self,
        method: str,
        request: bytes,
        flags: int,
        timeout: float | EllipsisType | None,
        trace: TraceContext | None,
    ) -> ClientCall:
        home = self._home
        if home is None or self._is_closed or not home.is_here():
            self._check_open()
            raise AssertionError
        number = self._numbers.get(method)
        if number is None:
            number = self._number_of(method)
        if timeout is None:
            timeout_ns = 0
        elif isinstance(timeout, EllipsisType):
            timeout_ns = self._timeout_ns
        else:
            timeout_ns = nanoseconds(timeout, "timeout")
        deadline_ns = self.clock.now_ns() + timeout_ns if timeout_ns else 0
        call = ClientCall(method, number, request, flags, deadline_ns, home.loop.create_future())
        if trace is not None:
            call.extensions = packed_trace(trace)
        return call

    def _number_of(self, method: str) -> int:
        number = method_id(self.service, method)
        # Names come from the program; one that makes them up must not fill the memory.
        if len(self._numbers) < self._queue_limit:
            self._numbers[method] = number
        return number

    def begin(self, call: ClientCall, key: str | bytes | None) -> None:
        """Send a call, or queue it."""
        if self._is_closed:
            # Since the stream was made.
            call.fail(ClosedError(f"{call.method}: the client was closed"))
            return
        if call.deadline_ns:
            self._deadlines.add(call.deadline_ns, call)
        if key is not None:
            call.key = key.encode() if isinstance(key, str) else key
        if not self._queue:
            link = self._links[0] if len(self._links) == 1 else self._pick(call.key)
            if link is not None and link.room > 0 and link.send(call):
                return
        self._enqueue(call)

    def _enqueue(self, call: ClientCall) -> None:
        if len(self._queue) >= self._queue_limit:
            # Those that have ended are still in it.
            live = [each for each in self._queue if not each.is_over]
            self._queue.clear()
            self._queue.extend(live)
        if len(self._queue) >= self._queue_limit:
            self._not_sent += 1
            error = CallNotSentError(
                f"{call.method}: {len(self._queue)} calls wait already; raise queue_limit"
            )
            error.status = Status.RESOURCE_EXHAUSTED
            call.fail(error)
            return
        call.link = None
        self._queue.append(call)
        if not self.is_connected:
            self._expect_server(call)
        elif not self._is_pumping and any(each.room > 0 for each in self._links):
            # Not at once: the caller may be in the middle of settling a link.
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        for link in self._links:
            self.on_room(link)

    def _expect_server(self, call: ClientCall) -> None:
        if call.first_key and call.deadline_ns:
            # It may have run: it is sent again for as long as its deadline allows.
            return
        if self._refusal():
            # To wait does not help.
            self._on_no_server(call)
            return
        since_ns = max((each.unconnected_since_ns for each in self._links), default=0)
        now_ns = self.clock.now_ns()
        due_ns = (since_ns or now_ns) + self._connect_timeout_ns
        if due_ns <= now_ns or self._are_draining:
            self._on_no_server(call)
        elif not call.is_waiting:
            call.is_waiting = True
            self._waiting.add(due_ns, call)

    def _on_no_server(self, call: ClientCall) -> None:
        call.is_waiting = False
        if call.link is not None or self.is_connected:
            return
        if call.first_key:
            self._lost += 1
            call.fail(CallLostError(f"{call.method}: its server was lost; it may have run"))
        else:
            self._not_sent += 1
            call.fail(NoServerError(f"{call.method}: {self._why_no_server()}"))

    @property
    def _are_draining(self) -> bool:
        """Return whether each server has said that it takes no new calls."""
        return all(each.state is LinkState.DRAINING for each in self._links)

    def _why_no_server(self) -> str:
        if self._are_draining:
            names = ", ".join(each.name for each in self._links)
            return f"the server of {self.service!r} at {names} ends, and takes no new calls"
        waited = f"for {self._connect_timeout_ns / NS_PER_SECOND:g} s"
        return self._no_server_text(f"{waited}: nothing was sent")

    def _refusal(self) -> str:
        """Return why no server that was found can be used; empty while one may be found."""
        if not all(each.refusal for each in self._links):
            return ""
        return "; ".join(dict.fromkeys(each.refusal for each in self._links))

    def _no_server_text(self, when: str, setting: str = "connect_timeout") -> str:
        names = ", ".join(f"{each.name} stream_id={each.stream_id}" for each in self._links)
        text = f"no server of {printable(self.service, SHORT)!r} at {names}"
        troubles = "; ".join(dict.fromkeys(each.trouble for each in self._links if each.trouble))
        if self._refusal():
            return f"{text}: {troubles}"
        return f"{text} {when}; " + (troubles or f"raise {setting} to wait")

    def _on_deadline(self, call: ClientCall) -> None:
        if call.link is not None:
            call.link.abandon(call)
        self.on_expired(call)

    def on_expired(self, call: ClientCall) -> None:
        """Let a call fail whose deadline has passed, here or at the server."""
        self._timed_out += 1
        was_sent = call.link is not None or bool(call.first_key)
        seen = "sent, and not answered in time" if was_sent else "not sent in time"
        remedy = "raise timeout"
        if call.is_stream and not call.wants_one:
            seen = "the stream was not over in time" if was_sent else seen
            remedy += ", or give None to a stream that goes on"
        call.fail(CallTimeoutError(f"{call.method}: {seen}; {remedy}", was_sent=was_sent))

    def abandon(self, call: ClientCall) -> None:
        """End a call for which its caller does not wait any more."""
        if not call.answer.done():
            call.answer.cancel()
        if call.link is not None:
            call.link.abandon(call)

    async def _call_large(
        self,
        method: str,
        request: bytes,
        timeout: float | EllipsisType | None,
        idempotent: bool,  # noqa: FBT001 - handed on
        key: str | bytes | None,
        trace: TraceContext | None,
    ) -> bytes:
        if len(request) > self.payload_max:
            message = (
                f"{method}: a request of {len(request)} bytes; raise payload_max from "
                f"{self.payload_max}, also at the server"
            )
            raise ConfigurationError(message)
        flags = CONTINUED | (IDEMPOTENT if idempotent else 0)
        call = self._new_call(method, request[:0], flags, timeout, trace)
        call.outflow = OutFlow()
        async with ClientStream(self, call, key) as stream:
            await stream.send_large(request)
            return await stream.reply()

    def count_answer(self, call: ClientCall) -> None:
        """Count what became of a call that is left: one of several, or one that streams."""
        if not call.answer.done() or call.answer.cancelled():
            self._cancelled += 1
        elif (error := call.answer.exception()) is None:
            self._answered += 1
        elif isinstance(error, CallFailedError):
            # Every other error was counted where it was made.
            self._failed += 1

    # What links need.

    def random(self) -> float:
        """Return a number from 0 to 1, for back-off."""
        return int.from_bytes(self._random_bytes(4)) / (1 << 32)

    def instance(self) -> bytes:
        """Return random bytes that no other link has."""
        return self._random_bytes(INSTANCE_LENGTH)

    def new_inflow(self, call: ClientCall) -> InFlow:
        """Return what a call receives elements, or pieces of an answer, into."""

        def grant(items: int, kib: int) -> None:
            if call.link is not None:
                call.link.grant(call, items, kib)

        return InFlow(
            grant,
            window_items=self.window_items,
            window_bytes=self.window_bytes,
            payload_max=self.payload_max,
        )

    def on_link_up(self, link: ClientLink) -> None:
        """Send what waits."""
        self._up.set()
        self.on_room(link)

    def on_room(self, link: ClientLink) -> None:
        """Send what waits for room on this link."""
        queue = self._queue
        of_others: list[ClientCall] = []
        while queue and link.room > 0 and len(of_others) < KEYED_MOST:
            call = queue.popleft()
            if call.is_over:
                continue
            if call.key is not None and self._pick(call.key) is not link:
                of_others.append(call)
            elif not link.send(call):
                queue.appendleft(call)
                break
        queue.extendleft(reversed(of_others))

    def on_link_lost(self, link: ClientLink, reason: str) -> None:
        """Let what is queued wait for another server, but not for long."""
        del link, reason
        if not self.is_connected:
            if self._refusal():
                # Those who wait for a server learn why there is none.
                self._up.set()
            self._up.clear()
            for call in [each for each in self._queue if not each.is_over]:
                self._expect_server(call)

    def on_call_lost(self, call: ClientCall, reason: str, *, was_sent: bool) -> None:
        """Send a call again, or let it fail."""
        if call.is_over:
            return
        if self._is_closed:
            call.fail(ClosedError(f"{call.method}: the client was closed"))
        elif not was_sent and not call.is_stream:
            self._enqueue(call)
        elif was_sent and call.is_idempotent and not call.is_stream and self._may_repeat():
            if not call.first_key and call.link is not None:
                call.first_key = call.link.key_of(call)
            call.flags |= REPEATED
            self._enqueue(call)
        elif was_sent:
            self._lost += 1
            call.fail(CallLostError(f"{call.method}: {reason}; it may have run"))
        else:
            self._not_sent += 1
            call.fail(CallNotSentError(f"{call.method}: {reason}"))

    def on_refused(self, call: ClientCall, error: CallFailedError) -> bool:
        """Send a call again that a server did not begin, if another server may take it."""
        if (
            call.is_stream
            or call.attempts > REFUSALS_MOST
            or error.status is not Status.UNAVAILABLE
            or not self._may_repeat()
        ):
            return False
        self._enqueue(call)
        return True

    def _may_repeat(self) -> bool:
        if self._tokens < 1:
            return False
        self._tokens -= 1
        self._repeated += 1
        return True

    # Several servers.

    def _pick(self, key: bytes | None) -> ClientLink | None:
        if key is not None:
            up = [each for each in self._links if each.state is LinkState.UP]
            return max(up, key=lambda link: crc32(key, crc32(link.name.encode())), default=None)
        with_room = [each for each in self._links if each.room > 0]
        if len(with_room) < 2:  # noqa: PLR2004 - two are compared
            return with_room[0] if with_room else None
        one, two = self._random_bytes(2)
        first = with_room.pop(one % len(with_room))
        second = with_room[two % len(with_room)]
        return first if len(first.calls) <= len(second.calls) else second

    async def call_all(
        self,
        method: str,
        request: bytes = b"",
        *,
        timeout: float | EllipsisType | None = ...,
        idempotent: bool = False,
    ) -> list[bytes | AeronError]:
        """Call a method of each server that is connected; return their answers or errors.

        Args:
            method: Its name.
            request: Payload, at most 64 KiB.
            timeout: As for `call`, for each.
            idempotent: As for `call`.
        """
        if type(request) is not bytes:
            request = bytes(checked(request, REQUEST))
        if len(request) > self.chunk:
            message = f"{method}: a request of {len(request)} bytes; at most {self.chunk} for all"
            raise ConfigurationError(message)
        flags = LAST | IDEMPOTENT if idempotent else LAST
        with_room = [each for each in self._links if each.room > 0]
        calls = [self._new_call(method, request, flags, timeout, None) for _ in with_room]
        for link, call in zip(with_room, calls, strict=True):
            if call.deadline_ns:
                self._deadlines.add(call.deadline_ns, call)
            if not link.send(call):
                # No other server may get it instead: that one is called too.
                self._not_sent += 1
                call.fail(CallNotSentError(f"{method}: too much waits for {link.name}"))
        try:
            results = await asyncio.gather(*(each.answer for each in calls), return_exceptions=True)
        finally:
            for call in calls:
                self.abandon(call)
                self.count_answer(call)
                call.let_go(ENDED)
        return [each for each in results if isinstance(each, bytes | AeronError)]

    # Opening and closing.

    def _check_open(self) -> None:
        if self._is_closed:
            message = f"the client of {self.service!r} is closed"
            raise ClosedError(message)
        if self._home is None:
            message = f"the client of {self.service!r} is not open: use async with"
            raise ClosedError(message)
        if not self._home.is_here():
            message = f"the client of {self.service!r} belongs to another event loop"
            raise WrongLoopError(message)

    def open(self) -> Self:
        """Begin to connect, without waiting for a server; `async with` does so.

        Raises:
            ClosedError: It was closed.
            WrongLoopError: Its Aeron belongs to another event loop.
        """
        if self._is_closed:
            message = f"the client of {self.service!r} is closed"
            raise ClosedError(message)
        if self._home is not None:
            self._check_open()
        else:
            loop = running_loop()
            if self._aeron.loop not in {None, loop}:
                message = (
                    f"the client of {self.service!r} is opened in another event loop than its "
                    f"Aeron: give each loop, and each thread, an Aeron of its own"
                )
                raise WrongLoopError(message)
            self._home = HomeLoop(loop)
            for link in self._links:
                link.start()
        return self

    async def aclose(self) -> None:
        """Close all links; calls that are under way raise `ClosedError`."""
        if self._is_closed:
            return
        self._is_closed = True
        self._up.set()
        self._deadlines.close()
        self._waiting.close()
        while self._queue:
            self.on_call_lost(self._queue.popleft(), "the client was closed", was_sent=False)
        for link in self._links:
            link.close()
        for link in self._links:
            await link.wait_closed()

    async def __aenter__(self) -> Self:
        return self.open()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


def packed_trace(trace: TraceContext) -> bytes:
    """Return the extensions of a trace context."""
    given: list[tuple[int, bytes]] = [(Extension.TRACEPARENT, trace.to_bytes())]
    if trace.state:
        given.append((Extension.TRACESTATE, trace.state.encode()))
    return pack_extensions(given)
