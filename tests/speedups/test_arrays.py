"""Batches that other libraries take over as Arrow arrays, without pyarrow in between."""

from __future__ import annotations

import ctypes
import gc
import resource
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.speedups.test_batch import opened
from tests.speedups.test_twins import LENGTHS, filled
from tests.twins import compiled, compiled_twins, needs_compiled

pytestmark = needs_compiled
SESSION_ID: Final = -(2**31)
STREAM_ID: Final = 2**31 - 1
PAYLOAD: Final = 4
"""Index of the column."""


class Array(ctypes.Structure):
    """`struct ArrowArray` of the Arrow C data interface."""


Release = ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))
Array._fields_ = [
    *((name, ctypes.c_int64) for name in ("length", "nulls", "offset", "buffer_count")),
    ("child_count", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private", ctypes.c_void_p),
]
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype = ctypes.c_void_p
pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


def exported(batch: Any) -> Any:
    return compiled("arrays").exported(batch, SESSION_ID, STREAM_ID)


def batch_of(lengths: list[int], limit: int = 1_000) -> Any:
    return opened(compiled_twins(), filled(lengths), limit=limit)[0]


def array_in(capsules: Any) -> Array:
    return Array.from_address(pointer_of(capsules[1], b"arrow_array"))


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def release(array: Array) -> None:
    Release(array.release)(ctypes.byref(array))


@given(lengths=LENGTHS, limit=st.integers(0, 50))
def test_an_array_has_what_the_messages_have(lengths: list[int], limit: int) -> None:
    pa = pytest.importorskip("pyarrow", reason="pip install 'aeron-async[arrow]'")
    from aeron_async.client.arrow import imported  # noqa: PLC0415 - after the check

    batch = batch_of(lengths, limit)
    capsules = exported(batch)
    messages = batch.again().rest()
    if capsules is None:
        assert not messages
        return
    made = imported(capsules)
    made.validate(full=True)
    assert made.schema == pa.schema(
        [
            *(("position", pa.int64()), ("session_id", pa.int32()), ("stream_id", pa.int32())),
            *(("reserved_value", pa.int64()), ("payload", pa.large_binary())),
        ]
    )
    assert made.to_pydict() == {
        "position": [message.position for message in messages],
        "session_id": [SESSION_ID] * len(messages),
        "stream_id": [STREAM_ID] * len(messages),
        "reserved_value": [message.reserved_value for message in messages],
        "payload": [message.data for message in messages],
    }


def test_a_column_that_was_taken_over_outlives_the_others() -> None:
    batch = batch_of([40, 0, 7])
    expected = b"".join(batch.payloads())
    capsules = exported(batch)
    array = array_in(capsules)
    source = array.children[PAYLOAD].contents
    taken = Array()
    ctypes.memmove(ctypes.byref(taken), ctypes.byref(source), ctypes.sizeof(Array))
    source.release = None
    release(array)
    assert not array.release
    del capsules, source, array
    gc.collect()
    bounds = (ctypes.c_int64 * 4).from_address(taken.buffers[1])
    assert list(bounds) == [0, 40, 40, 47]
    assert ctypes.string_at(taken.buffers[2], 47) == expected
    release(taken)
    assert not taken.release


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc of Linux")
def test_what_nobody_takes_over_is_freed() -> None:
    batch = batch_of([1_000] * 30)
    exported(batch)
    before = resident()
    for _ in range(4_000):
        exported(batch)
    grown = resident() - before
    assert grown < 32 << 20, f"{grown} bytes more, of 120 MB that were exported"


def test_the_memory_of_short_messages_is_cut_to_what_they_need() -> None:
    capsules = exported(batch_of([1] * 60))
    column = array_in(capsules).children[PAYLOAD].contents
    assert (column.length, column.nulls, column.buffer_count) == (60, 0, 3)
    bounds = (ctypes.c_int64 * 61).from_address(column.buffers[1])
    assert list(bounds) == list(range(61))
    # All columns are in one piece of memory, of which this is the last.
    assert ctypes.string_at(column.buffers[2], 60) == bytes(range(1, 61))


def test_messages_that_are_not_in_the_log_are_not_exported() -> None:
    batch = batch_of([40, 7])
    batch.keep()
    assert exported(batch) is None
    assert exported(compiled("messages").Batch([], None)) is None
    with pytest.raises(TypeError):
        exported(None)
