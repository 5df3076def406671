"""Servers: what a service declares, its methods by decorator.

Invariant: no two methods of a service share a number.
"""

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, final, overload

from aeron_async.errors import ConfigurationError
from aeron_async.rpc.deadlines import check_seconds
from aeron_async.rpc.envelope import method_id
from aeron_async.rpc.server_session import Handler
from aeron_async.rpc.serving import Serving
from aeron_async.rpc.serving_limits import ServingLimits
from aeron_async.rpc.typed_calls import typed_function
from aeron_async.rpc.wiring import REQUEST_STREAM_ID, Wiring
from aeron_async.tasks import Interruption

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from aeron_async.client.aeron import Aeron
    from aeron_async.codecs.base import Codec
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["Server"]

Function = TypeVar("Function", bound="Callable[..., Any]")


@final
class Server:
    """A service and its methods; `serve` opens it.

    Args:
        service: Name of the service.
    """

    def __init__(self, service: str) -> None:
        if not isinstance(service, str) or not service:
            message = f"service={service!r}: give the name of the service"
            raise ConfigurationError(message)
        self.service = service
        self.handlers: dict[int, Handler] = {}

    @overload
    def unary(
        self,
        function: Function,
        *,
        name: str | None = None,
        request: Codec[Any] | None = None,
        response: Codec[Any] | None = None,
    ) -> Function: ...

    @overload
    def unary(
        self,
        function: None = None,
        *,
        name: str | None = None,
        request: Codec[Any] | None = None,
        response: Codec[Any] | None = None,
    ) -> Callable[[Function], Function]: ...

    def unary(
        self,
        function: Function | None = None,
        *,
        name: str | None = None,
        request: Codec[Any] | None = None,
        response: Codec[Any] | None = None,
    ) -> Any:
        """Register a handler that takes one request and returns one answer.

        It is `def f(request)` or `async def f(request)`, or takes the call as a second argument. A
        plain function runs in the event loop at once, which is the fastest, and must not wait.

        Args:
            function: The handler.
            name: Of the method; that of the function by default.
            request: Makes a value of a request, or of each element; None for bytes. What it cannot
                decode is answered with INVALID_ARGUMENT, and the handler does not run.
            response: Makes the payload of an answer, or of each element; None for bytes.

        Raises:
            ConfigurationError: The name is taken, or its number is that of another; or what is
                given is no codec.
        """
        return self._decorator(function, name, request, response)

    @overload
    def server_streaming(
        self,
        function: Function,
        *,
        name: str | None = None,
        request: Codec[Any] | None = None,
        response: Codec[Any] | None = None,
    ) -> Function: ...

    @overload
    def server_streaming(
        self,
        function: None = None,
        *,
        name: str | None = None,
        request: Codec[Any] | None = None,
        response: Codec[Any] | None = None,
    ) -> Callable[[Function], Function]: ...

    def server_streaming(
        self,
        function: Function | None = None,
        *,
        name: str | None = None,
        request: Codec[Any] | None = None,
        response: Codec[Any] | None = None,
    ) -> Any:
        """Register `async def f(request): yield element`; see `unary`."""
        return self._decorator(function, name, request, response, gives_stream=True)

    @overload
    def client_streaming(
        self,
        function: Function,
        *,
        name: str | None = None,
        request: Codec[Any] | None = None,
        response: Codec[Any] | None = None,
    ) -> Function: ...

    @overload
    def client_streaming(
        self,
        function: None = None,
        *,
        name: str | None = None,
        request: Codec[Any] | None = None,
        response: Codec[Any] | None = None,
    ) -> Callable[[Function], Function]: ...

    def client_streaming(
        self,
        function: Function | None = None,
        *,
        name: str | None = None,
        request: Codec[Any] | None = None,
        response: Codec[Any] | None = None,
    ) -> Any:
        """Register `async def f(elements): ... return answer`; see `unary`."""
        return self._decorator(function, name, request, response, takes_stream=True)

    @overload
    def bidirectional(
        self,
        function: Function,
        *,
        name: str | None = None,
        request: Codec[Any] | None = None,
        response: Codec[Any] | None = None,
    ) -> Function: ...

    @overload
    def bidirectional(
        self,
        function: None = None,
        *,
        name: str | None = None,
        request: Codec[Any] | None = None,
        response: Codec[Any] | None = None,
    ) -> Callable[[Function], Function]: ...

    def bidirectional(
        self,
        function: Function | None = None,
        *,
        name: str | None = None,
        request: Codec[Any] | None = None,
        response: Codec[Any] | None = None,
    ) -> Any:
        """Register `async def f(elements): yield element`; see `unary`."""
        return self._decorator(
            function, name, request, response, takes_stream=True, gives_stream=True
        )

    def _decorator(
        self,
        function: Callable[..., Any] | None,
        name: str | None,
        request: Codec[Any] | None,
        response: Codec[Any] | None,
        *,
        takes_stream: bool = False,
        gives_stream: bool = False,
    ) -> Any:
        def register(given: Callable[..., Any]) -> Callable[..., Any]:
            self._register(
                given,
                name or given.__name__,
                request,
                response,
                takes_stream=takes_stream,
                gives_stream=gives_stream,
            )
            return given

        return register if function is None else register(function)

    def _register(
        self,
        function: Callable[..., Any],
        name: str,
        request: Codec[Any] | None,
        response: Codec[Any] | None,
        *,
        takes_stream: bool,
        gives_stream: bool,
    ) -> None:
        is_generator = inspect.isasyncgenfunction(function)
        is_async = inspect.iscoroutinefunction(function)
        if gives_stream and not is_generator:
            message = f"{name} streams its answer: write it as async def with yield"
            raise ConfigurationError(message)
        if not gives_stream and (is_generator or (takes_stream and not is_async)):
            kind = "returns one answer" if is_generator else "awaits elements"
            message = f"{name} {kind}: write it as async def without yield"
            raise ConfigurationError(message)
        number = method_id(self.service, name)
        if number in self.handlers:
            other = self.handlers[number].name
            message = f"there is a method {name!r} already: give another name"
            if other != name:
                message = f"{name!r} has the number of {other!r}: give another name"
            raise ConfigurationError(message)
        self.handlers[number] = Handler(
            name=name,
            function=typed_function(
                function,
                name,
                request,
                response,
                is_async=is_async,
                takes_stream=takes_stream,
                gives_stream=gives_stream,
            ),
            takes_call=takes_call(function, name),
            is_plain=not is_async and not is_generator,
            takes_stream=takes_stream,
            gives_stream=gives_stream,
        )

    @asynccontextmanager
    async def serve(
        self,
        aeron: Aeron,
        channel: str | ChannelUri,
        *,
        stream_id: int = REQUEST_STREAM_ID,
        response_stream_id: int | None = None,
        grace: float = 1.0,
        cancel_grace: float = 30.0,
        calls_limit: int = 8_192,
        calls_at_once: int = 1_024,
        clients_limit: int = 64,
        patience: float = 5.0,
        payload_max: int = 4 << 20,
        window_items: int = 256,
        window_bytes: int = 1 << 20,
        keep_results: int = 0,
        keep_results_bytes: int = 16 << 20,
    ) -> AsyncGenerator[Serving, None]:
        """Serve until the block ends; then take no new calls, and wait for those that run.

        If the client of Aeron is closed, or its driver has gone, the block is cancelled where it
        waits, and ends with `ClosedError`; so does one that waits for calls at its end.

        Args:
            aeron: Whose streams to use.
            channel: URI of the service, with `endpoint` and `control`, or `aeron:ipc`.
            stream_id: Stream id of the requests.
            response_stream_id: Stream id of the answers; the next one by default.
            grace: Seconds that calls may go on when the block ends; then they are cancelled.
            cancel_grace: Seconds that a handler may go on although it was cancelled; then the
                server closes without it.
            calls_limit: Most calls that run at once.
            calls_at_once: Most of one client.
            clients_limit: Most clients; the driver has limits of its own.
            patience: Seconds after which a client that takes no answers is rejected.
            payload_max: Most bytes of a request, or of an element.
            window_items: Most elements of one stream that wait for their handler.
            window_bytes: Most bytes of them, at least 128 KiB.
            keep_results: How many results of idempotent calls are kept, for twice the time of the
                call, so that one that is sent again does not run again; 0 keeps none.
            keep_results_bytes: Most bytes of them.

        Raises:
            ConfigurationError: An argument is invalid, or another server of the driver has this
                channel and stream: each call would run in both.
            RegistrationError: The driver refuses the channel.
            ClosedError: The client of Aeron is closed, or was closed while the block ran.
        """
        check_seconds(grace, "grace")
        limits = ServingLimits(
            calls_limit=calls_limit, calls_at_once=calls_at_once, clients_limit=clients_limit,
            patience_s=patience, payload_max=payload_max, window_items=window_items,
            window_bytes=window_bytes, keep_results=keep_results,
            keep_results_bytes=keep_results_bytes, cancel_grace_s=cancel_grace,
        )  # fmt: skip
        wiring = Wiring(channel, stream_id, response_stream_id)
        serving = Serving(self.service, self.handlers, aeron, wiring, limits)
        async with served(serving, grace):
            yield serving


@asynccontextmanager
async def served(serving: Serving, grace: float) -> AsyncGenerator[None, None]:
    """Open a service, and close it; see `Server.serve`."""
    try:
        await serving.open()
        async with Interruption() as interruption:
            serving.on_lost = interruption.interrupt
            yield
            await serving.drain(grace)
    finally:
        await serving.aclose()


def takes_call(function: Callable[..., Any], name: str) -> bool:
    """Return whether a handler takes the call beside the request.

    Raises:
        ConfigurationError: It cannot be called with one argument, nor with two.
    """
    signature = inspect.signature(function)
    for arguments in ((b"", None), (b"",)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        named = sum(each.kind in kinds for each in signature.parameters.values())
        return len(arguments) > 1 and named > 1
    message = f"{name}{signature}: a handler takes the request, and may take the call behind it"
    raise ConfigurationError(message)
