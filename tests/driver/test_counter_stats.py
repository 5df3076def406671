"""Statistics that are read from the counters of a driver."""

from __future__ import annotations

import os
import re
import shutil
import time
from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aeron_async as aa
from aeron_async.aeron_directory import DRIVER_TIMEOUT_MS, AeronDirectory
from aeron_async.concurrent.loss_report import StreamLoss
from aeron_async.counters import CounterRecord, CountersManager
from aeron_async.driver.core.stream_counters import (
    ImageCounters,
    IpcPublicationCounters,
    StreamCounterType,
    allocate_stream_counter,
    allocate_subscription_position,
)
from aeron_async.driver.core.system_counters import SystemCounters
from aeron_async.driver.counter_stats import CncSource, stats_of_counters
from aeron_async.errors import DriverError
from aeron_async.protocol.units import INT64_MAX
from aeron_async.stats import CycleStats, LossStats, ReaderStats, ReceiverStats, SubscriptionStats
from tests.client.local import take, until
from tests.concurrent.shared import needs_shared_memory
from tests.driver.directories import (
    CHANNEL,
    GOLDEN,
    NOW_MS,
    SMALL,
    cnc_bytes,
    fill_streams,
    golden_directory,
    small_directory,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from aeron_async.stats import DriverStats, Stats

LONG = "aeron:udp?endpoint=localhost:20121|alias=" + "a" * 100


class Now:
    """A clock whose time is typed."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def now_ns(self) -> int:
        return 7

    def epoch_ms(self) -> int:
        return self.ms

    def epoch_ns(self) -> int:
        return self.ms * 1_000_000


def table() -> CountersManager:
    return CountersManager.in_memory(128 * 256, free_to_reuse_timeout_ms=0, epoch_ms=lambda: 0)


def stats_of(records: Iterable[CounterRecord], losses: Iterable[StreamLoss] = ()) -> Stats:
    return stats_of_counters(records, pid=42, epoch_ns=5, monotonic_ns=6, losses=losses)


def loss(channel: str, *, count: int = 1, total: int = 100, session_id: int = 8) -> StreamLoss:
    return StreamLoss(
        observation_count=count,
        total_bytes_lost=total,
        first_observation_ms=1,
        last_observation_ms=2,
        session_id=session_id,
        stream_id=1002,
        channel=channel,
        source="127.0.0.1:4000",
    )


def test_a_publication_is_joined_from_its_counters() -> None:
    manager = table()
    fill_streams(manager)

    stats = stats_of(manager)

    (publication,) = stats.publications
    assert (stats.source, stats.epoch_ns, stats.monotonic_ns) == ("counters", 5, 6)
    assert (publication.registration_id, publication.stream_id) == (5, 1001)
    assert (publication.session_id, publication.channel) == (-7, CHANNEL)
    assert publication.is_exclusive
    assert (publication.position, publication.position_limit) == (10_000, 40_000)
    assert (publication.sender_position, publication.sender_limit) == (8_000, 20_000)
    assert (publication.window_bytes, publication.backlog_bytes) == (30_000, 2_000)
    assert (publication.back_pressure_count, publication.nak_count) == (3, 4)
    assert publication.receiver_count == 0
    assert publication.receivers == (ReceiverStats("spy", "6", "", 9_000, None, None, 1_000),)


def test_an_image_is_joined_from_its_counters_and_its_losses() -> None:
    manager = table()
    fill_streams(manager)
    losses = [
        loss(CHANNEL, count=2, total=300),
        loss(CHANNEL),
        loss(CHANNEL + "1"),
        loss(CHANNEL, session_id=9),
    ]

    stats = stats_of(manager, losses)

    (image,) = stats.images
    assert (image.registration_id, image.stream_id, image.session_id) == (9, 1002, 8)
    assert (image.position, image.hwm_position, image.missing_bytes) == (6_000, 6_400, 400)
    assert (image.nak_count, image.lag_bytes) == (2, 1_000)
    assert image.readers == (ReaderStats(7, 5_000, 1_000),)
    assert image.losses == (LossStats("gap", 3, 400),)
    # The subscription of nothing is a stray for a moment.
    assert list(stats.subscriptions) == [
        SubscriptionStats(6, CHANNEL, 1002, 1, None, 1_000, None),
        SubscriptionStats(7, CHANNEL, 1002, 1, None, 1_000, None),
    ]


def test_what_no_counter_tells_is_unknown() -> None:
    manager = table()
    fill_streams(manager)

    stats = stats_of(manager)

    publication, image = stats.publications[0], stats.images[0]
    told = [
        *attrs.asdict(publication, recurse=False).items(),
        *attrs.asdict(image, recurse=False).items(),
    ]
    assert {name for name, value in told if value is None} == {
        *("blocked_not_connected_ns", "blocked_publisher_limit_ns", "blocked_sender_limit_ns"),
        *("is_connected", "is_end_of_stream", "lag_ns", "message_count", "received_bytes"),
        *("retransmit_count", "retransmitted_bytes", "silent_ns", "status_message_count"),
        "window_bytes",
    }
    assert {name for name, value in told if value in {"", ()}} == {
        *("blocked_by", "losses", "source", "state"),
    }
    assert stats.driver.counters == {}
    assert stats.driver.cycles == ()
    assert stats.driver.version == ""
    assert stats.driver.loop_lag_count is None


def test_an_ipc_publication_has_a_backlog_for_its_readers() -> None:
    manager = table()
    counters = IpcPublicationCounters.allocate(
        manager,
        registration_id=3,
        session_id=1,
        stream_id=1001,
        channel="aeron:ipc",
        client_id=1,
        is_exclusive=False,
    )
    counters.publisher_position.set(900)
    counters.publisher_limit.set(800)
    (alone,) = stats_of(manager).publications
    for registration_id, position in ((4, 700), (5, 300)):
        allocate_subscription_position(
            manager,
            registration_id=registration_id,
            session_id=1,
            stream_id=1001,
            channel="aeron:ipc",
            owner_id=1,
            join_position=position,
            reference_id=3,
        )

    (publication,) = stats_of(manager).publications

    assert (alone.backlog_bytes, alone.sender_position, alone.nak_count) == (None, None, None)
    assert (publication.backlog_bytes, publication.window_bytes) == (600, 0)
    assert not publication.is_exclusive
    assert [(each.kind, each.id, each.lag_bytes) for each in publication.receivers] == [
        ("ipc", "5", 600),
        ("ipc", "4", 200),
    ]


def test_a_subscription_of_several_images_lags_as_far_as_the_slowest() -> None:
    manager = table()
    for registration_id, position in ((10, 500), (11, 800), (12, None)):
        image = ImageCounters.allocate(
            manager,
            registration_id=registration_id,
            session_id=registration_id,
            stream_id=1001,
            channel=CHANNEL,
            client_id=1,
        )
        if position is None:
            # As it is for a moment while an image is added.
            image.receiver_position.close()
        else:
            image.receiver_position.set(position)
        allocate_subscription_position(
            manager,
            registration_id=2,
            session_id=registration_id,
            stream_id=1001,
            channel=CHANNEL,
            owner_id=1,
            join_position=200,
            reference_id=registration_id,
        )

    stats = stats_of(manager)

    assert list(stats.subscriptions) == [SubscriptionStats(2, CHANNEL, 1001, 2, None, 600, None)]
    assert [each.registration_id for each in stats.images] == [10, 11]


def test_a_channel_that_the_key_cuts_is_that_of_the_label() -> None:
    manager = table()
    fill_streams(manager, LONG)

    stats = stats_of(manager, [loss(LONG)])

    assert stats.publications[0].channel == stats.images[0].channel == LONG
    assert stats.subscriptions[0].channel == LONG
    assert stats.images[0].losses == (LossStats("gap", 1, 100),)


def test_a_label_that_says_another_thing_than_the_key_is_not_believed() -> None:
    manager = table()
    fill_streams(manager, LONG)
    for record in manager:
        manager.write_label(record.counter_id, f"pub-pos: 5 -7 1001 {LONG[1:]}")

    assert {each.channel for each in stats_of(manager).publications} == {LONG[:92]}


def test_a_stream_without_a_position_is_left_out() -> None:
    manager = table()
    allocate_stream_counter(
        manager,
        StreamCounterType.PUBLISHER_LIMIT,
        registration_id=1,
        session_id=1,
        stream_id=1,
        channel=CHANNEL,
        owner_id=1,
    )

    assert list(stats_of(manager).publications) == []


def test_the_driver_is_known_by_its_system_counters() -> None:
    manager = table()
    context = aa.DriverContext()
    system = SystemCounters(manager, context, version="1.2.3")
    for number, counter in enumerate(system._counters.values(), 1):
        counter.set(number)
    # Neither has the owner of a driver's counter.
    key = (1_031).to_bytes(4, "little")
    manager.allocate(20_000, key, "Mine: limit reached", owner_id=5).set(9)
    manager.allocate(0, bytes(4), "Bytes sent", owner_id=5).set(9)

    driver = stats_of(manager).driver

    assert (driver.pid, driver.version, driver.is_pure) == (42, "1.2.3", None)
    assert driver.started_ns is None
    assert driver.counters["bytes_sent"] == 1
    assert driver.counters["native_resource_agent_proxy_fails"] == 46
    assert driver.counters["socket_drops"] != 9
    assert len(driver.counters) == len(system._counters)
    assert driver.cycles[0] == CycleStats("conductor", 27, 28)
    assert [each.agent for each in driver.cycles] == [
        *("conductor", "sender", "receiver", "name_resolver"),
    ]
    assert (driver.loop_lag_count, driver.loop_lag_max_ns) == (47, 48)
    assert driver.limits["images_refused"] == driver.counters["images_refused"]
    assert "socket_drops" not in driver.limits


def test_a_counter_of_a_later_driver_has_a_number_for_a_name() -> None:
    manager = table()
    for number in range(48):
        manager.allocate(0, number.to_bytes(4, "little"), "")
    manager.allocate(20_000, (1_999).to_bytes(4, "little"), "")

    counters = stats_of(manager).driver.counters

    assert {"system_46", "system_47", "driver_1999"} <= counters.keys()


@given(
    records=st.lists(
        st.builds(
            CounterRecord,
            counter_id=st.integers(0, 60),
            type_id=st.sampled_from([0, 1, 2, 3, 4, 5, 9, 10, 12, 13, 17, 19, 20, 20_000]),
            value=st.integers(-(2**63), 2**63 - 1),
            registration_id=st.integers(-(2**63), 2**63 - 1),
            owner_id=st.sampled_from([-1, 5]),
            reference_id=st.integers(-1, 3),
            key=st.binary(max_size=112).map(lambda key: key.ljust(112, b"\0")),
            label=st.text(max_size=380),
        ),
        max_size=20,
    )
)
def test_any_counters_are_statistics(records: list[CounterRecord]) -> None:
    stats = stats_of(records, [loss("any")])

    assert type(stats).from_dict(stats.to_dict()) == stats


# A directory.


@needs_shared_memory
def test_an_official_driver_shows_what_aeron_stat_shows(tmp_path: Path) -> None:
    place = golden_directory(tmp_path / "aeron")
    with AeronDirectory.open(place) as directory:
        heartbeat_ms = directory.heartbeat_ms
    official = {
        match[2]: int(match[1].replace(",", ""))
        for match in re.finditer(
            r"^ +\d+: +([-\d,]+) - (.*)$", (GOLDEN / "AeronStat.txt").read_text(), re.MULTILINE
        )
    }

    with CncSource(place, clock=Now(heartbeat_ms)) as source:
        stats = source.take()

    network, ipc = stats.publications
    (image,) = stats.images
    what = f"6 -561150797 1001 {network.channel}"
    assert network.position == official[f"pub-pos (concurrent): {what}"]
    assert network.position_limit == official[f"pub-lmt: {what}"]
    assert network.sender_position == official[f"snd-pos: {what}"]
    assert network.sender_limit == official[f"snd-lmt: {what}"]
    assert network.back_pressure_count == official[f"snd-bpe: {what}"]
    assert network.nak_count == official[f"snd-naks-received: {what}"]
    assert ipc.is_exclusive
    assert ipc.position == official["pub-pos (exclusive): 10 -561150796 1002 aeron:ipc"]
    assert image.position == official[f"rcv-pos: 11 -561150797 1001 {image.channel}"]
    assert image.losses == (LossStats("gap", 500, 660_640),)
    assert stats.driver.counters["bytes_sent"] == official["Bytes sent"]
    assert stats.driver.version == "1.53.0-SNAPSHOT"
    assert stats.driver.pid == 30_468


@needs_shared_memory
def test_a_directory_without_a_living_driver_has_no_statistics(tmp_path: Path) -> None:
    clock = Now(NOW_MS)
    source = CncSource(tmp_path / "aeron", clock=clock)
    with pytest.raises(DriverError, match="no driver has made"):
        source.take()
    small_directory(tmp_path / "aeron")
    with source:
        assert source.take().driver.identity == (4_711, (NOW_MS - 60_000) * 1_000_000)
        clock.ms += DRIVER_TIMEOUT_MS + 1
        with pytest.raises(DriverError, match="has shown no life for 10,001 ms"):
            source.take()
        clock.ms -= 1
        assert len(source.take().publications) == 1
    source.close()


@needs_shared_memory
@pytest.mark.parametrize("start_ms", [0, -1, INT64_MAX // 1_000_000 + 1, INT64_MAX])
def test_a_time_at_which_no_driver_can_have_started_is_unknown(
    tmp_path: Path, start_ms: int
) -> None:
    place = small_directory(tmp_path / "aeron")
    odd = attrs.evolve(SMALL, start_timestamp_ms=start_ms)
    (place / "cnc.dat").write_bytes(cnc_bytes(layout=odd))
    with CncSource(place, clock=Now(NOW_MS)) as source:
        assert source.take().driver.identity == (4_711, None)


async def test_drivers_one_after_the_other_in_one_process_are_told_apart() -> None:
    found: list[DriverStats] = []
    begin_ns = time.time_ns()
    for _ in range(2):
        async with aa.MediaDriver.launch() as driver:
            found += [driver.stats().driver, driver.stats().driver]

    end_ns = time.time_ns()
    first, again, second, _ = found
    assert first.identity == again.identity
    assert first.pid == second.pid
    assert first.identity != second.identity
    assert begin_ns <= (first.started_ns or 0) <= (second.started_ns or 0) <= end_ns


@needs_shared_memory
def test_a_driver_that_starts_anew_is_found(tmp_path: Path) -> None:
    place = small_directory(tmp_path / "aeron")
    with CncSource(place, clock=Now(NOW_MS)) as source:
        assert len(source.take().images) == 1
        shutil.move(place / "cnc.dat", tmp_path / "old")
        (place / "cnc.dat").write_bytes(cnc_bytes())
        assert len(source.take().images) == 0


@needs_shared_memory
async def test_a_driver_of_ours_shows_its_own_counters(
    tmp_path: Path, unused_udp_port: int
) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}|term-length=64k"
    directory = tmp_path / "aeron"
    context = aa.DriverContext(aeron_directory=str(directory), counters_buffer_length=1 << 20)
    async with (
        aa.MediaDriver.launch(context) as driver,
        aa.Aeron.connect(driver) as aeron,
    ):
        subscription = await aeron.add_subscription(channel, 1001)
        publication = await aeron.add_publication(channel, 1001)
        for _ in range(10):
            await publication.offer(bytes(1_000), timeout=5)
        await take(subscription, 10)
        with CncSource(directory) as source:
            await until(lambda: source.take().publications[0].position == publication.position)
            await until(lambda: source.take().images[0].lag_bytes == 0)
            stats = source.take()
        values = {each.label.partition(":")[0]: each.value for each in aeron.counters}
        (seen,), (image,) = stats.publications, stats.images
        assert stats.driver.pid == os.getpid()
        assert stats.driver.counters["bytes_sent"] > 10_000
        assert seen.registration_id == publication._ready.registration_id
        assert (seen.session_id, seen.channel) == (publication.session_id, channel)
        assert seen.position == values["pub-pos (concurrent)"] == publication.position
        assert seen.sender_position == values["snd-pos"] == image.position == values["rcv-pos"]
        assert seen.position_limit == values["pub-lmt"]
        assert seen.nak_count == values["snd-naks-received"]
        assert image.readers[0].registration_id == subscription.registration_id
        assert image.readers[0].position == values["sub-pos"]
