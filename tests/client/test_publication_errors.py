"""What a publication hears of a receiver that rejects it: who, from where, and why."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from tests.drivers import both_drivers

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = both_drivers

STREAM_ID = 1001


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def rejected(
    aeron: aa.Aeron, publication: aa.Publication, subscription: aa.Subscription, reason: str
) -> None:
    """Have the stream joined, and then rejected."""
    await publication.wait_connected(timeout=5)
    await subscription.wait_connected(timeout=5)
    await subscription.images[0].reject(reason)
    await until(lambda: publication.last_error is not None)
    await asyncio.sleep(0)


async def test_the_handler_hears_everything_that_is_known(aeron: aa.Aeron, channel: str) -> None:
    heard: list[aa.PublicationErrorFrame] = []
    subscription = await aeron.add_subscription(f"{channel}|gtag=101", STREAM_ID)
    publication = await aeron.add_publication(channel, STREAM_ID, on_error=heard.append)
    await rejected(aeron, publication, subscription, "not wanted")
    (error,) = heard
    assert error.code == aa.ErrorCode.IMAGE_REJECTED
    assert error.message == "not wanted"
    assert (error.session_id, error.stream_id) == (publication.session_id, STREAM_ID)
    assert error.group_tag == 101
    assert error.source_address == subscription.local_address
    assert error.registration_id > 0
    assert error.destination_registration_id is None
    assert publication.last_error == "a receiver rejected the stream with code 13: not wanted"


async def test_a_receiver_without_a_tag_tells_none(aeron: aa.Aeron, channel: str) -> None:
    heard: list[aa.PublicationErrorFrame] = []
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_exclusive_publication(channel, STREAM_ID, on_error=heard.append)
    await rejected(aeron, publication, subscription, "")
    assert [(each.group_tag, each.message) for each in heard] == [(None, "")]


async def test_a_destination_that_was_added_is_named(aeron: aa.Aeron, channel: str) -> None:
    heard: list[aa.PublicationErrorFrame] = []
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication(
        "aeron:udp?control-mode=manual", STREAM_ID, on_error=heard.append
    )
    destination_id = await publication.add_destination(channel)
    await rejected(aeron, publication, subscription, "not wanted")
    assert [each.destination_registration_id for each in heard] == [destination_id]


async def test_a_destination_that_came_by_itself_has_no_name(
    aeron: aa.Aeron, unused_udp_port: int
) -> None:
    heard: list[aa.PublicationErrorFrame] = []
    control = f"control=127.0.0.1:{unused_udp_port}|control-mode=dynamic"
    subscription = await aeron.add_subscription(
        f"aeron:udp?endpoint=127.0.0.1:0|{control}", STREAM_ID
    )
    publication = await aeron.add_publication(
        f"aeron:udp?{control}", STREAM_ID, on_error=heard.append
    )
    await rejected(aeron, publication, subscription, "not wanted")
    assert [each.destination_registration_id for each in heard] == [None]


async def test_all_who_share_a_publication_hear_it_each_with_its_own_id(
    aeron: aa.Aeron, channel: str
) -> None:
    heard: list[aa.PublicationErrorFrame] = []
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    one, other = [
        await aeron.add_publication(channel, STREAM_ID, on_error=heard.append) for _ in range(2)
    ]
    await rejected(aeron, one, subscription, "not wanted")
    assert one.last_error == other.last_error
    first, second = heard
    assert first.registration_id != second.registration_id


async def test_a_handler_that_fails_is_reported_and_stops_nobody(
    aeron: aa.Aeron, channel: str
) -> None:
    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, found: reported.append(found))

    def fail(error: aa.PublicationErrorFrame) -> None:
        raise ValueError(error.message)

    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication(channel, STREAM_ID, on_error=fail)
    await rejected(aeron, publication, subscription, "not wanted")
    loop.set_exception_handler(None)
    (found,) = reported
    assert "error handler" in found["message"]
    assert str(found["exception"]) == "not wanted"
    assert not aeron.is_closed


async def test_a_handler_may_close_the_publication_and_none_is_called_after(
    aeron: aa.Aeron, channel: str
) -> None:
    heard: list[str] = []
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    one = await aeron.add_publication(channel, STREAM_ID, on_error=lambda _: close())
    other = await aeron.add_publication(
        channel, STREAM_ID, on_error=lambda error: heard.append(error.message)
    )

    def close() -> None:
        one.close()
        other.close()

    await rejected(aeron, one, subscription, "not wanted")
    assert one.is_closed
    assert other.is_closed
    assert heard == []


async def test_what_cannot_be_called_is_no_handler(aeron: aa.Aeron, channel: str) -> None:
    wrong: Any = "print"
    with pytest.raises(aa.ConfigurationError, match="on_error='print'"):
        await aeron.add_publication(channel, STREAM_ID, on_error=wrong)


async def test_the_words_of_a_receiver_are_text_and_no_commands(
    aeron: aa.Aeron, channel: str
) -> None:
    """What an ERR frame says moves no cursor where it is printed."""
    heard: list[aa.PublicationErrorFrame] = []
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication(channel, STREAM_ID, on_error=heard.append)
    await rejected(aeron, publication, subscription, "no \x1b[2J\x07\u202e[/x]")
    (error,) = heard
    assert error.message == r"no \x1b[2J\x07\u202e[/x]"
    assert publication.last_error == (
        r"a receiver rejected the stream with code 13: no \x1b[2J\x07\u202e[/x]"
    )
