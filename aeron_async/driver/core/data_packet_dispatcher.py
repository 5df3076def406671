"""The dispatch of data datagrams to images, and the discovery of unknown senders.

When data of an unknown session arrives for a stream with a subscription, the dispatcher asks the
sender for a SETUP with a status message; the SETUP leads to a new image. Data that no subscription
wants is dropped at the cost of one look-up.

Source: Aeron `DataPacketDispatcher`, `Receiver`.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from aeron_async.driver.core.context import PENDING_SETUP_TIMEOUT_NS
from aeron_async.driver.core.lanes import ReceiveLane
from aeron_async.driver.core.losses import FORGED
from aeron_async.driver.core.publication_image import PublicationImage
from aeron_async.driver.core.session_states import (
    PendingSetups,
    SessionState,
    SessionStates,
    StreamInterest,
    begins_again,
)
from aeron_async.driver.core.silent_streams import HeartbeatsIn
from aeron_async.driver.core.status_message_sender import eliciting_status_message
from aeron_async.driver.core.strategies import raise_failures
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.protocol.datagram import INVALID, check_setup, frame_type
from aeron_async.protocol.header import DATA_HEADER_LENGTH, DataFlags, FrameType, RttFlags
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.setup import Setup

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.lanes import LaneDestination
    from aeron_async.driver.core.outbox import Address, ReceiveDestination
    from aeron_async.driver.core.system_counters import SystemCounters
    from aeron_async.logbuffer.placing import SegmentTable

__all__ = [
    "DataPacketDispatcher",
    "DispatchListener",
]

# Plain integers: looking up an enum member takes as long as unpacking a header.
DATA: Final = int(FrameType.DATA)
PAD: Final = int(FrameType.PAD)
DATA_FIELDS: Final = Struct("<5xBxxiiii")
"""Flags, term offset, session id, stream id and term id of a data header."""
BATCH_FIELDS: Final = Struct("<i4xiiii")
"""Frame length (0 for a heartbeat), then the fields of `DATA_FIELDS` without the flags."""
KIND: Final = Struct("<4xi")
PLAIN: Final = 0x0001_C000
"""Version, flags and type of data that is a whole message, in one word."""
SETUP_FIELDS: Final = Struct("<8xi ii iiii")
"""Term offset, session id, stream id, initial and active term id, term length, MTU of a SETUP."""
RTTM_FIELDS: Final = Struct("<5xB2xii16xq")
"""Flags, session id, stream id and receiver id of a round-trip measurement."""
MAX_RTT_NS: Final = 10_000_000_000
"""A longer round trip is refused: by then the image would have timed out."""

ELICIT_WINDOW_NS: Final = 1_000_000_000


class DataPacketDispatcher:
    """The streams of one receive endpoint."""

    def __init__(
        self,
        *,
        context: DriverContext,
        system_counters: SystemCounters,
        receiver_id: int,
        group_tag: int | None,
        listener: DispatchListener,
    ) -> None:
        self._context = context
        self._invalid_packets = system_counters[SystemCounterId.INVALID_PACKETS]
        self._short_sends = system_counters[SystemCounterId.SHORT_SENDS]
        self._bytes_received = system_counters[SystemCounterId.BYTES_RECEIVED]
        self._suppressed_setups = system_counters[DriverCounterId.ELICITED_SETUPS_SUPPRESSED]
        self._rejected_setups = system_counters[DriverCounterId.SETUPS_REJECTED]
        self._foreign_packets = system_counters[DriverCounterId.FOREIGN_PACKETS]
        self._suppressed_rttms = system_counters[DriverCounterId.RTT_REPLIES_SUPPRESSED]
        self._rejected_rttms = system_counters[DriverCounterId.RTT_MEASUREMENTS_REJECTED]
        self._refused_setups = system_counters[DriverCounterId.PENDING_SETUPS_REFUSED]
        self._pending_setups = PendingSetups(context.max_pending_setups, PENDING_SETUP_TIMEOUT_NS)
        self._states = SessionStates(
            context.max_session_states, system_counters[DriverCounterId.SESSION_STATES_EVICTED]
        )
        self._receiver_id = receiver_id
        self._group_tag = group_tag
        self._listener = listener
        self._streams: dict[int, StreamInterest] = {}
        self._heartbeats = HeartbeatsIn(
            PublicationImage, self._streams, system_counters[SystemCounterId.HEARTBEATS_RECEIVED]
        )
        self._lone_segments = array("i", (0, 0))
        self._elicit_window_start_ns, self._elicit_count = -ELICIT_WINDOW_NS, 0

    # Interest.

    def add_subscription(self, stream_id: int, session_id: int | None) -> None:
        """Subscribe to one session of a stream, or to all its sessions."""
        interest = self._streams.setdefault(stream_id, StreamInterest())
        if session_id is None:
            interest.is_all_sessions = True
        else:
            interest.session_ids.add(session_id)
        self._states.forget_uninterest(stream_id, session_id)

    def remove_subscription(self, stream_id: int, session_id: int | None) -> None:
        """Undo `add_subscription`; images that no subscription wants get no more data."""
        interest = self._streams[stream_id]
        if session_id is None:
            interest.is_all_sessions = False
        else:
            interest.session_ids.discard(session_id)
        self._states.keep(stream_id, interest.wants)
        if interest.is_wanted:
            interest.forget_unwanted_images()
        else:
            del self._streams[stream_id]

    def add_image(self, image: PublicationImage) -> None:
        """Place data of this image's session in the image from now on."""
        interest = self._streams[image.stream_id]
        self._states.forget(image.stream_id, image.session_id, SessionState.PENDING_SETUP)
        self._pending_setups.remove(image.stream_id, image.session_id)
        interest.images[image.session_id] = image

    def remove_image(self, image: PublicationImage) -> None:
        """Stop placing data in this image, and cool its session down unless the stream ended."""
        interest = self._streams.get(image.stream_id)
        if interest is None or interest.images.get(image.session_id) is not image:
            return
        del interest.images[image.session_id]
        if not image.is_end_of_stream:
            self._states.set_state(image.stream_id, image.session_id, SessionState.COOL_DOWN)

    def remove_cool_down(self, image: PublicationImage) -> None:
        """End the cool-down of an image's session, so that the session may be received again."""
        self._states.forget(image.stream_id, image.session_id, SessionState.COOL_DOWN)

    # Input.

    def lane(self, destination: LaneDestination, now_ns: Callable[[], int]) -> ReceiveLane:
        """Return the short way for datagrams that arrive alone at one of the endpoint's sockets."""
        return ReceiveLane(destination, self._streams, self._listener, now_ns, self._bytes_received)

    def on_datagram(
        self, datagram: memoryview, source: Address, now_ns: int, destination: ReceiveDestination
    ) -> None:
        """Dispatch one datagram; an invalid one is counted and reported, and changes nothing."""
        # Most datagrams hold the next data of an image, and are placed like a batch of one.
        segments = self._lone_segments
        segments[0] = segments[1] = length = len(datagram)
        if length < DATA_HEADER_LENGTH or not self._on_data_fast(
            datagram, segments, 0, 0, source, now_ns, destination
        ):
            self._take_one(datagram, source, now_ns, destination)

    def _take_one(
        self, datagram: memoryview, source: Address, now_ns: int, destination: ReceiveDestination
    ) -> None:
        """Dispatch a datagram that is not the next data of an image."""
        kind = frame_type(datagram)
        if PAD <= kind <= DATA:
            self._on_data(datagram, source, now_ns, destination)
        elif kind == FrameType.SETUP:
            self._on_setup(datagram, source, now_ns, destination)
        elif kind == FrameType.RTTM:
            self._on_rttm(datagram, source, now_ns, destination)
        elif kind == INVALID:
            self._refuse(datagram, source, now_ns)

    def on_batches(
        self,
        data: memoryview,
        segments: SegmentTable,
        source: Address,
        now_ns: int,
        destination: ReceiveDestination,
    ) -> None:
        """Dispatch segment batches from one source as `on_datagram` dispatches each.

        `segments` holds, for each batch, its end in `data` and the length of its datagrams, in
        bytes; the last datagram of a batch may be shorter. A single datagram is a batch of one.

        Raises:
            Exception: What one datagram raised, or a group if several did; the others were
                dispatched.
        """
        index = start = 0
        failures: list[Exception] = []
        while index < len(segments):
            length, taken = min(segments[index + 1], segments[index] - start), 0
            # A failure stops no other datagram, as when a transport reads them one by one.
            try:
                if length == DATA_HEADER_LENGTH == segments[index + 1]:
                    taken = self._heartbeats.take(
                        data, start, segments[index], source, destination, now_ns
                    )
                if length >= DATA_HEADER_LENGTH and not taken:
                    taken = self._on_data_fast(
                        data, segments, index, start, source, now_ns, destination
                    )
                if not taken:
                    self._take_one(data[start : start + length], source, now_ns, destination)
            except Exception as error:  # noqa: BLE001 - it is raised when all were taken
                failures.append(error)
            start += taken or length
            while segments[index] < start:
                index += 2
            # Only once: an empty datagram also counts as a batch.
            if segments[index] == start:
                index += 2
        if failures:
            raise_failures(failures)

    def _on_data_fast(
        self,
        data: memoryview,
        segments: SegmentTable,
        index: int,
        start: int,
        source: Address,
        now_ns: int,
        destination: ReceiveDestination,
    ) -> int:
        """Pass data that can be placed at once to its image; return how many bytes that was.

        A heartbeat that says nothing new is passed, too.
        """
        length, term_offset, session_id, stream_id, term_id = BATCH_FIELDS.unpack_from(data, start)
        interest = self._streams.get(stream_id)
        image = None if interest is None else interest.images.get(session_id)
        if image is None:
            return 0
        connection = image.connections.find(destination, source, now_ns)
        if connection is None or connection.is_new:
            return 0
        if length == 0:
            is_plain = (
                min(segments[index + 1], segments[index] - start) == DATA_HEADER_LENGTH
                and KIND.unpack_from(data, start)[0] == PLAIN
                and image.on_heartbeat_fast(term_id, term_offset, connection, now_ns)
            )
            return DATA_HEADER_LENGTH if is_plain else 0
        taken = image.insert_packets_fast(
            data, segments, index, start, connection, term_id, term_offset, now_ns
        )
        if taken:
            self._listener.on_image_activity(image)
        return taken

    def _on_data(
        self, datagram: memoryview, source: Address, now_ns: int, destination: ReceiveDestination
    ) -> None:
        flags, term_offset, session_id, stream_id, term_id = DATA_FIELDS.unpack_from(datagram)
        interest = self._streams.get(stream_id)
        if interest is None:
            self._states.strangers.note(stream_id, session_id, source, now_ns)
            return
        image = interest.images.get(session_id)
        if image is not None:
            connection = image.connections.find(destination, source, now_ns)
            if connection is None:
                # Differs: Aeron identifies a stream by its ids alone, so it merges what two
                # publishers send that happen to have, or were given, the same session. A publisher
                # whose address changes is received again once the silence of the old address has
                # ended its image. A stream with several sources has a destination for each.
                self._foreign_packets.increment()
                image.losses.note(FORGED, len(datagram))
                return
            if not image.insert_packet(
                datagram, connection, term_id=term_id, term_offset=term_offset, now_ns=now_ns
            ):
                self._listener.on_invalid_datagram(datagram, source, now_ns)
            if connection.is_new:
                image.connections.keep(connection)
            self._listener.on_image_activity(image)
        elif not (
            flags & DataFlags.END_OF_STREAM or self._states.state_of(stream_id, session_id, now_ns)
        ):
            if interest.wants(session_id):
                self._elicit_setup(stream_id, session_id, source, now_ns, destination)
            else:
                self._states.set_state(stream_id, session_id, SessionState.NO_INTEREST)

    def _elicit_setup(
        self,
        stream_id: int,
        session_id: int,
        source: Address,
        now_ns: int,
        destination: ReceiveDestination,
    ) -> None:
        """Ask an unknown sender for a SETUP: each once a second, and within limits for all."""
        if now_ns >= self._elicit_window_start_ns + ELICIT_WINDOW_NS:
            self._elicit_window_start_ns = now_ns
            self._elicit_count = 0
        if self._elicit_count >= self._context.max_elicited_setups_per_second:
            self._suppressed_setups.increment()
            return
        if not self._pending_setups.try_add(stream_id, session_id, now_ns):
            self._refused_setups.increment()
            return
        self._elicit_count += 1
        self._states.set_state(
            stream_id,
            session_id,
            SessionState.PENDING_SETUP,
            expiry_ns=now_ns + PENDING_SETUP_TIMEOUT_NS,
        )
        frame = eliciting_status_message(
            session_id=session_id,
            stream_id=stream_id,
            receiver_id=self._receiver_id,
            group_tag=self._group_tag,
        )
        self._reply(frame, source, destination)

    def _on_setup(
        self, datagram: memoryview, source: Address, now_ns: int, destination: ReceiveDestination
    ) -> None:
        # Most SETUPs change nothing, forged ones least of all: do not decode them here.
        term_offset, session_id, stream_id, initial_term_id, term_id, term_length, mtu_length = (
            SETUP_FIELDS.unpack_from(datagram)
        )
        interest = self._streams.get(stream_id)
        if interest is None:
            self._states.strangers.note(stream_id, session_id, source, now_ns)
            return
        image = interest.images.get(session_id)
        if image is not None and not self._gives_way(image, datagram, source, now_ns):
            if not image.on_setup(
                (initial_term_id, term_length, mtu_length),
                (term_id, term_offset),
                destination=destination,
                source=source,
                now_ns=now_ns,
            ):
                self._rejected_setups.increment()
                image.losses.note(FORGED, len(datagram))
            return
        state = self._states.state_of(stream_id, session_id, now_ns)
        if state is SessionState.COOL_DOWN or state is SessionState.NO_INTEREST:
            return
        setup = Setup.decode(datagram)
        if not check_setup(setup):
            self._refuse(datagram, source, now_ns)
        elif interest.wants(session_id):
            self._listener.on_create_image(setup, source, destination)
        else:
            self._states.set_state(stream_id, session_id, SessionState.NO_INTEREST)

    def _gives_way(
        self, image: PublicationImage, datagram: memoryview, source: Address, now_ns: int
    ) -> bool:
        """Return whether a SETUP restarts a response stream; if so, retire its old image."""
        if not (image.is_following and begins_again(image, Setup.decode(datagram), source, now_ns)):
            return False
        del self._streams[image.stream_id].images[image.session_id]
        image.supersede(now_ns)
        self._listener.on_image_activity(image)
        return True

    def _on_rttm(
        self, datagram: memoryview, source: Address, now_ns: int, destination: ReceiveDestination
    ) -> None:
        # Requests come in floods, and few are answered: do not decode them here either.
        flags, session_id, stream_id, receiver_id = RTTM_FIELDS.unpack_from(datagram)
        interest = self._streams.get(stream_id)
        image = None if interest is None else interest.images.get(session_id)
        if image is None or (receiver_id and receiver_id != self._receiver_id):
            return
        is_reply_requested = flags & RttFlags.REPLY
        if is_reply_requested and not image.rtt_replies.try_take(source, now_ns):
            self._suppressed_rttms.increment()
            return
        rttm = RttMeasurement.decode(datagram)
        if is_reply_requested:
            reply = attrs.evolve(rttm, flags=RttFlags(0), reception_delta_ns=0)
            self._reply(reply.encode(), source, destination)
            return
        rtt_ns = now_ns - rttm.echo_timestamp_ns - rttm.reception_delta_ns
        # Differs: Aeron accepts any number as a round-trip time, even a negative one.
        if not 0 <= rtt_ns <= MAX_RTT_NS:
            self._rejected_rttms.increment()
            return
        image.on_rttm(rtt_ns=rtt_ns, now_ns=now_ns)

    def _refuse(self, datagram: memoryview, source: Address, now_ns: int) -> None:
        self._invalid_packets.increment()
        self._listener.on_invalid_datagram(datagram, source, now_ns)

    def _reply(self, frame: bytes, source: Address, destination: ReceiveDestination) -> None:
        """Answer one datagram: to the multicast group if there is one, else to its source.

        A configured control address gets the frames of images, but not this reply.
        """
        address = (destination.is_multicast and destination.control_address) or source
        if not destination.send_to(frame, address):
            self._short_sends.increment()

    @property
    def has_interest(self) -> bool:
        """Return whether any stream is subscribed to."""
        return bool(self._streams)

    def image_count(self, stream_id: int) -> int:
        """Return how many images of a stream there are."""
        interest = self._streams.get(stream_id)
        return 0 if interest is None else len(interest.images)


class DispatchListener(Protocol):
    """What the owner of a dispatcher implements to hear what it found."""

    def on_image_activity(self, image: PublicationImage) -> None:
        """Data was placed in the image; it must be polled."""
        ...

    def on_create_image(
        self, setup: Setup, source: Address, destination: ReceiveDestination
    ) -> None:
        """A wanted stream begins; the listener must create an image and add it."""
        ...

    def on_invalid_datagram(self, datagram: memoryview, source: Address, now_ns: int) -> None:
        """An invalid datagram arrived, and has been counted."""
        ...
