"""A network publication: its state, its connection, its limits, and its answers to receivers.

`NetworkPublication` decides what to send; its outbox carries the bytes, and its listener is called
when something changed.

Invariant: data is sent only up to the sender limit that flow control allows. One exception: of a
padding frame only the header is sent, so padding may move the sender position past the limit. Sent
data stays in the log for half a term plus the longest message, so that it can be sent again.

Invariant: the publisher limit, kept by `PublicationConnection`, is the publication window ahead of
the slowest of the sender and the spies. It falls back to the sender position when neither a
receiver nor a spy is connected.

Two classes are fast paths; both leave every unusual case to `NetworkPublication`:

- `QuietSender` sends a single offered datagram, or a heartbeat, without a poll of the publication.
  It may do so until the next deadline of the publication, for an eighth of the window, and for one
  second at most.
- `StatusReports` handles a plain status message of a known receiver while the publication is
  connected. Such a message moves only the sender limit, so no `StatusMessage` is built. It works
  with our own `UnicastFlowControl` only.

Source: Aeron `NetworkPublication`, `aeron_network_publication.c`, `ClientProxy`,
`NetworkPublication.updatePublisherPositionAndLimit`, `hasSubscribers`, `FlowControlReceivers`,
`NetworkPublication.onStatusMessage`, `UnicastFlowControl`, `NetworkPublication.onRttMeasurement`.
"""

from __future__ import annotations

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
from aeron_async.driver.core.strategies import defer_exception
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
    from aeron_async.logbuffer.wake_flag import WakeFlag
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


# Connection and limits.

TRIGGER_SHIFT: Final = 3
"""The limit may rise when a spy has read an eighth of the window."""

log: Final = get_logger(__name__)


class PublicationConnection:
    """The connection and the publisher limit of one network publication.

    Args:
        log_buffers: The terms the publication writes to.
        channel: The channel as its first client wrote it; for the log.
        params: The window length, and whether spies alone connect the publication.
        limit: The counter that shows the publisher limit.
        receivers: The receivers on the network.
        spies: The spies in this driver.
        flow_control: Decides whether all required receivers are there.
        position: Where the stream starts, in bytes.
        log_budget: Limits the log lines that peers can cause; None means no limit.

    Attributes:
        is_connected: Whether offers are accepted.
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
        """Return whether spies replace the receivers, of which there are none."""
        return self._do_spies_connect and self._spies.has_working and not len(self._receivers)

    @property
    def consumption_trigger(self) -> int:
        """Return the position that a spy must pass before its progress may raise the limit."""
        window_length = self._window_length
        return self._window.limit - window_length + (window_length >> TRIGGER_SHIFT)

    def update(self, sender_position: int) -> bool:
        """Follow receivers, spies and sender; return whether publishers must be woken."""
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
        """Pull the limit back to the producer position: nothing more may be appended."""
        self._window.close(producer_position)

    def disconnect(self, sender_position: int) -> None:
        """Mark the publication as not connected, because the stream was revoked."""
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
    """Asks flow control for the sender limit, and shows how many receivers flow control tracks."""

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
        """Update the limit from a status message whose consumption position is `position`."""
        limit = self._flow_control.on_status_message(
            sm, position=position, sender_limit=self._sender.limit, now_ns=now_ns
        )
        self._sender.set_limit(limit)
        self._show()

    def poll(self, now_ns: int, *, is_idle: bool) -> int:
        """Ask for the limit when that is due or nothing was sent, and return when to ask again.

        Differs: Aeron asks only in cycles that send no data. Its sender spins, so it has a million
        of those a second. Ours wakes up to send: a publisher that offers steadily leaves no
        such cycle, and dead receivers would never time out.
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


# Fast paths.

LONGEST_NS: Final = 1_000_000_000
"""The longest time between two polls of a publication: Aeron's conductor checks as often."""


class QuietSender:
    """The fast paths of one publication; a false return value means that `poll` must be called.

    Args:
        sender: Sends the datagrams.
        wake_flag: The publisher sets it when it has offered something.
        counters: The publication's counters.
        on_sent: Called after data was sent.
    """

    __slots__ = ("_counters", "_on_sent", "_position", "_sender", "_until_ns", "_wake_flag")

    def __init__(
        self,
        sender: StreamSender,
        wake_flag: WakeFlag,
        counters: PublicationCounters,
        on_sent: Callable[[], None],
    ) -> None:
        self._sender = sender
        self._wake_flag = wake_flag
        self._counters = counters
        self._on_sent = on_sent
        self._until_ns = self._position = 0

    def begin(self, now_ns: int, *, until_ns: int, position: int) -> None:
        """Enable the fast paths.

        Args:
            now_ns: The time now.
            until_ns: When something other than a heartbeat is due.
            position: In bytes; data sent beyond it may move the publisher limit.
        """
        self._until_ns = min(until_ns, now_ns + LONGEST_NS)
        self._position = position

    def end(self) -> None:
        """Disable the fast paths: the publication must be polled."""
        self._until_ns = 0

    def try_send_alone(self, now_ns: int) -> bool:
        """Send what was just offered, if that is all there is to send."""
        sender = self._sender
        is_quiet = now_ns < self._until_ns and sender.position <= self._position
        if not (is_quiet and sender.send_alone(now_ns)):
            return False
        self._wake_flag.is_set = False
        self._counters.publisher_position.set(sender.position)
        self._on_sent()
        return True

    def try_beat(self, now_ns: int) -> int:
        """Send a heartbeat if one is due, and return the next deadline."""
        until_ns = self._until_ns
        if now_ns >= until_ns or self._wake_flag.is_set:
            return 0
        sender = self._sender
        if now_ns >= sender.heartbeat_deadline_ns:
            sender.send_heartbeat(now_ns, is_end_of_stream=False)
        return min(sender.heartbeat_deadline_ns, until_ns)


UINT32_MASK: Final = 0xFFFF_FFFF
LAST_TERM_COUNT: Final = 2**31 - 1

REPORT: Final = Struct("<iiiiiiiq")
"""A status message whose version, flags and type are unpacked as one word."""
PLAIN: Final = 3 << 16
"""The value of that word in a status message of our version without flags."""


class StatusReports:
    """The fast path for status messages to one publication.

    `budget` is the retransmit budget, which needs the receiver window.
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
        """Return the fast path, or None where flow control is not exactly `UnicastFlowControl`.

        A class derived from it may do more with a status message, so it must get every one.
        """
        if type(flow_control) is not UnicastFlowControl:
            return None
        return cls(flow_control, log, sender, receivers, connection, budget)

    def try_take(
        self, term_id: int, term_offset: int, window_length: int, receiver_id: int, now_ns: int
    ) -> bool:
        """Take a plain status message; return False, without any effect, for the long path.

        Args:
            term_id: Term id of the consumption position.
            term_offset: Term offset of the consumption position, in bytes.
            window_length: The receiver window, in bytes.
            receiver_id: The receiver that sent the message.
            now_ns: The time now.
        """
        if not (
            0 <= term_offset < self._term_length
            and not term_offset % FRAME_ALIGNMENT
            and 0 <= window_length <= self._half_term
            and self._connection.is_connected
        ):
            return False
        # `compute_position` is not needed: the range check below also refuses a term before the
        # first and a position past the end of the stream.
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
    """Answers the round-trip measurements that receivers send to one publication.

    Args:
        send: Sends a datagram; if that fails the reply is lost, and the receiver asks again.
        context: Limits the replies per second, in all and for each receiver id.
        system_counters: The driver's counters.
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
        """Answer a request; replies to our own requests never reach this method.

        Differs: Aeron answers every request. CUBIC with its measurements switched on asks again
        after four round trips, so fifty replies a second answer every request where a round trip
        takes 5 ms or more. Where it takes less, the measurement is up to a second old, and only TCP
        mode uses it.
        """
        if not rttm.is_reply_requested:
            return
        if not self._limiter.try_take(rttm.receiver_id, now_ns):
            self._suppressed.increment()
            return
        # Bytes behind the known fields are not echoed: the reply has the length of the fields.
        reply = attrs.evolve(rttm, flags=RttFlags(0), reception_delta_ns=0, trailing=b"")
        self._send(reply.encode())


# The publication.

REVOKED_LINGER_NS: Final = 3 * HEARTBEAT_INTERVAL_NS


class NetworkPublication(SubscribablePublication):
    """One stream that this driver sends; its subscribers are spies.

    Args:
        registration_id: Identifies the publication within its driver.
        channel: The channel as its first client wrote it.
        log: The terms the publication writes to.
        params: Its parameters from the channel and the context.
        context: The driver's settings.
        flow_control: Turns status messages into the sender limit.
        counters: The publication's counters.
        system_counters: The driver's counters.
        outbox: Sends the datagrams.
        listener: Called when the publication changes.
        readers: Notifies the clients of the spies.
        now_ns: The time now.
        timestamps: Writes the send time into messages; None if the channel did not ask for it.

    Attributes:
        is_end_of_stream: Whether heartbeats announce the end of the stream.
        has_unicast_eos: Whether the only receiver of a unicast stream has sent its goodbye.
        reports: The fast path for plain status messages, if there is one.
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
        self._is_setup_elicited = self._is_linger_skipped = False

    def _set_up_answers(self, context: DriverContext, system_counters: SystemCounters) -> None:
        sender = self._sender
        self.quiet: QuietSender | None
        self.quiet = self._quiet = QuietSender(
            sender, self.wake_flag, self.counters, self._on_window_changed
        )
        rtt_replier = RttReplier(sender.send, context, system_counters)
        self.on_rttm: Callable[[RttMeasurement, int], None] = rtt_replier.on_rttm
        self.send_setup_soon: Callable[[], None] = sender.send_setup_soon
        self._retransmit_handler = RetransmitHandler.of(
            sender.resend, context, self.params, system_counters, position=sender.position
        )
        budget = self._retransmit_handler.budget
        self.reports: StatusReports | None = StatusReports.of(
            self.flow_control, self.log, sender, self._receivers, self._connection, budget
        )

    @property
    def is_connected(self) -> bool:
        """Return whether the required receivers, or spies that replace them, are there."""
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
        """Return where a spy that joins now starts, in bytes."""
        return self.sender_position

    @property
    def is_accepting_subscriptions(self) -> bool:
        """Return whether a spy that joins now can still read something."""
        if self.state is PublicationState.DRAINING:
            return self.subscribers.has_working and self.producer_position > self.sender_position
        return self.state is PublicationState.ACTIVE

    # What arrives on the control path.

    def on_foreign_status_message(self) -> None:
        """Answer a status message that does not fit this publication's terms with a SETUP.

        Differs: Aeron ignores it. A receiver that took other terms from a forged SETUP then accepts
        the data of this publication as its own stream, and the sender limit never moves.
        """
        if not self.is_end_of_stream:
            self._is_setup_elicited = True

    @defer_exception
    def on_status_message(
        self, sm: StatusMessage, now_ns: int, *, source: Address | None = None
    ) -> bool:
        """Take a status message; return False if no receiver of this stream can have sent it.

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
        if not self._has_initial_connection:
            self._has_initial_connection = True
            self._sender.on_answered()
        self._retransmit_handler.budget.window_length = sm.receiver_window
        # Differs: In Aeron a receiver that claims more than was sent raises the limit by as much.
        # The window was checked before: it is at most half a term.
        self._pace.on_status_message(
            sm, position=min(position, self.sender_position), now_ns=now_ns
        )
        if sm.is_end_of_stream or not self._connection.is_connected:
            # In all other cases the next poll does this, once for all messages that arrived.
            self._update_window()
        return True

    @defer_exception
    def on_nak(self, nak: Nak, now_ns: int, *, source: Address | None = None) -> None:
        """Resend what a NAK asks for; the caller has checked its fields."""
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

    # What leaves.

    def poll(self, now_ns: int) -> int:
        """Send all that is due, and return the next deadline.

        Raises:
            Exception: What the flow control raised, in this poll or since the last one.
        """
        self.wake_flag.is_set = False
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
                # What the spies have read counts as sent: there is no receiver to send it to.
                sender.skip_to(max(self.subscribers.consumed()))
        # Not only when idle, as in Aeron's spinning sender: ours may find data in every poll.
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
        """Take the stream back: undelivered data is lost, and readers see that it was revoked."""
        if self._life.is_active:
            self.is_end_of_stream = True
            super().revoke(now_ns)

    def skip_linger(self) -> None:
        """Skip the linger as soon as there is no receiver to linger for."""
        self._is_linger_skipped = True

    def _close_to_publishers(self, position: int) -> None:
        self._connection.close(position)

    def _disconnect(self) -> None:
        self._connection.disconnect(self.sender_position)

    @property
    def _consumed_position(self) -> int:
        return self._sender.position

    def _advance(self, now_ns: int) -> int:
        """Change the state as far as the time, the receivers and the spies allow."""
        producer_position = self.producer_position
        self.counters.publisher_position.set(producer_position)
        if len(self.subscribers):
            trigger = self._connection.consumption_trigger
            self._tell_readers(producer_position, trigger=trigger)
        if self._life.is_active:
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
            self._life.linger(PublicationEvent.DRAINED, self.sender_position, now_ns)
        # Differs: In C any goodbye ever received counts as the last one, and a receiver that joined
        # after it has a second at most to hear of the end. We wait for that one's goodbye too.
        is_over = (self.has_unicast_eos or self._is_linger_skipped) and not self.has_receivers
        is_over = is_over or self._sender.has_budget
        if self._is_linger_skipped and self.log.metadata.is_publication_revoked:
            # A receiver that had read everything sends no goodbye: time to hear of it is enough.
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
            # Without a receiver, the one that asked may not have got it: repeat every interval.
            if self.has_receivers:
                self._is_setup_elicited = False
        return self._sender.setup_deadline_ns

    def _update_window(self) -> None:
        """Update connection and publisher limit, and wake publishers that wait."""
        if self._life.is_active and self._connection.update(self.sender_position):
            self._on_window_changed()
