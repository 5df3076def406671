"""The receiver: the agent that lets every image rebuild, send NAKs, and send status messages.

Datagrams are placed as they arrive. The work that follows is done after everything that the socket
had was read, so one batch causes one status message and one wake-up of the readers. What readers
have consumed is reported when they set the wake flag. This agent does the timed work; if it is
late, it does all of the work.

Source: Aeron `Receiver`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from aeron_async.driver.agent import Agent
from aeron_async.driver.core.context import DESTINATION_TIMEOUT_NS
from aeron_async.driver.core.image_state import ImageState
from aeron_async.driver.core.outbox import ReportBatch
from aeron_async.driver.core.publication_image import PublicationImage
from aeron_async.driver.core.silent_streams import ReportsOut
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.core.udp_channel import format_address
from aeron_async.driver.schedule import Schedule
from aeron_async.errors import ErrorCode
from aeron_async.logs import get_logger, within

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.status_message_sender import SetupElicitor
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.driver.media.endpoint import ReceiveChannelEndpoint
    from aeron_async.driver.stall_clock import StallClock

__all__ = ["ImageLifecycle", "Receiver"]

log: Final = get_logger(__name__)

POLLS_PER_CYCLE: Final = 256
"""Images that send or are polled before the loop, and so the sockets, get their turn."""
EARLY_SHARE: Final = 20
"""A status message may leave with others this part of its interval before its time."""


class ImageLifecycle(Protocol):
    """What the owner of images implements to follow their states."""

    def on_image_drained(self, image: PublicationImage) -> None:
        """The image lingers: remove it from the dispatcher and from the clients."""
        ...

    def on_image_resumed(self, image: PublicationImage) -> None:
        """The image continues after a false end of the stream."""
        ...

    def on_image_done(self, image: PublicationImage) -> None:
        """The image is no longer used."""
        ...


class Receiver(Agent):
    """The agent that receives; it tells `lifecycle` when an image changes its state."""

    role_name = "receiver"

    def __init__(
        self,
        context: DriverContext,
        clock: StallClock,
        system_counters: SystemCounters,
        lifecycle: ImageLifecycle,
    ) -> None:
        super().__init__(
            clock=clock,
            system_counters=system_counters,
            max_cycle_time=SystemCounterId.RECEIVER_MAX_CYCLE_TIME,
            threshold_exceeded=SystemCounterId.RECEIVER_CYCLE_TIME_THRESHOLD_EXCEEDED,
            cycle_threshold_ns=context.receiver_cycle_threshold_ns,
        )
        self._peer_log = within(system_counters.log_budget, log)
        self._schedule: Schedule[PublicationImage] = Schedule()
        self._elicitors: Schedule[SetupElicitor] = Schedule()
        self._lifecycle = lifecycle
        # For explanations of what their senders did.
        self.endpoints: Iterable[ReceiveChannelEndpoint] = ()
        self._received_length = 0
        self._bytes_received = system_counters[SystemCounterId.BYTES_RECEIVED]
        self._is_reading = False
        self._arrived: dict[PublicationImage, None] = {}
        self._reports = ReportBatch()
        self._status_messages = ReportsOut(
            PublicationImage, self._schedule, self._reports, DESTINATION_TIMEOUT_NS
        )
        self._early_ns = context.status_message_timeout_ns // EARLY_SHARE
        self._status_messages_sent = system_counters[SystemCounterId.STATUS_MESSAGES_SENT]

    def on_arrival(self, image: PublicationImage) -> None:
        """Queue an image that has got data, to be polled once the socket has been read."""
        if self._is_reading:
            self._arrived[image] = None
        else:
            self.on_activity(image)

    def on_activity(self, image: PublicationImage) -> None:
        """Poll an image soon: it was written to, or read from."""
        self._schedule.ready(image)
        if not self._is_reading:
            self.wake()

    def on_consumed(self, image: PublicationImage) -> None:
        """Report what a reader has consumed: at once, so that the reader need not yield."""
        now_ns = self._clock.now_ns()
        if not (self.may_act(now_ns) and image.send_pending_status_message_fast(now_ns)):
            self.on_activity(image)

    def on_reading(self, is_begun: bool) -> None:  # noqa: FBT001 - a callback of one meaning
        """Poll images that got data once a socket was read, before the agent's next turn."""
        self._is_reading = is_begun
        if is_begun:
            return
        self._show_received()
        arrived, schedule, now_ns = self._arrived, self._schedule, self._clock.now_ns()
        for image in arrived:
            # Also if the agent is late: this makes no use of the silence of peers.
            if not image.advance_rebuild_position_fast(now_ns):
                schedule.ready(image)
        arrived.clear()
        if not schedule.has_ready:
            return
        if self.may_act(now_ns):
            for image in schedule.take(POLLS_PER_CYCLE):
                self.poll(image, now_ns)
            self._count_cycle(self._clock.now_ns() - now_ns)
            self.wake_by(schedule.next_deadline_ns())
        else:
            self.wake()

    def on_activity_if_known(self, image: PublicationImage) -> None:
        """Poll an image soon, unless it is DONE."""
        if image.state is not ImageState.DONE:
            self.on_activity(image)

    def remove(self, image: PublicationImage) -> None:
        """Stop polling an image."""
        self._arrived.pop(image, None)
        self._schedule.remove(image)

    def on_eliciting(self, elicitor: SetupElicitor) -> None:
        """Poll an elicitor, which requests SETUPs, from now on."""
        self._elicitors.ready(elicitor)
        self.wake()

    def remove_elicitor(self, elicitor: SetupElicitor) -> None:
        """Stop polling an elicitor."""
        self._elicitors.remove(elicitor)

    def on_received(self, length: int) -> None:
        """Count bytes received; the counter is updated when the batch is over."""
        self._received_length += length

    def _show_received(self) -> None:
        if self._received_length:
            self._bytes_received.increment(self._received_length)
            self._received_length = 0

    async def do_work(self, now_ns: int) -> int:
        """Poll the images that are due, in order; those beyond the limit come first next time."""
        self._show_received()
        self._report(now_ns)
        for image in self._schedule.take(POLLS_PER_CYCLE):
            self.poll(image, now_ns)
        for elicitor in self._elicitors.due(now_ns):
            self._elicitors.at(elicitor, elicitor.poll(now_ns))
        return min(self._schedule.next_deadline_ns(), self._elicitors.next_deadline_ns())

    def _report(self, now_ns: int) -> None:
        """Let idle images send their status messages; any other due work makes them ready.

        Differs: in Aeron each status message leaves by itself. Here those that would be due soon
        leave with those that are due, in one call to the system for all images of one source.
        """
        schedule = self._schedule
        expired = schedule.expired(now_ns, POLLS_PER_CYCLE)
        if not expired:
            return
        due_ns = now_ns + self._early_ns
        expired += schedule.expired(due_ns, POLLS_PER_CYCLE - len(expired))
        index = 0
        while (index := self._status_messages.send(expired, index, now_ns, due_ns)) < len(expired):
            image = expired[index]
            index += 1
            # None if the image has failed: its poll raises the error.
            deadline_ns = image.report_fast(now_ns, due_ns, self._reports) or 0
            schedule.settle(image, deadline_ns, now_ns)
        sent_count, short_count = self._reports.send(self._on_reports_failed)
        if sent_count:
            self._status_messages_sent.increment(sent_count)
        if short_count:
            self._system_counters[SystemCounterId.SHORT_SENDS].increment(short_count)

    def _on_reports_failed(self, error: Exception) -> None:
        text = f"status messages were not sent: {error!r}"
        self._system_counters.note_error(ErrorCode.GENERIC, text)
        self._peer_log.error("status_messages_failed", exc_info=error)

    def poll(self, image: PublicationImage, now_ns: int) -> None:
        """Poll an image now, and act on its new state."""
        before = image.state
        deadline_ns = self._poll_or_fail(image, now_ns)
        if image.state is ImageState.ACTIVE and before is ImageState.DRAINING:
            self._lifecycle.on_image_resumed(image)
        if image.state is ImageState.LINGER and before is not ImageState.LINGER:
            self._lifecycle.on_image_drained(image)
            # The readers were notified; without readers there is nothing to linger for.
            deadline_ns = self._poll_or_fail(image, now_ns)
        if image.state is ImageState.DONE:
            self._schedule.remove(image)
            self._lifecycle.on_image_done(image)
        elif deadline_ns <= now_ns:
            self._schedule.ready(image)
        else:
            self._schedule.at(image, deadline_ns)

    def _poll_or_fail(self, image: PublicationImage, now_ns: int) -> int:
        """Poll an image; if it fails it drains, and the others are not affected.

        Differs: Aeron counts the error, and polls the image again and again.
        """
        try:
            return image.poll(now_ns)
        except Exception as error:  # noqa: BLE001 - it is logged; one image must not end the driver
            source = format_address(image.source)
            self._system_counters.note_error(
                ErrorCode.GENERIC,
                f"image failed: source={source} streamId={image.stream_id} "
                f"sessionId={image.session_id}: {error!r}",
            )
            self._peer_log.error(
                "image_failed",
                source=source,
                session_id=image.session_id,
                stream_id=image.stream_id,
                exc_info=error,
            )
            image.fail(now_ns)
            return now_ns
