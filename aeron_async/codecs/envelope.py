"""An envelope: which schema, and which version of it, a payload is of.

The envelope is a message header of Simple Binary Encoding, with a block of 0 bytes or, with a trace
context, of 26; then the payload. A peer reads it with codecs of its own:

    offset  size  field
    0       2     block length: 0, or 26; a reader skips what is longer
    2       2     template id: of the message, or 0
    4       2     schema id
    6       2     version
    8       26    trace context of W3C, if the block has it; all zero for none

Numbers are little-endian.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, final, overload

import attrs

from aeron_async.codecs.base import column_module
from aeron_async.errors import ConfigurationError, DecodeError, EncodeError
from aeron_async.protocol.arguments import check_number
from aeron_async.trace_context import TRACEPARENT_LENGTH, TraceContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.codecs.base import Codec, Encoded, Payload
    from aeron_async.codecs.columns import ColumnDecoder

__all__ = ["ENVELOPE", "EnvelopeCodec", "Traced", "TracedEnvelopeCodec", "enveloped"]

T = TypeVar("T")
ENVELOPE: Final = Struct("<HHHH")
UINT16_MAX: Final = 0xFFFF
NO_CONTEXT: Final = bytes(TRACEPARENT_LENGTH)


@final
@attrs.frozen
class EnvelopeIdentity:
    """What an envelope says, and what it must say to be accepted.

    Attributes:
        schema_id: Id of the schema.
        version: Version that is written.
        template_id: Id of the message in its schema.
        oldest_version: Oldest version that is read.
        newest_version: Newest version that is read; None for any.
    """

    schema_id: int
    version: int
    template_id: int
    oldest_version: int
    newest_version: int | None

    def header(self, block_length: int) -> bytes:
        """Return the envelope of a message."""
        return ENVELOPE.pack(block_length, self.template_id, self.schema_id, self.version)

    def place(self, payload: Payload) -> int:
        """Return where the payload begins in a message.

        Raises:
            DecodeError: The envelope is not whole, or says another schema, message or version.
        """
        if len(payload) < ENVELOPE.size:
            message = f"message of {len(payload)} bytes is shorter than its envelope"
            raise DecodeError(message)
        block_length, template_id, schema_id, version = ENVELOPE.unpack_from(payload)
        if schema_id != self.schema_id:
            message = f"schema {schema_id}, not {self.schema_id}"
            raise DecodeError(message)
        if template_id != self.template_id:
            message = f"template {template_id}, not {self.template_id}"
            raise DecodeError(message)
        newest = UINT16_MAX if self.newest_version is None else self.newest_version
        if not self.oldest_version <= version <= newest:
            message = f"version {version} is not {self.oldest_version} to {newest}"
            raise DecodeError(message)
        begin: int = ENVELOPE.size + block_length
        if begin > len(payload):
            message = f"envelope of {begin} bytes is longer than its message, {len(payload)}"
            raise DecodeError(message)
        return begin


def joined(header: bytes, encoded: Any) -> Any:
    """Return a message with a header before it."""
    if type(encoded) is bytes:
        return header + encoded
    if isinstance(encoded, list | tuple):
        return [header, *encoded]
    return [header, encoded]


def check_inner(codec: Any) -> Any:
    """Return a codec.

    Raises:
        ConfigurationError: It is none.
    """
    if not callable(getattr(codec, "encode", None)) or not callable(getattr(codec, "decode", None)):
        message = f"a codec has the methods encode and decode, and a {type(codec).__name__} has not"
        raise ConfigurationError(message)
    return codec


@final
class EnvelopeCodec(Generic[T]):
    """A codec whose messages have an envelope; see `enveloped`."""

    def __init__(self, codec: Codec[T], identity: EnvelopeIdentity) -> None:
        self._codec = check_inner(codec)
        self._encode, self._decode = codec.encode, codec.decode
        self._identity = identity
        self._header = identity.header(0)

    def encode(self, value: T) -> Encoded:
        """Return the message of a value."""
        found: Encoded = joined(self._header, self._encode(value))
        return found

    def decode(self, payload: Payload) -> T:
        """Return the value of a message.

        Raises:
            DecodeError: It is of another schema, message or version; and what the codec raises.
        """
        if payload[:8] == self._header:
            return self._decode(payload[8:])
        return self._decode(payload[self._identity.place(payload) :])

    def columns(self) -> ColumnDecoder:
        """Return a decoder of the columns of the codec.

        Raises:
            ConfigurationError: The codec makes no columns, or numpy or pyarrow is not installed.
        """
        return inner_columns(self._codec, self._identity)


@final
@attrs.frozen
class Traced(Generic[T]):
    """A value, and the trace context that its message has.

    Attributes:
        value: The value.
        context: The trace context; None for none.
    """

    value: T
    context: TraceContext | None = None


@final
class TracedEnvelopeCodec(Generic[T]):
    """A codec whose messages have an envelope with a trace context; see `enveloped`."""

    def __init__(self, codec: Codec[T], identity: EnvelopeIdentity) -> None:
        self._codec = check_inner(codec)
        self._identity = identity
        self._header = identity.header(TRACEPARENT_LENGTH)

    def encode(self, traced: Traced[T]) -> Encoded:
        """Return the message of a value.

        Raises:
            EncodeError: It is no `Traced`.
        """
        given: object = traced
        if not isinstance(given, Traced):
            message = f"a {type(given).__name__} is no Traced: write Traced(value, context)"
            raise EncodeError(message)
        context = traced.context
        parent = NO_CONTEXT if context is None else context.to_bytes()
        found: Encoded = joined(self._header + parent, self._codec.encode(traced.value))
        return found

    def decode(self, payload: Payload) -> Traced[T]:
        """Return the value of a message; its context is None if the message has none.

        Raises:
            DecodeError: It is of another schema, message or version; and what the codec raises.
        """
        place = self._identity.place(payload)
        context = None
        parent_end = ENVELOPE.size + TRACEPARENT_LENGTH
        if place >= parent_end:
            context = TraceContext.of_bytes(payload[ENVELOPE.size : parent_end])
        return Traced(self._codec.decode(payload[place:]), context)

    def columns(self) -> ColumnDecoder:
        """Return a decoder of the columns of the codec, without the context.

        Raises:
            ConfigurationError: The codec makes no columns, or numpy or pyarrow is not installed.
        """
        return inner_columns(self._codec, self._identity)


def inner_columns(codec: Any, identity: EnvelopeIdentity) -> ColumnDecoder:
    """Return a decoder of what the envelopes hold."""
    columns: Callable[[], ColumnDecoder] | None = getattr(codec, "columns", None)
    if columns is None:
        message = f"{type(codec).__name__} makes no columns: StructCodec and SbeCodec do"
        raise ConfigurationError(message)
    decoder: ColumnDecoder = column_module("columns").EnvelopeColumns(columns(), identity.place)
    return decoder


@overload
def enveloped(
    codec: Codec[T],
    *,
    schema_id: int,
    version: int = ...,
    template_id: int = ...,
    oldest_version: int = ...,
    newest_version: int | None = ...,
    with_trace: Literal[False] = ...,
) -> EnvelopeCodec[T]: ...


@overload
def enveloped(
    codec: Codec[T],
    *,
    schema_id: int,
    version: int = ...,
    template_id: int = ...,
    oldest_version: int = ...,
    newest_version: int | None = ...,
    with_trace: Literal[True],
) -> TracedEnvelopeCodec[T]: ...


def enveloped(
    codec: Codec[T],
    *,
    schema_id: int,
    version: int = 0,
    template_id: int = 0,
    oldest_version: int = 0,
    newest_version: int | None = None,
    with_trace: bool = False,
) -> Any:
    """Return a codec whose messages say of which schema and version they are; 8 bytes each.

    A message of another schema, template or version is undecodable.

    Args:
        codec: Codec of the payload in the envelope.
        schema_id: Id of the schema, 0 to 65535.
        version: Version that is written, 0 to 65535.
        template_id: Id of the message in its schema, 0 to 65535.
        oldest_version: Oldest version that is read.
        newest_version: Newest version that is read; None for any, since newer versions may only
            append.
        with_trace: Whether the values are `Traced`, and a trace context of 26 bytes travels in the
            envelope. Without this, a context that a message has is skipped.

    Raises:
        ConfigurationError: A number is beyond its limits, or this is no codec.
    """
    numbers = {
        "schema_id": schema_id,
        "version": version,
        "template_id": template_id,
        "oldest_version": oldest_version,
    }
    checked = {
        name: check_number(value, name, minimum=0, maximum=UINT16_MAX)
        for name, value in numbers.items()
    }
    newest = newest_version
    if newest is not None:
        newest = check_number(
            newest, "newest_version", minimum=checked["oldest_version"], maximum=UINT16_MAX
        )
    identity = EnvelopeIdentity(**checked, newest_version=newest)
    return TracedEnvelopeCodec(codec, identity) if with_trace else EnvelopeCodec(codec, identity)
