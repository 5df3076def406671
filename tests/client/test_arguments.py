"""What callers hand in is judged before the driver hears of it."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async.archive import RemoteArchive
from aeron_async.client.arguments import check_stream_id, check_timeout
from aeron_async.protocol.channel_uri import parse_channel
from tests.drivers import STARTING, embedded_only

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

STREAM_ID = 1001
NO_TIMEOUTS: list[Any] = [
    "1",
    -1,
    -0.5,
    float("nan"),
    True,
    False,
    [],
    b"1",
    bytearray(b"1"),
    1j,
    10**400,
    10**5_000,
]


class Whole:
    def __index__(self) -> int:
        return 7


def test_a_stream_id_is_any_whole_number_of_32_bits() -> None:
    assert check_stream_id(Whole()) == 7
    wrong: list[Any] = [1001.0, "1001", None, 2**31, -(2**31) - 1, True, 10**5_000]
    for stream_id in wrong:
        with pytest.raises(aa.ConfigurationError, match="signed 32 bits"):
            check_stream_id(stream_id)


def test_a_timeout_is_not_negative() -> None:
    assert check_timeout(None) is None
    assert check_timeout(0) == 0
    assert check_timeout(float("inf")) is None
    for timeout in NO_TIMEOUTS:
        with pytest.raises(aa.ConfigurationError, match="0 or more seconds"):
            check_timeout(timeout)


@pytest.mark.parametrize("timeout", NO_TIMEOUTS, ids=range(len(NO_TIMEOUTS)))
async def test_a_timeout_that_is_none_is_refused_whether_there_is_room_or_not(
    aeron: aa.Aeron, publication: aa.Publication, subscription: aa.Subscription, timeout: Any
) -> None:
    """While there was room, nothing looked at the timeout."""
    exclusive = await aeron.add_exclusive_publication(publication.channel, STREAM_ID)
    for each in (publication, exclusive):
        await each.wait_connected(5)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: publication.offer(b"x", timeout=timeout),
        lambda: publication.offer_many([], timeout=timeout),
        lambda: publication.offer_many([b"x"], timeout=timeout),
        lambda: publication.claim(1, timeout=timeout),
        lambda: publication.wait_connected(timeout),
        lambda: publication.drain(timeout),
        lambda: exclusive.offer(b"x", timeout=timeout),
        lambda: exclusive.append_padding(32, timeout=timeout),
        lambda: exclusive.offer_block(b"", timeout=timeout),
        lambda: subscription.wait_connected(timeout),
    ]
    before = publication.position, exclusive.position
    for call in calls:
        with pytest.raises(aa.ConfigurationError, match="0 or more seconds"):
            await call()
    assert (publication.position, exclusive.position) == before
    with pytest.raises(aa.ConfigurationError, match="seconds"):
        RemoteArchive.connect(aeron, control_channel="aeron:ipc", timeout=timeout)
    seconds: list[Any] = [None, 0, 5, 0.5, float("inf"), 1e300, Fraction(1, 2)]
    for fine in seconds:
        await publication.offer(b"x", timeout=fine)


def test_a_channel_is_text_or_a_value() -> None:
    uri = parse_channel("aeron:udp?endpoint=127.0.0.1:20121")
    assert parse_channel(uri) is uri
    with pytest.raises(aa.ConfigurationError, match="must be text"):
        parse_channel(5)


async def test_a_wrong_argument_costs_nobody_else_anything(
    aeron: aa.Aeron, driver: aa.MediaDriver, channel: str
) -> None:
    wrong: Any = 1001.0
    for add in (
        aeron.add_publication,
        aeron.add_exclusive_publication,
        aeron.add_subscription,
    ):
        with pytest.raises(aa.ConfigurationError):
            await add(channel, wrong)
    typo: Any = "wiat"
    with pytest.raises(aa.ConfigurationError, match="'wait' or 'raise'"):
        await aeron.add_publication(channel, STREAM_ID, on_disconnected=typo)
    publication = await aeron.add_publication(channel, STREAM_ID)
    with pytest.raises(aa.ConfigurationError, match="timeout=-1"):
        await publication.offer(b"x", timeout=-1)
    assert not driver.is_closed


@embedded_only(STARTING)
async def test_what_is_closed_is_not_called_unstarted(driver: aa.MediaDriver) -> None:
    aeron = aa.Aeron.connect(driver)
    with pytest.raises(aa.ClosedError, match="has not been started"):
        _ = aeron.client_id
    await aeron.start()
    await aeron.aclose()
    with pytest.raises(aa.ClosedError, match="client is closed"):
        _ = aeron.client_id
    for add in (aeron.add_publication, aeron.add_exclusive_publication, aeron.add_subscription):
        with pytest.raises(aa.ClosedError, match="client is closed"):
            add("aeron:ipc", STREAM_ID)
    await driver.aclose()
    with pytest.raises(aa.ClosedError, match="driver is closed"):
        await aa.Aeron.connect(driver).start()


async def test_arguments_are_checked_at_the_call_before_anything_waits(
    aeron: aa.Aeron, subscription: aa.Subscription
) -> None:
    """Likewise the others: nothing has been awaited where these are raised."""
    wrong: Any = 5
    for call in (
        lambda: aeron.add_publication("aeron:ipc", wrong, on_error=wrong),
        lambda: aeron.add_publication(wrong, STREAM_ID),
        lambda: aeron.add_exclusive_publication("aeron:ipc", 2**31),
        lambda: aeron.add_exclusive_publication("aeron:ipc", 1, handshake_length=-1),
        lambda: aeron.add_exclusive_publication("aeron:ipc", 1, handshake_length=True),
        lambda: aeron.add_subscription("aeron:ipc", STREAM_ID, on_available_image=wrong),
        lambda: aeron.add_subscription("aeron:ipc", STREAM_ID, on_unavailable_image=wrong),
        lambda: subscription.batches(0),
        lambda: subscription.batches(True),
        lambda: RemoteArchive.connect(aeron, control_channel="aeron:ipc", control_stream_id=2**31),
    ):
        with pytest.raises(aa.ConfigurationError):
            call()
