"""Bars of the trades that the exchange of the examples has recorded."""

from __future__ import annotations

import asyncio
import random
import sys
from itertools import groupby
from typing import TYPE_CHECKING

import aeron_async as aa
from aeron_async.archive import ArchiveContext, DurableStream, LocalArchive
from aeron_async.spark import register
from examples.exchange import bars
from examples.exchange.bars import Bar
from examples.exchange.messages import TRADE, Trade
from examples.exchange.wiring import TRADES_STREAM

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

CHANNEL = "aeron:ipc?alias=trades|term-length=64k"
SECONDS = 5
NS = 10**9


def made(count: int) -> list[Trade]:
    """Return trades of two symbols, in some twelve intervals."""
    chance = random.Random(7)
    begin_ns = 1_800_000_000 * NS
    return [
        Trade(
            number,
            begin_ns + number * 150_000_000,
            chance.choice(["AERN", "BOLT"]),
            chance.choice(["BUY", "SELL"]),
            chance.randrange(9_900, 10_100),
            chance.randrange(1, 100),
        )
        for number in range(1, count + 1)
    ]


def reckoned(trades: list[Trade]) -> list[Bar]:
    """Return the bars, made without Spark."""

    def place(trade: Trade) -> tuple[str, int]:
        return trade.symbol, trade.time_ns // NS // SECONDS * SECONDS

    found = []
    for (symbol, begin_s), each in groupby(sorted(trades, key=place), key=place):
        of_bar = list(each)
        prices = [trade.price for trade in of_bar]
        volume = sum(trade.quantity for trade in of_bar)
        found.append(
            Bar(
                symbol,
                begin_s,
                prices[0],
                max(prices),
                min(prices),
                prices[-1],
                volume,
                len(of_bar),
            )
        )
    return found


async def record(folder: Path, trades: list[Trade]) -> None:
    """Record trades by two producers, one after the other, as after a restart."""
    context = ArchiveContext(directory=str(folder), low_storage_threshold=0)
    async with (
        aa.Aeron.connect() as aeron,
        LocalArchive.open(aeron, context) as archive,
        DurableStream(archive, aeron, CHANNEL, TRADES_STREAM) as log,
    ):
        middle = len(trades) // 2
        for part in (trades[:middle], trades[middle:]):
            async with log.produce("market") as producer:
                for each in part:
                    assert await producer.append(TRADE.encode(each)) == each.number


def test_bars_are_those_of_all_trades(spark: SparkSession, tmp_path: Path) -> None:
    trades = made(400)
    asyncio.run(record(tmp_path, trades))
    register(spark)
    found = [Bar(*row) for row in bars.bars(spark, str(tmp_path), SECONDS).collect()]
    assert found == reckoned(trades)


def test_the_report_is_a_page_without_foreign_markup() -> None:
    assert "Nothing was traded" in bars.page([], SECONDS)
    hostile = "<script>"
    text = bars.page([*reckoned(made(50)), Bar(hostile, 0, 1, 2, 1, 1, 5, 1)], SECONDS)
    assert hostile not in text
    assert text.count("<svg") == 3
    assert "AERN: prices between" in text


def test_a_folder_without_recordings_is_said_to_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bars", str(tmp_path)])
    assert bars.main() == 1
    assert "has no recordings" in capsys.readouterr().out
