"""Statistics that we read of an official driver, beside what `AeronStat` prints."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from aeron_async.driver.counter_stats import CncSource
from aeron_async.errors import DriverError
from tests.concurrent.shared import needs_shared_memory
from tests.interop.official import COUNTER_LINE
from tests.interop.programs import wait_until

if TYPE_CHECKING:
    from aeron_async.stats import Stats
    from tests.interop.official import OfficialDriver

pytestmark = needs_shared_memory
STREAM_ID: Final = 1001
PUBLICATION: Final = {
    "pub-pos (concurrent)": "position",
    "pub-lmt": "position_limit",
    "snd-pos": "sender_position",
    "snd-lmt": "sender_limit",
    "snd-bpe": "back_pressure_count",
    "snd-naks-received": "nak_count",
}
IMAGE: Final = {"rcv-pos": "position", "rcv-hwm": "hwm_position", "rcv-naks-sent": "nak_count"}
SYSTEM: Final = {
    "Bytes sent": "bytes_sent",
    "Bytes received": "bytes_received",
    "NAKs sent": "nak_messages_sent",
    "Status Messages received": "status_messages_received",
    "Retransmits sent": "retransmits_sent",
    "Sender flow control limits, i.e. back-pressure events": "sender_flow_control_limits",
}


async def official_values(driver: OfficialDriver) -> dict[str, int]:
    """Values by label, as `AeronStat` prints them."""
    async with driver.run("AeronStat", "-d", driver.directory, "-w", "false") as stat:
        await stat.wait(timeout=10)
    found = [COUNTER_LINE.match(line) for line in stat.stdout.lines]
    return {each[3]: int(each[2].replace(",", "")) for each in found if each is not None}


def figures_of(stats: Stats) -> dict[str, int | None]:
    """The same by the labels that an official driver gives them."""
    found: dict[str, int | None] = {
        label: stats.driver.counters[name] for label, name in SYSTEM.items()
    }
    for publication in stats.publications:
        what = f"{publication.registration_id} {publication.session_id} {STREAM_ID}"
        for label, name in PUBLICATION.items():
            if getattr(publication, name) is not None:
                key = f"{label}: {what} {publication.channel}"
                found[key] = getattr(publication, name)
    for image in stats.images:
        what = f"{image.registration_id} {image.session_id} {STREAM_ID} {image.channel}"
        found |= {f"{label}: {what}": getattr(image, name) for label, name in IMAGE.items()}
    return found


async def test_statistics_are_what_aeron_stat_shows(official: OfficialDriver, channel: str) -> None:
    """Counters grow while both look, so ours lies between two looks of the official tool."""
    with CncSource(official.directory) as source:

        def taken() -> Stats | None:
            try:
                return source.take()
            except DriverError:
                return None

        await wait_until(lambda: taken() is not None, "the driver")
        async with (
            official.run("rate_subscriber", "-c", channel, "-s", STREAM_ID) as subscriber,
            official.run("rate_subscriber", "-c", "aeron:ipc", "-s", STREAM_ID) as local,
            official.run(
                *("streaming_publisher", "-c", channel, "-s", STREAM_ID),
                *("-L", 1_000, "-m", 100_000_000),
            ),
            official.run(
                *("streaming_publisher", "-c", "aeron:ipc", "-s", STREAM_ID),
                *("-L", 1_000, "-m", 100_000_000),
            ),
        ):
            await wait_until(
                lambda: (
                    len(source.take().publications) == 2
                    and any(each.readers and each.position > 0 for each in source.take().images)
                ),
                "the streams",
            )
            before = await official_values(official)
            figures = figures_of(source.take())
            after = await official_values(official)
            for each in (subscriber, local):
                each.process.send_signal(signal.SIGSTOP)
            await wait_until(
                lambda: all(not each.window_bytes for each in source.take().publications),
                "back pressure",
            )
            while True:
                held = source.take()
                exact = await official_values(official)
                if (held.publications, held.images) == (
                    (again := source.take()).publications,
                    again.images,
                ):
                    break
    assert len(figures) == 6 + 6 + 2 + 3
    for label, value in figures.items():
        assert value is not None
        assert before[label] <= value <= after[label], label
    # What stands still is equal to the byte; the counters of the driver itself go on.
    held_figures = {
        label: value for label, value in figures_of(held).items() if label not in SYSTEM
    }
    assert held_figures == {label: exact[label] for label in held_figures}
    (image,) = held.images
    (subscription, _) = sorted(held.subscriptions, key=lambda each: each.channel == "aeron:ipc")
    label = f"sub-pos: {subscription.registration_id} {image.session_id} {STREAM_ID} {channel}"
    (position,) = (value for name, value in exact.items() if name.startswith(f"{label} @"))
    assert image.readers[0].position == position
    assert subscription.lag_bytes == image.lag_bytes == image.position - position > 0
    assert held.driver.pid == official.process.process.pid
    assert held.driver.version
