"""A client's link to one server: its two streams, and the calls that are under way on it.

    DOWN -> CONNECTING (HELLO each 250 ms) -> UP (WELCOME) -> DRAINING (GOAWAY) -> LOST -> DOWN

A link is lost when its response stream ends or comes from another session, when WELCOME or PONG is
of another server instance, when three PINGs in a row are not answered, when the server refuses the
link, or when the publication is no longer connected. Its calls are settled then, both streams are
closed, and both are added again: a response stream of a server that is gone never comes back.

Invariant: `calls` has the calls that were given to the outbox and have not ended. Each leaves it
exactly once, by `pop` of its own id.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from aeron_async.client.why import why
from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.errors import (
    AeronError,
    CallFailedError,
    ClosedError,
    ProtocolError,
    Status,
)
from aeron_async.logs import get_logger
from aeron_async.protocol.arguments import check_number
from aeron_async.protocol.units import INT64_MAX
from aeron_async.rpc.envelope import (
    BLOCK_LENGTH,
    CONTINUED,
    HEAD,
    HEAD_LENGTH,
    IDEMPOTENT,
    INSTANCE_LENGTH,
    INTERRUPTED,
    LAST,
    NUMBER_MAX,
    SCHEMA_ID,
    VERSION,
    Extension,
    Template,
    body_offset,
    check_payload,
    check_version,
    extensions_of,
    failure_of,
    head,
    pack_extensions,
    text_of,
)
from aeron_async.rpc.outbox import Outbox
from aeron_async.rpc.short_ways import REPLY_KIND, TEMPLATE_AT, ShortCall, ShortLink
from aeron_async.tasks import TaskOwner
from aeron_async.text import SHORT, printable
from aeron_async.waits import WaitReason

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Mapping

    from aeron_async.client.aeron import Aeron
    from aeron_async.client.image import Image
    from aeron_async.clock import Clock
    from aeron_async.rpc.flows import InFlow, OutFlow
    from aeron_async.rpc.wiring import Wiring

__all__ = [
    "ENDED",
    "STREAMS",
    "ClientCall",
    "ClientLink",
    "LinkEvent",
    "LinkOwner",
    "LinkState",
    "wrong_kind",
]

log = get_logger("aeron_async.rpc")

HELLO_INTERVAL_NS: Final = 250 * NS_PER_MS
PINGS_UNANSWERED: Final = 3
BACK_OFF_LEAST_S: Final = 0.05
BACK_OFF_MOST_S: Final = 2.0
PATIENCE_S: Final = 5.0
"""How long one frame may wait for room before the link is lost, in seconds."""
DISCONNECTED_NS: Final = NS_PER_SECOND
"""How long a publication may be without a subscriber before the link is lost."""
STAYS_MOST_MS: Final = 60_000
"""How long a server that drains is believed to stay if no call runs, in milliseconds."""
CALLS_STAY_MOST_MS: Final = 3_600_000
"""The same while calls run."""
REFUSED_NS: Final = 5 * NS_PER_SECOND
"""How long a refusal holds that was not repeated: the server may have gone."""
HELD_NS: Final = 500 * NS_PER_MS
"""How long a client waits for a second server before it believes that there is only one again."""
LEAVES_NS: Final = NS_PER_SECOND
"""How much longer it may take; a link without calls under way is then made anew."""
UNPACK: Final = HEAD.unpack_from
PACK: Final = HEAD.pack
CALL: Final = int(Template.CALL)
STREAMS: Final = "the server streams its answer: use client.stream, and async for"
ANSWERS_ONCE: Final = "the server answers once: use client.call, or await reply() of the stream"


@final
class LinkState(Enum):
    """What a link is doing."""

    DOWN = "down"
    CONNECTING = "connecting"
    UP = "up"
    DRAINING = "draining"
    LOST = "lost"
    CLOSED = "closed"


@final
class LinkEvent(Enum):
    """What changes the state of a link."""

    OPENED = "opened"
    WELCOMED = "welcomed"
    SENT_AWAY = "sent away"
    BROKE = "broke"
    SETTLED = "settled"
    CLOSED = "closed"


TRANSITIONS: Final[Mapping[tuple[LinkState, LinkEvent], LinkState]] = {
    (LinkState.DOWN, LinkEvent.OPENED): LinkState.CONNECTING,
    (LinkState.CONNECTING, LinkEvent.WELCOMED): LinkState.UP,
    (LinkState.UP, LinkEvent.SENT_AWAY): LinkState.DRAINING,
    (LinkState.CONNECTING, LinkEvent.BROKE): LinkState.LOST,
    (LinkState.UP, LinkEvent.BROKE): LinkState.LOST,
    (LinkState.DRAINING, LinkEvent.BROKE): LinkState.LOST,
    (LinkState.LOST, LinkEvent.SETTLED): LinkState.DOWN,
    **{
        (state, LinkEvent.CLOSED): LinkState.CLOSED
        for state in LinkState
        if state is not LinkState.CLOSED
    },
}


@final
class ClientCall(ShortCall):
    """One call, from its beginning to its end.

    Attributes:
        method: Name of the method, for errors.
        number: Id of the method.
        request: The payload of the first message.
        flags: Of the CALL.
        deadline_ns: When it ends at the latest; 0 for never.
        extensions: Packed, of the CALL.
        answer: Gets the payload of the answer, or the error.
        call_id: Within its link; 0 before it is sent.
        link: Where it was sent; None while it waits.
        key: What several servers are chosen by.
        is_waiting: Whether the client looks whether there is a server in time.
        first_key: The instance of the client and the id of the first attempt, if there were more.
        wants_one: Whether its caller waits for one answer; else for elements.
        has_streamed: Whether an element has come, or the end of a stream of elements.
        outflow: What it may still send, if it streams or its request comes in pieces.
        inflow: What it has received, if the server streams.
        sent: Set when a stream was given to the outbox; None if nobody waits for that.
    """

    # Defaults: most calls have no more than what their constructor stores.
    extensions = first_key = b""
    is_waiting = has_streamed = False
    wants_one = True
    key: bytes | None = None
    sent: asyncio.Future[None] | None = None
    # The constructor stores None.
    link: ClientLink | None
    outflow: OutFlow | None
    inflow: InFlow | None
    parts: InFlow | None

    @property
    def is_stream(self) -> bool:
        """Return whether elements or pieces go either way."""
        return self.outflow is not None or self.inflow is not None

    @property
    def is_moot(self) -> bool:
        """Return whether nothing more of it need be sent."""
        return self.answer.done()

    @property
    def is_idempotent(self) -> bool:
        """Return whether it may run more than once."""
        return bool(self.flags & IDEMPOTENT)

    def fail(self, error: Exception) -> None:
        """End with an error."""
        if self.answer.done():
            return
        self.answer.set_exception(error)
        for flow in (self.outflow, self.inflow):
            if flow is not None:
                flow.close(error)
        if self.is_stream:
            # A stream may have nobody who waits for the answer itself.
            self.answer.exception()
        if self.sent is not None and not self.sent.done():
            self.sent.set_result(None)


@final
class EndedAnswer:
    """In the place of an answer that was looked at; it has no payload."""

    __slots__ = ()

    def done(self) -> bool:
        """Return True: the call is over."""
        return True


ENDED: Final = EndedAnswer()


class LinkOwner(Protocol):
    """The part of a client that its links need.

    Attributes:
        clock: The time of deadlines and intervals.
        ping_interval_ns: Silence of the server after which it is asked.
        name: What servers call the client.
        payload_max: Most bytes of an answer, or of an element.
        service: Name of the service.
    """

    clock: Clock
    name: str
    payload_max: int
    ping_interval_ns: int
    service: str

    def random(self) -> float:
        """Return a number from 0 to 1."""
        ...

    def instance(self) -> bytes:
        """Return 16 random bytes."""
        ...

    def new_inflow(self, call: ClientCall) -> InFlow:
        """Return what a call receives elements, or pieces, into."""
        ...

    def on_link_up(self, link: ClientLink) -> None:
        """Send what waits."""

    def on_room(self, link: ClientLink) -> None:
        """Send what waits: a call has ended, or the server allows more."""

    def on_link_lost(self, link: ClientLink, reason: str) -> None:
        """Settle what was queued."""

    def on_call_lost(self, call: ClientCall, reason: str, *, was_sent: bool) -> None:
        """Send it again, or let it fail."""

    def on_expired(self, call: ClientCall) -> None:
        """Let a call fail whose deadline has passed at the server."""

    def on_refused(self, call: ClientCall, error: CallFailedError) -> bool:
        """Return whether a call that never began was sent again."""
        ...


@final
class ClientLink(ShortLink):
    """A link; see above.

    Args:
        owner: The client.
        aeron: Whose streams it uses.
        wiring: The channels.
        queue: The calls that wait for any link of the client.
        calls_at_once: Most calls under way that the client wants.

    Attributes:
        name: Name of the server for errors: its channel.
        stream_id: Stream id of the requests.
        calls: The calls that were sent, by their id.
        count: Messages that were no envelope, or of no call, by reason.
    """

    _image: Image | None
    _outbox: Outbox
    _owner: LinkOwner

    def __init__(
        self,
        owner: LinkOwner,
        aeron: Aeron,
        wiring: Wiring,
        queue: deque[ClientCall],
        *,
        calls_at_once: int,
    ) -> None:
        self.name = wiring.name
        self.stream_id = wiring.stream_id
        self.state = LinkState.DOWN
        self._is_up = False
        self.calls: dict[int, ClientCall] = {}
        self.calls_limit = 0
        self.queue = queue
        self.late_count = 0
        self.malformed_count = 0
        self.lost_count = 0
        self.unconnected_since_ns = 0
        self._refusal = self._logged_refusal = ""
        self._refused_ns = 0
        self._is_crowded = False
        self._held_until_ns = 0
        self._owner = owner
        self._aeron = aeron
        self._wiring = wiring
        self._calls_at_once = check_number(
            calls_at_once, "calls_at_once", minimum=1, maximum=NUMBER_MAX
        )
        self._tasks = TaskOwner()
        self._wake_event = asyncio.Event()
        self._next_id = 1
        self._instance = b""
        self._server_instance = b""
        self._image = None
        # When the last message came, and when it had come at the last look.
        self._heard_ns = self._heard_before_ns = 0
        self._now_ns = owner.clock.now_ns
        self._ping_count = 0
        self._next_ns = 0
        self._disconnected_ns = self._gone_ns = self._cut_ns = 0
        self._lost_reason = ""
        self._publication: Any = None
        self._subscription: Any = None
        self._outbox = self._new_outbox()
        self._post = self._outbox.post
        self._longest = min(HEAD_LENGTH + owner.payload_max, INT64_MAX)
        # Of answers that all clients receive, an extension says whose they are.
        self._reply_kind = -1 if wiring.is_shared else REPLY_KIND

    def start(self) -> None:
        """Connect, and connect again whenever the link is lost."""
        self.unconnected_since_ns = self._owner.clock.now_ns()
        self._tasks.start(self._run(), f"link of calls to {self.name}")

    @property
    def room(self) -> int:
        """Return how many calls can be sent now."""
        return self.calls_limit - len(self.calls) if self.state is LinkState.UP else 0

    @property
    def refusal(self) -> str:
        """Return why the server that was found cannot be used; empty if none was found lately."""
        is_old = self._owner.clock.now_ns() - self._refused_ns >= REFUSED_NS
        return "" if is_old else self._refusal

    @property
    def trouble(self) -> str:
        """Return why there is no server, as far as that can be seen; empty for no reason."""
        publication = self._publication
        if self.state is LinkState.DRAINING:
            return "the server there ends, and takes no new calls"
        if self.refusal or self.state is not LinkState.CONNECTING or publication is None:
            return self.refusal
        if self._held_until_ns:
            return "a server was found, and whether it is the only one is not known yet"
        if publication.is_connected:
            return (
                "requests arrive there, and no answer comes: give both ends the same URI, with "
                "its control and control-mode, and let datagrams through on their way back"
            )
        seen = why(publication)
        return seen.sight if seen.reason is WaitReason.REJECTED else ""

    # Calls.

    def send(self, call: ClientCall) -> bool:
        """Give a call to the outbox, if there is a place; there must be `room`."""
        call_id = self._next_id
        left_ns = 0
        if call.deadline_ns:
            left_ns = max(1, call.deadline_ns - self._owner.clock.now_ns())
        extensions = call.extensions
        if call.first_key:
            extensions += pack_extensions([(Extension.KEY, call.first_key)])
        frame = PACK(
            BLOCK_LENGTH, CALL, SCHEMA_ID, VERSION, call_id, left_ns, call.number, call.flags,
            len(extensions),
        )  # fmt: skip
        frame += extensions + call.request if extensions else call.request
        if not self._post(frame, call):
            return False
        self._next_id = call_id + 1
        call.call_id = call_id
        call.link = self
        # What has come of the answer to an earlier attempt.
        call.parts = None
        call.attempts += 1
        self.calls[call_id] = call
        if call.sent is not None and not call.sent.done():
            call.sent.set_result(None)
        return True

    def key_of(self, call: ClientCall) -> bytes:
        """Return what identifies the first attempt of a call at this link."""
        return self._instance + call.call_id.to_bytes(8, "little")

    def abandon(self, call: ClientCall) -> None:
        """Forget a call that was sent, and tell the server so."""
        # The id may be that of another call on a later connection.
        if self.calls.get(call.call_id) is call:
            del self.calls[call.call_id]
            self._outbox.control(head(Template.CANCEL, call.call_id))
            self._owner.on_room(self)

    async def send_item(
        self, call: ClientCall, payload: bytes, *, flags: int, outflow: OutFlow
    ) -> None:
        """Send an element, or a piece, when the server allows it."""
        sequence = await outflow.reserve(len(payload))
        frame = head(Template.ITEM, call.call_id, amount=sequence, flags=flags) + payload
        await self._outbox.put(frame, call)

    async def send_end(self, call: ClientCall, outflow: OutFlow) -> None:
        """Tell the server that no more elements come."""
        frame = head(Template.END, call.call_id, amount=outflow.sent_items, flags=LAST)
        await self._outbox.put(frame, call)

    def grant(self, call: ClientCall, items: int, kib: int) -> None:
        """Allow the server to send more."""
        if call.call_id and not call.is_over:
            self._outbox.control(head(Template.CREDIT, call.call_id, amount=items, number=kib))

    # What the server sends.

    def _on_long_message(self, data: bytes, call_id: int) -> None:
        try:
            self._on_any(data, call_id)
        except ProtocolError as error:
            self.malformed_count += 1
            call = self.calls.get(call_id)
            if call is not None:
                self.abandon(call)
                call.fail(CallFailedError(f"{call.method}: {error}", status=Status.INTERNAL))

    def _on_other_image(self, image: Image, template: int) -> None:
        is_up = self.state in {LinkState.UP, LinkState.DRAINING}
        if self._image is None or (template == Template.WELCOME and not is_up):
            self._image = image
        elif is_up and image.session_id != self._image.session_id:
            # The one that was there may be dead. The next link waits for both before it calls.
            self._is_crowded = True
            self._break("another server answers: this one was restarted, or there are two")

    def _on_any(self, data: bytes, call_id: int) -> None:
        block, template, schema, version, _, amount, number, flags, ext_length = UNPACK(data)
        at = body_offset(schema, block, ext_length, len(data))
        extensions = extensions_of(data, block, ext_length) if ext_length else {}
        key = extensions.get(Extension.KEY, b"")
        if self._wiring.is_shared and key[:INSTANCE_LENGTH] != self._instance:
            return
        if call_id or template not in {Template.WELCOME, Template.ERROR}:
            check_version(version)
        if call_id == 0:
            self._on_link_message(template, version, amount, number, data[at:], extensions)
            return
        call = self.calls.get(call_id)
        if call is None:
            self.late_count += 1
            return
        self._on_call_message(call, template, amount, number, flags, data[at:], extensions)

    def _on_link_message(
        self,
        template: int,
        version: int,
        amount: int,
        number: int,
        body: bytes,
        extensions: dict[int, bytes],
    ) -> None:
        instance = extensions.get(Extension.INSTANCE, b"")
        if template == Template.WELCOME:
            self._on_welcome(version, number, instance)
        elif template == Template.PONG:
            self._ping_count = 0
            if instance != self._server_instance and self.state is not LinkState.CONNECTING:
                self._break("the server has restarted")
        elif template == Template.CREDIT:
            self.calls_limit = min(max(amount, 1), self._calls_at_once)
            self._owner.on_room(self)
        elif template == Template.GOAWAY:
            if self.state is LinkState.UP:
                self._on(LinkEvent.SENT_AWAY)
                left_ns = self._owner.clock.now_ns() + LEAVES_NS
                self._gone_ns = left_ns + min(number, STAYS_MOST_MS) * NS_PER_MS
                left_ns += int(PATIENCE_S * NS_PER_SECOND)
                self._cut_ns = left_ns + min(number, CALLS_STAY_MOST_MS) * NS_PER_MS
                self._owner.on_link_lost(self, "the server drains")
        elif template == Template.ERROR:
            self._refuse(printable(body.decode(errors="replace")))
        self._wake_event.set()

    def _on_welcome(self, version: int, calls_at_once: int, instance: bytes) -> None:
        if version != VERSION:
            reason = f"the server speaks version {version} of calls; this client {VERSION}"
            self._outbox.control(
                head(Template.ERROR, 0, number=Status.UNIMPLEMENTED, amount=VERSION)
                + text_of(reason)
            )
            self._refuse(reason)
        elif self._server_instance not in {b"", instance}:
            self._refuse_two()
        elif self.state is LinkState.CONNECTING:
            self._server_instance = instance
            self.calls_limit = min(max(calls_at_once, 1), self._calls_at_once)
            if not self._is_crowded:
                self._on_up()
            elif not self._held_until_ns:
                self._held_until_ns = self._owner.clock.now_ns() + HELD_NS

    def _on_up(self) -> None:
        self._ping_count = 0
        self._is_crowded = False
        self._refusal = self._logged_refusal = ""
        self._on(LinkEvent.WELCOMED)
        self.unconnected_since_ns = 0
        self._owner.on_link_up(self)

    def _refuse_two(self) -> None:
        """Let a link go on which two servers answer: calls may run in both."""
        self._is_crowded = True
        self._refuse("two servers answer at one channel and stream; close one of them")

    def _refuse(self, reason: str) -> None:
        self._refusal = reason
        self._refused_ns = self._owner.clock.now_ns()
        self._break(reason)

    def _on_call_message(
        self,
        call: ClientCall,
        template: int,
        amount: int,
        number: int,
        flags: int,
        body: bytes,
        extensions: dict[int, bytes],
    ) -> None:
        if template == Template.REPLY:
            self._on_reply(call, amount, body)
        elif template == Template.ITEM:
            self._on_item(call, amount, body, is_continued=bool(flags & CONTINUED))
        elif template == Template.END:
            self._on_end(call)
        elif template == Template.CREDIT and call.outflow is not None:
            call.outflow.on_credit(amount, number)
        elif template == Template.ERROR:
            self._finish(call)
            if flags & INTERRUPTED:
                self._owner.on_call_lost(call, "the server closed while it ran", was_sent=True)
                return
            self._on_error(call, failure_of(call.method, number, flags, body, extensions))
        elif template != Template.CREDIT:
            message = f"template {template} for a call"
            raise ProtocolError(message)

    def _on_reply(self, call: ClientCall, amount: int, body: bytes) -> None:
        flow = call.parts or call.inflow
        if flow is not None and flow.has_parts:
            flow.on_item(amount, body, is_continued=False)
            body = flow.take_now()
        check_payload(body, self._owner.payload_max)
        self._finish(call)
        if not call.answer.done():
            call.answer.set_result(body)
        if call.inflow is not None:
            # For those who wait for elements.
            call.inflow.close(wrong_kind(call.method, ANSWERS_ONCE))
        self._end_flows(call)

    def _on_item(self, call: ClientCall, amount: int, body: bytes, *, is_continued: bool) -> None:
        flow = call.inflow or self._parts_of(call)
        flow.on_item(amount, body, is_continued=is_continued)
        if not is_continued:
            call.has_streamed = True
            if call.wants_one:
                self.abandon(call)
                call.fail(wrong_kind(call.method, STREAMS))

    def _on_end(self, call: ClientCall) -> None:
        self._finish(call)
        call.has_streamed = True
        if call.wants_one:
            call.fail(wrong_kind(call.method, STREAMS))
        elif not call.answer.done():
            call.answer.set_result(b"")
        self._end_flows(call)

    def _on_error(self, call: ClientCall, error: CallFailedError) -> None:
        if error.is_never_begun and self._owner.on_refused(call, error):
            return
        if error.status is Status.DEADLINE_EXCEEDED:
            self._owner.on_expired(call)
        else:
            call.fail(error)

    def _parts_of(self, call: ClientCall) -> InFlow:
        if call.parts is None:
            call.parts = self._owner.new_inflow(call)
            call.parts.open()
        return call.parts

    def _finish(self, call: ClientCall) -> None:
        self.calls.pop(call.call_id, None)
        if self.queue:
            self._owner.on_room(self)

    def _end_flows(self, call: ClientCall) -> None:
        if call.inflow is not None:
            call.inflow.on_end()
        if call.outflow is not None:
            call.outflow.close(
                CallFailedError(f"{call.method} has ended", status=Status.FAILED_PRECONDITION)
            )

    # The life of the link.

    def _on(self, event: LinkEvent) -> None:
        self.state = TRANSITIONS[self.state, event]
        self._is_up = self.state is LinkState.UP

    def _break(self, reason: str) -> None:
        if (self.state, LinkEvent.BROKE) in TRANSITIONS:
            self._lost_reason = reason
            self._on(LinkEvent.BROKE)
            self._wake_event.set()

    async def _run(self) -> None:
        back_off_s = BACK_OFF_LEAST_S
        while True:
            was_up = False
            try:
                await self._open()
                while self.state is not LinkState.LOST:
                    was_up = was_up or self.state is LinkState.UP
                    if self.state is LinkState.CONNECTING and not self._publication.is_connected:
                        await self._publication.wait_connected()
                    await self._sleep_until(self._poll(self._owner.clock.now_ns()))
            except (AeronError, OSError) as error:
                self._lost_reason = f"{type(error).__name__}: {error}"
                if isinstance(error, ClosedError) and self._aeron.is_closed:
                    # That will not change.
                    self._refusal = f"its Aeron is closed ({printable(error)})"
                    self._refused_ns = INT64_MAX
                    self._settle()
                    return
                if self.state is LinkState.DOWN:
                    self._on(LinkEvent.OPENED)
                self._break(self._lost_reason)
            if was_up and not self._refusal:
                back_off_s = BACK_OFF_LEAST_S
            self._shut()
            await asyncio.sleep(back_off_s * (0.5 + self._owner.random() / 2))
            back_off_s = min(2 * back_off_s, BACK_OFF_MOST_S)

    async def _open(self) -> None:
        wiring = self._wiring
        self._instance = self._owner.instance()
        self._image = None
        self._server_instance = b""
        self._held_until_ns = 0
        self._outbox = self._new_outbox()
        self._post = self._outbox.post
        self._subscription = await self._aeron.add_subscription(
            wiring.responses(),
            wiring.response_stream_id,
            on_unavailable_image=self._on_image_gone,
        )
        self._publication = await self._aeron.add_exclusive_publication(
            wiring.request_publication(self._subscription.registration_id), wiring.stream_id
        )
        self._outbox.attach(self._publication)
        self._on(LinkEvent.OPENED)
        now_ns = self._owner.clock.now_ns()
        self._heard_ns = self._next_ns = now_ns
        self._disconnected_ns = 0
        self._ping_count = self._gone_ns = 0
        # Without a server, the publication's wait says so; unless a line said that it was lost.
        self._subscription.logs_waits = False
        self._publication.logs_waits = not self.lost_count
        self._subscription.on_message(self._on_message)

    def _new_outbox(self) -> Outbox:
        return Outbox(
            self._tasks,
            lambda reason: self._break(f"cannot send: {reason}"),
            lambda: self._owner.on_room(self),
            patience_s=PATIENCE_S,
        )

    def _on_image_gone(self, image: Image) -> None:
        if image is self._image:
            self._break("the server has gone")

    def _poll(self, now_ns: int) -> int:
        """Send what is due, and return when something is due next."""
        if self._subscription.is_closed or self._publication.is_closed:
            self._break("the driver has closed the streams")
            return now_ns
        is_connected = self._publication.is_connected
        if self.state is LinkState.CONNECTING:
            return self._poll_connecting(now_ns, is_connected=is_connected)
        if not is_connected:
            self._disconnected_ns = self._disconnected_ns or now_ns
            if now_ns - self._disconnected_ns >= DISCONNECTED_NS:
                self._break("the server is no longer connected")
                return now_ns
        else:
            self._disconnected_ns = 0
        if self._is_overstayed(now_ns):
            self._break("the server has said that it closes, and has not")
            return now_ns
        if self._heard_ns != self._heard_before_ns:
            self._heard_before_ns = self._heard_ns
            self._ping_count = 0
        interval_ns = self._owner.ping_interval_ns
        # Those that follow the first one come sooner: a killed server is lost in three intervals.
        again_ns = interval_ns * 2 // PINGS_UNANSWERED
        due_ns = self._heard_ns + interval_ns + self._ping_count * again_ns
        if now_ns >= due_ns:
            if self._ping_count >= PINGS_UNANSWERED:
                self._break(f"{PINGS_UNANSWERED} pings were not answered")
                return now_ns
            self._ping_count += 1
            self._post(head(Template.PING, 0, amount=self._ping_count))
            due_ns = now_ns + again_ns
        return due_ns

    def _poll_connecting(self, now_ns: int, *, is_connected: bool) -> int:
        if now_ns >= self._next_ns and is_connected:
            self._post(self._hello())
            self._next_ns = now_ns + HELLO_INTERVAL_NS
        if self._held_until_ns and now_ns >= self._held_until_ns:
            self._on_up()
        return min(self._next_ns, self._held_until_ns or self._next_ns)

    def _is_overstayed(self, now_ns: int) -> bool:
        """Return whether a server that drains should have closed: a GOAWAY may be forged."""
        # Calls that run are answered as late as the server has said.
        gone_ns = self._cut_ns if self.calls else self._gone_ns
        return self.state is LinkState.DRAINING and now_ns >= gone_ns

    def _hello(self) -> bytes:
        extensions = pack_extensions(
            [
                (Extension.SERVICE, text_of(self._owner.service)),
                (Extension.INSTANCE, self._instance),
                (Extension.NAME, text_of(self._owner.name)),
            ]
        )
        return head(Template.HELLO, 0, number=VERSION, extensions=extensions)

    async def _sleep_until(self, deadline_ns: int) -> None:
        delay_s = (deadline_ns - self._owner.clock.now_ns()) / NS_PER_SECOND
        try:
            async with asyncio.timeout(max(delay_s, 0.001)):
                await self._wake_event.wait()
        except TimeoutError:
            return
        self._wake_event.clear()

    def _shut(self) -> None:
        self._settle()
        subscription, self._subscription = self._subscription, None
        publication, self._publication = self._publication, None
        for each in (publication, subscription):
            if each is not None:
                each.close()
        if self.state is LinkState.LOST:
            self._on(LinkEvent.SETTLED)

    def _settle(self) -> None:
        reason = self._lost_reason or "the link has ended"
        self.lost_count += 1
        if not self.unconnected_since_ns:
            self.unconnected_since_ns = self._owner.clock.now_ns()
            said: dict[str, Any] = {
                "service": printable(self._owner.service, SHORT),
                "server": self.name,
                "reason": reason,
                "calls": len(self.calls),
            }
            if self._gone_ns or self.state is LinkState.CLOSED:
                log.info("call_link_lost", **said)
            else:
                log.warning("call_link_lost", **said)
        if self._refusal not in {"", self._logged_refusal}:
            self._logged_refusal = self._refusal
            log.warning(
                "call_link_refused",
                service=printable(self._owner.service, SHORT),
                server=self.name,
                reason=self._refusal,
            )
        unsent = {id(call) for frame, call in self._outbox.close() if frame[TEMPLATE_AT] == CALL}
        calls, self.calls = self.calls, {}
        for call in calls.values():
            self._owner.on_call_lost(call, reason, was_sent=id(call) not in unsent)
        self._owner.on_link_lost(self, reason)

    def close(self) -> None:
        """Close both streams; calls fail."""
        if self.state is LinkState.CLOSED:
            return
        self._lost_reason = "the client was closed"
        # The end of the stream takes a second to be seen.
        for call_id in self.calls:
            self._post(head(Template.CANCEL, call_id))
        self._on(LinkEvent.CLOSED)
        self._tasks.cancel()
        self._shut()

    async def wait_closed(self) -> None:
        """Wait until its tasks have ended."""
        await self._tasks.aclose()


def wrong_kind(method: str, what: str) -> CallFailedError:
    """Return the error of a call that its method does not answer as its caller expects."""
    return CallFailedError(f"{method}: {what}", status=Status.UNIMPLEMENTED)
