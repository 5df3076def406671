"""Idle strategies: what a thread that polls memory does between two looks.

An official driver or client polls in all of its threads. Here only the thread of a
`aeron_async.watcher.Watcher` does, and only while something waits for memory that another process
writes.

Source: Agrona `IdleStrategy` and its implementations; Aeron `aeron_agent.c`.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, final, get_args

import attrs

from aeron_async.clock import NS_PER_MS, NS_PER_US
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.units import INT64_MAX, format_duration, parse_duration_ns
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BackoffIdleStrategy",
    "BusySpinIdleStrategy",
    "IdleStrategy",
    "NoOpIdleStrategy",
    "SleepingIdleStrategy",
    "YieldingIdleStrategy",
    "format_idle_strategy",
    "idle_strategy_of",
    "official_name",
    "parse_idle_strategy",
]


def _check_limit(instance: object, attribute: attrs.Attribute[int], value: int, least: int) -> None:
    if not isinstance(value, int) or not least <= value <= INT64_MAX:
        message = (
            f"{attribute.name} of {type(instance).__name__} must be a whole number from {least} "
            f"to {INT64_MAX}, got {printable(value, SHORT)!r}"
        )
        raise ConfigurationError(message)


def _check_count(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    _check_limit(instance, attribute, value, 0)


def _check_period(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    _check_limit(instance, attribute, value, 1)


@final
@attrs.frozen
class BusySpinIdleStrategy:
    """Spin, and tell the processor so. It uses a whole core, and reacts first."""


@final
@attrs.frozen
class NoOpIdleStrategy:
    """Spin, without telling the processor so."""


@final
@attrs.frozen
class YieldingIdleStrategy:
    """Offer the processor to other threads between two looks. It uses all that these leave."""


@final
@attrs.frozen
class SleepingIdleStrategy:
    """Sleep between two looks, always for the same time.

    Attributes:
        sleep_period_ns: At least 1. The system adds some 20 to 60 us.
    """

    sleep_period_ns: int = attrs.field(default=NS_PER_US, validator=_check_period)


@final
@attrs.frozen
class BackoffIdleStrategy:
    """Spin, then yield, then sleep for ever longer.

    Attributes:
        max_spins: How often it spins before it yields.
        max_yields: How often it yields before it sleeps.
        min_park_period_ns: Its first sleep, at least 1; each one lasts twice as long as the one
            before.
        max_park_period_ns: Its longest sleep.
    """

    max_spins: int = attrs.field(default=10, validator=_check_count)
    max_yields: int = attrs.field(default=20, validator=_check_count)
    min_park_period_ns: int = attrs.field(default=NS_PER_US, validator=_check_period)
    max_park_period_ns: int = attrs.field(default=NS_PER_MS, validator=_check_period)

    def __attrs_post_init__(self) -> None:
        if self.max_park_period_ns < self.min_park_period_ns:
            message = (
                "max_park_period_ns of BackoffIdleStrategy must be at least min_park_period_ns "
                f"({self.min_park_period_ns}), got {self.max_park_period_ns}"
            )
            raise ConfigurationError(message)


IdleStrategy: TypeAlias = (
    BackoffIdleStrategy
    | BusySpinIdleStrategy
    | NoOpIdleStrategy
    | SleepingIdleStrategy
    | YieldingIdleStrategy
)

JAVA_PACKAGE: Final = "org.agrona.concurrent."
_BY_NAME: Final[Mapping[str, IdleStrategy]] = MappingProxyType(
    {
        "backoff": BackoffIdleStrategy(),
        "yield": YieldingIdleStrategy(),
        "spin": BusySpinIdleStrategy(),
        "noop": NoOpIdleStrategy(),
        "sleep-ns": SleepingIdleStrategy(),
        "sleep-ms": SleepingIdleStrategy(NS_PER_MS),
    }
)
_OTHER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sleeping": "sleep-ns",
        f"{JAVA_PACKAGE}BackoffIdleStrategy": "backoff",
        f"{JAVA_PACKAGE}YieldingIdleStrategy": "yield",
        f"{JAVA_PACKAGE}BusySpinIdleStrategy": "spin",
        f"{JAVA_PACKAGE}NoOpIdleStrategy": "noop",
        f"{JAVA_PACKAGE}SleepingIdleStrategy": "sleep-ns",
        f"{JAVA_PACKAGE}SleepingMillisIdleStrategy": "sleep-ms",
    }
)
_BACKOFF_ARGUMENTS: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})-([^-]+)-([^-]+)")
_BACKOFF_EXAMPLE: Final = "'10-20-1us-1ms' (spins, yields, first and longest sleep)"


NAMES: Final = tuple(_BY_NAME)


def official_name(name: str) -> str:
    """Return the short name of an idle strategy, given that or the name of its class in Java.

    Raises:
        ConfigurationError: There is no such strategy.
    """
    short = _OTHER_NAMES.get(name, name)
    if short not in _BY_NAME:
        message = (
            f"there is no idle strategy {printable(name, SHORT)!r}; possible are "
            f"{', '.join(_BY_NAME)}, and the class names {', '.join(_OTHER_NAMES)}"
        )
        raise ConfigurationError(message)
    return short


def idle_strategy_of(given: object, init_args: str | None = None) -> IdleStrategy:
    """Return the idle strategy that code gives as an object, or by a name.

    Args:
        given: The strategy, or its name as `parse_idle_strategy` takes it.
        init_args: Values of a strategy that is given by name; None for the defaults.

    Raises:
        ConfigurationError: It is neither, or it does not take these values.
    """
    if isinstance(given, str):
        return parse_idle_strategy(given.strip(), (init_args or "").strip())
    if not isinstance(given, get_args(IdleStrategy)):
        message = (
            f"an idle strategy must be one of {', '.join(_BY_NAME)}, or an object such as "
            f"BackoffIdleStrategy(), got {printable(repr(given), SHORT)}"
        )
        raise ConfigurationError(message)
    if init_args:
        message = f"{given!r} has its values already, got {printable(init_args, SHORT)!r} as well"
        raise ConfigurationError(message)
    found: IdleStrategy = given
    return found


def parse_idle_strategy(name: str, init_args: str = "") -> IdleStrategy:
    """Return the idle strategy that an Aeron setting names.

    Args:
        name: `backoff`, `yield`, `spin`, `noop`, `sleep-ns` or `sleep-ms`, or the name of the class
            in Java, such as `org.agrona.concurrent.BackoffIdleStrategy`.
        init_args: Its values, as the C driver takes them: `10-20-1us-1ms` for `backoff`, a duration
            for `sleep-ns` and `sleep-ms`. Empty for the defaults.

    Raises:
        ConfigurationError: There is no such strategy, or it does not take these values.

    Differs: `sleep-ns` without a value sleeps 1 us, as in Java; in the C driver it sleeps 1 ns. A
    class of the user cannot be named, and neither can `controllable`.

    Source: Aeron `Configuration.agentIdleStrategy`, `aeron_idle_strategy_load`.
    """
    found = _BY_NAME[official_name(name)]
    if not init_args:
        return found
    match found:
        case BackoffIdleStrategy():
            return _parse_backoff(init_args)
        case SleepingIdleStrategy():
            return SleepingIdleStrategy(parse_duration_ns(init_args))
        case _:
            message = (
                f"the idle strategy {name!r} takes no values, got {printable(init_args, SHORT)!r}"
            )
            raise ConfigurationError(message)


def format_idle_strategy(strategy: IdleStrategy) -> tuple[str, str]:
    """Return the name and the values from which `parse_idle_strategy` makes this strategy."""
    match strategy:
        case BackoffIdleStrategy():
            periods = (strategy.min_park_period_ns, strategy.max_park_period_ns)
            counts = (strategy.max_spins, strategy.max_yields)
            return "backoff", "-".join([*map(str, counts), *map(format_duration, periods)])
        case SleepingIdleStrategy():
            return "sleep-ns", format_duration(strategy.sleep_period_ns)
        case _:
            return next(name for name, each in _BY_NAME.items() if each == strategy), ""


def _parse_backoff(init_args: str) -> BackoffIdleStrategy:
    match = _BACKOFF_ARGUMENTS.fullmatch(init_args)
    if match is None:
        message = (
            f"{printable(init_args, SHORT)!r} are no values of the idle strategy 'backoff': "
            f"it takes four, as in {_BACKOFF_EXAMPLE}"
        )
        raise ConfigurationError(message)
    spins, yields, least, longest = match.groups()
    return BackoffIdleStrategy(
        int(spins), int(yields), parse_duration_ns(least), parse_duration_ns(longest)
    )
