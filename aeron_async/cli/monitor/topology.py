"""Who publishes what to whom, as a graph: publishers, streams and subscribers, and edges.

Streams of several drivers that have one stream id and one session are one stream, so that both ends
of it meet in the picture.

Invariant: a graph has at most `STREAMS_DRAWN` streams, the most troubled first, each with at most
`ENDS_DRAWN` publications, images, and receivers of a publication; it says how many were left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from aeron_async.cli.figures import format_bytes
from aeron_async.cli.monitor.views import SourcePlace, stream_id_of, text
from aeron_async.stats import ImageStats, PublicationStats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aeron_async.cli.top_scene import TopRow, TopScene
    from aeron_async.stats import ReceiverStats

__all__ = ["ENDS_DRAWN", "STREAMS_DRAWN", "graph_of"]

STREAMS_DRAWN: Final = 60
ENDS_DRAWN: Final = 8

Plain = dict[str, Any]


@final
class Graph:
    """Nodes by their names, in order of their first use, and edges."""

    def __init__(self) -> None:
        self.publishers: dict[str, Plain] = {}
        self.streams: dict[str, Plain] = {}
        self.subscribers: dict[str, Plain] = {}
        self.edges: list[Plain] = []
        self.left_out_count = 0

    def link(self, begin: str, end: str, row: TopRow, label: str, *, is_trouble: bool) -> None:
        """Add an edge; its label says what flows, or why it does not."""
        cause = row.cause if is_trouble else None
        self.edges.append(
            {
                "from": begin,
                "to": end,
                "label": label if cause is None else text(cause.word),
                "sentence": "" if cause is None else text(cause.sentence, 400),
                "trouble": cause is not None,
            }
        )


def graph_of(scene: TopScene, places: Mapping[str, SourcePlace]) -> Plain:
    """Return the graph of all drivers."""
    groups: dict[tuple[object, object], list[TopRow]] = {}
    for row in scene.rows:
        if isinstance(row.stats, PublicationStats | ImageStats):
            groups.setdefault((row.stream_id, row.session_id), []).append(row)
    labels = {
        each.name: driver_label(each.stats and each.stats.pid, places[each.name])
        for each in scene.drivers
    }
    graph = Graph()
    for key, rows in list(groups.items())[:STREAMS_DRAWN]:
        add_stream(graph, key, rows, places, labels)
    return {
        "publishers": list(graph.publishers.values()),
        "streams": list(graph.streams.values()),
        "subscribers": list(graph.subscribers.values()),
        "edges": graph.edges,
        "more_streams": max(0, len(groups) - STREAMS_DRAWN),
        "more_ends": graph.left_out_count,
    }


def driver_label(pid: object, place: SourcePlace) -> str:
    """Return what a driver is called: its host and process id."""
    return f"{text(place.host)}:{text(pid) if pid else '?'}"


def add_stream(
    graph: Graph,
    key: tuple[object, object],
    rows: Sequence[TopRow],
    places: Mapping[str, SourcePlace],
    labels: Mapping[str, str],
) -> None:
    """Add a stream, with all that is known of its two ends."""
    first = rows[0]
    name = f"s{key[0]},{key[1]}"
    graph.streams[name] = {
        "id": name,
        "label": f"{key[0]}",
        "note": text(first.channel, 120),
        "link": stream_id_of(first.key, places),
    }
    publications = [each for each in rows if isinstance(each.stats, PublicationStats)]
    images = [each for each in rows if isinstance(each.stats, ImageStats)]
    for all_rows in (publications, images):
        graph.left_out_count += max(0, len(all_rows) - ENDS_DRAWN)
        del all_rows[ENDS_DRAWN:]
    for row in publications:
        begin = node(graph.publishers, "p", row.key.driver, labels[row.key.driver], places)
        graph.link(begin, name, row, rate_of(row), is_trouble=True)
    for row in images:
        assert isinstance(row.stats, ImageStats)
        if not publications:
            source = text(row.stats.source) or "unknown publisher"
            begin = node(graph.publishers, "a", source, source, None)
            if not any(each["from"] == begin and each["to"] == name for each in graph.edges):
                graph.link(begin, name, row, "", is_trouble=False)
        end = node(graph.subscribers, "d", row.key.driver, labels[row.key.driver], places)
        graph.link(name, end, row, rate_of(row), is_trouble=True)
    for row in publications:
        add_receivers(graph, name, row, len(images))


def add_receivers(graph: Graph, name: str, row: TopRow, image_count: int) -> None:
    """Add the receivers of a publication, but for those that are on the page as images."""
    assert isinstance(row.stats, PublicationStats)
    network = [each for each in row.stats.receivers if each.kind == "receiver"]
    others = [each for each in row.stats.receivers if each.kind != "receiver"]
    ends = [*(network if len(network) > image_count else ()), *others]
    graph.left_out_count += max(0, len(ends) - ENDS_DRAWN)
    holding = row.stats.slowest_receiver
    is_held = row.cause is not None and row.cause.word in {"sender_limit", "publisher_limit"}
    for each in ends[:ENDS_DRAWN]:
        label = receiver_label(each)
        end = node(graph.subscribers, "r", f"{each.kind} {each.id} {each.address}", label, None)
        behind = f"{format_bytes(each.lag_bytes)} behind" if each.lag_bytes else ""
        graph.link(name, end, row, behind, is_trouble=is_held and each == holding)


def receiver_label(receiver: ReceiverStats) -> str:
    """Return what a receiver or a reader is called."""
    return text(receiver.address) or f"{text(receiver.kind)} {text(receiver.id)}"


def node(
    nodes: dict[str, Plain],
    kind: str,
    name: str,
    label: str,
    places: Mapping[str, SourcePlace] | None,
) -> str:
    """Return the name of a node, which is added if it is new."""
    key = f"{kind}{text(name, 400)}"
    driver = None if places is None else str(places[name].number)
    nodes.setdefault(key, {"id": key, "label": label, "driver": driver})
    return key


def rate_of(row: TopRow) -> str:
    """Return the rate of a stream; empty if it is unknown."""
    rate = row.bytes_per_second
    return "" if rate is None else f"{format_bytes(rate)}/s"
