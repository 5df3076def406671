"""Codecs of libraries: JSON and MessagePack by msgspec, and Protocol Buffers.

Each library is an extra of this package, and is imported when its first codec is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, final

from aeron_async.codecs.base import missing
from aeron_async.errors import ConfigurationError, DecodeError, EncodeError
from aeron_async.protocol.arguments import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.codecs.base import Payload

__all__ = ["JsonCodec", "MsgpackCodec", "ProtobufCodec"]

T = TypeVar("T")
OF_MSGSPEC: Final = "codecs of JSON and MessagePack"
OF_PROTOBUF: Final = "codecs of Protocol Buffers"


def msgspec() -> Any:
    """Return the module.

    Raises:
        ConfigurationError: It is not installed.
    """
    try:
        import msgspec as module  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing(OF_MSGSPEC, "msgspec", error) from None
    return module


def decoder_of(package: Any, kind: Any, options: dict[str, Any]) -> Any:
    """Return a decoder of msgspec for a type.

    Raises:
        ConfigurationError: msgspec cannot decode into this type.
    """
    try:
        return package.Decoder(kind, **options)
    except (TypeError, ValueError) as error:
        message = f"msgspec cannot decode into {shown(kind)}: {error}"
        raise ConfigurationError(message) from error


@final
class JsonCodec(Generic[T]):
    """A codec of JSON, which checks each value against a type.

    Args:
        kind: The type, as msgspec knows it: a `msgspec.Struct`, a dataclass, an attrs class, a
            typed dict, a union of tagged structs, `dict`, and more.
        strict: Whether a text that looks like a number is refused where a number belongs.

    Attributes:
        encode: Returns the message of a value.
        decode: Returns the value of a message; raises an error of msgspec if it is none.

    Raises:
        ConfigurationError: msgspec is not installed, or cannot decode into this type.
    """

    def __init__(self, kind: type[T], *, strict: bool = True) -> None:
        json = msgspec().json
        self.encode: Callable[[T], bytes] = json.Encoder().encode
        self.decode: Callable[[Payload], T] = decoder_of(json, kind, {"strict": strict}).decode


@final
class MsgpackCodec(Generic[T]):
    """A codec of MessagePack, which checks each value against a type; see `JsonCodec`.

    Attributes:
        encode: Returns the message of a value.
        decode: Returns the value of a message; raises an error of msgspec if it is none.

    Raises:
        ConfigurationError: msgspec is not installed, or cannot decode into this type.
    """

    def __init__(self, kind: type[T], *, strict: bool = True) -> None:
        msgpack = msgspec().msgpack
        self.encode: Callable[[T], bytes] = msgpack.Encoder().encode
        self.decode: Callable[[Payload], T] = decoder_of(msgpack, kind, {"strict": strict}).decode


class ProtobufMessage(Protocol):
    """The part of a class that `protoc` generates which is needed here."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - as protobuf has it
        """Return the message."""
        ...


ProtobufT = TypeVar("ProtobufT", bound=ProtobufMessage)


@final
class ProtobufCodec(Generic[ProtobufT]):
    """A codec of one message of Protocol Buffers.

    Args:
        kind: Class of the message, as `protoc --python_out` generates it.

    Attributes:
        decode: Returns the value of a message; raises `DecodeError` of protobuf if it is none.

    Raises:
        ConfigurationError: protobuf is not installed, or this is no class of a message.
    """

    def __init__(self, kind: type[ProtobufT]) -> None:
        try:
            from google.protobuf.message import EncodeError as RefusedError  # noqa: PLC0415
            from google.protobuf.message import Message  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise missing(OF_PROTOBUF, "protobuf", error) from None
        if not isinstance(kind, type) or not issubclass(kind, Message):
            message = f"{shown(kind)} is no message of Protocol Buffers: give a class of protoc's"
            raise ConfigurationError(message)
        self._kind = kind
        self._refused = RefusedError
        made: Any = kind
        self._from_string: Callable[[bytes], ProtobufT] = made.FromString

    def encode(self, value: ProtobufT) -> bytes:
        """Return the message of a value.

        Raises:
            EncodeError: It is a value of another class, or a required field is missing.
        """
        if not isinstance(value, self._kind):
            message = f"a {type(value).__name__} is no {self._kind.__name__}"
            raise EncodeError(message)
        try:
            return value.SerializeToString()
        except self._refused as error:
            raise EncodeError(str(error)) from error

    def decode(self, payload: Payload) -> ProtobufT:
        """Return the value of a message.

        Raises:
            DecodeError: It is none.
        """
        try:
            return self._from_string(payload if type(payload) is bytes else bytes(payload))
        except Exception as error:
            # Protobuf has one error of its own, and its error says nothing about the place.
            message = f"no {self._kind.__name__}: {type(error).__name__}"
            raise DecodeError(message) from error
