"""Loads and stores on memory that other threads or processes may access at the same time.

In Python these are plain loads and stores. Within one interpreter they are safe: it holds its lock,
and a word of 32 or 64 bits is stored as a whole. Across processes a fetch-and-add or a
compare-and-swap is not atomic here; code that shares writable memory must check `IS_ATOMIC`. If it
is true, the compiled functions raise `ValueError` for words at an address that is no multiple of
their size; Python cannot know the address.

Source: Aeron `aeron_atomic.h`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async._speedups import WHY_PURE

__all__ = [
    "IS_ATOMIC",
    "compare_and_swap_32",
    "compare_and_swap_64",
    "fetch_add_32",
    "fetch_add_64",
    "load_acquire_32",
    "load_acquire_64",
    "store_release_32",
    "store_release_64",
]

IS_ATOMIC: Final = False
INT_SIZE: Final = 4
LONG_SIZE: Final = 8


def load_acquire_32(words: memoryview, index: int) -> int:
    """Return a 32-bit word; later loads are not moved before this one.

    Args:
        words: Signed 32-bit words.
        index: Index of the word, not negative.

    Raises:
        IndexError: There is no such word.
        TypeError: The view has items of another size.
    """
    return _load(words, index, INT_SIZE)


def load_acquire_64(longs: memoryview, index: int) -> int:
    """Return a 64-bit word; see `load_acquire_32`."""
    return _load(longs, index, LONG_SIZE)


def store_release_32(words: memoryview, index: int, value: int) -> None:
    """Store a 32-bit word; a reader that sees it also sees all earlier stores.

    Args:
        words: Signed 32-bit words, writable.
        index: Index of the word, not negative.
        value: Signed 32 bits.

    Raises:
        IndexError: There is no such word.
        TypeError: The view has items of another size, or is read-only.
    """
    _load(words, index, INT_SIZE)
    words[index] = value


def store_release_64(longs: memoryview, index: int, value: int) -> None:
    """Store a 64-bit word; see `store_release_32`."""
    _load(longs, index, LONG_SIZE)
    longs[index] = value


def fetch_add_32(words: memoryview, index: int, delta: int) -> int:
    """Add to a 32-bit word, with wrap-around; return its old value. See `store_release_32`."""
    return _fetch_add(words, index, delta, INT_SIZE)


def fetch_add_64(longs: memoryview, index: int, delta: int) -> int:
    """Add to a 64-bit word, with wrap-around; return its old value. See `store_release_32`."""
    return _fetch_add(longs, index, delta, LONG_SIZE)


def compare_and_swap_32(words: memoryview, index: int, expected: int, value: int) -> bool:
    """Store a 32-bit word if its value is `expected`; return whether it was."""
    return _compare_and_swap(words, index, expected, value, INT_SIZE)


def compare_and_swap_64(longs: memoryview, index: int, expected: int, value: int) -> bool:
    """Store a 64-bit word if its value is `expected`; return whether it was."""
    return _compare_and_swap(longs, index, expected, value, LONG_SIZE)


def _load(view: memoryview, index: int, size: int) -> int:
    if view.itemsize != size:
        message = f"a view of items of {size} bytes is wanted, not of {view.itemsize}"
        raise TypeError(message)
    if not 0 <= index < len(view):
        message = f"no word {index} in a view of {len(view)}"
        raise IndexError(message)
    value: int = view[index]
    return value


def _fetch_add(view: memoryview, index: int, delta: int, size: int) -> int:
    before = _load(view, index, size)
    half = 1 << (8 * size - 1)
    view[index] = (before + delta + half) % (2 * half) - half
    return before


def _compare_and_swap(view: memoryview, index: int, expected: int, value: int, size: int) -> bool:
    if _load(view, index, size) != expected:
        return False
    view[index] = value
    return True


if not TYPE_CHECKING and WHY_PURE is None:
    from aeron_async._speedups.atomics import (
        IS_ATOMIC,
        compare_and_swap_32,
        compare_and_swap_64,
        fetch_add_32,
        fetch_add_64,
        load_acquire_32,
        load_acquire_64,
        store_release_32,
        store_release_64,
    )
