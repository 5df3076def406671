"""The sender: the task that lets every publication send what is due.

Publications take turns, each with a bounded burst, so that none keeps the loop from the others.

Source: Aeron `Sender`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.clock import NS_PER_MS
from aeron_async.driver.agent import Agent
from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.schedule import Schedule
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.publication import SubscribablePublication
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.driver.media.endpoint import SendChannelEndpoint
    from aeron_async.driver.stall_clock import StallClock

__all__ = ["Sender"]

log: Final = get_logger(__name__)

ROUNDS_PER_CYCLE: Final = 8
"""How often publications with more to send come round before the loop has its turn."""
POLLS_PER_CYCLE: Final = 64
"""Polls of publications, each a burst at most, before the loop has its turn."""
BEATS_PER_CYCLE: Final = 64
"""Publications that may send no more than a heartbeat, likewise."""
CYCLE_NS: Final = NS_PER_MS
"""After so long no further publication is polled before the loop has its turn.

A poll may send some hundred full datagrams, and as many polls as there may be take far longer.
"""
QUIET_NS: Final = 50_000
"""After so long without a poll an offer counts as one that comes alone."""
AFTER_BURST_NS: Final = 1_000_000
"""Likewise where the last poll sent more than one datagram: that took a while itself."""


class Sender(Agent):
    """The task that sends.

    Args:
        context: The driver's settings.
        clock: Reads the time.
        system_counters: The driver's counters.
        on_done: Told of a publication that has nothing more to do, ever.

    Attributes:
        endpoints: Where publications send from, for what they know of their receivers.
    """

    role_name = "sender"

    def __init__(
        self,
        context: DriverContext,
        clock: StallClock,
        system_counters: SystemCounters,
        on_done: Callable[[SubscribablePublication], None],
    ) -> None:
        super().__init__(
            clock=clock,
            system_counters=system_counters,
            max_cycle_time=SystemCounterId.SENDER_MAX_CYCLE_TIME,
            threshold_exceeded=SystemCounterId.SENDER_CYCLE_TIME_THRESHOLD_EXCEEDED,
            cycle_threshold_ns=context.sender_cycle_threshold_ns,
        )
        self._schedule: Schedule[SubscribablePublication] = Schedule()
        self._on_done = on_done
        self._is_polling = self._is_reading = False
        self.endpoints: Iterable[SendChannelEndpoint] = ()

    def on_activity(self, publication: SubscribablePublication) -> None:
        """Let a publication be polled soon: it was offered to, or heard from."""
        self._schedule.ready(publication)
        if not self._is_reading:
            self.wake()

    def on_reading(self, is_begun: bool) -> None:  # noqa: FBT001 - a callback of one meaning
        """Poll, when a socket has been read, whom it was about: not in a turn of the agent's own.

        So that what a receiver has room for leaves at once, and once for all that it said.
        """
        self._is_reading = is_begun
        if is_begun or not self._schedule.has_ready:
            return
        now_ns = self._clock.now_ns()
        if self.may_act(now_ns):
            deadline_ns = self._work(now_ns)
            self._count_cycle(self._clock.now_ns() - now_ns)
            self.wake_by(deadline_ns)
        else:
            self.wake()

    def on_offer(self, publication: SubscribablePublication) -> None:
        """Send what was offered: at once after some quiet, else with what else is offered now.

        An offer that comes alone should not wait for a turn of the loop, and of many that follow
        one another each should not cost a call to the system.
        """
        now_ns = self._clock.now_ns()
        quiet_ns = AFTER_BURST_NS if publication.has_sent_burst else QUIET_NS
        is_quiet = now_ns >= publication.polled_ns + quiet_ns
        if not (is_quiet and self.may_act(now_ns)) or self._is_polling:
            self.on_activity(publication)
            return
        quiet = publication.quiet
        if quiet is not None and self._guard(publication, quiet.try_send_alone, now_ns) is True:
            publication.polled_ns = now_ns
            return
        self._take_turn(publication, now_ns)
        self.wake_by(self._schedule.next_deadline_ns())

    def remove(self, publication: SubscribablePublication) -> None:
        """Poll a publication no more."""
        self._schedule.remove(publication)

    async def do_work(self, now_ns: int) -> int:
        """Poll the publications that are due, in turn; what is left over comes first next time."""
        return self._work(now_ns)

    def _work(self, now_ns: int) -> int:
        schedule, clock = self._schedule, self._clock
        end_ns = now_ns + CYCLE_NS
        self._beat(now_ns)
        polls_left = POLLS_PER_CYCLE
        for _ in range(ROUNDS_PER_CYCLE):
            due = schedule.take(polls_left)
            if not due:
                break
            polls_left -= len(due)
            for count, publication in enumerate(due, start=1):
                self._take_turn(publication, now_ns)
                if clock.now_ns() >= end_ns:
                    self._put_back(due[count:])
                    return schedule.next_deadline_ns()
        return schedule.next_deadline_ns()

    def _beat(self, now_ns: int) -> None:
        """Let publications that rest send their heartbeats; what else is due makes them ready."""
        schedule = self._schedule
        for publication in schedule.expired(now_ns, BEATS_PER_CYCLE):
            quiet = publication.quiet
            deadline_ns = 0
            if quiet is not None:
                deadline_ns = self._guard(publication, quiet.try_beat, now_ns)
            if now_ns < deadline_ns < NEVER_NS:
                schedule.at(publication, deadline_ns)
            else:
                schedule.ready(publication)

    def _put_back(self, publications: list[SubscribablePublication]) -> None:
        """Let publications that were not polled come before all that are ready."""
        if publications:
            schedule = self._schedule
            for publication in (*publications, *schedule.take()):
                schedule.ready(publication)

    def _take_turn(self, publication: SubscribablePublication, now_ns: int) -> None:
        """Poll a publication, and see to what has become of it."""
        publication.polled_ns = now_ns
        self._is_polling = True
        deadline_ns = self._guard(publication, publication.poll, now_ns)
        self._is_polling = False
        if publication.state is PublicationState.DONE:
            self._schedule.remove(publication)
            self._on_done(publication)
        elif deadline_ns <= now_ns:
            self._schedule.ready(publication)
        else:
            self._schedule.at(publication, deadline_ns)

    def _guard(
        self, publication: SubscribablePublication, action: Callable[[int], int], now_ns: int
    ) -> int:
        """Let a publication act; one that fails ends, and costs the others nothing.

        Differs: Aeron counts the error, and polls the publication again and again.
        """
        try:
            return action(now_ns)
        except Exception as error:
            self._system_counters[SystemCounterId.ERRORS].increment()
            log.error(  # noqa: TRY400 - it is given the error
                "publication_failed",
                channel=publication.channel,
                session_id=publication.session_id,
                stream_id=publication.stream_id,
                exc_info=error,
            )
            publication.fail(error)
            return NEVER_NS
