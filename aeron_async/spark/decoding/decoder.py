"""What a decoder is: columns out of the bytes of messages, an error beside each that has none.

A row is never dropped because it cannot be decoded: its columns are null, and `decode_error` says
why. Dropped are only messages that a schema knows as others than the one asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

import attrs
import numpy as np
import pyarrow as pa

from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from aeron_async.spark.decoding.payloads import Flags

__all__ = ["ERROR_COLUMN", "Decoded", "Decoder", "RowErrors", "decode_batch", "decoded_schema"]

ERROR_COLUMN: Final = "decode_error"
"""Why a message could not be decoded; null where it could."""
PAYLOAD: Final = "payload"


@final
@attrs.frozen
class Decoded:
    """What became of some messages.

    Attributes:
        columns: One of each field, as long as there were messages.
        errors: Why a row is null, as a text; null where it is not.
        others: Messages of another kind, to be left out; None where there are none.
    """

    columns: list[pa.Array]
    errors: pa.Array
    others: Flags | None = None


class Decoder(Protocol):
    """Makes columns of messages."""

    @property
    def fields(self) -> list[pa.Field]:
        """The columns it makes, in order."""
        ...

    def decode(self, column: pa.BinaryArray) -> Decoded:
        """Return the columns of these messages; never raises for what a message holds."""
        ...


class RowErrors:
    """The first thing that was wrong with each row."""

    __slots__ = ("_reasons", "failed")

    def __init__(self, count: int) -> None:
        self.failed: Flags = np.zeros(count, np.bool_)
        self._reasons: dict[int, str] = {}

    def add(self, rows: np.ndarray, reason: str) -> None:
        """Note a reason for some rows, by index; rows that have one keep it."""
        fresh = rows[~self.failed[rows]]
        self.failed[fresh] = True
        self._reasons.update(dict.fromkeys(fresh.tolist(), reason))

    def column(self) -> pa.Array:
        """Return the reasons, null where there is none."""
        count = len(self.failed)
        if not self._reasons:
            return pa.nulls(count, pa.string())
        return pa.array([self._reasons.get(row) for row in range(count)], pa.string())


def decoded_schema(schema: pa.Schema, decoder: Decoder) -> pa.Schema:
    """Return the schema of decoded batches: the payload gives way to its columns.

    Raises:
        ConfigurationError: There is no payload, or a field is named as a column that is there.
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
