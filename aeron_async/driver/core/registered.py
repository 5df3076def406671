"""Strategies of other packages, found by the names under which they registered themselves.

A package registers one by an entry point; the group says what kind of strategy it is, the object is
whatever makes one. An entry point is loaded when its name is first asked for.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "CONGESTION_CONTROL_GROUP",
    "FLOW_CONTROL_GROUP",
    "NAME_RESOLVER_GROUP",
    "find_registered",
    "known_names",
]

FLOW_CONTROL_GROUP: Final = "aeron_async.flow_control"
CONGESTION_CONTROL_GROUP: Final = "aeron_async.congestion_control"
NAME_RESOLVER_GROUP: Final = "aeron_async.name_resolver"


@lru_cache(maxsize=64)
def find_registered(group: str, name: str) -> Callable[..., Any] | None:
    """Return what was registered under a name, or None.

    Raises:
        ConfigurationError: What was registered cannot be imported, or called.
    """
    for entry_point in entry_points(group=group, name=name):
        try:
            found: object = entry_point.load()
        except Exception as error:
            message = (
                f"{name}, registered in {group} as {entry_point.value}, cannot be imported: {error}"
            )
            raise ConfigurationError(message) from error
        if not callable(found):
            message = f"{name}, registered in {group} as {entry_point.value}, cannot be called"
            raise ConfigurationError(message)
        return found
    return None


def known_names(group: str, ours: Iterable[str]) -> str:
    """Return the names that can be asked for, ours first, for a message."""
    return ", ".join([*ours, *sorted({each.name for each in entry_points(group=group)})])
