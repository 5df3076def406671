"""The pages of `aeron-async top` as lines of text: of a stream, of a driver, and the help.

Invariant: as for `top_text`: foreign text is printable, and no line is wider than the screen.
"""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Final

from aeron_async.cli.figures import format_bytes, format_count, format_ns, plural
from aeron_async.cli.top_scene import TopKey, sparkline
from aeron_async.cli.top_text import DIM, TROUBLE, WIDTH_MIN, fit, is_full, percent, style_of
from aeron_async.stats import BLOCKED_BY, ImageStats, PublicationStats, SubscriptionStats
from aeron_async.text import printable, utc_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aeron_async.cli.top_scene import TopDriver, TopRow, TopScene
    from aeron_async.cli.top_text import Line
    from aeron_async.stats import ArchiveStats, DriverStats

__all__ = ["detail_lines", "driver_lines", "help_lines", "page_line"]

EVENTS_SHOWN: Final = 100
"""Most events on one page, the newest first."""
TEXT_MAX: Final = 1_000
"""Longest foreign text on a page, in characters."""


def page_line(text: str, width: int, style: str = "") -> Line:
    """Return one line of a page."""
    return ((fit(printable(text, TEXT_MAX), width), style),)


def paragraph(name: str, text: str, width: int, style: str = "") -> list[Line]:
    """Return a text with its name, folded so that all of it can be read."""
    room = max(WIDTH_MIN, width - 10)
    folded = wrap(printable(text, TEXT_MAX), room) or [""]
    return [
        page_line(f"{name if place == 0 else '':10}{each}", width, style)
        for place, each in enumerate(folded)
    ]


def table(names: Sequence[str], rows: Sequence[Sequence[str]], width: int, none: str) -> list[Line]:
    """Return rows in aligned columns, the last one to the left, or a line if there are none."""
    if not rows:
        return [page_line(f"  {none}", width, DIM)]
    rows = [[printable(each) for each in row] for row in rows]
    widths = [min(40, max(len(row[at]) for row in (names, *rows))) for at in range(len(names))]
    last = len(names) - 1
    lines = []
    for place, row in enumerate((names, *rows)):
        cells = [fit(each, widths[at], is_right=at < last) for at, each in enumerate(row)]
        lines.append(page_line(f"  {'  '.join(cells)}", width, "bold" if place == 0 else ""))
    return lines


def number(value: int | None) -> str:
    """Return a whole number with separators; a dash if it is unknown."""
    return "-" if value is None else f"{value:,}"


def duration(value_ns: int | None) -> str:
    """Return a time with its unit; a dash if it is unknown."""
    return "-" if value_ns is None else format_ns(value_ns)


def detail_lines(scene: TopScene, row: TopRow, width: int, *, is_ascii: bool = False) -> list[Line]:
    """Return the page of one stream: its causes, figures, receivers or readers, losses, events."""
    lines = [page_line(title_of(row), width, "bold")]
    lines += paragraph("channel", row.channel, width)
    lines += paragraph("state", f"{row.state or 'unknown'}, trouble {row.score:.2f}", width)
    lines += cause_lines(row, width)
    lines += paragraph("rate", rate_text(row), width)
    lines.append(page_line(sparkline(row.history, min(width, 120), is_ascii=is_ascii), width))
    match row.stats:
        case PublicationStats():
            lines += publication_lines(row, row.stats, width)
        case ImageStats():
            lines += image_lines(row, row.stats, width)
        case SubscriptionStats():
            lines += paragraph("reads", plural(row.stats.image_count, "image"), width)
        case None:
            pass
    return lines + event_lines(scene, row.key, width)


def title_of(row: TopRow) -> str:
    """Return what a page is of."""
    kinds = {"pub": "publication", "img": "image", "sub": "subscription", "drv": "driver"}
    stream = "" if row.stream_id is None else f" {row.stream_id}"
    session = "" if row.session_id is None else f", session {row.session_id}"
    key = row.key
    return f"{kinds[key.kind]}{stream}{session}, id {key.registration_id}, driver {key.driver}"


def cause_lines(row: TopRow, width: int) -> list[Line]:
    """Return every cause with its remedy."""
    if not row.causes:
        return paragraph("cause", "no trouble", width)
    lines: list[Line] = []
    for each in row.causes:
        lines += paragraph("cause", f"{each.word}: {each.sentence}", width, style_of(row, "cause"))
        lines += paragraph("remedy", each.remedy, width)
    return lines


def rate_text(row: TopRow) -> str:
    """Return the rates and the lag of a row in words."""
    rate = row.bytes_per_second
    bytes_text = "unknown" if rate is None else f"{format_bytes(rate)}/s"
    messages = row.messages_per_second
    messages_text = "" if messages is None else f", {format_count(messages)} msg/s"
    age = "" if row.lag_ns is None else f", the oldest for {format_ns(row.lag_ns)}"
    naks = "unknown" if row.naks_per_second is None else f"{row.naks_per_second:,.1f}"
    lag = "" if row.lag_bytes is None else f"; lag {row.lag_bytes:,} bytes{age}"
    return f"{bytes_text}{messages_text}{lag}; {naks} NAKs/s"


def publication_lines(row: TopRow, stats: PublicationStats, width: int) -> list[Line]:
    """Return what a page says of a publication."""
    shares = ", ".join(f"{percent(row.blocked_ratio.get(by, 0.0))} by {by}" for by in BLOCKED_BY)
    now = f"; waits now for {stats.blocked_by}" if stats.blocked_by else ""
    return [
        *paragraph("blocked", f"{shares}{now}", width),
        *paragraph(
            "position",
            f"{stats.position:,}, limit {stats.position_limit:,}, sent "
            f"{number(stats.sender_position)}, sender limit {number(stats.sender_limit)}, not sent "
            f"{number(stats.backlog_bytes)} bytes",
            width,
        ),
        *paragraph(
            "repair",
            f"{number(stats.nak_count)} NAKs, {number(stats.retransmitted_bytes)} bytes sent again",
            width,
        ),
        page_line(f"receivers and readers: {number(stats.receiver_count)}", width, "bold"),
        *table(
            ("kind", "id", "lag", "position", "window", "silent", "address"),
            [
                (
                    *(each.kind, each.id, number(each.lag_bytes), number(each.position)),
                    *(number(each.window_bytes), duration(each.silent_ns), each.address),
                )
                for each in stats.receivers
            ],
            width,
            "none is known",
        ),
    ]


def image_lines(row: TopRow, stats: ImageStats, width: int) -> list[Line]:
    """Return what a page says of an image."""
    return [
        *paragraph(
            "source", f"{stats.source or 'unknown'}, silent {duration(stats.silent_ns)}", width
        ),
        *paragraph(
            "position",
            f"{stats.position:,}, highest {stats.hwm_position:,}, missing at most "
            f"{stats.missing_bytes:,} bytes, window {number(stats.window_bytes)}",
            width,
        ),
        page_line("losses, by the second in the last 10 s, and ever", width, "bold"),
        *table(
            ("losses/s", "bytes/s", "losses", "bytes", "cause"),
            [
                (
                    f"{row.losses_per_second.get(each.cause, 0.0):,.1f}",
                    f"{row.lost_bytes_per_second.get(each.cause, 0.0):,.0f}",
                    *(number(each.count), number(each.bytes), each.cause),
                )
                for each in stats.losses
            ],
            width,
            "none",
        ),
        page_line("readers", width, "bold"),
        *table(
            ("lag", "position", "subscription"),
            [
                (number(each.lag_bytes), number(each.position), str(each.registration_id))
                for each in stats.readers
            ],
            width,
            "none is known",
        ),
    ]


def event_lines(scene: TopScene, key: TopKey, width: int) -> list[Line]:
    """Return the events of one row, the newest first; of a driver those of all its streams."""
    events = [
        each
        for each in reversed(scene.events)
        if each.key == key or (key.kind == "drv" and each.key.driver == key.driver)
    ]
    lines = [page_line("events", width, "bold")]
    lines += [
        page_line(f"  {clock_time(each.epoch_ns)} {each.text}", width)
        for each in events[:EVENTS_SHOWN]
    ]
    hidden = max(0, len(events) - EVENTS_SHOWN)
    if hidden or scene.events_forgotten:
        text = f"  {hidden:,} older ones; of all streams, {scene.events_forgotten:,} were forgotten"
        lines.append(page_line(text, width, DIM))
    elif not events:
        lines.append(page_line("  none yet", width, DIM))
    return lines


def clock_time(epoch_ns: int) -> str:
    """Return a time of day in UTC."""
    return utc_time(epoch_ns // 10**9, per_second=1, pattern="%H:%M:%S")


def driver_lines(scene: TopScene, driver: TopDriver, width: int) -> list[Line]:
    """Return the page of a driver: budgets, limits, cycles, sockets, counters, events."""
    stats, span = driver.stats, driver.span
    if stats is None:
        return paragraph("driver", f"{driver.name}: {driver.failure}", width, TROUBLE)
    pure = {None: "", True: ", pure Python", False: ", compiled"}[stats.is_pure]
    known_by = "counters" if driver.source == "counters" else "own statistics"
    title = f"driver {stats.pid}, version {stats.version}{pure}, from its {known_by}"
    lines = [page_line(title, width, "bold"), *paragraph("place", driver.name, width)]
    if driver.failure:
        lines += paragraph("failure", driver.failure, width, TROUBLE)
    if driver.remark:
        lines += paragraph("source", driver.remark, width, "yellow")
    for cause in driver.causes:
        lines += paragraph("cause", f"{cause.word}: {cause.sentence}", width, TROUBLE)
        lines += paragraph("remedy", cause.remedy, width)
    if not driver.causes and span is not None:
        lines += paragraph("cause", "no trouble", width)
    recent = (
        "" if span is None else f", in {span.seconds:.0f} s {number(span.loop_lag_count)} times"
    )
    lines += paragraph(
        "loop",
        f"late {number(stats.loop_lag_count)} times{recent}; at most "
        f"{duration(stats.loop_lag_max_ns)}",
        width,
    )
    if driver.archive is not None:
        lines += archive_lines(driver.archive, width)
    for heading, names, rows, none in driver_tables(driver, stats):
        lines += [page_line(heading, width, "bold"), *table(names, rows, width, none)]
    return lines + event_lines(scene, TopKey(driver.name, "drv", 0), width)


def archive_lines(archive: ArchiveStats, width: int) -> list[Line]:
    """Return what the page of a driver says of an archive of the same process."""
    age = "" if archive.free_age_ns is None else f", {format_ns(archive.free_age_ns)} ago"
    full = ": too little, no recording begins" if is_full(archive) else ""
    text = (
        f"{plural(archive.recording_count, 'recording')}, {archive.active_count:,} active, "
        f"{plural(archive.replay_count, 'replay')}; {archive.failed_count:,} failed, "
        f"{plural(archive.refused_image_count, 'source')} refused; "
        f"{format_bytes(archive.recorded_bytes)} written"
    )
    free = "unknown" if archive.free_bytes is None else format_bytes(archive.free_bytes)
    return [
        *paragraph("archive", text, width),
        *paragraph("free", f"{free}{age}{full}", width, TROUBLE if full else ""),
        *table(
            ("recording", "lag", "written", "stream", "state", "channel"),
            [
                (
                    *(str(each.recording_id), number(each.lag_bytes), number(each.recorded_bytes)),
                    *(str(each.stream_id), each.state, each.channel),
                )
                for each in archive.recordings
            ],
            width,
            "nothing is recorded now",
        ),
    ]


def driver_tables(
    driver: TopDriver, stats: DriverStats
) -> Iterable[tuple[str, Sequence[str], Sequence[Sequence[str]], str]]:
    """Yield the tables of a driver: heading, columns, rows, and what to say without a row."""
    yield (
        "budgets",
        ("used", "limit", "part", "budget"),
        [
            (
                *(number(each.used), number(each.limit)),
                *(percent(each.used / each.limit if each.limit > 0 else 0.0), each.name),
            )
            for each in stats.budgets
        ],
        "none is known",
    )
    limits = {} if driver.span is None else driver.span.limits
    yield (
        "limits reached, in the last 10 s and ever",
        ("recent", "ever", "limit"),
        [
            (number(limits.get(name, 0)), number(count), name)
            for name, count in stats.limits.items()
        ],
        "none",
    )
    yield (
        "duty cycles",
        ("longest", "too long", "agent"),
        [(duration(each.max_ns), number(each.exceeded_count), each.agent) for each in stats.cycles],
        "none is known",
    )
    yield (
        "sockets",
        ("dropped", "queued", "buffer", "address"),
        [
            (
                *(number(each.drop_count), number(each.queued_bytes)),
                *(number(each.buffer_bytes), each.address),
            )
            for each in stats.sockets
        ],
        "none is known",
    )
    yield (
        "counters that are not 0",
        ("value", "counter"),
        [(number(value), name) for name, value in sorted(stats.counters.items()) if value],
        "none",
    )


HELP: Final = (
    ("arrows, page up, page down, home, end", "move"),
    ("enter, escape", "open a stream, and go back"),
    ("s, r", "sort by the next column; the other way around"),
    ("/", "show only rows with these words: channel, stream, session, state, cause, pub, img"),
    ("f", "freeze the picture, and let it go on"),
    ("e", "write what is shown to a new file, as JSON"),
    ("d", "the driver: budgets, limits, cycles, sockets; again for the next driver"),
    ("?", "this page"),
    ("q, ctrl+c", "quit"),
)
WORDS: Final = (
    ("pub img sub drv", "publication, image, subscription without an image, driver in trouble"),
    ("B/s msg/s rate", "in the last interval, and the last minutes as bars"),
    ("lag B, lag", "bytes that a receiver or reader is behind, and the age of the oldest"),
    ("lost/s nak/s", "bytes lost, and NAKs sent or received, in a second of the last 10"),
    ("blk", "part of the last 10 s in which an offer waited"),
    ("lag B of pub", "published and not consumed by the slowest receiver, sent or not"),
    ("trouble 3", "offers wait, data is late by seconds or ever later, or never comes"),
    ("trouble 2", "losses that are repaired, over-runs, offers that wait now and then"),
    ("trouble 1", "no peer, or frames of a stranger; what is behind the point is the size"),
)


def help_lines(width: int) -> list[Line]:
    """Return the page that explains keys and columns."""
    lines = [page_line("keys", width, "bold")]
    for name, text in HELP:
        lines += [page_line(f"  {name}", width), page_line(f"      {text}", width, DIM)]
    lines.append(page_line("columns", width, "bold"))
    for name, text in WORDS:
        lines += [page_line(f"  {name}", width), page_line(f"      {text}", width, DIM)]
    return lines
