"""Strategies from other packages: finding them, checking them, containing their failures.

A package registers a strategy by an entry point. The group of the entry point says what kind of
strategy it is, and its object makes one. It is loaded when its name is first asked for.

Invariant: a strategy that raises costs its own stream alone. A strategy is asked while a datagram
is taken, and an error raised there would pass through the callback of the socket and cost every
stream of that socket. So `held` and `held_at` keep the error until the `poll` of the stream raises
it.

Invariant: an error that belongs to no stream does not cost the datagrams behind it.
`raise_failures` raises it when the whole run has been taken.
"""

from __future__ import annotations

from functools import lru_cache, wraps
from importlib.metadata import entry_points
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Concatenate, Final, NoReturn, ParamSpec, Protocol, TypeVar

from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "CONGESTION_CONTROL_GROUP",
    "FLOW_CONTROL_GROUP",
    "NAME_RESOLVER_GROUP",
    "cause_of_failure",
    "check_strategy",
    "find_registered",
    "held",
    "held_at",
    "known_names",
    "name_of_supplier",
    "raise_failures",
]

# Finding.

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


# Checking.


def check_strategy(strategy: object, protocol: type[Any], *, kind: str, supplier: object) -> None:
    """Refuse what lacks anything that its protocol has: a factory forgot to inherit, or to return.

    Args:
        strategy: What was made.
        protocol: What it has to answer to.
        kind: Such as `flow control`, for the message.
        supplier: What made it.

    Raises:
        ConfigurationError: Something is missing.
    """
    lacking = [
        name for name in vars(protocol) if not name.startswith("_") and not hasattr(strategy, name)
    ]
    if isinstance(strategy, type):
        lacking = ["an instance"]
    if lacking:
        message = (
            f"{kind} {name_of_supplier(supplier)} made {strategy!r}, which lacks "
            f"{', '.join(lacking)}: let the factory return an instance of a class that "
            f"inherits from {protocol.__name__}"
        )
        raise ConfigurationError(message)


def name_of_supplier(supplier: object) -> str:
    """Return what a factory is called in its source, or its repr where it has no name."""
    return getattr(supplier, "__qualname__", None) or repr(supplier)


def cause_of_failure(error: Exception, strategy: object, *, kind: str) -> str:
    """Say why a stream failed, such as `because its flow control raised ValueError: boom`.

    Args:
        error: As it was caught.
        strategy: Is to blame if the code of one of its classes' modules was running.
        kind: Such as `flow control`.
    """
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    modules = {each.__module__ for each in type(strategy).__mro__}
    for frame, _ in walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__") in modules:
            return f"because its {kind} raised {said}"
    return f"because of {said}"


# Containing failures.

P = ParamSpec("P")
T = TypeVar("T")


class Stream(Protocol):
    """What has a `poll` that raises its `failure`."""

    failure: Exception | None


S = TypeVar("S", bound=Stream)


def held_at(method: Callable[[S, int], T]) -> Callable[[S, int], T | None]:
    """Do as `held` does, for what takes the time only, and happens for every datagram."""

    @wraps(method)
    def call(self: S, now_ns: int) -> T | None:
        try:
            return method(self, now_ns)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next poll raises it
            self.failure = self.failure or error
            return None

    return call


def held(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T | None]:
    """Keep what a method raises for the next poll, and return None then; the first is kept."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next poll raises it
            self.failure = self.failure or error
            return None

    return call


def raise_failures(failures: list[Exception]) -> NoReturn:
    """Raise what failed in the midst of a run of datagrams, now that all of them were taken.

    Args:
        failures: At least one.

    Raises:
        Exception: The one that failed, as it is.
        ExceptionGroup: Several did.
    """
    if len(failures) == 1:
        raise failures[0]
    message = "datagrams of a run could not be taken"
    raise ExceptionGroup(message, failures)
