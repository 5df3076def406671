"""Every method of every compiled class, called on objects that were made, and not set up."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tests.fuzz.calls.values import Values

MOST_ARGUMENTS: Final = 5
# What they inherit from `object`, and what would only start threads.
LEFT_OUT: Final = frozenset(dir(object)) - {"__init__", "__reduce__", "__repr__"} | {
    *("__new__", "__abstractmethods__", "__class_getitem__"),
}


def unmade(module: ModuleType, values: Values) -> dict[str, Callable[[], object]]:
    """Return a round for each member of each class of a module that can be made from nothing."""
    found: dict[str, Callable[[], object]] = {}
    for kind in vars(module).values():
        if not isinstance(kind, type) or kind.__module__ != module.__name__:
            continue
        make: Any = kind.__new__
        try:
            make(kind)
        except TypeError:
            continue
        for name in sorted({*dir(kind)} - LEFT_OUT):
            call = partial(call_unmade, values, kind, name)
            found[f"{kind.__name__}.{name}"] = call
    return found


def call_unmade(values: Values, kind: Any, name: str) -> None:
    """Read a member, call it if it is a method, and store something there if it is not."""
    made = kind.__new__(kind)
    member = getattr(made, name)
    if callable(member):
        member(*(values.anything() for _ in range(values.rng.randrange(MOST_ARGUMENTS))))
    else:
        setattr(made, name, values.anything())
