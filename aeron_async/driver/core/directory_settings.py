"""The settings of an Aeron directory, through which other processes use the driver or look at it.

Source: Aeron `MediaDriver.Context`, `Configuration`, `aeron_driver_context.c`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, final

import attrs

from aeron_async.concurrent.broadcast import BROADCAST_TRAILER_LENGTH
from aeron_async.concurrent.ring_buffer import RING_TRAILER_LENGTH
from aeron_async.errors import ConfigurationError
from aeron_async.idle_strategy import (
    NAMES,
    IdleStrategy,
    format_idle_strategy,
    idle_strategy_of,
    official_name,
)
from aeron_async.settings import (
    EnvironmentSettings,
    Kind,
    choice,
    declare,
    duration,
    flag,
    size,
    text,
)

__all__ = ["GIB", "KIB", "MIB", "MS", "SECOND", "US", "DirectorySettings"]

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
US: Final = 1_000
MS: Final = 1_000_000
SECOND: Final = 1_000_000_000

TERMINATION_VALIDATOR_SYNONYMS: Final = {
    "aeron_driver_termination_validator_default_allow": "allow",
    "aeron_driver_termination_validator_default_deny": "deny",
    "io.aeron.driver.DefaultAllowTerminationValidator": "allow",
    "io.aeron.driver.DefaultDenyTerminationValidator": "deny",
}


@final
class IdleStrategyKind(Kind):
    """An idle strategy: its official name, or an object."""

    LIMITS: ClassVar[str] = f"{', '.join(f'`{name}`' for name in NAMES)}, or an `IdleStrategy`"

    def parse(self, text: str) -> object:
        """Return the short name."""
        return official_name(text)

    def convert(self, value: object) -> object:
        """Return the short name of a name, and an object as it is."""
        return self.parse(value.strip()) if isinstance(value, str) else value

    def refusal(self, value: object) -> str:
        """Refuse what is neither a name nor an idle strategy."""
        try:
            idle_strategy_of(value)
        except ConfigurationError as error:
            return f"cannot be used: {error}"
        return ""

    def format(self, value: Any) -> str:
        """Return the name, and behind it the values of an object."""
        if isinstance(value, str):
            return value
        return " ".join(format_idle_strategy(value)).strip()


@attrs.frozen(kw_only=True)
class DirectorySettings(EnvironmentSettings):
    """The settings of a driver's Aeron directory.

    Without a directory only `counters_buffer_length` has an effect.
    """

    aeron_directory: str | None = text(
        "aeron_async.driver.directory",
        None,
        "Aeron directory through which other processes use the driver; without one there are none.",
    )
    dir_delete_on_start: bool = flag(
        "aeron.dir.delete.on.start",
        False,
        "Whether the driver deletes an Aeron directory that it finds, in use or not.",
    )
    dir_delete_on_shutdown: bool = flag(
        "aeron.dir.delete.on.shutdown",
        False,
        "Whether the driver deletes its Aeron directory when it closes.",
    )
    conductor_buffer_length: int = size(
        "aeron.conductor.buffer.length",
        MIB + RING_TRAILER_LENGTH,
        "Length of the ring buffer with the commands of clients.",
        minimum=MIB + RING_TRAILER_LENGTH,
        maximum=GIB + RING_TRAILER_LENGTH,
        power_of_two=True,
        trailer=RING_TRAILER_LENGTH,
    )
    clients_buffer_length: int = size(
        "aeron.clients.buffer.length",
        MIB + BROADCAST_TRAILER_LENGTH,
        "Length of the broadcast buffer with the answers to clients.",
        minimum=MIB + BROADCAST_TRAILER_LENGTH,
        maximum=GIB + BROADCAST_TRAILER_LENGTH,
        power_of_two=True,
        trailer=BROADCAST_TRAILER_LENGTH,
    )
    perform_storage_checks: bool = flag(
        "aeron.perform.storage.checks",
        True,
        "Whether the driver refuses a log buffer for which the file system has no room.",
    )
    termination_validator: str = choice(
        "aeron.driver.termination.validator",
        "deny",
        "Whether a client may end the driver by a command.",
        choices=("deny", "allow"),
        synonyms=TERMINATION_VALIDATOR_SYNONYMS,
    )
    idle_strategy: IdleStrategy | str = declare(
        "aeron.conductor.idle.strategy",
        "backoff",
        "What the thread that watches the memory of clients does between two looks.",
        kind=IdleStrategyKind(),
        old_variables={"AERON_SHARED_IDLE_STRATEGY": official_name},
    )
    idle_strategy_init_args: str | None = text(
        "aeron.conductor.idle.strategy.init.args",
        None,
        "Values of an idle strategy that is given by name, such as `10-20-1us-1ms` for `backoff`.",
        old_variables={"AERON_SHARED_IDLE_STRATEGY_INIT_ARGS": str},
    )
    driver_timeout_ms: int = duration(
        "aeron.driver.timeout",
        10_000,
        "How long a driver may be silent before it counts as dead, in milliseconds.",
        unit_ns=MS,
    )
    counters_buffer_length: int = size(
        "aeron.counters.buffer.length",
        8 * MIB,
        "Length of the counters' values, 128 bytes each; their metadata takes four times as much.",
        minimum=MIB,
        maximum=500 * MIB,
    )
    error_buffer_length: int = size(
        "aeron.error.buffer.length",
        4 * MIB,
        "Length of the log of distinct errors.",
        minimum=4 * MIB,
    )
    loss_report_buffer_length: int = size(
        "aeron.loss.report.buffer.length",
        MIB,
        "Length of the loss report.",
        minimum=KIB,
    )
