"""Decoder interface: payloads of a batch, and the decoded columns.

Spark has no unsigned numbers. Each becomes the next larger signed type, except that 64 bits stay 64
bits; a value that does not fit is an error of its row.

A row that cannot be decoded is kept: its columns are null, and `decode_error` holds the reason.
Only messages that a schema identifies as another kind are dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

import pyarrow as pa

from aeron_async.codecs.columns import Payloads
from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from aeron_async.codecs.columns import ColumnDecoder, Decoded

__all__ = ["ERROR_COLUMN", "CodecDecoder", "Decoder", "decode_batch", "decoded_schema"]

ERROR_COLUMN: Final = "decode_error"
"""Reason why a message could not be decoded; null if it could."""
PAYLOAD: Final = "payload"


class Decoder(Protocol):
    """Makes columns of messages."""

    @property
    def fields(self) -> list[pa.Field]:
        """The columns it makes, in order."""
        ...

    def decode(self, column: pa.BinaryArray) -> Decoded:
        """Return the columns of these messages; never raise because of their content."""
        ...


@final
class CodecDecoder:
    """A decoder by the columns of a codec.

    Args:
        columns: Decoder of the columns, without unsigned types.
    """

    def __init__(self, columns: ColumnDecoder) -> None:
        self._columns = columns

    @property
    def fields(self) -> list[pa.Field]:
        """The columns."""
        return self._columns.fields

    def decode(self, column: pa.BinaryArray) -> Decoded:
        """Return the columns of these messages."""
        return self._columns.decode(Payloads.of_column(column))


def decoded_schema(schema: pa.Schema, decoder: Decoder) -> pa.Schema:
    """Return the schema of decoded batches: the decoder's columns replace the payload.

    Raises:
        ConfigurationError: There is no payload, or a field has the name of another column.
    """
    if PAYLOAD not in schema.names:
        message = f"columns {', '.join(schema.names)} have no payload to decode: select it"
        raise ConfigurationError(message)
    kept = [field for field in schema if field.name != PAYLOAD]
    added = [*decoder.fields, pa.field(ERROR_COLUMN, pa.string())]
    doubles = {field.name.lower() for field in kept} & {field.name.lower() for field in added}
    if doubles:
        message = (
            f"decoded fields {', '.join(sorted(doubles))} have the names of columns that are "
            "there: leave those out of columns, or rename the fields"
        )
        raise ConfigurationError(message)
    return pa.schema([*kept, *added])


def decode_batch(batch: pa.RecordBatch, decoder: Decoder) -> pa.RecordBatch:
    """Return a batch with its payload decoded; see `decoded_schema`."""
    schema = decoded_schema(batch.schema, decoder)
    decoded = decoder.decode(batch.column(PAYLOAD))
    kept = [batch.column(name) for name in batch.schema.names if name != PAYLOAD]
    result = pa.RecordBatch.from_arrays([*kept, *decoded.columns, decoded.errors], schema=schema)
    if decoded.others is None or not decoded.others.any():
        return result
    return result.filter(pa.array(~decoded.others))
