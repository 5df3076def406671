"""What the page of the monitor is made of: states, differences, history and topology."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.cli.monitor.history import (
    BYTES_A_POINT,
    POINTS_A_STREAM,
    History,
    StreamHistory,
)
from aeron_async.cli.monitor.topology import ENDS_DRAWN, STREAMS_DRAWN, graph_of
from aeron_async.cli.monitor.views import (
    EVENTS_SHOWN,
    STREAMS_SHOWN,
    SourcePlace,
    difference,
    driver_detail,
    state_of,
    stream_detail,
)
from aeron_async.cli.top_model import TopModel
from aeron_async.stats import LossStats, ReceiverStats
from tests.cli.monitors import applied, without_spark
from tests.cli.top_worlds import (
    EPOCH_NS,
    RECEIVER,
    SECOND_NS,
    WORLDS,
    driver,
    healthy,
    image,
    publication,
    slow_reader,
    small_buffer,
    stats,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aeron_async.cli.top_scene import TopScene
    from aeron_async.stats import Stats
    from tests.cli.top_worlds import TopWorld

PLACES = {"/a": SourcePlace(0, "box", "/a"), "/b": SourcePlace(1, "box", "/b")}
HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e\x00\x9b31m\r\n' onload=x \ud800</td>"


def scene_of(*snapshots: Stats, name: str = "/a") -> TopScene:
    model = TopModel()
    for each in snapshots:
        model.on_stats(each, name)
    return model.scene()


def strings_of(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from strings_of(key)
            yield from strings_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings_of(each)


# States.


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_a_state_names_stream_cause_and_remedy(world: TopWorld) -> None:
    state = state_of(scene_of(world.take(1), world.take(2)), PLACES, 0)
    row = next((each for each in state["streams"].values() if each["cause"]), None)
    found = [each["cause"] for each in state["streams"].values() if each["cause"]]
    found += state["drivers"]["0"]["causes"]
    assert row is not None or state["drivers"]["0"]["causes"]
    assert any(
        each["word"] == world.word
        and world.sentence in each["sentence"]
        and world.remedy in each["remedy"]
        for each in found
    )


@pytest.mark.parametrize(
    ("worlds", "word"),
    [
        ([healthy], "new"),
        ([healthy, healthy], "fine"),
        ([slow_reader, slow_reader], "elsewhere"),
        ([small_buffer, small_buffer], "here"),
    ],
)
def test_a_driver_is_told_whether_it_is_to_blame(worlds: list[Any], word: str) -> None:
    scene = scene_of(*(world(at) for at, world in enumerate(worlds, 1)))
    assert state_of(scene, PLACES, 0)["drivers"]["0"]["verdict"] == word


def test_a_driver_says_if_less_is_known_of_it_than_could_be() -> None:
    model = TopModel()
    model.on_stats(healthy(1), "/a", remark="its door\x1b does not answer")
    (told,) = state_of(model.scene(), PLACES, 0)["drivers"].values()
    assert told["remark"] == "its door\\x1b does not answer"


@given(st.lists(st.sampled_from(sorted(WORLDS)), min_size=2, max_size=6))
def test_differences_lead_to_the_whole(names: list[str]) -> None:
    model = TopModel()
    states = []
    for at, name in enumerate(names, 1):
        model.on_stats(WORLDS[name].take(at), "/a")
        scene = model.scene()
        states.append(state_of(scene, PLACES, scene.events_forgotten + len(scene.events)))
    built = states[0]
    for before, now in pairwise(states):
        news = json.loads(json.dumps(difference(before, now)))
        assert not any(
            "spark" in row for key, row in news["streams"].items() if key in before["streams"]
        )
        built = applied(built, news)
        assert without_spark(built) == without_spark(now)
    assert built["events"] == states[-1]["events"]


def test_what_has_not_changed_is_not_told_again() -> None:
    state = state_of(scene_of(healthy(1), healthy(2)), PLACES, 0)
    assert difference(state, state) == {
        "drivers": {},
        "streams": {},
        "gone": [],
        "events": [],
        "more_streams": 0,
        "without_history": 0,
    }


def test_streams_and_events_of_a_state_are_bounded() -> None:
    count = STREAMS_SHOWN + 7
    rows = [publication(1, registration_id=each, stream_id=each) for each in range(count)]
    model = TopModel()
    model.on_stats(stats(1), "/a")
    model.on_stats(stats(2, rows), "/a")
    scene = model.scene()
    state = state_of(scene, PLACES, scene.events_forgotten + len(scene.events))
    assert len(state["streams"]) == len(state["order"]) == STREAMS_SHOWN
    assert state["more_streams"] == 7
    assert state["drivers"]["0"]["streams"] == count
    assert len(state["events"]) == EVENTS_SHOWN
    assert state["events"][-1]["number"] == count - 1


def hostile(at: float, text: str) -> Stats:
    receivers = (ReceiverStats(text, text, text, 0, 1, 1, 5),)
    return stats(
        at,
        [
            publication(
                at / 9, channel=text, state=text, receivers=receivers, blocked_by="sender_limit"
            )
        ],
        [
            image(
                at,
                channel=text,
                source=text,
                state=text,
                losses=(LossStats(text, int(at), int(at)), LossStats("gap", int(at), int(at))),
            )
        ],
        driver=driver(version=text, limits={text: int(at)}, counters={text: 1}),
    )


@given(st.text(max_size=40) | st.just(HOSTILE) | st.just("x" * 100_000))
def test_words_of_strangers_are_short_and_have_no_controls(text: str) -> None:
    model = TopModel()
    for at in (1, 2, 3):
        model.on_stats(hostile(at, text), "/a")
    model.on_failure("/a", text)
    scene = model.scene()
    places = {"/a": SourcePlace(0, text, "/a")}
    values = [state_of(scene, places, 0), graph_of(scene, places)]
    values += [driver_detail(each, places) for each in scene.drivers]
    values += [
        stream_detail(each, scene, places, None) for each in scene.rows if each.key.kind != "drv"
    ]
    said = json.dumps(values, allow_nan=False)
    said.encode("ascii")
    for each in strings_of(json.loads(said)):
        assert each.isprintable()
        assert len(each) <= 500


def test_a_page_of_a_stream_says_who_holds_it_back() -> None:
    scene = scene_of(slow_reader(1), slow_reader(2))
    row = next(each for each in scene.rows if each.causes)
    page = stream_detail(row, scene, PLACES, None)
    assert page["receivers"][0]["address"] == "10.0.0.2:4000"
    assert page["receivers"][0]["lag_bytes"] == 3_000
    assert ["blocked_by", "sender_limit"] in page["facts"]
    assert page["has_history"] is False


# History.


def history_of(*snapshots: Stats) -> History:
    history = History()
    model = TopModel()
    for each in snapshots:
        model.on_stats(each, "/a")
        history.add(model.scene().rows, {"/a": each.epoch_ns})
    return history


def only(history: History, scene: TopScene, kind: str = "img") -> StreamHistory:
    key = next(each.key for each in scene.rows if each.key.kind == kind)
    found = history.of(key)
    assert found is not None
    return found


def test_an_hour_is_kept_in_bounded_memory() -> None:
    history, model = History(), TopModel()
    seconds = 2 * 3_600
    for at in range(1, seconds):
        snapshot = stats(at, [], [image(at, lag_bytes=at % 100)])
        model.on_stats(snapshot, "/a")
        history.add(model.scene().rows, {"/a": snapshot.epoch_ns})
    columns = only(history, model.scene()).columns()
    times = [each for each in columns["time"] if each is not None]
    assert 400 < len(times) <= POINTS_A_STREAM
    assert times == sorted(times)
    assert times[-1] == EPOCH_NS // SECOND_NS + seconds - 1
    assert 3_500 < times[-1] - times[0] <= 3_610
    assert {len(each) for each in columns.values()} == {len(times)}
    # Rates are means; of lags the highest one is kept.
    assert set(columns["rate"]) == {1_000_000}
    assert columns["lag"][5] in {9, 19, 29, 39, 49, 59, 69, 79, 89, 99}
    assert "gap" not in columns
    assert POINTS_A_STREAM * BYTES_A_POINT < 30_000


def test_losses_are_episodes_by_their_cause() -> None:
    def at_second(at: int, gaps: int, drops: int) -> Stats:
        losses = (LossStats("gap", gaps, gaps * 10), LossStats("socket_drop", drops, drops * 100))
        return stats(at, [], [image(at, losses=losses)])

    history = History()
    model = TopModel()
    for snapshot in (
        at_second(0, 5, 0),
        at_second(1, 7, 0),
        at_second(2, 7, 3),
        at_second(11, 8, 3),
        at_second(100, 8, 3),
        at_second(101, 9, 3),
    ):
        model.on_stats(snapshot, "/a")
        history.add(model.scene().rows, {"/a": snapshot.epoch_ns})
    found = only(history, model.scene())
    begin_ms = EPOCH_NS // 1_000_000
    assert [
        (each.cause, each.begin_ms - begin_ms, each.end_ms - begin_ms, each.count, each.bytes)
        for each in found.episodes
    ] == [
        ("gap", 0, 11_000, 3, 30),
        ("socket_drop", 1_000, 2_000, 3, 300),
        ("gap", 100_000, 101_000, 1, 10),
    ]
    columns = found.columns()
    assert columns["socket_drop"][:3] == [None, 0, 300]
    assert "over_run" not in columns


def test_history_has_room_for_so_many_streams_and_forgets_those_that_have_gone() -> None:
    history, model = History(streams_max=2), TopModel()
    rows = [image(1, registration_id=each, stream_id=each) for each in range(1, 4)]
    model.on_stats(stats(1, [], rows), "/a")
    history.add(model.scene().rows, {"/a": EPOCH_NS})
    assert (len(history), history.left_out_count) == (2, 1)
    model.on_stats(stats(2, [], rows[1:]), "/a")
    history.add(model.scene().rows, {"/a": EPOCH_NS + SECOND_NS})
    assert (len(history), history.left_out_count) == (2, 0)
    model.on_stats(stats(3), "/a")
    history.add(model.scene().rows, {"/a": EPOCH_NS + 2 * SECOND_NS})
    assert len(history) == 0


@pytest.mark.parametrize("seconds_back", [5, 3_600])
def test_history_outlives_a_clock_that_is_set_back(seconds_back: int) -> None:
    def set_back(at: int) -> Stats:
        found = stats(at, [], [image(at)])
        return attrs.evolve(found, epoch_ns=found.epoch_ns - seconds_back * SECOND_NS)

    before = [stats(at, [], [image(at)]) for at in range(1, 4)]
    history = history_of(*before, *(set_back(at) for at in range(4, 12)))
    columns = only(history, scene_of(*before)).columns()
    times = [each for each in columns["time"] if each is not None]
    assert times == sorted(times)
    assert len(times) > 3


@pytest.mark.parametrize("fields", [{"pid": 43}, {"started_ns": 5}])
def test_history_begins_anew_with_another_driver(fields: dict[str, int]) -> None:
    first = [stats(at, [], [image(at)]) for at in (1, 2)]
    second = [stats(at, [], [image(at)], driver=driver(**fields)) for at in (3, 4, 5)]
    history = history_of(*first, *second)
    assert len(only(history, scene_of(*first)).columns()["time"]) == 3


# Topology.


def test_both_ends_of_a_stream_meet() -> None:
    model = TopModel()
    for at in (1, 2):
        model.on_stats(stats(at, [publication(at)]), "/a")
        model.on_stats(stats(at, [], [image(at)], driver=driver(pid=43)), "/b")
    graph = graph_of(model.scene(), PLACES)
    assert [each["label"] for each in graph["publishers"]] == ["box:42"]
    assert [each["label"] for each in graph["streams"]] == ["1001"]
    assert [each["label"] for each in graph["subscribers"]] == ["box:43"]
    ends = [(each["from"], each["to"]) for each in graph["edges"]]
    (stream,) = [each["id"] for each in graph["streams"]]
    assert ends == [("p/a", stream), (stream, "d/b")]
    assert not any(each["trouble"] for each in graph["edges"])


def test_a_line_in_trouble_says_so_in_words() -> None:
    graph = graph_of(scene_of(slow_reader(1), slow_reader(2)), PLACES)
    bad = [each for each in graph["edges"] if each["trouble"]]
    assert {each["label"] for each in bad} == {"sender_limit"}
    assert any("10.0.0.2:4000" in each["to"] for each in bad)
    assert not any("10.0.0.1:4000" in each["to"] for each in bad)
    assert all("3,000 bytes behind" in each["sentence"] for each in bad)


def test_a_graph_is_bounded() -> None:
    receivers = tuple(
        attrs.evolve(RECEIVER, id=f"{each:x}", address=f"h:{each}") for each in range(20)
    )
    rows = [
        publication(1, registration_id=each, stream_id=each, receivers=receivers)
        for each in range(STREAMS_DRAWN + 5)
    ]
    graph = graph_of(scene_of(stats(1, rows)), PLACES)
    assert len(graph["streams"]) == STREAMS_DRAWN
    assert graph["more_streams"] == 5
    assert graph["more_ends"] == STREAMS_DRAWN * (20 - ENDS_DRAWN)
    assert len(graph["subscribers"]) == ENDS_DRAWN


def test_images_and_publications_of_one_stream_and_session_are_bounded_too() -> None:
    """A driver may have any number of them, by other channels or of other sources."""
    count = 500
    snapshot = stats(
        1,
        [publication(1, registration_id=each) for each in range(count)],
        [image(1, registration_id=each, source=f"h:{each}") for each in range(count)],
    )
    graph = graph_of(scene_of(snapshot), PLACES)
    # With each publication stands its receiver, unless there are images enough.
    assert len(graph["edges"]) == 2 * ENDS_DRAWN
    assert graph["more_ends"] == 2 * (count - ENDS_DRAWN)


def test_a_state_and_its_differences_say_how_many_streams_have_no_history() -> None:
    scene = scene_of(healthy(1), healthy(2))
    before = state_of(scene, PLACES, 0)
    now = state_of(scene, PLACES, 0, without_history=7)
    assert (before["without_history"], now["without_history"]) == (0, 7)
    assert difference(before, now)["without_history"] == 7
