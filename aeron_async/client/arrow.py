"""Arrow arrays: what a batch of messages becomes, and what is offered as messages.

Needs pyarrow, which the extra `arrow` installs.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from struct import calcsize
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from aeron_async._speedups import WHY_PURE
from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from aeron_async.logbuffer.message import Batch, Columns

__all__ = [
    "ArrowArray",
    "Capsules",
    "RecordBatch",
    "arrow_array",
    "exported",
    "imported",
    "is_arrow",
    "pieces_of",
    "record_batch",
]

if TYPE_CHECKING:
    ArrowArray: TypeAlias = pa.Array | pa.ChunkedArray
    RecordBatch: TypeAlias = pa.RecordBatch
    Capsules: TypeAlias = tuple[object, object]
    """A schema and an array."""

CODES: Final[dict[str, Literal["i", "q"]]] = {
    "binary": "i",
    "string": "i",
    "large_binary": "q",
    "large_string": "q",
}
"""Format of a bound, as in `struct`, by the type of an array of messages."""


def pyarrow() -> Any:
    """Return the module.

    Raises:
        ConfigurationError: It is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
    except ImportError:
        message = "Arrow batches need pyarrow: pip install 'aeron-async[arrow]'"
        raise ConfigurationError(message) from None
    return pa


class Exported:
    """What any Arrow library takes over; it can be taken once.

    Args:
        capsules: A schema and an array, by the PyCapsule interface of Arrow.
    """

    __slots__ = ("_capsules",)

    def __init__(self, capsules: Capsules) -> None:
        self._capsules = capsules

    def __arrow_c_array__(self, requested_schema: object = None) -> Capsules:
        """Return the capsules; the schema is what it is, which the interface allows."""
        return self._capsules


def imported(capsules: Capsules) -> RecordBatch:
    """Return a schema and an array as a record batch of pyarrow.

    Raises:
        ConfigurationError: pyarrow is not installed.
    """
    return pyarrow().record_batch(Exported(capsules))


def exported(_batch: Batch[Any], _session_id: int, _stream_id: int, /) -> Capsules | None:
    """Return messages as a schema and an array, without pyarrow.

    None if they are not in the log, and always in Python, which would need pyarrow for it.
    """
    return None


def record_batch(columns: Columns, session_id: int, stream_id: int) -> RecordBatch:
    """Return messages of one image as a record batch.

    Raises:
        ConfigurationError: pyarrow is not installed.
    """
    pa = pyarrow()
    count, bounds, positions, values, data = columns
    payloads = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    arrays = {
        "position": pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(positions)]),
        "session_id": repeated(session_id, count),
        "stream_id": repeated(stream_id, count),
        "reserved_value": pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(values)]),
        "payload": pa.Array.from_buffers(pa.large_binary(), count, payloads),
    }
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


KEPT_COUNT: Final = 1 << 14
"""Longest column that is kept for the next batch: 64 KiB."""
KEPT_COLUMNS: Final = 64


def repeated(value: int, count: int) -> pa.Array:
    """Return a column of one 32-bit number; nobody can write to it, so that batches share it."""
    if count > KEPT_COUNT:
        return _repeated(value, count)
    return _kept(value, 1 << (count - 1).bit_length()).slice(0, count)


def _repeated(value: int, count: int) -> pa.Array:
    pa = pyarrow()
    numbers = pa.py_buffer(value.to_bytes(4, sys.byteorder, signed=True) * count)
    return pa.Array.from_buffers(pa.int32(), count, [None, numbers])


# Making one takes as long as copying some tens of messages.
_kept = lru_cache(KEPT_COLUMNS)(_repeated)


def is_arrow(messages: object) -> bool:
    """Return whether these are an array of pyarrow, without importing it."""
    return type(messages).__module__.partition(".")[0] == "pyarrow"


def arrow_array(messages: Any) -> Any:
    """Return an Arrow array, or one in chunks, whose items are messages.

    Raises:
        ConfigurationError: It is no array of binaries or strings, or has nulls.
    """
    name = str(getattr(messages, "type", None))
    if name not in CODES or not hasattr(messages, "null_count"):
        kind = type(messages).__name__
        found = f"an array of {name}" if hasattr(messages, "null_count") else f"a {kind}"
        message = (
            f"messages must be an Arrow array of binary, large_binary, string or large_string, not "
            f"{found}: cast an array to one of these, pass one column of a table or record batch, "
            "and give a list to offer_many()"
        )
        raise ConfigurationError(message)
    if messages.null_count:
        message = (
            f"messages: {messages.null_count} of {len(messages)} are null, and a null is no "
            "message: fill them, or leave them out with drop_null()"
        )
        raise ConfigurationError(message)
    return messages


def pieces_of(messages: Any) -> Iterator[tuple[memoryview, memoryview]]:
    """Yield bounds and data of each chunk of an array; bounds are in bytes."""
    code = CODES[str(messages.type)]
    width = calcsize(code)
    for chunk in getattr(messages, "chunks", [messages]):
        _, bounds, data = chunk.buffers()
        if len(chunk):
            first, last = chunk.offset, chunk.offset + len(chunk) + 1
            # The buffer of the bounds may be longer, by any number of bytes.
            places = memoryview(bounds).cast("B")[first * width : last * width].cast(code)
            yield places, memoryview(data or b"")


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.arrays import exported
