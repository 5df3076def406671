"""What goes in comes out: every shape of message, through real sockets."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

import pytest

import aeron_async as aa

STREAM_ID = 1001


async def take(source: aa.Subscription | aa.Image, count: int) -> list[aa.Message]:
    found: list[aa.Message] = []
    async for message in source:
        found.append(message)
        if len(found) == count:
            break
    return found


def message_of(number: int, length: int) -> bytes:
    return number.to_bytes(4, "little") + bytes((31 * number + 7 * j) % 256 for j in range(length))


async def test_a_message_arrives_with_all_that_is_known_of_it(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    position = await publication.offer(b"hello", reserved_value=-42)
    (message,) = await take(subscription, 1)
    assert bytes(message) == message.data == b"hello"
    assert len(message) == 5
    assert message.position == position == 64
    assert message.session_id == publication.session_id == message.image.session_id
    assert message.stream_id == STREAM_ID
    assert message.reserved_value == -42
    assert "5 bytes at position 64" in repr(message)
    assert message.image.source_identity == publication.local_address.replace(
        "0.0.0.0", "127.0.0.1"
    )


@pytest.mark.parametrize("length", [0, 1, 31, 32, 1376, 1377, 2752, 8192])
async def test_every_length_up_to_the_longest_arrives_whole(
    publication: aa.Publication, subscription: aa.Subscription, length: int
) -> None:
    data = bytes(islice(((7 * j) % 256 for j in range(length)), length))
    await publication.offer(data)
    (message,) = await take(subscription, 1)
    assert message.data == data
    assert message.position == publication.position


async def test_many_messages_over_many_terms_arrive_once_in_order(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    expected = [message_of(number, number * 37 % 3000) for number in range(2_000)]
    sending = asyncio.create_task(publication.offer_many(expected))
    received = await take(subscription, len(expected))
    assert [message.data for message in received] == expected
    assert await sending == received[-1].position
    assert publication.position > 20 * publication.term_length


async def test_a_message_may_be_gathered_from_several_buffers(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer([b"ab", bytearray(b"cd"), memoryview(b"ef")])
    assert isinstance(publication.try_offer([b"x" * 2000, b"y" * 2000]), int)
    first, second = await take(subscription, 2)
    assert first.data == b"abcdef"
    assert second.data == b"x" * 2000 + b"y" * 2000


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("text", r"a message is bytes.*not 'text': encode it, for example with \.encode\(\)"),
        (5, "a message is bytes, another buffer, or a list of these, not 5$"),
        (("a", "tuple"), "item 0 of the message: a message is bytes.* not 'a': encode it"),
        ([b"a", "b"], "item 1 of the message: a message is bytes.* not 'b': encode it"),
    ],
)
async def test_what_is_no_message_is_told_what_one_is(
    publication: aa.Publication, message: Any, says: str
) -> None:
    position = publication.position
    with pytest.raises(TypeError, match=says) as caught:
        await publication.offer(message)
    assert caught.value.__suppress_context__
    with pytest.raises(TypeError, match=says):
        publication.try_offer(message)
    assert publication.position == position


async def test_a_message_too_long_is_refused_by_name_and_nothing_is_lost(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    with pytest.raises(aa.MessageTooLongError, match=r"8193.*8192"):
        await publication.offer(bytes(publication.max_message_length + 1))
    await publication.offer(b"next")
    (message,) = await take(subscription, 1)
    assert message.data == b"next"


async def test_a_claim_is_filled_in_place(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    async def claimed(length: int) -> aa.BufferClaim:
        return await publication.claim(length, timeout=5)

    with await claimed(5) as claim:
        claim.data[:] = b"claim"
        claim.reserved_value = 9
        assert claim.reserved_value == 9
        for value in (-(2**63) - 1, 2**63):
            with pytest.raises(aa.ConfigurationError, match=rf"{value}.*-9223372036854775808 to"):
                claim.reserved_value = value
        assert claim.reserved_value == 9
    with pytest.raises(ZeroDivisionError), await claimed(7):
        _ = 1 / 0
    claim = await claimed(3)
    claim.data[:] = b"two"
    assert claim.commit() == claim.position == publication.position
    with pytest.raises(aa.ClosedError):
        claim.abort()
    with await claimed(3) as claim:
        claim.abort()
    first, second = await take(subscription, 2)
    assert (first.data, first.reserved_value) == (b"claim", 9)
    assert second.data == b"two"


async def test_a_task_that_only_claims_gives_others_their_turn(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    others: list[int] = []

    async def other() -> None:
        while True:
            others.append(publication.position)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await publication.wait_connected(5)
    others.clear()
    count = 0
    while not others:
        claim = await publication.claim(1, timeout=5)
        claim.commit()
        subscription.poll(lambda *_: None)
        count += 1
        assert count <= 2_048, "more than a turn of the loop"
    task.cancel()


async def test_the_error_of_a_claim_that_waited_in_vain_names_the_claim(
    aeron: aa.Aeron,
) -> None:
    unheard = await aeron.add_publication("aeron:ipc", 77)
    with pytest.raises(aa.OfferTimeoutError, match=r"^claim waited 0\.0"):
        await unheard.claim(1_000, timeout=0.01)
    with pytest.raises(aa.OfferTimeoutError, match=r"^offer waited 0\.0"):
        await unheard.offer(bytes(1_000), timeout=0.01)


async def test_a_claim_longer_than_a_frame_is_refused(publication: aa.Publication) -> None:
    with pytest.raises(aa.MessageTooLongError):
        publication.try_claim(publication.max_payload_length + 1)


async def test_batches_hold_what_has_arrived(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer_many([b"%d" % number for number in range(100)])
    received: list[bytes] = []
    async for batch in subscription.batches(max_messages=16):
        assert 1 <= len(batch) <= 16
        received += [message.data for message in batch]
        if len(received) == 100:
            break
    assert received == [b"%d" % number for number in range(100)]
    assert subscription.images[0].position < publication.position


async def test_poll_hands_out_fragments_as_views_of_the_log(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer(bytes(range(200)) * 10, reserved_value=5)
    fragments: list[bytes] = []
    headers: list[tuple[bool, bool, int, int]] = []

    def handler(payload: memoryview, header: aa.FragmentHeader) -> None:
        fragments.append(bytes(payload))
        headers.append((header.is_begin, header.is_end, header.position, header.reserved_value))
        assert header.image is subscription.images[0]

    while len(fragments) < 2:
        subscription.poll(handler, fragment_limit=1)
        await asyncio.sleep(0)
    assert b"".join(fragments) == bytes(range(200)) * 10
    assert [each[:2] for each in headers] == [(True, False), (False, True)]
    assert headers[-1][2:] == (publication.position, 5)
    assert subscription.images[0].position == publication.position


async def test_a_handler_that_raises_loses_its_own_fragment_only(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer_many([b"a", b"b"])
    seen: list[bytes] = []

    def handler(payload: memoryview, header: aa.FragmentHeader) -> None:
        seen.append(bytes(payload))
        if len(seen) == 1:
            raise ZeroDivisionError

    async def poll_until(count: int) -> None:
        while len(seen) < count:
            subscription.poll(handler)
            await asyncio.sleep(0)

    with pytest.raises(ZeroDivisionError):
        await poll_until(2)
    await poll_until(2)
    assert seen == [b"a", b"b"]


async def test_leaving_an_iteration_puts_back_what_was_read_ahead(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer_many([b"%d" % number for number in range(10)])
    assert [message.data for message in await take(subscription, 3)] == [b"0", b"1", b"2"]
    (image,) = subscription.images
    assert [message.data for message in await take(image, 3)] == [b"3", b"4", b"5"]
    polled: list[bytes] = []
    subscription.poll(lambda payload, _: polled.append(bytes(payload)), fragment_limit=2)
    assert polled == [b"6", b"7"]
    assert [message.data for message in await take(subscription, 2)] == [b"8", b"9"]


async def test_an_image_is_iterated_to_the_end_of_its_stream(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer_many([b"one", b"two"])
    (image,) = subscription.images
    assert image.end_of_stream_position is None
    publication.close()
    assert [message.data async for message in image] == [b"one", b"two"]
    assert image.is_end_of_stream
    assert image.end_of_stream_position == image.position == 128


async def test_sessions_take_turns_and_keep_apart(
    aeron: aa.Aeron, channel: str, subscription: aa.Subscription
) -> None:
    publications = [await aeron.add_exclusive_publication(channel, STREAM_ID) for _ in range(3)]
    assert len({publication.session_id for publication in publications}) == 3
    for number, publication in enumerate(publications):
        await publication.offer_many([b"%d-%d" % (number, each) for each in range(200)])
    received = await take(subscription, 600)
    for number, publication in enumerate(publications):
        of_session = [
            message.data for message in received if message.session_id == publication.session_id
        ]
        assert of_session == [b"%d-%d" % (number, each) for each in range(200)]
        image = subscription.image_by_session_id(publication.session_id)
        assert image is not None
        assert image.session_id == publication.session_id
    assert subscription.image_by_session_id(12345) is None


@pytest.mark.parametrize("is_revoked", [False, True])
async def test_an_image_says_whether_its_stream_was_taken_back(
    aeron: aa.Aeron, subscription: aa.Subscription, channel: str, *, is_revoked: bool
) -> None:
    publication = await aeron.add_exclusive_publication(channel, STREAM_ID)
    await publication.offer(b"x")
    await subscription.wait_connected(timeout=5)
    (image,) = subscription.images
    assert not image.is_publication_revoked
    await publication.aclose(revoke=is_revoked)
    async with asyncio.timeout(10):
        async for _ in image:
            pass
        while subscription.images:
            await asyncio.sleep(0.01)
    assert image.is_publication_revoked == is_revoked
