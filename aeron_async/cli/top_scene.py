"""The picture that every view of `aeron-async top` is made of, and what views choose of it.

Invariant: a picture never changes, so that a view can freeze it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.stats import ImageStats, PublicationStats, SubscriptionStats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aeron_async.cli.top_causes import Cause, DriverSpan
    from aeron_async.stats import ArchiveStats, DriverStats

__all__ = [
    "SORTS",
    "StreamStats",
    "TopDriver",
    "TopEvent",
    "TopKey",
    "TopRow",
    "TopScene",
    "arranged",
    "json_of_driver",
    "sparkline",
]

StreamStats = PublicationStats | ImageStats | SubscriptionStats


@attrs.frozen(order=True)
class TopKey:
    """What a row is of: a driver, and `pub`, `img` or `sub` with its registration id, or `drv`."""

    driver: str
    kind: str
    registration_id: int


@attrs.frozen(kw_only=True)
class TopRow:
    """One stream, or a driver in trouble, at one moment.

    Attributes:
        started_ns: When its driver started; None if unknown.
        bytes_per_second: Published or received in order in the last interval; None if unknown.
        messages_per_second: None if unknown.
        lag_bytes: Of a publication, how far the receiver or reader furthest behind is behind what
            was published, what was not sent yet included; of an image, what its slowest reader has
            not consumed. None without one.
        lag_ns: How long the oldest of that has been there; None if unknown.
        losses_per_second: Losses by cause, in the last ten seconds.
        lost_bytes_per_second: Likewise in bytes.
        blocked_ratio: Part of the last ten seconds in which an offer waited, by what for; empty
            if that is not measured.
        naks_per_second: Sent or received in the last ten seconds; None if unknown.
        history: The rates in bytes, the newest last.
        score: How much trouble it has: the severity of its worst cause, and a part below 1 for its
            size; 0 for none, and 4 for a driver.
        causes: Why, the worst first.
        is_held: Whether offers wait, or have waited in the last ten seconds; if that is not
            measured, whether its receivers or readers keep it at its limit.
        stats: The row of the snapshot; None of a driver.
    """

    key: TopKey
    pid: int
    started_ns: int | None
    stream_id: int | None
    session_id: int | None
    channel: str
    state: str
    bytes_per_second: float | None
    messages_per_second: float | None
    lag_bytes: int | None
    lag_ns: int | None
    losses_per_second: Mapping[str, float]
    lost_bytes_per_second: Mapping[str, float]
    blocked_ratio: Mapping[str, float]
    naks_per_second: float | None
    history: tuple[float, ...]
    score: float
    causes: tuple[Cause, ...]
    is_held: bool
    stats: StreamStats | None

    @property
    def cause(self) -> Cause | None:
        """Return the worst cause of its trouble; None without trouble."""
        return self.causes[0] if self.causes else None

    @property
    def lost_bytes(self) -> float:
        """Return what is lost in a second, whatever the cause."""
        return sum(self.lost_bytes_per_second.values())

    @property
    def blocked(self) -> float:
        """Return the part of the time in which an offer waited, whatever for."""
        return min(1.0, sum(self.blocked_ratio.values()))


@attrs.frozen(kw_only=True)
class TopDriver:
    """One driver at one moment.

    Attributes:
        failure: Why it does not answer; empty if it does.
        remark: What to say of where its last snapshot came from; mostly empty.
        archive: An archive of the same process, if it shows one.
        span: What happened in the last ten seconds; None before the second snapshot.
        blocked_count: Publications whose offers have waited in the last ten seconds, or wait now,
            as `TopRow.is_held` has it; None of a driver that has never answered.
    """

    name: str
    failure: str
    remark: str
    epoch_ns: int
    source: str
    stats: DriverStats | None
    archive: ArchiveStats | None
    span: DriverSpan | None
    stream_count: int
    blocked_count: int | None
    trouble_count: int
    in_bytes_per_second: float | None
    out_bytes_per_second: float | None
    causes: tuple[Cause, ...]


@attrs.frozen(kw_only=True)
class TopEvent:
    """Something that changed; `what` is a word for programs, `text` a sentence."""

    epoch_ns: int
    key: TopKey
    what: str
    text: str


@attrs.frozen(kw_only=True)
class TopScene:
    """A picture of all drivers: rows in order of their trouble, and events, the newest last."""

    drivers: tuple[TopDriver, ...]
    rows: tuple[TopRow, ...]
    events: tuple[TopEvent, ...]
    events_forgotten: int

    def row(self, key: TopKey | None) -> TopRow | None:
        """Return the row of a stream; None if it has gone."""
        return next((each for each in self.rows if each.key == key), None)


# What views choose.


SORTS: Final = ("trouble", "rate", "lag", "loss", "blocked", "stream", "channel")
"""What rows can be sorted by. Numbers begin with the highest, the other two with the lowest."""


def arranged(
    scene: TopScene, sort: str = "trouble", *, is_reversed: bool = False, pattern: str = ""
) -> list[TopRow]:
    """Return the rows that match a pattern, sorted; drivers in trouble stand before streams.

    Args:
        scene: What to show.
        sort: One of `SORTS`.
        is_reversed: The other way around.
        pattern: Words that must all be in a row, whatever their case: in its channel, stream,
            session, state, kind, driver or cause.
    """
    words = pattern.lower().split()
    rows = [each for each in scene.rows if not words or matches(each, words)]
    drivers = [each for each in rows if each.key.kind == "drv"]
    streams = [each for each in rows if each.key.kind != "drv"]
    # Sorting keeps the order of equals, which is that of their trouble.
    match sort:
        case "rate":
            streams.sort(key=lambda each: -(each.bytes_per_second or 0.0))
        case "lag":
            streams.sort(key=lambda each: -(each.lag_bytes or 0))
        case "loss":
            streams.sort(key=lambda each: -each.lost_bytes)
        case "blocked":
            streams.sort(key=lambda each: -each.blocked)
        case "stream":
            streams.sort(key=lambda each: (each.stream_id or 0, each.session_id or 0, each.key))
        case "channel":
            streams.sort(key=lambda each: (each.channel, each.stream_id or 0, each.key))
        case _:
            assert sort == "trouble"
    if is_reversed:
        streams.reverse()
    return drivers + streams


def matches(row: TopRow, words: Sequence[str]) -> bool:
    """Return whether every word is somewhere in a row."""
    key = row.key
    texts = (key.kind, key.driver, row.channel, row.state, str(row.stream_id), str(row.session_id))
    text = "\n".join((*texts, *(each.word for each in row.causes))).lower()
    return all(word in text for word in words)


BLOCKS: Final = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS: Final = "_.:-=+*#"


def sparkline(values: Sequence[float], width: int, *, is_ascii: bool = False) -> str:
    """Return the last values as bars on a scale from 0, the newest at the right."""
    blocks = ASCII_BLOCKS if is_ascii else BLOCKS
    shown = values[-width:] if width > 0 else ()
    highest = max(shown, default=0.0)
    if highest <= 0:
        return (blocks[0] * len(shown)).rjust(width)
    bars = (blocks[min(len(blocks) - 1, int(each / highest * len(blocks)))] for each in shown)
    return "".join(bars).rjust(width)


def json_of_driver(scene: TopScene, name: str, rows: Sequence[TopRow]) -> dict[str, object]:
    """Return what JSON says of one driver besides its snapshot."""
    driver = next(each for each in scene.drivers if each.name == name)
    return {
        "driver": name,
        "epoch_ns": driver.epoch_ns,
        "failure": driver.failure or None,
        "remark": driver.remark or None,
        "streams": driver.stream_count,
        "blocked_streams": driver.blocked_count,
        "streams_in_trouble": driver.trouble_count,
        "in_bytes_per_second": driver.in_bytes_per_second,
        "out_bytes_per_second": driver.out_bytes_per_second,
        "rows": [json_of_row(each) for each in rows if each.key.driver == name],
    }


def json_of_row(row: TopRow) -> dict[str, object]:
    """Return a row as JSON takes it, with the worst cause in front of all causes."""
    cause = row.cause
    return {
        "kind": row.key.kind,
        "pid": row.pid,
        "registration_id": row.key.registration_id,
        "stream_id": row.stream_id,
        "session_id": row.session_id,
        "channel": row.channel,
        "state": row.state,
        "bytes_per_second": row.bytes_per_second,
        "messages_per_second": row.messages_per_second,
        "lag_bytes": row.lag_bytes,
        "lag_ns": row.lag_ns,
        "losses_per_second": dict(row.losses_per_second),
        "lost_bytes_per_second": dict(row.lost_bytes_per_second),
        "blocked_ratio": dict(row.blocked_ratio),
        "naks_per_second": row.naks_per_second,
        "score": row.score,
        "cause_word": None if cause is None else cause.word,
        "cause": None if cause is None else cause.sentence,
        "remedy": None if cause is None else cause.remedy,
        "causes": [
            {"word": each.word, "sentence": each.sentence, "remedy": each.remedy}
            for each in row.causes
        ],
    }
