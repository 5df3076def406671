"""Both twins of what waits for a slow reader keep, count and refuse the same."""

from __future__ import annotations

import gc
import weakref
from random import Random
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.logbuffer.message import Message
from tests.twins import TWINS, compiled_twins, needs_compiled, pure_twins

Pair = tuple[str, int]
KEYS = st.sampled_from("abcdef")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=6)),
        st.tuples(st.sampled_from(["first", "all", "clear"]), st.none()),
        st.tuples(st.just("skipped"), KEYS),
        st.tuples(st.just("take"), st.integers(-1, 4)),
    ),
    max_size=40,
)
PAYLOADS = st.lists(
    st.binary(max_size=3) | st.sampled_from([b"abcd" * 9, b"abcd" * 400]), max_size=9
)
LOGS = st.tuples(st.integers(0, 2), PAYLOADS)
LOG_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["batch", "batch", "made"]), LOGS),
        st.tuples(st.sampled_from(["first", "all", "clear"]), st.none()),
        st.tuples(st.just("skipped"), st.binary(max_size=2) | st.just("ab")),
        st.tuples(st.just("take"), st.integers(-1, 6)),
    ),
    max_size=30,
)
SOURCES = [SimpleNamespace(session_id=each, stream_id=7) for each in range(3)]
TERM_LENGTH = 16_384
MESSAGE_WORD = 0x0001_C000


@pytest.fixture(params=TWINS)
def twins(request: pytest.FixtureRequest) -> Any:
    return request.param()


def made(twins: Any, *, merge: bool = False, max_keys: int = 3, drops_oldest: bool = True) -> Any:
    class Keeping(twins.KeepingNewest):  # type: ignore[misc]
        def _refuse(self, key: str) -> NoReturn:
            message = f"no room for {key}"
            raise OverflowError(message)

    return Keeping(
        lambda pair: pair[0],
        (lambda old, new: (old[0], old[1] + new[1])) if merge else None,
        max_keys=max_keys,
        drops_oldest=drops_oldest,
    )


@pytest.mark.parametrize("place", [slice(0, 4), slice(2, 3), slice(3, 60), slice(60, 64)])
def test_a_slice_of_the_payload_is_a_key(twins: Any, place: slice) -> None:
    class Keeping(twins.KeepingNewest):  # type: ignore[misc]
        pass

    source = SimpleNamespace(session_id=1, stream_id=2)
    messages = [Message(text.encode(), 0, 0, source) for text in ("abcdef", "abxdef", "abc", "")]
    others = [SimpleNamespace(data=memoryview(message.data)) for message in messages]
    for values in (messages, others):
        by_slice = Keeping(place, None, max_keys=9, drops_oldest=True)
        by_function = Keeping(
            lambda each: bytes(each.data[place]), None, max_keys=9, drops_oldest=True
        )
        by_slice.put_all(values)
        by_function.put_all(values)
        keys = {bytes(each.data[place]) for each in values}
        assert by_slice.waiting == len(keys)
        assert [by_slice.skipped_of(key) for key in keys] == [
            by_function.skipped_of(key) for key in keys
        ]
        assert by_slice.take_all() == by_function.take_all()


def test_an_object_without_a_payload_is_told(twins: Any) -> None:
    class Keeping(twins.KeepingNewest):  # type: ignore[misc]
        pass

    kept = Keeping(slice(0, 4), None, max_keys=9, drops_oldest=True)
    for wrong in (1, Message.__new__(Message)):
        with pytest.raises((AttributeError, TypeError)):
            kept.put_all([wrong])
    assert not kept.waiting


def story(kept: Any, steps: list[tuple[str, Any]]) -> list[Any]:
    """Return what a reader has seen."""
    seen: list[Any] = []
    acts = {"first": kept.take_first, "all": kept.take_all, "clear": kept.clear}
    counted = {"skipped": kept.skipped_of, "take": kept.take}
    for kind, given_ in steps:
        try:
            if kind == "put":
                kept.put_all(iter(given_))
            else:
                seen.append(counted[kind](given_) if kind in counted else acts[kind]())
        except (IndexError, OverflowError) as error:
            seen.append(str(error))
        seen.append((kept.waiting, kept.skipped, kept.merged, kept.dropped))
    return seen


@needs_compiled
@given(
    STEPS,
    st.fixed_dictionaries(
        {"merge": st.booleans(), "drops_oldest": st.booleans(), "max_keys": st.integers(1, 6)}
    ),
)
def test_both_twins_do_the_same(steps: list[tuple[str, Any]], options: dict[str, Any]) -> None:
    both = [story(made(each(), **options), steps) for each in (compiled_twins, pure_twins)]
    assert both[0] == both[1]


def test_what_is_skipped_of_a_key_is_known_while_it_waits_and_afterwards(twins: Any) -> None:
    kept = made(twins)
    kept.put_all([("a", 1), ("a", 2), ("b", 1), ("a", 3)])
    assert [kept.skipped_of(each) for each in "abc"] == [2, 0, 0]
    assert kept.take_first() == ("a", 3)
    kept.put_all([("a", 4), ("a", 5)])
    assert (kept.skipped_of("a"), kept.skipped) == (3, 3)
    assert kept.take_all() == [("b", 1), ("a", 5)]
    assert kept.skipped_of("a") == 3


def test_skipped_values_are_counted_of_the_first_keys_that_had_any(twins: Any) -> None:
    kept = made(twins, max_keys=2)
    for key in "abcc":
        kept.put_all([(key, 1), (key, 2)])
        kept.take_all()
    assert [kept.skipped_of(each) for each in "abcd"] == [1, 1, None, None]
    assert kept.skipped == 4


def test_a_key_that_is_dropped_is_skipped(twins: Any) -> None:
    kept = made(twins, max_keys=2)
    kept.put_all([("a", 1), ("a", 2), ("b", 1), ("c", 1)])
    assert (kept.dropped, kept.skipped, kept.skipped_of("a")) == (1, 2, 2)
    assert kept.take_all() == [("b", 1), ("c", 1)]


def test_what_came_before_an_error_is_kept(twins: Any) -> None:
    kept = made(twins, merge=True)
    with pytest.raises(TypeError):
        kept.put_all([("a", 1), ("a", None)])
    with pytest.raises(TypeError, match="unhashable"):
        kept.put_all([("b", 1), ([], 1)])
    assert (kept.skipped, kept.merged) == (0, 0)
    assert kept.take_all() == [("a", 1), ("b", 1)]
    with pytest.raises(IndexError):
        kept.take_first()


# Keys that are slices, of messages that lie in a log.


def keeping(twins: Any, place: slice, max_keys: int = 9, *, drops_oldest: bool = True) -> Any:
    class Keeping(twins.KeepingNewest):  # type: ignore[misc]
        def _refuse(self, key: bytes) -> NoReturn:
            message = f"no room for {key!r}"
            raise OverflowError(message)

    return Keeping(place, None, max_keys=max_keys, drops_oldest=drops_oldest)


def laid(payloads: list[bytes]) -> tuple[memoryview, memoryview, memoryview]:
    """Return a term of messages, with padding behind each third one."""
    term = memoryview(bytearray(TERM_LENGTH))
    words, longs = term.cast("i"), term.cast("q")
    at = 0
    for number, payload in enumerate(payloads):
        words[at >> 2], words[(at >> 2) + 1] = len(payload) + 32, MESSAGE_WORD
        longs[(at >> 3) + 3] = 100 + number
        term[at + 32 : at + 32 + len(payload)] = payload
        at += (len(payload) + 63) & -32
        if number % 3 == 2:
            words[at >> 2], words[(at >> 2) + 1] = 64, 0xC000
            at += 64
    return term, words, longs


def batch_of(twins: Any, payloads: list[bytes], source: Any, begin_position: int = 0) -> Any:
    return twins.open_batch(*laid(payloads), 0, TERM_LENGTH, begin_position, len(payloads), source)[
        0
    ]


def facts(found: Any) -> Any:
    """Return what a reader has got, of messages what they say."""
    if isinstance(found, list):
        return [facts(each) for each in found]
    if not hasattr(found, "data"):
        return found
    return found.data, found.position, found.reserved_value, found.image.session_id


def log_story(twins: Any, kept: Any, steps: list[tuple[str, Any]]) -> list[Any]:
    """Return what a reader has seen of messages."""
    seen: list[Any] = []
    acts = {"first": kept.take_first, "all": kept.take_all, "clear": kept.clear}
    counted = {"skipped": kept.skipped_of, "take": kept.take}
    for place, (kind, given_) in enumerate(steps):
        try:
            if kind in acts:
                seen.append(facts(acts[kind]()))
            elif kind in counted:
                seen.append(facts(counted[kind](given_)))
            else:
                batch = batch_of(twins, given_[1], SOURCES[given_[0]], TERM_LENGTH * place)
                if kind == "batch":
                    kept.put_batch(batch)
                    seen.append(batch.left)
                else:
                    kept.put_all(batch.rest())
        except (IndexError, OverflowError) as error:
            seen.append(str(error))
        seen.append((kept.waiting, kept.skipped, kept.merged, kept.dropped))
    return seen


@needs_compiled
@given(
    LOG_STEPS,
    st.sampled_from([slice(0, 1), slice(0, 2), slice(1, 3), slice(2, 900), slice(40, 50)]),
    st.fixed_dictionaries({"drops_oldest": st.booleans(), "max_keys": st.integers(1, 6)}),
)
def test_both_twins_do_the_same_with_what_lies_in_a_log(
    steps: list[tuple[str, Any]], place: slice, options: dict[str, Any]
) -> None:
    both = [
        log_story(twins, keeping(twins, place, **options), steps)
        for twins in (compiled_twins(), pure_twins())
    ]
    assert both[0] == both[1]


@pytest.mark.parametrize("drops_oldest", [True, False])
def test_thousands_of_keys_come_and_go(twins: Any, *, drops_oldest: bool) -> None:
    rng = Random(7)
    kept = keeping(twins, slice(0, 5), 900 if drops_oldest else 4_000, drops_oldest=drops_oldest)
    obvious: dict[bytes, bytes] = {}
    put = taken = 0
    for turn in range(120):
        payloads = [
            b"%d" % rng.randrange(3_000) + b"-" * rng.choice((4, 4, 9, 90)) + b"%d" % turn
            for _ in range(60)
        ]
        put += len(payloads)
        kept.put_batch(batch_of(twins, payloads, SOURCES[0]))
        for payload in payloads:
            key = payload[:5]
            if key not in obvious and drops_oldest and len(obvious) == 900:
                del obvious[next(iter(obvious))]
            obvious[key] = payload
        # At times nobody reads, and at times all is read.
        limit = (0, 0, 90, 5_000)[turn // 10 % 4]
        found = kept.take(limit)
        taken += len(found)
        assert [message.data for message in found] == list(obvious.values())[:limit]
        for message in found:
            del obvious[message.data[:5]]
        assert (kept.waiting, kept.skipped) == (len(obvious), put - taken - len(obvious))
    assert kept.skipped > 1_000
    assert kept.dropped > 0 if drops_oldest else kept.dropped == 0


def test_messages_have_the_image_that_they_came_from(twins: Any) -> None:
    kept = keeping(twins, slice(0, 1))
    for source, payloads in zip(SOURCES, ([b"a1", b"b1"], [b"b2", b"c2"], [b"a3"]), strict=True):
        kept.put_batch(batch_of(twins, payloads, source))
    found = kept.take_all()
    assert [message.data for message in found] == [b"a3", b"b2", b"c2"]
    assert [message.image for message in found] == [SOURCES[2], SOURCES[1], SOURCES[1]]


class Source:
    """An image that may be forgotten."""

    session_id = 1
    stream_id = 2


def test_an_image_is_not_kept_for_messages_that_were_taken(twins: Any) -> None:
    kept = keeping(twins, slice(0, 1))
    source = Source()
    gone = weakref.ref(source)
    kept.put_batch(batch_of(twins, [b"a1", b"a2", b"b1"], source))
    kept.put_batch(batch_of(twins, [b"b2"], SOURCES[0]))
    del source
    assert gone() is not None
    kept.take_first()
    gc.collect()
    assert gone() is None
    assert facts(kept.take_all()) == [(b"b2", 64, 100, 0)]


def test_an_object_and_a_message_in_the_log_replace_each_other(twins: Any) -> None:
    kept = keeping(twins, slice(0, 1))
    made = twins.Message(b"a1", 32, 5, SOURCES[0])
    kept.put_all([made])
    kept.put_batch(batch_of(twins, [b"a2", b"b2"], SOURCES[1]))
    assert facts(kept.take_first()) == (b"a2", 64, 100, 1)
    kept.put_all([made])
    kept.put_batch(batch_of(twins, [b"a3"], SOURCES[1]))
    kept.put_all([made])
    assert facts(kept.take_first()) == (b"b2", 128, 101, 1)
    assert kept.take_first() is made


def test_the_messages_before_one_key_too_many_are_kept(twins: Any) -> None:
    kept = keeping(twins, slice(0, 1), 2, drops_oldest=False)
    with pytest.raises(OverflowError, match="no room for b'c'"):
        kept.put_batch(batch_of(twins, [b"a1", b"b1", b"a2", b"c1", b"a3"], SOURCES[0]))
    assert [message.data for message in kept.take_all()] == [b"a2", b"b1"]


@needs_compiled
def test_a_frame_that_another_process_has_changed_ends_a_batch() -> None:
    twins = compiled_twins()
    for wrong in (-1, 0, TERM_LENGTH + 1, 2**31 - 1):
        kept = keeping(twins, slice(0, 1))
        where = laid([b"a1", b"b1", b"c1"])
        batch = twins.open_batch(*where, 0, TERM_LENGTH, 0, 9, SOURCES[0])[0]
        where[1][16] = wrong
        kept.put_batch(batch)
        assert facts(kept.take_all()) == [(b"a1", 64, 100, 0)]


@needs_compiled
def test_nothing_is_kept_of_a_key_that_was_refused_without_an_error() -> None:
    class Lenient(compiled_twins().KeepingNewest):  # type: ignore[misc]
        def _refuse(self, key: bytes) -> None:
            pass

    kept: Any = Lenient(slice(0, 1), None, max_keys=1, drops_oldest=False)
    with pytest.raises(ValueError, match="refused"):
        kept.put_batch(batch_of(compiled_twins(), [b"a", b"b"], SOURCES[0]))
    with pytest.raises(ValueError, match="once"):
        kept.__init__(slice(0, 1), None, max_keys=1, drops_oldest=False)
    assert kept.waiting == 1


@pytest.mark.parametrize("by", [slice(0, 2), lambda message: message.data[:2]])
def test_a_key_that_is_asked_for_may_be_any_that_is_equal(twins: Any, by: Any) -> None:
    class Keeping(twins.KeepingNewest):  # type: ignore[misc]
        pass

    kept = Keeping(by, None, max_keys=2, drops_oldest=True)
    kept.put_batch(batch_of(twins, [b"ab1", b"ab2"], SOURCES[0]))
    assert [kept.skipped_of(key) for key in (b"ab", memoryview(b"ab"))] == [1, 1]
    assert [kept.skipped_of(key) for key in (b"a", "ab", None, 7)] == [0, 0, 0, 0]
    for wrong in (bytearray(b"ab"), {7: 8}):
        with pytest.raises(TypeError):
            kept.skipped_of(wrong)
