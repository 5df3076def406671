"""Values that callers hand in: refused by name, with what is accepted, before anything is done.

Invariant: what passes is what the caller wrote. Truth is no number, a fraction is not cut off, and
a function that has to be awaited is not called where nobody awaits it.
"""

from __future__ import annotations

import operator
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Final, TypeVar

from aeron_async.errors import ConfigurationError
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from typing import SupportsIndex

__all__ = [
    "INT64_MAX",
    "INT64_MIN",
    "awaited_by_nobody",
    "check_function",
    "check_number",
    "check_reserved",
    "shown",
]

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

F = TypeVar("F")


def shown(value: object) -> str:
    """Return a value as an error shows it: one short line, whatever it is."""
    try:
        return printable(repr(value), SHORT)
    except Exception:  # noqa: BLE001 - such as a number of so many digits that none are written
        return f"a value of type {type(value).__name__}"


def check_number(
    value: SupportsIndex, name: str, *, minimum: int, maximum: int | None = None, why: str = ""
) -> int:
    """Return a whole number that was given as anything that is one.

    Args:
        value: Given.
        name: Of the argument.
        minimum: The least that is accepted.
        maximum: The most; None for any.
        why: What the error says behind the limits.

    Raises:
        ConfigurationError: It is none, or beyond the limits.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < minimum or (maximum is not None and number > maximum):
        limits = f"of {minimum} or more" if maximum is None else f"from {minimum} to {maximum}"
        message = f"{name}={shown(value)} must be a whole number {limits}{why}"
        raise ConfigurationError(message)
    return number


def check_reserved(value: SupportsIndex) -> int:
    """Return the reserved value of a message.

    Raises:
        ConfigurationError: It is no whole number, or does not fit signed 64 bits.
    """
    if isinstance(value, bool):
        # It is the application's own, and 0 and 1 say nothing else.
        return int(value)
    return check_number(
        value, "reserved_value", minimum=INT64_MIN, maximum=INT64_MAX, why=": signed 64 bits"
    )


def check_function(function: F, name: str) -> F:
    """Return what is to be called from time to time.

    Raises:
        ConfigurationError: It cannot be called, or has to be awaited.
    """
    if not callable(function):
        raise ConfigurationError(not_callable(function, name))
    if iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__):
        raise ConfigurationError(awaited_by_nobody(name))
    return function


def not_callable(function: object, name: str) -> str:
    """Return what is wrong with a handler that is none."""
    return f"{name}={shown(function)} must be a function, a class, or anything else to call"


def awaited_by_nobody(name: str) -> str:
    """Return what is wrong with a handler that is made by `async def`."""
    return (
        f"{name} is an `async def`, or returns a coroutine, which nobody would await: give a plain "
        "function, which may put what it gets into a queue, or start a task"
    )
