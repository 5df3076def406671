"""Columns of a recording: their names and types, and the selection of a query.

Columns that are never null are declared `NOT NULL`, because Spark then makes rows a tenth faster. A
query whose own schema makes them nullable works as well.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import pyarrow as pa

from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aeron_async.spark.options import ArchiveOptions

__all__ = ["COLUMNS", "Column", "Projection", "default_columns", "project", "projection_of"]

MESSAGE: Final = "message"
FRAME: Final = "frame"


@final
@attrs.frozen
class Column:
    """A column that a recording can have.

    Attributes:
        name: Name in a query.
        spark_type: Type as Spark's SQL spells it.
        modes: Values of `fragmentMode` in which the column exists.
        shown_with: Option that adds it to the default columns; "" if it is always among them.
        says: What the column holds.
        is_optional: Whether it is null in some rows.
    """

    name: str
    spark_type: str
    modes: tuple[str, ...] = (MESSAGE, FRAME)
    shown_with: str = ""
    says: str = ""
    is_optional: bool = False


COLUMNS: Final = (
    Column("recording_id", "bigint", says="of the recording, in its archive"),
    Column("position", "bigint", says="where its first frame begins; with the id it is unique"),
    Column("end_position", "bigint", says="behind its last frame: a client's `header.position()`"),
    Column("session_id", "int", says="of the publication"),
    Column("stream_id", "int", says="of the stream"),
    Column(
        "channel", "string", shown_with="includeChannel", says="stripped, as the catalog has it"
    ),
    Column("term_id", "int", shown_with="includeHeaders", says="of its first frame"),
    Column("term_offset", "int", shown_with="includeHeaders", says="of its first frame"),
    Column("flags", "int", shown_with="includeHeaders", says="128 begins a message, 64 ends one"),
    Column("frame_type", "int", (FRAME,), says="1 data, 0 padding"),
    Column("fragment_count", "int", (MESSAGE,), says="frames that the message was sent in"),
    Column("reserved_value", "bigint", shown_with="includeHeaders", says="of its first frame"),
    Column(
        "frame_checksum",
        "int",
        (FRAME,),
        shown_with="includeHeaders",
        says="as stored; null where the recording has none",
        is_optional=True,
    ),
    Column(
        "timestamp",
        "timestamp",
        says="by `timestampFrom`, to microseconds; null without it",
        is_optional=True,
    ),
    Column(
        "timestamp_ns",
        "bigint",
        shown_with="timestampFrom",
        says="the same in nanoseconds since 1970",
        is_optional=True,
    ),
    Column("length", "int", says="of the payload, in bytes"),
    Column("payload", "binary", says="what was offered"),
)
BY_NAME: Final = {column.name: column for column in COLUMNS}


@final
@attrs.frozen
class Projection:
    """The columns to build, in the order of the query.

    Attributes:
        names: Names of the columns.
        nullable: Whether the query declares each as nullable.
    """

    names: tuple[str, ...]
    nullable: tuple[bool, ...]

    def ddl(self) -> str:
        """Return the columns as SQL declares them."""
        return ", ".join(
            f"{name} {BY_NAME[name].spark_type}{'' if is_nullable else ' NOT NULL'}"
            for name, is_nullable in zip(self.names, self.nullable, strict=True)
        )

    def arrow_schema(self) -> Any:
        """Return the Arrow schema that Spark expects of every batch."""
        types = {
            "bigint": pa.int64(),
            "int": pa.int32(),
            "string": pa.string(),
            "binary": pa.binary(),
            "timestamp": pa.timestamp("us", tz="UTC"),
        }
        return pa.schema(
            [
                pa.field(name, types[BY_NAME[name].spark_type], nullable=nullable)
                for name, nullable in zip(self.names, self.nullable, strict=True)
            ]
        )


def default_columns(options: ArchiveOptions) -> Projection:
    """Return the columns of the option `columns`, or the default ones.

    Raises:
        ConfigurationError: `columns` names an unknown column.
    """
    shown = {
        "": True,
        "includeChannel": options.include_channel,
        "includeHeaders": options.include_headers,
        "timestampFrom": options.timestamp_from is not None,
    }
    names = options.columns or [
        column.name
        for column in COLUMNS
        if options.fragment_mode in column.modes and shown[column.shown_with]
    ]
    return project(names, options.fragment_mode)


def project(names: Sequence[str], mode: str) -> Projection:
    """Return the columns with the given names.

    Raises:
        ConfigurationError: A name is unknown, is not available in this mode, or is given twice.
    """
    for name in names:
        check_name(name, mode)
    if len(set(names)) < len(names):
        message = f"the columns {', '.join(names)} name one twice: change columns or the schema"
        raise ConfigurationError(message)
    return Projection(tuple(names), tuple(BY_NAME[name].is_optional for name in names))


def projection_of(fields: Iterable[Any], mode: str) -> Projection:
    """Return the columns that the fields of a `StructType` ask for.

    Args:
        fields: Any of the columns, in any order, with exactly their types.
        mode: The option `fragmentMode`.

    Raises:
        ConfigurationError: A field is no column or has another type, or there are no fields.
    """
    fields = list(fields)
    if not fields:
        message = "the schema has no column: name at least one, such as position"
        raise ConfigurationError(message)
    names = project([field.name for field in fields], mode).names
    for field in fields:
        wanted, given = BY_NAME[field.name].spark_type, field.dataType.simpleString()
        if given != wanted:
            message = (
                f"column {field.name} is {wanted.upper()}, and the schema has {given.upper()}: "
                "change the schema, and cast in the query"
            )
            raise ConfigurationError(message)
    return Projection(names, tuple(bool(field.nullable) for field in fields))


def check_name(name: str, mode: str) -> None:
    """Refuse a name that is no column in this mode."""
    column = BY_NAME.get(name)
    if column is None:
        near = difflib.get_close_matches(name, BY_NAME, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        message = f"no column is named {name!r}: {hint}There are {', '.join(BY_NAME)}"
        raise ConfigurationError(message)
    if mode not in column.modes:
        message = (
            f"there is no column {name} in fragmentMode={mode}: set fragmentMode={column.modes[0]}"
        )
        raise ConfigurationError(message)
