"""What happened to datagrams: counted, hashed, and told to whoever watches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.testing.trace import Trace, Verdict

if TYPE_CHECKING:
    from aeron_async.driver.media.sockets import SocketAddress

    Event = tuple[int, Verdict, SocketAddress, SocketAddress, bytes]

EVENT: Event = (5, Verdict.SENT, ("10.0.0.1", 1), ("10.0.0.2", 2), b"hello")


def note_all(*events: Event) -> Trace:
    trace = Trace()
    for event in events:
        trace.note(*event)
    return trace


def test_the_same_events_have_the_same_digest() -> None:
    assert note_all(EVENT, EVENT).digest() == note_all(EVENT, EVENT).digest()
    assert note_all(EVENT).digest() != note_all(EVENT, EVENT).digest()


@pytest.mark.parametrize(
    ("index", "other"),
    [
        (0, 6),
        (1, Verdict.LOST),
        (2, ("10.0.0.1", 3)),
        (3, ("10.0.0.2", 3)),
        (4, b"hallo"),
    ],
)
def test_any_difference_shows_in_the_digest(index: int, other: object) -> None:
    changed: Any = (*EVENT[:index], other, *EVENT[index + 1 :])
    assert note_all(EVENT).digest() != note_all(changed).digest()


def test_events_are_counted_and_told_from_now_on() -> None:
    trace = note_all(EVENT)
    seen: list[Event] = []
    trace.watch(lambda *event: seen.append(event))
    trace.note(*EVENT)
    assert seen == [EVENT]
    assert trace.counts[Verdict.SENT] == 2
    assert sum(trace.counts) == 2
