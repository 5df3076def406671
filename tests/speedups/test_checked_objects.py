"""The short ways look at what they are given before they use it as memory."""

from __future__ import annotations

import errno
import socket
from array import array
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.driver.media.socket_transport import RawAddresses
from tests.logbuffer.logs import TERM_LENGTH
from tests.speedups.test_twins import filled
from tests.twins import compiled_twins, needs_compiled

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = needs_compiled


class Image:
    """A source of messages."""

    session_id = 7
    stream_id = 8


def make_cell() -> Any:
    return compiled_twins().Cell(memoryview(array("q", [0])))


def make_source(**changes: Any) -> Any:
    """Return an image whose log holds five messages of one frame."""

    class Source(compiled_twins().Taking):  # type: ignore[misc] # chosen at run time
        def __init__(self) -> None:
            self._attach(make_cell(), compiled_twins().WakeFlag())
            log = filled([100] * 5)
            fields = {"terms": log.terms, "position_bits": 16, "term_length": TERM_LENGTH}
            self._log = SimpleNamespace(**(fields | changes))
            self._reader = self
            self._port = SimpleNamespace(
                consumption_trigger=1 << 40, readable_position=lambda _: 5 * 160
            )

    return Source()


BAD_LOGS = [
    {"terms": ()},
    {"terms": (bytearray(TERM_LENGTH),) * 2},
    {"terms": None},
    {"position_bits": -1},
    {"position_bits": 64},
]


@pytest.mark.parametrize("changes", BAD_LOGS)
def test_a_log_that_is_none_is_not_read(changes: dict[str, Any]) -> None:
    assert make_source()._read_fast(9, 9_999).left == 5
    with pytest.raises(ValueError, match="no log"):
        make_source(**changes)._read_fast(9, 9_999)


def test_no_limit_is_too_high_and_no_position_too_low() -> None:
    source = make_source()
    assert source._read_fast(-1, 9_999) is None
    assert source._read_fast(9, -(2**63)).left == 0
    assert source._read_fast(2**63 - 1, 2**63 - 1).left == 5
    source._position = -160
    assert source._read_fast(9, 9_999) is None


def test_a_source_without_a_flag_wakes_nobody() -> None:
    source = make_source()
    source._attach(make_cell(), None)
    source._take(160)
    assert source._position == 160


def test_a_turn_of_nobody_gives_no_message() -> None:
    class Subscription(compiled_twins().Reading):  # type: ignore[misc] # chosen at run time
        _check_served = None

    subscription = Subscription()
    subscription._turn = [None]
    assert subscription._hand_out_fast(print, 3) == ~3


def make_subscription(turn: list[Any]) -> Any:
    """Return a subscription whose wait is over at once."""

    class Subscription(compiled_twins().Reading):  # type: ignore[misc] # chosen at run time
        _end_wait = id

        def _begin_wait(self) -> Any:
            return self

        def __await__(self) -> Iterator[None]:
            return iter(())

    subscription = Subscription()
    subscription._home = compiled_twins().HomeLoop(SimpleNamespace(is_running=bool))
    subscription._calls_until_check = 9
    subscription._turn = turn
    return subscription


def test_a_list_is_read_only_from_images() -> None:
    for limit, max_bytes in ((-(2**63), 9_999), (0, 9_999), (9, -(2**63))):
        assert make_subscription([make_source()])._read_list_fast(limit, max_bytes) is None
    assert make_subscription([make_source()])._read_list_fast(2**63 - 1, 2**63 - 1).left == 5
    for nobody in ([], [None], [make_source(), None]):
        assert make_subscription(nobody)._read_list_fast(9, 9_999) is None
    for turn in ([make_source(terms=())], [5], [make_source(), 5]):
        with pytest.raises((TypeError, ValueError)):
            make_subscription(turn)._read_list_fast(9, 9_999)


def test_a_turn_may_change_while_its_images_are_looked_at() -> None:
    turn = [make_source() for _ in range(3)]

    def leave(_: int) -> int:
        turn.clear()
        return 0

    for each in turn:
        each._port.readable_position = leave
    assert make_subscription(turn)._read_list_fast(9, 9_999) is None
    assert turn == []


def test_a_message_after_a_wait_counts_as_one_call_however_many_were_left() -> None:
    for calls, left in ((9, 8), (0, -1), (-5, -1), (-(2**63), -1)):
        subscription = make_subscription([make_source()])
        subscription._calls_until_check = calls
        with pytest.raises(StopIteration) as ended:
            subscription.__anext__().send(None)
        assert len(ended.value.value) == 100
        assert subscription._calls_until_check == left


def test_only_subscriptions_inherit_what_gives_the_next_message() -> None:
    reading, inheriting = compiled_twins().Reading, compiled_twins().inheriting

    class Other:
        __anext__ = reading.__anext__

    for kind in (Other, object, SimpleNamespace(__anext__=reading.__anext__), reading(), None):
        with pytest.raises(TypeError, match="no subclass of Reading"):
            inheriting(kind)
    assert inheriting(reading) is reading


@pytest.mark.parametrize("changes", BAD_LOGS)
def test_an_image_takes_no_log_that_is_none(changes: dict[str, Any]) -> None:
    fields = {"terms": (bytearray(64),) * 3, "position_bits": 16, "initial_term_id": 0}
    counters = SimpleNamespace(
        receiver_hwm=SimpleNamespace(cell=None), receiver_position=SimpleNamespace(cell=None)
    )
    with pytest.raises(ValueError, match="no log"):
        compiled_twins().Rebuilding()._attach(SimpleNamespace(**(fields | changes)), counters)


def test_a_lane_counts_in_a_cell() -> None:
    kind = compiled_twins().ReceiveLane
    lane = kind.__new__(kind)
    with pytest.raises(TypeError, match="no cell"):
        lane.__init__(None, {}, None, None, SimpleNamespace(cell=None))
    with pytest.raises(ValueError, match="without streams"):
        lane.take(bytes(64), None)
    lane.__init__(None, {}, None, None, SimpleNamespace(cell=make_cell()))
    with pytest.raises(ValueError, match="made once"):
        lane.__init__(None, {}, None, None, SimpleNamespace(cell=make_cell()))


class Sender:
    """Something that offers one frame through a lane, and how that ended."""

    def __init__(self, log: Any, position: int = 0, peer: Any = None) -> None:
        self.ends: list[Any] = []
        stream = having(
            compiled_twins().Streaming,
            position=position,
            limit=2**63 - 1,
            _outbox=SimpleNamespace(send=lambda _: True) if peer is None else peer,
            _frame_starts=SimpleNamespace(next_position=2**63 - 1),
            round_trip=SimpleNamespace(on_sent=lambda *_: None),
        )
        counters = [SimpleNamespace(cell=make_cell()) for _ in range(3)]
        stream._attach(*counters[:2])
        publication = having(
            compiled_twins().OfferSending,
            _sender=stream,
            log=log,
            wake_flag=compiled_twins().WakeFlag(),
            _fast_until_ns=99,
            _fast_position=2**63 - 1,
        )
        publication._attach(counters[2])
        agent = having(
            compiled_twins().Sleeping,
            _waiter=self,
            _sleeps_until_ns=99,
            on_offer=lambda _: self.ends.append("the long way"),
            on_offer_failed=lambda _, error, __: self.ends.append(type(error)),
            _clock=SimpleNamespace(now_ns=lambda: 1),
        )
        lane = compiled_twins().SendLane(publication, agent, peer, 0, peer is not None)
        lane.on_offer()
        if stream.position > position:
            self.ends.append(stream.position - position)
            assert [each.cell[0] for each in counters] == [
                stream.position,
                *self.ends,
                stream.position,
            ]


def having(kind: Any, **fields: Any) -> Any:
    """Return an object of a compiled class that has more attributes."""
    made = type("Made", (kind,), {})()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_what_a_lane_sends_of_was_set_up() -> None:
    twins = compiled_twins()
    stream, publication, agent = twins.Streaming(), twins.OfferSending(), twins.Sleeping()
    assert not agent.may_act(0)
    with pytest.raises(ValueError, match="that was set up"):
        twins.SendLane(publication, agent, None, 0)
    with pytest.raises(ValueError, match="not set up"):
        publication._on_all_sent()
    stream.round_trip = SimpleNamespace(on_sent=lambda *_: None)
    stream._frame_starts = SimpleNamespace(next_position=1)
    with pytest.raises(ValueError, match="without counters"):
        stream.on_sent_alone(32, 1)
    with pytest.raises(ValueError, match="without a publication"):
        twins.SendLane.__new__(twins.SendLane).on_offer()
    stream = having(twins.Streaming, _outbox=None)
    publication = having(twins.OfferSending, _sender=stream, log=None)
    agent = having(twins.Sleeping, _clock=SimpleNamespace(now_ns=int))
    lane = twins.SendLane(publication, agent, None, 0)
    with pytest.raises(ValueError, match="made once"):
        lane.__init__(publication, agent, None, 0)


def make_log(term: Any, **changes: Any) -> Any:
    fields = {"terms": (term,) * 3, "position_bits": 16, "mtu_length": 1_408}
    return SimpleNamespace(**(fields | changes), term_length=TERM_LENGTH)


def test_a_lone_frame_is_sent_if_the_word_behind_it_is_there() -> None:
    term = filled([100]).terms[0]
    assert Sender(make_log(term)).ends == [160]
    for length in (160, 161, 163, 164, 191):
        assert Sender(make_log(memoryview(bytearray(term[:length])))).ends == ["the long way"]
    assert Sender(make_log(memoryview(bytearray(term[:192])))).ends == [160]


class Peer:
    """The socket and the outbox of responses, of which the lane takes what it needs."""

    def __init__(self, sock: socket.socket, answered: Any, raw: Any) -> None:
        self.unconnected_fd: int | None = sock.fileno()
        self.answered = answered
        self.raw = raw
        self.errors: list[int | None] = []
        self.sent: list[bytes] = []

    def send(self, datagram: memoryview) -> bool:
        self.sent.append(bytes(datagram))
        return True

    def raw_address(self, address: Any) -> Any:
        assert address is self.answered
        return self.raw

    def on_send_error(self, error: OSError) -> None:
        self.errors.append(error.errno)


def test_a_response_leaves_for_the_receiver_that_has_answered() -> None:
    term = memoryview(bytearray(filled([100]).terms[0][:192]))
    log = make_log(term)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as source,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
    ):
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(5)
        address = receiver.getsockname()
        raw = RawAddresses(socket.AF_INET)[address]
        peer = Peer(source, address, raw)
        assert Sender(log, peer=peer).ends == [160]
        assert receiver.recv(2_000) == bytes(term[:160])
        assert not peer.sent
        # Nobody has answered; no descriptor; no address: the outbox knows what to do.
        for name, value in (("answered", None), ("unconnected_fd", None), ("raw", None)):
            peer = Peer(source, address, raw)
            setattr(peer, name, value)
            assert Sender(log, peer=peer).ends == [160]
            assert peer.sent == [bytes(term[:160])]
        # What the system refuses is told, and tried the long way.
        peer = Peer(source, address, raw[:3])
        assert Sender(log, peer=peer).ends == ["the long way"]
        assert peer.errors == [errno.EINVAL]


@pytest.mark.parametrize("changes", BAD_LOGS)
def test_nothing_is_sent_of_a_log_that_is_none(changes: dict[str, Any]) -> None:
    term = filled([100]).terms[0]
    assert Sender(make_log(term, **changes)).ends == [ValueError]


@pytest.mark.parametrize("position", [-(2**63), -160, 2**63 - 1])
def test_nothing_is_sent_from_a_position_that_is_none(position: int) -> None:
    assert Sender(make_log(filled([100]).terms[0]), position).ends == ["the long way"]
