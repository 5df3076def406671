"""A network publication: its state, its connection, its limits, and its answers to receivers.

`NetworkPublication` decides what to send. Its `StreamSender` builds the datagrams, an outbox
carries them, and a listener hears of rejections. Its methods are of five kinds:

- control frames, `on_...`: the dispatcher has checked the fields of a frame. They change the state
  at once, and send nothing but resends and replies to round-trip measurements;
- polling: `poll` sends all else that is due, and returns when it must be called again;
- flow control: the sender limit, up to which data may be sent;
- the window: whether offers are accepted, and the publisher limit, below which one may begin;
- the state: drain, linger, end.

Invariant: data is sent only up to the sender limit that flow control allows. One exception: of a
padding frame only the header is sent, so padding may move the sender position past the limit. Sent
data stays in the log for half a term plus the longest message, so that it can be sent again.

Invariant: the publisher limit is the publication window ahead of the slowest of the sender and the
spies. It falls back to the sender position when neither a receiver nor a spy is connected.

Three methods with the suffix `_fast` stand directly above the long way that they shorten. Each
leaves every unusual case to the long way, and says so by a false value:

- `send_data_fast` and `heartbeat_fast` send a lone offer, or a heartbeat, without a poll. They may
  do so after a poll that found the publication active, connected and without spies: until its next
  deadline, for an eighth of the window, and for one second at most.
- `on_status_message_fast` handles a plain status message of a known receiver while the publication
  is connected. Such a message moves only the sender limit, so no `StatusMessage` is built. It works
  with our own `UnicastFlowControl` only.

Source: Aeron `NetworkPublication`, `aeron_network_publication.c`, `ClientProxy`,
`NetworkPublication.updatePublisherPositionAndLimit`, `hasSubscribers`, `FlowControlReceivers`,
`NetworkPublication.onStatusMessage`, `UnicastFlowControl`, `NetworkPublication.onRttMeasurement`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Protocol

import attrs

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.budgets import ReplyLimiter
from aeron_async.driver.core.context import HEARTBEAT_INTERVAL_NS
from aeron_async.driver.core.data_sender import StreamSender
from aeron_async.driver.core.flow_control.base import UnicastFlowControl
from aeron_async.driver.core.publication import (
    PublicationEvent,
    PublicationState,
    SubscribablePublication,
)
from aeron_async.driver.core.publisher_window import PublisherWindow
from aeron_async.driver.core.rare_changes import RARE_CHANGES
from aeron_async.driver.core.receiver_liveness import ReceiverLiveness
from aeron_async.driver.core.retransmit_handler import RetransmitHandler
from aeron_async.driver.core.strategies import defer_exception
from aeron_async.driver.core.subscriber_position import release_subscribers
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.errors import ErrorCode
from aeron_async.logbuffer.position import compute_position
from aeron_async.logs import get_logger, within
from aeron_async.protocol.header import FRAME_ALIGNMENT, RttFlags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.flow_control.base import FlowControl
    from aeron_async.driver.core.outbox import Address, DataOutbox, HeartbeatBatch
    from aeron_async.driver.core.stream_counters import PublicationCounters
    from aeron_async.driver.core.stream_params import PublicationParams
    from aeron_async.driver.core.subscriber_position import SubscribableListener
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.driver.core.timestamps import SendTimestamps
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.protocol.error import ErrorFrame
    from aeron_async.protocol.rtt import RttMeasurement
    from aeron_async.protocol.status_message import StatusMessage

__all__ = ["NetworkPublication", "RejectionListener"]

FAST_MAX_NS: Final = 1_000_000_000
"""The longest time between two polls of a publication: Aeron's conductor checks as often."""
TRIGGER_SHIFT: Final = 3
"""The limit may rise when a spy has read an eighth of the window."""
REVOKED_LINGER_NS: Final = 3 * HEARTBEAT_INTERVAL_NS
TOLD_LINGER_NS: Final = 10 * HEARTBEAT_INTERVAL_NS
"""How long receivers are told of the end at least, also with `linger=0`: Aeron's conductor looks
once a second, so that it is never less there.
"""
UINT32_MASK: Final = 0xFFFF_FFFF
LAST_TERM_COUNT: Final = 2**31 - 1

logger: Final = get_logger(__name__)


class RejectionListener(Protocol):
    """What the owner of a network publication implements to hear about its changes."""

    def on_publication_error(
        self,
        publication: NetworkPublication,
        error: ErrorFrame,
        source: Address | None,
        destination_id: int | None,
    ) -> None:
        """A live receiver rejected the stream."""
        ...


class NetworkPublication(SubscribablePublication):
    """One stream that this driver sends; its subscribers are spies.

    Attributes:
        is_connected: Whether offers are accepted: the required receivers are there, or spies that
            replace them.
        is_end_of_stream: Whether heartbeats announce the end of the stream.
        has_new_limit: Whether the last status message has raised the sender limit.
        has_unicast_eos: Whether the only receiver of a unicast stream has sent its goodbye.
        sender_type: What makes its datagrams.
    """

    sender_type: ClassVar[type[StreamSender]] = StreamSender
    # A type checker would infer it again where this class assigns it.
    has_sent_burst: bool
    is_connected: bool
    is_end_of_stream: bool
    is_sending: bool
    _sender: StreamSender
    has_new_limit: bool
    has_unicast_eos: bool

    __slots__ = (
        "_connection_log",
        "_has_initial_connection",
        "_is_linger_skipped",
        "_is_setup_elicited",
        "_listener",
        "_plain_flow_control",
        "_receivers",
        "_receivers_refused",
        "_rejected_status_messages",
        "_retransmit_handler",
        "_rtt_limiter",
        "_rtt_replies_suppressed",
        "_shown_receiver_count",
        "_told_position",
        "_told_refused_count",
        "_window",
        "counters",
        "flow_control",
        "has_new_limit",
        "has_unicast_eos",
        "is_connected",
        "is_end_of_stream",
    )

    def __init__(
        self,
        *,
        registration_id: int,
        channel: str,
        log: LogBuffers,
        params: PublicationParams,
        context: DriverContext,
        flow_control: FlowControl,
        counters: PublicationCounters,
        system_counters: SystemCounters,
        outbox: DataOutbox,
        listener: RejectionListener,
        readers: SubscribableListener,
        now_ns: int,
        timestamps: SendTimestamps | None = None,
    ) -> None:
        super().__init__(
            registration_id=registration_id,
            channel=channel,
            log=log,
            params=params,
            context=context,
            system_counters=system_counters,
            readers=readers,
            linger_timeout_ns=params.linger_timeout_ns,
            now_ns=now_ns,
        )
        self.flow_control = self._strategy = flow_control
        self.counters = counters
        self._listener = listener
        self._receivers = ReceiverLiveness(context, system_counters)
        self._sender = self.sender_type(
            log,
            params=params,
            counters=counters,
            system_counters=system_counters,
            outbox=outbox,
            burst_limit=context.network_publication_max_messages_per_send,
            now_ns=now_ns,
            timestamps=timestamps,
        )
        position = self._sender.position
        self._retransmit_handler = RetransmitHandler.of(
            self._sender.resend,
            context,
            params,
            system_counters,
            self._sender.round_trip,
            position=position,
        )
        self._window = PublisherWindow(
            log,
            counters.publisher_limit,
            window_length=params.publication_window_length,
            position=position,
        )
        self._told_position = position
        self._rtt_limiter = ReplyLimiter.of(context)
        self._set_up(system_counters)

    def _set_up(self, system_counters: SystemCounters) -> None:
        """Set up counters, the fast ways and flags."""
        self._attach(self.counters.publisher_position)
        self._connection_log = within(system_counters.log_budget, logger)
        self._rejected_status_messages = system_counters[SystemCounterId.STATUS_MESSAGES_REJECTED]
        self._rtt_replies_suppressed = system_counters[DriverCounterId.RTT_REPLIES_SUPPRESSED]
        self._receivers_refused = system_counters[DriverCounterId.FLOW_CONTROL_RECEIVERS_REFUSED]
        self._shown_receiver_count = self._told_refused_count = 0
        # A strategy derived from `UnicastFlowControl` may do more with a status message.
        control = self.flow_control
        self._plain_flow_control = control if type(control) is UnicastFlowControl else None
        self._fast_until_ns = self._fast_position = 0
        self.is_connected = self.is_end_of_stream = self.is_sending = False
        self.has_unicast_eos = self._has_initial_connection = self.has_new_limit = False
        self._is_setup_elicited = self._is_linger_skipped = False

    @property
    def sender_position(self) -> int:
        """Return the position up to which data has been sent, in bytes."""
        return self._sender.position

    @property
    def sender_limit(self) -> int:
        """Return the position up to which data may be sent, in bytes."""
        return self._sender.limit

    @property
    def publisher_limit(self) -> int:
        """Return the position below which an offer may begin, in bytes."""
        return self._window.limit

    @property
    def has_receivers(self) -> bool:
        """Return whether any receiver is alive."""
        return len(self._receivers) > 0

    @property
    def seen_position(self) -> int:
        """Return the position up to which the stream was sent, in bytes."""
        return self._sender.position

    @property
    def join_position(self) -> int:
        """Return where a spy that joins now starts, in bytes."""
        return self._sender.position

    @property
    def is_accepting_subscriptions(self) -> bool:
        """Return whether a spy that joins now can still read something."""
        if self.state is PublicationState.DRAINING:
            return self.subscribers.has_working and self.producer_position > self.sender_position
        return self.state is PublicationState.ACTIVE

    # Control frames.

    def on_status_message_fast(
        self, term_id: int, term_offset: int, window_length: int, receiver_id: int, now_ns: int
    ) -> bool:
        """Take a status message without flags; return False, without any effect, for the long way.

        Unlike for the long way, the caller has not checked the fields. `has_new_limit` says whether
        a poll has anything to do then.
        """
        log, sender, flow_control = self.log, self._sender, self._plain_flow_control
        half_term = log.term_length // 2
        if not (
            flow_control is not None
            and self.is_connected
            and 0 <= term_offset < log.term_length
            and not term_offset % FRAME_ALIGNMENT
            and 0 <= window_length <= half_term
        ):
            return False
        # `compute_position` is not needed: the range check below also refuses a term before the
        # first and a position past the end of the stream.
        term_count = (term_id - log.initial_term_id) & UINT32_MASK
        position = (term_count << log.position_bits) + term_offset
        sent_position, limit = sender.position, sender.limit
        lowest = min(limit, sent_position) - half_term
        if (
            term_count > LAST_TERM_COUNT
            or not lowest <= position <= sent_position + half_term
            or not self._receivers.on_status_message_fast(receiver_id, now_ns)
        ):
            return False
        self._receivers.reports[receiver_id] = position, window_length
        self._retransmit_handler.budget.window_length = window_length
        flow_control.receiver_id = receiver_id
        edge = min(sent_position, position) + window_length
        self.has_new_limit = edge > limit
        if edge > limit:
            sender.set_limit(edge)
        return True

    @defer_exception
    def on_status_message(
        self, sm: StatusMessage, now_ns: int, *, source: Address | None = None
    ) -> bool:
        """Take a status message; return False if no receiver of this stream can have sent it."""
        if sm.is_setup_elicit:
            if not self.is_end_of_stream:
                self._is_setup_elicited = True
                self.flow_control.on_trigger_send_setup(sm, now_ns=now_ns)
            return True
        log, (term_id, offset) = self.log, (sm.consumption_term_id, sm.consumption_term_offset)
        initial_term_id, bits = log.initial_term_id, log.position_bits
        position = compute_position(term_id, offset, initial_term_id=initial_term_id, bits=bits)
        # Differs: Aeron measures from the sender position alone. Padding may have moved that past
        # the limit. Then the honest position of a slow receiver would be refused, and the receiver
        # would be dropped after the connection timeout.
        half_term = log.term_length // 2
        lowest = min(self.sender_position, self.sender_limit) - half_term
        if not max(0, lowest) <= position <= self.sender_position + half_term:
            self._rejected_status_messages.increment()
            return False
        if sm.is_end_of_stream:
            if not self._receivers.on_goodbye(sm.receiver_id):
                return False
            if self.params.is_unicast:
                self.has_unicast_eos = True
        else:
            self._receivers.on_status_message(sm.receiver_id, now_ns, source)
            self._receivers.reports[sm.receiver_id] = position, sm.receiver_window
        if not self._has_initial_connection:
            self._has_initial_connection = True
            self._sender.on_answered()
        self._retransmit_handler.budget.window_length = sm.receiver_window
        limit = self.flow_control.on_status_message(
            sm,
            # Differs: In Aeron a receiver that claims more than was sent raises the limit by as
            # much. The window was checked before: it is at most half a term.
            position=min(position, self.sender_position),
            sender_limit=self.sender_limit,
            now_ns=now_ns,
        )
        self._set_sender_limit(limit)
        if sm.is_end_of_stream or not self.is_connected:
            # In all other cases the next poll does this, once for all messages that arrived.
            self._update_window()
        return True

    def on_foreign_status_message(self) -> None:
        """Answer a status message that does not fit this publication's terms with a SETUP.

        Differs: Aeron ignores it. A receiver that took other terms from a forged SETUP then accepts
        the data of this publication as its own stream, and the sender limit never moves.
        """
        if not self.is_end_of_stream:
            self._is_setup_elicited = True

    def send_setup_soon(self) -> None:
        """Let the next SETUP be sent at once: until now there was no address to send it to."""
        self._sender.send_setup_soon()

    @defer_exception
    def on_naks(
        self, asked: Sequence[Sequence[int]], now_ns: int, *, source: Address | None = None
    ) -> None:
        """Resend what NAKs ask for that arrived together.

        Each is a term id, a term offset and a length in bytes, which lie within a term.
        """
        log, sender = self.log, self._sender
        bound, answer = self.flow_control.max_retransmission_length, self._retransmit_handler.on_nak
        self.counters.naks_received.increment(len(asked))
        answered_ends: list[int] = []
        for term_id, term_offset, length in asked:
            granted = bound(term_offset=term_offset, length=length, term_length=log.term_length)
            position = compute_position(
                term_id, term_offset, initial_term_id=log.initial_term_id, bits=log.position_bits
            )
            is_answered = answer(
                position=position,
                length=granted,
                sender_position=sender.position,
                now_ns=now_ns,
            )
            if is_answered:
                answered_ends.append(position + length)
        is_sent = sender.send_resends(self._retransmit_handler.take_back)
        if is_sent and not self.params.has_group_semantics:
            for end in answered_ends:
                sender.round_trip.on_nak(end, sender.position, now_ns)
        sender.refused_naks.tell(source, now_ns)

    @defer_exception
    def on_error(
        self,
        error: ErrorFrame,
        now_ns: int,
        *,
        source: Address | None = None,
        destination_id: int | None = None,
    ) -> None:
        """Take an error frame: a receiver rejects the stream, or refuses to join it.

        A refusal is only reported to the listener, and not even that if there are receivers.
        """
        if error.error_code != ErrorCode.IMAGE_REJECTED and not self.has_receivers:
            if self._receivers.on_refusal(error.receiver_id, now_ns):
                self._listener.on_publication_error(self, error, source, destination_id)
            return
        if not self._receivers.on_error(error.receiver_id, now_ns):
            return
        self.flow_control.on_error(
            receiver_id=error.receiver_id,
            group_tag=error.group_tag if error.has_group_tag else None,
            now_ns=now_ns,
        )
        self._listener.on_publication_error(self, error, source, destination_id)
        self._update_window()

    def on_rttm(self, rttm: RttMeasurement, now_ns: int) -> None:
        """Answer a round-trip measurement; replies to our own requests never reach this method.

        Differs: Aeron answers every request. CUBIC with its measurements switched on asks again
        after four round trips, so fifty replies a second answer every request where a round trip
        takes 5 ms or more. Where it takes less, the measurement is up to a second old, and only TCP
        mode uses it.
        """
        if not rttm.is_reply_requested:
            return
        if not self._rtt_limiter.try_take(rttm.receiver_id, now_ns):
            self._rtt_replies_suppressed.increment()
            return
        # Bytes behind the known fields are not echoed: the reply has the length of the fields.
        reply = attrs.evolve(rttm, flags=RttFlags(0), reception_delta_ns=0, trailing=b"")
        # If that fails the reply is lost, and the receiver asks again.
        self._sender.send(reply.encode())

    # Polling.

    def send_data_fast(self, now_ns: int) -> bool:
        """Send what was just offered, if that is all; return False if `poll` must be called.

        A datagram may have left even then: the poll sends what follows it.
        """
        sender = self._sender
        is_allowed = now_ns < self._fast_until_ns and sender.position <= self._fast_position
        if not (is_allowed and sender.send_data_fast(now_ns)):
            return False
        self._on_all_sent()
        return True

    def heartbeat_fast(
        self, now_ns: int, due_ns: int = 0, batch: HeartbeatBatch | None = None
    ) -> int:
        """Send a heartbeat if one is due; return the next deadline, or 0: `poll` must be called."""
        until_ns = self._fast_until_ns
        if now_ns >= until_ns or self.wake_flag.is_set:
            return 0
        sender = self._sender
        if max(now_ns, due_ns) >= sender.heartbeat_deadline_ns:
            sender.send_heartbeat(now_ns, is_end_of_stream=False, batch=batch)
        return min(sender.heartbeat_deadline_ns, until_ns)

    def poll(self, now_ns: int) -> int:
        """Send all that is due, and return the next deadline.

        Raises:
            Exception: What the flow control raised, in this poll or since the last one.
        """
        self.wake_flag.is_set = False
        self._fast_until_ns = 0
        if self.state is PublicationState.DONE:
            return NEVER_NS
        if self.failure is not None:
            raise self.failure
        sender, deadline_ns = self._sender, NEVER_NS
        if self.params.is_response_requested:
            deadline_ns = self._receivers.note_position(sender.position, now_ns)
        if not self._has_initial_connection or self._is_setup_elicited:
            deadline_ns = min(deadline_ns, self._check_setup(now_ns))
        before = sender.position
        retry_ns = sender.send_data(now_ns)
        was_sending, self.is_sending = self.is_sending, retry_ns <= now_ns
        deadline_ns = min(deadline_ns, retry_ns)
        is_idle = sender.position == before
        self.has_sent_burst = sender.position - before > self.log.mtu_length
        if is_idle:
            if self._has_initial_connection and now_ns >= sender.heartbeat_deadline_ns:
                sender.send_heartbeat(now_ns, is_end_of_stream=self.is_end_of_stream)
            if self._is_simulated:
                # What the spies have read counts as sent: there is no receiver to send it to.
                sender.skip_to(max(self.subscribers.consumed()))
        # Not only when idle, as in Aeron's spinning sender: ours may find data in every poll.
        self._receivers.expire(now_ns)
        deadline_ns = min(deadline_ns, self._poll_flow_control(now_ns, is_idle=is_idle))
        self._update_window(has_stopped=was_sending and not self.is_sending)
        deadline_ns = min(deadline_ns, self._retransmit_handler.poll(now_ns), self._advance(now_ns))
        sender.send_resends(self._retransmit_handler.take_back)
        if (
            self.state is PublicationState.ACTIVE
            and self.is_connected
            and not len(self.subscribers)
        ):
            until_ns = min(deadline_ns, self._receivers.deadline_ns())
            self._fast_until_ns = min(until_ns, now_ns + FAST_MAX_NS)
            self._fast_position = self._window_trigger
        if self._has_initial_connection:
            deadline_ns = min(deadline_ns, sender.heartbeat_deadline_ns)
        return deadline_ns

    def _check_setup(self, now_ns: int) -> int:
        if now_ns >= self._sender.setup_deadline_ns:
            if self._is_setup_elicited:
                self.flow_control.on_setup(sender_limit=self._sender.limit, now_ns=now_ns)
            position = self._receivers.start_position(self.sender_position, self.log.term_length)
            self._sender.send_setup(now_ns, position)
            # Without a receiver, the one that asked may not have got it: repeat every interval.
            if self.has_receivers:
                self._is_setup_elicited = False
        return self._sender.setup_deadline_ns

    # Flow control.

    def _poll_flow_control(self, now_ns: int, *, is_idle: bool) -> int:
        """Ask for the limit when that is due or nothing was sent, and return when to ask again.

        Differs: Aeron asks only in cycles that send no data. Its sender spins, so it has a million
        of those a second. Ours wakes up to send: a publisher that offers steadily leaves no
        such cycle, and dead receivers would never time out.
        """
        if not is_idle:
            deadline_ns = self.flow_control.deadline_ns()
            if now_ns < deadline_ns:
                return deadline_ns
        sender = self._sender
        before = sender.limit
        limit = self.flow_control.on_idle(
            sender_limit=sender.limit, sender_position=sender.position, now_ns=now_ns
        )
        self._set_sender_limit(limit)
        # Before, there may have been room, but not enough for the next frame.
        is_news = limit > before and limit > sender.position
        if is_news and self.producer_position > sender.position:
            return now_ns
        return self.flow_control.deadline_ns()

    def _set_sender_limit(self, limit: int) -> None:
        """Set the limit, and show how many receivers flow control tracks and has refused."""
        self._sender.set_limit(limit)
        refused_count = self.flow_control.refused_count()
        if refused_count != self._told_refused_count:
            self._receivers_refused.increment(refused_count - self._told_refused_count)
            self._told_refused_count = refused_count
        count = self.flow_control.receiver_count() or 0
        counter = self.counters.flow_control_receivers
        if counter is not None and count != self._shown_receiver_count:
            self._shown_receiver_count = count
            counter.set(count)

    # The window.

    @property
    def _is_simulated(self) -> bool:
        """Return whether spies replace the receivers, of which there are none."""
        return (
            self.params.spies_simulate_connection
            and self.subscribers.has_working
            and not len(self._receivers)
        )

    @property
    def _window_trigger(self) -> int:
        """Return the position that a spy or the sender must pass before the limit may rise."""
        window_length = self.params.publication_window_length
        return self._window.limit - window_length + (window_length >> TRIGGER_SHIFT)

    def _update_window(self, *, has_stopped: bool = False) -> None:
        """Update connection and publisher limit, and wake publishers that wait.

        Args:
            has_stopped: Whether the sender sends no more after it has said that it would.
        """
        if self.state is not PublicationState.ACTIVE:
            return
        position = self._sender.position
        has_receivers = len(self._receivers) > 0 and self.flow_control.has_required_receivers()
        has_spies = self.params.spies_simulate_connection and self.subscribers.has_working
        is_changed = self._set_connected(is_connected=has_receivers or has_spies)
        if has_stopped or position != self._told_position:
            self._told_position = position
            is_changed = True
        if self.is_connected:
            slowest = self.subscribers.join_position(position)
            is_changed = self._window.advance(slowest) or is_changed
        else:
            self._window.retract(position)
        if is_changed:
            self._on_window_changed()

    def _close_to_publishers(self, position: int) -> None:
        self._window.close(position)

    def _disconnect(self) -> None:
        self._set_connected(is_connected=False)

    def _set_connected(self, *, is_connected: bool) -> bool:
        if is_connected == self.is_connected:
            return False
        self.is_connected = is_connected
        RARE_CHANGES.note()
        self.log.metadata.is_connected = is_connected
        self._connection_log.info(
            "publication_connection_changed",
            is_connected=is_connected,
            channel=self.channel,
            session_id=self.session_id,
            stream_id=self.stream_id,
            position=self._sender.position,
        )
        return True

    # The state.

    def revoke(self, now_ns: int) -> None:
        """Take the stream back: undelivered data is lost, and readers see that it was revoked."""
        if self.state is PublicationState.ACTIVE:
            self.is_end_of_stream = self._sender.is_revoked = True
            super().revoke(now_ns)

    def skip_linger(self) -> None:
        """Skip the linger as soon as there is no receiver to linger for."""
        self._is_linger_skipped = True

    @property
    def _consumed_position(self) -> int:
        return self._sender.position

    def _linger(self, event: PublicationEvent, now_ns: int) -> None:
        if self.has_receivers:
            self._linger_timeout_ns = max(self._linger_timeout_ns, TOLD_LINGER_NS)
        super()._linger(event, now_ns)

    def _advance(self, now_ns: int) -> int:
        """Change the state as far as the time, the receivers and the spies allow."""
        producer_position = self.producer_position
        self.counters.publisher_position.set(producer_position)
        if len(self.subscribers):
            self._tell_readers(producer_position, trigger=self._window_trigger)
        if self.state is PublicationState.ACTIVE:
            return self._check_readers_and_publishers(producer_position, now_ns)
        if self.state is PublicationState.DRAINING:
            # A claim that is never committed must not hold up what was committed after it.
            if producer_position > self.sender_position and self._blocked_check.unblock(
                self.sender_position
            ):
                return now_ns
            if not self._is_drained(producer_position):
                return NEVER_NS
            if not self.subscribers.have_consumed(producer_position):
                return NEVER_NS
            release_subscribers(self, self._readers)
            self._linger(PublicationEvent.DRAINED, now_ns)
        # Differs: In C any goodbye ever received counts as the last one, and a receiver that joined
        # after it has a second at most to hear of the end. We wait for that one's goodbye too.
        is_over = (self.has_unicast_eos or self._is_linger_skipped) and not self.has_receivers
        is_over = is_over or self._sender.has_budget
        if self._is_linger_skipped and self._sender.is_revoked:
            # A receiver that had read everything sends no goodbye: time to hear of it is enough.
            is_over = is_over or self._has_lingered(now_ns, for_ns=REVOKED_LINGER_NS)
        return self._leave(now_ns, is_over=is_over)

    def _is_drained(self, producer_position: int) -> bool:
        if self.sender_position >= producer_position:
            self.is_end_of_stream = True
            return True
        return not self.has_receivers
