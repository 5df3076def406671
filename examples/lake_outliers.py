# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     notebook_metadata_filter: -jupytext.text_representation
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# What was lost, and what came late, on a day of a lake: a notebook, cell by cell.
#
# As a script: `python examples/lake_outliers.py first-lake/lake 2026-11-18`

# %% The lake, and the day to look at: without one it is the last. In a notebook, write them here.
import sys

import duckdb

from aeron_async.spark.lake import TableSnapshot

given = [] if "ipykernel" in sys.modules else sys.argv[1:]
lake = given[0] if given else "first-lake/lake"
quotes = TableSnapshot.open(f"{lake}/silver/quotes")
day = given[1] if given[1:] else max(quotes.files().column("partition.date").to_pylist())

# %% What is queried from here on is one version of the table, whatever is written meanwhile.
where = f"date = '{day}'"
connection = duckdb.connect()
connection.register("quotes", quotes.arrow(where))
print(f"version {quotes.version}, {len(quotes.paths(where))} files of {day}")

# %% Numbers that are missing: lost, never sent, or of a message that no decoder could read.
losses = connection.execute("""
    SELECT stream_id, sequence, sequence - before - 1 AS missing
    FROM (
        SELECT *, lag(sequence) OVER (PARTITION BY recording_id ORDER BY position) AS before
        FROM quotes
    )
    WHERE missing > 0 ORDER BY missing DESC, sequence LIMIT 10
""").fetchall()
for stream_id, sequence, missing in losses:
    print(f"stream {stream_id}: {missing} missing before {sequence}")

# %% Messages that took more than ten times the median, the slowest first.
late = connection.execute("""
    WITH timed AS (SELECT *, (timestamp_ns - sent_ns) // 1000 AS latency_us FROM quotes),
        usual AS (SELECT stream_id, median(latency_us) AS usual_us FROM timed GROUP BY ALL)
    SELECT stream_id, sequence, latency_us, usual_us
    FROM timed JOIN usual USING (stream_id)
    WHERE latency_us > 10 * usual_us ORDER BY latency_us DESC, sequence LIMIT 10
""").fetchall()
for stream_id, sequence, latency_us, usual_us in late:
    print(f"stream {stream_id}: message {sequence} took {latency_us} us, the median {usual_us:.0f}")
