"""The sending end: one endpoint, its publication and publishers, and whoever speaks to it.

A conversation is a script of up to 200 control datagrams, good, nearly good and bad, between steps
of the clock, polls, offers and claims, and a socket that is full at times.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.logbuffer.appender import AppendResult, Claim
from aeron_async.logbuffer.position import max_message_length
from aeron_async.protocol.data import DATA_HEADER
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import FrameType, RttFlags
from aeron_async.protocol.rtt import RttMeasurement
from tests.driver.fakes import HALF_TERM, MS, SECOND, SOURCE
from tests.fuzz.script import Script
from tests.fuzz.sending_end import COUNTS, SLOT_LIMIT, TERM_MASK, SendingEnd
from tests.fuzz.wire import LONGEST_DATAGRAM
from tests.logbuffer.logs import MAX_PAYLOAD, SESSION_ID, STREAM_ID, TERM_LENGTH

if TYPE_CHECKING:
    from collections.abc import Callable


DATAGRAM_LIMIT: Final = 200
CLAIM_LIMIT: Final = 8
STORM_LIMIT: Final = 24
LONGEST_MESSAGE: Final = max_message_length(TERM_LENGTH)
CLOCK_STEPS_NS: Final = (0, 1, 1_000, MS, 11 * MS, 100 * MS, SECOND, 6 * SECOND, 16 * SECOND)
STATUS_MESSAGE: Final = Struct("<iBBHiiiiiq")
TAG: Final = Struct("<q")
NAK: Final = Struct("<iBBHiiiii")
MESSAGES: Final = memoryview(bytes(LONGEST_MESSAGE))
LENGTHS: Final = (0, 1, 32, 100, 1_000, MAX_PAYLOAD - 1, MAX_PAYLOAD, MAX_PAYLOAD + 1, 5_000, 8_192)


class Sender(SendingEnd):
    """An endpoint under one conversation."""

    def __init__(self, script: Script) -> None:
        super().__init__(script.byte())
        self.script = script
        self.datagram_count = 0
        self.last = b""
        self.claims: list[Claim] = []

    # What arrives.

    def feed(self, datagram: bytes) -> None:
        self.last = datagram
        self.datagram_count += 1
        self.dispatcher.on_datagram(memoryview(datagram), SOURCE, self.now_ns)

    def session(self) -> tuple[int, int]:
        choice = self.script.byte()
        return SESSION_ID + (choice == 0xFF), STREAM_ID + (choice == 0xFE)

    def position(self) -> int:
        """Choose a position near one that matters; a multiple of 32 mostly."""
        choice, step = self.script.byte(), self.script.signed() * 32
        publication = self.publication
        anchor = (
            publication.sender_position,
            publication.sender_limit,
            publication.producer_position,
            publication.sender_position & -TERM_LENGTH,
        )[choice & 3]
        if choice & 4:
            step *= 16
        return anchor + step + (choice >> 5 if choice & 8 else 0)

    def window(self) -> int:
        choice = self.script.byte()
        return (
            HALF_TERM if choice < 0x80 else choice * 256 if choice < 0xF0 else self.script.int32()
        )

    def receiver_id(self) -> int:
        return (1, 2, -1, 0, 2**63 - 1)[self.script.byte() % 5]

    def hear(self) -> None:
        session_id, stream_id = self.session()
        choice, position = self.script.byte(), self.position()
        tag = b"" if choice & 1 else TAG.pack(self.script.signed())
        self.feed(
            STATUS_MESSAGE.pack(
                STATUS_MESSAGE.size + len(tag),
                0,
                choice & 0xC0 if choice & 2 else 0,
                FrameType.SM,
                session_id,
                stream_id,
                self.term_id(position),
                position & TERM_MASK,
                self.window(),
                self.receiver_id(),
            )
            + tag
        )

    def hear_that_all_is_consumed(self) -> None:
        position = self.publication.sender_position
        self.feed(
            STATUS_MESSAGE.pack(
                STATUS_MESSAGE.size,
                0,
                0,
                FrameType.SM,
                SESSION_ID,
                STREAM_ID,
                self.term_id(position),
                position & TERM_MASK,
                HALF_TERM,
                1,
            )
        )

    def nak_of(self, position: int, length: int, session_id: int, stream_id: int) -> bytes:
        term_id, term_offset = self.term_id(position), position & TERM_MASK
        return NAK.pack(
            NAK.size, 0, 0, FrameType.NAK, session_id, stream_id, term_id, term_offset, length
        )

    def nak(self) -> None:
        session_id, stream_id = self.session()
        choice, position = self.script.byte(), self.position()
        length = TERM_LENGTH - (position & TERM_MASK)
        if choice >= 0x40:
            length = choice * 64 if choice < 0xF0 else self.window()
        self.feed(self.nak_of(position, length, session_id, stream_id))

    def nak_storm(self) -> None:
        """Ask for one range and another by turns, as fast as one can."""
        count = self.script.byte() % STORM_LIMIT
        positions = self.position() & -32, self.position() & -32
        naks = [
            self.nak_of(each, TERM_LENGTH - (each & TERM_MASK), SESSION_ID, STREAM_ID)
            for each in positions
        ]
        for each in range(count):
            self.feed(naks[each & 1])

    def error(self) -> None:
        session_id, stream_id = self.session()
        frame = ErrorFrame(
            session_id=session_id,
            stream_id=stream_id,
            receiver_id=self.receiver_id(),
            error_code=self.script.int32(),
            message=self.script.take(self.script.byte() & 15),
        )
        if self.script.byte() & 1:
            frame = attrs.evolve(frame, error_length=self.script.int32())
        self.feed(frame.encode())

    def rttm(self) -> None:
        session_id, stream_id = self.session()
        self.feed(
            RttMeasurement(
                session_id=session_id,
                stream_id=stream_id,
                echo_timestamp_ns=self.script.int32(),
                reception_delta_ns=self.script.int32(),
                receiver_id=self.receiver_id(),
                flags=RttFlags(self.script.byte() & 0x80),
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

    # What publishers do, and what else happens.

    def offer(self) -> None:
        choice = self.script.byte()
        length = LENGTHS[choice % len(LENGTHS)]
        if choice & 0x80:
            self.offer_bytes(self.frames(length))
        else:
            self.offer_bytes(MESSAGES[:length])

    def offer_bytes(self, data: bytes | memoryview) -> None:
        if not self.is_active():
            return
        limit = self.publication.publisher_limit
        if self.appender.offer(data, limit=limit) == AppendResult.ADMIN_ACTION:
            self.appender.offer(data, limit=limit)

    def frames(self, length: int) -> bytes:
        """Return a message that looks like frames, each in its place, wherever one looks."""
        start = self.publication.producer_position + 32
        return b"".join(
            DATA_HEADER.pack(
                self.script.int32(),
                0,
                0xC0,
                1,
                position & TERM_MASK,
                SESSION_ID,
                STREAM_ID,
                self.term_id(position),
                0,
            )
            for position in range(start, start + length, 32)
        )[:length]

    def claim(self) -> None:
        length = self.script.byte()
        if self.is_active() and len(self.claims) < CLAIM_LIMIT:
            claim = self.appender.try_claim(length, limit=self.publication.publisher_limit)
            if isinstance(claim, Claim):
                self.claims.append(claim)

    def finish_claim(self) -> None:
        choice = self.script.byte()
        if COUNTS[SystemCounterId.UNBLOCKED_PUBLICATIONS]:
            # Whoever was too slow must not write any more: the room may be another's by now.
            self.claims.clear()
        if self.claims:
            claim = self.claims.pop(choice % len(self.claims))
            if choice & 0x80:
                claim.abort()
            else:
                claim.commit()

    def flow(self) -> None:
        """Let data flow for a while, to a receiver that keeps up."""
        choice = self.script.byte()
        for _ in range(choice & 15):
            self.offer_bytes(MESSAGES[: MAX_PAYLOAD if choice & 0x80 else LONGEST_MESSAGE])
            self.poll()
            self.hear_that_all_is_consumed()
            self.poll()

    def poll(self) -> None:
        before = self.wire.sent_count
        assert self.publication.poll(self.now_ns) >= 0
        # A burst, a SETUP, a heartbeat; and what delayed answers to NAKs may add.
        assert self.wire.sent_count <= before + 6 + SLOT_LIMIT * (TERM_LENGTH // 1_000)
        self.check()

    def step_clock(self) -> None:
        self.now_ns += CLOCK_STEPS_NS[self.script.byte() % len(CLOCK_STEPS_NS)]
        self.poll()

    def end(self) -> None:
        if self.script.byte() & 1:
            self.publication.skip_linger()
        elif self.is_active():
            self.publication.release(self.now_ns)

    def fill_socket(self) -> None:
        self.wire.is_full = not self.wire.is_full

    def run(self) -> None:
        script = self.script
        while not script.is_over and self.datagram_count < DATAGRAM_LIMIT:
            STEPS[script.byte() % len(STEPS)](self)
        self.poll()
        self.check_room()


STEPS: Final[tuple[Callable[[Sender], None], ...]] = (
    Sender.hear,
    Sender.hear,
    Sender.hear_that_all_is_consumed,
    Sender.nak,
    Sender.nak,
    Sender.nak_storm,
    Sender.error,
    Sender.rttm,
    Sender.raw,
    Sender.mutated,
    Sender.offer,
    Sender.offer,
    Sender.claim,
    Sender.finish_claim,
    Sender.flow,
    Sender.poll,
    Sender.step_clock,
    Sender.end,
    Sender.fill_socket,
)


def sender(data: bytes) -> None:
    """Hold one conversation with a sending endpoint."""
    conversation = Sender(Script(data))
    try:
        conversation.run()
    finally:
        conversation.close()
