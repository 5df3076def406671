"""What was lost, and what came late: a notebook, cell by cell, on a lake.

`jupytext --to ipynb examples/lake_outliers.py` makes a notebook of it; it also runs as it is:
`python examples/lake_outliers.py /var/lake 2026-11-18`.
"""

# %% One version of the quotes, and the day to look at.
from __future__ import annotations

import sys

import duckdb

from aeron_async.spark.lake import TableSnapshot

# In a notebook, write them here.
lake, day = sys.argv[1:3]
where = f"date = '{day}'"
quotes = TableSnapshot.open(f"{lake}/silver/quotes")
connection = duckdb.connect()
connection.register("quotes", quotes.arrow(where))
print(f"version {quotes.version}, {len(quotes.paths(where))} files of {day}")

# %% Numbers that were never recorded: the field `sequence` counts the messages.
losses = connection.execute("""
    SELECT stream_id, sequence, sequence - before - 1 AS missing
    FROM (
        SELECT *, lag(sequence) OVER (PARTITION BY recording_id ORDER BY position) AS before
        FROM quotes
    )
    WHERE missing > 0
    ORDER BY missing DESC, sequence
    LIMIT 10
""").fetchall()
for stream_id, sequence, missing in losses:
    print(f"stream {stream_id}: {missing} missing before {sequence}")

# %% Messages that took ten times as long as half of them, the latest first.
late = connection.execute("""
    WITH timed AS (SELECT *, (timestamp_ns - sent_ns) // 1000 AS latency_us FROM quotes),
        usual AS (SELECT stream_id, median(latency_us) AS usual_us FROM timed GROUP BY ALL)
    SELECT stream_id, sequence, latency_us, usual_us
    FROM timed JOIN usual USING (stream_id)
    WHERE latency_us > 10 * usual_us
    ORDER BY latency_us DESC, sequence
    LIMIT 10
""").fetchall()
for stream_id, sequence, latency_us, usual_us in late:
    print(f"stream {stream_id}: {sequence} took {latency_us} us, half of them {usual_us:.0f}")
