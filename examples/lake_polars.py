"""Symbols of a lake by Polars: `python examples/lake_polars.py /var/lake 2026-11-18`."""

from __future__ import annotations

import sys

import polars as pl

from aeron_async.spark.lake import TableSnapshot


def symbols(lake: str, day: str) -> pl.DataFrame:
    """Return how many messages each symbol had on a day, and its first and last number."""
    quotes = TableSnapshot.open(f"{lake}/silver/quotes").polars(f"date = '{day}'")
    found = quotes.group_by("symbol").agg(
        pl.len().alias("messages"),
        pl.col("sequence").min().alias("first"),
        pl.col("sequence").max().alias("last"),
    )
    return found.sort("messages", "symbol", descending=[True, False]).collect()


if __name__ == "__main__":
    if not sys.argv[2:]:
        sys.exit(__doc__)
    for row in symbols(*sys.argv[1:3]).iter_rows(named=True):
        print(f"{row['symbol']}: {row['messages']} messages, {row['first']} to {row['last']}")
