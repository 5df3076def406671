"""Schema of a query, and the decoder that an option names.

A decoder is one of `decoding`, such as `struct:<price:q`, or `module:callable`. The callable takes
a `pyarrow.RecordBatch` and returns one; its attribute `schema` declares the result, as a
`pyarrow.Schema` or as columns in SQL. A callable without that attribute is called to get a
`decoding.Decoder`.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from aeron_async.errors import ConfigurationError
from aeron_async.spark.columns import default_columns, projection_of
from aeron_async.spark.ranges import ScanSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql.types import StructType

    from aeron_async.spark.columns import Projection
    from aeron_async.spark.decoding import CodecDecoder
    from aeron_async.spark.options import ArchiveOptions

__all__ = [
    "CheckedDecoder",
    "declared_schema",
    "decoder_named",
    "settings_for",
]


@final
class CheckedDecoder:
    """A decoder, with a check of what it returns.

    Args:
        name: Value of the option.
        function: Takes a `pyarrow.RecordBatch` and returns one.
        schema: Declared schema of the result.
        of_payloads: Decoder that the scan applies itself; None if the function decodes.

    Attributes:
        of_payloads: The same.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[Any], Any],
        schema: Any,
        of_payloads: CodecDecoder | None = None,
    ) -> None:
        self.name = name
        self.schema = schema
        self.of_payloads: CodecDecoder | None = of_payloads
        self._function = function

    def decoded(self, batches: Iterator[Any], wanted: Any) -> Iterator[Any]:
        """Yield batches with exactly the wanted columns.

        Args:
            batches: Batches as read.
            wanted: Arrow schema of the result: any of the decoder's columns, in any order.

        Raises:
            ConfigurationError: The decoder did not return what it declared.
        """
        for batch in batches:
            given = batch if self.of_payloads is not None else self._function(batch)
            if not isinstance(given, pa.RecordBatch):
                self._refuse(f"returned a {type(given).__name__}, and not a RecordBatch")
            columns = [self._column(given, field) for field in wanted]
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)

    def _column(self, batch: Any, field: Any) -> Any:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            self._refuse(f"returned no column {field.name}, and it was asked for")
        column = batch.column(at)
        if column.type != field.type:
            self._refuse(f"returned {field.name} as {column.type}, and Spark wants {field.type}")
        return column

    def _refuse(self, what: str) -> None:
        message = f"decoder={self.name} {what}: change the decoder, or its schema"
        raise ConfigurationError(message)


def decoder_named(name: str, columns: Projection) -> CheckedDecoder:
    """Return the decoder that an option names.

    Args:
        name: Value of the option; see the module.
        columns: Columns of the batches that the decoder takes.

    Raises:
        ConfigurationError: There is no such decoder, or it does not declare its result.
    """
    # Imported here because few queries use a decoder.
    from aeron_async.spark import decoding  # noqa: PLC0415

    if name.partition(":")[0] in decoding.KINDS:
        return of_payloads(name, decoding.decoder_of(name), columns)
    function = imported(name)
    schema = getattr(function, "schema", None)
    if schema is not None:
        return CheckedDecoder(name, function, schema)
    try:
        made = function()
    except TypeError:
        made = None
    if not hasattr(made, "fields") or not hasattr(made, "decode"):
        message = (
            f"decoder={name!r} must be callable and have an attribute `schema`, a pyarrow.Schema "
            "or columns as SQL declares them; or return a Decoder when called"
        )
        raise ConfigurationError(message)
    return of_payloads(name, made, columns)


def of_payloads(name: str, decoder: Any, columns: Projection) -> CheckedDecoder:
    """Return a decoder that replaces the payload by its columns."""
    from aeron_async.spark.decoding import (  # noqa: PLC0415 - as above
        CodecDecoder,
        decode_batch,
        decoded_schema,
    )

    schema = decoded_schema(columns.arrow_schema(), decoder)
    in_scan = decoder if isinstance(decoder, CodecDecoder) else None
    return CheckedDecoder(name, partial(decode_batch, decoder=decoder), schema, in_scan)


def imported(name: str) -> Any:
    """Return the object that `module:callable` names.

    Raises:
        ConfigurationError: The name is malformed, or cannot be imported.
    """
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        message = (
            f"decoder={name!r} must be module:callable, such as orders:decode, or begin with "
            "struct:, sbe:, json: or msgpack:"
        )
        raise ConfigurationError(message)
    try:
        found: Any = import_module(module_name)
        for each in attribute.split("."):
            found = getattr(found, each)
    except (ImportError, AttributeError) as error:
        message = (
            f"decoder={name!r} cannot be imported: {error}; the workers need its module on their "
            "path (PYTHONPATH, --py-files)"
        )
        raise ConfigurationError(message) from error
    return found


def declared_schema(options: ArchiveOptions) -> StructType | str:
    """Return the default columns of a query that declares no schema.

    Raises:
        ConfigurationError: An option names an unknown column or decoder.
    """
    columns = default_columns(options)
    if options.decoder is None:
        return columns.ddl()
    schema = decoder_named(options.decoder, default_columns(options)).schema
    return schema if isinstance(schema, str) else struct_of(schema, options.decoder)


def settings_for(options: ArchiveOptions, schema: StructType) -> ScanSettings:
    """Return the scan settings of a query with this schema.

    Raises:
        ConfigurationError: The schema has an unknown column, or one of another type.
    """
    if options.decoder is None:
        return ScanSettings(options, projection_of(schema.fields, options.fragment_mode))
    declared = decoder_named(options.decoder, default_columns(options)).schema
    if not isinstance(declared, str):
        check_declared(schema, struct_of(declared, options.decoder), options.decoder)
    decoded = to_arrow_schema(schema, timezone="UTC")
    return ScanSettings(options, default_columns(options), decoded=decoded)


def struct_of(schema: Any, name: str) -> StructType:
    """Return the Spark schema for what a decoder declares."""
    try:
        return from_arrow_schema(schema)
    except (TypeError, AttributeError, ValueError) as error:
        message = (
            f"decoder={name} has a schema that Spark cannot have: {error}; it must be a "
            "pyarrow.Schema, or columns as SQL declares them"
        )
        raise ConfigurationError(message) from error


def check_declared(schema: StructType, declared: StructType, name: str) -> None:
    """Refuse columns that a decoder does not produce."""
    types = {field.name: field.dataType.simpleString() for field in declared.fields}
    for field in schema.fields:
        kind = types.get(field.name)
        if kind != field.dataType.simpleString():
            message = (
                f"decoder={name} makes {', '.join(f'{key} {types[key].upper()}' for key in types)},"
                f" and not {field.name} {field.dataType.simpleString().upper()}: change the schema"
            )
            raise ConfigurationError(message)
