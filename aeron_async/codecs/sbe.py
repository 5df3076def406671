"""Codecs of messages in Simple Binary Encoding, generated from a schema.

Header and block are unpacked in one call. Messages of older versions, and those that are damaged,
take a longer way, which reads field by field and says what is wrong.

Invariant: no length in a payload decides an allocation. Each entry of a group takes at least a
byte of the message, data ends where the message does, and a message has at most `max_entries`.

Source: FIX Simple Binary Encoding 1.0, "Message Structure" and "Schema Extension Mechanism".
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast, final

from aeron_async.codecs.base import column_module
from aeron_async.codecs.generating import (
    ENCODE_ERRORS,
    FORMATS,
    Scope,
    constants_of,
    padding,
    python_name,
    record_type,
    variable_fields,
)
from aeron_async.codecs.layout import Char, Composite, EnumType, Primitive
from aeron_async.errors import ConfigurationError, DecodeError, EncodeError
from aeron_async.protocol.arguments import check_number, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aeron_async.codecs.base import Payload
    from aeron_async.codecs.columns import ColumnDecoder
    from aeron_async.codecs.layout import (
        Block,
        Data,
        Encoding,
        Field,
        GroupSchema,
        Header,
        MessageSchema,
    )

__all__ = ["MAX_ENTRIES", "SbeCodec", "SbeUnionCodec"]

T = TypeVar("T")
MAX_ENTRIES: Final = 65_536
"""Most entries of all groups of one message, by default: each is a value of its own."""


@final
class EntriesLeft:
    """How many entries of groups one message may still have.

    Args:
        limit: How many of them all its groups together may have.
    """

    __slots__ = ("left", "limit")

    def __init__(self, limit: int) -> None:
        self.left = self.limit = limit

    def take(self, count: int, name: str) -> None:
        """Count those of one group.

        Raises:
            DecodeError: They are too many.
        """
        self.left -= count
        if self.left < 0:
            message = (
                f"group {name} has {count} entries: with them the message has more than "
                f"{self.limit}; raise max_entries, or decode columns"
            )
            raise DecodeError(message)


@final
class HeaderStruct:
    """Numbers of a header as one struct, in the order of their offsets.

    Args:
        header: The layout.
        order: `<` or `>`.

    Attributes:
        names: Names of the numbers, in the order of the struct.
        width: Width in bytes.
    """

    def __init__(self, header: Header, order: str) -> None:
        places = sorted(header.numbers.items(), key=lambda item: item[1][0])
        self.names = [name for name, _ in places]
        self.width = header.width
        self.format = ""
        place = 0
        for _, (offset, number) in places:
            self.format += padding(offset - place) + FORMATS[number.code]
            place = offset + number.width
        self.format += padding(header.width - place)
        self.struct = struct.Struct(order + self.format)

    def read(self, data: Payload, place: int) -> dict[str, int]:
        """Return the numbers by name."""
        return dict(zip(self.names, self.struct.unpack_from(data, place), strict=True))

    def pack(self, **numbers: int) -> bytes:
        """Return the header with these numbers."""
        return self.struct.pack(*[numbers[name] for name in self.names])


@final
class BlockCodec:
    """Reads and writes one block: fields, then groups, then data.

    Args:
        block: The layout.
        name: Name of the message or group.
        order: `<` or `>`.
        into: Makes the value; None for a named tuple.
    """

    def __init__(
        self, block: Block, name: str, order: str, into: Callable[..., Any] | None = None
    ) -> None:
        self.block = block
        self.scope = Scope(name, order)
        self.fields = variable_fields(block.fields)
        self.groups = [GroupCodec(group, order) for group in block.groups]
        self.datas = [DataCodec(data, order) for data in block.datas]
        self.parts: list[GroupCodec | DataCodec] = [*self.groups, *self.datas]
        members: list[Field | GroupSchema | Data] = [*self.fields, *block.groups, *block.datas]
        names = [python_name(each.name, name) for each in members]
        defaults: list[Any] = [
            *(
                []
                if not isinstance(each, Primitive | Char | EnumType) or not is_nullable(each)
                else [None]
                for each in (field.encoding for field in self.fields)
            ),
            *([()] for _ in block.groups),
            *(["" if data.is_text else b""] for data in block.datas),
        ]
        first_required = max((i for i, each in enumerate(defaults) if not each), default=-1)
        self.kind = record_type(
            name, names, constants_of(block.fields), [d[0] for d in defaults[first_required + 1 :]]
        )
        self.into = into
        format_, self.variables, self.made = self.scope.reading_fields(block.fields)
        self.struct = struct.Struct(order + format_)
        self.newest_since = max((field.since for field in self.fields), default=0)
        self.readers = [(field.since, field.end, self._reader(field)) for field in self.fields]
        self.tail = padding(block.length - self.struct.size)
        self.members = names
        # Made when a value cannot be encoded: each writes one field.
        self._writers: list[Callable[[Any], bytes]] = []

    def types(self) -> dict[str, type[Any]]:
        """Return the named tuples of composites and of entries of groups, by name."""
        found = dict(self.scope.types)
        for group in self.groups:
            found |= group.types()
        return found

    def make(self, values: Sequence[Any]) -> Any:
        """Return a value of all its members."""
        return self.kind._make(values) if self.into is None else self.into(*values)

    def read(
        self, data: Payload, start: int, length: int, version: int, entries_left: EntriesLeft
    ) -> tuple[Any, int]:
        """Return the value of a block, and where it ends, whatever version has written it."""
        if length < 0 or start + length > len(data):
            message = "a block is longer than its message"
            raise DecodeError(message)
        values = [
            None if version < since or end > length else read(data, start)
            for since, end, read in self.readers
        ]
        place = start + length
        for part in self.parts:
            value, place = part.read(data, place, version, entries_left)
            values.append(value)
        return self.make(values), place

    def write_members(self, value: Any, parts: list[bytes]) -> None:
        """Append groups and data of a value."""
        for name, part in zip(self.members[len(self.fields) :], self.parts, strict=True):
            part.write(getattr(value, name), parts)

    def trouble(self, value: Any, path: str) -> str:
        """Return what of a value cannot be encoded, and why; empty if each part of it can be."""
        if not self._writers:
            self._writers = [
                self._writer(*each) for each in zip(self.fields, self.members, strict=False)
            ]
        for name, field, write in zip(self.members, self.fields, self._writers, strict=False):
            try:
                write(value)
            except ENCODE_ERRORS as error:
                return f"{self._trouble_of(field, name, value, path)}: {error}"
        for name, part in zip(self.members[len(self.fields) :], self.parts, strict=True):
            try:
                found = part.trouble(getattr(value, name), f"{path}.{name}")
            except ENCODE_ERRORS as error:
                return f"{path}.{name}: {error}"
            if found:
                return found
        return ""

    def _trouble_of(self, field: Field, name: str, value: Any, path: str) -> str:
        if not hasattr(value, name):
            return f"{path}: {shown(value)} has not the fields {', '.join(self.members)}"
        given = getattr(value, name)
        if isinstance(field.encoding, Composite):
            kind = self.types()[field.name]
            if not all(hasattr(given, each) for each in kind._fields):
                return f"{path}.{name}={shown(given)} has not the fields {', '.join(kind._fields)}"
        return f"{path}.{name}={shown(given)}"

    def _writer(self, field: Field, name: str) -> Callable[[Any], bytes]:
        """Return a function that writes one field of a value."""
        scope = self.scope
        format_, _, _ = scope.reading(field.encoding, field.name)
        arguments = ", ".join(scope.writing(field.encoding, f"value.{name}"))
        pack = scope.constant(struct.Struct(scope.order + format_).pack)
        return cast(
            "Callable[[Any], bytes]", scope.function(f"made = lambda value: {pack}({arguments})\n")
        )

    def _reader(self, field: Field) -> Callable[[Payload, int], Any]:
        """Return a function that reads one field of a block that begins at a place."""
        scope = self.scope
        format_, variables, made = scope.reading(field.encoding, field.name)
        if not variables:
            return cast(
                "Callable[[Payload, int], Any]", scope.function(f"made = lambda d, p: {made}")
            )
        unpack = scope.constant(
            struct.Struct(scope.order + padding(field.offset) + format_).unpack_from
        )
        source = (
            f"def made(data, place):\n    ({', '.join(variables)},) = {unpack}(data, place)\n"
            f"    return {made}\n"
        )
        return cast("Callable[[Payload, int], Any]", scope.function(source))


def is_nullable(encoding: Encoding) -> bool:
    """Return whether a message can say that a value is not there."""
    if isinstance(encoding, Char):
        return encoding.is_optional
    number = encoding.number if isinstance(encoding, EnumType) else encoding
    return isinstance(number, Primitive) and number.null is not None


@final
class GroupCodec:
    """Reads and writes a repeating group, as a list of named tuples; None in older messages."""

    def __init__(self, group: GroupSchema, order: str) -> None:
        self._name = group.name
        self._since = group.since
        # Entries that take no bytes would let a short message make many of them.
        self._least = group.least
        self._header = HeaderStruct(group.header, order)
        self._block = block = BlockCodec(group.block, group.name, order)
        scope = block.scope
        self._entries: Callable[[Payload], list[Any]] | None = None
        if block.block.is_flat and block.variables:
            iter_unpack = scope.constant(block.struct.iter_unpack)
            variables = f"({', '.join(block.variables)},)"
            made = f"new({scope.constant(block.kind)}, ({block.made}))"
            self._entries = scope.function(
                f"def made(data):\n    return [{made} for {variables} in {iter_unpack}(data)]\n"
            )
        arguments = ", ".join(scope.writing_fields(block.block.fields, "value"))
        pack = scope.constant(struct.Struct(order + self._format()).pack)
        self._pack: Callable[[Any], bytes] = scope.function(
            f"def made(value):\n    return {pack}({arguments})\n"
        )

    def types(self) -> dict[str, type[Any]]:
        """Return the named tuple of an entry, and those within it, by name."""
        name = self._name
        inner = {f"{name}.{key}": kind for key, kind in self._block.types().items()}
        return {name: self._block.kind, **inner}

    def _format(self) -> str:
        return self._block.struct.format[1:] + self._block.tail

    def read(
        self, data: Payload, place: int, version: int, entries_left: EntriesLeft
    ) -> tuple[list[Any] | None, int]:
        """Return the entries of a group, and where it ends."""
        if version < self._since:
            return None, place
        begin = place + self._header.width
        if begin > len(data):
            message = "the message ends within a header of a group or of data"
            raise DecodeError(message)
        numbers = self._header.read(data, place)
        length, count = numbers["blockLength"], numbers["numInGroup"]
        if length < 0 or count < 0 or count * max(length, 1) > len(data) - begin:
            message = f"group {self._name} is longer than its message"
            raise DecodeError(message)
        if length < self._least and count:
            message = f"group {self._name} has entries of {length} bytes, fewer than {self._least}"
            raise DecodeError(message)
        entries_left.take(count, self._name)
        block = self._block
        if (
            self._entries is not None
            and length == block.struct.size
            and version >= block.newest_since
        ):
            end = begin + count * length
            return self._entries(data[begin:end]), end
        entries = []
        for _ in range(count):
            entry, begin = block.read(data, begin, length, version, entries_left)
            entries.append(entry)
        return entries, begin

    def write(self, entries: Sequence[Any] | None, parts: list[bytes]) -> None:
        """Append the header and the entries of a group; None is an empty one."""
        entries = () if entries is None else entries
        block = self._block
        parts.append(self._header.pack(blockLength=block.block.length, numInGroup=len(entries)))
        for entry in entries:
            parts.append(self._pack(entry))
            block.write_members(entry, parts)

    def trouble(self, entries: Sequence[Any] | None, path: str) -> str:
        """Return what of the entries cannot be encoded, and why; empty for nothing."""
        for index, entry in enumerate(entries or ()):
            if found := self._block.trouble(entry, f"{path}[{index}]"):
                return found
        try:
            self._header.pack(blockLength=self._block.block.length, numInGroup=len(entries or ()))
        except struct.error as error:
            return f"{path}: {len(entries or ())} entries: {error}"
        return ""


@final
class DataCodec:
    """Reads and writes data of variable length, as bytes or text; None in older messages."""

    def __init__(self, data: Data, order: str) -> None:
        self._name = data.name
        self._since = data.since
        self._is_text = data.is_text
        self._header = HeaderStruct(data.header, order)

    def read(
        self, data: Payload, place: int, version: int, _: EntriesLeft
    ) -> tuple[str | bytes | None, int]:
        """Return the data, and where it ends."""
        if version < self._since:
            return None, place
        begin = place + self._header.width
        if begin > len(data):
            message = "the message ends within a header of a group or of data"
            raise DecodeError(message)
        length = self._header.read(data, place)["length"]
        end = begin + length
        if length < 0 or end > len(data):
            message = f"data {self._name} is longer than its message"
            raise DecodeError(message)
        value = bytes(data[begin:end])
        return value.decode() if self._is_text else value, end

    def write(self, value: str | bytes | None, parts: list[bytes]) -> None:
        """Append the header and the data; None is empty."""
        # Of a number, `bytes` would make as many zeros.
        given = b"" if value is None else value
        data = given.encode() if isinstance(given, str) else memoryview(given).tobytes()
        parts.append(self._header.pack(length=len(data)))
        parts.append(data)

    def trouble(self, value: Any, path: str) -> str:
        """Return why data cannot be encoded; empty if it can be."""
        try:
            self.write(value, [])
        except struct.error as error:
            return f"{path}: {len(value)} characters or bytes: {error}"
        except ENCODE_ERRORS as error:
            return f"{path}={shown(value)}: {error}"
        return ""


DECODE: Final = """
def made(data):
    try:
        ({variables}) = {unpack}(data)
    except UnpackError:
        return {slow}(data)
    if {h[templateId]} != {template_id} or {h[schemaId]} != {schema_id} or {h[version]} < {since}:
        return {slow}(data)
    if {h[blockLength]} < {block} or (place := {width} + {h[blockLength]}) > len(data):
        return {slow}(data)
{members}    return {value}
"""
ENCODE: Final = """
def made(value{more}):
    try:
        {packed}
    except EncodeError:
        raise
    except ENCODE_ERRORS as error:
        raise refused(value, error) from error
"""


@final
class SbeCodec(Generic[T]):
    """A codec of one message of a schema; see `SbeSchema.codec`.

    Attributes:
        name: Name of the message.
        type: Named tuple of its fields, groups and data; constants are attributes of it.
        types: Named tuples of composites and of entries of groups, by name: that of a field or
            group, such as `orders.parts` for a group in another.
        length: Length of each message in bytes; None if it has groups or data.
        encode: Returns the message of a value.
    """

    def __init__(
        self,
        message: MessageSchema,
        into: Callable[..., T] | None = None,
        *,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        self.name = message.name
        self._max_entries = check_number(max_entries, "max_entries", minimum=1)
        self._message = message
        order = next(iter(message.header.numbers.values()))[1].order
        self._header = header = HeaderStruct(message.header, order)
        self._block = block = BlockCodec(message.block, message.name, order, into)
        self.type: type[Any] = block.kind
        self.types = block.types()
        flat = message.block.is_flat
        self.length: int | None = header.width + message.block.length if flat else None
        self._numbers = {
            "blockLength": message.block.length,
            "templateId": message.template_id,
            "schemaId": message.schema_id,
            "version": message.version,
        }
        try:
            header.pack(**self._numbers)
        except struct.error as error:
            what = f"message {message.name}: its numbers do not fit the message header: {error}"
            raise ConfigurationError(what) from None
        self._decode_fast: Callable[[Payload], T] = self._reading(order)
        body = struct.Struct(order + header.format + block.struct.format[1:] + block.tail)
        self.encode: Callable[[T], bytes] = self._writing(body, is_into=False)
        self._encode_into: Callable[[T, Any, int], int] = self._writing(body, is_into=True)

    def decode(self, payload: Payload) -> T:
        """Return the value of a message.

        Raises:
            DecodeError: It is no such message.
        """
        try:
            return self._decode_fast(payload)
        except UnicodeDecodeError as error:
            message = f"{self.name}: a text is no UTF-8: {error.reason}"
            raise DecodeError(message) from error

    def encode_into(self, value: T, buffer: Any, offset: int = 0) -> int:
        """Write the message of a value into a buffer, such as that of a claim; return its length.

        Raises:
            EncodeError: A field cannot hold its value, or the buffer is too short.
        """
        if self.length is not None:
            return self._encode_into(value, buffer, offset)
        data = self.encode(value)
        view = memoryview(buffer).cast("B")
        if offset < 0 or offset + len(data) > len(view):
            message = f"{self.name}: {len(data)} bytes do not fit a buffer of {len(view)} bytes"
            raise EncodeError(message)
        view[offset : offset + len(data)] = data
        return len(data)

    def columns(self) -> ColumnDecoder:
        """Return a decoder of columns: one for each field, group and data.

        Raises:
            ConfigurationError: numpy or pyarrow is not installed.
        """
        decoder: ColumnDecoder = column_module("sbe_columns").SbeColumns(self._message)
        return decoder

    def _decode_slow(self, data: Payload) -> T:
        """Decode any message, or say what is wrong with it."""
        header, message = self._header, self._message
        if len(data) < header.width:
            what = "the message is shorter than its header"
            raise DecodeError(what)
        found = header.read(data, 0)
        if found["schemaId"] != message.schema_id:
            what = f"schema {found['schemaId']}, not {message.schema_id}"
            raise DecodeError(what)
        if found["templateId"] != message.template_id:
            what = f"template {found['templateId']}, not {message.template_id} ({self.name})"
            raise DecodeError(what)
        left = EntriesLeft(self._max_entries)
        value, _ = self._block.read(
            data, header.width, found["blockLength"], found["version"], left
        )
        return cast("T", value)

    def _refused(self, value: Any, error: Exception) -> EncodeError:
        """Return the error that names the first part of a value that cannot be encoded."""
        return EncodeError(self._block.trouble(value, self.name) or f"{self.name}: {error}")

    def _reading(self, order: str) -> Callable[[Payload], T]:
        block, scope = self._block, self._block.scope
        names = {name: f"h_{index}" for index, name in enumerate(self._header.names)}
        whole = struct.Struct(order + self._header.format + block.struct.format[1:])
        made, members = block.made, ""
        if block.parts:
            left = scope.constant(EntriesLeft)
            members = f"    left = {left}({self._max_entries})\n"
        for index, part in enumerate(block.parts):
            read = scope.constant(part.read)
            members += f"    m{index}, place = {read}(data, place, {names['version']}, left)\n"
            made += f"m{index}, "
        value = f"new({scope.constant(block.kind)}, ({made}))"
        if block.into is not None:
            value = f"{scope.constant(block.into)}({made})"
        source = DECODE.format(
            variables=", ".join([*names.values(), *block.variables]),
            unpack=scope.constant(whole.unpack_from),
            slow=scope.constant(self._decode_slow),
            h=names,
            template_id=self._message.template_id,
            schema_id=self._message.schema_id,
            since=block.newest_since,
            block=block.struct.size,
            width=self._header.width,
            members=members,
            value=value,
        )
        return cast("Callable[[Payload], T]", scope.function(source))

    def _writing(self, body: struct.Struct, *, is_into: bool) -> Any:
        block, scope = self._block, self._block.scope
        scope.names["refused"] = self._refused
        numbers = [str(self._numbers[name]) for name in self._header.names]
        fields = scope.writing_fields(block.block.fields, "value")
        arguments = ", ".join([*numbers, *fields])
        if is_into:
            call = f"{scope.constant(body.pack_into)}(buffer, offset, {arguments})"
            packed = f"{call}; return {body.size}"
        elif self.length is None:
            call = f"parts = [{scope.constant(body.pack)}({arguments})]"
            write = f"{scope.constant(block.write_members)}(value, parts)"
            packed = f"{call}; {write}; return b''.join(parts)"
        else:
            packed = f"return {scope.constant(body.pack)}({arguments})"
        return scope.function(
            ENCODE.format(more=", buffer, offset" if is_into else "", packed=packed)
        )


@final
class SbeUnionCodec:
    """A codec of several messages of a schema; each value is of the type of its message.

    Args:
        codecs: Codecs of the messages.

    Attributes:
        types: Named tuple of each message, by its name.
    """

    def __init__(self, codecs: Sequence[SbeCodec[Any]]) -> None:
        self.types = {each.name: each.type for each in codecs}
        self._by_type = {each.type: each for each in codecs}
        self._by_id = {each._message.template_id: each for each in codecs}  # noqa: SLF001 - of one module
        if len(self._by_id) < len(codecs):
            names = ", ".join(each.name for each in codecs)
            message = f"messages {names}: two of them have the same template id"
            raise ConfigurationError(message)
        self._header = codecs[0]._header  # noqa: SLF001 - of one module

    def encode(self, value: Any) -> bytes:
        """Return the message of a value.

        Raises:
            EncodeError: It is no value of one of the messages, or a field cannot hold its value.
        """
        found = self._by_type.get(type(value))
        if found is None:
            message = f"a {type(value).__name__} is none of {', '.join(self.types)}"
            raise EncodeError(message)
        return found.encode(value)

    def decode(self, payload: Payload) -> Any:
        """Return the value of a message.

        Raises:
            DecodeError: It is none of the messages.
        """
        if len(payload) < self._header.width:
            message = "the message is shorter than its header"
            raise DecodeError(message)
        template_id = self._header.read(payload, 0)["templateId"]
        found = self._by_id.get(template_id)
        if found is None:
            known = ", ".join(f"{key} ({each.name})" for key, each in self._by_id.items())
            message = f"template {template_id} is none of {known}"
            raise DecodeError(message)
        return found.decode(payload)
