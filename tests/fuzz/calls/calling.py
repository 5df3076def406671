"""Calls of the short ways of calls, whose handlers and streams do anything meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from aeron_async.rpc.envelope import LAST, Template, head, kind_of
from tests.twins import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

calling: Final = compiled("calling")
messages: Final = compiled("messages")
NUMBER: Final = 7


class Call(calling.ShortCall):  # type: ignore[misc,name-defined] # without types
    """A call."""


class Box(calling.ShortOutbox):  # type: ignore[misc,name-defined]
    """An outbox."""


class Link(calling.ShortLink):  # type: ignore[misc,name-defined]
    """A link whose long way does anything."""

    def _on_other_image(self, image: object, _: int) -> None:
        self._image = image

    def _on_long_message(self, *_: object) -> None:
        self._owner.look()


class Client(calling.ShortBeginning):  # type: ignore[misc,name-defined]
    """A client."""


class Deadlines(calling.ShortDeadlines):  # type: ignore[misc,name-defined]
    """Deadlines without a timer."""

    def _set_timer(self, deadline_ns: int) -> None:
        self._due_ns = deadline_ns


class Session(calling.ShortSession):  # type: ignore[misc,name-defined]
    """A client of a server."""

    def _checked(self, answer: Any) -> bytes:
        return bytes(memoryview(answer))


class Method(calling.ShortMethod):  # type: ignore[misc,name-defined]
    """A method."""


class Serving(calling.ShortServing):  # type: ignore[misc,name-defined]
    """A service whose long ways do anything."""

    held: Any

    def _new_session(self, _: object) -> object:
        return self.held.session if self.held.look() else None

    def look(self, *_: object) -> object:
        """Do anything."""
        return self.held.look()

    _on_malformed = _on_any = _begin_simple = _answer_later = _fail = look


class Image:
    """Where messages come from."""


class Held:
    """Both ends, which every round uses, changes or replaces."""

    client: Any
    link: Any
    serving: Any
    session: Any

    def __init__(self, values: Values) -> None:
        self.v = values
        values.hook = self.disturb
        self.image = Image()
        self.make_client()
        self.make_serving()

    def disturb(self) -> None:
        """Change what a call may be using."""
        rng = self.v.rng
        subject: Any = rng.choice((self.link, self.client, self.session, self.serving))
        kind = type(subject).__mro__[1]
        names = [each for each in dir(kind) if not callable(getattr(kind, each))]
        values: tuple[Any, ...] = (None, {}, [], 0, True, Box(), Call("m", 1, b"", 1, 1, self))
        setattr(
            subject, rng.choice([each for each in names if each[:2] != "__"]), rng.choice(values)
        )

    def look(self, *_: object) -> bool:
        """Be a function of a program, in the middle of a call."""
        if self.v.rarely():
            self.v.interrupt()
        if self.v.rarely():
            raise ValueError
        return bool(self.v.flag())

    # In the place of a future.

    def done(self) -> bool:
        return self.look()

    def set_result(self, _: bytes) -> None:
        self.look()

    # The client.

    def make_box(self) -> Any:
        box = Box()
        box.frames = self.v.rng.choice(([], [], [], [1], None))
        box.offer_fast = lambda *_: 64 if self.look() else -1
        return box if self.v.rng.randrange(32) else self.v.anything()

    def make_client(self) -> None:
        rng = self.v.rng
        link = self.link = Link()
        link.calls, link.calls_limit, link.queue = {}, rng.randrange(9), rng.choice(([], [1]))
        link._image, link._is_up, link._next_id = self.image, True, 1
        link._now_ns, link._post, link._owner = lambda: 5, self.look, self
        link._outbox, link._reply_kind = self.make_box(), kind_of(Template.REPLY)
        link._longest = rng.choice((50, 999, 999))
        client = self.client = Client()
        client._call_type = rng.choice((Call, Call, Call, int, type, Box, None, type(None)))
        client._deadlines = Deadlines() if rng.randrange(9) else None
        client._home = SimpleNamespace(is_here=self.look, loop=self)
        client._now_ns, client._numbers, client._queue = (lambda: 5), {"m": NUMBER}, []
        client._only_link, client._timeout_ns, client.chunk = link, rng.randrange(9), 100

    def create_future(self) -> Any:
        self.look()
        return self

    def on_room(self, _: object) -> None:
        self.look()

    def begin(self) -> None:
        self.client._begin_fast("m" if self.v.rng.randrange(9) else self.v.anything(), b"x", LAST)

    def begin_with_anything(self) -> None:
        self.client._begin_fast("m", self.v.data(), self.v.any_number())

    def send(self) -> None:
        v = self.v
        call = Call("m", 1, v.data() if v.rarely() else b"x", LAST, 9, self)
        if v.rarely():
            call.outflow = 1
        self.link.send_fast(v.anything() if v.rarely() else call, v.number())

    def make_message(self, template: int, call_id: int) -> Any:
        v = self.v
        data = head(template, call_id, number=NUMBER, flags=LAST) + bytes(v.rng.randrange(99))
        data = data[: v.rng.randrange(40)] if v.rarely() else data
        if v.flag():
            return SimpleNamespace(data=data, image=self.image)
        return messages.Message(data, 0, 0, self.image) if v.rng.randrange(32) else v.anything()

    def take_reply(self) -> None:
        template = self.v.rng.choice((Template.REPLY, Template.REPLY, Template.ERROR))
        self.link._on_message(self.make_message(template, self.v.rng.randrange(9)))

    def take_reply_itself(self) -> None:
        self.link._take_reply(self.v.rng.randrange(9), self.v.rng.choice((bytes(40), b"short")))

    def add_deadline(self) -> None:
        deadlines = Deadlines() if self.client._deadlines is None else self.client._deadlines
        deadlines.add(self.v.number(), Call("m", 1, b"", LAST, 9, self))
        if self.v.rarely():
            deadlines._new = self.v.rng.choice(([()], [(1, self)], [None], None, []))

    def sweep(self) -> None:
        deadlines = self.client._deadlines
        (Deadlines() if deadlines is None else deadlines)._sweep()

    # The server.

    def make_serving(self) -> None:
        rng = self.v.rng
        session = self.session = Session()
        session.calls, session.outbox, session.post = {}, self.make_box(), self.look
        session.chunk, session.is_shared = rng.choice((0, 90, 90)), not rng.randrange(8)
        serving = self.serving = Serving()
        serving.held = self
        serving._calls_at_once = serving._calls_limit = rng.randrange(1, 9)
        serving._longest = rng.choice((50, 999, 999))
        serving._now_ns, serving._sessions, serving._simple = (lambda: 5), {}, {}
        if rng.randrange(8):
            # It may be no client at all.
            serving._sessions[self.image] = session
        method = Method()
        method.function, method.is_plain = self.handle, bool(rng.randrange(4))
        serving._simple[NUMBER] = method if rng.randrange(16) else self.v.anything()

    def handle(self, request: bytes) -> Any:
        self.look()
        return request if self.v.rng.randrange(8) else self.v.anything()

    def take_call(self) -> None:
        template = self.v.rng.choice((Template.CALL, Template.CALL, Template.CANCEL))
        message = self.make_message(template, self.session.highest_id + 1)
        self.serving._on_message(message)

    def reply(self) -> None:
        answer = self.v.data() if self.v.flag() else b"answer"
        self.session.reply_now(self.v.number(), answer, self.v.number())


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each method."""
    held = Held(values)
    client = (held.make_client, held.begin, held.begin_with_anything, held.send, held.take_reply)
    more = (held.take_reply_itself, held.add_deadline, held.sweep)
    server = (held.make_serving, held.take_call, held.reply)
    return {each.__name__: each for each in (*client, *more, *server)}
