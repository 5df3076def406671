"""The sender: the agent that lets every publication send what is due.

Publications take turns, each with a bounded burst, so none keeps the loop from the others.

Source: Aeron `Sender`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from aeron_async._speedups import SendLane
from aeron_async.clock import NEVER_NS, NS_PER_MS
from aeron_async.driver.agent import Agent
from aeron_async.driver.core.context import HEARTBEAT_INTERVAL_NS
from aeron_async.driver.core.network_publication import FAST_MAX_NS, NetworkPublication
from aeron_async.driver.core.outbox import HeartbeatBatch
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.silent_streams import HeartbeatsOut
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.schedule import Schedule
from aeron_async.errors import ErrorCode
from aeron_async.logs import get_logger, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.publication import SubscribablePublication
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.driver.media.endpoint import ChannelSocket, SendChannelEndpoint
    from aeron_async.driver.stall_clock import StallClock

__all__ = ["Sender"]

log: Final = get_logger(__name__)

ROUNDS_PER_CYCLE: Final = 8
"""How often publications with more to send are polled again before the loop gets its turn."""
POLLS_PER_CYCLE: Final = 64
"""Polls of publications, each of at most one burst, before the loop gets its turn."""
EARLY_BEAT_NS: Final = 10 * NS_PER_MS
"""How much before its time a heartbeat may leave with others; a tenth of the interval."""
BEATS_PER_CYCLE: Final = 64
"""Publications that may only send a heartbeat, before the loop gets its turn."""
CYCLE_NS: Final = NS_PER_MS
"""After this time no further publication is polled before the loop gets its turn.

One poll may send hundreds of full datagrams, so the highest number of polls would take far longer.
"""
QUIET_NS: Final = 50_000
"""An offer this long after the last poll counts as a single one."""
LANE_QUIET_NS: Final = 10_000
"""The same for an offer that a lane can send: it takes no longer than what follows at this rate."""
AFTER_BURST_NS: Final = 1_000_000
"""The same if the last poll sent more than one datagram, which itself took a while."""


class Sender(Agent):
    """The agent that sends; `on_done` is called with a publication that is DONE.

    Attributes:
        endpoints: All send endpoints, for explanations of what their receivers did.
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
        # A client of another process may forge what makes its publications fail.
        self._failure_log = within(system_counters.log_budget, log)
        self._is_polling = self._is_reading = False
        self._beats = HeartbeatBatch()
        self._heartbeats = HeartbeatsOut(
            NetworkPublication,
            self._schedule,
            self._beats,
            system_counters[SystemCounterId.HEARTBEATS_SENT],
            system_counters[SystemCounterId.BYTES_SENT],
            PublicationState.ACTIVE,
            HEARTBEAT_INTERVAL_NS,
            FAST_MAX_NS,
        )
        self.endpoints: Iterable[SendChannelEndpoint] = ()

    def on_activity(self, publication: SubscribablePublication) -> None:
        """Poll a publication soon: it got an offer or a control frame."""
        self._schedule.ready(publication)
        if not self._is_reading:
            self.wake()

    def on_reading(self, is_begun: bool) -> None:  # noqa: FBT001 - a callback of one meaning
        """Poll the publications that got frames, once a socket has been read.

        This does not wait for the agent's next turn: what a new window allows is sent at once, and
        only once for all the frames.
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
        """Send what was offered: a single offer at once, others together with the next ones.

        A single offer should not wait for a turn of the loop, and many offers in a row should not
        cost one system call each.
        """
        now_ns = self._clock.now_ns()
        quiet_ns = AFTER_BURST_NS if publication.has_sent_burst else QUIET_NS
        is_quiet = now_ns >= publication.polled_ns + quiet_ns
        if not (is_quiet and self.may_act(now_ns)) or self._is_polling:
            self.on_activity(publication)
            return
        try:
            if publication.send_data_fast(now_ns):
                publication.polled_ns = now_ns
                return
        except Exception as error:  # noqa: BLE001 - it is logged, and given to the publication
            self._fail(publication, error)
        self._take_turn(publication, now_ns)
        self.wake_by(self._schedule.next_deadline_ns())

    def on_offer_failed(
        self, publication: SubscribablePublication, error: Exception, now_ns: int
    ) -> None:
        """Take what a `SendLane` has raised for the publication's."""
        self._fail(publication, error)
        self._take_turn(publication, now_ns)
        self.wake_by(self._schedule.next_deadline_ns())

    def offer_callback(
        self,
        publication: SubscribablePublication,
        socket: ChannelSocket | None,
        *,
        is_response: bool = False,
    ) -> Callable[[], object]:
        """Return what an offer calls: `on_offer`, or the compiled lane above it.

        Args:
            publication: What is offered to.
            socket: The one socket by which it sends; None if it must take no lane.
            is_response: Whether it sends through a `ResponseOutbox`.
        """
        if SendLane is None or socket is None:
            return partial(self.on_offer, publication)
        return SendLane(publication, self, socket, LANE_QUIET_NS, is_response).on_offer

    def remove(self, publication: SubscribablePublication) -> None:
        """Stop polling a publication."""
        self._schedule.remove(publication)

    async def do_work(self, now_ns: int) -> int:
        """Poll the publications that are due, in order; the rest come first next time."""
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
        """Let idle publications send their heartbeats; any other due work makes them ready.

        Differs: in Aeron each heartbeat leaves by itself. Here those that would be due soon leave
        with those that are due, in one call to the system for all streams of an endpoint.
        """
        schedule = self._schedule
        expired = schedule.expired(now_ns, BEATS_PER_CYCLE)
        if not expired:
            return
        due_ns = now_ns + EARLY_BEAT_NS
        expired += schedule.expired(due_ns, BEATS_PER_CYCLE - len(expired))
        beats, index = self._beats, 0
        while (index := self._heartbeats.send(expired, index, now_ns, due_ns)) < len(expired):
            publication = expired[index]
            index += 1
            # Not by `_guard`, whose call each of thousands of silent streams would pay for.
            try:
                deadline_ns = publication.heartbeat_fast(now_ns, due_ns, beats)
            except Exception as error:  # noqa: BLE001 - it is logged, and given to the publication
                self._fail(publication, error)
                schedule.ready(publication)
            else:
                schedule.settle(publication, deadline_ns, now_ns)
        short_count = beats.send(self._on_beats_failed)
        if short_count:
            self._system_counters[SystemCounterId.SHORT_SENDS].increment(short_count)

    def _on_beats_failed(self, error: Exception) -> None:
        self._system_counters.note_error(ErrorCode.GENERIC, f"heartbeats were not sent: {error!r}")
        self._failure_log.error("heartbeats_failed", exc_info=error)

    def _put_back(self, publications: list[SubscribablePublication]) -> None:
        """Put publications that were not polled before all that are ready."""
        if publications:
            schedule = self._schedule
            for publication in (*publications, *schedule.take()):
                schedule.ready(publication)

    def _take_turn(self, publication: SubscribablePublication, now_ns: int) -> None:
        """Poll a publication, and act on its new state."""
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
        """Let a publication act; if it fails it ends, and the others are not affected."""
        try:
            return action(now_ns)
        except Exception as error:  # noqa: BLE001 - it is logged, and given to the publication
            self._fail(publication, error)
            return NEVER_NS

    def _fail(self, publication: SubscribablePublication, error: Exception) -> None:
        """End a publication that has failed.

        Differs: Aeron counts the error, and polls the publication again and again.
        """
        self._system_counters.note_error(
            ErrorCode.GENERIC,
            f"publication failed: channel={publication.channel} "
            f"streamId={publication.stream_id} sessionId={publication.session_id}: {error!r}",
        )
        self._failure_log.error(
            "publication_failed",
            channel=publication.channel,
            session_id=publication.session_id,
            stream_id=publication.stream_id,
            exc_info=error,
        )
        publication.fail(error)
