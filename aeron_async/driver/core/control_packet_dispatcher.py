"""The dispatch of control datagrams to publications.

The dispatcher checks the fields of a datagram; the publication checks its sender. The socket of a
unicast publication is connected and receives from its receiver alone, so the source is not checked
there. Where the socket is not connected, the status message of a receiver makes it a destination.
Of responses, only the status messages of their receiver count.

Source: Aeron `SendChannelEndpoint`, `aeron_send_channel_endpoint_dispatch`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.network_publication import NetworkPublication
from aeron_async.driver.core.silent_streams import ReportsIn
from aeron_async.driver.core.strategies import raise_failures
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.protocol.datagram import (
    INVALID,
    check_error,
    check_nak,
    check_status_message,
    frame_type,
    is_in_term,
)
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import TERM_MAX_LENGTH, FrameType
from aeron_async.protocol.nak import NAK_LENGTH, Nak
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.setup import ResponseSetup
from aeron_async.protocol.status_message import STATUS_MESSAGE_LENGTH, StatusMessage

if TYPE_CHECKING:
    from aeron_async.driver.core.destination_tracker import DestinationTracker
    from aeron_async.driver.core.outbox import Address, ResponseOutbox
    from aeron_async.driver.core.system_counters import SystemCounters

__all__ = ["ControlPacketDispatcher"]

Activity = Callable[["NetworkPublication"], None]
InvalidDatagram = Callable[[memoryview, "Address", int], None]
ResponseSetupHandler = Callable[["NetworkPublication", int], None]

STATUS_MESSAGE_FAST: Final = Struct("<iiiiiiiq")
"""A status message whose version, flags and type are unpacked as one word."""
NO_FLAGS: Final = 3 << 16
"""The value of that word in a status message of our version without flags."""
NAK_FAST: Final = Struct("<iiiiiii")
"""A NAK whose version, flags and type are unpacked as one word."""
PLAIN_NAK: Final = 2 << 16
"""The value of that word in a NAK of our version without flags."""


class ControlPacketDispatcher:
    """The publications of one send endpoint.

    `on_activity` is called with a publication that received something, and must be polled;
    `on_invalid_datagram` with a datagram that was counted as invalid, its source and the time;
    `on_response_setup` with a publication and the session id of its responses.

    Attributes:
        destinations: The endpoint's destinations, if it sends to several.
        last_sm_ns: When a status message for one of the publications was last accepted.
    """

    def __init__(
        self,
        system_counters: SystemCounters,
        on_activity: Activity,
        on_invalid_datagram: InvalidDatagram,
        *,
        destinations: DestinationTracker | None = None,
        on_response_setup: ResponseSetupHandler | None = None,
        now_ns: int = 0,
    ) -> None:
        self._counters = system_counters
        self._sm_received = system_counters[SystemCounterId.STATUS_MESSAGES_RECEIVED]
        self._naks_received = system_counters[SystemCounterId.NAK_MESSAGES_RECEIVED]
        self._strangers = system_counters[SystemCounterId.STATUS_MESSAGES_REJECTED]
        self._on_activity = on_activity
        self._on_invalid_datagram = on_invalid_datagram
        self.destinations = destinations
        self.last_sm_ns: int = now_ns
        self._on_response_setup_heard = on_response_setup
        self._publications: dict[tuple[int, int], NetworkPublication] = {}
        self._reports = ReportsIn(NetworkPublication, self._publications, self._sm_received)
        # The same by stream: there may be thousands, and most streams have one.
        self._stream_publications: dict[int, dict[int, NetworkPublication]] = {}
        self._response_outboxes: dict[NetworkPublication, ResponseOutbox] = {}
        self._handlers: dict[int, Callable[[memoryview, Address, int], bool]] = {
            FrameType.SM: self._on_status_message,
            FrameType.NAK: self._on_nak,
            FrameType.ERR: self._on_error,
            FrameType.RTTM: self._on_rttm,
            FrameType.RSP_SETUP: self._on_response_setup,
        }

    def __len__(self) -> int:
        return len(self._publications)

    @property
    def publications(self) -> tuple[NetworkPublication, ...]:
        """Return the publications that are served."""
        return tuple(self._publications.values())

    def of_stream(self, stream_id: int) -> tuple[NetworkPublication, ...]:
        """Return the publications of one stream, oldest first."""
        return tuple(self._stream_publications.get(stream_id, {}).values())

    def add(
        self, publication: NetworkPublication, response_outbox: ResponseOutbox | None = None
    ) -> None:
        """Dispatch control frames to this publication from now on.

        It has a response outbox if it sends to the receiver that asks for its SETUP.
        """
        session_id, stream_id = publication.session_id, publication.stream_id
        self._publications[session_id, stream_id] = publication
        self._stream_publications.setdefault(stream_id, {})[session_id] = publication
        if response_outbox is not None:
            self._response_outboxes[publication] = response_outbox

    def remove(self, publication: NetworkPublication) -> None:
        """Stop dispatching to this publication."""
        session_id, stream_id = publication.session_id, publication.stream_id
        if self._publications.get((session_id, stream_id)) is publication:
            del self._publications[session_id, stream_id]
            of_stream = self._stream_publications[stream_id]
            del of_stream[session_id]
            if not of_stream:
                del self._stream_publications[stream_id]
        self._response_outboxes.pop(publication, None)

    def is_session_in_use(self, session_id: int, stream_id: int) -> bool:
        """Return whether a publication of that stream uses the session id."""
        return (session_id, stream_id) in self._publications

    def on_datagram(self, datagram: memoryview, source: Address, now_ns: int) -> None:
        """Dispatch one datagram; an invalid one is counted and reported, and changes nothing."""
        if len(datagram) == STATUS_MESSAGE_LENGTH and self._on_status_message_fast(
            datagram, source, now_ns
        ):
            return
        if len(datagram) == NAK_LENGTH and (found := self._plain_nak(datagram, 0)) is not None:
            self._answer(found[0], [found[1]], source, now_ns)
            return
        kind = frame_type(datagram)
        if kind == INVALID:
            is_valid = False
        else:
            handler = self._handlers.get(kind)
            is_valid = handler is None or handler(datagram, source, now_ns)
        if not is_valid:
            self._counters[SystemCounterId.INVALID_PACKETS].increment()
            self._on_invalid_datagram(datagram, source, now_ns)

    def on_datagrams(
        self, data: memoryview, segment_length: int, source: Address, now_ns: int
    ) -> None:
        """Dispatch datagrams of one length that arrived together; the last may be shorter.

        The NAKs for one publication are answered together.

        Raises:
            Exception: What one datagram raised, or a group if several did; the others were
                dispatched.
        """
        are_reports = (
            segment_length == STATUS_MESSAGE_LENGTH
            and self.destinations is None
            and not self._response_outboxes
        )
        are_naks = segment_length == NAK_LENGTH
        asked: dict[NetworkPublication, list[tuple[int, ...]]] = {}
        failures: list[Exception] = []
        start = 0
        while start < len(data):
            taken = 0
            try:
                if are_reports:
                    taken = self._reports.take(data, start, now_ns)
                if taken:
                    self.last_sm_ns = now_ns
                elif are_naks and (found := self._plain_nak(data, start)) is not None:
                    asked.setdefault(found[0], []).append(found[1])
                else:
                    self.on_datagram(data[start : start + segment_length], source, now_ns)
            except Exception as error:  # noqa: BLE001 - it is raised when all were taken
                failures.append(error)
            start += taken or segment_length
        for publication, ranges in asked.items():
            try:
                self._answer(publication, ranges, source, now_ns)
            except Exception as error:  # noqa: BLE001 - as above
                failures.append(error)
        if failures:
            raise_failures(failures)

    def _plain_nak(
        self, data: memoryview, start: int
    ) -> tuple[NetworkPublication, tuple[int, ...]] | None:
        """Return the publication of a plain NAK and what it asks for; None for the usual way."""
        if len(data) - start < NAK_LENGTH:
            return None
        frame_length, kind, session_id, stream_id, *asked = NAK_FAST.unpack_from(data, start)
        publication = self._publications.get((session_id, stream_id))
        if publication is None or kind != PLAIN_NAK or frame_length != NAK_LENGTH:
            return None
        if not is_in_term(asked[1], asked[2], publication.log.term_length):
            return None
        return publication, tuple(asked)

    def _answer(
        self,
        publication: NetworkPublication,
        ranges: list[tuple[int, ...]],
        source: Address,
        now_ns: int,
    ) -> None:
        self._naks_received.increment(len(ranges))
        publication.on_naks(ranges, now_ns, source=source)
        self._on_activity(publication)

    # Handlers. Each returns whether the datagram is valid; the fast way, whether it has done all.

    def _on_status_message_fast(self, datagram: memoryview, source: Address, now_ns: int) -> bool:
        """Dispatch a plain status message: there are thousands a second."""
        length, kind, session_id, stream_id, term_id, term_offset, window_length, receiver_id = (
            STATUS_MESSAGE_FAST.unpack(datagram)
        )
        if kind != NO_FLAGS or length != STATUS_MESSAGE_LENGTH or self.destinations is not None:
            return False
        publication = self._publications.get((session_id, stream_id))
        if publication is None or (
            self._response_outboxes and not self._is_of_receiver(publication, source)
        ):
            return False
        if not publication.on_status_message_fast(
            term_id, term_offset, window_length, receiver_id, now_ns
        ):
            return False
        self._sm_received.increment()
        self.last_sm_ns = now_ns
        if publication.has_new_limit:
            self._on_activity(publication)
        return True

    def _on_status_message(self, datagram: memoryview, source: Address, now_ns: int) -> bool:
        sm = StatusMessage.decode(datagram)
        publication = self._publications.get((sm.session_id, sm.stream_id))
        term_length = TERM_MAX_LENGTH if publication is None else publication.log.term_length
        if not check_status_message(sm, term_length):
            if publication is not None:
                publication.on_foreign_status_message()
                self._on_activity(publication)
            return False
        self._sm_received.increment()
        if publication is None:
            # Differs: in Aeron the status message of any stream, even of one that does not exist
            # here, makes its sender a destination. Here it must name a stream of ours, or none.
            if sm.is_setup_elicit and not sm.session_id and not sm.stream_id:
                self._note_destination(sm, source, now_ns)
            return True
        outbox = self._response_outboxes.get(publication)
        if outbox is not None and not self._admits(publication, outbox, sm, source, now_ns):
            self._strangers.increment()
            return True
        if publication.on_status_message(sm, now_ns, source=source):
            if outbox is not None and not sm.is_setup_elicit:
                outbox.on_answered(source)
            self.last_sm_ns = now_ns
            self._note_destination(sm, source, now_ns)
        self._on_activity(publication)
        return True

    def _admits(
        self,
        publication: NetworkPublication,
        outbox: ResponseOutbox,
        sm: StatusMessage,
        source: Address,
        now_ns: int,
    ) -> bool:
        """Return whether a status message for responses counts; note who asks for them."""
        # Differs: in Aeron the receiver that asked last gets all responses, whoever answers. Here
        # the receiver that has them keeps them while it is alive, unless it is elsewhere than the
        # requests come from; and only who has asked can answer.
        if not sm.is_setup_elicit:
            return outbox.may_answer(source, now_ns)
        goes_before = outbox.goes_before(source)
        if goes_before or outbox.waits_for(source) or not publication.has_receivers:
            if goes_before or outbox.address is None:
                publication.send_setup_soon()
            outbox.on_asked(source, STATUS_MESSAGE_LENGTH, now_ns)
        return True

    def _is_of_receiver(self, publication: NetworkPublication, source: Address) -> bool:
        """Return whether a status message comes from where its responses go."""
        outbox = self._response_outboxes.get(publication)
        return outbox is None or source == outbox.answered

    def _note_destination(self, sm: StatusMessage, source: Address, now_ns: int) -> None:
        if self.destinations is not None:
            self.destinations.on_status_message(
                sm.receiver_id, source, now_ns, is_report=not sm.is_setup_elicit
            )

    def _on_nak(self, datagram: memoryview, source: Address, now_ns: int) -> bool:
        nak = Nak.decode(datagram)
        publication = self._publications.get((nak.session_id, nak.stream_id))
        if publication is None:
            return True
        if not check_nak(nak, publication.log.term_length):
            return False
        ranges: list[tuple[int, ...]] = [(nak.term_id, nak.term_offset, nak.length)]
        self._answer(publication, ranges, source, now_ns)
        return True

    def _on_error(self, datagram: memoryview, source: Address, now_ns: int) -> bool:
        error = ErrorFrame.decode(datagram)
        if not check_error(error):
            return False
        self._counters[SystemCounterId.ERROR_FRAMES_RECEIVED].increment()
        publication = self._publications.get((error.session_id, error.stream_id))
        if publication is not None:
            destination_id = None
            if self.destinations is not None:
                found = self.destinations.registration_id_of(error.receiver_id, source)
                # Destinations that receivers added themselves have no registration id.
                destination_id = found or None
            publication.on_error(error, now_ns, source=source, destination_id=destination_id)
            self._on_activity(publication)
        return True

    def _on_rttm(self, datagram: memoryview, source: Address, now_ns: int) -> bool:
        del source
        rttm = RttMeasurement.decode(datagram)
        publication = self._publications.get((rttm.session_id, rttm.stream_id))
        if publication is not None:
            publication.on_rttm(rttm, now_ns)
        return True

    def _on_response_setup(self, datagram: memoryview, source: Address, now_ns: int) -> bool:
        del source, now_ns
        setup = ResponseSetup.decode(datagram)
        publication = self._publications.get((setup.session_id, setup.stream_id))
        if publication is not None and self._on_response_setup_heard is not None:
            self._on_response_setup_heard(publication, setup.response_session_id)
        return True
