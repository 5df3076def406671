"""Calls that can be misread say so at once, and what was offered or has arrived is not lost."""

from __future__ import annotations

import asyncio
import inspect
import sys
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final

import pytest

import aeron_async as aa
from aeron_async.archive import ArchiveContext, LocalArchive
from aeron_async.client.arguments import check_callable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

STREAM_ID = 1001
NO_LENGTHS: list[Any] = ["5", 1.5, True, None, -1, 10**5_000 * -1]
NO_RESERVED_VALUES: list[Any] = ["1", 1.5, 0.0, "", None, 2**63, -(2**63) - 1]
NO_MESSAGES: list[tuple[Any, str]] = [
    ("text", "encode it"),
    (3, "not 3"),
    (None, "not None"),
    ([b"a", 3], "item 1 .* not 3"),
    (["a"], "item 0 .* encode it"),
    ((b"a", "b"), "item 1 .* encode it"),
    ([[b"a"]], "item 0"),
]
NOT_MANY: list[Any] = [None, 5, b"ab", "ab", bytearray(b"ab"), memoryview(b"ab")]
NO_LIMITS: list[Any] = [0, -1, 1.5, "3", None, True]


class Whole:
    def __index__(self) -> int:
        return 7


class Strided:
    """What numpy has: a buffer whose bytes do not lie side by side."""

    view = memoryview(b"a.b.c.")[::2]


async def awaited(*_: object) -> None:
    pytest.fail("nobody awaits it")


async def awaited_each(*_: object) -> AsyncIterator[None]:
    yield
    pytest.fail("nobody iterates over it")


class Awaited:
    async def __call__(self, *_: object) -> None:
        pytest.fail("nobody awaits it")

    async def called(self, *_: object) -> None:
        pytest.fail("nobody awaits it")


@pytest.fixture(params=["shared", "exclusive"])
async def offering(
    request: pytest.FixtureRequest, aeron: aa.Aeron, channel: str, subscription: aa.Subscription
) -> aa.Publication:
    add = aeron.add_publication if request.param == "shared" else aeron.add_exclusive_publication
    publication = await add(channel, STREAM_ID)
    await asyncio.gather(publication.wait_connected(5), subscription.wait_connected(5))
    return publication


async def refuses(call: Callable[[], Any], pattern: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=pattern):
        await call()


async def test_a_claim_is_of_a_whole_number_of_bytes(offering: aa.Publication) -> None:
    before = offering.position
    for length in NO_LENGTHS:
        for call in (offering.claim, offering.try_claim):
            await refuses(lambda: call(length), "length=.* whole number", aa.ConfigurationError)  # noqa: B023
        if isinstance(offering, aa.ExclusivePublication):
            for pad in (offering.append_padding, offering.try_append_padding):
                await refuses(lambda: pad(length), "length=.* whole", aa.ConfigurationError)  # noqa: B023
    assert offering.position == before
    wide: Any = Whole()
    with await offering.claim(wide) as claim:
        assert len(claim.data) == 7
        for value in NO_RESERVED_VALUES:
            with pytest.raises(aa.ConfigurationError, match="reserved_value"):
                claim.reserved_value = value


async def test_a_reserved_value_is_not_cut_to_a_number(
    offering: aa.Publication, subscription: aa.Subscription
) -> None:
    """In Python 1.5 left a frame open for ever; compiled, it was sent as 1."""
    before = offering.position
    for value in NO_RESERVED_VALUES:
        messages: list[Any] = [b"x", [b"x"]]
        for data in messages:
            for call in (offering.offer, offering.try_offer):
                await refuses(
                    lambda: call(data, reserved_value=value),  # noqa: B023
                    "reserved_value=.* whole number",
                    aa.ConfigurationError,
                )
    assert offering.position == before
    fine: list[Any] = [-(2**63), 2**63 - 1, 0, Whole()]
    for value in fine:
        await offering.offer(b"x", reserved_value=value)
    heard = [(await anext(subscription)).reserved_value for _ in fine]
    assert heard == [-(2**63), 2**63 - 1, 0, 7]


async def test_a_message_is_bytes_wherever_they_lie(
    offering: aa.Publication, subscription: aa.Subscription
) -> None:
    before = offering.position
    for data, pattern in NO_MESSAGES:
        for call in (offering.offer, offering.try_offer):
            await refuses(lambda: call(data), pattern, TypeError)  # noqa: B023
    for several in NOT_MANY:
        await refuses(
            lambda: offering.offer_many(several),  # noqa: B023
            "one after the other",
            aa.ConfigurationError,
        )
    assert offering.position == before
    fine: list[tuple[Any, bytes]] = [
        ((b"a", b"b"), b"ab"),
        ((), b""),
        (Strided.view, b"abc"),
        ([Strided.view, b"d"], b"abcd"),
        ((b"d", Strided.view), b"dabc"),
        (memoryview(bytes(range(6))).cast("B", (2, 3))[::-1], bytes((3, 4, 5, 0, 1, 2))),
    ]
    for data, heard in fine:
        await offering.offer(data)
        assert (await anext(subscription)).data == heard
    await offering.offer_many(each for each in ((b"a", b"b"), b"c"))
    assert [(await anext(subscription)).data for _ in range(2)] == [b"ab", b"c"]


async def test_what_cannot_be_offered_does_not_stand_in_line(aeron: aa.Aeron) -> None:
    publication = await aeron.add_exclusive_publication("aeron:ipc", STREAM_ID)
    waiting = asyncio.create_task(publication.offer(b"first"))
    while not publication._line:
        await asyncio.sleep(0)
    wrong: Any = "5"
    publication._calls_until_check = 0
    async with asyncio.timeout(5):
        await refuses(lambda: publication.offer(wrong), "encode it", TypeError)
        publication._calls_until_check = 0
        await refuses(lambda: publication.claim(wrong), "length='5'", aa.ConfigurationError)
        publication._calls_until_check = 0
        await refuses(lambda: publication.append_padding(wrong), "'5'", aa.ConfigurationError)
        publication._calls_until_check = 0
        await refuses(lambda: publication.offer_block(wrong), "encode it", TypeError)
    waiting.cancel()


async def test_a_poll_that_is_refused_takes_no_message_that_was_delivered(
    aeron: aa.Aeron, channel: str, subscription: aa.Subscription
) -> None:
    publication = await aeron.add_publication(channel, STREAM_ID)
    await publication.offer(b"delivered")
    image = (await anext(subscription)).image
    not_a_handler: Any = 5
    with pytest.raises(aa.ConfigurationError, match=r"handler=5 .*to call"):
        subscription.poll(not_a_handler)
    assert image.position == image.join_position
    assert subscription.poll(print) == 0
    assert image.position == publication.position


async def test_a_poll_says_what_it_is_called_with(
    aeron: aa.Aeron, channel: str, subscription: aa.Subscription
) -> None:
    """What a handler that nobody awaits was called with is read again."""
    lost: list[Any] = [None, 5]
    for handler in (*lost, awaited, Awaited()):
        with pytest.raises(aa.ConfigurationError, match="handler"):
            subscription.poll(handler)
    publication = await aeron.add_publication(channel, STREAM_ID)
    await asyncio.gather(publication.wait_connected(5), subscription.wait_connected(5))
    image = subscription.images[0]
    with pytest.raises(aa.ConfigurationError, match="handler=None"):
        subscription.poll(lost[0])
    await publication.offer_many([b"a", b"b", b"c"])
    while image._port.readable_position(image.position) < publication.position:
        await asyncio.sleep(0)
    for poll in (subscription.poll, image.poll):
        for limit in NO_LIMITS:
            with pytest.raises(aa.ConfigurationError, match="fragment_limit"):
                poll(print, limit)
        for handler in lost:
            with pytest.raises(aa.ConfigurationError, match=r"handler=.* to call"):
                poll(handler)
        for handler in (
            awaited,
            Awaited(),
            lambda *_: awaited(),
            lambda *_: publication.offer(b""),
        ):
            with pytest.raises(aa.ConfigurationError, match="no code would await"):
                poll(handler)
    assert image.position == image.join_position
    found: list[bytes] = []

    def first_only(payload: memoryview, _: object) -> object:
        if found:
            return awaited()
        found.append(bytes(payload))
        return None

    with pytest.raises(aa.ConfigurationError, match="no code would await"):
        subscription.poll(first_only)
    assert image.position == image.join_position + 64
    assert subscription.poll(lambda payload, _: found.append(bytes(payload))) == 2
    assert found == [b"a", b"b", b"c"]
    await publication.offer(b"d")
    while image._port.readable_position(image.position) < publication.position:
        await asyncio.sleep(0)
    with pytest.raises(TypeError, match="of the handler"):
        subscription.poll(fails)
    assert image.position == publication.position


def fails(*_: object) -> None:
    message = "of the handler"
    raise TypeError(message)


def test_a_class_is_called_and_not_what_it_makes() -> None:
    assert check_callable(Awaited, "flow_control") is Awaited


ASYNC: Final[dict[str, Any]] = {
    "function": awaited,
    "method": Awaited().called,
    "object": Awaited(),
    "partial": partial(awaited, 1),
    "partial of object": partial(partial(Awaited(), 1), 2),
    "generator": awaited_each,
}


@pytest.mark.parametrize("handler", ASYNC.values(), ids=ASYNC)
async def test_a_poll_refuses_what_nobody_awaits_before_anything_comes(
    aeron: aa.Aeron, channel: str, subscription: aa.Subscription, handler: Any
) -> None:
    """It was refused at the first fragment, and a generator not even then."""
    publication = await aeron.add_publication(channel, STREAM_ID)
    await asyncio.gather(publication.wait_connected(5), subscription.wait_connected(5))
    for poll in (subscription.poll, subscription.images[0].poll):
        with pytest.raises(aa.ConfigurationError, match="handler is an `async def`"):
            poll(handler)


def test_what_needs_no_await_is_called() -> None:
    @wraps(awaited)
    def wrapping(*_: object) -> None:
        """Do what the other does, and wait for nothing."""

    lasting: list[Any] = [wrapping, partial(wrapping), Whole().__index__, [].append, print, Whole]
    for each in lasting:
        assert check_callable(each, "handler") is each


@pytest.mark.skipif(
    not hasattr(inspect, "markcoroutinefunction"),
    reason="inspect.markcoroutinefunction, which marks it, is of Python 3.12",
)
def test_what_is_marked_as_async_is_refused() -> None:
    def marked(*_: object) -> Any:
        return awaited()

    inspect.markcoroutinefunction(marked)  # type: ignore[attr-defined, unused-ignore]
    with pytest.raises(aa.ConfigurationError, match="is an `async def`"):
        check_callable(marked, "handler")


@pytest.mark.parametrize("handler", ASYNC.values(), ids=ASYNC)
async def test_a_handler_that_nobody_awaits_is_refused(aeron: aa.Aeron, handler: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: aeron.add_publication("aeron:ipc", STREAM_ID, on_error=handler),
        lambda: aeron.add_exclusive_publication("aeron:ipc", STREAM_ID, on_error=handler),
        lambda: aeron.add_subscription("aeron:ipc", STREAM_ID, on_available_image=handler),
        lambda: aeron.add_subscription("aeron:ipc", STREAM_ID, on_unavailable_image=handler),
    ]
    for call in calls:
        with pytest.raises(aa.ConfigurationError, match="is an `async def`"):
            call()


def takes_nothing() -> None:
    pytest.fail("it cannot be called with anything")


def takes_two(_one: object, _other: object) -> None:
    pytest.fail("it cannot be called with one argument")


@wraps(lambda image: image)
def wrapping_less() -> None:
    pytest.fail("it cannot be called with what it wraps is called with")


MISFITS: Final[dict[str, Any]] = {
    "wrapping": wrapping_less,
    "nothing": takes_nothing,
    "two": takes_two,
    "lambda": lambda: 0,
    "method": Whole().__index__,
    "class": Whole,
    "partial": partial(takes_two, 1, 2),
    "by name": lambda *, image: image,
}


@pytest.mark.parametrize("handler", MISFITS.values(), ids=MISFITS)
async def test_a_handler_that_takes_something_else_is_refused(
    aeron: aa.Aeron, handler: Any
) -> None:
    """It failed when the first image came, far from the line that had given it."""
    calls: list[tuple[str, str, Callable[[], object]]] = [
        (
            "on_error",
            "the error frame",
            lambda: aeron.add_publication("aeron:ipc", STREAM_ID, on_error=handler),
        ),
        (
            "on_error",
            "the error frame",
            lambda: aeron.add_exclusive_publication("aeron:ipc", STREAM_ID, on_error=handler),
        ),
        (
            "on_available_image",
            "the image",
            lambda: aeron.add_subscription("aeron:ipc", STREAM_ID, on_available_image=handler),
        ),
        (
            "on_unavailable_image",
            "the image",
            lambda: aeron.add_subscription("aeron:ipc", STREAM_ID, on_unavailable_image=handler),
        ),
    ]
    for name, given, call in calls:
        with pytest.raises(aa.ConfigurationError, match=f"{name}=.* one argument, {given}"):
            call()


async def test_a_handler_that_takes_one_argument_is_taken(aeron: aa.Aeron) -> None:
    """So is one that does not say what it takes."""
    with pytest.raises(ValueError, match="no signature"):
        inspect.signature(max)
    fits: list[Any] = [
        [].append,
        print,
        max,
        lambda *_: None,
        lambda image, more=0: (image, more),
        partial(takes_two, 1),
        asyncio.Queue[aa.Image]().put_nowait,
    ]
    for handler in fits:
        await aeron.add_subscription("aeron:ipc", STREAM_ID, on_available_image=handler)


@wraps(takes_two)
def giving_more(image: object) -> object:
    return takes_two, image


class Unreadable:
    """Says what it takes in words that fail: as annotations do, once they are evaluated."""

    @property
    def __signature__(self) -> inspect.Signature:
        message = "name 'Image' is not defined"
        raise NameError(message)

    def __call__(self, *_: object) -> None:
        """Take anything."""


def for_type_checkers_only() -> Any:
    """Return a handler whose annotation has no value, as with an import under TYPE_CHECKING.

    Before Python 3.14 it could not have been made without the quotes.
    """
    annotation = "Image" if sys.version_info >= (3, 14) else "'Image'"
    made: dict[str, Any] = {}
    source = f"def on_image(image: {annotation}) -> None: ..."
    exec(compile(source, "handlers", "exec", dont_inherit=True), made)  # noqa: S102 - ours
    return made["on_image"]


@pytest.mark.parametrize(
    "handler",
    [giving_more, Unreadable(), for_type_checkers_only(), partial(for_type_checkers_only())],
    ids=["wraps", "unreadable", "annotation", "partial"],
)
async def test_a_handler_that_can_be_called_is_taken_however_it_reads(
    aeron: aa.Aeron, handler: Any
) -> None:
    await aeron.add_subscription("aeron:ipc", STREAM_ID, on_available_image=handler)


async def test_a_handler_without_values_for_its_annotations_is_checked(aeron: aa.Aeron) -> None:
    handler = partial(for_type_checkers_only(), "one")
    with pytest.raises(aa.ConfigurationError, match=r"on_available_image=.* one argument"):
        aeron.add_subscription("aeron:ipc", STREAM_ID, on_available_image=handler)


async def test_a_forgotten_await_says_the_line_to_write(aeron: aa.Aeron, tmp_path: Path) -> None:
    """It named a class that nobody has heard of."""
    subscription: Any = aeron.add_subscription("aeron:ipc", STREAM_ID)
    with pytest.raises(TypeError, match=r"`subscription = await aeron.add_subscription\(") as told:
        aiter(subscription)
    assert "Opening" not in str(told.value)
    with pytest.raises(TypeError, match=r"`await` is missing before aeron.add_subscription\("):
        iter(subscription)
    with pytest.raises(TypeError, match=r"`await` is missing before aeron.add_subscription\("):
        await anext(subscription)
    with pytest.raises(AttributeError, match=r"`await` is missing .* 'poll'"):
        subscription.poll(print)
    publication: Any = aeron.add_exclusive_publication("aeron:ipc", STREAM_ID)
    with pytest.raises(AttributeError, match=r"`publication = await aeron.add_exclusive_pub"):
        publication.offer(b"x")
    archive: Any = LocalArchive.open(aeron, ArchiveContext(directory=str(tmp_path)))
    with pytest.raises(AttributeError, match=r"`archive = await LocalArchive.open\(\.\.\.\)`"):
        archive.replay(0)
    for each in (subscription, publication, archive):
        with pytest.raises(aa.ConfigurationError, match=r"`await` is missing before .* could wait"):
            aa.why(each)
        each.close()


@pytest.mark.parametrize("session_id", ["x", None, 1.5, True, 2**31])
async def test_a_session_id_is_a_whole_number(
    subscription: aa.Subscription, session_id: Any
) -> None:
    """It returned None, as if no such session were there."""
    with pytest.raises(aa.ConfigurationError, match=r"session_id=.* signed 32 bits"):
        subscription.image_by_session_id(session_id)


async def test_what_was_opened_already_says_what_to_keep(aeron: aa.Aeron) -> None:
    """It spoke of a coroutine that nobody had written."""
    opening = aeron.add_subscription("aeron:ipc", STREAM_ID)
    async with opening as subscription:
        pattern = r"already awaited, .*`subscription = await aeron.add_subscription\("
        with pytest.raises(RuntimeError, match=pattern):
            await opening
        with pytest.raises(RuntimeError, match=pattern):
            async with opening:
                pytest.fail("it was entered twice")
        with pytest.raises(RuntimeError, match=pattern):
            await asyncio.create_task(opening)
        # That `await` is missing would be wrong here.
        with pytest.raises(aa.ConfigurationError, match=pattern):
            aa.why(opening)  # type: ignore[arg-type]
        with pytest.raises(AttributeError, match=pattern):
            opening.poll  # type: ignore[attr-defined] # noqa: B018 - what is told
        with pytest.raises(TypeError, match=pattern):
            aiter(opening)  # type: ignore[arg-type]
        assert not subscription.is_closed
