"""The page of metrics: its values from snapshot to snapshot, its labels, and its limits."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.errors import ConfigurationError
from aeron_async.metrics.definitions import METRICS, REFUSED, MetricKind
from aeron_async.metrics.series import MetricSeries, channel_labels
from aeron_async.metrics.text import MetricsText, write_metrics
from aeron_async.stats import CycleStats, LossStats, SocketStats, Stats
from tests.metrics.snapshots import (
    CHANNEL,
    SECOND_NS,
    everything,
    image,
    publication,
    samples,
    snapshot,
    subscription,
    values_of,
)
from tests.snapshots import DRIVER, RECORDING, archive

SENT = "aeron_publication_sent_bytes_total"
LOST = "aeron_image_lost_bytes_total"
RECORDED = "aeron_archive_recorded_bytes_total"
MESSAGES = "aeron_publication_messages_total"
STREAM = f'stream="1001",channel="{CHANNEL}"'


def test_a_page_says_what_the_snapshot_does() -> None:
    text = MetricsText(info={"kernel": "6.18", "loop": "uvloop"})
    text.render(everything())

    lines = text.render(everything(at_s=3), now_ns=4 * SECOND_NS).splitlines()

    assert [line for line in lines if line.startswith("aeron_") and "bucket" not in line] == [
        'aeron_info{version="1.2.3",kernel="6.18",loop="uvloop"} 1',
        "aeron_snapshot_age_seconds 1.0",
        f"aeron_publication_sent_bytes_total{{{STREAM}}} 0",
        f"aeron_publication_messages_total{{{STREAM}}} 50",
        f"aeron_publication_retransmitted_bytes_total{{{STREAM}}} 500",
        f"aeron_publication_naks_received_total{{{STREAM}}} 2",
        f"aeron_publication_backlog_bytes{{{STREAM}}} 0",
        f"aeron_publication_window_bytes{{{STREAM}}} 2000",
        f"aeron_publication_receivers{{{STREAM}}} 2",
        f"aeron_publication_slowest_receiver_lag_bytes{{{STREAM}}} 3000",
        f"aeron_publications{{{STREAM}}} 1",
        f"aeron_connected{{{STREAM}}} 1",
        f'aeron_publication_blocked_seconds_total{{{STREAM},by="sender_limit"}} 1.0',
        f'aeron_publication_blocked_seconds_total{{{STREAM},by="publisher_limit"}} 0.0',
        f'aeron_publication_blocked_seconds_total{{{STREAM},by="not_connected"}} 0.0',
        f"aeron_image_received_bytes_total{{{STREAM}}} 9000",
        f"aeron_image_naks_sent_total{{{STREAM}}} 2",
        f"aeron_image_status_messages_sent_total{{{STREAM}}} 9",
        f'aeron_image_lost_bytes_total{{{STREAM},cause="gap"}} 3000',
        f'aeron_image_lost_bytes_total{{{STREAM},cause="forged"}} 100',
        f'aeron_image_loss_events_total{{{STREAM},cause="gap"}} 2',
        f'aeron_image_loss_events_total{{{STREAM},cause="forged"}} 1',
        f"aeron_images{{{STREAM}}} 1",
        f"aeron_subscription_messages_total{{{STREAM}}} 40",
        f"aeron_subscription_lag_bytes{{{STREAM}}} 500",
        f"aeron_subscription_lag_seconds{{{STREAM}}} 1e-06",
        "aeron_archive_recorded_bytes_total 8000",
        "aeron_archive_recording_lag_bytes 960",
        f"aeron_archive_free_bytes {1 << 40}",
        'aeron_archive_recordings{state="active"} 1',
        'aeron_archive_recordings{state="stopped"} 1',
        'aeron_calls_total{service="orders",method="place",outcome="answered"} 5',
        'aeron_calls_total{service="orders",method="place",outcome="NOT_FOUND"} 1',
        'aeron_calls_under_way{service="orders",method="place"} 2',
        'aeron_call_handler_seconds_total{service="orders",method="place"} 3.0',
        "aeron_driver_loop_lag_seconds_sum 2e-06",
        "aeron_driver_loop_lag_seconds_count 780",
        'aeron_driver_cycle_seconds_max{agent="sender"} 5e-09',
        'aeron_driver_cycles_exceeded_total{agent="sender"} 0',
        'aeron_driver_socket_drops_total{reason="socket_full"} 4',
        'aeron_driver_invalid_packets_total{reason="malformed"} 3',
        'aeron_driver_invalid_packets_total{reason="foreign"} 2',
        'aeron_driver_limit_reached_total{limit="images_refused"} 1',
        'aeron_driver_budget_used_ratio{budget="image_logs_bytes"} 0.5',
        "aeron_series_dropped 0",
    ]


def test_a_page_has_each_metric_of_the_table_once_with_type_and_help() -> None:
    page = "".join(
        write_metrics(everything(), MetricSeries(), now_ns=SECOND_NS, refused={"busy": 1})
    )
    for metric in METRICS:
        assert page.count(f"# TYPE {metric.name} {metric.kind.value}\n") == 1
        assert page.count(f"# HELP {metric.name} {metric.help}\n") == 1
    assert f'{REFUSED.name}{{reason="busy"}} 1\n' in page


def test_names_follow_the_rules_of_prometheus_and_are_given_once() -> None:
    assert len({each.name for each in METRICS}) == len(METRICS)
    assert len({each.otel_name for each in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"aeron_[a-z_]+", metric.name)
        assert re.fullmatch(r"(aeron|messaging)(\.[a-z_]+)+", metric.otel_name)
        assert metric.name.endswith("_total") is (metric.kind is MetricKind.COUNTER)


def test_what_the_source_does_not_know_has_no_sample() -> None:
    unknown = publication(
        1,
        None,
        position=None,
        message_count=None,
        backlog_bytes=None,
        receivers=(),
        blocked_sender_limit_ns=None,
        blocked_publisher_limit_ns=None,
        blocked_not_connected_ns=None,
    )
    page = MetricsText().render(
        snapshot(
            [unknown],
            [image(2, status_message_count=None)],
            [subscription(3, message_count=None, lag_ns=None)],
            driver=attrs.evolve(DRIVER, loop_lags=(), sockets=(), counters={}, budgets=()),
        )
    )
    for name in (
        SENT,
        MESSAGES,
        "aeron_publication_backlog_bytes",
        "aeron_publication_blocked_seconds_total",
        "aeron_publication_slowest_receiver_lag_bytes",
        "aeron_image_status_messages_sent_total",
        "aeron_subscription_messages_total",
        "aeron_subscription_lag_seconds",
        "aeron_driver_loop_lag_seconds",
        "aeron_driver_socket_drops_total",
        "aeron_driver_invalid_packets_total",
        "aeron_driver_budget_used_ratio",
        "aeron_snapshot_age_seconds",
    ):
        assert name not in page


def test_a_snapshot_of_columns_that_are_nearly_all_unknown_is_a_page() -> None:
    fields = snapshot().to_dict()
    fields["publications"] = {"registration_id": [1], "channel": [CHANNEL], "stream_id": [7]}

    page = MetricsText().render(Stats.from_dict(fields))

    assert values_of(page, "aeron_publications") == {"7": 1}
    assert "aeron_connected" not in page


def test_a_position_counts_from_where_it_was_first_seen() -> None:
    text = MetricsText()
    assert values_of(text.render(snapshot([publication(1, 5_000)])), SENT) == {"1": 0}
    assert values_of(text.render(snapshot([publication(1, 5_700)])), SENT) == {"1": 700}


def test_streams_with_the_same_labels_are_one_series() -> None:
    text = MetricsText()
    two = [
        publication(1, 5_000, stream_id=7, window_bytes=10, is_connected=True),
        publication(2, 9_000, stream_id=7, window_bytes=30, is_connected=False),
    ]
    text.render(snapshot(two))
    later = [attrs.evolve(two[0], sender_position=5_100), attrs.evolve(two[1], message_count=1)]

    page = text.render(snapshot(later))

    assert values_of(page, SENT) == {"7": 100}
    # It fell from 50 to 1, because a client has left: what it had counted stays.
    assert values_of(page, MESSAGES) == {"7": 100}
    assert values_of(page, "aeron_publication_window_bytes") == {"7": 10}
    assert values_of(page, "aeron_publications") == {"7": 2}
    assert values_of(page, "aeron_connected") == {"7": 0}


def test_largest_and_smallest_do_not_depend_on_the_order() -> None:
    rows = [
        subscription(each, stream_id=7, lag_bytes=lag) for each, lag in ((1, 5), (2, 9), (3, 2))
    ]
    for order in (rows, rows[::-1]):
        page = MetricsText().render(snapshot(subscriptions=order))
        assert values_of(page, "aeron_subscription_lag_bytes") == {"7": 9}


def test_a_stream_that_went_keeps_its_sum_for_five_minutes() -> None:
    text = MetricsText()
    text.render(snapshot([publication(1, 0), publication(2, 0)]))
    text.render(snapshot([publication(1, 300), publication(2, 10)], at_s=10))

    gone = text.render(snapshot([publication(2, 20)], at_s=20))
    assert values_of(gone, SENT) == {"1": 300, "2": 20}
    assert values_of(gone, "aeron_publications") == {"2": 1}

    back = text.render(snapshot([publication(2, 20), publication(3, 70, stream_id=1)], at_s=30))
    assert values_of(back, SENT) == {"1": 300, "2": 20}
    more = text.render(snapshot([publication(2, 20), publication(3, 75, stream_id=1)], at_s=40))
    assert values_of(more, SENT) == {"1": 305, "2": 20}

    text.render(snapshot([publication(2, 20)], at_s=50))
    kept = text.render(snapshot([publication(2, 20)], at_s=350))
    assert values_of(kept, SENT) == {"1": 305, "2": 20}
    forgotten = text.render(snapshot([publication(2, 21)], at_s=351))
    assert values_of(forgotten, SENT) == {"2": 21}
    assert values_of(text.render(snapshot([publication(2, 25)], at_s=352)), SENT) == {"2": 25}


def test_a_series_that_has_a_stream_again_is_not_forgotten() -> None:
    text = MetricsText()
    text.render(snapshot([publication(1, 0), publication(2, 0)]))
    text.render(snapshot([publication(2, 0)], at_s=2))
    back = publication(3, 0, stream_id=1)
    text.render(snapshot([publication(2, 0), back], at_s=3))
    text.render(snapshot([publication(2, 0), attrs.evolve(back, sender_position=8)], at_s=4))

    page = text.render(
        snapshot([publication(2, 0), attrs.evolve(back, sender_position=9)], at_s=900)
    )

    assert values_of(page, SENT) == {"1": 9, "2": 0}


def test_series_are_forgotten_one_after_another() -> None:
    text = MetricsText()
    for gone in range(4):
        rows = [publication(each, gone) for each in range(gone, 5)]
        text.render(snapshot(rows, at_s=100 * gone))
    found = [
        set(values_of(text.render(snapshot([publication(4, 9)], at_s=at_s)), SENT))
        for at_s in (400, 401, 501, 601, 701)
    ]
    assert found == [set("01234"), set("1234"), set("234"), set("34"), set("4")]


def test_a_position_that_falls_counts_from_there() -> None:
    text = MetricsText()
    pages = [text.render(snapshot([publication(1, each)])) for each in (50, 90, 10, 15)]
    assert [values_of(page, SENT)["1"] for page in pages] == [0, 40, 40, 45]


def test_the_slowest_receiver_allows_the_least_to_be_sent() -> None:
    row = publication(1)
    fast, slow = (
        attrs.evolve(row.receivers[0], position=position, window_bytes=window, lag_bytes=lag)
        for position, window, lag in ((100, 900, 7), (200, 10, 3))
    )
    for receivers in ((fast, slow), (slow, fast), (slow,)):
        for backlog, lag in ((0, 3), (40, 43), (None, 3)):
            changed = attrs.evolve(row, receivers=receivers, backlog_bytes=backlog)
            page = MetricsText().render(snapshot([changed]))
            assert values_of(page, "aeron_publication_slowest_receiver_lag_bytes") == {"1": lag}


@pytest.mark.parametrize(
    "fields", [{"pid": DRIVER.pid + 1}, {"started_ns": 5}, {"started_ns": None}]
)
def test_registration_ids_of_another_driver_are_other_streams(fields: dict[str, Any]) -> None:
    text = MetricsText()
    text.render(snapshot([publication(1, 0)]))
    text.render(snapshot([publication(1, 300)], at_s=2))
    restarted = attrs.evolve(DRIVER, **fields)

    page = text.render(snapshot([publication(1, 5_000)], driver=restarted, at_s=1))

    assert values_of(page, SENT) == {"1": 300}
    assert values_of(page, MESSAGES) == {"1": 100}


def test_an_older_snapshot_is_refused() -> None:
    text = MetricsText()
    text.render(snapshot(at_s=3))
    text.render(snapshot(at_s=3))
    with pytest.raises(ConfigurationError, match="older than the one before"):
        text.render(snapshot(at_s=2))


def test_what_is_no_snapshot_is_refused() -> None:
    nothing: Any = {}
    with pytest.raises(ConfigurationError, match=r"stats must be a snapshot, .* got dict"):
        MetricsText().render(nothing)


def test_what_becomes_known_or_unknown_or_falls_never_makes_a_counter_fall() -> None:
    text = MetricsText()
    counts = [5, 9, None, 3, 2, None, None, 4]
    pages = [text.render(snapshot([publication(1, each, message_count=each)])) for each in counts]
    assert [values_of(page, MESSAGES)["1"] for page in pages] == [5, 9, 9, 9, 9, 9, 9, 11]


@pytest.mark.parametrize(
    ("counts", "sums"),
    [
        # A client of another process adds the publication, and leaves it.
        ([1_000, None, 1_000, 1_002], [1_000, 1_000, 1_000, 1_002]),
        ([1_000, None, None, 1_300], [1_000, 1_000, 1_000, 1_300]),
        # A client of this process leaves it, and takes what it has counted along.
        ([5_100, 100, 103], [5_100, 5_100, 5_103]),
        ([5_100, None, 100, 103], [5_100, 5_100, 5_100, 5_103]),
    ],
)
def test_clients_that_share_a_publication_come_and_go_without_a_jump(
    counts: list[int | None], sums: list[int]
) -> None:
    text = MetricsText()
    pages = [
        text.render(snapshot([publication(1, message_count=count, blocked_not_connected_ns=count)]))
        for count in counts
    ]
    assert [values_of(page, MESSAGES)["1"] for page in pages] == sums
    blocked = (
        "aeron_publication_blocked_seconds_total",
        frozenset({("stream", "1"), ("channel", CHANNEL), ("by", "not_connected")}),
    )
    assert [round(samples(page)[blocked] * SECOND_NS) for page in pages] == sums


def test_what_a_publication_had_counted_stays_when_it_goes_unknown() -> None:
    text = MetricsText()
    other = publication(2, stream_id=1, message_count=7)
    rows = [publication(1, message_count=1_000), publication(1, message_count=None)]
    pages = [text.render(snapshot([each, other])) for each in rows]
    pages.append(text.render(snapshot([other])))
    assert [values_of(page, MESSAGES)["1"] for page in pages] == [1_007, 1_007, 1_007]


def test_a_table_that_knows_positions_only_counts_what_arrives_from_now_on() -> None:
    text = MetricsText()
    for position, received in ((9_000, 0), (9_500, 500)):
        page = text.render(snapshot(images=[image(1, position=position, received_bytes=None)]))
        assert values_of(page, "aeron_image_received_bytes_total") == {"1": received}


def test_for_ipc_what_was_published_is_sent() -> None:
    text = MetricsText()
    text.render(snapshot([publication(1, None, position=100)]))
    assert values_of(text.render(snapshot([publication(1, None, position=150)])), SENT) == {"1": 50}


def test_streams_beyond_the_limit_are_summed_and_counted() -> None:
    text = MetricsText(max_series=2)
    text.render(snapshot([publication(each, 0) for each in range(5)]))
    page = text.render(snapshot([publication(each, 10) for each in range(5)]))

    assert values_of(page, SENT) == {"0": 10, "1": 10, "other": 30}
    assert values_of(page, "aeron_publications") == {"0": 1, "1": 1, "other": 3}
    # Three streams, and of 15 series by what they waited for all but two.
    assert samples(page)["aeron_series_dropped", frozenset()] == 3 + 13
    by = {
        dict(labels)["by"]: value
        for (name, labels), value in samples(page).items()
        if name == "aeron_publication_blocked_seconds_total" and ("stream", "other") in labels
    }
    assert by == {"sender_limit": 4, "publisher_limit": 0, "not_connected": 0}

    more = text.render(snapshot([publication(each, 10) for each in range(1, 6)]))
    # The places of the first are not free yet: the four, and what each of five waited for.
    assert samples(more)["aeron_series_dropped", frozenset()] == 4 + 15


def test_no_metric_has_more_series_than_the_limit_and_those_of_other() -> None:
    causes = ("gap", "over_run", "no such cause")
    losses = tuple(LossStats(cause, 1, 10) for cause in causes)
    page = MetricsText(max_series=3).render(
        snapshot(
            [publication(each) for each in range(9)],
            [image(each, losses=losses) for each in range(9)],
            driver=attrs.evolve(
                DRIVER, cycles=tuple(CycleStats(f"agent {each}", 1, 1) for each in range(9))
            ),
        )
    )
    found = samples(page)
    for metric in METRICS:
        if metric.kind is not MetricKind.HISTOGRAM:
            own = [
                labels
                for name, labels in found
                if name == metric.name and ("stream", "other") not in labels
            ]
            assert len(own) <= 3, metric.name
    lost = {dict(labels)["cause"] for name, labels in found if name == LOST}
    assert lost == {"gap", "over_run", "unknown"}


def test_a_stream_keeps_its_place_among_named_and_other() -> None:
    text = MetricsText(max_series=1)
    first = [publication(1, 0), publication(2, 0)]
    text.render(snapshot(first))
    page = text.render(snapshot([publication(2, 30), publication(3, 5)], at_s=2))
    assert values_of(page, SENT) == {"1": 0, "other": 30}
    later = text.render(snapshot([publication(2, 31), publication(4, 5)], at_s=400))
    assert values_of(later, SENT) == {"other": 31}
    newest = text.render(snapshot([publication(2, 32), publication(5, 5)], at_s=401))
    assert values_of(newest, SENT) == {"5": 0, "other": 32}


def test_what_is_kept_of_streams_that_come_and_go_is_bounded() -> None:
    series = MetricSeries(max_series=10)
    for step in range(300):
        rows = [publication(step * 20 + each, each) for each in range(20)]
        losses = (LossStats("gap", 1, 1),)
        images = [image(step * 20 + each, losses=losses) for each in range(20)]
        readers = [subscription(step * 20 + each) for each in range(20)]
        list(series.collect(snapshot(rows, images, readers, at_s=step)))
    # Of 20 rows each (60 by what they wait for) and 10 series beside those of `other`.
    assert series.kept_count <= (20 + 11) * 4 + 60 + 13


def test_a_page_that_is_left_half_written_does_no_harm() -> None:
    series = MetricSeries()
    list(series.collect(snapshot([publication(1, 0)])))
    for _ in zip(range(4), series.collect(snapshot([publication(1, 40)], at_s=2)), strict=False):
        pass
    page = "".join(write_metrics(snapshot([publication(1, 100)], at_s=3), series))
    assert values_of(page, SENT) == {"1": 100}


def test_drops_are_those_of_the_sockets_where_no_counter_has_them() -> None:
    sockets = (SocketStats("a", 3, None, None), SocketStats("b", 4, None, None))
    page = MetricsText().render(snapshot(driver=attrs.evolve(DRIVER, sockets=sockets)))
    assert 'aeron_driver_socket_drops_total{reason="socket_full"} 7\n' in page


def recorded(page: str) -> dict[str, float]:
    """Return what was recorded, by the label `recording`."""
    return {
        dict(labels).get("recording", ""): value
        for (name, labels), value in samples(page).items()
        if name == RECORDED
    }


def test_without_an_archive_there_is_nothing_of_it() -> None:
    assert "aeron_archive" not in MetricsText().render(snapshot())


def test_recordings_have_a_label_only_on_request() -> None:
    slow = attrs.evolve(RECORDING, recording_id=6, recorded_bytes=10, lag_bytes=5_000)
    taken = snapshot().with_archive(archive(RECORDING, slow))

    together = MetricsText().render(taken)
    named = MetricsText(label_recordings=True).render(taken)

    assert "aeron_archive_recorded_bytes_total 8010\n" in together
    assert "aeron_archive_recording_lag_bytes 5000\n" in together
    assert "recording=" not in together
    assert recorded(named) == {"5": 8_000, "6": 10}
    assert 'aeron_archive_recording_lag_bytes{recording="6"} 5000\n' in named


def test_what_another_process_knows_of_a_recording_has_no_sample() -> None:
    unknown = attrs.evolve(RECORDING, image_position=None, lag_bytes=None)
    blind = attrs.evolve(archive(unknown), free_bytes=None, free_age_ns=None)

    page = MetricsText().render(snapshot().with_archive(blind))

    assert "aeron_archive_recording_lag_bytes" not in page
    assert "aeron_archive_free_bytes" not in page
    assert recorded(page) == {"": 8_000}


@pytest.mark.parametrize("label_recordings", [False, True])
def test_what_was_recorded_never_falls(*, label_recordings: bool) -> None:
    text = MetricsText(label_recordings=label_recordings)
    extended = attrs.evolve(RECORDING, start_position=9_024, recorded_bytes=100)
    opened_again = archive(attrs.evolve(extended, recorded_bytes=700), recorded_bytes=700)
    history = [
        archive(RECORDING),
        archive(recorded_bytes=8_000),
        None,
        archive(extended, recorded_bytes=8_100),
        opened_again,
    ]
    seen = [
        sum(recorded(text.render(snapshot(at_s=at_s).with_archive(each))).values())
        for at_s, each in enumerate(history)
    ]
    # A snapshot may lack the archive. Once it is opened again, it counts from 0.
    assert seen == [8_000, 8_000, 0, 8_100, 8_700 if label_recordings else 8_800]


def test_recordings_beyond_the_limit_are_summed_and_counted() -> None:
    rows = [attrs.evolve(RECORDING, recording_id=each, recorded_bytes=1) for each in range(5)]
    text = MetricsText(max_series=2, label_recordings=True)

    page = text.render(snapshot().with_archive(archive(*rows)))

    assert recorded(page) == {"0": 1, "1": 1, "other": 3}
    assert "aeron_series_dropped 3\n" in page
    gone = text.render(snapshot(at_s=400).with_archive(archive()))
    gone = text.render(snapshot(at_s=800).with_archive(archive()))
    assert recorded(gone) == {}
    again = text.render(snapshot(at_s=801).with_archive(archive(*rows[:3])))
    assert recorded(again) == {"0": 1, "1": 1, "other": 1}


def test_lags_of_the_loop_are_cumulative_and_the_buckets_always_the_same() -> None:
    def buckets(*lags: int) -> dict[str, float]:
        page = MetricsText().render(snapshot(driver=attrs.evolve(DRIVER, loop_lags=lags)))
        return {
            dict(labels)["le"]: value
            for (name, labels), value in samples(page).items()
            if name == "aeron_driver_loop_lag_seconds_bucket"
        }

    lags = [0] * 40
    lags[3], lags[14], lags[20], lags[39] = 1, 2, 4, 8
    found = buckets(*lags)
    assert found.keys() == buckets(1).keys()
    assert (found["1.6384e-05"], found["0.001048576"], found["+Inf"]) == (3, 7, 15)
    assert list(found.values()) == sorted(found.values())
    assert set(buckets(1).values()) == {1}


@pytest.mark.parametrize(
    ("channel", "label"),
    [
        ("aeron:ipc", "aeron:ipc"),
        ("aeron:ipc?term-length=64k|session-id=7", "aeron:ipc"),
        ("aeron:udp?endpoint=10.0.0.1:4000|mtu=1408|session-id=7|tags=1,2",
         "aeron:udp?endpoint=10.0.0.1:4000"),
        ("aeron:udp?control=10.0.0.1:4000|control-mode=dynamic|so-rcvbuf=1m",
         "aeron:udp?control=10.0.0.1:4000"),
        ("aeron:udp?control=10.0.0.1:4000|endpoint=10.0.0.2:0",
         "aeron:udp?endpoint=10.0.0.2:0"),
        ("aeron:udp?endpoint=224.0.1.1:4000|group=true",
         "aeron:udp?endpoint=224.0.1.1:4000|group=true"),
        ("aeron:udp?control-mode=manual|tags=3", "aeron:udp?control-mode=manual"),
        ("aeron-spy:aeron:udp?endpoint=[::1]:40", "aeron-spy:aeron:udp?endpoint=[::1]:40"),
        ("aeron:udp?tags=3", "aeron:udp"),
        ("", ""),
        ("a\x1b[2J\nb", r"a\x1b[2J\nb"),
        ("aeron:udp?endpoint=\u202ehost:1", r"aeron:udp?endpoint=\u202ehost:1"),
    ],
)  # fmt: skip
def test_the_label_of_a_channel_says_where_it_leads(channel: str, label: str) -> None:
    assert channel_labels(channel) == (label, "")


def test_an_alias_is_a_label_of_its_own() -> None:
    channel = "aeron:udp?alias=prices|endpoint=10.0.0.1:4000"
    page = MetricsText().render(snapshot([publication(1, channel=channel)]))
    assert (
        'aeron_publications{stream="1",channel="aeron:udp?endpoint=10.0.0.1:4000",alias="prices"} 1'
        in page
    )


def test_marks_of_the_format_are_escaped_and_long_labels_cut() -> None:
    page = MetricsText().render(
        snapshot([publication(1, channel='a"b\\c'), publication(2, channel="x" * 5_000)])
    )
    assert r'channel="a\"b\\c"' in page
    assert max(map(len, page.splitlines())) < 400


foreign = st.text(max_size=40) | st.sampled_from(
    ['"', "\\", "\n", '\\"', "}", "{", ",", "=", "# HELP", "\x00", "\ud800", "\u2028", "a|b", "?"]
).map(lambda each: f"aeron:udp?endpoint={each}|alias={each}")


@given(
    channels=st.lists(st.tuples(foreign, st.integers(0, 2**62)), max_size=6),
    names=st.lists(st.tuples(foreign, st.integers(0, 2**62)), max_size=6),
    version=foreign,
    max_series=st.integers(1, 4),
)
def test_hostile_texts_give_a_page_that_is_read_back_with_its_values(
    channels: list[tuple[str, int]],
    names: list[tuple[str, int]],
    version: str,
    max_series: int,
) -> None:
    rows = [
        publication(index, channel=channel, stream_id=0, message_count=count)
        for index, (channel, count) in enumerate(channels)
    ]
    causes = tuple(LossStats(cause, count, count) for cause, count in names)
    images = [image(1, losses=causes, channel=names[0][0] if names else "")]
    driver = attrs.evolve(
        DRIVER,
        version=version,
        cycles=tuple(CycleStats(agent, count, count) for agent, count in names),
        limits=dict(names),
    )
    series = MetricSeries(max_series)
    stats = snapshot(rows, images, driver=driver)
    page = "".join(write_metrics(stats, series))

    assert all(character.isprintable() or character == "\n" for character in page)
    expected = {
        (each.metric.name, frozenset(labels.pairs)): value
        for each in series.collect(stats)
        for labels, value in zip(each.labels, each.values, strict=True)
    }
    found = {key: value for key, value in samples(page).items() if "loop_lag" not in key[0]}
    assert found == expected
    total = sum(value for (name, _), value in found.items() if name == MESSAGES)
    assert total == sum(count for _, count in channels)


histories = st.lists(
    # Whose rows are there, by registration id, and how much each has counted since.
    st.dictionaries(st.integers(0, 5), st.integers(0, 9), max_size=6),
    max_size=12,
)


@given(histories=histories, max_series=st.integers(1, 4))
def test_in_any_history_sums_are_what_was_counted_and_never_fall(
    histories: list[dict[int, int]], max_series: int
) -> None:
    series = MetricSeries(max_series)
    counts: dict[int, int] = {}
    total = {SENT: 0, MESSAGES: 0}
    before: dict[tuple[str, str], float] = {}
    for step, more_by_id in enumerate(histories):
        for gone in counts.keys() - more_by_id.keys():
            del counts[gone]
        for each, more in more_by_id.items():
            total[MESSAGES] += more
            total[SENT] += more if each in counts else 0
            counts[each] = counts.get(each, 0) + more
        # Six registrations are three streams. The positions began somewhere.
        rows = [
            publication(each, 7 + count, message_count=count, stream_id=each % 3)
            for each, count in counts.items()
        ]
        page = "".join(write_metrics(snapshot(rows, at_s=step), series))
        now = {
            (name, stream): value
            for name in total
            for stream, value in values_of(page, name).items()
        }
        assert {key: value for key, value in before.items() if now[key] < value} == {}
        for name, expected in total.items():
            assert sum(value for (found, _), value in now.items() if found == name) == expected
        before = now


def test_the_limit_of_series_is_checked() -> None:
    with pytest.raises(
        ConfigurationError, match="max_series=0 must be a whole number of 1 or more"
    ):
        MetricsText(0)


def test_promtool_has_nothing_to_say_about_a_page() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not on PATH: apt-get install prometheus")
    page = MetricsText(info={"kernel": "6.18", "loop": "uvloop"}).render(
        everything(), now_ns=SECOND_NS
    )
    done = subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
