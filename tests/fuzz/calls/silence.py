"""Calls of what silent streams cost, with streams of which anything may be wrong, and schedules."""

from __future__ import annotations

import gc
from array import array
from contextlib import suppress
from functools import partial
from struct import pack
from typing import TYPE_CHECKING, Any, Final

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.outbox import HeartbeatBatch, ReportBatch
from tests.fuzz.calls.streams import (
    ACTIVE,
    HALF_TERM,
    INTERVAL_NS,
    LONG_NS,
    MS,
    RECEIVER_ID,
    SOURCE,
    Frames,
    Image,
    Key,
    Late,
    Publication,
    Thing,
    lanes,
    make_cell,
    make_image,
    make_publication,
)
from tests.fuzz.calls.values import SESSION_ID, STREAM_ID, TERM_ID, TERM_LENGTH, DifferenceError
from tests.twins import compiled, pure_twins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

silence: Final = compiled("silence")

STREAMS: Final = 5
EMPTY: Final[tuple[Any, ...]] = (
    None,
    (),
    (1,),
    [],
    [1],
    {},
    b"",
    -1,
    0,
    64,
    63,
    -(2**63),
    2**63 - 1,
)
NEAR: Final = (-1, 0, 1, 31, 32, 36, 2**31 - 1, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63))
MADE: Final = ("HeartbeatsOut", "ReportsOut", "HeartbeatsIn", "ReportsIn")


class Held:
    """Streams, and what sends and takes for them."""

    def __init__(self, values: Values) -> None:
        self.v = values
        self.depth = 0
        self.now_ns = 1_000 * MS
        self.schedule: Any = silence.Schedule()
        self.counter: Any = Thing(cell=make_cell(0))
        self.outbox: Any = Thing()
        self.destination: Any = Thing(control_address=None)
        self.heartbeats: Any = Thing(_frames={})
        self.reports: Any = Thing(_frames={})
        self.publications: list[Any] = []
        self.images: list[Any] = []
        self.by_ids: dict[Any, Any] = {}
        self.by_session: dict[Any, Any] = {}
        self.interest: Any = Thing(images=self.by_session)
        self.streams: dict[Any, Any] = {STREAM_ID: self.interest}
        self.made: dict[str, Any] = {}
        values.hook = self.interrupt
        self.mend()
        for name in MADE:
            self.made[name] = self.make_one(name, is_good=True)

    # What is used, and what happens to it.

    def interrupt(self) -> None:
        """Do something in the middle of a call, though not in the middle of that again."""
        if self.depth:
            return
        self.depth = 1
        changes = (self.change_lists, self.spoil, self.change_image, self.use, self.release)
        try:
            self.v.rng.choice((*changes, self.begin_again, self.collect))()
        finally:
            self.depth = 0

    def change_lists(self) -> None:
        """Change what is gone through or looked into just now."""
        rng, value = self.v.rng, self.v.anything()
        numbers = rng.choice((self.publications, self.images))
        found = [self.by_ids, self.by_session, self.streams]
        for each in self.publications[:1]:
            found += (vars(each._receivers)["_last_heard_ns"], vars(each.subscribers)["_all"])
        for each in self.images[:1]:
            found.append(vars(each.connections)["_connections"])
        match rng.randrange(6):
            case 0:
                numbers.clear()
            case 1:
                numbers.append(value)
            case 2:
                numbers[:0] = [value]
            case 3:
                rng.choice(found).clear()
            case 4:
                rng.choice(found)[rng.choice((STREAM_ID, SESSION_ID, value))] = value
            case _:
                self.heartbeats._frames, self.reports._frames = {}, {}

    def use(self) -> None:
        """Call in the middle of a call what is running already."""
        self.v.rng.choice((self.send_heartbeats, self.send_reports, self.take_heartbeats))()

    def release(self) -> None:
        cells = [self.counter.cell]
        cells += [each.counters.publisher_position.cell for each in self.publications]
        self.v.rng.choice(cells).release("closed")

    def begin_again(self) -> None:
        """Initialize again what is in use, with what may be wrong."""
        name = self.v.rng.choice(MADE)
        kind: Any = self.made[name]
        kind.__init__(*self.arguments(name, is_good=self.v.flag()))

    def collect(self) -> None:
        gc.collect(0)

    def change_schedule(self) -> None:
        if self.v.flag():
            self.schedule.__init__()
        else:
            self.schedule.due(self.now_ns + LONG_NS)

    def change_image(self) -> None:
        """Store anything in a compiled field."""
        image = self.v.rng.choice(self.images)
        names: tuple[str, ...] = (
            "wake_flag",
            "_feedback",
            "connections",
            "subscribers",
            "_calm_until_ns",
            "failure",
        )
        changed = self.v.rng.choice((image, image, image._feedback))
        names = names if changed is image else ("last_sm_position", "overrun_threshold")
        value = self.v.rng.choice((None, self.v.anything(), *NEAR))
        setattr(changed, self.v.rng.choice(names), value)

    def mend(self) -> None:
        """Let all streams be good ones again, and in the lists."""
        rng = self.v.rng
        self.now_ns += rng.randrange(2 * INTERVAL_NS)
        at = rng.choice((0, 64, TERM_LENGTH + 128, TERM_LENGTH * 1_000 + 32))
        self.counter.cell = make_cell(rng.choice((0, 2**63 - 1)))
        good = [make_publication(each, self.now_ns, at, self.outbox) for each in range(STREAMS)]
        self.publications[:] = good
        self.by_ids.clear()
        self.by_ids.update({each.id: each for each in good})
        good = [make_image(each, self.now_ns, at, self.destination) for each in range(STREAMS)]
        self.images[:] = good
        self.by_session.clear()
        self.by_session.update({each.id: each for each in good})
        self.interest.__dict__ = {"images": self.by_session}
        self.streams.clear()
        self.streams[STREAM_ID] = self.interest
        self.schedule = silence.Schedule()
        self.mend_batches()

    def mend_batches(self) -> None:
        for each, kind in ((self.heartbeats, HeartbeatBatch), (self.reports, ReportBatch)):
            batch: Any = kind()
            each.__dict__ = {"_frames": batch._frames, "add": batch.add}

    def spoil(self) -> None:
        """Let something of one stream be anything, be missing, or run code."""
        rng, v = self.v.rng, self.v
        kinds: list[Any] = [*self.publications, *self.images]
        where = rng.choice(kinds)
        while rng.randrange(3):
            inner = [each for each in vars(where).values() if isinstance(each, Thing)]
            if isinstance(where, Image):
                inner += (where._feedback, where.connections, where.subscribers)
            inner = [each for each in inner if isinstance(each, Thing)]
            if not inner:
                break
            where = rng.choice(inner)
        self.spoil_thing(where)
        if v.rarely():
            self.spoil_thing(rng.choice((self.interest, self.heartbeats, self.reports)))

    def spoil_thing(self, where: Any) -> None:
        v, rng, fields = self.v, self.v.rng, vars(where)
        name = rng.choice(list(fields))
        match rng.randrange(6):
            case 0:
                fields[name] = v.anything()
            case 1:
                fields[name] = rng.choice(EMPTY)
            case 2:
                fields[name] = rng.choice(NEAR)
            case 3:
                del fields[name]
            case 4 if isinstance(fields[name], dict):
                held = fields[name]
                keys = [Key(v, each) for each in [*held][-8:]]
                fields[name] = dict.fromkeys(keys, v.anything()) | held
            case _:
                hidden = fields.setdefault("hidden", {})
                if name != "hidden":
                    hidden[name] = fields.pop(name), v

    def spoil_keys(self) -> None:
        """Put keys that do something before those that are looked for."""
        v, rng = self.v, self.v.rng
        held = rng.choice((self.streams, self.by_session, self.by_ids, self.heartbeats._frames))
        # The last of them, or each time there would be twice as many.
        good = dict([*held.items()][-8:])
        held.clear()
        held.update({Key(v, each): v.anything() for each in good})
        held.update(good)

    def spoil_frames(self) -> None:
        """Let frames be added to anything."""
        v, frames = self.v, self.v.rng.choice((self.heartbeats._frames, self.reports._frames))
        value = v.rng.choice((Frames(v), Frames(v), v.anything(), bytearray()))
        for each in [self.outbox, *frames]:
            frames[each] = value

    def spoil_lists(self) -> None:
        """Let a list hold what is no stream, or a stream twice."""
        rng = self.v.rng
        held = rng.choice((self.publications, self.images))
        value = rng.choice((None, self.v.anything(), *held, *self.publications, *self.images))
        held[rng.randrange(len(held) + 1) :] = [value, *held]
        del held[3 * STREAMS :]

    # Sending and taking.

    def arguments(self, name: str, *, is_good: bool) -> list[Any]:
        v = self.v
        found: list[Any] = {
            "HeartbeatsOut": [
                *(Publication, self.schedule, self.heartbeats, self.counter, self.counter),
                *(ACTIVE, INTERVAL_NS, 3 * INTERVAL_NS),
            ],
            "ReportsOut": [Image, self.schedule, self.reports, LONG_NS],
            "HeartbeatsIn": [Image, self.streams, self.counter],
            "ReportsIn": [Publication, self.by_ids, self.counter],
        }[name]
        if not is_good:
            at = v.rng.randrange(len(found))
            kinds = (Publication, Image, Thing, lanes.Rebuilding, int, bool, type, *NEAR)
            bases = Thing(__bases__=(lanes.Rebuilding,))
            odd = Thing(hidden={"cell": (v.rng.choice((None, self.counter.cell)), v)})
            found[at] = v.rng.choice((v.anything(), None, Thing(), odd, bases, *kinds))
        return found

    def make_one(self, name: str, *, is_good: bool) -> Any:
        """Return an object; also one that could not be set up."""
        kind = getattr(silence, name)
        made = kind.__new__(kind)
        with suppress(Exception):
            made.__init__(*self.arguments(name, is_good=is_good))
        return made

    def make(self) -> None:
        name = self.v.rng.choice(MADE)
        self.made[name] = self.make_one(name, is_good=self.v.flag())

    def make_well(self) -> None:
        for name in MADE:
            self.made[name] = self.make_one(name, is_good=True)

    def times(self) -> tuple[Any, Any]:
        v = self.v
        if v.rng.randrange(16):
            now_ns = self.now_ns + v.rng.choice((0, 1, MS, INTERVAL_NS))
            return now_ns, now_ns + v.rng.choice((0, MS, -MS))
        return v.rng.choice((v.any_number(), *NEAR)), v.rng.choice((v.any_number(), *NEAR))

    def index(self) -> Any:
        v = self.v
        return v.rng.randrange(STREAMS) if v.rng.randrange(8) else v.any_number()

    def send_heartbeats(self) -> None:
        index = 0 if self.v.flag() else self.index()
        self.made["HeartbeatsOut"].send(self.publications, index, *self.times())

    def send_reports(self) -> None:
        index = 0 if self.v.flag() else self.index()
        self.made["ReportsOut"].send(self.images, index, *self.times())

    def send_others(self) -> None:
        """Send for what is no list, or a list of others."""
        v = self.v
        others = v.rng.choice((self.images, self.publications, v.anything(), [v.anything()]))
        self.made[v.rng.choice(MADE[:2])].send(others, 0, *self.times())

    def datagrams(self, frames: list[bytes]) -> Any:
        """Return datagrams that lie behind each other, at times with a word changed."""
        v, data = self.v, bytearray(b"".join(frames))
        if len(data) >= 4 and v.flag() and v.flag():
            at = v.rng.randrange(0, len(data) - 3, 4)
            data[at : at + 4] = pack(
                "<I", v.rng.choice((*NEAR[:9], v.rng.randrange(2**32))) % 2**32
            )
        if v.flag():
            return memoryview(data)
        return v.rng.choice((data, bytes(data), array("B", data), v.buffer()))

    def take_heartbeats(self) -> None:
        v, frames = self.v, []
        for each in self.images:
            at = each.rebuild_position if isinstance(each, Image) else 0
            ids = at % TERM_LENGTH, v.rng.randrange(SESSION_ID, SESSION_ID + 6), STREAM_ID
            term_id = TERM_ID + at // TERM_LENGTH & 0x7FFFFFFF
            frames.append(pack("<iBBHiiiiq", 0, 0, 0xC0, 1, *ids, term_id, 0))
        start, end = (0, 32 * len(frames)) if v.rng.randrange(8) else (self.index(), v.any_number())
        source = SOURCE if v.rng.randrange(8) else v.anything()
        destination = self.destination if v.rng.randrange(8) else v.anything()
        data, now_ns = self.datagrams(frames), self.times()[0]
        self.made["HeartbeatsIn"].take(data, start, end, source, destination, now_ns)

    def take_reports(self) -> None:
        v, frames = self.v, []
        for each in self.publications[:8]:
            sender = vars(each).get("_sender") if isinstance(each, Publication) else None
            at = vars(sender).get("position", 0) if isinstance(sender, Thing) else 0
            at = at if isinstance(at, int) else 0
            at += v.rng.choice((0, 0, 0, 32, -32, HALF_TERM, TERM_LENGTH))
            ids = v.rng.randrange(SESSION_ID, SESSION_ID + 6), STREAM_ID
            term_id = TERM_ID + at // TERM_LENGTH & 0x7FFFFFFF
            where = term_id, at % TERM_LENGTH, v.rng.choice((HALF_TERM, HALF_TERM, 0, 1_408))
            frames.append(pack("<iBBHiiiiiq", 36, 0, 0, 3, *ids, *where, RECEIVER_ID))
        start = 0 if v.rng.randrange(8) else self.index()
        self.made["ReportsIn"].take(self.datagrams(frames), start, self.times()[0])


class Schedules:
    """A schedule of anything, and one beside its twin."""

    def __init__(self, values: Values) -> None:
        self.v = values
        self.odd: Any = silence.Schedule()
        self.twins = pure_twins().Schedule(), silence.Schedule()
        self.now_ns = 0

    def item(self) -> Any:
        v = self.v
        return v.rng.randrange(20) if v.flag() else v.rng.choice((Key(v, 5), v.anything(), None))

    def time(self) -> Any:
        v = self.v
        late = Late(v.rng.randrange(1 << 30))
        late.values = v
        return v.rng.choice((v.rng.randrange(1 << 30), late, late, v.any_number(), NEVER_NS))

    def call(self, name: str) -> None:
        """Call a method with anything."""
        schedule, now_ns, limit = self.odd, self.time(), self.v.number()
        match name:
            case "settle":
                schedule.settle(self.item(), now_ns, self.time())
            case "at":
                schedule.at(self.item(), now_ns)
            case "ready" | "remove":
                getattr(schedule, name)(self.item())
            case "expired" | "due":
                for each in getattr(schedule, name)(now_ns, limit):
                    schedule.settle(each, self.time(), now_ns)
            case "take":
                schedule.take(limit)
            case "clear":
                self.odd = silence.Schedule()
                schedule.__init__()
            case _:
                _ = len(schedule), list(schedule), schedule.has_ready, schedule.next_deadline_ns()

    def compare(self) -> None:
        """Do the same with both twins."""
        rng = self.v.rng
        self.now_ns += rng.choice((0, 1, MS, 50 * MS))
        near = rng.choice((0, MS, INTERVAL_NS, 2 * INTERVAL_NS, rng.randrange(400 * MS), -MS))
        time_ns = rng.choice((*(self.now_ns + near,) * 8, NEVER_NS, NEVER_NS - 1))
        item, limit = rng.randrange(20), rng.choice((None, 0, 1, 3, 100))
        steps: list[tuple[Any, ...]] = (
            [("at", item, time_ns)] * 8
            + [("ready", item), ("remove", item), ("due", self.now_ns, limit), ("take", limit)]
            + [("expired", self.now_ns, limit or 5)] * 3
        )
        name, *arguments = rng.choice(steps)
        found = [getattr(each, name)(*arguments) for each in self.twins]
        self.must_be_equal(name, found)
        for each in found[0] if name == "expired" else ():
            deadline_ns = self.now_ns + rng.choice((0, -1, INTERVAL_NS))
            for twin in self.twins:
                twin.settle(each, deadline_ns, self.now_ns)
        self.must_be_equal(name, [(list(each), len(each)) for each in self.twins])
        self.must_be_equal(name, [(s.has_ready, s.next_deadline_ns()) for s in self.twins])

    def must_be_equal(self, name: str, found: list[Any]) -> None:
        if found[0] != found[1]:
            message = f"{name}: {found}"
            raise DifferenceError(message)


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each method."""
    held, schedules = Held(values), Schedules(values)
    sends = (held.send_heartbeats, held.send_reports, held.send_others)
    takes = (held.take_heartbeats, held.take_reports)
    made = (held.mend, held.mend_batches, held.make, held.make_well, held.release)
    spoiled = (held.spoil, held.spoil_lists, held.spoil_keys, held.spoil_frames, held.change_image)
    found = {each.__name__: each for each in (*sends, *takes, *made, *spoiled)}
    found |= {f"{each.__name__} again": each for each in (*sends, *takes)}
    for name in ("at", "ready", "remove", "expired", "due", "settle", "take", "clear", "see"):
        found[f"schedule: {name}"] = partial(schedules.call, name)
    return found | {"schedules": schedules.compare, "schedules again": schedules.compare}
