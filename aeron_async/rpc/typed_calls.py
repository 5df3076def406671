"""Calls with values in the place of bytes, by codecs, at both ends.

Invariant: what a peer sends and a codec cannot decode ends its own call, and nothing else. The
error names the method and the class of what the codec raised, and nothing of the payload.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, final

from aeron_async.client.typed import check_codec
from aeron_async.errors import CallFailedError, DecodeError, Status
from aeron_async.rpc.envelope import checked

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable
    from types import TracebackType

    from aeron_async.codecs.base import Codec
    from aeron_async.rpc.client_stream import ClientStream

__all__ = ["Method", "TypedClientStream", "typed_function"]

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


def encoder(codec: Codec[Any] | None) -> Callable[[Any], Any]:
    """Return what makes the payload of a value: bytes; without a codec, the value itself."""
    if codec is None:
        return lambda value: value
    encode = check_codec(codec).encode

    def payload_of(value: Any) -> bytes:
        payload: Any = encode(value)
        if type(payload) is bytes:
            return payload
        if isinstance(payload, list | tuple):
            return b"".join(payload)
        return bytes(checked(payload, "what a codec encodes"))

    return payload_of


def decoder(codec: Codec[Any] | None, failed: Callable[[Exception], Exception]) -> Any:
    """Return what makes a value of a payload; it raises what `failed` makes of an error."""
    if codec is None:
        return lambda payload: payload
    decode = check_codec(codec).decode

    def value_of(payload: bytes) -> Any:
        try:
            return decode(payload)
        except Exception as error:
            raise failed(error) from error

    return value_of


# Servers.


@final
class TypedHandler:
    """A handler of values, as handlers of bytes of each kind: see `typed_function`."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        request: Codec[Any] | None,
        response: Codec[Any] | None,
    ) -> None:
        self._function = function
        self._name = name
        self._encode = encoder(response)
        self._decode = decoder(request, self._failed)

    def _failed(self, error: Exception) -> CallFailedError:
        kind = type(error).__name__
        text = f"{self._name}: the request cannot be decoded: {kind}"
        return CallFailedError(text, status=Status.INVALID_ARGUMENT, error_type=kind)

    async def _values_of(self, elements: AsyncIterator[bytes]) -> AsyncGenerator[Any, None]:
        async for element in elements:
            yield self._decode(element)

    def plain(self, body: bytes, *call: Any) -> Any:
        """Answer at once."""
        return self._encode(self._function(self._decode(body), *call))

    async def waiting(self, body: bytes, *call: Any) -> Any:
        """Answer when the handler has."""
        return self._encode(await self._function(self._decode(body), *call))

    async def taking(self, elements: AsyncIterator[bytes], *call: Any) -> Any:
        """Answer a stream."""
        async with aclosing(self._values_of(elements)) as values:
            return self._encode(await self._function(values, *call))

    async def giving(self, body: bytes, *call: Any) -> AsyncGenerator[Any, None]:
        """Answer with a stream."""
        async with aclosing(self._function(self._decode(body), *call)) as values:
            async for value in values:
                yield self._encode(value)

    async def both(self, elements: AsyncIterator[bytes], *call: Any) -> AsyncGenerator[Any, None]:
        """Answer a stream with a stream."""
        async with (
            aclosing(self._values_of(elements)) as given,
            aclosing(self._function(given, *call)) as values,
        ):
            async for value in values:
                yield self._encode(value)


def typed_function(
    function: Callable[..., Any],
    name: str,
    request: Codec[Any] | None,
    response: Codec[Any] | None,
    *,
    is_async: bool,
    takes_stream: bool,
    gives_stream: bool,
) -> Callable[..., Any]:
    """Return a handler of bytes that calls one of values; with no codec it is the same.

    Raises:
        ConfigurationError: What is given is no codec.
    """
    if request is None and response is None:
        return function
    typed = TypedHandler(function, name, request, response)
    if gives_stream:
        return typed.both if takes_stream else typed.giving
    if takes_stream:
        return typed.taking
    return typed.waiting if is_async else typed.plain


# Clients.


@final
class Method(Generic[RequestT, ResponseT]):
    """A method of a client with its types; made by `Client.method`.

    Attributes:
        name: Its name.
        idempotent: Whether calls may run more than once.
    """

    __slots__ = ("_client", "_decode", "_encode", "idempotent", "name")

    def __init__(
        self,
        client: Any,
        name: str,
        request: Codec[RequestT] | None,
        response: Codec[ResponseT] | None,
        *,
        idempotent: bool,
    ) -> None:
        self.name = name
        self.idempotent = idempotent
        self._client = client
        self._encode = encoder(request)
        self._decode = decoder(response, self._failed)

    def _failed(self, error: Exception) -> DecodeError:
        kind = type(error).__name__
        return DecodeError(
            f"{self.name}: the answer cannot be decoded: {kind}; the server has run the call"
        )

    async def __call__(self, request: RequestT, **options: Any) -> ResponseT:
        """Call it; the options are those of `Client.call`.

        Raises:
            DecodeError: The answer cannot be decoded; its cause is what the codec has raised.
            RpcError: As for `Client.call`.
        """
        options.setdefault("idempotent", self.idempotent)
        answer: ResponseT = self._decode(
            await self._client.call(self.name, self._encode(request), **options)
        )
        return answer

    def stream(self, *request: RequestT, **options: Any) -> TypedClientStream[RequestT, ResponseT]:
        """Return a call that streams values: `async with method.stream(request) as values`.

        Args:
            request: The whole request, for methods that stream answers only; nothing to `send`
                values.
            options: Those of `Client.stream`.
        """
        whole = self._encode(*request) if request else None
        stream = self._client.stream(self.name, whole, **options)
        return TypedClientStream(stream, self._encode, self._decode)


@final
class TypedClientStream(Generic[RequestT, ResponseT]):
    """A `ClientStream` of values."""

    __slots__ = ("_decode", "_encode", "_stream")

    def __init__(
        self,
        stream: ClientStream,
        encode: Callable[[RequestT], bytes],
        decode: Callable[[bytes], ResponseT],
    ) -> None:
        self._stream = stream
        self._encode = encode
        self._decode = decode

    async def send(self, value: RequestT) -> None:
        """Send one value; see `ClientStream.send`."""
        await self._stream.send(self._encode(value))

    async def end(self) -> None:
        """Tell the server that no more values come."""
        await self._stream.end()

    async def reply(self) -> ResponseT:
        """End sending, and return the answer; see `ClientStream.reply`."""
        return self._decode(await self._stream.reply())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ResponseT:
        """Return the next value; see `ClientStream`."""
        return self._decode(await anext(self._stream))

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stream.__aexit__(exc_type, exc, traceback)
