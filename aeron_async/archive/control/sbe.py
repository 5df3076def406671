"""Simple Binary Encoding, as much of it as archives need: numbers, then texts.

A message is a header of four 16-bit numbers (block length, template, schema, version), a block of
32-bit and 64-bit numbers without gaps, and then texts or bytes, each after its length in 32 bits;
all little endian. The block length of the sender counts: the block of a newer sender is longer, and
its rest is skipped; that of an older sender is shorter, and missing fields have their defaults.

Invariant: no number in a message makes the decoder allocate memory; a length must be covered by the
bytes that are there.

Source: the Simple Binary Encoding specification; Aeron `aeron-archive-codecs.xml`.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812 - a class, in spite of its name
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, NoReturn, get_type_hints

import attrs

from aeron_async.errors import ConfigurationError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["HEADER", "Data", "Int32", "Int64", "SbeMessage", "SbeMessageCodec", "Text"]

HEADER: Final = Struct("<HHHH")
LENGTH: Final = Struct("<I")
TEXT: Final = "text"
DATA: Final = "data"

Int32 = Annotated[int, "i"]
Int64 = Annotated[int, "q"]
Text = Annotated[str, TEXT]
Data = Annotated[bytes, DATA]


class SbeMessage:
    """Base of messages: a frozen class whose fields are those on the wire, in order.

    Attributes:
        TEMPLATE: Its number in the schema.
    """

    __slots__ = ()

    TEMPLATE: ClassVar[int]


class Layout:
    """Byte layout of one kind of message."""

    def __init__(self, kind: type[SbeMessage]) -> None:
        self.kind = kind
        hints = get_type_hints(kind, include_extras=True)
        fields = [(each, hints[each.name].__metadata__[0]) for each in _fields(kind)]
        numbers = [(each, code) for each, code in fields if code not in {TEXT, DATA}]
        self.numbers: list[str] = [each.name for each, _ in numbers]
        self.texts: list[tuple[str, Any]] = [
            (each.name, code) for each, code in fields if code in {TEXT, DATA}
        ]
        self.defaults: dict[str, Any | None] = {
            each.name: each.default for each, _ in fields if each.default is not attrs.NOTHING
        }
        codes = [code for _, code in numbers]
        self.block: Struct = Struct("<" + "".join(codes))
        # Blocks of older senders: the first numbers only, for each count of them.
        self.prefixes: list[Struct] = [
            Struct("<" + "".join(codes[:count])) for count in range(len(codes) + 1)
        ]

    def encode(self, message: SbeMessage, *, schema_id: int, version: int) -> bytes:
        """Return the bytes of a message."""
        header = HEADER.pack(self.block.size, self.kind.TEMPLATE, schema_id, version)
        parts = [header, self.block.pack(*(getattr(message, name) for name in self.numbers))]
        for name, code in self.texts:
            value = getattr(message, name)
            # As in the official archive: a character that is not ASCII becomes a question mark.
            data = value.encode("ascii", "replace") if code == TEXT else value
            parts += (LENGTH.pack(len(data)), data)
        return b"".join(parts)

    def decode(self, data: memoryview, block_length: int) -> SbeMessage:
        """Return the message whose block begins after the header.

        Raises:
            ProtocolError: The message ends early, or lacks a field without a default.
        """
        at = HEADER.size + block_length
        if at > len(data):
            self.refuse(f"a block of {block_length} bytes in {len(data)}")
        values: dict[str, Any] = dict(self.defaults)
        block = max(
            (each for each in self.prefixes if each.size <= block_length),
            key=lambda each: each.size,
        )
        values.update(zip(self.numbers, block.unpack_from(data, HEADER.size), strict=False))
        for name, code in self.texts:
            if at == len(data) and name in self.defaults:
                break
            if at + LENGTH.size > len(data):
                self.refuse(f"{len(data)} bytes end before the length of {name}")
            (length,) = LENGTH.unpack_from(data, at)
            at += LENGTH.size
            if length > len(data) - at:
                self.refuse(f"{name} of {length} bytes where {len(data) - at} are left")
            value = bytes(data[at : at + length])
            values[name] = value.decode("ascii", "replace") if code == TEXT else value
            at += length
        missing = [name for name in self.numbers if name not in values]
        if missing:
            self.refuse(f"a block of {block_length} bytes lacks {', '.join(missing)}")
        return self.kind(**values)

    def refuse(self, what: str) -> NoReturn:
        """Raise an error about a message.

        Raises:
            ProtocolError: Always.
        """
        message = f"{self.kind.__name__}, template {self.kind.TEMPLATE}: {what}"
        raise ProtocolError(message)


class SbeMessageCodec:
    """Encodes and decodes the messages of one schema.

    Args:
        schema_id: Id of the schema.
        version: Version of the schema that this side writes.
        kinds: Classes of all messages.
    """

    def __init__(self, *, schema_id: int, version: int, kinds: Iterable[type[SbeMessage]]) -> None:
        self.schema_id = schema_id
        self.version = version
        self._layouts = {kind.TEMPLATE: Layout(kind) for kind in kinds}

    def encode(self, message: SbeMessage) -> bytes:
        """Return the bytes of a message.

        Raises:
            ConfigurationError: A number does not fit.
        """
        layout = self._layouts[message.TEMPLATE]
        try:
            return layout.encode(message, schema_id=self.schema_id, version=self.version)
        except StructError as error:
            text = f"{message} has a number that does not fit: {error}"
            raise ConfigurationError(text) from None

    def decode(self, data: bytes | memoryview) -> SbeMessage:
        """Decode a message; bytes after its end are ignored.

        Raises:
            ProtocolError: The bytes belong to another schema, or end early.
        """
        view = memoryview(data)
        if len(view) < HEADER.size:
            message = f"a message of {len(view)} bytes, shorter than its header of {HEADER.size}"
            raise ProtocolError(message)
        block_length, template, schema_id, _ = HEADER.unpack_from(view)
        if schema_id != self.schema_id:
            message = f"expected schemaId={self.schema_id}, actual={schema_id}"
            raise ProtocolError(message)
        layout = self._layouts.get(template)
        if layout is None:
            message = f"unknown template {template} of schema {schema_id}"
            raise ProtocolError(message)
        return layout.decode(view, block_length)


def _fields(kind: type[SbeMessage]) -> tuple[attrs.Attribute[Any], ...]:
    # The types do not show that every kind is an attrs class.
    fields: tuple[attrs.Attribute[Any], ...] = attrs.fields(kind)  # type: ignore[arg-type]
    return fields
