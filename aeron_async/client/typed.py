"""Publications and subscriptions of values, by a codec.

Invariant: a payload that cannot be decoded stops nobody. Its message is counted and passed to a
handler, or skipped, and the next value is asked for as if it had been taken.

It names neither publications nor subscriptions: no three modules are to need each other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar, final

from anyio.abc import ObjectReceiveStream, ObjectSendStream

from aeron_async.clock import NS_PER_SECOND, SystemClock
from aeron_async.codecs.base import column_module
from aeron_async.errors import ConfigurationError, DecodeError
from aeron_async.logbuffer.message import columns_of
from aeron_async.logs import get_logger
from aeron_async.protocol.arguments import check_function, shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from types import TracebackType

    from aeron_async.client.arrow import RecordBatch
    from aeron_async.codecs.base import Codec
    from aeron_async.codecs.columns import ColumnDecoder

__all__ = [
    "TypedBatch",
    "TypedBatches",
    "TypedOffers",
    "TypedPublication",
    "TypedReading",
    "TypedSubscription",
]

T = TypeVar("T")
log: Final = get_logger(__name__)


def check_codec(codec: Codec[T]) -> Codec[T]:
    """Return a codec.

    Raises:
        ConfigurationError: It lacks a method, or one is an `async def`.
    """
    for name in ("encode", "decode"):
        if not callable(getattr(codec, name, None)):
            message = (
                f"codec={shown(codec)} has no method {name}: give one of aeron_async.codecs, or "
                "make one of two functions by codec(encode, decode)"
            )
            raise ConfigurationError(message)
        check_function(getattr(codec, name), f"codec.{name}")
    return codec


class Offers(Protocol):
    """The part of a publication that is needed here."""

    def offer(
        self, data: Any, *, reserved_value: int = 0, timeout: float | None = None
    ) -> Awaitable[int]: ...

    def try_offer(self, data: Any, *, reserved_value: int = 0) -> Any: ...

    def offer_many(self, messages: Any, *, timeout: float | None = None) -> Awaitable[int]: ...

    def send(self, item: Any) -> Awaitable[None]: ...

    def close(self) -> None: ...

    async def aclose(self) -> None: ...


@final
class TypedPublication(ObjectSendStream[T], Generic[T]):
    """A publication that offers values; made by `Publication.typed`.

    Closing it closes the publication.

    Args:
        publication: The publication.
        codec: Makes messages of values.

    Attributes:
        publication: The publication.
        codec: The codec.
    """

    def __init__(self, publication: Any, codec: Codec[T]) -> None:
        self.publication: Any = publication
        self.codec = check_codec(codec)
        self._offers: Offers = publication
        self._encode = codec.encode

    def offer(
        self, value: T, *, reserved_value: int = 0, timeout: float | None = None
    ) -> Awaitable[int]:
        """Append the message of a value; what is awaited is `Publication.offer`.

        Raises:
            EncodeError: The codec cannot encode the value; nothing was offered. A codec of another
                library raises errors of its own.
        """
        return self._offers.offer(
            self._encode(value), reserved_value=reserved_value, timeout=timeout
        )

    def try_offer(self, value: T, *, reserved_value: int = 0) -> Any:
        """Append the message of a value now, or return why not; see `Publication.try_offer`.

        Raises:
            EncodeError: As for `offer`.
        """
        return self._offers.try_offer(self._encode(value), reserved_value=reserved_value)

    def offer_many(self, values: Iterable[T], *, timeout: float | None = None) -> Awaitable[int]:
        """Append the messages of values one after the other; see `Publication.offer_many`.

        All values are encoded before the first is offered.

        Raises:
            EncodeError: The codec cannot encode one of them; none was offered.
        """
        return self._offers.offer_many(list(map(self._encode, values)), timeout=timeout)

    async def send(self, item: T) -> None:
        """Append the message of a value as `offer` does; for code written for anyio streams."""
        await self._offers.send(self._encode(item))

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """Return the attributes of the publication."""
        found: Mapping[Any, Callable[[], Any]] = self.publication.extra_attributes
        return found

    def close(self) -> None:
        """Close the publication; see `Publication.close`."""
        self._offers.close()

    async def aclose(self) -> None:
        """Close the publication; see `Publication.aclose`."""
        await self._offers.aclose()

    def __repr__(self) -> str:
        return f"<TypedPublication of {self.publication!r}>"


class TypedOffers:
    """The part of a publication that makes a typed one of it."""

    def typed(self, codec: Codec[T]) -> TypedPublication[T]:
        """Return a publication that offers values by a codec.

        Raises:
            ConfigurationError: It is no codec.
        """
        return TypedPublication(self, codec)


class Delivers(Protocol):
    """The part of a subscription that is needed here."""

    def __aiter__(self) -> Any: ...

    def __anext__(self) -> Awaitable[Any]: ...


@final
class Undecodable:
    """What happens to messages that cannot be decoded.

    Args:
        handler: Called with the message and the error; None counts and logs.

    Attributes:
        count: How many there were.
    """

    __slots__ = ("_handler", "_logged_count", "_next_line_ns", "count")

    def __init__(self, handler: Callable[[Any, Exception], object] | None) -> None:
        self._handler = None if handler is None else check_function(handler, "on_undecodable")
        self.count = self._logged_count = 0
        self._next_line_ns: int | None = None

    def refuse(self, message: Any, error: Exception) -> None:
        """Pass a message to the handler; without one, log one line a second at most."""
        self.count += 1
        if self._handler is not None:
            self._handler(message, error)
            return
        now_ns = now_of(message)
        if self._next_line_ns is not None and now_ns < self._next_line_ns:
            return
        self._next_line_ns = now_ns + NS_PER_SECOND
        count, self._logged_count = self.count - self._logged_count, self.count
        log.warning(
            "message_undecodable",
            stream_id=message.stream_id,
            session_id=message.session_id,
            position=message.position,
            length=len(message),
            # The text of any other error may have a part of the payload.
            error=str(error) if isinstance(error, DecodeError) else type(error).__name__,
            count=count,
        )


def now_of(message: Any) -> int:
    """Return the time of the client that a message came to, or of the system, in nanoseconds."""
    subscription = getattr(message.image, "subscription", None)
    if subscription is None:
        return SystemClock().now_ns()
    now_ns: int = subscription._waits.now_ns()
    return now_ns


@final
class TypedSubscription(ObjectReceiveStream[T], Generic[T]):
    """A subscription that delivers values; made by `Subscription.typed`.

    It reads as the subscription does: one task at a time may, a value that was asked for is taken
    when the next one is, and a wait that is cancelled loses nothing. Closing it closes the
    subscription.

    Args:
        subscription: The subscription, or another iterator over messages, such as a replay.
        codec: Makes values of messages.
        on_undecodable: Called with a message that cannot be decoded, and with the error. It may
            raise, which ends the iteration; otherwise the message is skipped. None counts, and logs
            one line a second at most.

    Attributes:
        subscription: The subscription.
        codec: The codec.

    Raises:
        ConfigurationError: This is no codec, or the handler cannot be called or is an `async def`.
    """

    def __init__(
        self,
        subscription: Any,
        codec: Codec[T],
        on_undecodable: Callable[[Any, Exception], object] | None = None,
    ) -> None:
        self.subscription: Any = subscription
        self.codec = check_codec(codec)
        self._delivers: Delivers = subscription
        self._decode = codec.decode
        self._undecodable = Undecodable(on_undecodable)
        self._decoder: ColumnDecoder | None = None

    @property
    def undecodable_count(self) -> int:
        """Return how many messages could not be decoded."""
        return self._undecodable.count

    def __aiter__(self) -> Self:
        self._delivers.__aiter__()
        return self

    async def __anext__(self) -> T:
        """Wait for the next value and return it; iteration ends when the subscription closes.

        Raises:
            BusyError: Another task consumes the subscription.
            ClosedError: The driver failed.
            WrongLoopError: The subscription belongs to another event loop.
        """
        while True:
            message = await anext(self._delivers)
            try:
                return self._decode(message.data)
            except Exception as error:  # noqa: BLE001 - a codec may raise what it likes
                refused = error
            self._undecodable.refuse(message, refused)

    async def receive(self) -> T:
        """Return the next value as `anext` does; for code that is written for anyio streams.

        Raises:
            ClosedResourceError: The subscription was closed, before or during the call. Other
                errors are those of `Subscription.receive`.
        """
        while True:
            message = await self.subscription.receive()
            try:
                return self._decode(message.data)
            except Exception as error:  # noqa: BLE001 - as above
                refused = error
            self._undecodable.refuse(message, refused)

    async def with_messages(self) -> AsyncIterator[tuple[Any, T]]:
        """Iterate over messages with their values, for position, session or reserved value."""
        self._delivers.__aiter__()
        while True:
            try:
                message = await anext(self._delivers)
            except StopAsyncIteration:
                return
            try:
                value = self._decode(message.data)
            except Exception as error:  # noqa: BLE001 - as above
                refused = error
            else:
                yield message, value
                continue
            self._undecodable.refuse(message, refused)

    def batches(self, *arguments: int, **options: int) -> TypedBatches[T]:
        """Iterate over batches of values; arguments and rules are those of `Subscription.batches`.

        Raises:
            ConfigurationError: An argument is invalid, or there are no batches: of a replay.
        """
        make = getattr(self.subscription, "batches", None)
        if make is None:
            message = f"a {type(self.subscription).__name__} has no batches: iterate over values"
            raise ConfigurationError(message)
        return TypedBatches(make(*arguments, **options), self)

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """Return the attributes of the subscription."""
        found: Mapping[Any, Callable[[], Any]] = self.subscription.extra_attributes
        return found

    def close(self) -> None:
        """Close the subscription; see `Subscription.close`."""
        self.subscription.close()

    async def aclose(self) -> None:
        """Close the subscription; see `Subscription.aclose`."""
        await self.subscription.aclose()

    def __repr__(self) -> str:
        return f"<TypedSubscription of {self.subscription!r}>"

    def _columns(self) -> ColumnDecoder:
        if self._decoder is None:
            columns = getattr(self.codec, "columns", None)
            if columns is None:
                message = (
                    f"{type(self.codec).__name__} makes no columns: StructCodec and SbeCodec do, "
                    "others have the values of a batch"
                )
                raise ConfigurationError(message)
            self._decoder = columns()
        return self._decoder


class TypedReading:
    """The part of a subscription that makes a typed one of it."""

    def typed(
        self,
        codec: Codec[T],
        *,
        on_undecodable: Callable[[Any, Exception], object] | None = None,
    ) -> TypedSubscription[T]:
        """Return a subscription that delivers values by a codec.

        Args:
            codec: Makes values of messages.
            on_undecodable: Called with a message that cannot be decoded, and with the error; see
                `TypedSubscription`.

        Raises:
            ConfigurationError: This is no codec, or no handler.
        """
        return TypedSubscription(self, codec, on_undecodable)


@final
class TypedBatches(AsyncIterator["TypedBatch[T]"], Generic[T]):
    """What `TypedSubscription.batches` returns; to end it early, use `async with` or `aclose`."""

    __slots__ = ("_batches", "_typed")

    def __init__(self, batches: Any, typed: TypedSubscription[T]) -> None:
        self._batches = batches
        self._typed = typed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TypedBatch[T]:
        """Take the last batch, and return the next one, waiting for messages."""
        return TypedBatch(await self._batches.__anext__(), self._typed)

    def take(self) -> None:
        """Take the last batch now; see `Batches.take`."""
        self._batches.take()

    async def aclose(self) -> None:
        """End the iteration now; a last batch that was not taken comes again."""
        await self._batches.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


@final
class TypedBatch(Generic[T]):
    """Values of one image, in order; valid until the next batch is asked for, as its messages are.

    `values`, `with_messages` and `to_arrow` have the messages that can be decoded. The others are
    passed to the handler by whichever is asked for first, each once.

    Attributes:
        messages: All messages, undecodable ones included, as a `MessageBatch`.
    """

    __slots__ = ("_are_refused", "_found", "_typed", "messages")

    def __init__(self, messages: Any, typed: TypedSubscription[T]) -> None:
        self.messages: Any = messages
        self._typed = typed
        self._found: tuple[list[T], list[int]] | None = None
        self._are_refused = False

    def __len__(self) -> int:
        """Return how many messages there are, undecodable ones included."""
        return len(self.messages)

    @property
    def values(self) -> list[T]:
        """Return the values; the same list each time.

        Raises:
            ClosedError: The batch was taken.
        """
        return self._decoded()[0]

    def with_messages(self) -> list[tuple[Any, T]]:
        """Return messages with their values.

        Raises:
            ClosedError: The batch was taken.
        """
        values, bad = self._decoded()
        messages = self.messages
        skipped = frozenset(bad)
        good = [messages[i] for i in range(len(messages)) if i not in skipped]
        return list(zip(good, values, strict=True))

    def to_arrow(self, *, positions: bool = False) -> RecordBatch:
        """Return the columns of the values, as a `pyarrow.RecordBatch`.

        Args:
            positions: Whether a first column, `position`, says where each message ends.

        Raises:
            ConfigurationError: The codec makes no columns, numpy or pyarrow is not installed, or a
                field is named `position` too.
            ClosedError: The batch was taken.
        """
        decoder = self._typed._columns()  # noqa: SLF001 - a part of its subscription
        count, bounds, ends, _, data = columns_of(self.messages._lying())  # noqa: SLF001 - a part of it
        columns = column_module("columns")
        payloads = columns.Payloads.of_bounds(count, bounds, data)
        batch, reasons = columns.record_batch(decoder, payloads, ends if positions else None)
        self._refuse([(index, DecodeError(reason)) for index, reason in reasons])
        return batch

    def _decoded(self) -> tuple[list[T], list[int]]:
        """Return the values, and the indices of the messages that have none."""
        if self._found is not None:
            return self._found
        decode = self._typed._decode  # noqa: SLF001 - a part of its subscription
        values: list[T] = []
        bad: list[tuple[int, Exception]] = []
        rest = iter(self.messages.payloads())
        while len(values) + len(bad) < len(self.messages):
            error: Exception = DecodeError("the codec raised StopIteration")
            try:
                for value in map(decode, rest):
                    values.append(value)  # noqa: PERF402 - keeps those before an error
            except Exception as refused:  # noqa: BLE001 - a codec may raise what it likes
                error = refused
            index = len(values) + len(bad)
            if index < len(self.messages):
                bad.append((index, error))
        self._refuse(bad)
        self._found = values, [index for index, _ in bad]
        return self._found

    def _refuse(self, bad: list[tuple[int, Exception]]) -> None:
        """Pass the messages that cannot be decoded to the handler, once."""
        if self._are_refused:
            return
        self._are_refused = True
        for index, error in bad:
            self._typed._undecodable.refuse(self.messages[index], error)  # noqa: SLF001 - as above

    def __repr__(self) -> str:
        return f"<TypedBatch of {self.messages!r}>"
