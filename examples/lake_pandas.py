"""Latencies of a lake by pandas: `python examples/lake_pandas.py /var/lake 2026-11-18`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from aeron_async.spark.lake import TableSnapshot

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ["stream_id", "sent_ns", "timestamp_ns"]


def latencies(lake: str, day: str) -> pd.DataFrame:
    """Return percentiles of the time from sending to recording of each stream, in microseconds."""
    quotes = TableSnapshot.open(f"{lake}/silver/quotes")
    # Only these columns of the files of that day are read.
    frame = quotes.arrow(f"date = '{day}'").to_table(columns=COLUMNS).to_pandas()
    frame["latency_us"] = (frame["timestamp_ns"] - frame["sent_ns"]) / 1_000
    by_stream = frame.groupby("stream_id")["latency_us"]
    return by_stream.agg(p50="median", p99=lambda found: found.quantile(0.99), most="max")


if __name__ == "__main__":
    if not sys.argv[2:]:
        sys.exit(__doc__)
    for stream_id, (p50, p99, most) in latencies(*sys.argv[1:3]).iterrows():
        print(f"stream {stream_id}: p50 {p50:.0f}, p99 {p99:.0f}, most {most:.0f} us")
