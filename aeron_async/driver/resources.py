"""What the parts of one driver share: settings, clock, randomness, network and counters."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import attrs

from aeron_async.driver.media.sockets import WildcardPorts
from aeron_async.logs import LogBudget
from aeron_async.protocol.header import wrap_int32

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from aeron_async.counters import CountersManager
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.driver.media.network import Network
    from aeron_async.driver.stall_clock import StallClock

__all__ = ["DriverResources"]


@attrs.frozen(kw_only=True, eq=False)
class DriverResources:
    """Passed to every part of a driver.

    Attributes:
        log_budget: Limits the log lines that peers can cause.
        registration_ids: One sequence for clients, publications, subscriptions and images.
        sender_ports: The ports for a publication's control port 0; None leaves it to the system.
        receiver_ports: The same for a subscription's endpoint port 0.
    """

    context: DriverContext
    clock: StallClock
    random: Random
    network: Network
    counters_manager: CountersManager
    system_counters: SystemCounters
    log_budget: LogBudget = attrs.field(init=False)
    registration_ids: Iterator[int] = attrs.field(factory=lambda: count(1))
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

    def next_id(self) -> int:
        """Return a registration id that this driver has not used before."""
        return next(self.registration_ids)

    def random_int32(self) -> int:
        """Return a random signed 32-bit number."""
        return wrap_int32(self.random.getrandbits(32))

    def random_int64(self) -> int:
        """Return a random signed 64-bit number."""
        return self.random.getrandbits(64) - 2**63
