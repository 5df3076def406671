"""The twins of what a lone message moves, side by side: what is sent, and what delivers."""

from __future__ import annotations

from array import array
from contextvars import ContextVar, copy_context
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from hypothesis import given
from hypothesis import strategies as st

from tests.twins import compiled_twins, needs_compiled, pure_twins

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = needs_compiled

PLACE: Final[ContextVar[str]] = ContextVar("PLACE", default="elsewhere")
MESSAGES_PER_TURN: Final = 64


class Scene:
    """A publication, its sender and an agent, of one kind of twins."""

    def __init__(self, twins: Any) -> None:
        self.told: list[Any] = []
        stream = type("Stream", (twins.Streaming,), {})()
        stream.position, stream.limit = 4_064, 9_999
        stream._frame_starts = SimpleNamespace(next_position=4_096, mark=self.mark)
        stream.round_trip = SimpleNamespace(on_sent=lambda *args: self.told.append(args))
        self.cells = [twins.Cell(memoryview(array("q", [each]))) for each in (0, 2**63 - 99, 0)]
        counters = [SimpleNamespace(cell=each, **setters(each)) for each in self.cells]
        stream._attach(*counters[:2])
        publication = type("Publication", (twins.OfferSending,), {})()
        publication._sender, publication.wake_flag = stream, twins.WakeFlag()
        publication.wake_flag.is_set = publication.is_sending = True
        publication.window_listeners = [
            SimpleNamespace(on_window_changed=lambda: self.told.append(self.state())),
            SimpleNamespace(on_window_changed=lambda: self.told.append("second")),
        ]
        publication._attach(counters[2])
        self.stream, self.publication = stream, publication
        self.agent = type("Agent", (twins.Sleeping,), {})()

    def mark(self, position: int) -> None:
        self.told.append(("mark", position))
        self.stream._frame_starts.next_position = position + 4_096

    def state(self) -> Any:
        stream, publication = self.stream, self.publication
        return (
            *(stream.position, stream.limit, stream._last_sent_ns, stream._is_tracking_limit),
            *(publication.wake_flag.is_set, publication.is_sending),
            *(each[0] for each in self.cells),
        )


def setters(cell: Any) -> dict[str, Callable[[int], None]]:
    """Return the methods of a counter, for the twin in Python."""

    def increment(amount: int) -> None:
        cell[0] = amount if cell[0] > 2**63 - 1 - amount else cell[0] + amount

    return {"set": lambda value: cell.__setitem__(0, value), "increment": increment}


def test_what_was_sent_alone_moves_the_same() -> None:
    scenes = [Scene(twins()) for twins in (pure_twins, compiled_twins)]
    for scene in scenes:
        for now_ns, length in enumerate((32, 64, 4_096, 32)):
            scene.stream.on_sent_alone(length, now_ns)
            scene.publication._on_all_sent()
    assert scenes[0].told == scenes[1].told
    assert scenes[0].state() == scenes[1].state()
    assert ("mark", 4_096) in scenes[1].told


@given(
    is_waiting=st.booleans(),
    is_awake=st.booleans(),
    until=st.sampled_from((0, 5, 2**63 - 1, 2**70)),
)
def test_an_agent_may_be_bypassed_by_both_or_by_neither(
    *, is_waiting: bool, is_awake: bool, until: int
) -> None:
    answers = []
    for twins in (pure_twins, compiled_twins):
        agent = Scene(twins()).agent
        agent._waiter = agent if is_waiting else None
        agent._is_awake, agent._sleeps_until_ns = is_awake, until
        answers.append([agent.may_act(now_ns) for now_ns in (0, 1, 5, 6, 2**63 - 1)])
    assert answers[0] == answers[1]


class Hand:
    """A delivery of one kind of twins, whose loop is turned by hand; it keeps what happens."""

    def __init__(self, twins: Any) -> None:
        self.happened: list[Any] = []
        self.scheduled: list[Any] = []
        self.messages: list[Any] = []
        self.taken: list[Any] = []
        methods = {
            name: getattr(self, name)
            for name in ("_hand_out", "_put_back", "_report", "_check_result", "_go_on")
        }
        kind = type("Delivery", (twins.Delivering,), {})
        made = kind()
        for name, method in methods.items():
            setattr(made, name, method)
        made._events = SimpleNamespace(is_expecting=False)
        made._handler, made._hand_out_fast = self.handle, self.hand_out
        made._loop, made._subject = self, "nobody"
        context = copy_context()
        context.run(PLACE.set, "the context")
        made._context = context
        made._is_due = made._is_over = made._is_calling = made._is_scheduled = False
        made._unwatch = lambda: self.happened.append("unwatched")
        self.delivery = made

    def call_soon(self, callback: Callable[[], object], *, context: Any) -> None:
        self.happened.append("scheduled")
        self.scheduled.append((context, callback))

    def turn(self) -> None:
        scheduled, self.scheduled = self.scheduled, []
        for context, callback in scheduled:
            self.guard(context.run, callback)

    def guard(self, function: Callable[..., object], *args: Any) -> None:
        try:
            function(*args)
        except BaseException as error:  # noqa: BLE001 - what it is, is compared
            self.happened.append(type(error))

    def hand_out(self, call: Callable[[Any], bool], left: int) -> int:
        assert left == MESSAGES_PER_TURN
        return self.serve(call, left) if len(self.messages) % 2 else ~left

    def _hand_out(self, left: int) -> int:
        return self.serve(self.delivery._call, left)

    def serve(self, call: Callable[[Any], bool], left: int) -> int:
        while left and self.messages:
            left -= 1
            if call(self.messages.pop(0)):
                break
        return left

    def handle(self, message: Any) -> Any:
        self.happened.append((message, PLACE.get()))
        if isinstance(message, type):
            raise message
        if message == "again":
            self.delivery.wake()
            self.delivery.deliver_now()
        if message == "end":
            self.delivery._is_over = True
        return message if message == "result" else None

    def _put_back(self) -> None:
        self.happened.append("put back")

    def _report(self, error: BaseException) -> None:
        self.happened.append(("reported", type(error)))

    def _check_result(self, result: object) -> None:
        self.happened.append(("result", result))

    def _go_on(self, *, is_more: bool) -> None:
        self.happened.append(("on", is_more))
        if is_more:
            self.delivery.wake()

    def act(self, act: Any) -> None:
        delivery = self.delivery
        match act:
            case "wake":
                delivery.wake()
            case "fail":
                delivery.set_exception(ValueError())
            case "notify":
                if not delivery.done():
                    delivery.set_result(None)
            case "now":
                self.guard(delivery.deliver_now)
            case "turn":
                self.turn()
            case bool():
                delivery._events.is_expecting = act
            case _:
                self.messages.append(act)
        flags = delivery._is_due, delivery._is_scheduled, delivery._is_calling, delivery._is_over
        self.happened.append((*flags, delivery.done(), delivery._unwatch is None))


@given(
    acts=st.lists(
        st.sampled_from(
            [
                *("wake", "fail", "notify", "now", "now", "turn", True, False, 1, 2, 3),
                *("again", "result", "end", ValueError, KeyboardInterrupt, SystemExit),
            ]
        ),
        max_size=40,
    )
)
def test_a_delivery_does_the_same_in_both_languages(acts: list[Any]) -> None:
    hands = [Hand(twins()) for twins in (pure_twins, compiled_twins)]
    for act in acts:
        for hand in hands:
            hand.act(act)
        assert hands[0].happened == hands[1].happened
