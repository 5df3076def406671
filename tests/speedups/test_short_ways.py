"""Both twins of the short ways of calls send the same bytes, count the same, and leave the same."""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.rpc.envelope import HEAD_LENGTH, LAST, QUICK, Template, head, kind_of
from tests.twins import IS_BUILT, TWINS, compiled_twins, needs_compiled, pure_twins

NUMBER = 7
LENGTHS = st.sampled_from([0, 1, 100, 101])


class Image:
    """Where messages come from."""

    def __init__(self, name: str) -> None:
        self.name = name


IMAGES = [Image("first"), Image("second")]


@pytest.fixture(params=TWINS)
def twins(request: pytest.FixtureRequest) -> Any:
    return request.param()


class Answer:
    """Stands for a future."""

    def __init__(self) -> None:
        self.result: bytes | None = None
        self.is_done = False

    def done(self) -> bool:
        return self.is_done

    def set_result(self, result: bytes) -> None:
        self.result, self.is_done = result, True


class Clock:
    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        self.ns += 10
        return self.ns


def made_outbox(twins: Any, seen: list[Any]) -> Any:
    """Return an outbox that takes a frame unless its length says otherwise."""
    outbox = type("Box", (twins.ShortOutbox,), {})()
    outbox.frames = deque()

    def offer(frame: bytes, reserved_value: int) -> int:
        seen.append(("offer", frame, reserved_value))
        return -1 if outbox.is_full else 64

    outbox.offer_fast, outbox.is_full = offer, False
    return outbox


def made_link(twins: Any, seen: list[Any]) -> Any:
    class Link(twins.ShortLink):  # type: ignore[misc]
        def _on_other_image(self, image: Any, template: int) -> None:
            seen.append(("other", image.name, template))
            if template == Template.WELCOME:
                self._image = image

        def _on_long_message(self, data: bytes, call_id: int) -> None:
            seen.append(("long", data, call_id))

        def on_room(self, link: Any) -> None:
            seen.append(("room", link is self))

    link = Link()
    link.calls, link.calls_limit, link.malformed_count, link.queue = {}, 3, 0, []
    link._heard_ns, link._image, link._is_up, link._next_id = 0, IMAGES[0], True, 1
    link._now_ns, link._owner, link._outbox = Clock().now_ns, link, made_outbox(twins, seen)
    link._reply_kind, link._longest = kind_of(Template.REPLY), HEAD_LENGTH + 100

    def post(frame: bytes, call: Any) -> bool:
        seen.append(("post", frame, call.number))
        return not link.is_stuck

    link._post, link.is_stuck = post, False
    return link


LINK_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), LENGTHS, st.integers(0, 2**63 - 1)),
        st.tuples(
            st.just("message"),
            st.sampled_from([*Template, 99]),
            st.integers(0, 6) | st.integers(2**63, 2**64 - 1),
            st.sampled_from([b"", b"", b"", bytes(4)]),
            LENGTHS,
            st.sampled_from([0, 0, 0, 1]),
        ),
        st.tuples(st.just("short"), st.integers(0, 31)),
        st.tuples(
            st.just("set"),
            st.sampled_from(["_is_up", "queue", "is_stuck", "is_full", "frames", "_reply_kind"]),
        ),
        st.tuples(
            st.just("mark"),
            st.integers(1, 4),
            st.sampled_from(["parts", "inflow", "outflow", "done"]),
        ),
    ),
    max_size=40,
)


def link_story(twins: Any, steps: list[tuple[Any, ...]]) -> list[Any]:
    """Return what a link has done, and what it is in the end."""
    seen: list[Any] = []
    link, calls = made_link(twins, seen), []
    for kind, *given_ in steps:
        if kind == "send":
            length, left_ns = given_
            call = twins.ShortCall("m", NUMBER, b"x" * length, LAST, 9, Answer())
            calls.append(call)
            seen.append(link.send_fast(call, left_ns))
        elif kind == "message":
            template, call_id, extensions, length, image = given_
            data = head(template, call_id, extensions=extensions) + b"y" * length
            link._on_message(SimpleNamespace(data=data, image=IMAGES[image]))
        elif kind == "short":
            link._on_message(SimpleNamespace(data=bytes(given_[0]), image=IMAGES[0]))
        elif kind == "mark":
            call_id, what = given_
            if call_id in link.calls:
                found = link.calls[call_id]
                if what == "done":
                    found.answer.is_done = True
                else:
                    setattr(found, what, "something")
        else:
            toggle(link, given_[0])
        seen.append((link._heard_ns, link.malformed_count, link._next_id, sorted(link.calls)))
    seen.extend((each.call_id, each.attempts, each.is_over, each.answer.result) for each in calls)
    assert all(each.link in {None, link} for each in calls)
    return seen


def toggle(link: Any, name: str) -> None:
    if name == "is_full":
        link._outbox.is_full = not link._outbox.is_full
    elif name == "frames":
        link._outbox.frames = deque() if link._outbox.frames else deque([b"x"])
    elif name == "queue":
        link.queue = [] if link.queue else [1]
    elif name == "_reply_kind":
        link._reply_kind = kind_of(Template.REPLY) if link._reply_kind == -1 else -1
    else:
        setattr(link, name, not getattr(link, name))


@needs_compiled
@given(LINK_STEPS)
def test_a_link_does_the_same_in_both_twins(steps: list[tuple[Any, ...]]) -> None:
    assert link_story(compiled_twins(), steps) == link_story(pure_twins(), steps)


def test_a_call_leaves_and_its_answer_comes(twins: Any) -> None:
    seen: list[Any] = []
    link = made_link(twins, seen)
    call = twins.ShortCall("m", NUMBER, b"ask", LAST, 9, Answer())
    assert link.send_fast(call, 5)
    frame = QUICK.pack(kind_of(Template.CALL), 1, 5, NUMBER, LAST, 0) + b"ask"
    assert seen == [("offer", frame, 0)]
    assert (call.call_id, call.link, call.attempts, call.is_over) == (1, link, 1, False)
    data = head(Template.REPLY, 1, flags=LAST) + b"told"
    link._on_message(SimpleNamespace(data=data, image=IMAGES[0]))
    assert call.answer.result == b"told"
    assert call.is_over
    assert not link.calls


class Home:
    loop: Any = SimpleNamespace(create_future=Answer)
    is_inside = True

    def is_here(self) -> bool:
        return self.is_inside


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"_only_link": None}, "several servers"),
        ({"_home": None}, "not open"),
        ({"_queue": [1]}, "others wait"),
        ({"_numbers": {}}, "the first call of a method"),
        ({"chunk": 2}, "a long request"),
        ({"request": bytearray(b"ask")}, "no bytes"),
        ({"is_up": False}, "no server"),
        ({}, ""),
        ({"_timeout_ns": 0}, ""),
    ],
)
def test_a_call_begins_the_short_way_if_it_can(
    twins: Any, changes: dict[str, Any], why: str
) -> None:
    seen: list[Any] = []
    client, link = type("Client", (twins.ShortBeginning,), {})(), made_link(twins, seen)
    deadlines = type("Deadlines", (twins.ShortDeadlines,), {"_set_timer": seen.append})()
    deadlines._due_ns = 1
    client._call_type = type("Call", (twins.ShortCall,), {"extra": "default"})
    client._deadlines, client._home, client._now_ns = deadlines, Home(), Clock().now_ns
    client._numbers, client._only_link, client._queue = {"m": NUMBER}, link, []
    client._timeout_ns, client.chunk = 1_000, 3
    link._is_up = changes.get("is_up", True)
    for name in changes.keys() - {"request", "is_up"}:
        setattr(client, name, changes[name])
    call = client._begin_fast("m", changes.get("request", b"ask"), LAST)
    if why:
        assert call is None
        assert [seen, link.calls, deadlines._new] == [[], {}, []]
        return
    assert type(call) is client._call_type
    assert (call.method, call.number, call.request, call.flags) == ("m", NUMBER, b"ask", LAST)
    assert (call.extra, call.parts, call.inflow, call.outflow) == ("default", None, None, None)
    assert link.calls == {1: call}
    has_deadline = client._timeout_ns > 0
    assert call.deadline_ns == (1_010 if has_deadline else 0)
    assert deadlines._new == ([(1_010, call)] if has_deadline else [])
    (amount,) = {QUICK.unpack_from(frame)[2] for _, frame, _ in seen}
    assert amount == client._timeout_ns


@given(st.lists(st.tuples(st.integers(0, 99), st.booleans()), max_size=400))
def test_deadlines_are_swept_alike(entries: list[tuple[int, bool]]) -> None:
    stories = []
    for twins_of in (pure_twins, compiled_twins) if IS_BUILT else (pure_twins,):
        timers: list[int] = []
        kind = type(
            "Deadlines",
            (twins_of().ShortDeadlines,),
            {"_set_timer": lambda _, due_ns, timers=timers: timers.append(due_ns)},
        )
        deadlines = kind()
        sizes = []
        for deadline_ns, is_over in entries:
            deadlines.add(deadline_ns, SimpleNamespace(is_over=is_over))
            sizes.append((len(deadlines._new), deadlines._sweep_at))
        stories.append((timers, sizes, [each[0] for each in deadlines._new]))
    assert all(each == stories[0] for each in stories)


# The server.


def handled(request: bytes) -> Any:
    """Answer as the first byte says."""
    kinds: dict[bytes, Any] = {
        b"a": bytearray(request), b"v": memoryview(request), b"n": None, b"t": "text",
    }  # fmt: skip
    first = request[:1]
    if first in {b"e", b"c", b"k"}:
        raise {b"e": ValueError, b"c": asyncio.CancelledError, b"k": KeyboardInterrupt}[first]
    return kinds.get(first, request)


def made_serving(twins: Any, seen: list[Any]) -> Any:
    class Session(twins.ShortSession):  # type: ignore[misc]
        def _checked(self, answer: Any) -> bytes:
            return bytes(memoryview(answer))

    class Serving(twins.ShortServing):  # type: ignore[misc]
        def _new_session(self, image: Any) -> Any:
            seen.append(("new", image.name))
            return None if image is IMAGES[1] else self.session

        def _on_malformed(self, session: Any, call_id: int, reason: str) -> None:
            seen.append(("malformed", session is self.session, call_id, reason))

        def _on_any(self, session: Any, data: bytes) -> None:
            seen.append(("any", session is self.session, data))

        def _begin_simple(self, *given_: Any) -> None:
            seen.append(("begin", *given_[2:]))

        def _answer_later(self, *given_: Any) -> None:
            number, amount, answer, elapsed_ns = given_[2:]
            seen.append(("later", number, amount, bytes(answer), elapsed_ns))

        def _fail(self, session: Any, call_id: int, method: Any, error: BaseException) -> None:
            seen.append(("fail", session is self.session, call_id, type(error)))

    serving, session = Serving(), Session()
    session.calls, session.chunk, session.highest_id, session.is_shared = {}, 90, 0, False
    session.outbox = made_outbox(twins, seen)

    def post(frame: bytes) -> bool:
        seen.append(("post", frame))
        return not session.is_stuck

    session.post, session.is_stuck, serving.session = post, False, session
    serving._sessions = {IMAGES[0]: session}
    serving._call_count = serving._under_way = 0
    serving._calls_at_once, serving._calls_limit, serving._kept_flags = 2, 3, 2
    serving._is_draining, serving._now_ns, serving._simple = False, Clock().now_ns, {}
    serving._longest = HEAD_LENGTH + 95
    for number, is_plain in ((NUMBER, True), (NUMBER + 1, False)):
        method = twins.ShortMethod()
        method.function, method.is_plain = handled, is_plain
        method.answered = method.handler_ns = 0
        serving._simple[number] = method
    return serving


SERVING_STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("call"),
            st.sampled_from([Template.CALL, Template.CALL, Template.CALL, Template.CANCEL]),
            st.integers(0, 2) | st.just(2**64 - 10),
            st.sampled_from([NUMBER, NUMBER, NUMBER + 1, 1]),
            st.sampled_from([LAST, LAST, LAST, 0, 3, 0x8001]),
            st.sampled_from([b"", b"", b"", bytes(4)]),
            st.sampled_from([b"", b"x", b"x" * 91, b"x" * 96, b"a", b"v", b"n", b"t", b"e", b"c"]),
            st.sampled_from([0, 0, 0, 1]),
        ),
        st.tuples(st.just("short"), st.integers(0, 31)),
        st.tuples(
            st.just("set"),
            st.sampled_from(["_is_draining", "_under_way", "calls", "is_shared", "is_stuck"]),
        ),
        st.tuples(st.just("full"), st.booleans()),
    ),
    max_size=40,
)


def serving_story(twins: Any, steps: list[tuple[Any, ...]]) -> list[Any]:
    """Return what a service has done, and what it is in the end."""
    seen: list[Any] = []
    serving = made_serving(twins, seen)
    session, call_id = serving.session, 0
    for kind, *given_ in steps:
        if kind == "call":
            template, more, number, flags, extensions, body, image = given_
            call_id = (call_id + more) % 2**64
            data = head(
                template, call_id, amount=2**64 - 1, number=number, flags=flags,
                extensions=extensions,
            )  # fmt: skip
            serving._on_message(SimpleNamespace(data=data + body, image=IMAGES[image]))
        elif kind == "short":
            serving._on_message(SimpleNamespace(data=bytes(given_[0]), image=IMAGES[0]))
        elif kind == "full":
            session.outbox.is_full = given_[0]
        elif given_[0] == "_under_way":
            serving._under_way = 3 - serving._under_way
        elif given_[0] == "calls":
            session.calls = {} if session.calls else {1: None, 2: None}
        else:
            owner = serving if given_[0] == "_is_draining" else session
            setattr(owner, given_[0], not getattr(owner, given_[0]))
        method = serving._simple[NUMBER]
        seen.append((serving._call_count, session.highest_id, method.answered, method.handler_ns))
    return seen


@needs_compiled
@given(SERVING_STEPS)
def test_a_service_does_the_same_in_both_twins(steps: list[tuple[Any, ...]]) -> None:
    assert serving_story(compiled_twins(), steps) == serving_story(pure_twins(), steps)


def test_a_call_is_answered_where_it_arrives(twins: Any) -> None:
    seen: list[Any] = []
    serving = made_serving(twins, seen)
    data = head(Template.CALL, 5, number=NUMBER, flags=LAST) + b"hello"
    serving._on_message(SimpleNamespace(data=data, image=IMAGES[0]))
    frame = QUICK.pack(kind_of(Template.REPLY), 5, 10, 0, LAST, 0) + b"hello"
    assert seen == [("offer", frame, 0)]
    assert (serving._call_count, serving.session.highest_id) == (1, 5)
    assert (serving._simple[NUMBER].answered, serving._simple[NUMBER].handler_ns) == (1, 10)


def test_what_stops_the_loop_is_no_answer(twins: Any) -> None:
    seen: list[Any] = []
    serving = made_serving(twins, seen)
    data = head(Template.CALL, 5, number=NUMBER, flags=LAST) + b"k"
    with pytest.raises(KeyboardInterrupt):
        serving._on_message(SimpleNamespace(data=data, image=IMAGES[0]))
    assert seen == []


@pytest.mark.parametrize("more", [0, 1])
def test_a_payload_that_is_too_long_takes_the_long_way(twins: Any, more: int) -> None:
    seen: list[Any] = []
    serving, link = made_serving(twins, seen), made_link(twins, seen)
    request = head(Template.CALL, 5, number=NUMBER, flags=LAST) + bytes(95 + more)
    serving._on_message(SimpleNamespace(data=request, image=IMAGES[0]))
    assert link.send_fast(twins.ShortCall("m", NUMBER, b"", LAST, 9, Answer()), 5)
    answer = head(Template.REPLY, 1, flags=LAST) + bytes(100 + more)
    link._on_message(SimpleNamespace(data=answer, image=IMAGES[0]))
    assert [each[0] for each in seen if each[0] in {"any", "long"}] == ["any", "long"] * more
    assert len(link.calls) == more
