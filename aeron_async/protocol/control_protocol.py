"""The commands of clients to a driver and its responses, as records of shared memory carry them.

A record has a type id and a body; this is the body. All fields are little-endian and packed. A text
has its length in front, 32 bits, and no terminator; a text after another begins at a multiple of 4.

Bytes behind the last field are accepted and ignored, because official clients send some. A body
that is too short for its fields, and a length below 0 or beyond the body, is refused.

Texts are bytes: nothing here says that what another process writes is text. `text_of` decodes.

Source: Aeron `ControlProtocolEvents`, `aeron_control_protocol.h`, the classes of
`io.aeron.command`.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from struct import Struct
from typing import Any, ClassVar, Final, Self

import attrs

from aeron_async.errors import ProtocolError
from aeron_async.protocol.units import INT32_MAX, align

__all__ = [
    "NO_COUNTER",
    "NO_ID",
    "AddCounter",
    "AddDestination",
    "AddExclusivePublication",
    "AddPublication",
    "AddReceiveDestination",
    "AddStaticCounter",
    "AddSubscription",
    "AddressType",
    "ClientClose",
    "ClientCommand",
    "ClientKeepalive",
    "ClientTimeout",
    "ControlMessage",
    "CounterReady",
    "ErrorResponse",
    "ExclusivePublicationBuffersReady",
    "GetNextAvailableSessionId",
    "ImageBuffersReady",
    "NextAvailableSessionId",
    "OperationSucceeded",
    "PublicationBuffersReady",
    "PublicationErrorResponse",
    "RejectImage",
    "RemoveCounter",
    "RemoveDestination",
    "RemoveDestinationById",
    "RemovePublication",
    "RemovePublicationFlags",
    "RemoveReceiveDestination",
    "RemoveSubscription",
    "StaticCounterReady",
    "SubscriptionReadyResponse",
    "TerminateDriver",
    "UnavailableCounter",
    "UnavailableImage",
    "command_of",
    "response_of",
    "text_of",
]

NO_ID: Final = -1
NO_COUNTER: Final = -1
LENGTH_SIZE: Final = 4
KIND: Final = "kind"


# How fields are written.


def i64(default: int | None = None) -> Any:
    """Declare a field of 64 bits."""
    return number("q", default)


def i32(default: int | None = None) -> Any:
    """Declare a field of 32 bits."""
    return number("i", default)


def number(code: str, default: int | None) -> Any:
    """Declare a number with a code of `struct`."""
    metadata = {KIND: code}
    if default is None:
        return attrs.field(metadata=metadata)
    return attrs.field(default=default, metadata=metadata)


def text() -> Any:
    """Declare a text, with its length in front."""
    return attrs.field(metadata={KIND: "text"}, validator=length_between(0, INT32_MAX))


def fixed(length: int) -> Any:
    """Declare bytes of one length."""
    return attrs.field(metadata={KIND: f"{length}s"}, validator=length_between(length, length))


def length_between(least: int, most: int) -> Any:
    """Return a validator of the length of bytes."""

    def check(_: object, attribute: attrs.Attribute[bytes], value: bytes) -> None:
        if not least <= len(value) <= most:
            limit = f"{least}" if least == most else f"at most {most}"
            message = f"{attribute.name} of {len(value)} bytes: it must have {limit}"
            raise ProtocolError(message)

    return check


def text_of(data: bytes) -> str:
    """Return bytes that another process wrote as text; what is no UTF-8 is escaped."""
    return data.decode("utf-8", "backslashreplace")


@attrs.frozen(kw_only=True)
class Part:
    """Numbers that follow one another, and perhaps a text that follows them."""

    names: tuple[str, ...]
    numbers: Struct
    text_name: str | None


PARTS: Final[dict[type[Any], tuple[Part, ...]]] = {}
"""The parts of each message type that was encoded or decoded before."""


def parts_of(kind: type[Any]) -> tuple[Part, ...]:
    """Return a message type's fields in their order, as parts."""
    if kind not in PARTS:
        PARTS[kind] = make_parts(kind)
    return PARTS[kind]


def make_parts(kind: type[Any]) -> tuple[Part, ...]:
    """Divide the fields of a message type into parts."""
    parts: list[Part] = []
    names: list[str] = []
    codes = ""
    for each in attrs.fields(kind):
        if each.metadata[KIND] == "text":
            parts.append(Part(names=tuple(names), numbers=Struct(f"<{codes}"), text_name=each.name))
            names, codes = [], ""
        else:
            names.append(each.name)
            codes += each.metadata[KIND]
    if names:
        parts.append(Part(names=tuple(names), numbers=Struct(f"<{codes}"), text_name=None))
    return tuple(parts)


@attrs.frozen(kw_only=True)
class ControlMessage:
    """A command or a response."""

    TYPE_ID: ClassVar[int] = 0
    LEAST_LENGTH: ClassVar[int] = 0
    """Bytes that the body is filled up to with zeros."""

    def encode(self) -> bytes:
        """Return the body.

        Raises:
            ProtocolError: A number does not fit its field.
        """
        body = bytearray()
        try:
            for part in parts_of(type(self)):
                body += bytes(align(len(body), LENGTH_SIZE) - len(body))
                body += part.numbers.pack(*(getattr(self, name) for name in part.names))
                if part.text_name is not None:
                    data: bytes = getattr(self, part.text_name)
                    body += len(data).to_bytes(LENGTH_SIZE, "little") + data
        except struct.error as problem:
            message = f"{type(self).__name__} cannot be encoded: {problem}"
            raise ProtocolError(message) from None
        return bytes(body).ljust(self.LEAST_LENGTH, b"\0")

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Return the message in a body.

        Raises:
            ProtocolError: The body is too short, or a length in it is negative or too large.
        """
        values: dict[str, Any] = {}
        offset = 0
        for part in parts_of(cls):
            offset = align(offset, LENGTH_SIZE)
            end = offset + part.numbers.size
            cls.check_fits(end, body)
            values.update(zip(part.names, part.numbers.unpack_from(body, offset), strict=True))
            offset = end
            if part.text_name is not None:
                offset = end + LENGTH_SIZE
                cls.check_fits(offset, body)
                length = int.from_bytes(body[end:offset], "little", signed=True)
                if not 0 <= length <= len(body) - offset:
                    message = (
                        f"{cls.__name__}: {part.text_name} of {length} bytes, where "
                        f"{len(body) - offset} follow"
                    )
                    raise ProtocolError(message)
                values[part.text_name] = body[offset : offset + length]
                offset += length
        return cls(**values)

    @classmethod
    def check_fits(cls, end: int, body: bytes) -> None:
        """Refuse a body that ends before `end`."""
        if end > len(body):
            message = f"{cls.__name__} of {len(body)} bytes: at least {end} are needed"
            raise ProtocolError(message)


# Commands.


@attrs.frozen(kw_only=True)
class ClientCommand(ControlMessage):
    """A command of a client.

    Attributes:
        client_id: The client that sends it.
        correlation_id: Names the command in its response; -1 for a command without one.
    """

    client_id: int = i64()
    correlation_id: int = i64()


@attrs.frozen(kw_only=True)
class AddPublication(ClientCommand):
    """Add a publication that clients share; answered by `PublicationBuffersReady`."""

    TYPE_ID: ClassVar[int] = 0x01

    stream_id: int = i32()
    channel: bytes = text()


class RemovePublicationFlags(IntFlag):
    """Flags of `RemovePublication`."""

    REVOKE = 1


@attrs.frozen(kw_only=True)
class RemovePublication(ClientCommand):
    """Remove a publication; answered by `OperationSucceeded`."""

    TYPE_ID: ClassVar[int] = 0x02

    registration_id: int = i64()
    flags: int = number("Q", 0)

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Return the message; old clients send none of the flags."""
        without_flags = parts_of(cls)[0].numbers.size - 8
        if without_flags <= len(body) < without_flags + 8:
            body = body[:without_flags] + bytes(8)
        return super().decode(body)


@attrs.frozen(kw_only=True)
class AddExclusivePublication(AddPublication):
    """Add a publication of one client; answered by `ExclusivePublicationBuffersReady`."""

    TYPE_ID: ClassVar[int] = 0x03


@attrs.frozen(kw_only=True)
class AddSubscription(ClientCommand):
    """Add a subscription; answered by `SubscriptionReadyResponse`.

    Each image, now or later, is announced by an `ImageBuffersReady`.

    Attributes:
        registration_correlation_id: Always -1.
    """

    TYPE_ID: ClassVar[int] = 0x04

    registration_correlation_id: int = i64(NO_ID)
    stream_id: int = i32()
    channel: bytes = text()


@attrs.frozen(kw_only=True)
class RemoveSubscription(ClientCommand):
    """Remove a subscription; answered by `OperationSucceeded`."""

    TYPE_ID: ClassVar[int] = 0x05

    registration_id: int = i64()


@attrs.frozen(kw_only=True)
class ClientKeepalive(ClientCommand):
    """Say that the client lives; it has no answer, and clients of today write a counter instead."""

    TYPE_ID: ClassVar[int] = 0x06

    correlation_id: int = i64(NO_ID)


@attrs.frozen(kw_only=True)
class AddDestination(ClientCommand):
    """Add a destination to a publication; answered by `OperationSucceeded`.

    Attributes:
        registration_id: Of the publication, or of the subscription in a subclass.
    """

    TYPE_ID: ClassVar[int] = 0x07

    registration_id: int = i64()
    channel: bytes = text()


@attrs.frozen(kw_only=True)
class RemoveDestination(AddDestination):
    """Remove a destination from a publication; answered by `OperationSucceeded`."""

    TYPE_ID: ClassVar[int] = 0x08


@attrs.frozen(kw_only=True)
class AddCounter(ClientCommand):
    """Add a counter of the client; answered by `CounterReady`."""

    TYPE_ID: ClassVar[int] = 0x09

    counter_type_id: int = i32()
    key: bytes = text()
    label: bytes = text()


@attrs.frozen(kw_only=True)
class RemoveCounter(ClientCommand):
    """Remove a counter; answered by `OperationSucceeded`, then `UnavailableCounter`."""

    TYPE_ID: ClassVar[int] = 0x0A

    registration_id: int = i64()


@attrs.frozen(kw_only=True)
class ClientClose(ClientCommand):
    """Remove the client and all that it has added; it has no answer."""

    TYPE_ID: ClassVar[int] = 0x0B

    correlation_id: int = i64(NO_ID)


@attrs.frozen(kw_only=True)
class AddReceiveDestination(AddDestination):
    """Add a destination to a subscription; answered by `OperationSucceeded`."""

    TYPE_ID: ClassVar[int] = 0x0C


@attrs.frozen(kw_only=True)
class RemoveReceiveDestination(AddDestination):
    """Remove a destination from a subscription; answered by `OperationSucceeded`."""

    TYPE_ID: ClassVar[int] = 0x0D


@attrs.frozen(kw_only=True)
class TerminateDriver(ClientCommand):
    """Ask the driver to end, if its validator accepts the token; it has no answer."""

    TYPE_ID: ClassVar[int] = 0x0E

    correlation_id: int = i64(NO_ID)
    token: bytes = text()


@attrs.frozen(kw_only=True)
class AddStaticCounter(ClientCommand):
    """Add a counter that outlives its client; answered by `StaticCounterReady`."""

    TYPE_ID: ClassVar[int] = 0x0F

    registration_id: int = i64()
    counter_type_id: int = i32()
    key: bytes = text()
    label: bytes = text()


@attrs.frozen(kw_only=True)
class RejectImage(ClientCommand):
    """Reject an image; answered by `OperationSucceeded`.

    Attributes:
        image_id: Of the image.
        position: At which it is rejected, in bytes.
        reason: Any text; a driver refuses more than 1023 bytes.
    """

    TYPE_ID: ClassVar[int] = 0x10
    # The C driver drops a shorter one as malformed.
    LEAST_LENGTH: ClassVar[int] = 40

    image_id: int = i64()
    position: int = i64()
    reason: bytes = text()


@attrs.frozen(kw_only=True)
class RemoveDestinationById(ClientCommand):
    """Remove a destination from a publication by its id; answered by `OperationSucceeded`.

    Attributes:
        registration_id: Of the publication.
        destination_registration_id: Correlation id of the command that added the destination.
    """

    TYPE_ID: ClassVar[int] = 0x11

    registration_id: int = i64()
    destination_registration_id: int = i64()


@attrs.frozen(kw_only=True)
class GetNextAvailableSessionId(ClientCommand):
    """Ask for a session id that no publication has; answered by `NextAvailableSessionId`."""

    TYPE_ID: ClassVar[int] = 0x12

    stream_id: int = i32()


# Responses.


@attrs.frozen(kw_only=True)
class ErrorResponse(ControlMessage):
    """A command was refused.

    Attributes:
        correlation_id: Of the command; with code 4, the id of a channel status counter.
        code: One of `ErrorCode`, or a number that this version does not know.
    """

    TYPE_ID: ClassVar[int] = 0x0F01

    correlation_id: int = i64()
    code: int = i32()
    message: bytes = text()


@attrs.frozen(kw_only=True)
class ImageBuffersReady(ControlMessage):
    """A subscription has an image."""

    TYPE_ID: ClassVar[int] = 0x0F02

    image_id: int = i64()
    session_id: int = i32()
    stream_id: int = i32()
    subscription_registration_id: int = i64()
    subscriber_position_id: int = i32()
    log_file: bytes = text()
    source_identity: bytes = text()


@attrs.frozen(kw_only=True)
class PublicationBuffersReady(ControlMessage):
    """A publication was added.

    Attributes:
        registration_id: Of the publication itself, which other commands may share.
    """

    TYPE_ID: ClassVar[int] = 0x0F03

    correlation_id: int = i64()
    registration_id: int = i64()
    session_id: int = i32()
    stream_id: int = i32()
    publisher_limit_id: int = i32()
    channel_status_id: int = i32()
    log_file: bytes = text()


@attrs.frozen(kw_only=True)
class OperationSucceeded(ControlMessage):
    """A command without other results was executed."""

    TYPE_ID: ClassVar[int] = 0x0F04

    correlation_id: int = i64()


@attrs.frozen(kw_only=True)
class UnavailableImage(ControlMessage):
    """An image of a subscription has ended."""

    TYPE_ID: ClassVar[int] = 0x0F05

    image_id: int = i64()
    subscription_registration_id: int = i64()
    stream_id: int = i32()
    channel: bytes = text()


@attrs.frozen(kw_only=True)
class ExclusivePublicationBuffersReady(PublicationBuffersReady):
    """An exclusive publication was added."""

    TYPE_ID: ClassVar[int] = 0x0F06


@attrs.frozen(kw_only=True)
class SubscriptionReadyResponse(ControlMessage):
    """A subscription was added.

    Attributes:
        channel_status_id: Id of a counter; -1 for IPC and spies.
    """

    TYPE_ID: ClassVar[int] = 0x0F07

    correlation_id: int = i64()
    channel_status_id: int = i32()


@attrs.frozen(kw_only=True)
class CounterReady(ControlMessage):
    """A counter was added; with the id of a client, the counter of its heartbeat."""

    TYPE_ID: ClassVar[int] = 0x0F08

    correlation_id: int = i64()
    counter_id: int = i32()


@attrs.frozen(kw_only=True)
class UnavailableCounter(ControlMessage):
    """A counter was removed."""

    TYPE_ID: ClassVar[int] = 0x0F09

    registration_id: int = i64()
    counter_id: int = i32()


@attrs.frozen(kw_only=True)
class ClientTimeout(ControlMessage):
    """The driver has removed a client that it had not heard for too long."""

    TYPE_ID: ClassVar[int] = 0x0F0A

    client_id: int = i64()


@attrs.frozen(kw_only=True)
class StaticCounterReady(CounterReady):
    """A static counter was added, or was there."""

    TYPE_ID: ClassVar[int] = 0x0F0B


class AddressType(IntEnum):
    """The kind of address in a `PublicationErrorResponse`."""

    NONE = 0
    IPV4 = 1
    IPV6 = 2


@attrs.frozen(kw_only=True)
class PublicationErrorResponse(ControlMessage):
    """A receiver rejected a stream.

    Attributes:
        registration_id: Of the publication.
        destination_registration_id: Of the destination it came from, or -1.
        address_type: One of `AddressType`.
        source_port: UDP port of the receiver.
        source_address: 16 bytes, of which the first four are an IPv4 address.
        code: One of `ErrorCode`.
    """

    TYPE_ID: ClassVar[int] = 0x0F0C
    # A C client refuses a shorter one as malformed.
    LEAST_LENGTH: ClassVar[int] = 72

    registration_id: int = i64()
    destination_registration_id: int = i64(NO_ID)
    session_id: int = i32()
    stream_id: int = i32()
    receiver_id: int = i64()
    group_tag: int = i64(NO_ID)
    address_type: int = number("h", None)
    source_port: int = number("H", None)
    source_address: bytes = fixed(16)
    code: int = i32()
    message: bytes = text()


@attrs.frozen(kw_only=True)
class NextAvailableSessionId(ControlMessage):
    """A session id that no publication of that stream has."""

    TYPE_ID: ClassVar[int] = 0x0F0D

    correlation_id: int = i64()
    session_id: int = i32()


# By type id.

COMMANDS: Final[dict[int, type[ClientCommand]]] = {
    each.TYPE_ID: each
    for each in (
        *(AddPublication, RemovePublication, AddExclusivePublication, AddSubscription),
        *(RemoveSubscription, ClientKeepalive, AddDestination, RemoveDestination, AddCounter),
        *(RemoveCounter, ClientClose, AddReceiveDestination, RemoveReceiveDestination),
        *(TerminateDriver, AddStaticCounter, RejectImage, RemoveDestinationById),
        GetNextAvailableSessionId,
    )
}
RESPONSES: Final[dict[int, type[ControlMessage]]] = {
    each.TYPE_ID: each
    for each in (
        *(
            ErrorResponse,
            ImageBuffersReady,
            PublicationBuffersReady,
            OperationSucceeded,
            UnavailableImage,
        ),
        *(
            ExclusivePublicationBuffersReady,
            SubscriptionReadyResponse,
            CounterReady,
            UnavailableCounter,
        ),
        *(ClientTimeout, StaticCounterReady),
        *(PublicationErrorResponse, NextAvailableSessionId),
    )
}


def command_of(type_id: int, body: bytes) -> ClientCommand | None:
    """Return the command of a record; None for a type id that is unknown.

    Raises:
        ProtocolError: The body is malformed.
    """
    kind = COMMANDS.get(type_id)
    return None if kind is None else kind.decode(body)


def response_of(type_id: int, body: bytes) -> ControlMessage | None:
    """Return the response of a record; None for a type id that is unknown.

    Raises:
        ProtocolError: The body is malformed.
    """
    kind = RESPONSES.get(type_id)
    return None if kind is None else kind.decode(body)
