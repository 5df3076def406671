"""Causes of trouble of publications: who holds one back, a backlog, and a peer that was missed."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from aeron_async.cli.top_causes import span_of
from aeron_async.cli.top_model import TopModel
from aeron_async.cli.top_publications import causes_of_publication
from aeron_async.cli.top_scene import json_of_driver
from aeron_async.stats import PublicationStats, ReceiverStats, Stats
from tests.cli.top_worlds import (
    DRIVER,
    LAGGING,
    RECEIVER,
    SECOND_NS,
    SUBSCRIPTION,
    driver,
    json_rows,
    publication,
    row,
    seen,
    stats,
)


def test_a_reader_in_this_driver_that_holds_a_publication_back_is_named() -> None:
    reader = ReceiverStats("ipc", "17", "", 0, None, None, 65_536)
    held = publication(
        1,
        sender_position=None,
        sender_limit=None,
        blocked_by="publisher_limit",
        receivers=(reader,),
    )
    (cause,) = causes_of_publication(held, None, None)
    assert cause.word == "publisher_limit"
    assert cause.sentence == "ipc 17 holds it back: 65,536 bytes behind"
    # The loop of its process is late as well: the reader may be what holds that up.
    late = span_of(driver(loop_lag_count=2, loop_lag_max_ns=SECOND_NS), DRIVER, 10)
    words = [each.word for each in causes_of_publication(held, None, late)]
    assert words == ["publisher_limit", "loop_lag"]
    assert causes_of_publication(held, None, late)[0] == cause


def test_a_publisher_limit_without_a_slow_reader_is_the_sender_or_the_loop() -> None:
    held = publication(1, blocked_by="publisher_limit", backlog_bytes=65_536)
    (cause,) = causes_of_publication(held, None, None)
    assert cause.sentence == "the sender of this driver is late: 65,536 bytes not sent yet"
    late = span_of(driver(loop_lag_count=2, loop_lag_max_ns=SECOND_NS), DRIVER, 10)
    (cause,) = causes_of_publication(held, None, late)
    assert cause.word == "loop_lag"
    # A spy lacks what was not sent, and that is not its fault.
    spy = ReceiverStats("spy", "17", "", 0, None, None, 65_536)
    (cause,) = causes_of_publication(attrs.evolve(held, receivers=(spy,)), None, late)
    assert cause.word == "loop_lag"
    unknown = publication(1, blocked_by="publisher_limit", backlog_bytes=None)
    (cause,) = causes_of_publication(unknown, None, None)
    assert cause.sentence == "the sender of this driver is late"


def test_receivers_that_miss_data_are_a_trouble_of_the_publication() -> None:
    scene = seen(
        stats(1, [publication(1)]),
        stats(2, [publication(2, nak_count=5, retransmitted_bytes=7_000)]),
    )
    cause = row(scene, "pub", 1).cause
    assert cause is not None
    assert cause.sentence == "receivers miss data: 5.0 NAKs/s, 7.0 kB/s sent again"


@pytest.mark.parametrize("by", ["", "not_connected"])
def test_a_publication_without_a_subscriber_says_so(by: str) -> None:
    lonely = publication(1, is_connected=False, blocked_by=by)
    scene = seen(stats(1, [lonely]))
    (cause,) = row(scene, "pub", 1).causes
    assert cause.sentence == ("offers wait for a subscriber" if by else "no subscriber")
    assert row(scene, "pub", 1).state == "no sub"
    assert [each.word for each in row(scene, "pub", 1).causes] == ["not_connected"]


def test_what_is_sent_again_is_left_out_if_it_is_unknown() -> None:
    scene = seen(
        stats(1, [publication(1, retransmitted_bytes=None)]),
        stats(2, [publication(2, retransmitted_bytes=None, nak_count=5)]),
    )
    (cause,) = row(scene, "pub", 1).causes
    assert cause.sentence == "receivers miss data: 5.0 NAKs/s"


# A slow receiver behind a long term.


def with_backlog(second: float, **changes: Any) -> PublicationStats:
    """Return a publication that publishes 200 kB a second, of which 100 kB are sent."""
    sent = int(second * 100_000)
    usual: dict[str, Any] = {
        "position": 2 * sent,
        "position_limit": 10**8,
        "window_bytes": 10**8,
        "sender_position": sent,
        "sender_limit": sent,
        "backlog_bytes": sent,
        "receivers": (LAGGING, RECEIVER),
    }
    return publication(second, **usual | changes)


def test_a_backlog_that_a_receiver_holds_names_it_long_before_offers_wait() -> None:
    scene = seen(*(stats(second, [with_backlog(second)]) for second in (10, 11)))
    held = row(scene, "pub", 1)
    assert held.cause is not None
    assert held.cause.word == "backlog"
    assert held.cause.sentence == (
        "held back by receiver 0b at 10.0.0.2:4000: backlog 1,100,000 bytes, about 11 s"
    )
    assert "rcv-wnd" in held.cause.remedy
    assert held.score == pytest.approx(3 + 0.999 * 11 / 12)
    # What was not sent and what the receiver has not consumed.
    assert held.lag_bytes == 1_100_000 + 131_072
    assert json_rows(scene, "42")[0]["lag_bytes"] == held.lag_bytes
    assert scene.drivers[0].blocked_count == 0


def test_a_backlog_that_fills_the_term_is_part_of_why_offers_wait() -> None:
    scene = seen(
        *(
            stats(
                second,
                [
                    with_backlog(
                        second,
                        position=1_000_000 + int(second * 100_000),
                        backlog_bytes=1_000_000,
                        blocked_sender_limit_ns=int(second * SECOND_NS),
                    )
                ],
            )
            for second in (10, 11)
        )
    )
    (cause,) = row(scene, "pub", 1).causes
    assert cause.word == "sender_limit"
    assert cause.sentence == (
        "receiver 0b at 10.0.0.2:4000 holds it back: 1,131,072 bytes behind, about 10 s"
    )


@pytest.mark.parametrize("is_ipc", [True, False])
def test_a_backlog_hurts_though_offers_wait_only_now_and_then(is_ipc: bool) -> None:  # noqa: FBT001 - of a table
    def at(second: int) -> Stats:
        waits = {
            f"blocked_{'publisher' if is_ipc else 'sender'}_limit_ns": second * SECOND_NS // 50
        }
        if is_ipc:
            return stats(second, [ipc_with_backlog(second, second * 100_000, **waits)])
        return stats(second, [with_backlog(second, **waits)])

    held = row(seen(at(10), at(11)), "pub", 1)
    assert [each.word for each in held.causes] == ["publisher_limit" if is_ipc else "sender_limit"]
    assert held.score == pytest.approx(3 + 0.999 * 11 / 12)


def test_a_backlog_of_which_nothing_is_sent_says_so() -> None:
    scene = seen(
        *(
            stats(
                second,
                [
                    with_backlog(
                        second,
                        position=5_000,
                        sender_position=0,
                        sender_limit=0,
                        backlog_bytes=5_000,
                        receivers=(),
                    )
                ],
            )
            for second in (1, 2)
        )
    )
    (cause,) = row(scene, "pub", 1).causes
    assert cause.sentence == "held back by its receivers: backlog 5,000 bytes, nothing is sent"
    assert cause.score == pytest.approx(3.999)


@pytest.mark.parametrize(
    ("changes", "earlier"),
    [
        # The sender may send on; it is its turn.
        ({"sender_limit": 10**7}, {"sender_limit": 10**7}),
        # There was none at the look before: it is a burst.
        ({}, {"backlog_bytes": 0}),
        ({}, {"sender_limit": 10**7}),
        # What is left is sent within a second.
        ({"backlog_bytes": 50_000}, {"backlog_bytes": 50_000}),
        ({"state": "linger"}, {}),
        ({"backlog_bytes": None}, {}),
        # Nobody reads it: that is said instead.
        ({"is_connected": False, "state": ""}, {}),
    ],
)
def test_a_backlog_that_is_sent_soon_or_held_by_nobody_is_no_trouble(
    changes: dict[str, Any], earlier: dict[str, Any]
) -> None:
    scene = seen(stats(10, [with_backlog(10, **earlier)]), stats(11, [with_backlog(11, **changes)]))
    assert row(scene, "pub", 1).causes == ()


def test_a_backlog_that_grows_slowly_is_seen_after_some_looks() -> None:
    """Receivers let it be sent in steps, so that it is now larger and now smaller."""
    words = []
    model = TopModel()
    for second in range(1, 9):
        sent = second * 100_000
        backlog = second * 2_000 + (second % 2) * 1_500
        model.on_stats(
            stats(
                second,
                [
                    with_backlog(
                        second, position=sent + backlog, sender_position=sent, backlog_bytes=backlog
                    )
                ],
            )
        )
        words.append([each.word for each in row(model.scene(), "pub", 1).causes])
    assert words[:3] == [[], [], []]
    assert words[-1] == ["backlog"]


def test_a_backlog_that_comes_and_goes_does_not_grow() -> None:
    snapshots = []
    for second in range(1, 9):
        sent, backlog = second * 100_000, 30_000 * (second % 2) + 1_000
        held = with_backlog(
            second, position=sent + backlog, sender_position=sent, backlog_bytes=backlog
        )
        snapshots.append(stats(second, [held]))
    assert row(seen(*snapshots), "pub", 1).causes == ()


def ipc_with_backlog(second: float, backlog: int, **changes: Any) -> PublicationStats:
    """Return an IPC publication that publishes 200 kB a second."""
    position = int(second * 200_000)
    reader = ReceiverStats("ipc", "17", "", position - backlog, None, None, backlog)
    usual: dict[str, Any] = {
        "position": position,
        "sender_position": None,
        "sender_limit": None,
        "backlog_bytes": backlog,
        "receivers": (reader,),
    }
    return publication(second, **usual | changes)


def test_a_slow_reader_of_ipc_is_named_long_before_offers_wait() -> None:
    scene = seen(
        *(stats(second, [ipc_with_backlog(second, second * 100_000)]) for second in (10, 11))
    )
    (cause,) = row(scene, "pub", 1).causes
    assert cause.word == "backlog"
    assert cause.sentence == "held back by ipc 17: backlog 1,100,000 bytes, about 11 s"
    assert "rcv-wnd" not in cause.remedy


@pytest.mark.parametrize(("backlog", "words"), [(4_096, []), (4_128, ["backlog"])])
def test_a_last_message_that_a_reader_of_ipc_has_in_hand_is_no_backlog(
    backlog: int, words: list[str]
) -> None:
    scene = seen(
        *(
            stats(second, [ipc_with_backlog(second, backlog, position=10_000)])
            for second in (10, 11)
        )
    )
    causes = row(scene, "pub", 1).causes
    assert [each.word for each in causes] == words
    assert all(each.sentence.endswith("bytes, nothing is consumed") for each in causes)


# Waits that are not measured.


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"sender_position": 500, "sender_limit": 500}, "sender_limit"),
        ({"sender_position": 500, "sender_limit": 1_000}, "sender_limit"),
        ({"sender_position": 500, "sender_limit": 100_500}, "publisher_limit"),
        ({"sender_position": 131_072, "sender_limit": 131_072}, "not_connected"),
        ({"sender_position": None, "sender_limit": None}, "publisher_limit"),
        ({"is_connected": False}, "not_connected"),
        ({"window_bytes": 9}, None),
    ],
)
def test_where_waits_are_not_measured_a_reached_limit_is_one(
    changes: dict[str, Any], word: str | None
) -> None:
    unmeasured = {"blocked_sender_limit_ns": None, "is_connected": None, "window_bytes": 0}
    held = publication(1, **unmeasured | changes)
    (driver_seen,) = seen(stats(1, [held])).drivers
    assert driver_seen.blocked_count == (word in {"sender_limit", "publisher_limit"})
    assert [each.word for each in causes_of_publication(held, None, None)] == [word] * (
        word is not None
    )


UNMEASURED: dict[str, Any] = {
    f"blocked_{by}_ns": None for by in ("sender_limit", "publisher_limit", "not_connected")
}


def test_a_publication_that_is_mostly_at_its_limit_is_held_back_between_looks_too() -> None:
    def at(second: int, *, is_full: bool) -> Stats:
        held = publication(
            second,
            **UNMEASURED,
            position_limit=10**8,
            window_bytes=0 if is_full else 4_096,
            sender_limit=0,
        )
        return stats(second, [held])

    scene = seen(*(at(second, is_full=second % 3 > 0) for second in range(1, 10)))
    held = row(scene, "pub", 1)
    assert [each.word for each in held.causes] == ["sender_limit"]
    assert held.score == pytest.approx(3 + 0.999 * 6 / 9)
    assert held.blocked_ratio == {}
    assert scene.drivers[0].blocked_count == 1
    scene = seen(*(at(second, is_full=second == 4) for second in range(1, 10)))
    assert row(scene, "pub", 1).causes == ()
    assert scene.drivers[0].blocked_count == 0


def test_an_offer_that_waits_in_this_process_is_known_beside_clients_elsewhere() -> None:
    held = publication(1, **UNMEASURED, blocked_by="sender_limit")
    (cause,) = causes_of_publication(held, None, None)
    assert cause.word == "sender_limit"


def test_a_publication_that_drains_takes_no_offers_that_could_wait() -> None:
    closed = publication(1, **UNMEASURED, window_bytes=0, state="linger")
    assert causes_of_publication(closed, None, None) == []


def test_a_driver_that_has_never_answered_has_an_unknown_count_of_blocked_streams() -> None:
    model = TopModel(names=["/a"])
    assert json_of_driver(model.scene(), "/a", [])["blocked_streams"] is None


# Near misses.


def test_a_publication_names_the_stream_that_is_subscribed_to_where_it_sends() -> None:
    here = attrs.evolve(SUBSCRIPTION, registration_id=5, stream_id=1002, image_count=0)
    busy = attrs.evolve(SUBSCRIPTION, registration_id=6, stream_id=77)
    elsewhere = attrs.evolve(here, registration_id=7, channel="aeron:udp?endpoint=127.0.0.1:9")
    odd = attrs.evolve(here, registration_id=8, channel="\x1b[2J")
    spy = attrs.evolve(here, registration_id=9, channel=f"aeron-spy:{here.channel[6:]}")
    lonely = publication(1, is_connected=False)
    (cause,) = row(seen(stats(1, [lonely], [], [busy, here, elsewhere, odd, spy])), "pub", 1).causes
    assert cause.sentence == (
        "no subscriber; this driver has subscriptions of streams 1002, 77 there"
    )
    assert cause.remedy.startswith(
        "publish on stream 1002 if that one is meant, or subscribe to stream 1001 there; otherwise "
    )


def test_a_subscription_names_the_stream_that_is_published_where_it_listens() -> None:
    waiting = attrs.evolve(
        SUBSCRIPTION, registration_id=5, stream_id=1002, image_count=0, channel="aeron:ipc"
    )
    lonely = publication(1, is_connected=False, channel="aeron:ipc?term-length=64k")
    (cause,) = row(seen(stats(1, [lonely], [], [waiting])), "sub", 5).causes
    assert cause.sentence == (
        "no publisher has been heard of; this driver has publications of stream 1001 there"
    )
    assert cause.remedy.startswith("subscribe to stream 1001 if that one is meant")


def test_a_stream_that_is_subscribed_to_where_it_is_published_was_not_missed() -> None:
    same = attrs.evolve(SUBSCRIPTION, image_count=0)
    other = attrs.evolve(same, registration_id=5, stream_id=1002)
    lonely = publication(1, is_connected=False)
    (cause,) = row(seen(stats(1, [lonely], [], [same, other])), "pub", 1).causes
    assert cause.sentence == "no subscriber"


def test_many_streams_in_one_place_are_not_all_named() -> None:
    many = [
        attrs.evolve(SUBSCRIPTION, registration_id=100 + each, stream_id=each) for each in range(9)
    ]
    (cause,) = row(seen(stats(1, [publication(1, is_connected=False)], [], many)), "pub", 1).causes
    assert cause.sentence.endswith("streams 0, 1, 2 and others there")
