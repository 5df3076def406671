"""Bars of the recorded trades, made by Spark from the files of the archive.

    python -m examples.exchange.bars FOLDER [--seconds N] [--out FILE]

A bar has the first, highest, lowest and last price of an interval, and what was traded in it. The
archive may be running: what is recorded by now is read. The report is one HTML file without a
script.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from aeron_async.archive.durable.records import HEADER_LENGTH
from examples.exchange.wiring import TRADES_STREAM

try:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as sql

    import aeron_async.spark
except ImportError:
    sys.exit("bars need Spark: make exchange-bars, or pip install 'aeron-async[spark]'")

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

__all__ = ["Bar", "bars", "page"]

SBE_HEADER_LENGTH: Final = 8
TRADE: Final = (
    f"struct:<{HEADER_LENGTH + SBE_HEADER_LENGTH}x,"
    "number:q,time_ns:q,symbol:8s,taker:B,price:q,quantity:q"
)
"""A record of the log of trades: two headers, and the block of a `Trade`; see `messages.xml`."""
TIME: Final = f"payload:{HEADER_LENGTH + SBE_HEADER_LENGTH + 8}:int64:ns"
BARS_SHOWN: Final = 120
WIDTH, HEIGHT = 720, 200
STYLE: Final = """
:root { color-scheme: light dark; font: 15px system-ui, sans-serif; }
body { max-width: 48rem; margin: 1rem auto; padding: 0 1rem; }
svg { width: 100%; height: auto; } table { border-collapse: collapse; width: 100%; }
td, th { text-align: right; padding: .1rem .5rem; font-variant-numeric: tabular-nums; }
.up { fill: #0b8a4a; stroke: #0b8a4a; } .down { fill: #c8372d; stroke: #c8372d; }
"""


class Bar(NamedTuple):
    """One interval of one symbol; prices in cents."""

    symbol: str
    begin_s: int
    open: int
    high: int
    low: int
    close: int
    volume: int
    trades: int


def bars(spark: SparkSession, archive: str, seconds: int) -> DataFrame:
    """Return a bar for each symbol and each interval in which it was traded."""
    recorded = spark.read.format("aeron_archive").options(
        decoder=TRADE, streamId=str(TRADES_STREAM), timestampFrom=TIME
    )
    # The first record of each process that appended has its name, and no trade.
    trades = recorded.load(archive).where("decode_error is null")
    interval = sql.window("timestamp", f"{seconds} seconds")
    return (
        trades.groupBy("symbol", interval)
        .agg(
            sql.min_by("price", "number").alias("open"),
            sql.max("price").alias("high"),
            sql.min("price").alias("low"),
            sql.max_by("price", "number").alias("close"),
            sql.sum("quantity").alias("volume"),
            sql.count("*").alias("trades"),
        )
        .select(
            "symbol",
            sql.unix_timestamp("window.start").alias("begin_s"),
            "open",
            "high",
            "low",
            "close",
            "volume",
            "trades",
        )
        .orderBy("symbol", "begin_s")
    )


def page(found: Iterable[Bar], seconds: int) -> str:
    """Return a report as HTML."""
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>Bars</title><style>{STYLE}</style><h1>Bars of {seconds} s</h1>",
    ]
    for symbol, each in groupby(found, key=lambda bar: bar.symbol):
        of_symbol = list(each)
        shown = of_symbol[-BARS_SHOWN:]
        volume = sum(bar.volume for bar in of_symbol)
        trades = sum(bar.trades for bar in of_symbol)
        parts += [
            f"<h2>{escape(symbol)}</h2>",
            f"<p>{trades:,} trades of {volume:,} pieces in {len(of_symbol):,} bars.</p>",
            candles(symbol, shown),
            table(symbol, shown[-10:]),
        ]
    if len(parts) == 3:  # noqa: PLR2004 - the head only
        parts.append("<p>Nothing was traded yet.</p>")
    return "\n".join(parts) + "\n"


def candles(symbol: str, shown: list[Bar]) -> str:
    """Return the bars as a picture: a line from low to high, and a box from open to close."""
    low, high = min(bar.low for bar in shown), max(bar.high for bar in shown)
    step = WIDTH / max(len(shown), 20)

    def y(price: int) -> float:
        return 5 + (HEIGHT - 10) * (high - price) / max(high - low, 1)

    drawn = []
    for at, bar in enumerate(shown):
        x = step * (at + 0.5)
        kind = "up" if bar.close >= bar.open else "down"
        top, bottom = y(max(bar.open, bar.close)), y(min(bar.open, bar.close))
        drawn.append(
            f"<g class='{kind}'><line x1='{x:.1f}' x2='{x:.1f}' y1='{y(bar.high):.1f}' "
            f"y2='{y(bar.low):.1f}'/><rect x='{x - step * 0.3:.1f}' y='{top:.1f}' "
            f"width='{step * 0.6:.1f}' height='{max(bottom - top, 1):.1f}'/></g>"
        )
    label = f"{escape(symbol)}: prices between {cents(low)} and {cents(high)}"
    return (
        f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='{label}'>"
        f"{''.join(drawn)}</svg>"
    )


def table(symbol: str, shown: list[Bar]) -> str:
    """Return the bars as a table."""
    rows = "".join(
        f"<tr><td>{datetime.fromtimestamp(bar.begin_s, UTC):%H:%M:%S}</td>"
        + "".join(f"<td>{cents(price)}</td>" for price in bar[2:6])
        + f"<td>{bar.volume:,}</td></tr>"
        for bar in shown
    )
    heads = "".join(
        f"<th scope='col'>{each}</th>"
        for each in ("Time (UTC)", "Open", "High", "Low", "Close", "Volume")
    )
    return (
        f"<table><caption>The last bars of {escape(symbol)}</caption><tr>{heads}</tr>{rows}</table>"
    )


def cents(price: int) -> str:
    """Return a price as it is written."""
    return f"{price / 100:.2f}"


def main() -> int:
    """Make bars of what a folder has recorded; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.exchange.bars", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the exchange")
    parser.add_argument("--seconds", type=int, default=5, help="length of a bar")
    parser.add_argument("--out", type=Path, help="the report; bars.html in the folder otherwise")
    given = parser.parse_args()
    archive = given.folder / "archive"
    if not archive.is_dir():
        print(f"{given.folder} has no recordings: start make exchange FOLDER={given.folder}")
        return 1
    found = collected(archive, given.seconds)
    out = given.out or given.folder / "bars.html"
    out.write_text(page(found, given.seconds))
    print(f"{sum(bar.trades for bar in found)} trades in {len(found)} bars: {out}")
    return 0


def collected(archive: Path, seconds: int) -> list[Bar]:
    """Start Spark, make bars, and end it."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    aeron_async.spark.ensure_java()
    aeron_async.spark.ensure_interpreter()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    try:
        spark.sparkContext.setLogLevel("ERROR")
        aeron_async.spark.register(spark)
        return [Bar(*row) for row in bars(spark, str(archive), seconds).collect()]
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
