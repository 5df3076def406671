"""Both twins of what waits for a slow reader keep, count and refuse the same."""

from __future__ import annotations

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
    ),
    max_size=40,
)


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
    for kind, given_ in steps:
        try:
            if kind == "put":
                kept.put_all(iter(given_))
            else:
                seen.append(kept.skipped_of(given_) if kind == "skipped" else acts[kind]())
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
