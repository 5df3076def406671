"""The model of the live view, by hand: all times are typed."""

from __future__ import annotations

import json
import re
from typing import Any

import attrs
import pytest

from aeron_async.cli.top_causes import (
    BUDGET_SETTINGS,
    LIMIT_SETTINGS,
    causes_of_driver,
    causes_of_image,
    span_of,
)
from aeron_async.cli.top_model import EVENTS_MAX, HISTORY, SAMPLES_A_WINDOW, TopModel
from aeron_async.cli.top_pages import detail_lines, driver_lines
from aeron_async.cli.top_publications import causes_of_publication
from aeron_async.cli.top_scene import (
    SORTS,
    TopKey,
    TopScene,
    arranged,
    json_of_driver,
    sparkline,
)
from aeron_async.cli.top_text import columns_for, header_lines, row_line
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.stats import (
    LOSS_CAUSES,
    BudgetStats,
    CycleStats,
    ImageStats,
    LossStats,
    PublicationStats,
    ReaderStats,
    ReceiverStats,
    SocketStats,
    Stats,
    image_rates,
)
from tests.cli.top_worlds import (
    DRIVER,
    LAGGING,
    RECEIVER,
    SECOND_NS,
    SUBSCRIPTION,
    WORLDS,
    TopWorld,
    driver,
    healthy,
    image,
    json_rows,
    publication,
    row,
    seen,
    stats,
)
from tests.snapshots import ARCHIVE, RECORDING, archive


def texts(scene: TopScene) -> list[tuple[str, str]]:
    return [(each.what, each.text) for each in scene.events]


def test_rates_are_of_the_last_interval_and_unknown_before() -> None:
    first = seen(healthy(1))
    assert [each.bytes_per_second for each in first.rows] == [None, None]
    assert [each.span for each in first.drivers] == [None]

    scene = seen(healthy(1), healthy(2), healthy(4))

    there = row(scene, "pub", 1)
    assert [there.bytes_per_second, there.messages_per_second] == [1_000_000, 1_000]
    assert [*there.history] == [1_000_000, 1_000_000]
    here = row(scene, "img", 2)
    assert [here.bytes_per_second, here.messages_per_second] == [1_000_000, 1_000]
    assert (there.cause, there.score, here.cause, here.score) == (None, 0, None, 0)
    assert scene.drivers[0].out_bytes_per_second == 0


def test_rates_of_a_driver_without_counters_are_those_of_its_streams() -> None:
    none = driver(counters={})
    (there,) = seen(
        stats(1, [publication(1)], [image(1)], driver=none),
        stats(2, [publication(2)], [image(2)], driver=none),
    ).drivers
    assert (there.in_bytes_per_second, there.out_bytes_per_second) == (1_000_000, 1_000_000)


def test_the_history_is_bounded() -> None:
    model = TopModel(history=3)
    for at in range(1, 10):
        model.on_stats(stats(at, [publication(at * at)]))
    assert row(model.scene(), "pub", 1).history == (13_000_000, 15_000_000, 17_000_000)
    assert TopModel()._history == HISTORY


def test_many_snapshots_a_second_keep_few_of_them() -> None:
    model = TopModel()
    for at in range(1, 1_000):
        model.on_stats(stats(at / 20, [publication(at / 20)]))
    (track,) = model._drivers["42"].tracks.values()
    assert len(track.samples) <= SAMPLES_A_WINDOW + 2
    assert len(model._drivers["42"].samples) <= SAMPLES_A_WINDOW + 2
    assert track.samples[0][0] >= (999 / 20 - 11) * SECOND_NS


def test_losses_and_blocked_time_are_of_the_last_ten_seconds() -> None:
    def at(second: float) -> Stats:
        until = min(second, 5)
        lost = LossStats("gap", int(until * 10), int(until * 1_000))
        waits = publication(second, blocked_sender_limit_ns=int(until * SECOND_NS))
        return stats(second, [waits], [image(second, losses=(lost,))])

    model = TopModel()
    found = []
    for second in range(1, 18):
        model.on_stats(at(second))
        scene = model.scene()
        found.append([row(scene, "pub", 1).blocked, row(scene, "img", 2).lost_bytes])
    assert found[0] == [0, 0]
    assert found[4] == [1, 1_000]
    assert found[9] == pytest.approx([4 / 9, 4_000 / 9])
    assert found[12] == pytest.approx([0.2, 200])
    assert found[16] == [0, 0]


def hurt_by(at: float, registration_id: int, **changes: Any) -> PublicationStats:
    return publication(at, registration_id=registration_id, stream_id=registration_id, **changes)


def pained(at: float, registration_id: int, **changes: Any) -> ImageStats:
    return image(at, registration_id=registration_id, stream_id=registration_id, **changes)


def test_what_hurts_comes_before_what_is_repaired_and_that_before_what_is_odd() -> None:
    """The figures are those that used to be added: bytes a second, parts of the time, seconds."""

    def at(second: int) -> Stats:
        sent = second * 100_000
        return stats(
            second,
            [
                hurt_by(second, 21, blocked_sender_limit_ns=second * SECOND_NS),
                hurt_by(
                    second,
                    22,
                    position=2 * sent,
                    sender_position=sent,
                    sender_limit=sent,
                    backlog_bytes=sent,
                    receivers=(LAGGING,),
                ),
                hurt_by(second, 41, is_connected=False),
                hurt_by(second, 31, blocked_sender_limit_ns=second * SECOND_NS // 50),
            ],
            [
                pained(second, 32, losses=(LossStats("gap", second * 200, second * 212_552),)),
                pained(second, 33, losses=(LossStats("over_run", second, second * 50_000),)),
                pained(second, 23, lag_bytes=131_072, lag_ns=5 * SECOND_NS),
                pained(second, 24, losses=(LossStats("left_behind", second, 0),)),
                pained(second, 42, losses=(LossStats("forged", second, second * 10**8),)),
                pained(second, 51),
            ],
        )

    scene = seen(*(at(second) for second in range(1, 5)))

    scores = {each.stream_id: each.score for each in scene.rows}
    assert [each.stream_id for each in scene.rows] == [21, 23, 22, 24, 32, 33, 31, 42, 41, 51]
    assert {number: int(score) for number, score in scores.items()} == {
        **dict.fromkeys((21, 22, 23, 24), 3),
        **dict.fromkeys((31, 32, 33), 2),
        **dict.fromkeys((41, 42), 1),
        51: 0,
    }
    assert scores[21] == pytest.approx(3.999)
    # JSON sorts as the list does.
    rows = json_rows(scene, "42")
    assert [each["stream_id"] for each in rows] == [each.stream_id for each in scene.rows]
    assert [each["score"] for each in rows] == sorted(scores.values(), reverse=True)


def test_a_reader_that_is_always_slow_stays_at_the_top() -> None:
    model = TopModel()
    for second in range(1, 200):
        model.on_stats(stats(second, [], [image(second, lag_bytes=131_072, lag_ns=4 * SECOND_NS)]))
    assert row(model.scene(), "img", 2).score == pytest.approx(3 + 0.999 * 0.8)


def test_a_driver_in_trouble_has_the_highest_score() -> None:
    scene = seen(*(WORLDS["blocked loop"].take(at) for at in (1, 2)))
    assert [each.score for each in scene.rows] == sorted(
        (each.score for each in scene.rows), reverse=True
    )
    assert scene.rows[0].score == 4


def test_a_stream_rises_at_once_and_then_keeps_its_place_for_five_seconds() -> None:
    model = TopModel()

    def order(second: float, *counts: int) -> list[int]:
        images = [
            image(0, registration_id=place, losses=(LossStats("gap", count, count),))
            for place, count in enumerate(counts, 1)
        ]
        model.on_stats(stats(second, images=images))
        return [each.key.registration_id for each in model.scene().rows]

    # Places of equals are those of their ids; no loss is none.
    assert order(1, 0, 0) == [1, 2]
    assert order(2, 0, 5) == [2, 1]
    # The first one is worse now, and rises; the second one has its place until second 7.
    assert order(3, 50, 5) == [1, 2]
    assert order(4, 50, 5_000) == [1, 2]
    assert order(6.9, 50, 5_000) == [1, 2]
    assert order(7, 50, 5_000) == [2, 1]


def test_a_stream_with_a_cause_stands_before_one_that_has_no_trouble() -> None:
    waiting = attrs.evolve(SUBSCRIPTION, registration_id=9, image_count=0)
    scene = seen(*(stats(at, [publication(at)], [image(at)], [waiting]) for at in (1, 2)))
    assert [each.key.kind for each in scene.rows] == ["sub", "img", "pub"]
    assert [each.word for each in scene.rows[0].causes] == ["no_image"]


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_the_model_names_stream_cause_and_remedy(world: TopWorld) -> None:
    model = TopModel()
    for at in (1, 2):
        model.on_stats(world.take(at))
    scene = model.scene()
    troubled = next(each for each in scene.rows if each.key.kind != "drv")
    assert troubled.key == TopKey("42", world.kind, world.registration_id)
    assert troubled.cause is not None
    assert troubled.cause.word == world.word
    assert world.sentence in troubled.cause.sentence
    assert world.remedy in troubled.cause.remedy
    # The streams beside it have no trouble.
    assert [each for each in scene.rows if each.stream_id in {11, 12} and each.causes] == []
    said = json.loads(json.dumps(json_of_driver(scene, "42", scene.rows)))
    told = next(each for each in said["rows"] if each["kind"] == world.kind)
    assert (told["registration_id"], told["cause_word"]) == (world.registration_id, world.word)
    assert world.sentence in told["cause"]
    assert world.remedy in told["remedy"]


def test_a_driver_in_trouble_has_a_row_before_all_streams() -> None:
    scene = seen(*(WORLDS["blocked loop"].take(at) for at in (1, 2)))
    assert scene.rows[0].key == TopKey("42", "drv", 0)
    assert scene.rows[0].cause is not None
    assert scene.rows[0].cause.word == "loop_lag"
    for sort in SORTS:
        for is_reversed in (False, True):
            assert arranged(scene, sort, is_reversed=is_reversed)[0].key.kind == "drv"


# Events.


def test_what_changes_is_an_event_with_the_time_of_the_snapshot() -> None:
    second = ReceiverStats("receiver", "0b", "10.0.0.2:4000", 0, 0, 0, 0)
    new = image(1, registration_id=8, stream_id=8)
    scene = seen(
        stats(1, [publication(1)], [image(1)]),
        stats(
            2,
            [publication(2, is_connected=False, receivers=(second,), blocked_by="not_connected")],
            [image(2, state="draining", losses=(LossStats("gap", 1, 9),)), new],
        ),
        stats(
            3,
            [publication(3, blocked_by="sender_limit")],
            [image(3, state="draining", losses=(LossStats("gap", 2, 18),))],
        ),
    )
    one = "publication 1001, session -7,"
    two = "image 1001, session -7,"
    assert texts(scene) == [
        ("disconnected", f"{one} is disconnected"),
        ("receiver_came", f"{one} had a change: receiver 0b at 10.0.0.2:4000 came"),
        ("receiver_went", f"{one} had a change: receiver 0a at 10.0.0.1:4000 went"),
        ("blocked", f"{one} waits for not_connected"),
        ("state", f"{two} was active and is draining"),
        ("loss", f"{two} has lost data by gap for the first time"),
        ("came", "image 8, session -7, came"),
        ("connected", f"{one} is connected"),
        ("receiver_came", f"{one} had a change: receiver 0a at 10.0.0.1:4000 came"),
        ("receiver_went", f"{one} had a change: receiver 0b at 10.0.0.2:4000 went"),
        ("unblocked", f"{one} no longer waits for not_connected"),
        ("blocked", f"{one} waits for sender_limit"),
        ("went", "image 8, session -7, went"),
    ]
    assert scene.events[0].epoch_ns == stats(2).epoch_ns
    assert scene.events[0].key == TopKey("42", "pub", 1)


def test_the_first_picture_is_no_event() -> None:
    assert seen(healthy(1)).events == ()


def test_a_limit_that_is_reached_for_the_first_time_is_an_event() -> None:
    reached = driver(limits={"images_refused": 1, "naks_withheld": 0})
    scene = seen(stats(1), stats(2, driver=reached), stats(3, driver=reached))
    assert texts(scene) == [("limit", "limit images_refused was reached")]


def test_many_receivers_are_counted_and_not_named() -> None:
    many = tuple(attrs.evolve(RECEIVER, id=f"{each:x}") for each in range(100, 120))
    scene = seen(stats(1, [publication(1)]), stats(2, [publication(2, receivers=many)]))
    came = [text for what, text in texts(scene) if what == "receiver_came"]
    assert len(came) == 9
    assert came[-1].endswith("12 more receivers came")


def test_events_are_bounded_and_the_forgotten_ones_counted() -> None:
    model = TopModel()
    for at in range(1, EVENTS_MAX + 12):
        model.on_stats(stats(at, [publication(at, is_connected=at % 2 == 0)]))
    scene = model.scene()
    assert len(scene.events) == EVENTS_MAX
    assert scene.events_forgotten == 10
    assert scene.events[-1].epoch_ns == stats(EVENTS_MAX + 11).epoch_ns


# Drivers.


def test_several_drivers_have_rows_of_their_own() -> None:
    model = TopModel()
    for at in (1, 2):
        model.on_stats(healthy(at), "/a")
        model.on_stats(healthy(at), "/b")
    scene = model.scene()
    assert [each.name for each in scene.drivers] == ["/a", "/b"]
    assert [(each.key.driver, each.key.kind) for each in scene.rows] == [
        *(("/a", "img"), ("/a", "pub"), ("/b", "img"), ("/b", "pub")),
    ]
    assert [each["kind"] for each in json_rows(scene, "/b")] == ["img", "pub"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"pid": 43}, "another process: 43 after 42"),
        ({"started_ns": 5}, "another driver in process 42"),
    ],
)
def test_another_driver_begins_anew(fields: dict[str, int], said: str) -> None:
    model = TopModel()
    model.on_stats(healthy(5), "/a")
    model.on_stats(stats(1, [publication(0)], driver=driver(**fields)), "/a")
    scene = model.scene()
    assert texts(scene) == [("driver", said)]
    assert [each.bytes_per_second for each in scene.rows] == [None]


def test_another_source_of_the_same_driver_begins_anew_and_says_so() -> None:
    """Counters and a driver's own statistics count other things: their difference is no rate."""
    model = TopModel()
    lost = image(1, losses=(LossStats("gap", 5, 500), LossStats("forged", 9, 900)))
    model.on_stats(
        attrs.evolve(stats(1, [], [image(1)]), source="counters"), "/a", remark="no door"
    )
    assert model.scene().drivers[0].remark == "no door"
    assert "no door" in lines_of(model.scene())
    assert json_of_driver(model.scene(), "/a", [])["remark"] == "no door"
    model.on_stats(stats(2, [], [lost]), "/a")
    assert texts(model.scene()) == [("driver", "its own statistics are looked at from now on")]
    assert model.scene().drivers[0].remark == ""
    assert [each.causes for each in model.scene().rows] == [()]
    model.on_stats(attrs.evolve(stats(3), source="counters"), "/a")
    assert texts(model.scene())[-1] == ("driver", "its counters are looked at from now on")


def lines_of(scene: TopScene, width: int = 200) -> str:
    """Return the head and the page of the first driver as one text."""
    lines = [*header_lines(scene, width), *driver_lines(scene, scene.drivers[0], width)]
    return "\n".join("".join(each for each, _ in line).rstrip() for line in lines)


def test_an_archive_stands_in_the_head_and_on_the_page_of_its_driver() -> None:
    seen_well = seen(*(healthy(at).with_archive(ARCHIVE) for at in (1, 2)))
    said = lines_of(seen_well)
    assert "archive 1 rec, lag 960B, free 1.1TB  " in f"{said}  ".replace("\n", "  ")
    assert "2 recordings, 1 active, 2 replays; 1 failed, 4 sources refused; 8.0 kB written" in said
    assert f"960    8,000    1001  recording  {RECORDING.channel}" in said
    full = attrs.evolve(archive(), free_bytes=1_000)
    said = lines_of(seen(*(healthy(at).with_archive(full) for at in (1, 2))))
    assert "free 1.0kB: too little" in said
    assert "1.0 kB, 3 ns ago: too little, no recording begins" in said
    assert "nothing is recorded now" in said
    unknown = attrs.evolve(archive(), free_bytes=None, free_age_ns=None)
    assert "free -B" in lines_of(seen(*(healthy(at).with_archive(unknown) for at in (1, 2))))


def test_a_snapshot_that_is_not_newer_is_ignored() -> None:
    scene = seen(healthy(1), healthy(3), healthy(3), healthy(2), healthy(4))
    assert row(scene, "pub", 1).history == (1_000_000, 1_000_000)


def test_a_driver_that_does_not_answer_keeps_its_rows_and_says_why() -> None:
    model = TopModel()
    model.on_failure("/a", "not there")
    assert model.scene().drivers[0].failure == "not there"
    assert model.scene().events == ()
    for at in (1, 2):
        model.on_stats(healthy(at), "/a")
    model.on_failure("/a", "gone\x1b[2J")
    model.on_failure("/a", "gone for long")
    scene = model.scene()
    assert scene.drivers[0].failure == "gone for long"
    assert model.last("/a") is None
    assert len(scene.rows) == 2
    model.on_stats(healthy(3), "/a")
    assert model.scene().drivers[0].failure == ""
    assert texts(model.scene()) == [
        ("driver", "it does not answer: gone\\x1b[2J"),
        ("driver", "it answers again"),
    ]


def test_what_a_source_cannot_know_is_unknown_and_no_trouble() -> None:
    def at(second: int) -> Stats:
        times = dict.fromkeys(
            f"blocked_{by}_ns" for by in ("sender_limit", "publisher_limit", "not_connected")
        )
        return attrs.evolve(
            stats(
                second,
                [
                    publication(
                        second,
                        **times,
                        state="",
                        is_connected=None,
                        nak_count=None,
                        retransmitted_bytes=None,
                        receiver_count=None,
                        message_count=None,
                    )
                ],
                [image(second, nak_count=None, lag_ns=None, window_bytes=None)],
                driver=driver(loop_lag_count=None, loop_lag_max_ns=None, loop_lags=()),
            ),
            source="counters",
        )

    scene = seen(at(1), at(2))
    there, here = row(scene, "pub", 1), row(scene, "img", 2)
    assert (there.causes, here.causes) == ((), ())
    assert (there.naks_per_second, here.naks_per_second) == (None, None)
    assert (there.blocked_ratio, there.state, there.score) == ({}, "", 0)
    assert (there.bytes_per_second, there.messages_per_second) == (1_000_000, None)
    span = scene.drivers[0].span
    assert span is not None
    assert (span.loop_lag_count, span.is_loop_late) == (None, False)
    columns = columns_for(200)
    assert row_line(there, columns)[-3][0] == "    -"
    head = "".join(each for each, _ in header_lines(scene, 80)[0])
    assert "loop ?" in head
    assert "blocked 0/2" in head
    pages = [detail_lines(scene, each, 80) for each in (there, here)]
    assert all([*pages, driver_lines(scene, scene.drivers[0], 80)])


# Sorting and filtering.


def test_rows_are_sorted_by_what_is_asked_for() -> None:
    def at(second: int) -> Stats:
        return stats(
            second,
            [
                publication(second, registration_id=1, stream_id=3, channel="aeron:b"),
                publication(
                    second * 2,
                    registration_id=2,
                    stream_id=2,
                    channel="aeron:c",
                    receivers=(attrs.evolve(RECEIVER, lag_bytes=9),),
                    blocked_publisher_limit_ns=second * SECOND_NS,
                ),
            ],
            [
                image(
                    second,
                    registration_id=3,
                    stream_id=1,
                    channel="aeron:a",
                    lag_bytes=5,
                    losses=(LossStats("gap", second, second),),
                )
            ],
        )

    scene = seen(at(1), at(2))
    orders = {sort: [each.key.registration_id for each in arranged(scene, sort)] for sort in SORTS}
    assert orders == {
        "trouble": [2, 3, 1],
        "rate": [2, 3, 1],
        "lag": [2, 3, 1],
        "loss": [3, 2, 1],
        "blocked": [2, 3, 1],
        "stream": [3, 2, 1],
        "channel": [3, 1, 2],
    }
    turned = arranged(scene, "channel", is_reversed=True)
    assert [each.key.registration_id for each in turned] == [2, 1, 3]


@pytest.mark.parametrize(
    ("pattern", "kinds"),
    [
        ("", ["img", "img", "pub"]),
        ("pub", ["pub"]),
        ("1001 -7", ["img"]),
        ("GAP", ["img"]),
        ("20121 active", ["img", "img", "pub"]),
        ("nothing", []),
    ],
)
def test_a_filter_looks_for_all_words(pattern: str, kinds: list[str]) -> None:
    scene = seen(*(WORLDS["two percent"].take(at) for at in (1, 2)))
    assert [each.key.kind for each in arranged(scene, pattern=pattern)] == kinds


def test_a_sparkline_is_as_wide_as_asked_and_begins_at_zero() -> None:
    assert sparkline((0, 1, 2, 4, 8), 5) == "▁▂▃▅█"
    assert sparkline((8, 4), 4) == "  █▅"
    assert sparkline((1, 2, 8, 4), 2) == "█▅"
    assert sparkline((0, 0), 3) == " ▁▁"
    assert sparkline((0, 8), 2, is_ascii=True) == "_#"
    assert sparkline((), 2) == "  "
    assert sparkline((1,), 0) == ""


# Causes.


def test_every_setting_that_a_remedy_names_exists() -> None:
    names = {setting.env_name for setting in DriverContext.settings().values()}
    keys = {setting.uri_key for setting in DriverContext.settings().values()}
    assert {"so-rcvbuf", "rcv-wnd", "mtu", "term-length", "tether"} <= keys
    said = [*LIMIT_SETTINGS.values(), *BUDGET_SETTINGS.values()]
    span = span_of(driver(limits={"images_refused": 1}), DRIVER, 1)
    for word in LOSS_CAUSES:
        rates = image_rates(image(1, losses=(LossStats(word, 1, 1),)), None, 1)
        said += [each.remedy for each in causes_of_image(image(1), rates, span)]
    for by in ("sender_limit", "publisher_limit", "not_connected"):
        waits = publication(1, blocked_by=by, receivers=())
        said += [each.remedy for each in causes_of_publication(waits, None, None)]
    found = {each for text in said for each in re.findall(r"AERON_\w+", text)}
    assert len(found) > 8
    assert found - names == set()
    assert all(said)


def test_limits_have_the_names_of_their_counters() -> None:
    counters = {each.name.lower() for each in DriverCounterId}
    assert set(LIMIT_SETTINGS) <= counters


def test_a_lag_of_the_loop_is_seen_in_its_histogram_too() -> None:
    before = driver(loop_lags=(), loop_lag_max_ns=0)
    now = driver(loop_lags=(0,) * 27 + (2,), loop_lag_max_ns=90_000_000)
    span = span_of(now, before, 2)
    assert (span.is_loop_late, span.loop_lag_ns) == (True, 90_000_000)
    assert causes_of_driver(span)[0].sentence == (
        "the event loop of driver 42 was late by up to 90.0 ms"
    )
    small = driver(loop_lags=(5, 9), loop_lag_max_ns=90_000_000)
    assert not span_of(small, before, 2).is_loop_late


def test_sockets_that_drop_are_named_with_what_their_buffer_holds() -> None:
    dropping = driver(
        sockets=(
            SocketStats("10.0.0.1:1", 5, 0, None),
            SocketStats("10.0.0.1:2", 50, 0, 46_080),
        ),
        cycles=(CycleStats("sender", 1, 3),),
    )
    span = span_of(dropping, DRIVER, 10)
    assert span.exceeded == {"sender": 3}
    (cause,) = causes_of_driver(span)
    assert cause.sentence == (
        "the socket at 10.0.0.1:2 was full: the system dropped 50 datagrams or batches in 10 s"
    )
    assert cause.remedy.endswith("46,080 bytes hold 20 datagrams of 1,408 bytes")


def test_limits_and_budgets_that_are_not_known_are_named_as_they_are() -> None:
    odd = driver(limits={"odd_refused": 1}, budgets=(BudgetStats("odd_count", 96, 100),))
    (cause,) = causes_of_driver(span_of(odd, DRIVER, 1))
    assert cause.word == "limit"
    assert cause.remedy == "raise the limit of odd_refused, the limit of odd_count"
    none = driver(budgets=(BudgetStats("odd_count", 5, 0),))
    assert causes_of_driver(span_of(none, DRIVER, 1)) == []


def test_the_causes_of_one_image_stand_in_order_of_what_they_do() -> None:
    lost = image(
        1,
        lag_bytes=100_000,
        lag_ns=SECOND_NS * 9,
        losses=(
            LossStats("forged", 9, 90_000),
            LossStats("over_run", 1, 10),
            LossStats("unfilled", 1, 20),
        ),
        readers=(ReaderStats(3, 0, 100_000),),
    )
    rates = image_rates(lost, None, 1)
    words = [each.word for each in causes_of_image(lost, rates, None)]
    assert words == ["slow_reader", "unfilled", "over_run", "forged"]
    # A full window that is consumed in no time is a strain, and data that never comes is worse.
    quick = attrs.evolve(lost, lag_ns=SECOND_NS // 10)
    words = [each.word for each in causes_of_image(quick, rates, None)]
    assert words == ["unfilled", "slow_reader", "over_run", "forged"]


@pytest.mark.parametrize(("received", "severity"), [(0, 3), (50_000, 3), (1_000_000, 2)])
def test_a_lag_of_unknown_age_is_as_old_as_its_rate_says(received: int, severity: int) -> None:
    behind = image(1, lag_bytes=100_000, lag_ns=None, received_bytes=received)
    (cause,) = causes_of_image(behind, image_rates(behind, None, 1), None)
    assert (cause.word, int(cause.severity)) == ("slow_reader", severity)


def test_a_last_message_that_a_reader_has_in_hand_is_odd_and_no_more() -> None:
    idle = image(1, lag_bytes=64, lag_ns=SECOND_NS * 600, received_bytes=0)
    (cause,) = causes_of_image(idle, image_rates(idle, None, 1), None)
    assert (cause.word, int(cause.severity)) == ("slow_reader", 1)
    busy = attrs.evolve(idle, received_bytes=1)
    (cause,) = causes_of_image(busy, image_rates(busy, None, 1), None)
    assert int(cause.severity) == 3
