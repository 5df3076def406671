"""One client of a server: its image, its answers, and its calls that run.

Invariant: a call is in `calls` from its beginning to its end, and no handler outlives its call:
what ends a call cancels its task. What a client sends makes a server keep at most `calls_at_once`
calls, the windows of their streams, and `OUTBOX_BYTES` of answers.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import CallFailedError, ProtocolError, Status
from aeron_async.rpc.envelope import (
    CALL_KEY,
    CONTINUED,
    INSTANCE_LENGTH,
    KEY_LENGTH,
    LAST,
    REPEATED,
    Extension,
    Template,
    checked,
    head,
    pack_extensions,
    text_of,
)
from aeron_async.rpc.flows import InFlow, OutFlow
from aeron_async.rpc.short_ways import ShortMethod, ShortSession
from aeron_async.trace_context import TraceContext

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from aeron_async.client.image import Image
    from aeron_async.clock import Clock
    from aeron_async.rpc.kept_results import KeptResult
    from aeron_async.rpc.outbox import Outbox
    from aeron_async.rpc.wiring import Wiring

__all__ = [
    "ANSWER",
    "Caller",
    "Handler",
    "ServedMethod",
    "ServerCall",
    "ServerSession",
]

ANSWER: Final = "an answer"


@final
@attrs.frozen
class Handler:
    """A method of a service.

    Attributes:
        name: Its name.
        function: What handles it.
        takes_call: Whether the function takes the call as its second argument.
        is_plain: Whether it is a plain function, which runs at once.
        takes_stream: Whether the client streams its request.
        gives_stream: Whether it streams its answer.
    """

    name: str
    function: Callable[..., Any]
    takes_call: bool
    is_plain: bool
    takes_stream: bool
    gives_stream: bool


@final
class ServedMethod(ShortMethod):
    """A method as one service runs it, and what was counted of it.

    Attributes:
        gives_whole: Whether it takes one request, and gives one answer.
        is_simple: Whether it takes whole requests, and nothing else, and gives whole answers.
        answered: Its calls that were answered.
        failed: Those that were answered with an error, by status.
        cancelled: Those that their clients cancelled, or whose clients have gone.
        repeated: Those that got, or wait for, the result of an earlier attempt.
        repeated_answers: Of those that were answered, how many were repeated.
        under_way: Those that run.
        handler_ns: How long the handlers of those that were answered have run, in nanoseconds.
    """

    __slots__ = (
        "cancelled",
        "failed",
        "gives_stream",
        "gives_whole",
        "is_simple",
        "name",
        "repeated",
        "repeated_answers",
        "takes_call",
        "takes_stream",
        "under_way",
    )

    def __init__(self, handler: Handler) -> None:
        self.name = handler.name
        self.function = handler.function
        self.takes_call = handler.takes_call
        self.is_plain = handler.is_plain
        self.takes_stream = handler.takes_stream
        self.gives_stream = handler.gives_stream
        self.gives_whole = not (self.takes_stream or self.gives_stream)
        self.is_simple = not (self.takes_call or self.takes_stream or self.gives_stream)
        self.answered = self.cancelled = self.repeated = self.repeated_answers = 0
        self.under_way = self.handler_ns = 0
        self.failed: Counter[str] = Counter()


@attrs.frozen
class Caller:
    """Who calls.

    Attributes:
        name: What the client says it is called; printable.
        address: Where its requests come from.
        session_id: Of its requests.
    """

    name: str
    address: str
    session_id: int


@final
class ServerCall:
    """One call, as its handler sees it.

    Attributes:
        method: Name of the method.
        caller: Who calls.
        deadline_ns: When it ends at the latest, by the clock of the server; 0 for never.
        is_repeated: Whether it was sent before, to this server or another.
        first_key: The key of an earlier attempt; empty for a first one.
        trace: The span that calls, if it said so.
    """

    # Defaults: most calls have no more than what their constructor stores.
    is_over = is_repeated = False
    deadline_ns = 0
    first_key = b""
    trace: TraceContext | None = None
    inflow: InFlow | None = None
    outflow: OutFlow | None = None
    task: asyncio.Task[None] | None = None
    kept: KeptResult | None = None
    # Why it was ended before its handler did; None while it runs.
    reason: Status | None = None

    def __init__(self, session: ServerSession, call_id: int, handler: ServedMethod) -> None:
        self.session = session
        self.call_id = call_id
        self.handler = handler

    @property
    def method(self) -> str:
        """Return the name of the method."""
        return self.handler.name

    @property
    def caller(self) -> Caller:
        """Return who calls."""
        return self.session.caller

    @property
    def key(self) -> bytes:
        """Return the 24 bytes that all attempts of this call have, and no other call has.

        They are empty if the client has not said who it is.
        """
        return self.first_key or self.session.key_of(self.call_id)

    @property
    def is_moot(self) -> bool:
        """Return whether its client wants nothing more of it."""
        return self.reason is not None

    @property
    def time_left(self) -> float | None:
        """Return the seconds until its deadline; None if it has none."""
        if not self.deadline_ns:
            return None
        return max(0.0, (self.deadline_ns - self.session.now_ns()) / NS_PER_SECOND)

    def note(self, flags: int, extensions: dict[int, bytes]) -> None:
        """Take what its client says of it beside the request."""
        self.is_repeated = bool(flags & REPEATED)
        key = extensions.get(Extension.KEY, b"")
        if len(key) == KEY_LENGTH:
            self.first_key = key
        parent = extensions.get(Extension.TRACEPARENT)
        if parent is not None:
            state = extensions.get(Extension.TRACESTATE, b"").decode("ascii", "replace")
            self.trace = TraceContext.of_bytes(parent, state)

    def leave(self) -> None:
        """Its client has gone: cancel its handler, unless another attempt may want its result.

        Its deadline still ends it.
        """
        if self.kept is None or self.kept.done is None:
            self.end(Status.CANCELLED)
        else:
            self.session.calls.pop(self.call_id, None)
            self.reason = Status.CANCELLED

    def end(self, reason: Status | None = None) -> None:
        """Forget it; with a reason, its handler is cancelled."""
        self.is_over = True
        self.session.calls.pop(self.call_id, None)
        if reason is not None:
            self.reason = reason
            error = CallFailedError(f"{self.method} was ended: {reason.name}", status=reason)
            for flow in (self.inflow, self.outflow):
                if flow is not None:
                    flow.close(error)
            if self.task is not None:
                self.task.cancel()


@final
class ServerSession(ShortSession):
    """A client that is connected.

    Args:
        image: Where its requests come from.
        outbox: Where its answers go.
        clock: Of the server.
        wiring: The channels of the service.

    Attributes:
        is_refused: Whether it was said that it cannot call this server.
    """

    calls: dict[int, ServerCall]
    outbox: Outbox

    def __init__(self, image: Image, outbox: Outbox, clock: Clock, wiring: Wiring) -> None:
        self.image = image
        self.outbox = outbox
        self.post = outbox.post
        self.calls = {}
        self.highest_id = 0
        self.instance = b""
        self.caller = Caller("", image.source_identity, image.session_id)
        self.is_ended = False
        self.is_refused = False
        self.publication: Any = None
        self.now_ns: Callable[[], int] = clock.now_ns
        self.is_shared = wiring.is_shared
        self.chunk = wiring.chunk

    def frame(
        self,
        template: int,
        call_id: int,
        body: bytes | bytearray = b"",
        *,
        amount: int = 0,
        number: int = 0,
        flags: int = 0,
        extensions: bytes = b"",
    ) -> bytes:
        """Return a message to this client."""
        if self.is_shared:
            key = self.instance.ljust(INSTANCE_LENGTH, b"\0") + call_id.to_bytes(CALL_KEY, "little")
            extensions += pack_extensions([(Extension.KEY, key)])
        return (
            head(
                template,
                call_id,
                amount=amount,
                number=number,
                flags=flags,
                extensions=extensions,
            )
            + body
        )

    def _checked(self, answer: object) -> bytes:
        return bytes(checked(answer, ANSWER))

    async def reply(self, call: ServerCall, answer: object, elapsed_ns: int) -> None:
        """Send the answer of a call, in pieces if it is long."""
        answer = checked(answer, ANSWER)
        if len(answer) > self.chunk:
            flow = call.outflow = call.outflow or OutFlow()
            chunk = self.chunk
            last = (len(answer) - 1) // chunk * chunk
            for at in range(0, last, chunk):
                await self.send_item(call, answer[at : at + chunk], flags=CONTINUED)
            # The last piece is the REPLY, whose amount is its place in the sequence then.
            elapsed_ns = await flow.reserve(len(answer) - last)
            answer = answer[last:]
        frame = self.frame(Template.REPLY, call.call_id, answer, amount=elapsed_ns, flags=LAST)
        await self.outbox.put(frame)

    async def send_item(
        self, call: ServerCall, payload: bytes | bytearray, *, flags: int = 0
    ) -> None:
        """Send an element, or a piece of one, when the client allows it."""
        flow = call.outflow = call.outflow or OutFlow()
        sequence = await flow.reserve(len(payload))
        await self.outbox.put(
            self.frame(Template.ITEM, call.call_id, payload, amount=sequence, flags=flags), call
        )

    async def send_element(self, call: ServerCall, element: object) -> None:
        """Send an element, in pieces if it is long."""
        element = checked(element, "an element")
        chunk = self.chunk
        for at in range(0, max(len(element), 1), chunk):
            flags = 0 if at + chunk >= len(element) else CONTINUED
            await self.send_item(call, element[at : at + chunk], flags=flags)

    async def send_end(self, call: ServerCall) -> None:
        """Tell the client that no more elements come; that ends the call."""
        sent = 0 if call.outflow is None else call.outflow.sent_items
        await self.outbox.put(self.frame(Template.END, call.call_id, amount=sent, flags=LAST))

    def refuse(
        self,
        call_id: int,
        status: Status,
        text: str,
        *,
        amount: int = 0,
        flags: int = 0,
        error_type: str = "",
        retry_after_ms: int | None = None,
    ) -> None:
        """Answer a call with an error."""
        given: list[tuple[int, bytes]] = []
        if error_type:
            given.append((Extension.ERROR_TYPE, text_of(error_type)))
        if retry_after_ms is not None:
            given.append((Extension.RETRY_AFTER, retry_after_ms.to_bytes(4, "little")))
        self.outbox.control(
            self.frame(
                Template.ERROR,
                call_id,
                text_of(text),
                amount=amount,
                number=status,
                flags=flags | LAST,
                extensions=pack_extensions(given) if given else b"",
            )
        )

    def on_call_message(
        self, call: ServerCall, template: int, amount: int, number: int, flags: int, body: bytes
    ) -> None:
        """Take what a client sends for a call that runs.

        Raises:
            ProtocolError: It is against the protocol.
        """
        if template == Template.ITEM:
            if call.inflow is None:
                message = "an element for a call whose request was whole"
                raise ProtocolError(message)
            call.inflow.on_item(amount, body, is_continued=bool(flags & CONTINUED))
            if flags & LAST:
                call.inflow.on_end()
        elif template == Template.END:
            if call.inflow is not None:
                call.inflow.on_end()
        elif template == Template.CREDIT:
            if call.outflow is None:
                call.outflow = OutFlow()
            call.outflow.on_credit(amount, number)
        elif template == Template.CANCEL:
            call.end(Status.CANCELLED)
        else:
            message = f"template {template} from a client"
            raise ProtocolError(message)

    def key_of(self, call_id: int) -> bytes:
        """Return what identifies the first attempt of a call of this client."""
        if len(self.instance) != INSTANCE_LENGTH:
            return b""
        return self.instance + call_id.to_bytes(CALL_KEY, "little")
