"""What the page is told: pictures of drivers as plain values for JSON, and differences of them.

Pure: functions of a picture. Foreign texts are printable and short here already, and the page shows
them as text. A number that JSON has no word for is None.

Invariant: a state has at most `STREAMS_SHOWN` streams and `EVENTS_SHOWN` events, and says how many
there are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.clock import NS_PER_MS
from aeron_async.stats import ImageStats, PublicationStats
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aeron_async.cli.monitor.history import StreamHistory
    from aeron_async.cli.top_causes import Cause
    from aeron_async.cli.top_scene import TopDriver, TopEvent, TopKey, TopRow, TopScene

__all__ = [
    "EVENTS_SHOWN",
    "STREAMS_SHOWN",
    "SourcePlace",
    "difference",
    "driver_detail",
    "state_of",
    "stream_detail",
    "stream_id_of",
]

STREAMS_SHOWN: Final = 1_000
EVENTS_SHOWN: Final = 200
SPARK_POINTS: Final = 40
ROWS_SHOWN: Final = 256
"""Most rows of a table within a page, such as receivers."""
SENTENCE: Final = 400
DIGITS: Final = 4

Plain = dict[str, Any]


@attrs.frozen
class SourcePlace:
    """What a source is called on the page: its number, and the host and path that it is at."""

    number: int
    host: str
    name: str


def text(value: object, limit: int = SHORT) -> str:
    """Return a foreign text as the page may show it."""
    return printable(value, limit)


def number(value: object) -> float | int | None:
    """Return a number with few digits; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if isinstance(value, int):
        return value
    return float(f"{value:.{DIGITS}g}")


def stream_id_of(key: TopKey, places: Mapping[str, SourcePlace]) -> str:
    """Return what the page calls a stream; other streams have other names."""
    return f"{places[key.driver].number}-{key.kind}-{key.registration_id}"


def cause_of(cause: Cause | None) -> Plain | None:
    """Return a cause of trouble."""
    if cause is None:
        return None
    return {
        "word": text(cause.word),
        "sentence": text(cause.sentence, SENTENCE),
        "remedy": text(cause.remedy, SENTENCE),
    }


# The state: what every page has, and what is sent as differences.


def state_of(
    scene: TopScene,
    places: Mapping[str, SourcePlace],
    event_count: int,
    *,
    without_history: int = 0,
) -> Plain:
    """Return a picture as the page takes it.

    Args:
        scene: The picture.
        places: What the sources are called, by the names that the picture has for them.
        event_count: How many events there were, forgotten ones included.
        without_history: How many streams have no history, because there is no room.
    """
    streams = [each for each in scene.rows if each.key.kind != "drv"]
    shown = streams[:STREAMS_SHOWN]
    rows = {stream_id_of(each.key, places): stream_of(each, places) for each in shown}
    return {
        "drivers": {
            str(places[each.name].number): driver_of(each, places) for each in scene.drivers
        },
        "streams": rows,
        "order": list(rows),
        "more_streams": len(streams) - len(shown),
        "without_history": without_history,
        "events": events_of(scene.events, places, event_count),
    }


def stream_of(row: TopRow, places: Mapping[str, SourcePlace]) -> Plain:
    """Return one line of the list of streams."""
    return {
        "kind": row.key.kind,
        "driver": str(places[row.key.driver].number),
        "stream": number(row.stream_id),
        "session": number(row.session_id),
        "channel": text(row.channel, SENTENCE),
        "state": text(row.state),
        "rate": number(row.bytes_per_second),
        "messages": number(row.messages_per_second),
        "lag": number(row.lag_bytes),
        "lag_ms": None if row.lag_ns is None else number(row.lag_ns / NS_PER_MS),
        "lost": number(row.lost_bytes),
        "losses": number(sum(row.losses_per_second.values())),
        "blocked": number(row.blocked) if row.blocked_ratio else None,
        "naks": number(row.naks_per_second),
        "cause": cause_of(row.cause),
        "causes": len(row.causes),
        "spark": [number(each) for each in row.history[-SPARK_POINTS:]],
    }


def driver_of(driver: TopDriver, places: Mapping[str, SourcePlace]) -> Plain:
    """Return the line of a driver, with what answers whether it is to blame."""
    place, span, stats = places[driver.name], driver.span, driver.stats
    word, sentence = verdict_of(driver)
    return {
        "host": text(place.host),
        "path": text(place.name, SENTENCE),
        "pid": None if stats is None else number(stats.pid),
        "version": "" if stats is None else text(stats.version),
        "source": text(driver.source),
        "failure": text(driver.failure, SENTENCE),
        "remark": text(driver.remark, SENTENCE),
        "time": driver.epoch_ns // NS_PER_MS,
        "streams": driver.stream_count,
        "blocked": driver.blocked_count,
        "trouble": driver.trouble_count,
        "in": number(driver.in_bytes_per_second),
        "out": number(driver.out_bytes_per_second),
        "loop_lag_ms": None if span is None else number(span.loop_lag_ns / NS_PER_MS),
        "measures_loop": stats is not None and stats.loop_lag_max_ns is not None,
        "drops": None if span is None or not span.stats.sockets else span.drop_count,
        "limits": None if span is None else sum(span.limits.values()),
        "verdict": word,
        "sentence": text(sentence, SENTENCE),
        "causes": [cause_of(each) for each in driver.causes],
    }


def verdict_of(driver: TopDriver) -> tuple[str, str]:
    """Return a word and a sentence that say whether the trouble is this process."""
    if driver.failure:
        return "gone", f"It does not answer: {driver.failure}"
    if driver.causes:
        return "here", f"It is this process: {driver.causes[0].sentence}"
    if driver.span is None:
        return "new", "Rates are known from the second look on."
    count = driver.trouble_count
    if count:
        streams = "1 stream is" if count == 1 else f"{count:,} streams are"
        return "elsewhere", f"This process keeps up, but {streams} in trouble: see the list."
    return "fine", "This process keeps up, and no stream is in trouble."


def events_of(
    events: Sequence[TopEvent], places: Mapping[str, SourcePlace], event_count: int
) -> list[Plain]:
    """Return the newest events, each with a number of its own."""
    first = event_count - len(events)
    start = max(0, len(events) - EVENTS_SHOWN)
    return [
        event_of(each, places, first + place) for place, each in enumerate(events[start:], start)
    ]


def event_of(event: TopEvent, places: Mapping[str, SourcePlace], event_number: int) -> Plain:
    """Return one event."""
    is_stream = event.key.kind != "drv"
    return {
        "number": event_number,
        "time": event.epoch_ns // NS_PER_MS,
        "driver": str(places[event.key.driver].number),
        "stream": stream_id_of(event.key, places) if is_stream else None,
        "what": text(event.what),
        "text": text(event.text, SENTENCE),
    }


def difference(before: Plain, now: Plain) -> Plain:
    """Return what makes the state `before` the state `now`.

    A stream that is known has only the members that have changed, and none of them is `spark`: the
    page adds the rate to it by itself, if the time of its driver has changed.
    """
    streams: Plain = {}
    for name, row in now["streams"].items():
        known = before["streams"].get(name)
        if known is None:
            streams[name] = row
            continue
        changed = {key: value for key, value in row.items() if value != known[key]}
        changed.pop("spark", None)
        if changed:
            streams[name] = changed
    newest = before["events"][-1]["number"] if before["events"] else -1
    found: Plain = {
        "drivers": {
            name: driver
            for name, driver in now["drivers"].items()
            if driver != before["drivers"].get(name)
        },
        "streams": streams,
        "gone": [name for name in before["streams"] if name not in now["streams"]],
        "events": [each for each in now["events"] if each["number"] > newest],
        "more_streams": now["more_streams"],
        "without_history": now["without_history"],
    }
    if before["order"] != now["order"]:
        found["order"] = now["order"]
    return found


# Pages of one thing.


def stream_detail(
    row: TopRow,
    scene: TopScene,
    places: Mapping[str, SourcePlace],
    history: StreamHistory | None,
) -> Plain:
    """Return the page of one stream, without its plots."""
    stats = row.stats
    found: Plain = {
        "id": stream_id_of(row.key, places),
        "row": stream_of(row, places),
        "causes": [cause_of(each) for each in row.causes],
        "facts": [],
        "receivers": [],
        "readers": [],
        "losses": [],
        "episodes": [] if history is None else [attrs.asdict(each) for each in history.episodes],
        "has_history": history is not None,
        "events": [
            {"time": each.epoch_ns // NS_PER_MS, "what": text(each.what), "text": text(each.text)}
            for each in scene.events
            if each.key == row.key
        ][-EVENTS_SHOWN:],
    }
    if isinstance(stats, PublicationStats):
        found["facts"] = facts_of(stats, PUBLICATION_FACTS)
        found["receivers"] = [
            {name: cell(value) for name, value in attrs.asdict(each).items()}
            for each in stats.receivers[:ROWS_SHOWN]
        ]
        found["more_receivers"] = max(0, len(stats.receivers) - ROWS_SHOWN)
    elif isinstance(stats, ImageStats):
        found["facts"] = facts_of(stats, IMAGE_FACTS)
        found["readers"] = [
            {name: cell(value) for name, value in attrs.asdict(each).items()}
            for each in stats.readers[:ROWS_SHOWN]
        ]
        found["more_readers"] = max(0, len(stats.readers) - ROWS_SHOWN)
        found["losses"] = [
            {
                "cause": text(each.cause),
                "count": cell(each.count),
                "bytes": cell(each.bytes),
                "per_second": number(row.lost_bytes_per_second.get(each.cause, 0.0)),
            }
            for each in stats.losses[:ROWS_SHOWN]
        ]
    return found


PUBLICATION_FACTS: Final = (
    "registration_id",
    "is_connected",
    "is_exclusive",
    "position",
    "position_limit",
    "sender_position",
    "sender_limit",
    "window_bytes",
    "backlog_bytes",
    "message_count",
    "blocked_by",
    "back_pressure_count",
    "nak_count",
    "retransmit_count",
    "retransmitted_bytes",
    "receiver_count",
)
IMAGE_FACTS: Final = (
    "registration_id",
    "source",
    "position",
    "hwm_position",
    "missing_bytes",
    "window_bytes",
    "received_bytes",
    "silent_ns",
    "nak_count",
    "status_message_count",
)


def cell(value: object) -> float | int | bool | str | None:
    """Return one value as the page takes it."""
    if value is None or isinstance(value, bool):
        return value
    return number(value) if isinstance(value, int | float) else text(value)


def facts_of(stats: PublicationStats | ImageStats, names: Sequence[str]) -> list[list[Any]]:
    """Return names and values of what is known."""
    found = ((name, cell(getattr(stats, name))) for name in names)
    return [[name, value] for name, value in found if value is not None and value != ""]


def driver_detail(driver: TopDriver, places: Mapping[str, SourcePlace]) -> Plain:
    """Return the page of one driver."""
    stats, span = driver.stats, driver.span
    found: Plain = {"id": str(places[driver.name].number), "row": driver_of(driver, places)}
    if stats is None:
        return found
    moved = {} if span is None else dict(span.limits)
    drops = {} if span is None else dict(span.drops)
    return found | {
        "budgets": [plain_row(each) for each in stats.budgets[:ROWS_SHOWN]],
        "limits": [
            {"name": text(name), "count": cell(count), "recent": cell(moved.get(name, 0))}
            for name, count in list(stats.limits.items())[:ROWS_SHOWN]
        ],
        "cycles": [plain_row(each) for each in stats.cycles[:ROWS_SHOWN]],
        "sockets": [
            plain_row(each) | {"recent": cell(drops.get(each.address, 0))}
            for each in stats.sockets[:ROWS_SHOWN]
        ],
        "counters": [
            [text(name), cell(value)] for name, value in list(stats.counters.items())[:ROWS_SHOWN]
        ],
        "loop_lag_count": cell(stats.loop_lag_count),
        "loop_lag_max_ns": cell(stats.loop_lag_max_ns),
    }


def plain_row(row: attrs.AttrsInstance) -> Plain:
    """Return one row of a nested table."""
    return {name: cell(value) for name, value in attrs.asdict(row).items()}
