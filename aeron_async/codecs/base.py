"""What a codec is: two functions, one makes a message of a value, the other reads it back."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar, final

from aeron_async.errors import ConfigurationError
from aeron_async.protocol.arguments import check_function

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

    from aeron_async.codecs.columns import ColumnDecoder

__all__ = [
    "Codec",
    "Columnar",
    "Encoded",
    "PairCodec",
    "Payload",
    "codec",
    "column_module",
    "missing",
]

T = TypeVar("T")
Payload: TypeAlias = bytes | memoryview
"""A payload to decode: bytes, or a read-only view that stays as it is while it is referenced."""
if TYPE_CHECKING:
    Encoded: TypeAlias = Buffer | list[Buffer] | tuple[Buffer, ...]
    """A message: one buffer, or several that are sent as one message."""
else:
    Encoded = Any


class Codec(Protocol[T]):
    """Makes messages of values, and values of messages.

    Both methods are called in the event loop, once a message. `decode` may raise any exception: the
    payload comes from a peer, and nothing in it can be trusted.
    """

    def encode(self, value: T, /) -> Encoded:
        """Return the message of a value."""
        ...

    def decode(self, payload: Payload, /) -> T:
        """Return the value of a message; raise if the payload is none."""
        ...


class Columnar(Protocol):
    """A codec that also decodes many messages at once, into Arrow columns."""

    def columns(self) -> ColumnDecoder:
        """Return a decoder of columns.

        Raises:
            ConfigurationError: numpy or pyarrow is not installed.
        """
        ...


@final
class PairCodec(Generic[T]):
    """A codec of two functions; see `codec`."""

    __slots__ = ("decode", "encode")

    def __init__(self, encode: Callable[[T], Encoded], decode: Callable[[Any], T]) -> None:
        self.encode: Callable[[T], Encoded] = check_function(encode, "encode")
        self.decode: Callable[[Payload], T] = check_function(decode, "decode")


def codec(encode: Callable[[T], Encoded], decode: Callable[[Any], T]) -> PairCodec[T]:
    """Return a codec of two functions, such as `codec(str.encode, bytes.decode)`.

    Args:
        encode: Makes bytes, another buffer, or a list of buffers of a value.
        decode: Makes a value of the bytes of a payload; may raise any exception.

    Raises:
        ConfigurationError: One of them cannot be called, or is an `async def`.
    """
    return PairCodec(encode, decode)


NEEDED: Final[dict[str, Sequence[str]]] = {
    "columns": ("numpy", "pyarrow"),
    "msgspec": ("msgspec",),
    "protobuf": ("protobuf",),
}
"""Packages by extra."""


COLUMNS: Final = "columns of messages"


def column_module(name: str) -> Any:
    """Return a module of this package that makes columns.

    Raises:
        ConfigurationError: numpy or pyarrow is not installed.
    """
    try:
        return import_module(f"aeron_async.codecs.{name}")
    except ModuleNotFoundError as error:
        raise missing(COLUMNS, "columns", error) from None


def missing(what: str, extra: str, error: ImportError) -> ConfigurationError:
    """Return the error about an extra that is not installed."""
    needed = " and ".join(NEEDED[extra])
    return ConfigurationError(
        f"{what} need {needed}, and {error.name} is not installed: "
        f"pip install 'aeron-async[{extra}]'"
    )
