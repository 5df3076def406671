"""What the parts of one driver share: settings, clock, randomness, network and counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.concurrent.error_log import ErrorOutcome
from aeron_async.driver.media.sockets import WildcardPorts
from aeron_async.errors import ErrorCode
from aeron_async.logs import LogBudget, get_logger
from aeron_async.protocol.header import wrap_int32
from aeron_async.text import printable

if TYPE_CHECKING:
    from random import Random

    from aeron_async.counters import CountersManager
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.driver.media.network import Network
    from aeron_async.driver.stall_clock import StallClock
    from aeron_async.driver.storage import DriverStorage

__all__ = ["DriverResources"]

log: Final = get_logger(__name__)

ERROR_LENGTH_MAX: Final = 4_000
"""Most characters of one error in the log of distinct errors."""
MEANINGS: Final = {
    ErrorCode.GENERIC: "generic error, see message",
    ErrorCode.INVALID_CHANNEL: "invalid channel",
    ErrorCode.UNKNOWN_SUBSCRIPTION: "unknown subscription",
    ErrorCode.UNKNOWN_PUBLICATION: "unknown publication",
    ErrorCode.CHANNEL_ENDPOINT_ERROR: "channel endpoint error",
    ErrorCode.UNKNOWN_COUNTER: "unknown counter",
    ErrorCode.UNKNOWN_COMMAND: "unknown command type id",
    ErrorCode.MALFORMED_COMMAND: "malformed command",
    ErrorCode.NOT_SUPPORTED: "not supported",
    ErrorCode.UNKNOWN_HOST: "unknown host",
    ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE: "resource temporarily unavailable",
    ErrorCode.STORAGE_SPACE: "insufficient storage space",
    ErrorCode.IMAGE_REJECTED: "image rejected",
    ErrorCode.PUBLICATION_REVOKED: "publication revoked",
}
"""What the codes mean, in the words of Aeron's C driver."""


@attrs.frozen(kw_only=True, eq=False)
class DriverResources:
    """Passed to every part of a driver.

    Attributes:
        log_budget: Limits the log lines that peers can cause.
        storage: Where the driver keeps its logs; it gives the registration ids.
        sender_ports: The ports for a publication's control port 0; None leaves it to the system.
        receiver_ports: The same for a subscription's endpoint port 0.
    """

    context: DriverContext
    clock: StallClock
    random: Random
    network: Network
    storage: DriverStorage
    counters_manager: CountersManager
    system_counters: SystemCounters
    log_budget: LogBudget = attrs.field(init=False)
    sender_ports: WildcardPorts | None = attrs.field(init=False)
    receiver_ports: WildcardPorts | None = attrs.field(init=False)

    @log_budget.default
    def _log_budget(self) -> LogBudget:
        return self.system_counters.log_budget or LogBudget(self.clock.now_ns)

    @sender_ports.default
    def _sender_ports(self) -> WildcardPorts | None:
        return WildcardPorts.of(self.context.sender_wildcard_port_range)

    @receiver_ports.default
    def _receiver_ports(self) -> WildcardPorts | None:
        return WildcardPorts.of(self.context.receiver_wildcard_port_range)

    def __attrs_post_init__(self) -> None:
        self.system_counters.record_error = self.record_error

    def next_id(self) -> int:
        """Return a registration id that this driver has not used before."""
        return self.storage.next_id()

    def record_error(self, code: ErrorCode, message: str) -> None:
        """Record an error in the log of distinct errors, if that is not full."""
        error_log = self.storage.error_log
        # The C driver's text begins with a code and its meaning, and tests look for it.
        text = f"({-code}) {MEANINGS[code]}\n{printable(message, ERROR_LENGTH_MAX)}"
        outcome = error_log.record(text, self.clock.epoch_ms())
        if outcome is ErrorOutcome.NO_ROOM and error_log.unrecorded_count == 1:
            log.warning(
                "error_log_full",
                length=self.context.error_buffer_length,
                error_count=error_log.distinct_count,
                remedy="new errors are only counted: raise error_buffer_length, or find out "
                "what makes so many",
            )

    def random_int32(self) -> int:
        """Return a random signed 32-bit number."""
        return wrap_int32(self.random.getrandbits(32))

    def random_int64(self) -> int:
        """Return a random signed 64-bit number."""
        return self.random.getrandbits(64) - 2**63
