"""Rows to publish: the columns of a table that matter, and the messages of a batch.

Payloads are slices of Arrow's own buffers; the first copy is the one into the term buffer.
"""

from __future__ import annotations

import difflib
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, Final, Self, final

import attrs

from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aeron_async.spark.sink.options import SinkOptions

__all__ = ["RowLayout", "Rows"]

COLUMNS: Final = {
    "payload": "BINARY",
    "stream_id": "INT",
    "channel": "STRING",
    "reserved_value": "BIGINT",
}


@final
@attrs.frozen
class Rows:
    """The messages of one batch, in order.

    Attributes:
        payloads: Slices of Arrow's buffers.
        channels: Channel of each row; None if an option sets it.
        stream_ids: Stream of each row; None if an option sets it.
        reserved_values: Reserved value of each row; None if there is no such column.
    """

    payloads: Sequence[memoryview]
    channels: Sequence[str] | None = None
    stream_ids: Sequence[int] | None = None
    reserved_values: Sequence[int] | None = None

    def messages(
        self, channel: str | None, stream_id: int | None
    ) -> Iterator[tuple[str, int, memoryview, int]]:
        """Yield channel, stream, payload and reserved value of each row."""
        # `RowLayout.of` ensured that each value comes from an option or from a column.
        return zip(
            self.channels or repeat(channel or ""),
            self.stream_ids or repeat(stream_id or 0),
            self.payloads,
            self.reserved_values or repeat(0),
            strict=False,
        )


@final
@attrs.frozen
class RowLayout:
    """Which columns of a table are read.

    Attributes:
        has_channel: Whether a column holds the channel.
        has_stream_id: Whether a column holds the stream.
        has_reserved_value: Whether a column holds the reserved value.
    """

    has_channel: bool
    has_stream_id: bool
    has_reserved_value: bool

    @classmethod
    def of(cls, fields: Iterable[Any], options: SinkOptions) -> Self:
        """Return how to read rows with the fields of a Spark schema.

        Raises:
            ConfigurationError: There is no payload, a column has another type or cannot be
                published, or neither an option nor a column sets the channel or the stream.
        """
        types = {field.name: field.dataType.simpleString().upper() for field in fields}
        for name, found in types.items():
            check_column(name, found)
        if "payload" not in types:
            message = (
                f"no column payload: the table has {', '.join(types) or 'no columns'}; select what "
                "is to be published AS payload, and cast it to BINARY"
            )
            raise ConfigurationError(message)
        for column, name, option in (
            ("channel", "channel", options.channel),
            ("stream_id", "streamId", options.stream_id),
        ):
            if option is None and column not in types:
                message = f"nothing says the {column}: set {name}, or select a column {column}"
                raise ConfigurationError(message)
        if options.is_effectively_once and "reserved_value" in types:
            message = (
                "a column reserved_value, and with delivery=effectively-once that holds the "
                "identity of a row: drop the column"
            )
            raise ConfigurationError(message)
        return cls(
            has_channel="channel" in types and options.channel is None,
            has_stream_id="stream_id" in types and options.stream_id is None,
            has_reserved_value="reserved_value" in types,
        )

    def read(self, batch: Any) -> Rows:
        """Return the messages of an Arrow RecordBatch.

        Raises:
            ConfigurationError: A value is NULL.
        """
        return Rows(
            payloads=payloads(checked(batch, "payload")),
            channels=checked(batch, "channel").to_pylist() if self.has_channel else None,
            stream_ids=checked(batch, "stream_id").to_pylist() if self.has_stream_id else None,
            reserved_values=checked(batch, "reserved_value").to_pylist()
            if self.has_reserved_value
            else None,
        )


def check_column(name: str, found: str) -> None:
    """Refuse a column that cannot be published."""
    wanted = COLUMNS.get(name)
    if wanted is None:
        near = difflib.get_close_matches(name, COLUMNS, n=1)
        hint = f"did you mean {near[0]}?" if near else "drop it."
        message = f"column {name} is not published: {hint} The columns are {', '.join(COLUMNS)}"
        raise ConfigurationError(message)
    if found != wanted:
        message = f"column {name} is {found}, and must be {wanted}: cast it"
        raise ConfigurationError(message)


def checked(batch: Any, name: str) -> Any:
    """Return a column after checking that it has no NULL."""
    column = batch.column(name)
    if column.null_count:
        message = f"{column.null_count} rows have NULL as {name}: filter them out"
        raise ConfigurationError(message)
    return column


def payloads(column: Any) -> list[memoryview]:
    """Return the values of a binary array, each as a slice of its buffer."""
    # Imported here because only workers need them.
    import numpy as np  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    _, offsets, data = column.buffers()
    if not len(column):
        return []
    dtype = "<i8" if pa.types.is_large_binary(column.type) else "<i4"
    places = np.frombuffer(offsets, dtype)[column.offset : column.offset + len(column) + 1]
    view = memoryview(b"" if data is None else data)
    return [view[start:end] for start, end in pairwise(places.tolist())]
