"""Command `aeron-async backlog`: what each part of each stream still has to do.

Source: Aeron `BacklogStat`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import attrs
from cyclopts import Parameter

from aeron_async.cli.aeron_directories import Directory, Watch, facts_of, headline_of, show
from aeron_async.cli.options import Flag, Int32  # noqa: TC001 - cyclopts reads annotations at run time
from aeron_async.cli.output import print_json, print_line
from aeron_async.driver.stream_positions import PublicationFigures, StreamPositions
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.aeron_directory import AeronDirectory
    from aeron_async.driver.stream_positions import ImageFigures

__all__ = ["backlog"]


def backlog(
    *,
    directory: Directory = None,
    stream: Annotated[Int32 | None, Parameter(name=("--stream", "-s"))] = None,
    json: Flag = False,
    watch: Watch | None = None,
) -> int:
    """Show the distances between publishers, senders, receivers and subscribers, in bytes.

    Args:
        directory: Aeron directory; by default AERON_DIR, or that of this user.
        stream: Only this stream.
        json: One JSON object for each drawing.
        watch: How often to draw.
    """

    def draw(found: AeronDirectory, now_ms: int) -> None:
        positions = StreamPositions.of(found)
        parts: list[PublicationFigures | ImageFigures] = [
            *positions.publications,
            *positions.images,
        ]
        chosen = [part for part in parts if stream in {None, part.key.stream_id}]
        if json:
            print_json(facts_of(found, now_ms) | {"streams": [_json_of(part) for part in chosen]})
            return
        print_line(headline_of(found, now_ms))
        for part in chosen:
            for line in lines_of(part):
                print_line(line)
        if not chosen:
            print_line("no streams")

    return show(directory, draw, watch or Watch(), json=json)


def lines_of(part: PublicationFigures | ImageFigures) -> Iterator[str]:
    """Yield the lines about one publication or image."""
    key = part.key
    yield f"stream {key.stream_id}, session {key.session_id}, {printable(key.channel)}"
    if isinstance(part, PublicationFigures):
        yield (
            f"  publisher {key.registration_id} is at {_count(part.position)}, with "
            f"{_count(part.window)} bytes before back pressure"
        )
        if part.sender_position is not None:
            yield (
                f"  sender has {_count(part.unsent)} bytes to send, and a window of "
                f"{_count(part.sender_window)}"
            )
    else:
        yield (
            f"  receiver {key.registration_id} is at {_count(part.position)}, with "
            f"{_count(part.incomplete)} bytes behind the first gap"
        )
    for subscriber in part.subscribers:
        left = _count(part.backlog_of(subscriber))
        yield f"  subscriber {subscriber.key.registration_id} has {left} bytes to read"


def _count(amount: int | None) -> str:
    return "an unknown number of" if amount is None else f"{amount:,}"


def _json_of(part: PublicationFigures | ImageFigures) -> dict[str, object]:
    if isinstance(part, PublicationFigures):
        figures = {
            "kind": "publication",
            "position": part.position,
            "window": part.window,
            "unsent": part.unsent,
            "sender_window": part.sender_window,
        }
    else:
        figures = {"kind": "image", "position": part.position, "incomplete": part.incomplete}
    subscribers = [
        {"registration_id": each.key.registration_id, "backlog": part.backlog_of(each)}
        for each in part.subscribers
    ]
    return attrs.asdict(part.key) | figures | {"subscribers": subscribers}
