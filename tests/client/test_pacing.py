"""Streams under strategies other than the usual ones, from one end to the other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async.congestion_control import (
    CongestionControl,
    CongestionControlParams,
    CubicCongestionControl,
    StaticWindowCongestionControl,
)
from aeron_async.flow_control import FlowControl, FlowControlParams, MinMulticastFlowControl
from tests.drivers import STRATEGY, embedded_only

if TYPE_CHECKING:
    from collections.abc import Callable

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


def slowest(params: FlowControlParams) -> FlowControl:
    return MinMulticastFlowControl(**params.group_settings())


@embedded_only(STRATEGY)
async def test_one_stream_runs_under_strategies_of_its_own(
    aeron: aa.Aeron, channel: str, unused_udp_port_factory: Callable[[], int]
) -> None:
    made: list[CongestionControlParams] = []

    def window(params: CongestionControlParams) -> CongestionControl:
        made.append(params)
        return CubicCongestionControl.of(params)

    subscription = await aeron.add_subscription(
        f"{channel}|cc=static", STREAM_ID, congestion_control=window
    )
    publication = await aeron.add_publication(channel, STREAM_ID, flow_control=slowest)
    await publication.offer(MESSAGE)
    assert (await asyncio.wait_for(anext(subscription), 10)).data == MESSAGE
    assert len(labels(aeron, "fc-receivers")) == 1
    assert len(labels(aeron, "rcv-cc-cubic")) == 2
    assert [params.term_length for params in made] == [64 * 1024]
    # And no other stream does.
    other = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port_factory()}"
    await stream_through(aeron, other, other)
    assert len(labels(aeron, "fc-receivers")) == 1


@embedded_only(STRATEGY)
async def test_a_factory_goes_before_what_the_channel_says(
    aeron: aa.Aeron, unused_udp_port: int
) -> None:
    group = f"aeron:udp?control=127.0.0.1:{unused_udp_port}|control-mode=dynamic|fc=max"
    await aeron.add_exclusive_publication(group, STREAM_ID, flow_control=slowest)
    assert len(labels(aeron, "fc-receivers")) == 1


@embedded_only(STRATEGY)
async def test_who_shares_a_publication_shares_its_flow_control(
    aeron: aa.Aeron, channel: str
) -> None:
    await aeron.add_publication(channel, STREAM_ID, flow_control=slowest)
    await aeron.add_publication(channel, STREAM_ID, flow_control=slowest)
    await aeron.add_publication(channel, STREAM_ID)
    with pytest.raises(aa.ConfigurationError, match=r"flow_control=.* differs from"):
        await aeron.add_publication(channel, STREAM_ID, flow_control=lambda _: slowest(_))  # noqa: PLW0108 - another function is the point


@embedded_only(STRATEGY)
async def test_a_factory_that_fails_refuses_its_publication_only(
    aeron: aa.Aeron, channel: str
) -> None:
    def fail(params: FlowControlParams) -> FlowControl:
        raise ValueError(params.uri)

    with pytest.raises(aa.RegistrationError, match="could not be made"):
        await aeron.add_publication(channel, STREAM_ID, flow_control=fail)
    await aeron.add_publication(channel, STREAM_ID)


async def test_a_strategy_is_no_factory_and_some_channels_have_none(
    aeron: aa.Aeron, channel: str
) -> None:
    wrong: Any = StaticWindowCongestionControl(window_length=1)
    with pytest.raises(aa.ConfigurationError, match="congestion_control="):
        await aeron.add_subscription(channel, STREAM_ID, congestion_control=wrong)
    for nowhere in ("aeron:ipc", f"aeron-spy:{channel}"):
        with pytest.raises(aa.ConfigurationError, match="nothing is received"):
            await aeron.add_subscription(
                nowhere, STREAM_ID, congestion_control=StaticWindowCongestionControl.of
            )
    wrong = object()
    with pytest.raises(aa.ConfigurationError, match="flow_control="):
        await aeron.add_publication(channel, STREAM_ID, flow_control=wrong)
    with pytest.raises(aa.ConfigurationError, match="nothing is sent"):
        await aeron.add_publication("aeron:ipc", STREAM_ID, flow_control=slowest)
