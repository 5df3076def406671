"""Every view names the stream that hurts, and why, from what a driver in that trouble says."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

import pytest

from aeron_async.cli.monitor.views import SourcePlace, state_of, stream_detail
from aeron_async.cli.top_model import TopModel
from aeron_async.metrics import MetricsText
from aeron_async.stats import Stats
from tests.sim.troubled_worlds import CALM_ID, STREAM_ID, TROUBLES, snapshots_of

if TYPE_CHECKING:
    from aeron_async.cli.top_scene import TopScene


@cache
def snapshots(name: str) -> list[Stats]:
    return snapshots_of(TROUBLES[name])


def scene_of(taken: list[Stats]) -> TopScene:
    model = TopModel()
    for stats in taken:
        model.on_stats(stats)
    return model.scene()


@pytest.mark.parametrize("name", TROUBLES)
def test_the_live_view_puts_the_trouble_first_with_its_cause_and_remedy(name: str) -> None:
    trouble = TROUBLES[name]
    scene = scene_of(snapshots(name))
    rows = [each for each in scene.rows if each.key.kind == trouble.kind and each.causes]
    assert rows
    assert rows[0].causes[0].word == trouble.word
    assert rows[0].causes[0].sentence
    assert rows[0].causes[0].remedy
    if trouble.kind != "drv":
        assert rows[0].stream_id == STREAM_ID
    assert not [each for each in scene.rows if each.stream_id == CALM_ID and each.causes]


@pytest.mark.parametrize("name", TROUBLES)
def test_the_page_of_the_monitor_puts_the_trouble_first_with_its_cause_and_remedy(
    name: str,
) -> None:
    trouble = TROUBLES[name]
    scene = scene_of(snapshots(name))
    places = {each.name: SourcePlace(number=0, host="bob", name="/door") for each in scene.drivers}
    # What the page is sent, as it arrives there.
    page = json.loads(json.dumps(state_of(scene, places, len(scene.events))))
    (driver,) = page["drivers"].values()
    in_order = [page["streams"][each] for each in page["order"]]
    if trouble.kind == "drv":
        assert driver["verdict"] == "here"
        causes = driver["causes"]
    else:
        hurt = next(each for each in in_order if each["kind"] == trouble.kind and each["cause"])
        assert hurt["stream"] == STREAM_ID
        causes = [hurt["cause"]]
        row = next(
            each
            for each in scene.rows
            if each.key.kind == trouble.kind and each.stream_id == STREAM_ID
        )
        assert stream_detail(row, scene, places, None)["causes"][0] == hurt["cause"]
    assert causes[0]["word"] == trouble.word
    assert causes[0]["sentence"]
    assert causes[0]["remedy"]
    assert not [each for each in in_order if each["stream"] == CALM_ID and each["cause"]]


@pytest.mark.parametrize("name", TROUBLES)
def test_the_metrics_move_for_that_stream_and_cause_alone(name: str) -> None:
    trouble = TROUBLES[name]
    text = MetricsText()
    pages = [text.render(each).splitlines() for each in snapshots(name)]

    def value(page: list[str]) -> float:
        found = [
            line
            for line in page
            if line.startswith(trouble.metric) and all(each in line for each in trouble.labels)
        ]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    assert value(pages[-1]) > value(pages[0])
    calm = f'stream="{CALM_ID}"'
    hurt = [
        line
        for line in pages[-1]
        if calm in line
        and any(each in line for each in ("_lost_bytes", "_loss_", "_blocked_", "_backlog_"))
        and not line.endswith((" 0", " 0.0"))
    ]
    assert hurt == []


@pytest.mark.parametrize("name", TROUBLES)
def test_the_statistics_go_through_a_door_unchanged(name: str) -> None:
    for stats in snapshots(name):
        assert Stats.from_dict(json.loads(json.dumps(stats.to_dict()))) == stats
