"""Checks of arguments: refused by name, with what is accepted, before anything is done.

Invariant: a value that passes is what the caller wrote. A bool is not a number, a fraction is not
truncated, and an async function is not accepted where nothing would await it.
"""

from __future__ import annotations

import operator
import sys
from functools import partial
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, iscoroutinefunction, signature
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, SupportsFloat, TypeVar, cast

from aeron_async.errors import ConfigurationError
from aeron_async.protocol.units import INT64_MAX, INT64_MIN
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from typing import SupportsIndex


__all__ = [
    "awaited_by_nobody",
    "check_function",
    "check_handler",
    "check_number",
    "check_reserved",
    "check_timeout",
    "shown",
]

LONGEST_TIMEOUT_S: Final = 1e9
"""A longer timeout, 31 years, counts as none: event loops cannot represent it."""


def check_timeout(timeout: object) -> float | None:
    """Return a timeout in seconds; None for no timeout.

    Raises:
        ConfigurationError: It is negative, or not a number.
    """
    if timeout is None:
        return None
    try:
        is_number = isinstance(timeout, SupportsFloat) and not isinstance(timeout, bool)
        seconds = float(cast("float", timeout)) if is_number else -1.0
    except (ValueError, OverflowError):
        seconds = -1.0
    if not seconds >= 0:
        message = (
            f"timeout={shown(timeout)} must be 0 or more seconds, or None to wait without limit"
        )
        raise ConfigurationError(message)
    return None if seconds > LONGEST_TIMEOUT_S else seconds


FUNCTIONS: Final = (FunctionType, MethodType)
ASYNC_FLAGS: Final = CO_COROUTINE | CO_ASYNC_GENERATOR

READING: Final[dict[str, Any]] = {"follow_wrapped": False}
"""Options for reading a handler's signature: of the called object, not of what it wraps."""
if sys.version_info >= (3, 14):
    import annotationlib

    # Names that are imported for type checkers only have no value, and none is needed.
    READING["annotation_format"] = annotationlib.Format.STRING

F = TypeVar("F")


def shown(value: object) -> str:
    """Return a value as an error shows it: one short line, whatever it is."""
    try:
        return printable(repr(value), SHORT)
    except Exception:  # noqa: BLE001 - such as a number with too many digits to print
        return f"a value of type {type(value).__name__}"


def check_number(
    value: SupportsIndex, name: str, *, minimum: int, maximum: int | None = None, why: str = ""
) -> int:
    """Return a whole number; any type with `__index__` is accepted, except bool.

    Args:
        value: The argument.
        name: Name of the argument.
        minimum: Least accepted value.
        maximum: Greatest accepted value; None for no limit.
        why: Text after the limits in the error.

    Raises:
        ConfigurationError: It is not a whole number, or beyond the limits.
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
        ConfigurationError: It is not a whole number, or does not fit signed 64 bits.
    """
    if isinstance(value, bool):
        # The application defines the value, and a bool can only mean 0 or 1.
        return int(value)
    return check_number(
        value, "reserved_value", minimum=INT64_MIN, maximum=INT64_MAX, why=": signed 64 bits"
    )


def check_function(function: F, name: str) -> F:
    """Return a function that will be called repeatedly.

    Raises:
        ConfigurationError: It cannot be called, or has to be awaited.
    """
    if not callable(function):
        message = f"{name}={shown(function)} must be a function, a class, or anything else to call"
        raise ConfigurationError(message)
    if is_async(function):
        raise ConfigurationError(awaited_by_nobody(name))
    return function


def check_handler(function: F, name: str, given: str) -> F:
    """Return a function that will be called repeatedly with one argument.

    Args:
        function: The argument.
        name: Name of the argument.
        given: What it is called with, in words.

    Raises:
        ConfigurationError: It cannot be called with one argument, or has to be awaited.
    """
    checked: Any = check_function(function, name)
    try:
        parameters = signature(checked, **READING)
    except Exception:  # noqa: BLE001 - any code of the caller may run, and this only advises
        # Some functions implemented in C have no signature either.
        return function
    try:
        parameters.bind(given)
    except TypeError:
        message = f"{name}={shown(function)} is called with one argument, {given}: let it take that"
        raise ConfigurationError(message) from None
    return function


def is_async(function: object) -> bool:
    """Return whether calling a function only returns an awaitable.

    For plain functions and methods, which every poll passes, flags decide: `inspect` takes ten
    times as long. A function can also be marked as if it were `async def`; the mark is in its
    `__dict__`.
    """
    if isinstance(function, partial):
        return is_async(function.func)
    code = getattr(function, "__code__", None) if type(function) in FUNCTIONS else None
    if code is not None:
        is_marked = bool(function.__dict__) and iscoroutinefunction(function)
        return bool(code.co_flags & ASYNC_FLAGS) or is_marked
    call = type(function).__call__
    return iscoroutinefunction(function) or (type(call) is FunctionType and is_async(call))


def awaited_by_nobody(name: str) -> str:
    """Return the error text about a handler that is an `async def`."""
    return (
        f"{name} is an `async def`, or returns a coroutine, which no code would await: give a "
        "plain function, which may put what it gets into a queue, or start a task"
    )
