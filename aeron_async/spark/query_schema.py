"""The schema of a query, and the decoder that an option names.

A decoder is one of those of `decoding`, such as `struct:<price:q`; or `module:callable`, which
takes a `pyarrow.RecordBatch` and returns one, and whose attribute `schema` says what it returns: a
`pyarrow.Schema`, or columns as SQL declares them. A callable without that is called to get a
`decoding.Decoder`.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, final

from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from aeron_async.errors import ConfigurationError
from aeron_async.spark.columns import default_columns, projection_of
from aeron_async.spark.ranges import ScanSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql.types import StructType

    from aeron_async.spark.columns import Projection
    from aeron_async.spark.options import ArchiveOptions

__all__ = [
    "Decoder",
    "declared_schema",
    "decoder_named",
    "settings_for",
]


@final
class Decoder:
    """A decoder, and what is wanted of what it returns.

    Args:
        name: As the option has it.
        function: See the module.
        schema: What it says that it returns.
    """

    def __init__(self, name: str, function: Callable[[Any], Any], schema: Any) -> None:
        self.name = name
        self.schema = schema
        self._function = function

    def decoded(self, batches: Iterator[Any], wanted: Any) -> Iterator[Any]:
        """Yield batches with exactly the columns that are wanted.

        Args:
            batches: As they were read.
            wanted: Arrow schema of the result; any of the decoder's columns, in any order.

        Raises:
            ConfigurationError: It returned something else than it said.
        """
        import pyarrow as pa  # noqa: PLC0415 - whoever only plans does without

        for batch in batches:
            given = self._function(batch)
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


def decoder_named(name: str, columns: Projection) -> Decoder:
    """Return the decoder that an option names.

    Args:
        name: See the module.
        columns: What it is given.

    Raises:
        ConfigurationError: There is none, or it does not say what it returns.
    """
    # Here, for it takes pyarrow, and hardly any query decodes.
    from aeron_async.spark import decoding  # noqa: PLC0415

    if name.partition(":")[0] in decoding.KINDS:
        return of_payloads(name, decoding.decoder_of(name), columns)
    function = imported(name)
    schema = getattr(function, "schema", None)
    if schema is not None:
        return Decoder(name, function, schema)
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


def of_payloads(name: str, decoder: Any, columns: Projection) -> Decoder:
    """Return what puts the columns of a decoder in place of the payload."""
    from aeron_async.spark.decoding import decode_batch, decoded_schema  # noqa: PLC0415 - as above

    schema = decoded_schema(columns.arrow_schema(), decoder)
    return Decoder(name, partial(decode_batch, decoder=decoder), schema)


def imported(name: str) -> Any:
    """Return what `module:callable` names.

    Raises:
        ConfigurationError: It is spelled otherwise, or cannot be imported.
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
    """Return the columns of a query that has not said which it wants.

    Raises:
        ConfigurationError: An option names a column, or a decoder, that is none.
    """
    columns = default_columns(options)
    if options.decoder is None:
        return columns.ddl()
    schema = decoder_named(options.decoder, default_columns(options)).schema
    return schema if isinstance(schema, str) else struct_of(schema, options.decoder)


def settings_for(options: ArchiveOptions, schema: StructType) -> ScanSettings:
    """Return what to make of frames for a query with that schema.

    Raises:
        ConfigurationError: It asks for what is no column, or of another type.
    """
    if options.decoder is None:
        return ScanSettings.of(options, projection_of(schema.fields, options.fragment_mode))
    declared = decoder_named(options.decoder, default_columns(options)).schema
    if not isinstance(declared, str):
        check_declared(schema, struct_of(declared, options.decoder), options.decoder)
    decoded = to_arrow_schema(schema, timezone="UTC")
    return ScanSettings.of(options, default_columns(options), decoded=decoded)


def struct_of(schema: Any, name: str) -> StructType:
    """Return what a decoder declared as Spark knows it."""
    try:
        return from_arrow_schema(schema)
    except (TypeError, AttributeError, ValueError) as error:
        message = (
            f"decoder={name} has a schema that Spark cannot have: {error}; it must be a "
            "pyarrow.Schema, or columns as SQL declares them"
        )
        raise ConfigurationError(message) from error


def check_declared(schema: StructType, declared: StructType, name: str) -> None:
    """Refuse columns that a decoder does not make."""
    types = {field.name: field.dataType.simpleString() for field in declared.fields}
    for field in schema.fields:
        kind = types.get(field.name)
        if kind != field.dataType.simpleString():
            message = (
                f"decoder={name} makes {', '.join(f'{key} {types[key].upper()}' for key in types)},"
                f" and not {field.name} {field.dataType.simpleString().upper()}: change the schema"
            )
            raise ConfigurationError(message)
