"""Streams that are silent, made of objects that may run code when they are looked at."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from aeron_async.clock import NEVER_NS
from tests.fuzz.calls.values import SESSION_ID, STREAM_ID, TERM_ID, TERM_LENGTH
from tests.twins import compiled

if TYPE_CHECKING:
    from tests.fuzz.calls.values import Values

lanes: Final = compiled("lanes")
paths: Final = compiled("paths")

SOURCE: Final = ("127.0.0.1", 9)
ACTIVE: Final = "active"
BITS: Final = 12
HALF_TERM: Final = TERM_LENGTH // 2
RECEIVER_ID: Final = 77
MS: Final = 1_000_000
INTERVAL_NS: Final = 100 * MS
LONG_NS: Final = 1 << 50


class Thing:
    """An object with any attributes; one that is hidden runs code when it is looked at."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        hidden = self.__dict__.get("hidden")
        if hidden is None or name not in hidden:
            raise AttributeError(name)
        found, values = hidden[name]
        values.hook()
        return found


class Publication(Thing):
    """What heartbeats leave for."""


class Image(lanes.Rebuilding, Thing):  # type: ignore[misc,name-defined] # without types
    """What status messages leave for; a compiled field of it cannot be hidden."""


class Feedback(lanes.Reporting, Thing):  # type: ignore[misc,name-defined] # without types
    """What an image has said last."""


class Key:
    """A key that is at the place of another one, and does something when they are compared."""

    def __init__(self, values: Values, like: object) -> None:
        self._values = values
        self._hash = hash(like)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        self._values.hook()
        return self is other


class Late(int):
    """A time that does something when it is compared."""

    values: Values

    def __lt__(self, other: int) -> bool:
        self.values.hook()
        return int(self) < other

    def __gt__(self, other: int) -> bool:
        self.values.hook()
        return int(self) > other


class Frames:
    """What frames are added to, and which does something then."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def __iadd__(self, other: object) -> Any:
        self._values.hook()
        return self if self._values.flag() else NotImplemented


def make_cell(position: int) -> Any:
    """Return the word of a counter."""
    return paths.Cell(memoryview(array("q", [position])))


def make_publication(number: int, now_ns: int, at: int, outbox: object) -> Any:
    """Return a publication to which nothing has happened for a while."""
    longs = array("q", bytes(512))
    longs[at // TERM_LENGTH % 3] = (TERM_ID + at // TERM_LENGTH << 32) | at % TERM_LENGTH
    words = memoryview(longs).cast("B").cast("i")
    words[6] = at // TERM_LENGTH
    log: Any = Thing(position_bits=BITS, term_length=TERM_LENGTH, initial_term_id=TERM_ID)
    log.metadata = Thing(longs=longs, words=words)
    sender: Any = Thing(_last_sent_ns=now_ns - INTERVAL_NS, position=at, limit=at + HALF_TERM)
    sender.__dict__ |= {"_said": (at, 0xC0), "is_revoked": False, "_heartbeat": bytes(32)}
    sender._outbox = outbox
    receivers = Thing(_last_heard_ns={RECEIVER_ID: now_ns}, _timeout_ns=5_000 * MS)
    return Publication(
        id=(SESSION_ID + number, STREAM_ID),
        wake_flag=paths.WakeFlag(),
        state=ACTIVE,
        failure=None,
        is_connected=True,
        is_sending=False,
        has_sent_burst=False,
        has_new_limit=False,
        log=log,
        _sender=sender,
        _receivers=receivers,
        _fast_until_ns=0 if number % 2 else now_ns + INTERVAL_NS,
        _fast_position=at + HALF_TERM // 8,
        _told_position=at,
        _plain_flow_control=Thing(receiver_id=RECEIVER_ID),
        _is_setup_elicited=False,
        _has_initial_connection=True,
        _window=Thing(limit=at + HALF_TERM, _window_length=HALF_TERM),
        _retransmit_handler=Thing(_actions=[], budget=Thing(window_length=0)),
        _blocked_check=Thing(_was_behind=False),
        params=Thing(is_response_requested=False),
        subscribers=Thing(_all={}),
        counters=Thing(publisher_position=Thing(cell=make_cell(at))),
    )


def make_image(number: int, now_ns: int, at: int, destination: Any) -> Any:
    """Return an image whose stream has been silent for a while."""
    image: Any = Image()
    log = SimpleNamespace(position_bits=BITS, initial_term_id=TERM_ID, terms=(b"", b"", b""))
    cells = {
        name: Thing(cell=make_cell(at)) for name in ("receiver_hwm", "receiver_position", "reader")
    }
    image._attach(log, SimpleNamespace(**cells))
    feedback: Any = Feedback()
    feedback.last_sm_position = feedback.next_sm_position = at
    feedback.__dict__ |= {
        "is_enabled": True,
        "_rejection": None,
        "_response_session_id": None,
        "_is_pending": False,
        "_deadline_ns": now_ns,
        "_same_again": bytes(36),
        "_transport_count": 1,
        "_liveness_timeout_ns": LONG_NS,
        "_timeout_ns": 2 * INTERVAL_NS,
    }
    connection: Any = Thing(is_new=False, source=SOURCE, last_activity_ns=now_ns)
    connection.destination = destination
    image.rebuild_position = image.hwm_position = at
    image._calm_until_ns = now_ns + LONG_NS
    image.wake_flag = paths.WakeFlag()
    image._feedback = feedback
    image.connections = Thing(_connections={destination: connection})
    image.subscribers = Thing(_working=[cells["reader"]])
    image.__dict__ |= {
        "id": SESSION_ID + number,
        "idle_ns": 0,
        "_doubts": Thing(behind_ns=5),
        "_gaps": Thing(detector=Thing(length=0)),
        "_report_until_ns": now_ns + LONG_NS,
        "_watch": Thing(
            _gap_timer=Thing(start=-1),
            _doubts=Thing(deadline_ns=NEVER_NS),
            _terms=Thing(deadline_ns=NEVER_NS),
        ),
    }
    return image
