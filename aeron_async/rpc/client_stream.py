"""A call that streams, as its caller holds it.

Invariant: leaving the block ends the call: the server is told CANCEL unless it has ended.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self, final

from aeron_async.errors import CallFailedError, ClosedError, Status
from aeron_async.rpc.client_link import ENDED, STREAMS, wrong_kind
from aeron_async.rpc.envelope import CONTINUED, LAST, checked

if TYPE_CHECKING:
    from types import TracebackType

    from aeron_async.rpc.client_link import ClientCall, ClientLink
    from aeron_async.rpc.flows import InFlow, OutFlow

__all__ = ["ClientStream"]


@final
class ClientStream:
    """What `Client.stream` returns.

    `async for element in stream` yields what the server sends; `send` and `end` are for methods
    that take elements, `reply` for those that answer once.
    """

    __slots__ = ("_answer", "_call", "_client", "_inflow", "_is_sending_over", "_key", "_link")

    def __init__(self, client: Any, call: ClientCall, key: str | bytes | None) -> None:
        self._client = client
        self._call = call
        self._key = key
        self._link: ClientLink | None = None
        self._inflow: InFlow | None = None
        self._is_sending_over = call.outflow is None
        # Once it was left: the call itself keeps no payload.
        self._answer: asyncio.Future[bytes] | None = None

    async def send(self, element: bytes) -> None:
        """Send one element, when the server has room for it.

        Raises:
            RpcError: The call has ended.
            ClosedError: `end` was called, or the request was given whole.
        """
        self._check_sending()
        await self._send_pieces(bytes(checked(element, "an element")), last_flags=0)

    async def end(self) -> None:
        """Tell the server that no more elements come."""
        if self._is_sending_over:
            return
        self._is_sending_over = True
        link, flow = self._at(), self._call.outflow
        assert flow is not None
        if not self._call.is_over:
            await link.send_end(self._call, flow)

    async def reply(self) -> bytes:
        """End sending, and return the answer.

        Raises:
            RpcError: The call failed, or the method streams its answer.
        """
        if self._call.has_streamed:
            raise wrong_kind(self._call.method, STREAMS)
        self._call.wants_one = True
        await self.end()
        answer = self._answer or self._call.answer
        if not answer.done():
            await asyncio.wait((answer,))
        if answer.cancelled():
            # The call was, and not the task that asks.
            message = f"{self._call.method} was left"
            raise CallFailedError(message, status=Status.CANCELLED)
        return answer.result()

    async def send_large(self, request: bytes) -> None:
        """Send a request in pieces; the server takes it as one."""
        self._check_sending()
        self._is_sending_over = True
        await self._send_pieces(request, last_flags=LAST)

    async def _send_pieces(self, data: bytes, *, last_flags: int) -> None:
        link, flow = self._at(), self._call.outflow
        assert flow is not None
        chunk = self._client.chunk
        before = flow.sent_items
        try:
            await self._send_each(link, flow, data, chunk, last_flags)
        except BaseException:
            if flow.sent_items != before:
                # The server has a part of it, or lacks a number of the sequence.
                self._client.abandon(self._call)
                flow.close(
                    CallFailedError(
                        f"{self._call.method}: a send was cut short", status=Status.CANCELLED
                    )
                )
            raise

    async def _send_each(
        self, link: ClientLink, flow: OutFlow, data: bytes, chunk: int, last_flags: int
    ) -> None:
        for at in range(0, max(len(data), 1), chunk):
            is_last = at + chunk >= len(data)
            flags = last_flags if is_last else CONTINUED
            await link.send_item(self._call, data[at : at + chunk], flags=flags, outflow=flow)

    def _check_sending(self) -> None:
        if self._is_sending_over:
            message = f"{self._call.method}: nothing can be sent after the end of a request"
            raise ClosedError(message)

    def _at(self) -> ClientLink:
        if self._link is None:
            message = f"{self._call.method}: use async with client.stream(...)"
            raise ClosedError(message)
        return self._link

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Return the next element.

        Raises:
            RpcError: The call failed.
        """
        if self._inflow is None:
            self._at()
            message = f"{self._call.method}: use async with client.stream(...)"
            raise ClosedError(message)
        return await anext(self._inflow)

    async def __aenter__(self) -> Self:
        call = self._call
        if self._link is not None or call.sent is not None:
            message = f"{call.method}: a stream is entered once"
            raise ClosedError(message)
        call.sent = asyncio.get_running_loop().create_future()
        if not call.flags & CONTINUED:
            # Before it is sent: elements may come before this task runs again.
            self._inflow = call.inflow = self._client.new_inflow(call)
            call.wants_one = False
        try:
            self._client.begin(call, self._key)
            await call.sent
            if call.answer.done():
                # It was refused at once, or has failed before it was sent.
                call.answer.result()
        except BaseException:
            self._client.count_answer(call)
            self._leave()
            raise
        link = call.link
        assert link is not None
        self._link = link
        if self._inflow is not None:
            self._inflow.open()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        call = self._call
        ended = CallFailedError(f"{call.method} was left", status=Status.CANCELLED)
        self._client.count_answer(call)
        answer = self._leave()
        if call.outflow is not None:
            call.outflow.close(ended)
        if call.inflow is not None:
            call.inflow.discard(ended)
        if not answer.cancelled():
            # It was raised where the caller looked, or is of no interest any more.
            answer.exception()

    def _leave(self) -> asyncio.Future[bytes]:
        """End the call if it has not ended, and return its answer."""
        call = self._call
        self._client.abandon(call)
        answer = self._answer = call.answer
        call.let_go(ENDED)
        return answer
