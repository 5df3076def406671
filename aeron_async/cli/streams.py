"""Command `aeron-async streams`: the publications and images of a driver, one line for each part.

Source: Aeron `StreamStat`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import attrs
from cyclopts import Parameter

from aeron_async.cli.aeron_directories import (
    Directory,
    Watch,
    facts_of,
    headline_of,
    print_columns,
    show,
)
from aeron_async.cli.options import Flag, Int32  # noqa: TC001 - cyclopts reads annotations at run time
from aeron_async.cli.output import print_json, print_line
from aeron_async.driver.stream_positions import StreamPositions
from aeron_async.logbuffer.metadata import LogType
from aeron_async.text import printable

if TYPE_CHECKING:
    from aeron_async.aeron_directory import AeronDirectory, LogDescription
    from aeron_async.driver.stream_positions import (
        ImageFigures,
        PublicationFigures,
        SubscriberFigures,
    )

__all__ = ["streams"]

COLUMNS: Final = (
    *("what", "id", "stream", "session", "position", "window", "lag", "loss", "naks", "channel"),
)
TEXTS: Final = frozenset({"what", "channel"})


def streams(
    *,
    directory: Directory = None,
    stream: Annotated[Int32 | None, Parameter(name=("--stream", "-s"))] = None,
    session: Int32 | None = None,
    json: Flag = False,
    watch: Watch | None = None,
) -> int:
    """Show every stream of a driver: positions, windows, lags and losses, in bytes.

    A publication, its sender, an image and each subscriber have a line of their own. "window" is
    what may follow: before back pressure, before the sender must wait, or what the receiver grants.
    "lag" is what the part has to do: send, repair or read. "loss" is what the loss report has of
    the image, repaired or not. A dash stands for what is not known.

    Args:
        directory: Aeron directory; by default AERON_DIR, or that of this user.
        stream: Only this stream.
        session: Only this session.
        json: One JSON object for each drawing.
        watch: How often to draw.
    """

    def is_shown(part: PublicationFigures | ImageFigures | SubscriberFigures) -> bool:
        key = part.key
        return stream in {None, key.stream_id} and session in {None, key.session_id}

    def draw(found: AeronDirectory, now_ms: int) -> None:
        every = StreamPositions.of(found)
        positions = StreamPositions(
            publications=[each for each in every.publications if is_shown(each)],
            images=[each for each in every.images if is_shown(each)],
            strays=[each for each in every.strays if is_shown(each)],
        )
        if json:
            print_json(facts_of(found, now_ms) | _json_of(positions))
            return
        print_line(headline_of(found, now_ms))
        rows = rows_of(positions)
        if rows:
            print_columns(COLUMNS, rows, texts=TEXTS)
        else:
            print_line("no publications and no images")

    return show(directory, draw, watch or Watch(), json=json)


def rows_of(positions: StreamPositions) -> list[tuple[str, ...]]:
    """Return the cells of every line."""
    rows: list[tuple[str, ...]] = []
    for publication in positions.publications:
        rows.append(
            _row(
                _kind_of(publication),
                publication,
                (publication.position, publication.window, None, None, None),
            )
        )
        if publication.sender_position is not None:
            sent = publication.sender_position, publication.sender_window, publication.unsent
            rows.append(_row("  sender", publication, (*sent, None, publication.naks_received)))
        for each in publication.subscribers:
            lag = publication.backlog_of(each)
            rows.append(_row("  subscriber", each, (each.position, None, lag, None, None)))
    for image in positions.images:
        received = image.position, image.window, image.incomplete
        rows.append(_row("image", image, (*received, image.lost_length, image.naks_sent)))
        for each in image.subscribers:
            lag = image.backlog_of(each)
            rows.append(_row("  subscriber", each, (each.position, None, lag, None, None)))
    rows += [
        _row("subscriber", each, (each.position, None, None, None, None))
        for each in positions.strays
    ]
    return rows


def _kind_of(publication: PublicationFigures) -> str:
    if publication.log is not None and publication.log.log_type is LogType.EXCLUSIVE_PUBLICATION:
        return "exclusive publication"
    return "publication"


def _row(
    what: str,
    part: PublicationFigures | ImageFigures | SubscriberFigures,
    figures: tuple[int | None, ...],
) -> tuple[str, ...]:
    key = part.key
    return (
        *(what, str(key.registration_id), str(key.stream_id), str(key.session_id)),
        *("-" if each is None else f"{each:,}" for each in figures),
        printable(key.channel),
    )


def _json_of(positions: StreamPositions) -> dict[str, object]:
    return {
        "publications": [
            attrs.asdict(each.key)
            | {
                "position": each.position,
                "counted_position": each.counted_position,
                "limit": each.limit,
                "window": each.window,
                "sender_position": each.sender_position,
                "sender_limit": each.sender_limit,
                "sender_window": each.sender_window,
                "unsent": each.unsent,
                "back_pressure_events": each.back_pressure_events,
                "naks_received": each.naks_received,
                "receivers": each.receivers,
                "log": _json_of_log(each.log),
                "subscribers": [
                    _json_of_subscriber(one, each.backlog_of(one)) for one in each.subscribers
                ],
            }
            for each in positions.publications
        ],
        "images": [
            attrs.asdict(each.key)
            | {
                "position": each.position,
                "highest_position": each.highest_position,
                "incomplete": each.incomplete,
                "window": each.window,
                "lost_length": each.lost_length,
                "naks_sent": each.naks_sent,
                "log": _json_of_log(each.log),
                "subscribers": [
                    _json_of_subscriber(one, each.backlog_of(one)) for one in each.subscribers
                ],
            }
            for each in positions.images
        ],
        "strays": [_json_of_subscriber(each, None) for each in positions.strays],
    }


def _json_of_subscriber(subscriber: SubscriberFigures, backlog: int | None) -> dict[str, object]:
    return attrs.asdict(subscriber.key) | {"position": subscriber.position, "backlog": backlog}


def _json_of_log(log: LogDescription | None) -> dict[str, object] | None:
    return None if log is None else attrs.asdict(log) | {"log_type": log.log_type.name}
