"""A stream as its sender sees it: setup, data, heartbeats, and the limit that offers may reach.

Invariant: data leaves only up to the sender limit that flow control allows, except that a padding
frame, of which only the header travels, may carry the sender position past it. What has been sent
stays in the log for half a term and a message, so that it can be sent again.

The publication decides; its outbox carries bytes and its listener hears what changed.
Source: Aeron `NetworkPublication`, `aeron_network_publication.c`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.context import HEARTBEAT_INTERVAL_NS
from aeron_async.driver.core.held_failure import held
from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.driver.core.publication_connection import PublicationConnection
from aeron_async.driver.core.publication_state import PublicationEvent, PublicationState
from aeron_async.driver.core.quiet_sender import QuietSender
from aeron_async.driver.core.receiver_liveness import ReceiverLiveness
from aeron_async.driver.core.retransmit_handler import RetransmitHandler
from aeron_async.driver.core.rtt_replier import RttReplier
from aeron_async.driver.core.sender_pace import SenderPace
from aeron_async.driver.core.status_reports import StatusReports
from aeron_async.driver.core.stream_sender import StreamSender
from aeron_async.driver.core.subscribable_publication import SubscribablePublication
from aeron_async.driver.core.subscriber_positions import release_subscribers
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.errors import ErrorCode
from aeron_async.logbuffer.position import compute_position

if TYPE_CHECKING:
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.flow_control.base import FlowControl
    from aeron_async.driver.core.outbox import Address, DataOutbox
    from aeron_async.driver.core.publication_counters import PublicationCounters
    from aeron_async.driver.core.publication_listener import PublicationListener
    from aeron_async.driver.core.publication_params import PublicationParams
    from aeron_async.driver.core.send_timestamps import SendTimestamps
    from aeron_async.driver.core.subscriber_positions import SubscribableListener
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.logbuffer.term_log import LogBuffers
    from aeron_async.protocol.error import ErrorFrame
    from aeron_async.protocol.nak import Nak
    from aeron_async.protocol.status_message import StatusMessage

__all__ = ["NetworkPublication"]

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
        self.is_end_of_stream = False
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
        self.quiet = self._quiet = QuietSender(
            sender, self.doorbell, self.counters, partial(self._listener.on_window_changed, self)
        )
        self.on_rttm = RttReplier(sender.send, context, system_counters).on_rttm
        self.hasten_setup = sender.hasten_setup
        self._retransmit_handler = RetransmitHandler.of(
            sender.resend, context, self.params, system_counters, position=sender.position
        )
        budget = self._retransmit_handler.budget
        self.reports = StatusReports.of(
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
        self.has_sent_burst = sender.position - before > self.log.mtu_length
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

    @held
    def forgive_silence(self, late_ns: int, now_ns: int) -> None:
        """Let nothing time out for the time in which this driver was not running."""
        super().forgive_silence(late_ns, now_ns)
        self._receivers.forgive(late_ns, now_ns)
        self.flow_control.forgive_silence(late_ns, now_ns)

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
