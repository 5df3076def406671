"""Between the schema of a query and the columns that are built for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from aeron_async.errors import ConfigurationError
from aeron_async.spark.batch_decoder import decoder_named
from aeron_async.spark.columns import default_columns, projection_of
from aeron_async.spark.ranges import ScanSettings

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from aeron_async.spark.options import ArchiveOptions

__all__ = ["declared_schema", "settings_for"]


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
