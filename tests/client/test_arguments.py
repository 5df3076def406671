"""What callers hand in is judged before the driver hears of it."""

from __future__ import annotations

from typing import Any

import pytest

import aeron_async as aa
from aeron_async.client.arguments import check_stream_id, check_timeout, parse_channel

STREAM_ID = 1001


class Whole:
    def __index__(self) -> int:
        return 7


def test_a_stream_id_is_any_whole_number_of_32_bits() -> None:
    assert check_stream_id(Whole()) == 7
    assert type(check_stream_id(True)) is int
    wrong: list[Any] = [1001.0, "1001", None, 2**31, -(2**31) - 1]
    for stream_id in wrong:
        with pytest.raises(aa.ConfigurationError, match="signed 32 bits"):
            check_stream_id(stream_id)


def test_a_timeout_is_not_negative() -> None:
    assert check_timeout(None) is None
    assert check_timeout(0) == 0
    for timeout in (-1, float("nan")):
        with pytest.raises(aa.ConfigurationError, match="0 or more seconds"):
            check_timeout(timeout)


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


async def test_what_is_closed_is_not_called_unstarted(driver: aa.MediaDriver) -> None:
    aeron = aa.Aeron.connect(driver)
    with pytest.raises(aa.ClosedError, match="has not been started"):
        _ = aeron.client_id
    await aeron.start()
    await aeron.aclose()
    with pytest.raises(aa.ClosedError, match="client is closed"):
        _ = aeron.client_id
    await driver.aclose()
    with pytest.raises(aa.ClosedError, match="driver is closed"):
        await aa.Aeron.connect(driver).start()
