"""A network publication: its state, its connection, its limits, and its answers to receivers.

The publication decides; its outbox carries bytes and its listener hears what changed.

Invariant: data leaves only up to the sender limit that flow control allows, except that a padding
frame, of which only the header travels, may carry the sender position past it. What has been sent
stays in the log for half a term and a message, so that it can be sent again.

Invariant: the publisher limit, kept by `PublicationConnection`, follows the slowest of the sender
and the spies, and falls back to what was sent when no receiver or spy is connected.

Two classes are short ways, and leave to `NetworkPublication` all that is unusual:

- `QuietSender` sends one datagram that comes alone, or a heartbeat, without a poll: that is most
  of the work, and would find nothing to do. This holds until the next deadline of the publication,
  for an eighth of the window, and for a second at most;
- `StatusReports` takes a plain status message of a known receiver while the publication is
  connected. That moves the sender limit and nothing else, so no value is made of the message. It
  serves our own `UnicastFlowControl` only.

Source: Aeron `NetworkPublication`, `aeron_network_publication.c`, `ClientProxy`,
`NetworkPublication.updatePublisherPositionAndLimit`, `hasSubscribers`, `FlowControlReceivers`,
`NetworkPublication.onStatusMessage`, `UnicastFlowControl`, `NetworkPublication.onRttMeasurement`.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol, Self

import attrs

from aeron_async.driver.core.budgets import ReplyLimiter
from aeron_async.driver.core.context import HEARTBEAT_INTERVAL_NS
from aeron_async.driver.core.data_sender import StreamSender
from aeron_async.driver.core.flow_control.base import UnicastFlowControl
from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.driver.core.publication import (
    PublicationEvent,
    PublicationState,
    SubscribablePublication,
)
from aeron_async.driver.core.publisher_window import PublisherWindow
from aeron_async.driver.core.receiver_liveness import ReceiverLiveness
from aeron_async.driver.core.retransmit_handler import RetransmitHandler
from aeron_async.driver.core.strategies import held
from aeron_async.driver.core.subscriber_position import release_subscribers
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.errors import ErrorCode
from aeron_async.logbuffer.position import compute_position
from aeron_async.logs import get_logger, within
from aeron_async.protocol.header import FRAME_ALIGNMENT, RttFlags

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.counters import Counter
    from aeron_async.driver.core.budgets import RetransmitBudget
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.flow_control.base import FlowControl
    from aeron_async.driver.core.outbox import Address, DataOutbox
    from aeron_async.driver.core.stream_counters import PublicationCounters
    from aeron_async.driver.core.stream_params import PublicationParams
    from aeron_async.driver.core.subscriber_position import (
        SubscribableListener,
        SubscriberPositions,
    )
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.driver.core.timestamps import SendTimestamps
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.logbuffer.wake_flag import Doorbell
    from aeron_async.logs import LogBudget
    from aeron_async.protocol.error import ErrorFrame
    from aeron_async.protocol.nak import Nak
    from aeron_async.protocol.rtt import RttMeasurement
    from aeron_async.protocol.status_message import StatusMessage

__all__ = [
    "PLAIN",
    "REPORT",
    "NetworkPublication",
    "PublicationConnection",
    "PublicationListener",
    "QuietSender",
    "RttReplier",
    "SenderPace",
    "StatusReports",
]


class PublicationListener(Protocol):
    """Who hears what a publication has decided."""

    def on_window_changed(self, publication: NetworkPublication) -> None:
        """The publisher limit rose, data was sent, or the connection came or went."""
        ...

    def on_publication_error(
        self,
        publication: NetworkPublication,
        error: ErrorFrame,
        source: Address | None,
        destination_id: int | None,
    ) -> None:
        """A live receiver rejected the stream."""
        ...


# Connection and limits.

TRIGGER_SHIFT: Final = 3
"""Spies that have read an eighth of the window let the limit rise."""

log: Final = get_logger(__name__)


class PublicationConnection:
    """The connection of one network publication.

    Args:
        log_buffers: The terms it is written to.
        channel: The channel as its first client wrote it; for the log.
        params: Its window, and whether spies alone connect it.
        limit: Shows the publisher limit.
        receivers: Those on the network.
        spies: Those in this driver.
        flow_control: Says whether the receivers it requires are there.
        position: Where the stream starts, in bytes.
        log_budget: For its log lines, which peers can cause; None is without limit.

    Attributes:
        is_connected: Whether offers are taken.
    """

    def __init__(
        self,
        log_buffers: LogBuffers,
        *,
        channel: str,
        params: PublicationParams,
        limit: Counter,
        receivers: ReceiverLiveness,
        spies: SubscriberPositions,
        flow_control: FlowControl,
        position: int,
        log_budget: LogBudget | None = None,
    ) -> None:
        self.is_connected: bool = False
        self._log = log_buffers
        self._peer_log = within(log_budget, log)
        self._channel = channel
        self._receivers = receivers
        self._spies = spies
        self._flow_control = flow_control
        self._do_spies_connect = params.spies_simulate_connection
        self._window_length = params.publication_window_length
        self._window = PublisherWindow(
            log_buffers, limit, window_length=self._window_length, position=position
        )
        self._told_position = position

    @property
    def publisher_limit(self) -> int:
        """Return the position below which an offer may begin, in bytes."""
        return self._window.limit

    @property
    def is_simulated(self) -> bool:
        """Return whether spies stand in for receivers that are not there."""
        return self._do_spies_connect and self._spies.has_working and not len(self._receivers)

    @property
    def consumption_trigger(self) -> int:
        """Return the position beyond which the progress of a spy may let the limit rise."""
        window_length = self._window_length
        return self._window.limit - window_length + (window_length >> TRIGGER_SHIFT)

    def update(self, sender_position: int) -> bool:
        """Follow receivers, spies and sender; return whether the publishers should know."""
        has_receivers = len(self._receivers) > 0 and self._flow_control.has_required_receivers()
        has_spies = self._do_spies_connect and self._spies.has_working
        is_changed = self._set_connected(sender_position, is_connected=has_receivers or has_spies)
        if sender_position != self._told_position:
            self._told_position = sender_position
            is_changed = True
        if not self.is_connected:
            self._window.retract(sender_position)
            return is_changed
        slowest = self._spies.join_position(sender_position)
        return self._window.advance(slowest) or is_changed

    def close(self, producer_position: int) -> None:
        """Let nothing be appended any more."""
        self._window.close(producer_position)

    def disconnect(self, sender_position: int) -> None:
        """Let nobody be connected any more: the stream was revoked."""
        self._set_connected(sender_position, is_connected=False)

    def _set_connected(self, sender_position: int, *, is_connected: bool) -> bool:
        if is_connected == self.is_connected:
            return False
        self.is_connected = is_connected
        self._log.metadata.is_connected = is_connected
        self._peer_log.info(
            "publication_connection_changed",
            is_connected=is_connected,
            channel=self._channel,
            session_id=self._log.session_id,
            stream_id=self._log.stream_id,
            position=sender_position,
        )
        return True


class SenderPace:
    """Asks flow control for the limit, and shows how many receivers it tracks.

    Args:
        flow_control: Turns status messages into the sender limit.
        sender: Keeps the limit.
        counters: The publication's.
        system_counters: The driver's.
    """

    def __init__(
        self,
        flow_control: FlowControl,
        sender: StreamSender,
        counters: PublicationCounters,
        system_counters: SystemCounters,
    ) -> None:
        self._flow_control = flow_control
        self._sender = sender
        self._receivers = counters.flow_control_receivers
        self._refused = system_counters[DriverCounterId.FLOW_CONTROL_RECEIVERS_REFUSED]
        self._shown_count = 0
        self._told_refused_count = 0

    def on_status_message(self, sm: StatusMessage, *, position: int, now_ns: int) -> None:
        """Take a status message whose consumption is at `position`."""
        limit = self._flow_control.on_status_message(
            sm, position=position, sender_limit=self._sender.limit, now_ns=now_ns
        )
        self._sender.set_limit(limit)
        self._show()

    def poll(self, now_ns: int, *, is_idle: bool) -> int:
        """Ask for the limit when that is due or nothing was sent, and return when to ask again.

        Differs: Aeron asks in cycles without data alone. It spins, and has a million of those in a
        second; we wake up to send, and who offers steadily would never let the dead time out.
        """
        sender = self._sender
        if is_idle or now_ns >= self._flow_control.deadline_ns():
            was_blocked = sender.limit <= sender.position
            limit = self._flow_control.on_idle(
                sender_limit=sender.limit, sender_position=sender.position, now_ns=now_ns
            )
            sender.set_limit(limit)
            self._show()
            if was_blocked and limit > sender.position:
                return now_ns
        return self._flow_control.deadline_ns()

    def _show(self) -> None:
        refused_count = self._flow_control.refused_count()
        if refused_count != self._told_refused_count:
            self._refused.increment(refused_count - self._told_refused_count)
            self._told_refused_count = refused_count
        count = self._flow_control.receiver_count() or 0
        if self._receivers is not None and count != self._shown_count:
            self._shown_count = count
            self._receivers.set(count)


# Short ways.

LONGEST_NS: Final = 1_000_000_000
"""How often a publication is polled at least: as often as Aeron's conductor looks at timeouts."""


class QuietSender:
    """The short ways of one publication; each returns a false value where `poll` is to be called.

    Args:
        sender: Sends.
        doorbell: Rung when something was offered.
        counters: The publication's.
        on_sent: Told of data that was sent.
    """

    __slots__ = ("_counters", "_doorbell", "_on_sent", "_position", "_sender", "_until_ns")

    def __init__(
        self,
        sender: StreamSender,
        doorbell: Doorbell,
        counters: PublicationCounters,
        on_sent: Callable[[], None],
    ) -> None:
        self._sender = sender
        self._doorbell = doorbell
        self._counters = counters
        self._on_sent = on_sent
        self._until_ns = self._position = 0

    def begin(self, now_ns: int, *, until_ns: int, position: int) -> None:
        """Be quiet from now on.

        Args:
            now_ns: The time now.
            until_ns: When anything is due but heartbeats.
            position: Data beyond it lets the limit move, in bytes.
        """
        self._until_ns = min(until_ns, now_ns + LONGEST_NS)
        self._position = position

    def end(self) -> None:
        """Leave everything to polls."""
        self._until_ns = 0

    def try_send_alone(self, now_ns: int) -> bool:
        """Send what was offered just now, if that is all there is to send."""
        sender = self._sender
        is_quiet = now_ns < self._until_ns and sender.position <= self._position
        if not (is_quiet and sender.send_alone(now_ns)):
            return False
        self._doorbell.is_rung = False
        self._counters.publisher_position.set(sender.position)
        self._on_sent()
        return True

    def try_beat(self, now_ns: int) -> int:
        """Send a heartbeat if it is time to, and return the next deadline."""
        until_ns = self._until_ns
        if now_ns >= until_ns or self._doorbell.is_rung:
            return 0
        sender = self._sender
        if now_ns >= sender.heartbeat_deadline_ns:
            sender.send_heartbeat(now_ns, is_end_of_stream=False)
        return min(sender.heartbeat_deadline_ns, until_ns)


UINT32_MASK: Final = 0xFFFF_FFFF
LAST_TERM_COUNT: Final = 2**31 - 1

REPORT: Final = Struct("<iiiiiiiq")
"""A status message whose version, flags and type are read as one word."""
PLAIN: Final = 3 << 16
"""That word of a status message of our version without flags."""


class StatusReports:
    """The short way of status messages to one publication.

    Args:
        flow_control: The publication's.
        log: The terms that positions are told by.
        sender: Keeps the limit.
        receivers: Those that were heard before.
        connection: Says whether there is one.
        budget: Wants to know of the receiver window.
    """

    __slots__ = (
        "_bits",
        "_budget",
        "_connection",
        "_flow_control",
        "_half_term",
        "_initial_term_id",
        "_receivers",
        "_sender",
        "_term_length",
    )

    def __init__(
        self,
        flow_control: UnicastFlowControl,
        log: LogBuffers,
        sender: StreamSender,
        receivers: ReceiverLiveness,
        connection: PublicationConnection,
        budget: RetransmitBudget,
    ) -> None:
        self._bits = log.position_bits
        self._initial_term_id = log.initial_term_id
        self._term_length = log.term_length
        self._half_term = log.term_length // 2
        self._sender = sender
        self._receivers = receivers
        self._connection = connection
        self._flow_control = flow_control
        self._budget = budget

    @classmethod
    def of(
        cls,
        flow_control: FlowControl,
        log: LogBuffers,
        sender: StreamSender,
        receivers: ReceiverLiveness,
        connection: PublicationConnection,
        budget: RetransmitBudget,
    ) -> Self | None:
        """Return the short way to a publication; None where its strategy is not that of unicast.

        One derived from that may do more, and wants to be asked.
        """
        if type(flow_control) is not UnicastFlowControl:
            return None
        return cls(flow_control, log, sender, receivers, connection, budget)

    def try_take(
        self, term_id: int, term_offset: int, window_length: int, receiver_id: int, now_ns: int
    ) -> bool:
        """Take a plain status message; False where it has to go the long way, and did nothing yet.

        Args:
            term_id: Of the consumption.
            term_offset: Of the consumption, in bytes.
            window_length: Of the receiver, in bytes.
            receiver_id: Who says so.
            now_ns: The time now.
        """
        if not (
            0 <= term_offset < self._term_length
            and not term_offset % FRAME_ALIGNMENT
            and 0 <= window_length <= self._half_term
            and self._connection.is_connected
        ):
            return False
        # Not by `compute_position`: a term before the first, and the end of all positions, lie
        # beyond half a term here.
        term_count = (term_id - self._initial_term_id) & UINT32_MASK
        position = (term_count << self._bits) + term_offset
        sender, half_term = self._sender, self._half_term
        sent_position, limit = sender.position, sender.limit
        lowest = min(limit, sent_position) - half_term
        if (
            term_count > LAST_TERM_COUNT
            or not lowest <= position <= sent_position + half_term
            or not self._receivers.hear_again(receiver_id, now_ns)
        ):
            return False
        self._budget.window_length = window_length
        self._flow_control.receiver_id = receiver_id
        edge = min(sent_position, position) + window_length
        if edge > limit:
            sender.set_limit(edge)
        return True


# Answers to round-trip measurements.


class RttReplier:
    """What one publication says to those who measure their distance to it.

    Args:
        send: Takes a datagram; one that cannot leave is lost, and the asker asks again.
        context: How many are answered in a second, in all and for each receiver id.
        system_counters: The driver's.
    """

    def __init__(
        self,
        send: Callable[[bytes], bool],
        context: DriverContext,
        system_counters: SystemCounters,
    ) -> None:
        self._send = send
        self._suppressed = system_counters[DriverCounterId.RTT_REPLIES_SUPPRESSED]
        self._limiter = ReplyLimiter(
            limit=context.max_rtt_replies_per_second,
            limit_per_asker=context.max_rtt_replies_per_source,
        )

    def on_rttm(self, rttm: RttMeasurement, now_ns: int) -> None:
        """Answer a request; replies to ours never come this way.

        Differs: Aeron answers every one. CUBIC with its measurements switched on asks again after
        four round trips: fifty answers a second are one to each request where a round trip takes 5
        ms or more. Where it takes less, the measurement is up to a second old, and only TCP mode
        makes any use of it.
        """
        if not rttm.is_reply_requested:
            return
        if not self._limiter.try_take(rttm.receiver_id, now_ns):
            self._suppressed.increment()
            return
        # What lies behind the fields is not carried back: the answer is as short as they are.
        reply = attrs.evolve(rttm, flags=RttFlags(0), reception_delta_ns=0, trailing=b"")
        self._send(reply.encode())


# The publication.

REVOKED_LINGER_NS: Final = 3 * HEARTBEAT_INTERVAL_NS


class NetworkPublication(SubscribablePublication):
    """One stream on its way out; its subscribers are spies.

    Args:
        registration_id: Names the publication within its driver.
        channel: The channel as its first client wrote it.
        log: The terms it is written to.
        params: What the channel and the context say of it.
        context: The driver's settings.
        flow_control: Turns status messages into the sender limit.
        counters: Its own counters.
        system_counters: The driver's.
        outbox: Takes the datagrams.
        listener: Hears of changes.
        readers: Tells the clients of spies.
        now_ns: The time now.
        timestamps: Writes the time of sending into messages; None where nobody asked for it.

    Attributes:
        is_end_of_stream: Whether receivers are told that nothing more comes.
        has_unicast_eos: Whether its one receiver has said goodbye.
        reports: The short way of plain status messages, if there is one.
    """

    has_unicast_eos: bool

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
        listener: PublicationListener,
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
        self.is_end_of_stream: bool = False
        self._rejected_status_messages = system_counters[SystemCounterId.STATUS_MESSAGES_REJECTED]
        self._listener = listener
        self._receivers = ReceiverLiveness(context, system_counters)
        self._sender = StreamSender(
            log,
            params=params,
            counters=counters,
            system_counters=system_counters,
            outbox=outbox,
            burst_limit=context.network_publication_max_messages_per_send,
            now_ns=now_ns,
            timestamps=timestamps,
        )
        self._pace = SenderPace(flow_control, self._sender, counters, system_counters)
        self._connection = PublicationConnection(
            log,
            channel=channel,
            params=params,
            limit=counters.publisher_limit,
            receivers=self._receivers,
            spies=self.subscribers,
            flow_control=flow_control,
            position=self._sender.position,
            log_budget=system_counters.log_budget,
        )
        self._set_up_answers(context, system_counters)
        self._has_initial_connection = self.has_unicast_eos = False
        self._is_setup_elicited = self._is_hastened = False

    def _set_up_answers(self, context: DriverContext, system_counters: SystemCounters) -> None:
        sender = self._sender
        self.quiet: QuietSender | None
        self.quiet = self._quiet = QuietSender(
            sender, self.doorbell, self.counters, partial(self._listener.on_window_changed, self)
        )
        rtt_replier = RttReplier(sender.send, context, system_counters)
        self.on_rttm: Callable[[RttMeasurement, int], None] = rtt_replier.on_rttm
        self.hasten_setup: Callable[[], None] = sender.hasten_setup
        self._retransmit_handler = RetransmitHandler.of(
            sender.resend, context, self.params, system_counters, position=sender.position
        )
        budget = self._retransmit_handler.budget
        self.reports: StatusReports | None = StatusReports.of(
            self.flow_control, self.log, sender, self._receivers, self._connection, budget
        )

    @property
    def is_connected(self) -> bool:
        """Return whether the required receivers are there, or spies that stand in for them."""
        return self._connection.is_connected

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
        return self._connection.publisher_limit

    @property
    def has_receivers(self) -> bool:
        """Return whether any receiver is alive."""
        return len(self._receivers) > 0

    @property
    def join_position(self) -> int:
        """Return where a spy that comes now would start, in bytes."""
        return self.sender_position

    @property
    def is_accepting_subscriptions(self) -> bool:
        """Return whether a spy that comes now would still get something."""
        if self.state is PublicationState.DRAINING:
            return self.subscribers.has_working and self.producer_position > self.sender_position
        return self.state is PublicationState.ACTIVE

    # What arrives on the control path.

    def on_foreign_status_message(self) -> None:
        """Answer a status message that cannot be meant for these terms with a SETUP.

        Differs: Aeron ignores it. A receiver that was given other terms, by a forged SETUP, then
        takes what is sent for its own stream, and no limit ever moves.
        """
        if not self.is_end_of_stream:
            self._is_setup_elicited = True

    @held
    def on_status_message(
        self, sm: StatusMessage, now_ns: int, *, source: Address | None = None
    ) -> bool:
        """Take a status message for this stream; return False for one that nobody of ours sends.

        The caller has checked its fields.
        """
        if sm.is_setup_elicit:
            if not self.is_end_of_stream:
                self._is_setup_elicited = True
                self.flow_control.on_trigger_send_setup(sm, now_ns=now_ns)
            return True
        log, (term_id, offset) = self.log, (sm.consumption_term_id, sm.consumption_term_offset)
        initial_term_id, bits = log.initial_term_id, log.position_bits
        position = compute_position(term_id, offset, initial_term_id=initial_term_id, bits=bits)
        # Differs: Aeron measures from the sender position alone. Padding may have carried that past
        # the limit, and then the honest position of a receiver that reads slowly would be refused,
        # and after the connection timeout the receiver forgotten.
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
        if not self._has_initial_connection:
            self._has_initial_connection = True
            self._sender.on_answered()
        self._retransmit_handler.budget.window_length = sm.receiver_window
        # Differs: Aeron lets whoever claims to have more than was sent raise the limit by as much.
        # The window itself was found to be half a term at most.
        self._pace.on_status_message(
            sm, position=min(position, self.sender_position), now_ns=now_ns
        )
        if sm.is_end_of_stream or not self._connection.is_connected:
            # Otherwise the poll that follows sees to it, once for all that has come.
            self._update_window()
        return True

    @held
    def on_nak(self, nak: Nak, now_ns: int, *, source: Address | None = None) -> None:
        """Take a NAK for this stream from `source`; the caller has checked its fields."""
        self.counters.naks_received.increment()
        granted = self.flow_control.max_retransmission_length(
            term_offset=nak.term_offset, length=nak.length, term_length=self.log.term_length
        )
        self._retransmit_handler.on_nak(
            term_id=nak.term_id,
            term_offset=nak.term_offset,
            length=granted,
            sender_position=self.sender_position,
            now_ns=now_ns,
        )
        self._sender.refused_naks.tell(source, now_ns)

    @held
    def on_error(
        self,
        error: ErrorFrame,
        now_ns: int,
        *,
        source: Address | None = None,
        destination_id: int | None = None,
    ) -> None:
        """Take a rejection by one of its receivers, or a refusal to become one.

        A refusal is only told, and changes nothing else; with receivers it is not even told.
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

    # What leaves.

    def poll(self, now_ns: int) -> int:
        """Send all that is due, and return the next deadline.

        Raises:
            Exception: Whatever its flow control raised, now or since the last time.
        """
        self.doorbell.is_rung = False
        self._quiet.end()
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
        deadline_ns = min(deadline_ns, sender.send_data(now_ns))
        is_idle = sender.position == before
        self.has_sent_burst: bool = sender.position - before > self.log.mtu_length
        if is_idle:
            if self._has_initial_connection and now_ns >= sender.heartbeat_deadline_ns:
                sender.send_heartbeat(now_ns, is_end_of_stream=self.is_end_of_stream)
            if self._connection.is_simulated:
                # What the spies have read counts as sent, although nobody was there to send it to.
                sender.skip_to(max(self.subscribers.consumed()))
        # Not when idle only, as a sender that spins may: ours may find data each time it looks.
        self._receivers.expire(now_ns)
        deadline_ns = min(deadline_ns, self._pace.poll(now_ns, is_idle=is_idle))
        self._update_window()
        deadline_ns = min(deadline_ns, self._retransmit_handler.poll(now_ns), self._advance(now_ns))
        if self._life.is_active and self.is_connected and not len(self.subscribers):
            self._quiet.begin(
                now_ns,
                until_ns=min(deadline_ns, self._receivers.deadline_ns()),
                position=self._connection.consumption_trigger,
            )
        if self._has_initial_connection:
            deadline_ns = min(deadline_ns, sender.heartbeat_deadline_ns)
        return deadline_ns

    def revoke(self, now_ns: int) -> None:
        """Take the stream back: whatever has not arrived yet is lost, and the readers know why."""
        if self._life.is_active:
            self.is_end_of_stream = True
            super().revoke(now_ns)

    def hasten(self) -> None:
        """Do not linger once nobody is left to linger for."""
        self._is_hastened = True

    def _close_to_publishers(self, position: int) -> None:
        self._connection.close(position)

    def _disconnect(self) -> None:
        self._connection.disconnect(self.sender_position)

    @property
    def _consumed_position(self) -> int:
        return self._sender.position

    def _advance(self, now_ns: int) -> int:
        """Move through the states as far as the time, the receivers and the spies allow."""
        producer_position = self.producer_position
        self.counters.publisher_position.set(producer_position)
        if len(self.subscribers):
            trigger = self._connection.consumption_trigger
            self._tell_readers(producer_position, trigger=trigger)
        if self._life.is_active:
            return self._check_readers_and_publishers(producer_position, now_ns)
        if self.state is PublicationState.DRAINING:
            # A claim that nobody will ever commit must not hold what was committed after it.
            if producer_position > self.sender_position and self._blocked_check.unblock(
                self.sender_position
            ):
                return now_ns
            if not self._is_drained(producer_position):
                return NEVER_NS
            if not self.subscribers.have_consumed(producer_position):
                return NEVER_NS
            release_subscribers(self, self._readers)
            self._life.linger(PublicationEvent.DRAINED, self.sender_position, now_ns)
        # Differs: C takes any goodbye it ever heard for the last, and leaves a receiver that came
        # after it a second at most to hear of the end; we wait for the goodbye of that one too.
        is_over = (self.has_unicast_eos or self._is_hastened) and not self.has_receivers
        is_over = is_over or self._sender.has_budget
        if self._is_hastened and self.log.metadata.is_publication_revoked:
            # A receiver that had read everything says no goodbye: enough that it could hear.
            is_over = is_over or self._life.has_lingered(now_ns, for_ns=REVOKED_LINGER_NS)
        return self._life.leave(self.sender_position, now_ns, is_over=is_over)

    def _is_drained(self, producer_position: int) -> bool:
        if self.sender_position >= producer_position:
            self.is_end_of_stream = True
            return True
        return not self.has_receivers

    def _check_setup(self, now_ns: int) -> int:
        if now_ns >= self._sender.setup_deadline_ns:
            if self._is_setup_elicited:
                self.flow_control.on_setup(sender_limit=self._sender.limit, now_ns=now_ns)
            position = self._receivers.start_position(self.sender_position, self.log.term_length)
            self._sender.send_setup(now_ns, position)
            # Without a receiver the one who asked may not have heard: go on every interval.
            if self.has_receivers:
                self._is_setup_elicited = False
        return self._sender.setup_deadline_ns

    def _update_window(self) -> None:
        """Follow the connection and the sender with the publisher limit, and tell who waits."""
        if self._life.is_active and self._connection.update(self.sender_position):
            self._listener.on_window_changed(self)
