"""Failures in the middle of somebody's datagram, held until the stream they belong to is polled.

A strategy that somebody else has written may raise wherever it is asked. Raised through a socket's
callback that would cost every stream of the socket; raised by `poll` it costs this one.

What fails all the same, because it is nobody's stream, does not cost the datagrams behind it.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, NoReturn, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["held", "held_at", "raise_failures"]

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
