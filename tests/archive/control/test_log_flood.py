"""What strangers can make an archive log, in virtual time."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest
import structlog
from structlog.testing import capture_logs

from aeron_async.archive.control.messages import CODEC, CloseSessionRequest
from aeron_async.logs import LINES_PER_SECOND
from tests.archive.control.test_reflection import (
    CONTROL,
    DRIVER,
    PLAIN,
    Scene,
    connect_request,
    scene,
)
from tests.logs import OF_THE_MACHINE

if TYPE_CHECKING:
    from structlog.typing import EventDict

    from aeron_async.testing.host import Host

SECOND: Final = 1_000_000_000
SOURCES: Final = 20
FLOOD_S: Final = 5
LEFT_OUT: Final = "log_lines_left_out"
REQUESTS: Final = (
    CODEC.encode(connect_request(PLAIN)),
    CODEC.encode(connect_request("aeron:udp?endpoint=victim:9999|term-length=1g|alias=\x1b[2J")),
    CODEC.encode(CloseSessionRequest(control_session_id=7)),
    b"?" * 40,
    bytes(2_000),
)


async def flood(stage: Scene, host: Host, until_ns: int) -> int:
    """Send all kinds of bad requests until a time; return how many."""
    count = 0
    async with host.aeron(DRIVER) as aeron:
        publication = await aeron.add_exclusive_publication(CONTROL, 10)
        while stage.world.now_ns < until_ns:
            await publication.offer(REQUESTS[count % len(REQUESTS)])
            count += 1
            await stage.world.sleep(0.02)
    return count


@pytest.mark.untraced
def test_a_flood_of_requests_costs_ten_lines_a_second() -> None:
    """Driver and archive have one budget; it says how many lines were left out."""

    async def story(stage: Scene) -> None:
        times_ns: list[int] = []
        thread = threading.get_ident()

        def stamp(_logger: object, _method: str, event: EventDict) -> EventDict:
            # Drivers of other tests may still be there, each in a thread of its own.
            if event["event"] == OF_THE_MACHINE or threading.get_ident() != thread:
                raise structlog.DropEvent
            times_ns.append(stage.world.now_ns)
            return event

        begin_ns = stage.world.now_ns
        until_ns = begin_ns + FLOOD_S * SECOND
        with capture_logs(processors=[stamp]) as lines:
            floods = [
                asyncio.create_task(flood(stage, stage.world.host(f"mallory{number}"), until_ns))
                for number in range(SOURCES)
            ]
            # Until then the drivers of the flooders tell of their own publications.
            await stage.world.sleep(1)
            first = len(lines)
            await stage.world.sleep(FLOOD_S - 1.1)
            during, during_ns = list(lines[first:]), times_ns[first:]
            sent_count = sum(await asyncio.gather(*floods))
            await stage.world.sleep(3)
        assert stage.server is not None
        assert sent_count > 4_000
        assert stage.server.dropped_requests > sent_count // 2
        for first_ns in during_ns:
            second = [
                line["event"]
                for line, at_ns in zip(during, during_ns, strict=True)
                if first_ns <= at_ns < first_ns + SECOND
            ]
            assert len(second) <= LINES_PER_SECOND, second
        said = lines_left_out(during)
        assert len(said) >= FLOOD_S - 2
        assert all("archive_request_dropped" in line["events"] for line in said)
        assert any(line["event"] == "archive_request_dropped" for line in during)
        budget = stage.server.aeron.driver.conductor.log_budget
        assert sum(int(line["count"]) for line in lines_left_out(lines)) == budget.left_out_count

    scene(story)


def lines_left_out(lines: list[Any]) -> list[Any]:
    return [line for line in lines if line["event"] == LEFT_OUT]
