"""A column of messages as one run of bytes, from which fields are taken for all rows at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["Bytes", "Flags", "Payloads", "Places", "blobs", "texts"]

Places = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]


class Payloads:
    """Where each message begins and ends in the bytes of all.

    Attributes:
        data: The bytes.
        starts: Where each message begins in them.
        ends: Where each ends.
    """

    __slots__ = ("buffer", "data", "ends", "starts")

    def __init__(self, column: pa.BinaryArray) -> None:
        _, offsets, buffer = column.buffers()
        edges = np.zeros(1, np.int32)
        if offsets is not None and len(column):
            edges = np.frombuffer(offsets, np.int32)[column.offset :][: len(column) + 1]
        self.starts: Places = edges[:-1].astype(np.int64)
        self.ends: Places = edges[1:].astype(np.int64)
        self.buffer = pa.py_buffer(b"") if buffer is None else buffer
        self.data: Bytes = np.frombuffer(self.buffer, np.uint8)

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, places: Places, width: int, absent: Flags) -> Bytes:
        """Return `width` bytes from each place, a row each; zeros where they are absent."""
        rows: Bytes
        if not absent.any():
            rows = self.data[places[:, None] + np.arange(width)]
            return rows
        rows = np.zeros((len(places), width), np.uint8)
        there = ~absent
        rows[there] = self.data[places[there][:, None] + np.arange(width)]
        return rows

    def numbers(self, places: Places, kind: np.dtype[Any], absent: Flags) -> NDArray[Any]:
        """Return the number at each place; zero where it is absent."""
        return self.take(places, kind.itemsize, absent).view(kind).reshape(len(places))


def blobs(payloads: Payloads, starts: Places, ends: Places, absent: Flags) -> pa.BinaryArray:
    """Return the bytes from each start to its end; starts and ends must only rise.

    Copied in one call: gaps between values are values too, and every second one is taken.
    """
    edges = np.empty(2 * len(starts) + 1, np.int32)
    edges[0:-1:2], edges[1::2] = starts, ends
    edges[-1] = edges[-2] if len(starts) else 0
    pieces = pa.Array.from_buffers(
        pa.binary(), 2 * len(starts), [None, pa.py_buffer(edges), payloads.buffer]
    )
    evens = np.arange(0, 2 * len(starts), 2)
    return pieces.take(pa.array(evens, mask=absent))


def texts(values: pa.BinaryArray) -> tuple[pa.StringArray, Flags]:
    """Return bytes as text, and where they are none: there the text is null."""
    try:
        return values.cast(pa.string()), np.zeros(len(values), np.bool_)
    except pa.ArrowInvalid:
        pass
    found: list[str | None] = []
    wrong = np.zeros(len(values), np.bool_)
    for index, value in enumerate(values.to_pylist()):
        try:
            found.append(None if value is None else value.decode())
        except UnicodeDecodeError:
            wrong[index] = True
            found.append(None)
    return pa.array(found, pa.string()), wrong
