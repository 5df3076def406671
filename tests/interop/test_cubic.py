"""CUBIC with measured round trips: requests of either side are answered by the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import aeron_async as aa
from tests.interop.exchange import STREAM_ID, exchange
from tests.interop.libaeron import official_client
from tests.interop.official import TERM_LENGTH, official_driver
from tests.interop.ours import count_of, our_client
from tests.interop.programs import wait_until

if TYPE_CHECKING:
    from tests.interop.libaeron import OfficialClient

INITIAL_RTT_NS: Final = 100_000
RTT_COUNTER: Final = "rcv-cc-cubic-rtt"
WINDOW_COUNTER: Final = "rcv-cc-cubic-wnd"


async def test_an_official_image_measures_its_round_trip_to_our_publication(
    channel: str,
) -> None:
    settings = {"CUBICCONGESTIONCONTROL_MEASURERTT": "1"}
    async with (
        official_driver(**settings) as driver,
        official_client(driver) as client,
        our_client() as aeron,
    ):
        subscription = await client.add_subscription(f"{channel}|cc=cubic", STREAM_ID)
        publication = await aeron.add_publication(channel, STREAM_ID)
        await exchange(publication, [subscription])
        first = client.counters()[RTT_COUNTER]
        assert first not in {0, INITIAL_RTT_NS}
        await wait_until(lambda: client.counters()[RTT_COUNTER] != first, "measured again")
        assert client.counters()[WINDOW_COUNTER] > 0


async def test_we_measure_our_round_trip_to_an_official_publication(
    client: OfficialClient, channel: str
) -> None:
    context = aa.DriverContext(
        term_buffer_length=TERM_LENGTH, cubic_congestion_control_measure_rtt=True
    )
    async with aa.Aeron.connect(context=context) as aeron:
        subscription = await aeron.add_subscription(f"{channel}|cc=cubic", STREAM_ID)
        publication = await client.add_publication(channel, STREAM_ID)
        await exchange(publication, [subscription])
        first = count_of(aeron, RTT_COUNTER)
        assert first not in {0, INITIAL_RTT_NS}
        await wait_until(lambda: count_of(aeron, RTT_COUNTER) != first, "measured again")
        assert count_of(aeron, WINDOW_COUNTER) > 0
