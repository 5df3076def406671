"""Strategies from other packages: finding them, checking them, containing their failures.

A package registers a strategy by an entry point. The group of the entry point gives the kind of
strategy, and its object is the factory. It is loaded when its name is first used.

Invariant: a strategy that raises ends its own stream only. A strategy is called while a datagram is
handled, and an error there would pass through the callback of the socket and end every stream of
that socket. So `defer_exception` and `defer_exception_at` store the error, and the next `poll` of
the stream raises it.

Invariant: an error that belongs to no stream does not lose the datagrams behind it.
`raise_failures` raises it when the whole batch has been handled.
"""

from __future__ import annotations

from functools import lru_cache, wraps
from importlib.metadata import entry_points
from traceback import walk_tb
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    final,
)

import attrs

from aeron_async.errors import ConfigurationError
from aeron_async.settings import Choice, More, declare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "CONGESTION_CONTROL_GROUP",
    "FLOW_CONTROL_GROUP",
    "NAME_RESOLVER_GROUP",
    "Supplier",
    "cause_of_failure",
    "check_strategy",
    "defer_exception",
    "defer_exception_at",
    "find_registered",
    "known_names",
    "name_of_supplier",
    "raise_failures",
    "supplier",
]

# Finding.

FLOW_CONTROL_GROUP: Final = "aeron_async.flow_control"
CONGESTION_CONTROL_GROUP: Final = "aeron_async.congestion_control"
NAME_RESOLVER_GROUP: Final = "aeron_async.name_resolver"


@lru_cache(maxsize=64)
def find_registered(group: str, name: str) -> Callable[..., Any] | None:
    """Return the object registered under a name, or None.

    Raises:
        ConfigurationError: The object cannot be imported, or called.
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
    """Return the names that can be used, ours first, for a message."""
    return ", ".join([*ours, *sorted({each.name for each in entry_points(group=group)})])


# Choosing.


@final
@attrs.frozen(kw_only=True)
class Supplier(Choice):
    """A setting that is a strategy: one of our names, a registered name, or a factory.

    Attributes:
        group: Group of the entry points that register further names.
        instance_method: A method that a strategy has and a factory has not; empty if only
            factories are accepted.
    """

    group: str
    instance_method: str = ""

    def parse(self, text: str) -> object:
        """Return the name as it is written: registered names have upper case as well."""
        return self.synonyms.get(text, text)

    def refusal(self, value: object) -> str:
        """Refuse what is neither a known name nor a factory."""
        if callable(value) or value in self.choices:
            return ""
        if self.instance_method and callable(getattr(value, self.instance_method, None)):
            return ""
        if isinstance(value, str) and find_registered(self.group, value) is not None:
            return ""
        names = known_names(self.group, self.choices)
        return f"must be one of {names}, or a factory, got {value!r}"

    def format(self, value: Any) -> str:
        """Return the name; that of a factory reads better than its repr."""
        return str(getattr(value, "__qualname__", value))

    def limits(self) -> str:
        """Return our names, and what else is accepted."""
        names = ", ".join(f"`{name}`" for name in self.choices)
        return f"{names}, a registered name, or a factory"


def supplier(
    name: str,
    default: str,
    doc: str,
    *,
    choices: tuple[str, ...],
    group: str,
    instance_method: str = "",
    synonyms: Mapping[str, str] = MappingProxyType({}),
    **more: Unpack[More],
) -> str:
    """Declare a strategy."""
    kind = Supplier(
        choices=choices, group=group, instance_method=instance_method, synonyms=synonyms
    )
    return declare(name, default, doc, kind=kind, **more)


# Checking.


def check_strategy(strategy: object, protocol: type[Any], *, kind: str, supplier: object) -> None:
    """Refuse a strategy that lacks a member of its protocol: its factory may be wrong.

    Args:
        strategy: The strategy made by the factory.
        protocol: The protocol that it must implement.
        kind: Such as `flow control`, for the message.
        supplier: The factory.

    Raises:
        ConfigurationError: A member is missing.
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
    """Return the name of a factory in its source, or its repr if it has no name."""
    return getattr(supplier, "__qualname__", None) or repr(supplier)


def cause_of_failure(error: Exception, strategy: object, *, kind: str) -> str:
    """Return why a stream failed, such as `because its flow control raised ValueError: boom`.

    Args:
        error: As it was caught.
        strategy: Gets the blame if code of a module of its classes was running.
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


class FallibleStream(Protocol):
    """A stream whose `poll` raises its `failure`."""

    failure: Exception | None


S = TypeVar("S", bound=FallibleStream)


def defer_exception_at(method: Callable[[S, int], T]) -> Callable[[S, int], T | None]:
    """Do what `defer_exception` does, for a hot method that takes only the time."""

    @wraps(method)
    def call(self: S, now_ns: int) -> T | None:
        try:
            return method(self, now_ns)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next poll raises it
            self.failure = self.failure or error
            return None

    return call


def defer_exception(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], T | None]:
    """Store what a method raises for the next poll, and return None; keep the first error."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next poll raises it
            self.failure = self.failure or error
            return None

    return call


def raise_failures(failures: list[Exception]) -> NoReturn:
    """Raise the errors of a segment batch, after all of them were handled.

    Args:
        failures: At least one.

    Raises:
        Exception: The only error, as it is.
        ExceptionGroup: There were several errors.
    """
    if len(failures) == 1:
        raise failures[0]
    message = "datagrams of a segment batch could not be handled"
    raise ExceptionGroup(message, failures)
