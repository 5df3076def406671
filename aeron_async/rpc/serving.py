"""A service that is open at one channel: it takes calls and runs their handlers.

A plain function runs where its request arrives and must not wait. An `async` one begins there, too,
and gets a task where it first waits. The reader of requests waits for no handler: what clients may
send is limited by credit.

Invariant: every call that began is answered, unless its client has cancelled it or has gone.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.errors import (
    AeronError,
    CallFailedError,
    ClosedError,
    ProtocolError,
    RegistrationError,
    Status,
)
from aeron_async.logs import get_logger
from aeron_async.protocol.units import INT64_MAX
from aeron_async.rpc.deadlines import Deadlines, check_seconds
from aeron_async.rpc.envelope import (
    HEAD,
    HEAD_LENGTH,
    IDEMPOTENT,
    INSTANCE_LENGTH,
    INTERRUPTED,
    LAST,
    NEVER_BEGUN,
    NUMBER_MAX,
    VERSION,
    Extension,
    Template,
    body_offset,
    check_payload,
    check_version,
    checked,
    extensions_of,
    pack_extensions,
)
from aeron_async.rpc.flows import InFlow, OutFlow, whole_of
from aeron_async.rpc.kept_results import KeptResults
from aeron_async.rpc.outbox import Outbox
from aeron_async.rpc.server_session import (
    ANSWER,
    Caller,
    Handler,
    ServedMethod,
    ServerCall,
    ServerSession,
)
from aeron_async.rpc.service_claim import claim_service
from aeron_async.rpc.serving_limits import ServerCounts
from aeron_async.rpc.short_ways import ShortServing
from aeron_async.stats import CallStats
from aeron_async.tasks import EagerStarter, TaskOwner
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from aeron_async.client.aeron import Aeron
    from aeron_async.client.image import Image
    from aeron_async.rpc.serving_limits import ServingLimits
    from aeron_async.rpc.wiring import Wiring

__all__ = ["Serving"]

log = get_logger("aeron_async.rpc")

UNPACK: Final = HEAD.unpack_from
CALL: Final = int(Template.CALL)
LAST_TEMPLATE: Final = int(max(Template))
DEADLINE_MOST_NS: Final = 24 * 3_600 * NS_PER_SECOND
"""A deadline further away is none."""
LEFT_MOST_NS: Final = 60 * NS_PER_SECOND
"""How long a call without a deadline goes on for other attempts when its client has gone."""
DRAINED_MS: Final = 100
HEEDS_S: Final = 0.1
"""How long a handler that is cancelled may take until its client is told; in seconds."""
GOES_ON_S: Final = 10.0
"""How often a server that closes says which handlers go on."""
NAMES_MOST: Final = 10
UNKNOWN_METHOD: Final = "(unknown)"
"""In statistics: calls of methods that the service has not."""
STREAMED: Final = object()
"""In the place of an answer: all of it was sent."""


@final
class Serving(ShortServing):
    """A service that is open at one channel.

    Attributes:
        service: Its name.
        on_lost: Called with the error when it can serve no more, because its Aeron was closed.
    """

    def __init__(
        self,
        service: str,
        handlers: Mapping[int, Handler],
        aeron: Aeron,
        wiring: Wiring,
        limits: ServingLimits,
    ) -> None:
        self.service = service
        self.on_lost: Callable[[ClosedError], object] = ignore
        self._lost: ClosedError | None = None
        self._is_over = asyncio.Event()
        self._methods = {number: ServedMethod(each) for number, each in handlers.items()}
        self._aeron = aeron
        self._wiring = wiring
        self._limits = limits
        self._calls_limit = limits.calls_limit
        self._calls_at_once = limits.calls_at_once
        self._instance = os.urandom(INSTANCE_LENGTH)
        self._sessions: dict[Image, ServerSession] = {}
        self._rejected: set[Image] = set()
        self._tasks = TaskOwner()
        self._calls = TaskOwner()
        # Answers to all clients at once have an extension each.
        self._simple = {
            number: each
            for number, each in self._methods.items()
            if each.is_simple and not wiring.is_shared
        }
        self._deadlines: Deadlines[ServerCall] = Deadlines(aeron.clock, self._on_deadline)
        self._now_ns = aeron.clock.now_ns
        self._subscription: Any = None
        self._shared: Any = None
        self._claim: Any = None
        self._starter: Any = None
        self._is_draining = False
        self._is_closed = False
        self._call_count = self._under_way = 0
        self._late = self._malformed = self._refused_clients = 0
        self._refused: Counter[str] = Counter()
        self._logged_ns = self._drained_ns = 0
        # Calls with these flags take the long way.
        self._kept_flags = IDEMPOTENT if limits.keep_results else 0
        self._longest = min(HEAD_LENGTH + limits.payload_max, INT64_MAX)
        self._kept = KeptResults(limits.keep_results, limits.keep_results_bytes)

    @property
    def counts(self) -> ServerCounts:
        """Return what was counted."""
        failed = self._refused.copy()
        for each in self._methods.values():
            failed.update(each.failed)
        return ServerCounts(
            calls=self._call_count,
            answered=sum(each.answered for each in self._methods.values()),
            failed=dict(failed),
            cancelled=sum(each.cancelled for each in self._methods.values()),
            under_way=self._under_way,
            clients=len(self._sessions),
            late=self._late,
            malformed=self._malformed,
            refused_clients=self._refused_clients,
            repeated=sum(each.repeated for each in self._methods.values()),
            results_kept=len(self._kept),
            results_dropped=self._kept.dropped,
        )

    def stats(self) -> list[CallStats]:
        """Return what was counted of each method, for `Stats.with_calls`.

        Calls of methods that there are not are those of `UNKNOWN_METHOD`.
        """
        found = [
            CallStats(
                self.service,
                each.name,
                {
                    "answered": each.answered - each.repeated_answers,
                    "repeated": each.repeated_answers,
                    "cancelled": each.cancelled,
                    **each.failed,
                },
                each.under_way,
                each.handler_ns,
            )
            for each in self._methods.values()
        ]
        if self._refused:
            found.append(CallStats(self.service, UNKNOWN_METHOD, dict(self._refused), 0, 0))
        return found

    @property
    def callers(self) -> list[Caller]:
        """Return the clients that are connected."""
        return [each.caller for each in self._sessions.values()]

    async def open(self) -> None:
        """Listen for clients.

        Raises:
            ConfigurationError: Another server of this driver has the channel and the stream.
        """
        wiring = self._wiring
        self._subscription = await self._aeron.add_subscription(
            wiring.requests, wiring.stream_id, on_unavailable_image=self._on_image_gone
        )
        # A server may have no client for as long as it likes.
        self._subscription.logs_waits = False
        self._claim = await claim_service(
            self._aeron,
            self.service,
            wiring,
            self._subscription.local_address,
            on_wait=lambda: self._subscription.on_message(ignore),
        )
        if wiring.is_shared:
            self._shared = await self._aeron.add_exclusive_publication(
                wiring.response_publication(-1), wiring.response_stream_id
            )
        self._starter = EagerStarter(self._calls, self._tasks)
        self._subscription.on_message(self._on_message)
        self._tasks.start(self._watch(), "end of a service")

    async def _watch(self) -> None:
        """Notice that the stream of requests has ended before this server closes it."""
        async for _ in self._subscription.image_events():
            pass
        try:
            self._subscription._check_open()
        except ClosedError as error:
            if not self._is_closed:
                self._lose(error)

    def _lose(self, error: ClosedError) -> None:
        service, name = printable(self.service, SHORT), self._wiring.name
        log.error("call_server_lost", service=service, server=name, reason=printable(error))
        self._lost = ClosedError(f"{service!r} is served no more at {name}: {error}")
        self._lost.__cause__ = error
        self._is_over.set()
        self.on_lost(self._lost)

    async def wait_closed(self) -> None:
        """Wait until it serves no more.

        Raises:
            ClosedError: Its Aeron was closed, or the driver has gone.
        """
        await self._is_over.wait()
        if self._lost is not None:
            raise self._lost

    # What clients send.

    def _on_any(self, session: ServerSession, data: bytes) -> None:
        block, template, schema, version, call_id, amount, number, flags, ext_length = UNPACK(data)
        try:
            at = body_offset(schema, block, ext_length, len(data))
            extensions = extensions_of(data, block, ext_length) if ext_length else {}
            if template == Template.HELLO and call_id == 0:
                # First: of answers to all clients, it says whose one is.
                session.instance = extensions.get(Extension.INSTANCE, b"")[:INSTANCE_LENGTH]
                self._on_hello(session, version, number, extensions)
                return
            if call_id or template != Template.ERROR:
                check_version(version)
            if call_id == 0:
                self._on_link_message(session, template, amount, data[at:])
            elif template == CALL:
                self._call_count += 1
                if call_id <= session.highest_id:
                    self._end_session(session, f"call {call_id} after {session.highest_id}")
                    return
                session.highest_id = call_id
                self._begin(session, call_id, amount, number, flags, data[at:], extensions)
            elif template > LAST_TEMPLATE:
                self._refuse(session, call_id, Status.UNIMPLEMENTED, f"no template {template}")
                if (call := session.calls.get(call_id)) is not None:
                    call.end(Status.UNIMPLEMENTED)
            elif (call := session.calls.get(call_id)) is not None:
                session.on_call_message(call, template, amount, number, flags, data[at:])
            else:
                self._late += 1
        except ProtocolError as error:
            self._on_malformed(session, call_id, str(error))

    def _begin_simple(
        self,
        session: ServerSession,
        method: ServedMethod,
        call_id: int,
        amount: int,
        body: bytes,
    ) -> None:
        call = ServerCall(session, call_id, method)
        self._start(call, self._run(call, body), amount)

    def _answer_later(
        self,
        session: ServerSession,
        method: ServedMethod,
        call_id: int,
        amount: int,
        answer: Any,
        elapsed_ns: int,
    ) -> None:
        call = ServerCall(session, call_id, method)
        self._start(call, self._send_answer(call, answer, elapsed_ns), amount)

    async def _send_answer(self, call: ServerCall, answer: bytes, elapsed_ns: int) -> None:
        try:
            await self._answer(call, answer, elapsed_ns)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it is answered
            self._on_raised(call, error)
        finally:
            self._on_left(call)

    def _begin(
        self,
        session: ServerSession,
        call_id: int,
        amount: int,
        number: int,
        flags: int,
        body: bytes,
        extensions: dict[int, bytes],
    ) -> None:
        method = self._methods.get(number)
        if method is None:
            text = f"{self.service!r} has no such method"
            self._refuse(session, call_id, Status.UNIMPLEMENTED, text)
            return
        if self._is_draining:
            self._refuse(
                session, call_id, Status.UNAVAILABLE, "draining", method=method, flags=NEVER_BEGUN
            )
            return
        if len(session.calls) >= self._calls_at_once or self._under_way >= self._calls_limit:
            self._refuse(
                session,
                call_id,
                Status.RESOURCE_EXHAUSTED,
                "too many calls run",
                method=method,
                flags=NEVER_BEGUN,
                retry_after_ms=DRAINED_MS,
            )
            return
        check_payload(body, self._limits.payload_max)
        call = ServerCall(session, call_id, method)
        call.note(flags, extensions)
        is_kept = flags & self._kept_flags and flags & LAST and method.gives_whole
        if is_kept and not call.key:
            self._refuse(
                session,
                call_id,
                Status.FAILED_PRECONDITION,
                "results are kept: first say HELLO with an instance",
                method=method,
                flags=NEVER_BEGUN,
            )
            return
        # A request that is not whole comes in elements, or in pieces for those who take one.
        if not flags & LAST:
            call.inflow = self._new_inflow(call)
        elif method.takes_stream:
            call.inflow = self._new_inflow(call)
            call.inflow.on_item(0, body, is_continued=False)
            call.inflow.on_end()
        if method.gives_stream:
            call.outflow = OutFlow()
        running = self._run(call, body)
        if is_kept:
            time_ns = amount if amount < DEADLINE_MOST_NS else 0
            running = self._run_once(call, running, time_ns)
        self._start(call, running, amount)

    async def _run_once(
        self, call: ServerCall, running: Coroutine[Any, Any, None], time_ns: int
    ) -> None:
        """Give a call the result of an earlier attempt, or wait for it; run the first one."""
        is_first = False
        try:
            while (result := self._kept.find(call.key, self._now_ns())) is not None:
                # If that was ended, one of those that wait runs.
                if await result.wait():
                    call.handler.repeated += 1
                    if await self._answer(call, result.answer(), 0):
                        call.handler.repeated_answers += 1
                    return
            is_first = True
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it is answered
            self._on_raised(call, error)
        finally:
            if not is_first:
                running.close()
                self._on_left(call)
        if is_first:
            call.kept = self._kept.begin(call.key, time_ns)
            await running

    def _new_inflow(self, call: ServerCall) -> InFlow:
        session = call.session

        def grant(items: int, kib: int) -> None:
            if not call.is_over:
                session.outbox.control(
                    session.frame(Template.CREDIT, call.call_id, amount=items, number=kib)
                )

        return InFlow(
            grant,
            window_items=self._limits.window_items,
            window_bytes=self._limits.window_bytes,
            payload_max=self._limits.payload_max,
        )

    def _start(self, call: ServerCall, running: Coroutine[Any, Any, None], amount: int) -> None:
        """Run what answers a call; a call that waits is kept until it ends."""
        self._under_way += 1
        call.handler.under_way += 1
        if 0 < amount < DEADLINE_MOST_NS:
            call.deadline_ns = self._now_ns() + amount
        task, _ = self._starter.start(running, call.method)
        if task is None:
            return
        session = call.session
        call.task = task
        session.calls[call.call_id] = call
        if call.deadline_ns:
            self._deadlines.add(call.deadline_ns, call)
        if session.is_ended:
            # Its handler has ended the session before it waited.
            self._leave(call)

    def _leave(self, call: ServerCall) -> None:
        """Let a call go whose client has gone."""
        call.leave()
        if not (call.is_over or call.deadline_ns):
            call.deadline_ns = self._now_ns() + LEFT_MOST_NS
            self._deadlines.add(call.deadline_ns, call)

    def _on_left(self, call: ServerCall) -> None:
        """What ran for a call has ended, whatever has happened to the call."""
        self._under_way -= 1
        call.handler.under_way -= 1
        if call.kept is not None:
            # If it has come to nothing.
            self._kept.forget(call.kept)
        if call.reason is Status.CANCELLED:
            call.handler.cancelled += 1
        call.end()
        # Its deadline is remembered for longer, and must not keep what it has received.
        call.inflow = call.outflow = call.task = None

    async def _run(self, call: ServerCall, body: bytes) -> None:
        try:
            method = call.handler
            began_ns = self._now_ns()
            if method.is_simple and call.inflow is None:
                answer = method.function(body)
                if not method.is_plain:
                    answer = await answer
            else:
                answer = await self._handle(call, method, body)
            if call.kept is not None:
                answer = bytes(checked(answer, ANSWER))
                self._kept.finish(call.kept, answer, self._now_ns())
            if call.is_over or call.reason is not None:
                # The handler went on although it was cancelled; nobody waits for its answer.
                return
            elapsed_ns = self._now_ns() - began_ns
            if answer is STREAMED or call.session.reply_now(call.call_id, answer, elapsed_ns):
                method.answered += 1
                method.handler_ns += elapsed_ns
            else:
                await self._answer(call, answer, elapsed_ns)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever a handler raises is answered
            self._on_raised(call, error)
        finally:
            self._on_left(call)

    def _on_raised(self, call: ServerCall, error: BaseException) -> None:
        task = call.task
        # Without that, the handler has raised it by itself: what it waited for was cancelled.
        is_asked = self._is_closed or (task is not None and task.cancelling() > 0)
        is_cut = is_asked and isinstance(error, asyncio.CancelledError)
        if call.kept is not None and not is_cut:
            self._kept.finish(call.kept, told_of(error), self._now_ns())
        if call.reason is not None:
            return
        if is_cut:
            # The server closes; the client learns that it may have run.
            self._refuse(
                call.session,
                call.call_id,
                Status.UNAVAILABLE,
                "the server closes",
                method=call.handler,
                flags=INTERRUPTED,
            )
        elif not call.is_over:
            self._fail(call.session, call.call_id, call.handler, error)

    async def _answer(self, call: ServerCall, answer: bytes, elapsed_ns: int) -> bool:
        """Send an answer; return False if the client was let go before the call waited."""
        await call.session.reply(call, answer, elapsed_ns)
        if call.session.is_ended and call.reason is None:
            call.reason = Status.CANCELLED
            return False
        call.handler.answered += 1
        call.handler.handler_ns += elapsed_ns
        return True

    async def _handle(self, call: ServerCall, method: ServedMethod, body: bytes) -> Any:
        session, inflow = call.session, call.inflow
        given: Any = body
        if inflow is not None:
            inflow.open()
            given = inflow if method.takes_stream else await whole_of(inflow, method.name)
        arguments = (given, call) if method.takes_call else (given,)
        if method.gives_stream:
            async with aclosing(method.function(*arguments)) as elements:
                async for element in elements:
                    await session.send_element(call, element)
            await session.send_end(call)
            return STREAMED
        answer = method.function(*arguments)
        return answer if method.is_plain else await answer

    def _on_deadline(self, call: ServerCall) -> None:
        self._refuse(
            call.session,
            call.call_id,
            Status.DEADLINE_EXCEEDED,
            "the deadline passed",
            method=call.handler,
        )
        call.end(Status.DEADLINE_EXCEEDED)

    def _fail(
        self, session: ServerSession, call_id: int, method: ServedMethod, error: BaseException
    ) -> None:
        if isinstance(error, CallFailedError):
            self._refuse(
                session,
                call_id,
                error.status,
                str(error),
                method=method,
                error_type=error.error_type,
                retry_after_ms=error.retry_after_ms,
            )
            return
        # Its text may be a secret of the server: it is in the log here, with the traceback.
        log.error("call_handler_failed", method=method.name, exc_info=error)
        told = told_of(error)
        self._refuse(
            session,
            call_id,
            told.status,
            str(told),
            method=method,
            error_type=told.error_type,
        )

    def _refuse(
        self,
        session: ServerSession,
        call_id: int,
        status: Status,
        text: str,
        *,
        method: ServedMethod | None = None,
        **more: Any,
    ) -> None:
        failed = self._refused if method is None else method.failed
        failed[status.name] += 1
        session.refuse(call_id, status, text, **more)

    def _on_malformed(self, session: ServerSession, call_id: int, reason: str) -> None:
        self._malformed += 1
        now_ns = self._now_ns()
        if now_ns - self._logged_ns >= NS_PER_SECOND or not self._logged_ns:
            self._logged_ns = now_ns
            log.warning(
                "call_message_malformed",
                client=session.caller.name,
                address=session.caller.address,
                reason=reason,
                count=self._malformed,
            )
        if call_id:
            session.refuse(call_id, Status.INVALID_ARGUMENT, reason)
            if (call := session.calls.get(call_id)) is not None:
                call.end(Status.INVALID_ARGUMENT)

    # Clients.

    def _on_link_message(
        self, session: ServerSession, template: int, amount: int, body: bytes
    ) -> None:
        if template == Template.PING:
            session.post(
                session.frame(Template.PONG, 0, amount=amount, extensions=self._instance_packed())
            )
        elif template == Template.ERROR:
            self._say_refused(session, printable(body.decode(errors="replace")))

    def _on_hello(
        self, session: ServerSession, version: int, highest: int, extensions: dict[int, bytes]
    ) -> None:
        service = extensions.get(Extension.SERVICE, b"").decode("utf-8", "replace")
        name = extensions.get(Extension.NAME, b"").decode("utf-8", "replace")
        session.caller = attrs.evolve(session.caller, name=printable(name, 80))
        # A HELLO is of the lowest version that its client speaks.
        if not version <= VERSION <= highest:
            spoken = f"{version} to {highest}" if version < highest else f"{highest}"
            reason = f"the client speaks version {spoken} of calls; this server {VERSION}"
            session.refuse(0, Status.UNIMPLEMENTED, reason, amount=VERSION)
            self._say_refused(session, reason)
            return
        if service not in {"", self.service}:
            reason = f"this is {self.service!r}, not {printable(service, 80)!r}"
            session.refuse(0, Status.NOT_FOUND, reason)
            self._say_refused(session, reason)
            return
        session.post(
            session.frame(
                Template.WELCOME,
                0,
                amount=self._limits.payload_max,
                number=self._calls_at_once,
                extensions=self._instance_packed(),
            )
        )
        if self._is_draining:
            self._send_away(session)

    def _say_refused(self, session: ServerSession, reason: str) -> None:
        """Say once why a client cannot call this server, or does not want to."""
        if not session.is_refused:
            session.is_refused = True
            log.warning(
                "call_client_refused",
                service=printable(self.service, SHORT),
                client=session.caller.name,
                address=session.caller.address,
                reason=reason,
            )

    def _instance_packed(self) -> bytes:
        return pack_extensions([(Extension.INSTANCE, self._instance)])

    def _new_session(self, image: Image) -> ServerSession | None:
        if image.is_closed or self._is_closed or image in self._rejected:
            return None
        if len(self._sessions) >= self._limits.clients_limit:
            self._refused_clients += 1
            self._rejected.add(image)
            self._tasks.start(
                reject(image, f"{self._limits.clients_limit} clients are served already"), "reject"
            )
            return None
        outbox = Outbox(
            self._tasks,
            lambda reason: self._end_session(session, reason),
            patience_s=self._limits.patience_s,
        )
        session = ServerSession(image, outbox, self._aeron.clock, self._wiring)
        self._sessions[image] = session
        if self._shared is not None:
            outbox.attach(self._shared)
        else:
            self._tasks.start(self._add_publication(session), "answers of calls")
        return session

    async def _add_publication(self, session: ServerSession) -> None:
        try:
            publication = await self._aeron.add_exclusive_publication(
                self._wiring.response_publication(session.image.correlation_id),
                self._wiring.response_stream_id,
            )
        except RegistrationError as error:
            # It wants no answers, or has gone in the meantime.
            reason = f"its URI must be that of the server, with its control-mode ({error})"
            self._end_session(session, reason)
            return
        except ClosedError as error:
            self._end_session(session, str(error))
            return
        if session.is_ended:
            publication.close()
            return
        session.publication = publication
        session.outbox.attach(publication)

    def _on_image_gone(self, image: Image) -> None:
        self._rejected.discard(image)
        session = self._sessions.pop(image, None)
        if session is not None:
            self._close_session(session)

    def _end_session(self, session: ServerSession, reason: str) -> None:
        """Let a client go that breaks the rules, or does not take its answers."""
        if self._sessions.pop(session.image, None) is None:
            return
        log.warning(
            "call_client_rejected",
            client=session.caller.name,
            address=session.caller.address,
            reason=reason,
        )
        self._refused_clients += 1
        self._close_session(session)
        if not session.image.is_closed:
            self._rejected.add(session.image)
            self._tasks.start(reject(session.image, reason), "reject")

    def _close_session(self, session: ServerSession) -> None:
        session.is_ended = True
        for call in tuple(session.calls.values()):
            self._leave(call)
        session.outbox.close()
        if session.publication is not None:
            session.publication.close()

    # The end.

    async def drain(self, grace: float) -> None:
        """Take no new calls, and wait until those that run have ended.

        A second call waits, too, for as long as it says itself.

        Args:
            grace: Seconds to wait.

        Raises:
            ConfigurationError: It is no number of seconds.
        """
        grace = check_seconds(grace, "grace")
        if self._is_closed:
            return
        self._begin_draining(grace)
        try:
            async with asyncio.timeout(grace):
                await self._calls.wait()
                for session in tuple(self._sessions.values()):
                    await session.outbox.drain()
        except TimeoutError:
            return

    def _begin_draining(self, grace: float) -> None:
        if self._is_draining:
            return
        self._is_draining = True
        self._drained_ns = self._now_ns() + int(grace * NS_PER_SECOND)
        if self._lost is None:
            # One whose publication was closed is ended by that.
            for session in tuple(self._sessions.values()):
                self._send_away(session)

    def _send_away(self, session: ServerSession) -> None:
        """Tell a client that no new calls are taken, and for how long this server stays."""
        milliseconds = max(0, self._drained_ns - self._now_ns()) // NS_PER_MS
        session.post(session.frame(Template.GOAWAY, 0, number=min(milliseconds, NUMBER_MAX)))

    async def aclose(self) -> None:
        """Cancel what runs, wait until it has ended, and close all streams.

        A handler that goes on although it was cancelled is waited for, for `cancel_grace`: nothing
        can end it, and it should not outlive what it uses. The client is told, and a warning says
        which one it is. One that goes on behind that is left alone.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._is_over.set()
        try:
            self._begin_draining(0)
            await self._end_calls()
        finally:
            self._deadlines.close()
            if self._subscription is not None:
                self._subscription.close()
            for session in tuple(self._sessions.values()):
                self._close_session(session)
            self._sessions.clear()
            self._tasks.cancel()
            for each in (self._shared, self._claim):
                if each is not None:
                    each.close()
        await self._tasks.aclose()

    async def _end_calls(self) -> None:
        began_ns = self._now_ns()
        self._calls.cancel()
        if await self._calls.has_ended(HEEDS_S):
            return
        for session in tuple(self._sessions.values()):
            for call in tuple(session.calls.values()):
                self._refuse(
                    session,
                    call.call_id,
                    Status.UNAVAILABLE,
                    "the server closes",
                    method=call.handler,
                    flags=INTERRUPTED,
                )
                # To cancel it again would cut short what it does at its end.
                call.task = None
                call.end(Status.UNAVAILABLE)
        grace_ns = int(self._limits.cancel_grace_s * NS_PER_SECOND)
        wait_s = 1.0
        while True:
            left_s = max(0, began_ns + grace_ns - self._now_ns()) / NS_PER_SECOND
            if left_s and await self._calls.has_ended(min(wait_s, left_s)):
                return
            wait_s = GOES_ON_S
            said: dict[str, Any] = {
                "service": printable(self.service, SHORT),
                "methods": [printable(each, SHORT) for each in self._calls.names[:NAMES_MOST]],
                "count": len(self._calls),
                "seconds": round((self._now_ns() - began_ns) / NS_PER_SECOND, 1),
            }
            if self._now_ns() - began_ns >= grace_ns:
                log.error("call_handlers_left", **said)
                return
            log.warning("call_handlers_go_on", **said)


def told_of(error: BaseException) -> CallFailedError:
    """Return what a client is told of what a handler has raised: the class, and not the text."""
    if isinstance(error, CallFailedError):
        return error
    kind = type(error).__name__
    return CallFailedError(f"the handler raised {kind}", status=Status.UNKNOWN, error_type=kind)


def ignore(_: object) -> None:
    """Take a message that came before this server served: its call may be over by then."""


async def reject(image: Image, reason: str) -> None:
    """Reject a client, which may have gone."""
    try:
        await image.reject(printable(reason, 200))
    except AeronError as error:
        del error
