"""Rates of a lake by DuckDB: `python examples/lake_duckdb.py /var/lake 2026-11-18`."""

from __future__ import annotations

import sys
from typing import Any

import duckdb

from aeron_async.spark.lake import TableSnapshot

BUSIEST = """
    SELECT stream_id, date_trunc('second', event_time) AS second, count(*) AS messages
    FROM quotes
    GROUP BY ALL
    ORDER BY messages DESC, second
    LIMIT 3
"""


def busiest_seconds(lake: str, day: str) -> list[tuple[Any, ...]]:
    """Return stream, second and number of messages of the busiest seconds of a day."""
    # One version of the table: what is written from now on does not change the result.
    quotes = TableSnapshot.open(f"{lake}/silver/quotes")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("quotes", quotes.arrow(f"date = '{day}'"))
        return connection.execute(BUSIEST).fetchall()


if __name__ == "__main__":
    if not sys.argv[2:]:
        sys.exit(__doc__)
    for stream_id, second, messages in busiest_seconds(*sys.argv[1:3]):
        print(f"stream {stream_id} at {second:%H:%M:%S}: {messages} messages")
