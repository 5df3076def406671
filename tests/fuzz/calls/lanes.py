"""Calls of the short ways of a lone message, through objects that say anything."""

from __future__ import annotations

import socket
from array import array
from contextlib import suppress
from struct import pack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.calls.values import SESSION_ID, STREAM_ID, TERM_ID, TERM_LENGTH, write_header
from tests.twins import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

lanes: Final = compiled("lanes")
paths: Final = compiled("paths")

SOURCE: Final = ("127.0.0.1", 9)
RESPONSE_SHARE: Final = 0.25
ATTRIBUTES: Final = (
    *("rebuild_position", "hwm_position", "idle_position", "_calm_until_ns", "is_end_of_stream"),
    *("_is_fast_way_closed", "failure", "wake_flag", "_feedback", "connections", "subscribers"),
)


class Destination:
    """What has received a datagram last, and when."""

    last_activity_ns = 0


class Stream(lanes.Streaming):  # type: ignore[name-defined, misc] # found when it runs
    """What sends, with what else a lane asks of it."""


class Agent(lanes.Sleeping):  # type: ignore[name-defined, misc] # found when it runs
    """A sender, with what else a lane calls."""


class Publication(lanes.OfferSending):  # type: ignore[name-defined, misc] # found when it runs
    """A publication that has a log."""


class Held:
    """An image with its lane, and a publication with its own."""

    def __init__(self, values: Values) -> None:
        self.v = values
        self.ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in self.ends:
            end.setblocking(False)
        self.destination = Destination()
        self.datagrams = values.mixed(self.make_datagram, values.buffer)
        self.cells = [paths.Cell(memoryview(array("q", [0]))) for _ in range(3)]
        self.image: Any = lanes.Rebuilding()
        self.images = {SESSION_ID: self.image}
        self.streams = {STREAM_ID: SimpleNamespace(images=self.images)}
        self.receive: Any = None
        self.send: Any = None
        values.hook = self.interrupt
        for each in (self.make_image, self.make_receive_lane, self.make_send_lane):
            with suppress(Exception):
                each()

    def __del__(self) -> None:
        for end in self.ends:
            end.close()

    def interrupt(self) -> None:
        """Close a counter, or begin the image anew, in the middle of a call."""
        if self.v.flag():
            self.v.rng.choice(self.cells).release("closed")
        else:
            self.attach()

    def make_log(self) -> Any:
        rng = self.v.rng
        log = SimpleNamespace(
            term_length=TERM_LENGTH, position_bits=12, initial_term_id=TERM_ID, mtu_length=1_408
        )
        log.terms = tuple(array("B", bytes(TERM_LENGTH)) for _ in range(3))
        if not rng.randrange(4):
            log.__dict__[rng.choice(list(log.__dict__))] = self.v.anything()
        if not rng.randrange(8):
            log.terms = log.terms[: rng.randrange(3)]
        if not rng.randrange(8):
            log.terms = tuple(self.v.buffer() for _ in range(3))
        return log

    def attach(self) -> None:
        self.cells = [paths.Cell(memoryview(array("q", [0]))) for _ in range(3)]
        cells: list[Any] = list(self.cells)
        if not self.v.rng.randrange(16):
            cells[self.v.rng.randrange(3)] = self.v.anything()
        hwm, position, _ = (SimpleNamespace(cell=each) for each in cells)
        self.image._attach(
            self.make_log(), SimpleNamespace(receiver_hwm=hwm, receiver_position=position)
        )

    def make_image(self) -> None:
        image: Any = lanes.Rebuilding()
        feedback: Any = lanes.Reporting()
        feedback.overrun_threshold = 1 << 40
        connection = SimpleNamespace(is_new=False, source=SOURCE, last_activity_ns=0)
        image.connections = SimpleNamespace(_connections={self.destination: connection})
        image._calm_until_ns = 1 << 40
        image._feedback = feedback
        image.wake_flag = paths.WakeFlag()
        client = SimpleNamespace(deliver=self.now_ns)
        subscriber = SimpleNamespace(on_progress=self.now_ns, client=client)
        image.subscribers = SimpleNamespace(active=(subscriber,))
        self.image = self.images[SESSION_ID] = image
        self.attach()

    def now_ns(self) -> Any:
        if self.v.rarely():
            self.v.hook()
            return self.v.any_number()
        return 5

    def make_receive_lane(self) -> None:
        cell = self.cells[2] if self.v.rng.randrange(8) else self.v.rng.choice((None, 5))
        listener = SimpleNamespace(on_image_activity=int)
        self.receive = lanes.ReceiveLane(
            self.destination, self.streams, listener, self.now_ns, SimpleNamespace(cell=cell)
        )

    def make_datagram(self) -> bytes:
        rng = self.v.rng
        length = 32 + rng.randrange(300)
        offset = rng.choice((0, 0, 0, 32, 64, 320, TERM_LENGTH - 32))
        ids = [offset, SESSION_ID, STREAM_ID, TERM_ID + rng.choice((0, 0, 0, 1, 3))]
        if rng.random() < 0.3:
            ids[rng.randrange(4)] = rng.randrange(-(2**31), 2**31)
        return pack("<iBBHiiii", length, 0, 0xC0, 1, *ids) + bytes(((length + 31) & -32) - 24)

    def take(self) -> None:
        self.receive.take(self.datagrams(), SOURCE)

    def take_next(self) -> None:
        """Take what belongs where the image is."""
        at = self.image.rebuild_position
        length = 32 + self.v.rng.randrange(1, 400)
        ids = at % TERM_LENGTH, SESSION_ID, STREAM_ID, TERM_ID + at // TERM_LENGTH
        header = pack("<iBBHiiii", length, 0, 0xC0, 1, *ids)
        datagram = header + bytes(((length + 31) & -32) - len(header))
        self.image.wake_flag.is_set = False
        self.receive.take(datagram, SOURCE)

    def deliver(self) -> None:
        self.receive.deliver()

    def change(self) -> None:
        setattr(self.image, self.v.rng.choice(ATTRIBUTES), self.v.anything())

    def make_send_lane(self) -> None:
        v = self.v
        position = v.position() if v.flag() else 0
        stream = Stream()
        answered = v.rng.choice((None, SOURCE, SOURCE, v.anything() if v.rarely() else SOURCE))
        stream._outbox = SimpleNamespace(send=lambda _: v.flag(), answered=answered)
        stream.position, stream.limit = position, v.position()
        stream._frame_starts = SimpleNamespace(next_position=v.position(), mark=self.on_sent)
        stream.round_trip = SimpleNamespace(on_sent=self.on_sent)
        sock = SimpleNamespace(sendable_fd=self.ends[0].fileno(), on_send_error=int)
        if v.rarely():
            sock.sendable_fd = v.rng.choice((-1, None, 2**31))
        sock.unconnected_fd, sock.raw_address = sock.sendable_fd, self.raw_address
        agent = Agent()
        agent._waiter, agent._sleeps_until_ns = v.rng.choice((agent, agent, None)), 9
        agent.on_offer, agent.on_offer_failed = id, self.on_failed
        agent._clock = SimpleNamespace(now_ns=self.now_ns)
        publication = Publication()
        publication._sender, publication.log = stream, self.make_log()
        publication._fast_until_ns, publication._fast_position = 1 << 40, 1 << 62
        publication.wake_flag = paths.WakeFlag()
        listener = SimpleNamespace(on_window_changed=self.on_sent)
        publication.window_listeners = v.rng.choice(([listener], [listener, None], None))
        if not v.rarely():
            publication._attach(SimpleNamespace(cell=self.cells[0]))
            stream._attach(*(SimpleNamespace(cell=each) for each in self.cells[1:]))
        terms = publication.log.terms
        if isinstance(terms, tuple) and v.flag():
            publication.log.terms = tuple(v.good_term() for _ in terms)
        self.publication = publication
        is_response = v.rng.random() < RESPONSE_SHARE
        self.send = lanes.SendLane(publication, agent, sock if v.flag() else None, 0, is_response)

    def raw_address(self, _: object) -> object:
        """Return an address of the system, or something else, which it refuses."""
        v = self.v
        if v.rarely():
            self.publication._sender._outbox.answered = v.anything()
        return v.rng.choice((None, b"", b"", v.rng.randbytes(16), v.anything()))

    def on_sent(self, *_: object) -> None:
        if self.v.rarely():
            self.v.rng.choice(self.cells).release("closed")
        if self.v.rarely():
            self.publication.window_listeners = None

    def on_failed(self, *_: object) -> None:
        pass

    def on_offer(self) -> None:
        stream = self.publication._sender
        if not self.v.rng.randrange(4):
            stream.position, stream.limit = self.v.position(), self.v.position()
        self.send.on_offer()

    def on_lone_offer(self) -> None:
        """Send a frame behind which there is nothing, or hardly anything."""
        rng, stream = self.v.rng, self.publication._sender
        term = array("B", bytes(rng.choice((TERM_LENGTH, 160, 161, 164, 192))))
        length = rng.choice((33, 132, 132, 164, 2**31 - 1, -1))
        write_header(term, 0, length, 0xC0, 1)
        self.publication.log.terms = (term,) * 3
        stream._outbox = SimpleNamespace(send=bool, answered=rng.choice((None, SOURCE)))
        stream.position, stream.limit = 0, rng.choice((1_409, 9_999))
        self.send.on_offer()

    def empty(self) -> None:
        self.ends[1].recv(2_000)


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each method."""
    held = Held(values)
    made = (held.make_image, held.attach, held.make_receive_lane, held.take, held.take_next)
    found = {each.__name__: each for each in (*made, held.deliver, held.change, held.empty)}
    sends = (held.make_send_lane, held.on_offer, held.on_lone_offer)
    found |= {each.__name__: each for each in sends}
    return found | {"take_next again": held.take_next, "take_next once more": held.take_next}
