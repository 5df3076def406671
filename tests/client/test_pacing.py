"""Streams under strategies other than the usual ones, from one end to the other."""

from __future__ import annotations

import asyncio

import pytest

import aeron_async as aa
from aeron_async.driver.core.congestion_control import StaticWindowCongestionControl
from aeron_async.driver.core.flow_control import MinMulticastFlowControl

STREAM_ID = 1001
COUNT = 2_000
MESSAGE = bytes(1_000)


def labels(aeron: aa.Aeron, prefix: str) -> list[str]:
    return [record.label for record in aeron.counters if record.label.startswith(prefix)]


async def stream_through(
    aeron: aa.Aeron, publication_channel: str, subscription_channel: str
) -> None:
    subscription = await aeron.add_subscription(subscription_channel, STREAM_ID)
    publication = await aeron.add_publication(publication_channel, STREAM_ID)
    publishing = asyncio.create_task(publication.offer_many([MESSAGE] * COUNT))
    for _ in range(COUNT):
        assert (await asyncio.wait_for(anext(subscription), 10)).data == MESSAGE
    await publishing


@pytest.mark.parametrize(
    "context",
    [
        aa.DriverContext(term_buffer_length=64 * 1024),
        aa.DriverContext(
            term_buffer_length=64 * 1024,
            cubic_congestion_control_measure_rtt=True,
            cubic_congestion_control_tcp_mode=True,
        ),
    ],
    ids=["plain", "measuring, in TCP mode"],
)
async def test_a_stream_runs_under_cubic_and_shows_its_window_and_round_trip(
    aeron: aa.Aeron, channel: str
) -> None:
    await stream_through(aeron, channel, channel + "|cc=cubic")
    assert len(labels(aeron, "rcv-cc-cubic")) == 2


@pytest.mark.parametrize(
    "context",
    [
        aa.DriverContext(
            term_buffer_length=64 * 1024,
            unicast_flow_control_supplier=lambda params: MinMulticastFlowControl(
                **params.group_settings()
            ),
            congestion_control_supplier=StaticWindowCongestionControl.of,
        )
    ],
)
async def test_a_stream_runs_under_strategies_from_factories(aeron: aa.Aeron, channel: str) -> None:
    await stream_through(aeron, channel, channel)
    (label,) = labels(aeron, "fc-receivers")
    assert label.endswith(channel)
