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
WHOLE_MESSAGE: Final = (1 << 31) - 1


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
        reach: Bytes at the beginning of a message that it looks at, beside its length; by default
            all of them.

    Attributes:
        reach: The same.
    """

    def __init__(self, columns: ColumnDecoder, reach: int = WHOLE_MESSAGE) -> None:
        self._columns = columns
        self.reach: int = reach

    @property
    def fields(self) -> list[pa.Field]:
        """The columns."""
        return self._columns.fields

    def decode(self, column: pa.BinaryArray) -> Decoded:
        """Return the columns of these messages."""
        return self.decode_payloads(Payloads.of_column(column))

    def decode_payloads(self, payloads: Payloads) -> Decoded:
        """Return the columns of messages wherever they lie; no column refers to that memory."""
        return self._columns.decode(payloads)

    def schema_with(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of decoded batches; see `decoded_schema`."""
        return decoded_schema(schema, self)

    def batch_with(
        self, kept: list[pa.Array], payloads: Payloads, schema: pa.Schema
    ) -> pa.RecordBatch:
        """Return a batch of columns and of what these payloads say."""
        return joined(kept, self.decode_payloads(payloads), schema)


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
    kept = [batch.column(name) for name in batch.schema.names if name != PAYLOAD]
    return joined(kept, decoder.decode(batch.column(PAYLOAD)), schema)


def joined(kept: list[pa.Array], decoded: Decoded, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of columns and of what was decoded, without messages of another kind."""
    result = pa.RecordBatch.from_arrays([*kept, *decoded.columns, decoded.errors], schema=schema)
    if decoded.others is None or not decoded.others.any():
        return result
    return result.filter(pa.array(~decoded.others))
