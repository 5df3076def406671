"""The envelope of calls: 32 bytes before each payload, version 1.

A message is the header of SBE (8 bytes), a block of 24 bytes that all templates share, extensions
of `ext_length` bytes, and the payload up to the end of the Aeron message. Little-endian:

    offset  size  field
         0     2  block_length   24; what is longer is skipped
         2     2  template_id    see `Template`
         4     2  schema_id      see `SCHEMA_ID`
         6     2  version        1
         8     8  call_id        from 1 upwards within a link; 0 is the link itself
        16     8  amount         see `Template`
        24     4  number         see `Template`
        28     2  flags          see `CallFlag`
        30     2  ext_length     bytes of extensions: (type, length, bytes padded to 4) each

`aeron-async-rpc.xml` beside this module is the same for the code generators of SBE.

Invariant: what a peer says neither allocates nor loops by a number in it: each length must be
covered by bytes that are there, and extensions are at most `EXTENSIONS_MAX` bytes.
"""

from __future__ import annotations

import zlib
from enum import IntEnum, IntFlag
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, final

from aeron_async.errors import CallFailedError, ConfigurationError, ProtocolError, Status

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BLOCK_LENGTH",
    "CALL_KEY",
    "CONTINUED",
    "EXTENSIONS_MAX",
    "EXTENSION_TEXT_MAX",
    "HEAD",
    "HEAD_LENGTH",
    "IDEMPOTENT",
    "INSTANCE_LENGTH",
    "INTERRUPTED",
    "KEY_LENGTH",
    "LAST",
    "NEVER_BEGUN",
    "NUMBER_MAX",
    "QUICK",
    "REPEATED",
    "SCHEMA_ID",
    "VERSION",
    "CallFlag",
    "Extension",
    "Template",
    "body_offset",
    "check_payload",
    "check_version",
    "checked",
    "extensions_of",
    "failure_of",
    "head",
    "kind_of",
    "method_id",
    "pack_extensions",
    "text_of",
]

SCHEMA_ID: Final = 0x4152
"""Identifies the schema: "AR"."""
VERSION: Final = 1
BLOCK_LENGTH: Final = 24
HEAD: Final = Struct("<HHHHQQIHH")
"""block_length, template_id, schema_id, version, call_id, amount, number, flags, ext_length."""
QUICK: Final = Struct("<QQQIHH")
"""The same with the first four fields as one number: see `kind_of`."""
HEAD_LENGTH: Final = 32
NUMBER_MAX: Final = 0xFFFF_FFFF
"""The greatest `number` of a message."""
EXTENSIONS_MAX: Final = 1_024
"""Most bytes of all extensions of a message."""
EXTENSION_TEXT_MAX: Final = 255
"""Most bytes of a text in an extension."""
INSTANCE_LENGTH: Final = 16
"""Bytes that tell a client, or a server, from its predecessor."""
CALL_KEY: Final = 8
"""Bytes of the id of a call in a key, behind the instance of its client."""
KEY_LENGTH: Final = INSTANCE_LENGTH + CALL_KEY
RETRY_AFTER_LENGTH: Final = 4
EXTENSION: Final = Struct("<HH")
ALIGNMENT: Final = 4
SBE_HEADER_LENGTH: Final = 8

assert QUICK.size == HEAD.size == HEAD_LENGTH == SBE_HEADER_LENGTH + BLOCK_LENGTH


# The same as plain numbers, for where each message passes: an operation on an `IntFlag` costs as
# much as the rest of the envelope.
LAST: Final = 1
IDEMPOTENT: Final = 2
REPEATED: Final = 4
CONTINUED: Final = 8
NEVER_BEGUN: Final = 32
INTERRUPTED: Final = 64


@final
class Template(IntEnum):
    """What a message is, and what its fields `amount` and `number` mean.

    Attributes:
        HELLO: A client begins a link; the version of the message is the lowest that it speaks,
            number the highest. Extensions: service, instance, name.
        WELCOME: A server accepts it, in the version that both speak; number is how many calls at
            once, amount the most bytes of a payload. Extension: instance.
        CALL: A client calls; number is the method, amount the nanoseconds until the deadline (0:
            none).
        REPLY: The answer of a server ends the call; amount is nanoseconds in the handler.
        ITEM: One element of a stream, of either side; amount is its sequence number, from 0.
        END: This side sends no more elements; amount is how many there were.
        ERROR: A server ends the call; number is a `Status`. Of call 0: the link itself; amount is
            the highest version that the server speaks, if it is about that. A client says so why
            it cannot use the server, before it leaves.
        CANCEL: A client ends the call.
        CREDIT: What the peer may send, as totals since the call began: amount in elements, number
            in KiB, modulo 2**32. Of call 0: amount is how many calls at once.
        PING: A client wants to know whether its server is there; amount is a nonce.
        PONG: The answer, with the same nonce. Extension: instance.
        GOAWAY: A server takes no new calls; number is how many milliseconds it stays.
    """

    HELLO = 1
    WELCOME = 2
    CALL = 3
    REPLY = 4
    ITEM = 5
    END = 6
    ERROR = 7
    CANCEL = 8
    CREDIT = 9
    PING = 10
    PONG = 11
    GOAWAY = 12


@final
class CallFlag(IntFlag):
    """Flags of a message; readers ignore those that they do not know.

    Attributes:
        LAST: The sender sends nothing more in this direction of the call.
        IDEMPOTENT: The call may run more than once.
        REPEATED: The call was sent before, to this server or another; see `Extension.KEY`.
        CONTINUED: The payload goes on in the next ITEM of the call.
        DETAIL: The payload is the detail of an error.
        NEVER_BEGUN: The call did not begin; it is safe to send it again.
        INTERRUPTED: The server closes while the call runs; it may have run.
    """

    LAST = 1
    IDEMPOTENT = 2
    REPEATED = 4
    CONTINUED = 8
    DETAIL = 16
    NEVER_BEGUN = 32
    INTERRUPTED = 64


@final
class Extension(IntEnum):
    """Types of extensions; readers skip those that they do not know.

    Attributes:
        TRACEPARENT: 26 bytes, W3C's trace context.
        TRACESTATE: Text.
        SERVICE: Text.
        INSTANCE: 16 random bytes, new for each process and link.
        NAME: Text for logs.
        KEY: The instance of the client (16 bytes) and the id of the first attempt (8 bytes).
        ERROR_TYPE: Text: the class of the error at the server.
        RETRY_AFTER: Milliseconds, 4 bytes.
        SCHEMA: Schema id and version of the payload, 2 bytes each.
        METHOD: Id (4 bytes), flags (2 bytes), and the name of a method.
    """

    TRACEPARENT = 1
    TRACESTATE = 2
    SERVICE = 3
    INSTANCE = 4
    NAME = 5
    KEY = 6
    ERROR_TYPE = 7
    RETRY_AFTER = 8
    SCHEMA = 9
    METHOD = 10


def kind_of(template: int) -> int:
    """Return the first 8 bytes of a message of this version as `QUICK` has them."""
    return BLOCK_LENGTH | template << 16 | SCHEMA_ID << 32 | VERSION << 48


def head(
    template: int,
    call_id: int,
    *,
    amount: int = 0,
    number: int = 0,
    flags: int = 0,
    extensions: bytes = b"",
) -> bytes:
    """Return what goes before a payload: the 32 bytes, and packed extensions."""
    return (
        HEAD.pack(
            BLOCK_LENGTH,
            template,
            SCHEMA_ID,
            VERSION,
            call_id,
            amount,
            number,
            flags,
            len(extensions),
        )
        + extensions
    )


def check_version(version: int) -> None:
    """Check the version of a message: what a later one means is not known here.

    Raises:
        ProtocolError: It is a later one.
    """
    if version > VERSION:
        message = f"version {version} of calls, where {VERSION} is spoken"
        raise ProtocolError(message)


def body_offset(schema_id: int, block_length: int, ext_length: int, message_length: int) -> int:
    """Return where the payload of a message begins.

    Raises:
        ProtocolError: It is of another schema, its block is shorter than version 1, or the message
            than what it announces.
    """
    if schema_id != SCHEMA_ID:
        message = f"schema {schema_id}, where calls have {SCHEMA_ID}"
        raise ProtocolError(message)
    if block_length < BLOCK_LENGTH:
        message = f"a block of {block_length} bytes, where {BLOCK_LENGTH} are the least"
        raise ProtocolError(message)
    if ext_length > EXTENSIONS_MAX:
        message = f"{ext_length} bytes of extensions; at most {EXTENSIONS_MAX}"
        raise ProtocolError(message)
    offset = SBE_HEADER_LENGTH + block_length + ext_length
    if offset > message_length:
        message = f"{message_length} bytes, of {offset} that the envelope announces"
        raise ProtocolError(message)
    return offset


def pack_extensions(given: Iterable[tuple[int, bytes]]) -> bytes:
    """Return extensions as they go into a message.

    Raises:
        ConfigurationError: They are longer than `EXTENSIONS_MAX` together.
    """
    parts = []
    for type_id, value in given:
        parts.append(EXTENSION.pack(type_id, len(value)))
        parts.append(value + bytes(-len(value) % ALIGNMENT))
    packed = b"".join(parts)
    if len(packed) > EXTENSIONS_MAX:
        message = (
            f"extensions of {len(packed)} bytes; at most {EXTENSIONS_MAX}: shorten the name, the "
            f"service or the trace state"
        )
        raise ConfigurationError(message)
    return packed


def extensions_of(data: bytes, block_length: int, ext_length: int) -> dict[int, bytes]:
    """Return the extensions of a message whose `body_offset` was computed; the last of a type wins.

    Raises:
        ProtocolError: One ends behind all of them.
    """
    found: dict[int, bytes] = {}
    at = SBE_HEADER_LENGTH + block_length
    end = at + ext_length
    while at < end:
        if end - at < EXTENSION.size:
            message = f"{end - at} bytes are left where an extension begins"
            raise ProtocolError(message)
        type_id, length = EXTENSION.unpack_from(data, at)
        at += EXTENSION.size
        if length > end - at:
            message = f"an extension of {length} bytes where {end - at} are left"
            raise ProtocolError(message)
        found[type_id] = bytes(data[at : at + length])
        at += length + -length % ALIGNMENT
    return found


def checked(payload: object, what: str) -> bytes | bytearray:
    """Return a payload, whose length is in bytes: that of a view is in its items.

    Args:
        payload: What a program gives.
        what: The subject of the error, such as "a request".

    Raises:
        TypeError: It is no bytes.
    """
    if isinstance(payload, bytes | bytearray):
        return payload
    buffer: Any = payload
    try:
        return memoryview(buffer).tobytes()
    except TypeError:
        message = f"{what} is bytes, not {type(payload).__name__}"
        raise TypeError(message) from None


def check_payload(payload: bytes, payload_max: int) -> None:
    """Check the length of a payload that has come.

    Raises:
        ProtocolError: It is longer.
    """
    if len(payload) > payload_max:
        message = f"a payload of {len(payload)} bytes; raise payload_max from {payload_max}"
        raise ProtocolError(message)


def text_of(value: str) -> bytes:
    """Return a text as an extension holds it, cut to `EXTENSION_TEXT_MAX` bytes."""
    return value.encode("utf-8", "replace")[:EXTENSION_TEXT_MAX]


def method_id(service: str, name: str) -> int:
    """Return the number of a method: CRC-32 of `service/name`, which peers compute alike."""
    return zlib.crc32(f"{service}/{name}".encode())


def failure_of(
    method: str, number: int, flags: int, body: bytes, extensions: dict[int, bytes]
) -> CallFailedError:
    """Return the error that a server has answered."""
    try:
        status = Status(number)
    except ValueError:
        status = Status.UNKNOWN
    retry_after = extensions.get(Extension.RETRY_AFTER, b"")
    text = body.decode("utf-8", "replace")
    return CallFailedError(
        f"{method}: {text or status.name}",
        status=status,
        error_type=extensions.get(Extension.ERROR_TYPE, b"").decode("utf-8", "replace"),
        is_never_begun=bool(flags & NEVER_BEGUN),
        retry_after_ms=int.from_bytes(retry_after, "little")
        if len(retry_after) == RETRY_AFTER_LENGTH
        else None,
    )
