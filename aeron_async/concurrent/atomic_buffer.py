"""Atomic access to memory that other processes share.

It has no twin in Python, which can neither compare and swap nor order its accesses. Everything that
needs it asks `check_shared_memory` first. Only the fences exist everywhere, so that code which
writes words in an order works on private memory too.

Source: Agrona `AtomicBuffer`, `UnsafeBuffer`; Aeron `aeron_atomic.h`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async._speedups import PURE_VARIABLE, WHY_PURE
from aeron_async.errors import ConfigurationError

__all__ = [
    "WHY_NOT_SHARED",
    "AtomicBuffer",
    "Mapping",
    "acquire_fence",
    "check_shared_memory",
    "full_fence",
    "release_fence",
]

WHY_NOT_SHARED: str | None = WHY_PURE
"""Why this process cannot share memory with others; None if it can."""

if TYPE_CHECKING:
    from aeron_async._speedups.memory import (
        AtomicBuffer,
        Mapping,
        acquire_fence,
        full_fence,
        release_fence,
    )
elif WHY_PURE is None:
    try:
        from aeron_async._speedups.memory import (
            AtomicBuffer,
            Mapping,
            acquire_fence,
            full_fence,
            release_fence,
        )
    except ImportError as error:
        WHY_NOT_SHARED = f"it was not built when the package was installed ({error})"

if not TYPE_CHECKING and WHY_NOT_SHARED is not None:

    class AtomicBuffer:
        """Stands where the compiled class is missing; it cannot be made."""

        def __init__(self, *_: object, **__: object) -> None:
            check_shared_memory()

    class Mapping(AtomicBuffer):
        """As `AtomicBuffer`."""

    def full_fence() -> None:
        """Do nothing. Then only x86 promises the order of what other processes write."""

    acquire_fence = release_fence = full_fence


def check_shared_memory() -> None:
    """Refuse to share memory with other processes where the compiled code is missing.

    Raises:
        ConfigurationError: It is missing, or not in use; the text says how to get it.
    """
    if WHY_NOT_SHARED is not None:
        remedy = (
            f"leave {PURE_VARIABLE} unset"
            if PURE_VARIABLE in WHY_NOT_SHARED
            else "install a C compiler, and then this package once more (`pip install "
            "--force-reinstall --no-binary aeron-async aeron-async`; from a clone `pip install .`)"
        )
        message = (
            "an Aeron directory in shared memory needs compiled code, and "
            f"{WHY_NOT_SHARED}: {remedy}"
        )
        raise ConfigurationError(message)
