"""A receiver that was run over leaves at once, if asked to, and joins where the stream is now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

import aeron_async as aa
from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.image_watch import OVER_RUN_DATAGRAMS, OVER_RUN_WAIT_NS, OverRunJudge
from aeron_async.testing.world import simulate

if TYPE_CHECKING:
    from aeron_async.testing.world import World

GROUP = "aeron:udp?endpoint=224.20.30.39:20121|interface=10.0.0.0/8|term-length=64k"
STREAM_ID = 10
REJOINING = aa.DriverContext(over_run_rejoin_interval_ns=NS_PER_SECOND)


@pytest.mark.parametrize("is_rejoining", [True, False], ids=["rejoining", "Aeron"])
def test_a_slow_reader_is_back_at_the_live_end_at_once_and_nobody_waits_for_it(
    is_rejoining: bool,  # noqa: FBT001 - of a table
) -> None:
    """Aeron's receivers wait for ten seconds without data that fits."""

    async def publish(world: World, publication: aa.Publication) -> int:
        waited_ns = 0
        for number in range(4_000):
            before_ns = world.now_ns
            await publication.offer(number.to_bytes(4, "little") + bytes(988))
            waited_ns += world.now_ns - before_ns
            await world.sleep(0.001)
        return waited_ns

    async def read_all(subscription: aa.Subscription) -> int:
        count = 0
        async for message in subscription:
            count += 1
            if int.from_bytes(message.data[:4], "little") == 3_999:
                break
        return count

    async def story(world: World) -> None:
        slow_host, quick_host = world.host("slow"), world.host("quick")
        context = REJOINING if is_rejoining else None
        exchange_host = world.host("exchange")
        exchange, slow, quick = (
            exchange_host.aeron(),
            slow_host.aeron(context),
            quick_host.aeron(),
        )
        async with exchange, slow, quick:
            reader = (await slow.add_subscription(GROUP, STREAM_ID)).with_gaps()
            every = await quick.add_subscription(GROUP, STREAM_ID)
            publication = await exchange.add_publication(f"{GROUP}|fc=max", STREAM_ID)
            await every.wait_connected(5)
            await publication.wait_connected(5)
            counting = quick_host.spawn(read_all(every))
            publishing = exchange_host.spawn(publish(world, publication))
            gaps: list[aa.Gap] = []
            lags_ns = []
            began_ns = world.now_ns
            position = 0
            with capture_logs() as logs:
                while not publishing.done():
                    item = await anext(reader)
                    if isinstance(item, aa.Gap):
                        assert item.to_position is not None
                        gaps.append(item)
                        position = item.to_position
                        continue
                    assert item.position == position + 1024
                    position = item.position
                    sent_ns = int.from_bytes(item.data[:4], "little") * NS_PER_MS
                    lags_ns.append(world.now_ns - began_ns - sent_ns)
                    # Ten times too slow.
                    await world.sleep(0.010)
            assert await counting == 4_000
            assert await publishing < 4_000 * NS_PER_MS
            broken = [line for line in logs if line["event"] == "image_broken"]
            if is_rejoining:
                # An image must have the age of a second before it may be left.
                assert [gap.cause for gap in gaps] == [aa.GapCause.OVER_RUN] * len(gaps)
                assert 2 <= len(gaps) <= 4
                assert [line["reason"] for line in broken] == ["OVER_RUN"] * len(gaps)
                assert max(lags_ns) < 2 * NS_PER_SECOND
            else:
                assert [gap.cause for gap in gaps] == [aa.GapCause.SILENT]
                assert broken == []

    simulate(story)


# A driver that is told to leave judges by what it has heard.


def judge(interval_ns: int = NS_PER_SECOND) -> OverRunJudge:
    context = DriverContext(over_run_rejoin_interval_ns=interval_ns)
    return OverRunJudge(context, 65536, now_ns=0)


WAIT_NS = OVER_RUN_WAIT_NS
LEAD = 32768 + 32


def test_several_datagrams_for_longer_than_a_heartbeat_show_a_source_out_of_reach() -> None:
    one = judge()
    found = [
        one.is_lost(LEAD, heard_ns=5, now_ns=NS_PER_SECOND + step * WAIT_NS // 4)
        for step in range(6)
    ]
    assert found == [False, False, False, False, True, True]
    few = judge()
    times = [NS_PER_SECOND, NS_PER_SECOND + WAIT_NS]
    assert [few.is_lost(LEAD, heard_ns=5, now_ns=at) for at in times] == [False, False]
    assert OVER_RUN_DATAGRAMS == 3


@pytest.mark.parametrize(
    ("lead_length", "interval_ns", "begin_ns"),
    [(32768, NS_PER_SECOND, NS_PER_SECOND), (LEAD, 0, NS_PER_SECOND), (LEAD, NS_PER_SECOND, 0)],
    ids=["within reach", "not asked for", "too young"],
)
def test_an_image_is_kept(lead_length: int, interval_ns: int, begin_ns: int) -> None:
    one = judge(interval_ns)
    assert not any(
        one.is_lost(lead_length, heard_ns=5, now_ns=begin_ns + step * WAIT_NS) for step in range(4)
    )


def test_an_image_whose_own_data_arrives_is_kept_whatever_is_forged() -> None:
    one = judge()
    for step in range(100):
        now_ns = NS_PER_SECOND + step * WAIT_NS // 4
        heard_ns = now_ns - now_ns % (WAIT_NS // 2)
        assert not one.is_lost(LEAD, heard_ns=heard_ns, now_ns=now_ns)
