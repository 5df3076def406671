"""The short ways of a call: from the caller to the stream, and from the stream to the handler.

Most calls have no options, a whole request and a whole answer, both short, and there is room for
them. These go the ways of this module, in one call of each class. Whatever is not so is left to the
long way of the class that extends it, which has the same effect.

Invariant: a short way does all of its work or, where it says so, none of it.
"""

from __future__ import annotations

import asyncio
from heapq import heapify
from struct import error as StructError  # noqa: N812 - a class, in spite of its name
from typing import TYPE_CHECKING, Any, Final

from aeron_async._speedups import WHY_PURE
from aeron_async.protocol.units import INT64_MAX
from aeron_async.rpc.envelope import HEAD_LENGTH, LAST, QUICK, Template, kind_of

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from aeron_async.client.home_loop import HomeLoop

__all__ = [
    "ShortBeginning",
    "ShortCall",
    "ShortDeadlines",
    "ShortLink",
    "ShortMethod",
    "ShortOutbox",
    "ShortServing",
    "ShortSession",
]

UNPACK_QUICK: Final = QUICK.unpack_from
PACK_QUICK: Final = QUICK.pack
CALL_KIND: Final = kind_of(Template.CALL)
REPLY_KIND: Final = kind_of(Template.REPLY)
TEMPLATE_AT: Final = 2
SLACK: Final = 64


class ShortOutbox:
    """The part of an outbox that is compiled; see `Outbox` for its attributes."""

    __slots__ = ("frames", "offer_fast")

    frames: deque[tuple[bytes, Any]]
    offer_fast: Callable[[bytes, int], int]


# The client.


class ShortCall:
    """The part of a client's call that is compiled; see `ClientCall` for its attributes."""

    def __init__(
        self,
        method: str,
        number: int,
        request: bytes,
        flags: int,
        deadline_ns: int,
        answer: asyncio.Future[bytes],
    ) -> None:
        self.method = method
        self.number = number
        self.request = request
        self.flags = flags
        self.deadline_ns = deadline_ns
        self.answer = answer
        self.call_id = self.attempts = 0
        self.link: Any = None
        self.outflow: Any = None
        self.inflow: Any = None
        self.parts: Any = None

    @property
    def is_over(self) -> bool:
        """Return whether it was answered, has failed, or was cancelled."""
        return self.answer.done()

    def let_go(self, ended: Any) -> None:
        """Keep no payload: its deadline is remembered for longer.

        Args:
            ended: Takes the place of the answer, which was looked at.
        """
        self.request = b""
        self.answer = ended
        self.parts = None


class ShortDeadlines:
    """The part of `Deadlines` that is compiled: what each call does.

    Attributes:
        _new: The calls that were added since the timer fired, each behind its deadline.
        _heap: The others, each behind its deadline and a serial number.
        _due_ns: When the timer fires.
        _sweep_at: With so many entries, those of calls that have ended leave.
    """

    __slots__ = ("_due_ns", "_heap", "_new", "_sweep_at")

    def __init__(self) -> None:
        self._new: list[tuple[int, Any]] = []
        self._heap: list[tuple[int, int, Any]] = []
        self._due_ns = INT64_MAX
        self._sweep_at = SLACK

    def add(self, deadline_ns: int, call: Any) -> None:
        """Call the function at that time, unless the call is over by then."""
        new = self._new
        if len(new) + len(self._heap) >= self._sweep_at:
            self._sweep()
        new.append((deadline_ns, call))
        if deadline_ns < self._due_ns:
            self._set_timer(deadline_ns)

    def _sweep(self) -> None:
        new, heap = self._new, self._heap
        new[:] = [each for each in new if not each[1].is_over]
        heap[:] = [each for each in heap if not each[2].is_over]
        heapify(heap)
        self._sweep_at = 2 * (len(new) + len(heap)) + SLACK

    def _set_timer(self, deadline_ns: int) -> None:
        raise NotImplementedError


class ShortLink:
    """The part of a client's link that is compiled: a call leaves, and an answer comes.

    Attributes:
        calls: The calls that were sent, by their id.
        calls_limit: The most of them.
        malformed_count: Messages that were no envelope.
        queue: The calls that wait for any link of the client.
        _heard_ns: When the last message came.
        _image: Where the messages come from.
        _is_up: Whether calls may be sent.
        _longest: Most bytes of an answer, and of the envelope before it, that goes the short way.
        _next_id: Of the next call.
        _outbox: What sends, and `_post` its long way.
        _reply_kind: The first 8 bytes of an answer that goes the short way; -1 if none does.
    """

    calls: dict[int, Any]
    calls_limit: int
    malformed_count: int
    queue: Any
    _heard_ns: int
    _image: Any
    _is_up: bool
    _longest: int
    _next_id: int
    _now_ns: Callable[[], int]
    _outbox: Any
    _owner: Any
    _post: Callable[..., bool]
    _reply_kind: int

    def send_fast(self, call: Any, left_ns: int) -> bool:
        """Send a call that is sent for the first time, if there is room; `send` is the long way."""
        calls = self.calls
        if not self._is_up or len(calls) >= self.calls_limit:
            return False
        call_id = self._next_id
        frame = PACK_QUICK(CALL_KIND, call_id, left_ns, call.number, call.flags, 0) + call.request
        outbox = self._outbox
        if (outbox.frames or outbox.offer_fast(frame, 0) < 0) and not self._post(frame, call):
            return False
        self._next_id = call_id + 1
        call.call_id = call_id
        call.link = self
        call.attempts = 1
        calls[call_id] = call
        return True

    def _on_message(self, message: Any) -> None:
        data = message.data
        try:
            kind, call_id, _, _, _, ext_length = UNPACK_QUICK(data)
        except StructError:
            self.malformed_count += 1
            return
        if message.image is not self._image:
            self._on_other_image(message.image, data[TEMPLATE_AT])
        self._heard_ns = self._now_ns()
        if (
            kind != self._reply_kind
            or ext_length
            or len(data) > self._longest
            or not self._take_reply(call_id, data)
        ):
            self._on_long_message(data, call_id)

    def _take_reply(self, call_id: int, data: bytes) -> bool:
        """Take the whole answer of a call that does not stream; return whether it was that."""
        calls = self.calls
        call = calls.get(call_id)
        if (
            call is None
            or call.parts is not None
            or call.outflow is not None
            or call.inflow is not None
        ):
            return False
        del calls[call_id]
        answer = call.answer
        if not answer.done():
            answer.set_result(data[HEAD_LENGTH:])
        if self.queue:
            self._owner.on_room(self)
        return True

    def _on_other_image(self, image: Any, template: int) -> None:
        raise NotImplementedError

    def _on_long_message(self, data: bytes, call_id: int) -> None:
        """Take a message that is no answer of the short way."""
        raise NotImplementedError


class ShortBeginning:
    """The part of a client that is compiled: how a call without options begins.

    Attributes:
        _call_type: The class of calls.
        _deadlines: What ends the calls that are not answered in time.
        _home: Where the client was opened; None before.
        _numbers: The ids of the methods that were called, by their names.
        _only_link: The link, if there is one only.
        _queue: The calls that wait.
        _timeout_ns: How long a call may take; 0 for as long as it does.
        chunk: Most bytes of a request in one message.
    """

    _call_type: type[Any]
    _deadlines: Any
    _home: HomeLoop | None
    _now_ns: Callable[[], int]
    _numbers: dict[str, int]
    _only_link: Any
    _queue: Any
    _timeout_ns: int
    chunk: int

    def _begin_fast(self, method: str, request: bytes, flags: int) -> Any:
        """Return a call that was sent; None if it must go the long way."""
        link, home = self._only_link, self._home
        number = self._numbers.get(method)
        if link is None or number is None or self._queue or home is None or not home.is_here():
            return None
        if type(request) is not bytes or len(request) > self.chunk:
            return None
        timeout_ns = self._timeout_ns
        deadline_ns = self._now_ns() + timeout_ns if timeout_ns else 0
        answer = home.loop.create_future()
        call = self._call_type(method, number, request, flags, deadline_ns, answer)
        if not link.send_fast(call, timeout_ns):
            return None
        if timeout_ns:
            self._deadlines.add(deadline_ns, call)
        return call


# The server.


class ShortMethod:
    """The part of a served method that is compiled; see `ServedMethod` for its attributes."""

    __slots__ = ("answered", "function", "handler_ns", "is_plain")

    answered: int
    function: Callable[..., Any]
    handler_ns: int
    is_plain: bool


class ShortSession:
    """The part of a server's client that is compiled: a short answer leaves.

    Attributes:
        calls: Its calls that run, by their id.
        chunk: Most bytes of an answer in one message.
        highest_id: Of the calls that came.
        is_shared: Whether answers go to all clients, so that each says whose it is.
        outbox: What sends, and `post` its long way.
    """

    calls: dict[int, Any]
    chunk: int
    highest_id: int
    is_shared: bool
    outbox: Any
    post: Callable[[bytes], bool]

    def reply_now(self, call_id: int, answer: Any, elapsed_ns: int) -> bool:
        """Send a short answer; return whether there was room. `reply` is the long way."""
        if type(answer) is not bytes:
            answer = self._checked(answer)
        if self.is_shared or len(answer) > self.chunk:
            return False
        frame = PACK_QUICK(REPLY_KIND, call_id, elapsed_ns, 0, LAST, 0) + answer
        outbox = self.outbox
        return (not outbox.frames and outbox.offer_fast(frame, 0) >= 0) or self.post(frame)

    def _checked(self, answer: object) -> bytes:
        """Return an answer as bytes.

        Raises:
            TypeError: It is no bytes.
        """
        raise NotImplementedError


class ShortServing:
    """The part of a service that is compiled: a call comes, and is answered at once.

    Attributes:
        _call_count: Calls that arrived.
        _calls_at_once: Most calls of a client that run.
        _calls_limit: Most calls of all clients that run.
        _is_draining: Whether no new calls are taken.
        _kept_flags: Calls with these flags take the long way.
        _longest: Most bytes of a request, and of the envelope before it, that goes the short way.
        _sessions: The clients, by their images.
        _simple: The methods that take the short way, by their ids.
        _under_way: Calls that run.
    """

    _call_count: int
    _calls_at_once: int
    _calls_limit: int
    _is_draining: bool
    _kept_flags: int
    _longest: int
    _now_ns: Callable[[], int]
    _sessions: dict[Any, Any]
    _simple: dict[int, Any]
    _under_way: int

    def _on_message(self, message: Any) -> None:
        data = message.data
        session = self._sessions.get(message.image)
        if session is None and (session := self._new_session(message.image)) is None:
            return
        try:
            kind, call_id, amount, number, flags, ext_length = UNPACK_QUICK(data)
        except StructError:
            self._on_malformed(session, 0, "shorter than an envelope")
            return
        if (
            kind == CALL_KIND
            and flags & LAST
            and not ext_length
            and not flags & self._kept_flags
            and len(data) <= self._longest
            and call_id > session.highest_id
            and (method := self._simple.get(number)) is not None
            and len(session.calls) < self._calls_at_once
            and self._under_way < self._calls_limit
            and not self._is_draining
        ):
            session.highest_id = call_id
            self._call_count += 1
            if method.is_plain:
                self._answer_now(session, method, call_id, amount, data)
            else:
                self._begin_simple(session, method, call_id, amount, data[HEAD_LENGTH:])
            return
        self._on_any(session, data)

    def _answer_now(
        self, session: Any, method: Any, call_id: int, amount: int, data: bytes
    ) -> None:
        """Run a plain handler and answer; `_begin` with a plain handler is the long way."""
        began_ns = self._now_ns()
        try:
            answer = method.function(data[HEAD_LENGTH:])
            elapsed_ns = self._now_ns() - began_ns
            is_answered = session.reply_now(call_id, answer, elapsed_ns)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it is answered
            self._fail(session, call_id, method, error)
            return
        if is_answered:
            method.answered += 1
            method.handler_ns += elapsed_ns
        else:
            self._answer_later(session, method, call_id, amount, answer, elapsed_ns)

    def _new_session(self, image: Any) -> Any:
        raise NotImplementedError

    def _on_malformed(self, session: Any, call_id: int, reason: str) -> None:
        raise NotImplementedError

    def _on_any(self, session: Any, data: bytes) -> None:
        """Take a message the long way."""
        raise NotImplementedError

    def _begin_simple(
        self, session: Any, method: Any, call_id: int, amount: int, body: bytes
    ) -> None:
        """Run an `async` handler."""
        raise NotImplementedError

    def _answer_later(
        self,
        session: Any,
        method: Any,
        call_id: int,
        amount: int,
        answer: Any,
        elapsed_ns: int,
    ) -> None:
        """Send an answer that is long, or for which there is no room."""
        raise NotImplementedError

    def _fail(self, session: Any, call_id: int, method: Any, error: BaseException) -> None:
        """Answer what a handler has raised."""
        raise NotImplementedError


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.calling import (
        ShortBeginning,
        ShortCall,
        ShortDeadlines,
        ShortLink,
        ShortMethod,
        ShortOutbox,
        ShortServing,
        ShortSession,
    )
