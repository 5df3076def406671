"""The receiving end: one endpoint, the images it makes, their readers, and whoever speaks to it.

A conversation is a script of up to 200 datagrams, good, nearly good and bad, between steps of the
clock, polls, reads, and subscriptions that come and go. It plays the conductor's part as the
driver does it: images are made for a SETUP within a budget, let go when they linger, and freed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.data_packet_dispatcher import DataPacketDispatcher
from aeron_async.driver.core.image_state import ImageState
from aeron_async.errors import AeronError
from aeron_async.logbuffer.position import compute_position, term_id_at
from aeron_async.protocol.data import DATA_HEADER
from aeron_async.protocol.header import wrap_int32
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.setup import Setup
from tests.driver.fakes import MS, RECEIVER_ID, SECOND, SOURCE, Counts
from tests.driver.rigs import ImageRig
from tests.fuzz.script import EDGES, Script
from tests.fuzz.wire import LONGEST_DATAGRAM, Watch, Wire
from tests.logbuffer.logs import INITIAL_TERM_ID, MTU_LENGTH, SESSION_ID, STREAM_ID, TERM_LENGTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.publication_image import PublicationImage

DATAGRAM_LIMIT: Final = 200
IMAGE_LIMIT: Final = 3
PENDING_LIMIT: Final = 8
BITS: Final = TERM_LENGTH.bit_length() - 1
TERM_LENGTHS: Final = (TERM_LENGTH, 2 * TERM_LENGTH)
CONTEXT: Final = DriverContext(
    max_pending_setups=PENDING_LIMIT, max_elicited_setups_per_second=2 * PENDING_LIMIT
)
CLOCK_STEPS_NS: Final = (
    0,
    1,
    1_000,
    100_000,
    MS,
    50 * MS,
    200 * MS,
    SECOND,
    3 * SECOND,
    11 * SECOND,
)
TERM_COUNTS: Final = (0, 0, 0, 1, 2, 3, 2**31 - 3, 2**31 - 2, 2**31 - 1)
FIRST_TERM_IDS: Final = (INITIAL_TERM_ID, 0, -1, 2**31 - 1, -(2**31), 2**31 - 2)
FLAGS: Final = (0xC0, 0x80, 0x40, 0x00, 0xE0, 0xF0)
FRAMES_IN_BODIES: Final = tuple(
    (length.to_bytes(4, "little", signed=True) + b"\0\xc0\1\0" + bytes(24)) * 48 for length in EDGES
)
"""Bodies that look like headers wherever a walk might stray into them."""
COUNTS: Final = Counts()
WATCH: Final = Watch(COUNTS)


class Receiver:
    """An endpoint under one conversation."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.wire = Wire()
        first = script.byte()
        self.is_reliable = not first & 1
        self.first_term_id = FIRST_TERM_IDS[(first >> 1) % len(FIRST_TERM_IDS)]
        self.rigs: list[ImageRig] = []
        self.freed: list[ImageRig] = []
        self.rebuilt: dict[PublicationImage, int] = {}
        self.now_ns = 0
        self.datagram_count = 0
        self.last = b""
        self.subscribed: set[int | None] = {None}
        self.dispatcher = DataPacketDispatcher(
            context=CONTEXT,
            system_counters=COUNTS.system,
            receiver_id=RECEIVER_ID,
            group_tag=None,
            listener=self,
        )
        self.dispatcher.add_subscription(STREAM_ID, None)

    # What the dispatcher says.

    def on_image_activity(self, image: PublicationImage) -> None:
        assert any(rig.image is image for rig in self.rigs)

    def on_invalid_datagram(self, datagram: memoryview, source: Address, now_ns: int) -> None:
        assert now_ns == self.now_ns

    def on_create_image(self, setup: Setup, source: Any, destination: Any) -> None:
        if (
            len(self.rigs) >= IMAGE_LIMIT
            or setup.term_length not in TERM_LENGTHS
            or wrap_int32(setup.active_term_id - setup.initial_term_id) < 0
        ):
            return
        try:
            rig = ImageRig(
                context=CONTEXT,
                now_ns=self.now_ns,
                join_position=compute_position(
                    setup.active_term_id,
                    setup.term_offset,
                    initial_term_id=setup.initial_term_id,
                    bits=setup.term_length.bit_length() - 1,
                ),
                is_reliable=self.is_reliable,
                spec={
                    "session_id": setup.session_id,
                    "stream_id": setup.stream_id,
                    "initial_term_id": setup.initial_term_id,
                    "term_length": setup.term_length,
                    "mtu_length": setup.mtu_length,
                },
                counts=COUNTS,
                outbox=destination,
            )
        except AeronError:
            return
        self.rigs.append(rig)
        self.dispatcher.add_image(rig.image)
        self.rebuilt[rig.image] = rig.image.rebuild_position

    # What arrives.

    def feed(self, datagram: bytes) -> None:
        self.last = datagram
        self.datagram_count += 1
        sent_count = self.wire.sent_count
        self.dispatcher.on_datagram(memoryview(datagram), SOURCE, self.now_ns, self.wire)
        assert self.wire.sent_count <= sent_count + 1

    def stream(self) -> tuple[int, int, int, ImageRig | None]:
        """Choose a session; return its id, first term, term bits and image if it has one."""
        choice = self.script.byte()
        if self.rigs and choice < 0xE0:
            rig = self.rigs[choice % len(self.rigs)]
            log = rig.log
            return log.session_id, log.initial_term_id, log.position_bits, rig
        return SESSION_ID + choice % 4, self.first_term_id, BITS, None

    def position(self, rig: ImageRig | None) -> int:
        """Choose a position near one that matters; a multiple of 32 mostly."""
        choice, step = self.script.byte(), self.script.signed() * 32
        if rig is None:
            anchor = TERM_COUNTS[choice % len(TERM_COUNTS)] << BITS
            return max(0, anchor + step)
        image = rig.image
        anchor = (
            image.rebuild_position,
            image.hwm_position,
            image.rebuild_position & -rig.log.term_length,
            image._feedback.overrun_threshold,
        )[choice & 3]
        if choice & 4:
            step *= 16
        return anchor + step + (choice >> 5 if choice & 8 else 0)

    def frame_length(self) -> int:
        choice = self.script.byte()
        return 32 + choice * 6 if choice < 0xE0 else self.script.int32()

    def header(self, position: int, frame_length: int, kind: int, flags: int) -> bytes:
        session_id, initial_term_id, bits, _ = self.target
        return DATA_HEADER.pack(
            frame_length,
            0,
            flags,
            kind,
            position & (1 << bits) - 1,
            session_id,
            STREAM_ID,
            term_id_at(position, initial_term_id=initial_term_id, bits=bits),
            0,
        )

    def data(self) -> None:
        """Feed a datagram of one to four data frames."""
        self.target = self.stream()
        position = self.position(self.target[3])
        choice = self.script.byte()
        flags = FLAGS[choice % len(FLAGS)]
        body = FRAMES_IN_BODIES[(choice >> 4) % len(FRAMES_IN_BODIES)]
        parts = b""
        for _ in range(1 + (choice >> 3 & 3) * (choice & 1)):
            frame_length = self.frame_length()
            length = max(32, min(MTU_LENGTH, (frame_length + 31) & -32))
            parts += self.header(position, frame_length, 1, flags) + body[: length - 32]
            position += length
        self.feed(parts)

    def pad(self) -> None:
        """Feed a PAD to the end of its term, or of any length."""
        self.target = self.stream()
        position = self.position(self.target[3])
        choice = self.script.byte()
        term_length = 1 << self.target[2]
        rest = term_length - (position & term_length - 1)
        self.feed(self.header(position, rest if choice & 1 else self.frame_length(), 0, 0xC0))

    def heartbeat(self) -> None:
        self.target = self.stream()
        flags = FLAGS[self.script.byte() % len(FLAGS)]
        self.feed(self.header(self.position(self.target[3]), 0, 1, flags))

    def setup(self) -> None:
        session_id, initial_term_id, bits, rig = self.stream()
        position = self.position(rig)
        choice = self.script.byte()
        self.feed(
            Setup(
                term_offset=position & (1 << bits) - 1,
                session_id=session_id,
                stream_id=STREAM_ID,
                initial_term_id=initial_term_id,
                active_term_id=term_id_at(position, initial_term_id=initial_term_id, bits=bits),
                term_length=TERM_LENGTHS[choice & 1] if rig is None else 1 << bits,
                mtu_length=MTU_LENGTH if choice < 0xF0 else wrap_int32(self.script.int32()),
            ).encode()
        )

    def rttm(self) -> None:
        session_id = self.stream()[0]
        choice = self.script.byte()
        self.feed(
            RttMeasurement(
                session_id=session_id,
                stream_id=STREAM_ID,
                echo_timestamp_ns=self.script.int32(),
                reception_delta_ns=self.script.int32(),
                receiver_id=(0, RECEIVER_ID, 5)[choice % 3],
                flags=choice & 0x80,  # type: ignore[arg-type]  # as it comes off the wire
            ).encode()
        )

    def raw(self) -> None:
        self.feed(self.script.take(self.script.byte()))

    def mutated(self) -> None:
        """Feed the last datagram again, with some bytes changed, and cut or made longer."""
        changed = bytearray(self.last)
        choice = self.script.byte()
        for _ in range(choice & 3):
            index, value = self.script.byte(), self.script.byte()
            if changed:
                changed[index % min(len(changed), 48)] = value
        if choice & 0x80:
            changed = changed[: self.script.byte()]
        if choice & 0x40:
            changed += bytes(self.script.byte())
        self.feed(bytes(changed[:LONGEST_DATAGRAM]))

    def strangers(self) -> None:
        """Feed data of sessions that nobody has heard of."""
        count, first = self.script.byte() % 32, self.script.short()
        for session_id in range(first, first + count):
            self.target = session_id, self.first_term_id, BITS, None
            self.feed(self.header(0, 32, 1, 0xC0))

    def flow(self) -> None:
        """Let a stream flow for a while: data in order, polls, and readers that keep up."""
        self.target = self.stream()
        rig = self.target[3]
        if rig is None:
            return
        length = 1_376
        for _ in range(self.script.byte() % 32):
            position = rig.image.rebuild_position
            rest = rig.log.term_length - (position & rig.log.term_length - 1)
            if rest < length:
                self.feed(self.header(position, rest, 0, 0xC0))
            else:
                self.feed(self.header(position, length, 1, 0xC0) + bytes(length - 32))
            self.poll()
            self.read_up_to(8)

    # What else happens.

    def step_clock(self) -> None:
        self.now_ns += CLOCK_STEPS_NS[self.script.byte() % len(CLOCK_STEPS_NS)]
        self.poll()

    def poll(self) -> None:
        for rig in list(self.rigs):
            self.poll_image(rig)
        WATCH.check()

    def poll_image(self, rig: ImageRig) -> None:
        image = rig.image
        was_lingering = image.state is ImageState.LINGER
        sent_count = self.wire.sent_count
        assert image.poll(self.now_ns) >= 0
        if image.state is ImageState.LINGER and not was_lingering:
            self.dispatcher.remove_image(image)
            image.subscribers.clear()
            image.poll(self.now_ns)
        assert self.wire.sent_count <= sent_count + 4
        self.check(rig)
        if image.state is ImageState.DONE:
            self.dispatcher.remove_image(image)
            self.rigs.remove(rig)
            self.freed.append(rig)

    def read(self) -> None:
        self.read_up_to(1 + self.script.byte())

    def read_up_to(self, limit: int) -> None:
        for rig in self.rigs:
            if rig.image.subscribers:
                for index in range(len(rig.readers)):
                    rig.read(index, limit=limit, limit_position=rig.image.rebuild_position)

    def subscribe(self) -> None:
        """Add or remove a subscription, or let a reader come or go."""
        choice = self.script.byte()
        session_id = None if choice & 1 else SESSION_ID + (choice >> 1) % 4
        if choice & 0x40 and self.rigs:
            rig = self.rigs[choice % len(self.rigs)]
            if choice & 0x80:
                rig.image.remove_subscriber(choice % 4)
            elif rig.image.is_accepting_subscriptions and len(rig.readers) < IMAGE_LIMIT:
                rig.subscribe()
        elif session_id in self.subscribed:
            self.subscribed.remove(session_id)
            self.dispatcher.remove_subscription(STREAM_ID, session_id)
        else:
            self.subscribed.add(session_id)
            self.dispatcher.add_subscription(STREAM_ID, session_id)

    def fill_socket(self) -> None:
        self.wire.is_full = not self.wire.is_full

    # What must hold.

    def check(self, rig: ImageRig) -> None:
        image = rig.image
        assert self.rebuilt[image] <= image.rebuild_position <= image.hwm_position
        assert image.hwm_position <= image._feedback.overrun_threshold
        assert rig.counters.receiver_position.get() == image.rebuild_position
        assert rig.counters.receiver_hwm.get() == image.hwm_position
        self.rebuilt[image] = image.rebuild_position

    def run(self) -> None:
        script = self.script
        while not script.is_over and self.datagram_count < DATAGRAM_LIMIT:
            STEPS[script.byte() % len(STEPS)](self)
        self.poll()
        for rig in self.rigs:
            self.check(rig)
        assert len(self.rigs) <= IMAGE_LIMIT
        assert len(self.dispatcher._pending_setups) <= PENDING_LIMIT

    def close(self) -> None:
        for rig in self.rigs + self.freed:
            rig.counters.close()
            for _, position in rig.readers:
                position.close()
            rig.log.close()


STEPS: Final[tuple[Callable[[Receiver], None], ...]] = (
    Receiver.data,
    Receiver.data,
    Receiver.data,
    Receiver.pad,
    Receiver.heartbeat,
    Receiver.setup,
    Receiver.setup,
    Receiver.rttm,
    Receiver.raw,
    Receiver.mutated,
    Receiver.strangers,
    Receiver.flow,
    Receiver.step_clock,
    Receiver.poll,
    Receiver.read,
    Receiver.subscribe,
    Receiver.fill_socket,
)


def receiver(data: bytes) -> None:
    """Hold one conversation with a receiving endpoint."""
    WATCH.begin_again()
    conversation = Receiver(Script(data))
    try:
        conversation.run()
    finally:
        conversation.close()
