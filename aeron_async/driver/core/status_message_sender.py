"""Frames from receivers to senders: status messages, NAKs, SETUP requests, round-trip requests.

`SetupElicitor` serves a subscription with an explicit control address. Once a second it sends a
status message that names no stream, which makes the subscription a destination of the sender, and
keeps it one.

`StatusMessageSender` sends the frames of one image. A status message is due when consumption has
moved by a quarter of the window, when the window has changed, and at the latest after the status
message timeout. A periodic one repeats the position scheduled last, not what was consumed since.

Source: Aeron `ReceiveChannelEndpoint.sendSetupElicitingStatusMessage`,
`aeron_driver_receiver_add_pending_setup`, `PublicationImage.sendPendingStatusMessage`,
`sendPendingLoss`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.budgets import NakBudget
from aeron_async.driver.core.context import PENDING_SETUP_TIMEOUT_NS
from aeron_async.driver.core.image_connection import NEVER_HEARD_NS
from aeron_async.driver.core.lanes import Reporting
from aeron_async.driver.core.outbox import ReportBatch
from aeron_async.driver.core.rare_changes import RARE_CHANGES
from aeron_async.driver.core.strategies import raise_failures
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.errors import ErrorCode
from aeron_async.logbuffer.position import term_id_at
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import ErrorFlags, RttFlags, StatusMessageFlags
from aeron_async.protocol.nak import NAK_LENGTH, encode_requests
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.setup import ResponseSetup
from aeron_async.protocol.status_message import StatusMessage, encode_report

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.counters import Counter
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.image_connection import ImageConnections
    from aeron_async.driver.core.outbox import ReceiveDestination
    from aeron_async.driver.core.stream_counters import ImageCounters
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.logbuffer.log_buffers import LogBuffers

__all__ = [
    "SetupElicitor",
    "StatusMessageSender",
    "eliciting_status_message",
]

# SETUP requests to a control address.

ANY_SESSION_ID = 0
ANY_STREAM_ID = 0


def eliciting_status_message(
    *, session_id: int, stream_id: int, receiver_id: int, group_tag: int | None
) -> bytes:
    """Return the status message that asks for the SETUP of a stream; 0 and 0 ask for all."""
    return StatusMessage(
        flags=StatusMessageFlags.SEND_SETUP,
        session_id=session_id,
        stream_id=stream_id,
        consumption_term_id=0,
        consumption_term_offset=0,
        receiver_window=0,
        receiver_id=receiver_id,
        group_tag=group_tag,
    ).encode()


class SetupElicitor:
    """Sends SETUP requests by one destination, until no subscription of the endpoint needs it."""

    def __init__(
        self,
        destination: ReceiveDestination,
        *,
        receiver_id: int,
        group_tag: int | None,
        is_wanted: Callable[[], bool],
        short_sends: Counter,
    ) -> None:
        self._destination = destination
        self._receiver_id = receiver_id
        self._group_tag = group_tag
        self._is_wanted = is_wanted
        self._short_sends = short_sends
        self._deadline_ns = 0

    def poll(self, now_ns: int) -> int:
        """Request all streams if that is due, and return the next deadline."""
        if not self._is_wanted():
            return NEVER_NS
        if now_ns >= self._deadline_ns:
            self._deadline_ns = now_ns + PENDING_SETUP_TIMEOUT_NS
            self.elicit(stream_id=ANY_STREAM_ID, session_id=ANY_SESSION_ID)
        return self._deadline_ns

    def elicit(self, *, stream_id: int, session_id: int) -> None:
        """Request one stream now."""
        address = self._destination.control_address
        frame = eliciting_status_message(
            session_id=session_id,
            stream_id=stream_id,
            receiver_id=self._receiver_id,
            group_tag=self._group_tag,
        )
        if address is not None and not self._destination.send_to(frame, address):
            self._short_sends.increment()


# The frames of one image.

BOUNDARIES_KEPT: Final = 4
"""How many reported positions to keep; they are a quarter of the window apart, or more."""


class StatusMessageSender(Reporting):
    """Sends the status messages, NAKs and other control frames of one image.

    They go to all `connections` that were heard lately. The first status message is due at once.
    """

    def __init__(
        self,
        log: LogBuffers,
        *,
        position: int,
        window_length: int,
        context: DriverContext,
        receiver_id: int,
        group_tag: int | None,
        connections: ImageConnections,
        counters: ImageCounters,
        system_counters: SystemCounters,
        now_ns: int,
    ) -> None:
        self._log = log
        self._timeout_ns = context.status_message_timeout_ns
        self._liveness_timeout_ns = context.image_liveness_timeout_ns
        # `ImageGaps` must call its `on_gap` for every new gap, before it sends a NAK for it.
        self.nak_budget: NakBudget = NakBudget(context.max_naks_per_second)
        self._receiver_id = receiver_id
        self._group_tag = group_tag
        self._connections = connections
        self._counters = counters
        self._naks_withheld = system_counters[DriverCounterId.NAKS_WITHHELD]
        self._naks = ReportBatch()
        self._naks_sent = system_counters[SystemCounterId.NAK_MESSAGES_SENT]
        self._status_messages_sent = system_counters[SystemCounterId.STATUS_MESSAGES_SENT]
        self._errors_sent = system_counters[SystemCounterId.ERROR_FRAMES_SENT]
        self._short_sends = system_counters[SystemCounterId.SHORT_SENDS]
        # As last scheduled.
        self.window_length: int = window_length
        self.next_sm_position: int = position
        self.last_sm_position = position
        self.overrun_threshold = position + log.term_length // 2
        self._flags = StatusMessageFlags(0)
        self._rejection: bytes | None = None
        self._response_session_id: int | None = None
        self._is_response_due = False
        self._response_sent_ns = NEVER_HEARD_NS
        self._is_pending = True
        # As the log says; an image begins with 0.
        self._transport_count = 0
        # The next status message, if it says the same as the last one.
        self._same_again: bytes | None = None
        self._deadline_ns = now_ns
        self.is_enabled = True
        # Not a deque: an empty one takes 600 bytes, and there is one of these for each image.
        self._boundaries: tuple[int, ...] = ()

    @property
    def consumption_trigger(self) -> int:
        """Return the position beyond which a reader's progress makes a status message due."""
        return self.next_sm_position + self._step(self.window_length)

    @property
    def oldest_boundary(self) -> int:
        """Return the oldest of the last reported positions: the log still holds the frame there."""
        return self._boundaries[0] if self._boundaries else self.next_sm_position

    def schedule(self, position: int, window_length: int, *, is_forced: bool) -> bool:
        """Schedule a status message if consumption or window moved enough; return whether so."""
        is_due = (
            is_forced
            or position > self.next_sm_position + self._step(window_length)
            or window_length != self.window_length
        )
        if is_due:
            if position != self.next_sm_position:
                kept = self._boundaries[1 - BOUNDARIES_KEPT :]
                self._boundaries = (*kept, self.next_sm_position)
            self.next_sm_position = position
            if window_length != self.window_length:
                self.window_length = window_length
                RARE_CHANGES.note()
            self._is_pending = True
            self._same_again = None
        return is_due

    def _step(self, window_length: int) -> int:
        """Return how far consumption may move without a status message.

        Differs: a quarter of the window in Aeron. If less than a datagram of the window is left
        then, the sender waits for a status message that never comes.
        """
        return min(window_length // 4, max(0, window_length - self._log.mtu_length))

    def send_eos_status_messages(self) -> None:
        """Set the end-of-stream flag in all further status messages; send the first at once.

        Differs: C lets the first goodbye wait for the periodic deadline; like Java we do not.
        """
        self._flags = StatusMessageFlags.END_OF_STREAM
        self._is_pending = True
        self._same_again = None

    def withdraw_eos(self) -> None:
        """Clear the end-of-stream flag in all further status messages; send the first at once."""
        self._flags = StatusMessageFlags(0)
        self._is_pending = True
        self._same_again = None

    def reject(self, reason: str) -> None:
        """Send ERR frames with this reason, instead of status messages, from now on.

        Differs: in Aeron the first ERR frame waits for the next periodic status message; here it is
        sent at once.
        """
        self._rejection = self._error_frame(reason)
        self._is_pending = True

    def respond_with(self, session_id: int | None) -> None:
        """Announce the session of the response stream, now and with every periodic status message.

        None stops that.
        """
        self._response_session_id = session_id
        self._is_pending = session_id is not None or self._is_pending
        self._is_response_due = session_id is not None

    def poll(self, now_ns: int) -> int:
        """Send the frames that are due, and return the next deadline."""
        if not self.is_enabled:
            return NEVER_NS
        is_timed_out = now_ns >= self._deadline_ns
        if self._rejection is not None:
            if is_timed_out or self._is_pending:
                self._send_rejection(now_ns)
            return self._deadline_ns
        if self._response_session_id is not None and (is_timed_out or self._is_response_due):
            self._send_response_setup(self._response_session_id, now_ns)
        if self._is_pending or is_timed_out:
            self._send_status_message(now_ns)
        return self._deadline_ns

    def report(self, now_ns: int, due_ns: int, batch: ReportBatch) -> int:
        """Let a status message leave with a batch if it is due by `due_ns`.

        Return the next deadline; 0 means that `poll` must be called, because more is to be said.
        """
        if not self.is_enabled or self._rejection or self._response_session_id is not None:
            return 0
        if self._is_pending or due_ns >= self._deadline_ns:
            self._send_status_message(now_ns, batch)
        return self._deadline_ns

    def try_gather_nak(self, *, term_id: int, term_offset: int, length: int, now_ns: int) -> int:
        """Let a NAK to every live source leave with `send_gathered_naks`, if the budget allows.

        Return 0 if it will, else when to retry.
        """
        if not self.nak_budget.try_take(now_ns):
            self._naks_withheld.increment()
            return self.nak_budget.next_ns
        self.gather_naks(term_id, [(term_offset, length)], now_ns)
        return 0

    def gather_naks(self, term_id: int, gaps: list[tuple[int, int]], now_ns: int) -> None:
        """Let a NAK for each gap of a term leave with the next `send_gathered_naks`.

        Each gap is an offset in the term and a length, in bytes. They do not draw on the budget.
        """
        log = self._log
        ids = {"session_id": log.session_id, "stream_id": log.stream_id, "term_id": term_id}
        naks = encode_requests(gaps, **ids)
        self._connections.gather_for_live(naks, now_ns, self._naks, length=NAK_LENGTH)

    def send_gathered_naks(self) -> None:
        """Send all that were gathered: those to one source in one call to the system."""
        if not self._naks:
            return
        failures: list[Exception] = []
        sent_count, short_count = self._naks.send(failures.append)
        self._counters.naks_sent.increment(sent_count)
        self._naks_sent.increment(sent_count)
        if short_count:
            self._short_sends.increment(short_count)
        if failures:
            raise_failures(failures)

    def send_setup_request(self, now_ns: int) -> None:
        """Request the SETUP of the stream from every live source."""
        request = eliciting_status_message(
            session_id=self._log.session_id,
            stream_id=self._log.stream_id,
            receiver_id=self._receiver_id,
            group_tag=self._group_tag,
        )
        self._send_to_live(request, now_ns)

    def send_rttm(self, now_ns: int) -> None:
        """Send a round-trip measurement request to every live source."""
        rttm = RttMeasurement(
            flags=RttFlags.REPLY,
            session_id=self._log.session_id,
            stream_id=self._log.stream_id,
            echo_timestamp_ns=now_ns,
            reception_delta_ns=0,
            receiver_id=self._receiver_id,
        ).encode()
        self._send_to_live(rttm, now_ns)

    def _error_frame(self, reason: str) -> bytes:
        return ErrorFrame(
            session_id=self._log.session_id,
            stream_id=self._log.stream_id,
            receiver_id=self._receiver_id,
            group_tag=-1 if self._group_tag is None else self._group_tag,
            flags=ErrorFlags(0) if self._group_tag is None else ErrorFlags.HAS_GROUP_TAG,
            error_code=ErrorCode.IMAGE_REJECTED,
            message=reason.encode(),
        ).encode()

    def _send_rejection(self, now_ns: int) -> None:
        assert self._rejection is not None
        # Silent sources get it too: the rejection is the reason why they are not heard.
        self._errors_sent.increment(self._connections.send_to_all(self._rejection))
        self._is_pending = False
        self._deadline_ns = now_ns + self._timeout_ns

    def _send_response_setup(self, session_id: int, now_ns: int) -> None:
        """Announce the response session, unless the source was silent since the last announcement.

        Differs: Aeron announces it with every status message. A source address may be forged, and
        its owner would get more from us than the forger has sent.
        """
        if not self._connections.has_spoken_since(self._response_sent_ns):
            return
        setup = ResponseSetup(
            session_id=self._log.session_id,
            stream_id=self._log.stream_id,
            response_session_id=session_id,
        )
        self._send_to_live(setup.encode(), now_ns)
        self._response_sent_ns = now_ns
        self._is_response_due = False

    def _send_status_message(self, now_ns: int, batch: ReportBatch | None = None) -> None:
        log, position, sm = self._log, self.next_sm_position, self._same_again
        if sm is None:
            sm = self._same_again = encode_report(
                flags=self._flags,
                session_id=log.session_id,
                stream_id=log.stream_id,
                consumption_term_id=term_id_at(
                    position, initial_term_id=log.initial_term_id, bits=log.position_bits
                ),
                consumption_term_offset=position & (log.term_length - 1),
                receiver_window=self.window_length,
                receiver_id=self._receiver_id,
                group_tag=self._group_tag,
            )
        if batch is None:
            self._status_messages_sent.increment(self._send_to_live(sm, now_ns))
        else:
            self._connections.gather_for_live(sm, now_ns, batch)
        self.sent_count += 1
        self.last_sm_position = position
        self.overrun_threshold = position + log.term_length // 2
        self._is_pending = False
        self._deadline_ns = now_ns + self._timeout_ns
        transport_count = self._connections.active_count(now_ns, self._liveness_timeout_ns)
        if transport_count != self._transport_count:
            log.metadata.active_transport_count = self._transport_count = transport_count

    def _send_to_live(self, frame: bytes, now_ns: int) -> int:
        """Send to every live source, and return how many sends succeeded."""
        sent_count, failed_count = self._connections.send_to_live(frame, now_ns)
        if failed_count:
            self._short_sends.increment(failed_count)
        return sent_count
