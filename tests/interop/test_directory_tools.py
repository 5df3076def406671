"""Our tools and the official ones look into the directory of the same official driver."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING, Any, Final

import pytest

from aeron_async.aeron_directory import AeronDirectory
from aeron_async.cli.main import main
from tests.concurrent.shared import needs_shared_memory
from tests.interop.official import COUNTER_LINE, official_driver
from tests.interop.official_archive import java_arguments
from tests.interop.programs import require, running, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.official import OfficialDriver

pytestmark = needs_shared_memory
STREAM_ID: Final = 1001
COUNT: Final = 2_000
LENGTH: Final = 1_000
NO_CLASS: Final = "Could not find or load main class"


@pytest.fixture
def look(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """One of our commands, and the objects that it prints."""

    def look_at(driver: OfficialDriver, *arguments: str) -> Any:
        assert main([*arguments, "--json", "--directory", str(driver.directory)]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return [json.loads(line) for line in out.splitlines()]

    return look_at


async def wait_for_start(driver: OfficialDriver) -> None:
    """Return once the driver has finished its `cnc.dat`, and has shown life."""

    def is_active() -> bool:
        found = AeronDirectory.try_open(driver.directory)
        if not isinstance(found, AeronDirectory):
            return False
        with found:
            return found.heartbeat_ms > 0

    await wait_until(is_active, "the driver")


async def official_counters(driver: OfficialDriver) -> dict[int, tuple[str, int]]:
    """Label and value by id, as `AeronStat` prints them."""
    async with driver.run("AeronStat", "-d", driver.directory, "-w", "false") as stat:
        await stat.wait(timeout=10)
    found = [COUNTER_LINE.match(line) for line in stat.stdout.lines]
    return {
        int(each[1]): (each[3], int(each[2].replace(",", ""))) for each in found if each is not None
    }


async def output_of(driver: OfficialDriver, name: str, *arguments: object) -> list[str]:
    async with driver.run(name, "-d", driver.directory, *arguments) as program:
        assert await program.wait(timeout=10) == 0
    return program.stdout.lines


async def backlogs(directory: Path) -> list[str]:
    """What the official `BacklogStat` prints."""
    arguments = java_arguments()
    async with running(
        "java", *arguments, f"-Daeron.dir={directory}", "io.aeron.samples.BacklogStat"
    ) as program:
        await program.wait(timeout=30)
    if any(NO_CLASS in line for line in program.stderr.lines):
        pytest.skip("AERON_JAVA does not have the classes of Aeron's samples")
    return program.stdout.lines


async def test_stat_shows_the_counters_that_aeron_stat_shows(
    official: OfficialDriver, look: Callable[..., Any], channel: str
) -> None:
    """Counters grow while both look, so ours lies between two looks of the official tool."""
    await wait_for_start(official)
    async with (
        official.run("rate_subscriber", "-c", channel, "-s", STREAM_ID),
        official.run(
            *("streaming_publisher", "-c", channel, "-s", STREAM_ID),
            *("-L", LENGTH, "-m", 100_000_000),
        ),
    ):
        await wait_until(
            lambda: any(
                each["subscribers"] and each["position"] > 0
                for each in look(official, "streams")[0]["images"]
            ),
            "an image",
        )
        before = await official_counters(official)
        (report,) = look(official, "stat")
        after = await official_counters(official)
    ours = {each["counter_id"]: (each["label"], each["value"]) for each in report["counters"]}
    assert ours.keys() == before.keys() == after.keys()
    for counter_id, (label, value) in ours.items():
        # A driver adds the name of a client to its label after the label is there.
        assert label in (before[counter_id][0], after[counter_id][0])
        assert before[counter_id][1] <= value <= after[counter_id][1], label
    assert report["is_active"]


async def test_backlog_and_streams_show_the_distances_that_backlog_stat_shows(
    official: OfficialDriver, look: Callable[..., Any], channel: str
) -> None:
    """Subscribers that stand still hold everything else where it is."""
    await wait_for_start(official)
    async with (
        official.run("rate_subscriber", "-c", channel, "-s", STREAM_ID) as subscriber,
        official.run("rate_subscriber", "-c", "aeron:ipc", "-s", STREAM_ID) as local,
        official.run(
            *("streaming_publisher", "-c", channel, "-s", STREAM_ID),
            *("-L", LENGTH, "-m", 100_000_000),
        ),
        official.run(
            *("streaming_publisher", "-c", "aeron:ipc", "-s", STREAM_ID),
            *("-L", LENGTH, "-m", 100_000_000),
        ),
    ):
        await wait_until(lambda: len(look(official, "streams")[0]["images"]) == 1, "an image")
        for each in (subscriber, local):
            each.process.send_signal(signal.SIGSTOP)

        def are_held() -> bool:
            (report,) = look(official, "streams")
            found = report["publications"]
            return len(found) == 2 and all(
                each["window"] == 0 and each["position"] == each["counted_position"]
                for each in found
            )

        await wait_until(are_held, "back pressure")
        report = look(official, "backlog")[0]["streams"]
        while True:
            before = report
            counters = dict((await official_counters(official)).values())
            lines = await backlogs(official.directory)
            report = look(official, "backlog")[0]["streams"]
            # Positions only grow, so that equal ones were the same all the time between.
            if before == report:
                break
    text = "\n".join(lines)
    assert len(report) == 3
    for each in report:
        what = f"{each['registration_id']} {each['session_id']} {STREAM_ID} {each['channel']}"
        if each["kind"] == "image":
            assert counters[f"rcv-pos: {what}"] == each["position"]
            assert f"receiver {each['registration_id']} is at position {each['position']}" in text
        else:
            assert counters[f"pub-pos (concurrent): {what}"] == each["position"]
            found = re.search(
                rf"for publisher {each['registration_id']} the last sampled position is "
                rf"(\d+) \(~(-?\d+) bytes",
                text,
            )
            assert found is not None
            # The last message before back pressure may end beyond the limit; ours has 0 then.
            assert (each["position"], each["window"]) == (int(found[1]), max(int(found[2]), 0))
        if each.get("unsent") is not None:
            found = re.search(
                rf"sender {each['registration_id']} has to send (\d+) bytes \((-?\d+) bytes", text
            )
            assert found is not None
            assert (each["unsent"], each["sender_window"]) == (
                int(found[1]),
                max(int(found[2]), 0),
            )
        for one in each["subscribers"]:
            assert one["backlog"] > 0
            if each["kind"] == "image":
                # The official tool has none for IPC.
                assert f"subscriber {one['registration_id']} has {one['backlog']} back" in text


async def test_errors_shows_the_errors_that_error_stat_shows(
    official: OfficialDriver, look: Callable[..., Any]
) -> None:
    require("ErrorStat")
    official.expected_error_count = 2
    for _ in range(2):
        async with official.run(
            "basic_publisher", "-c", "aeron:udp?endpoint=host.invalid:9", "-s", STREAM_ID
        ) as publisher:
            await wait_until(lambda: not publisher.is_running, "its end")
    (ours,) = look(official, "errors")
    _, head, *lines = await output_of(official, "ErrorStat")
    assert head.startswith("2 observations from ")
    assert ours["observation_count"] == 2
    assert ours["first_observation_ms"] <= ours["last_observation_ms"]
    assert "\n".join(lines).startswith(f" {ours['text']}")
    assert lines[-1] == "1 distinct errors observed."


async def test_loss_shows_the_losses_that_loss_stat_shows(
    look: Callable[..., Any], channel: str
) -> None:
    require("LossStat")
    loss = {
        "UDP_CHANNEL_INCOMING_INTERCEPTORS": "loss",
        "UDP_CHANNEL_TRANSPORT_BINDINGS_LOSS_ARGS": "rate=0.2|seed=10|recv-msg-mask=0x3",
    }
    async with (
        official_driver(**loss) as driver,
        driver.run("checked_subscriber", channel, STREAM_ID, COUNT, LENGTH, LENGTH) as subscriber,
        driver.run("checked_publisher", channel, STREAM_ID, COUNT, LENGTH, LENGTH),
    ):
        assert await subscriber.wait(timeout=60) == 0
        (ours,) = look(driver, "loss")
        _, official, count = await output_of(driver, "LossStat")
    assert count == "1 entries read"
    cells = official.split(",")
    assert [int(each) for each in cells[:2]] == [
        ours["observation_count"],
        ours["total_bytes_lost"],
    ]
    assert [int(each) for each in cells[4:6]] == [ours["session_id"], ours["stream_id"]]
    assert cells[6:] == [ours["channel"], ours["source"]]


async def test_ping_says_what_driver_tool_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with official_driver() as driver:
        await wait_for_start(driver)
        where = ["--directory", str(driver.directory)]
        assert main(["driver", "ping", *where]) == 0
        found = re.search(r"process (\d+) ", capsys.readouterr().out)
        assert found is not None
        require("DriverTool")
        assert await output_of(driver, "DriverTool", "-P") == [found[1]]
        directory = AeronDirectory.open(driver.directory)
        assert not directory.is_replaced()
    with directory:
        # The driver has ended and its directory is gone; what was mapped stays readable.
        assert directory.is_replaced()
        assert directory.heartbeat_ms == -1
    assert main(["driver", "ping", *where]) == 1
    assert "no driver has made" in capsys.readouterr().err
