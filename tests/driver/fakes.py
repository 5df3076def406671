"""What the cores are given here: a list for a network, counters in memory, and time as a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from aeron_async.counters import Counter, CountersManager
from aeron_async.driver.core.congestion_control import congestion_control
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.delay import choose_delay
from aeron_async.driver.core.flow_control import unicast_flow_control
from aeron_async.driver.core.image_counters import ImageCounters, SubscriberPosition
from aeron_async.driver.core.network_publication import NetworkPublication
from aeron_async.driver.core.publication_counters import PublicationCounters
from aeron_async.driver.core.publication_image import PublicationImage
from aeron_async.driver.core.publication_params import PublicationParams
from aeron_async.driver.core.system_counters import (
    DriverCounterId,
    SystemCounterId,
    SystemCounters,
)
from aeron_async.logbuffer.exclusive_appender import ExclusiveAppender
from aeron_async.logbuffer.metadata import LogType
from aeron_async.logbuffer.position import compute_position, term_id_at
from aeron_async.logbuffer.reader import TermReader
from aeron_async.logbuffer.shared_appender import SharedAppender
from aeron_async.protocol.data import DataHeader, encode_heartbeat
from aeron_async.protocol.datagram import DataFrame, Frame, frames
from aeron_async.protocol.header import DataFlags, FrameType, StatusMessageFlags, align_frame
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.setup import Setup
from aeron_async.protocol.status_message import StatusMessage
from tests.logbuffer.logs import (
    INITIAL_TERM_ID,
    MTU_LENGTH,
    SESSION_ID,
    STREAM_ID,
    TERM_LENGTH,
    make_log,
)

if TYPE_CHECKING:
    from aeron_async.driver.core.delay import FeedbackDelay
    from aeron_async.driver.core.image_state import ImageState
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.publication_state import PublicationState
    from aeron_async.logbuffer.term_log import LogBuffers
    from aeron_async.protocol.error import ErrorFrame
    from aeron_async.protocol.header import Buffer

US: Final = 1_000
MS: Final = 1_000_000
SECOND: Final = 1_000_000_000
BITS: Final = TERM_LENGTH.bit_length() - 1
HALF_TERM: Final = TERM_LENGTH // 2
WINDOW: Final = HALF_TERM
RECEIVER_ID: Final = -7_000_000_001
SOURCE: Final = ("192.0.2.1", 40_123)
OTHER_SOURCE: Final = ("192.0.2.2", 40_124)
CONTEXT: Final = DriverContext()

T = TypeVar("T", bound=Frame)


class Outbox:
    """Keeps what is sent; refuses everything while `is_full`."""

    def __init__(self) -> None:
        self.is_full = False
        self.sent: list[bytes] = []
        self.addresses: list[Address] = []

    def send(self, datagram: Buffer) -> bool:
        if not self.is_full:
            self.sent.append(bytes(datagram))
        return not self.is_full

    def send_to(self, datagram: Buffer, address: Address) -> bool:
        self.addresses.append(address)
        return self.send(datagram)

    def take(self) -> list[bytes]:
        """Return what was sent since the last call."""
        taken, self.sent = self.sent, []
        return taken

    def take_frames(self, kind: type[T]) -> list[T]:
        """Return the frames of one kind sent since the last call; others are forgotten."""
        return [
            frame
            for datagram in self.take()
            for frame in frames(datagram)
            if isinstance(frame, kind)
        ]


class Counts:
    """A table of counters in memory, and the driver's own among them."""

    def __init__(self, context: DriverContext = CONTEXT) -> None:
        self.manager = CountersManager.in_memory(
            512 * 1024, free_to_reuse_timeout_ms=0, epoch_ms=lambda: 0
        )
        self.system = SystemCounters(self.manager, context, version="1.53.0")

    def new(self, value: int = 0) -> Counter:
        counter = self.manager.allocate(1_001, b"", "test")
        counter.set(value)
        return counter

    def __getitem__(self, counter_id: SystemCounterId | DriverCounterId) -> int:
        return self.system[counter_id].get()


class PublicationRig:
    """A publication on an outbox, with an appender to offer by."""

    def __init__(
        self,
        *,
        context: DriverContext = CONTEXT,
        now_ns: int = 0,
        spec: dict[str, Any] | None = None,
        **params: Any,
    ) -> None:
        is_exclusive = params.setdefault("is_exclusive", True)
        kind = LogType.EXCLUSIVE_PUBLICATION if is_exclusive else LogType.CONCURRENT_PUBLICATION
        self.log = make_log(log_type=kind, **(spec or {}))
        self.counts = Counts(context)
        self.outbox = Outbox()
        self.window_changes = 0
        self.errors: list[ErrorFrame] = []
        self.counters = PublicationCounters.allocate(
            self.counts.manager,
            registration_id=1,
            session_id=SESSION_ID,
            stream_id=STREAM_ID,
            channel="aeron:udp?endpoint=localhost:40123",
            client_id=1,
            is_exclusive=is_exclusive,
        )
        self.params = make_params(self.log, **params)
        self.publication = NetworkPublication(
            registration_id=1,
            channel="aeron:udp?endpoint=localhost:40123",
            log=self.log,
            params=self.params,
            context=context,
            flow_control=unicast_flow_control(context),
            counters=self.counters,
            system_counters=self.counts.system,
            outbox=self.outbox,
            listener=self,
            now_ns=now_ns,
        )
        self.appender = ExclusiveAppender(self.log) if is_exclusive else SharedAppender(self.log)

    def on_window_changed(self, publication: NetworkPublication) -> None:
        assert publication is self.publication
        self.window_changes += 1

    def on_publication_error(self, publication: NetworkPublication, error: ErrorFrame) -> None:
        assert publication is self.publication
        self.errors.append(error)

    def offer(self, data: bytes) -> int:
        """Offer up to the publisher limit, once more after a rotation; return what came of it."""
        limit = self.publication.publisher_limit
        result = self.appender.offer(data, limit=limit)
        return self.appender.offer(data, limit=limit) if result == -3 else result

    def state(self) -> PublicationState:
        return self.publication.state

    def is_connected(self) -> bool:
        return self.publication.is_connected

    def hear(self, position: int, now_ns: int, **changes: Any) -> None:
        self.publication.on_status_message(status_message(self.log, position, **changes), now_ns)

    def poll(self, now_ns: int) -> list[bytes]:
        self.publication.poll(now_ns)
        return self.outbox.take()

    def connect(self, now_ns: int) -> None:
        """Bring the publication to where its first receiver has spoken, and forget the SETUP."""
        self.publication.poll(now_ns)
        self.hear(self.publication.sender_position, now_ns)
        self.publication.poll(now_ns)
        self.outbox.take()


class ImageRig:
    """An image on an outbox, and subscribers that read it."""

    def __init__(
        self,
        *,
        context: DriverContext = CONTEXT,
        now_ns: int = 0,
        join_position: int = 0,
        subscribers: int = 1,
        is_reliable: bool = True,
        feedback_delay: FeedbackDelay | None = None,
        group_tag: int | None = None,
        spec: dict[str, Any] | None = None,
        counts: Counts | None = None,
        outbox: Outbox | None = None,
        window_length: int = WINDOW,
    ) -> None:
        self.log = make_log(log_type=LogType.IMAGE, **(spec or {}))
        self.counts = Counts(context) if counts is None else counts
        self.outbox = Outbox() if outbox is None else outbox
        self.progress = 0
        self.counters = ImageCounters.allocate(
            self.counts.manager,
            registration_id=2,
            session_id=SESSION_ID,
            stream_id=STREAM_ID,
            channel="aeron:udp?endpoint=localhost:40123",
        )
        delay = choose_delay(
            context, is_reliable=is_reliable, is_group=False, nak_delay_ns=None, random=float
        )
        self.image = PublicationImage(
            registration_id=2,
            log=self.log,
            join_position=join_position,
            source=SOURCE,
            control_address=SOURCE,
            context=context,
            congestion_control=congestion_control(
                None, configured_window_length=window_length, term_length=self.log.term_length
            ),
            feedback_delay=delay if feedback_delay is None else feedback_delay,
            is_reliable=is_reliable,
            counters=self.counters,
            system_counters=self.counts.system,
            receiver_id=RECEIVER_ID,
            group_tag=group_tag,
            outbox=self.outbox,
            listener=self,
            now_ns=now_ns,
        )
        self.readers: list[tuple[TermReader, Counter]] = []
        for _ in range(subscribers):
            self.subscribe()

    def on_image_progress(self, image: PublicationImage) -> None:
        assert image is self.image
        self.progress += 1

    def subscribe(self) -> int:
        """Let one more subscription join; return where it does."""
        position = self.image.join_position
        counter = self.counts.new(position)
        self.image.add_subscriber(
            SubscriberPosition(subscription_id=len(self.readers), position=counter)
        )
        self.readers.append((TermReader(self.log, position), counter))
        return position

    def read(self, index: int = 0, *, limit: int = 1_000) -> list[bytes]:
        """Let a subscriber read what is there, and move its position behind it."""
        reader, counter = self.readers[index]
        found: list[tuple[bytes, int, int]] = []
        position = -1
        while position != reader.position and len(found) < limit:
            position = reader.position
            reader.read_messages(found, limit=limit - len(found))
        counter.set(reader.position)
        return [data for data, _, _ in found]

    def consume_to(self, position: int, index: int = 0) -> None:
        self.readers[index][1].set(position)

    def state(self) -> ImageState:
        return self.image.state

    def feed(self, datagram: bytes, now_ns: int, source: Address = SOURCE) -> None:
        """Hand a datagram of data to the image as the dispatcher would."""
        header = DataHeader.decode(datagram)
        self.image.on_data(
            memoryview(datagram),
            term_id=header.term_id,
            term_offset=header.term_offset,
            source=source,
            now_ns=now_ns,
        )

    def status_messages(self) -> list[StatusMessage]:
        return self.outbox.take_frames(StatusMessage)

    def naks(self) -> list[tuple[int, int]]:
        """Return position and length of the gaps asked for since the last look."""
        return [
            (position_of(nak.term_id, nak.term_offset, self.log), nak.length)
            for nak in self.outbox.take_frames(Nak)
        ]

    def __getitem__(self, counter_id: SystemCounterId | DriverCounterId) -> int:
        return self.counts[counter_id]


def make_params(log: LogBuffers, **changes: Any) -> PublicationParams:
    fields: dict[str, Any] = {
        "mtu_length": log.mtu_length,
        "term_length": log.term_length,
        "session_id": None,
        "start": None,
        "publication_window_length": log.term_length // 2,
        "linger_timeout_ns": 5 * SECOND,
        "max_resend": 16,
        "signal_eos": True,
        "is_sparse": True,
        "spies_simulate_connection": False,
        "is_exclusive": True,
    }
    return PublicationParams(**(fields | changes))


def position_of(term_id: int, term_offset: int, log: LogBuffers) -> int:
    return compute_position(
        term_id, term_offset, initial_term_id=log.initial_term_id, bits=log.position_bits
    )


def place(position: int, initial_term_id: int = INITIAL_TERM_ID) -> tuple[int, int]:
    """Return term id and offset of a position in the logs of these tests."""
    term_id = term_id_at(position, initial_term_id=initial_term_id, bits=BITS)
    return term_id, position & (TERM_LENGTH - 1)


def status_message(log: LogBuffers, position: int, **changes: Any) -> StatusMessage:
    fields: dict[str, Any] = {
        "session_id": log.session_id,
        "stream_id": log.stream_id,
        "consumption_term_id": term_id_at(
            position, initial_term_id=log.initial_term_id, bits=log.position_bits
        ),
        "consumption_term_offset": position & (log.term_length - 1),
        "receiver_window": WINDOW,
        "receiver_id": RECEIVER_ID,
    }
    return StatusMessage(**(fields | changes))


def eliciting_message(log: LogBuffers) -> StatusMessage:
    return StatusMessage(
        session_id=log.session_id,
        stream_id=log.stream_id,
        receiver_id=RECEIVER_ID,
        flags=StatusMessageFlags.SEND_SETUP,
    )


def nak(position: int, length: int, initial_term_id: int = INITIAL_TERM_ID) -> Nak:
    term_id, term_offset = place(position, initial_term_id)
    return Nak(
        session_id=SESSION_ID,
        stream_id=STREAM_ID,
        term_id=term_id,
        term_offset=term_offset,
        length=length,
    )


def setup(position: int = 0, **changes: Any) -> Setup:
    term_id, term_offset = place(position)
    fields: dict[str, Any] = {
        "term_offset": term_offset,
        "session_id": SESSION_ID,
        "stream_id": STREAM_ID,
        "initial_term_id": INITIAL_TERM_ID,
        "active_term_id": term_id,
        "term_length": TERM_LENGTH,
        "mtu_length": MTU_LENGTH,
    }
    return Setup(**(fields | changes))


def data(
    position: int,
    length: int,
    *,
    flags: DataFlags = DataFlags.UNFRAGMENTED,
    frame_type: FrameType = FrameType.DATA,
    **changes: Any,
) -> bytes:
    """Return one frame that takes `length` bytes of the stream; its payload tells its position."""
    term_id, term_offset = place(position, changes.pop("initial_term_id", INITIAL_TERM_ID))
    fields: dict[str, Any] = {
        "frame_length": length,
        "term_offset": term_offset,
        "session_id": SESSION_ID,
        "stream_id": STREAM_ID,
        "term_id": term_id,
    }
    header = DataHeader(flags=flags, frame_type=frame_type, **(fields | changes))
    if frame_type is FrameType.PAD:
        return header.encode()
    body = payload(position, length).ljust(align_frame(length) - 32, b"\0")
    return DataFrame(header, body).encode()


def payload(position: int, length: int) -> bytes:
    """Return what `data` puts into a frame."""
    return (position.to_bytes(8, "little") * (length // 8))[: length - 32]


def pad(position: int, length: int) -> bytes:
    return data(position, length, frame_type=FrameType.PAD)


def heartbeat(position: int, flags: DataFlags = DataFlags.UNFRAGMENTED, **changes: Any) -> bytes:
    term_id, term_offset = place(position, changes.pop("initial_term_id", INITIAL_TERM_ID))
    return encode_heartbeat(
        session_id=SESSION_ID,
        stream_id=STREAM_ID,
        term_id=term_id,
        term_offset=term_offset,
        flags=flags,
    )


EOS: Final = DataFlags.UNFRAGMENTED | DataFlags.END_OF_STREAM
