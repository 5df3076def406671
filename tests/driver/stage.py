"""An image, and a publisher of some frames that is played by hand.

It answers what it is asked from where a frame of its own begins, and refuses the rest, as drivers
do.
"""

from __future__ import annotations

from itertools import chain

from aeron_async.driver.core.image_state import ImageState
from aeron_async.protocol.datagram import frames
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.status_message import StatusMessage
from tests.driver.fakes import MS, data, heartbeat, payload, position_of
from tests.driver.rigs import ImageRig, connect

__all__ = ["LENGTHS", "Stage"]

LENGTHS = (64, 256, 1_408, 96, 640)


class Stage:
    """An image, and a publisher whose frames it receives.

    Attributes:
        now_ns: The time.
        sent: Up to which frame the publisher has come.
        is_deaf: Whether it hears no NAK.
        read: Messages that the reader has taken.
        setup_request_count: How often the image has asked for a SETUP.
    """

    def __init__(self) -> None:
        self.rig = ImageRig()
        self.image = self.rig.image
        self.now_ns = 0
        self.sent = 0
        self.is_deaf = False
        self.read: list[bytes] = []
        self.setup_request_count = 0
        self.starts = [0]
        while len(self.starts) < 200:
            self.starts.append(self.starts[-1] + LENGTHS[len(self.starts) % len(LENGTHS)])
        self.pass_time(MS)

    def frame(self, index: int) -> bytes:
        return data(self.starts[index], self.starts[index + 1] - self.starts[index])

    def message(self, index: int) -> bytes:
        return payload(self.starts[index], self.starts[index + 1] - self.starts[index])

    @property
    def position(self) -> int:
        return self.starts[self.sent]

    def send(self, count: int, *, lost: tuple[int, ...] = (), in_one_go: bool = True) -> None:
        """Let the publisher send its next frames, some of which are lost."""
        for index in range(self.sent, self.sent + count):
            self.sent = index + 1
            if index not in lost:
                self.rig.feed(self.frame(index), self.now_ns)
            if not in_one_go:
                self.settle()
        self.settle()

    def settle(self) -> None:
        """Let the image ask, the publisher answer, and the reader read."""
        for _ in range(4):
            self.image.poll(self.now_ns)
            self.read += self.rig.read(limit_position=self.image.rebuild_position)
            for frame in chain.from_iterable(map(frames, self.rig.outbox.take())):
                if isinstance(frame, StatusMessage):
                    self.setup_request_count += frame.is_setup_elicit
                elif isinstance(frame, Nak):
                    position = position_of(frame.term_id, frame.term_offset, self.rig.log)
                    self.answer(position, frame.length)

    def answer(self, position: int, length: int) -> None:
        if self.is_deaf or position not in self.starts[: self.sent]:
            return
        index = self.starts.index(position)
        while index < self.sent and self.starts[index + 1] <= position + length:
            self.rig.feed(self.frame(index), self.now_ns)
            index += 1

    def hear_setup(self, term_length: int) -> None:
        """Let a SETUP come from the publisher's address that is the image's but for its terms."""
        log, outbox = self.rig.log, self.rig.outbox
        connection = connect(self.image, outbox, self.image.source, self.now_ns)
        self.image.on_setup(
            (log.initial_term_id, term_length, log.mtu_length),
            (log.initial_term_id, 0),
            destination=connection.destination,
            source=connection.source,
            now_ns=self.now_ns,
        )

    def pass_time(self, time_ns: int, *, heartbeats: bool = True) -> None:
        """Let time pass, in which the publisher says where it is."""
        end_ns = self.now_ns + time_ns
        while self.now_ns < end_ns:
            self.now_ns += min(50 * MS, end_ns - self.now_ns)
            if heartbeats and self.now_ns % (100 * MS) < 50 * MS:
                self.rig.feed(heartbeat(self.position), self.now_ns)
            self.settle()

    def expect_everything(self) -> None:
        """See that all that was sent was read, in order, and the image lives."""
        assert self.read == [self.message(index) for index in range(self.sent)]
        assert self.image.state is ImageState.ACTIVE
