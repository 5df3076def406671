"""A process that plays one role of a measurement, and says what it came to.

It is started as `python -m aeron_async.cli.bench_child ROLE PLAN`, the plan being JSON. It prints
one line of JSON when it is ready, where others wait for that, and one with its figures at the end.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

from aeron_async.cli import bench_flood, bench_round_trip, bench_stream
from aeron_async.cli.output import complain
from aeron_async.cli.runner import ExitCode, loop_factory
from aeron_async.client.aeron import Aeron
from aeron_async.errors import AeronError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

__all__ = ["ROLES", "play", "ready", "say"]

LIFE_S: Final = 600
"""No role is played longer, whatever became of the process that started it."""

if TYPE_CHECKING:
    Figures = dict[str, float]
    Role = Callable[[dict[str, Any]], Coroutine[object, object, Figures] | Figures]


def say(**fields: object) -> None:
    """Print one line for the process that started this one."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def ready() -> None:
    """Say that the other end may begin."""
    say(ready=True)


async def _publish(plan: dict[str, Any]) -> dict[str, float]:
    async with Aeron.connect() as aeron:
        return await bench_stream.publish(aeron, bench_stream.StreamPlan(**plan))


async def _subscribe(plan: dict[str, Any]) -> dict[str, float]:
    async with Aeron.connect() as aeron:
        return await bench_stream.subscribe(aeron, bench_stream.StreamPlan(**plan), ready=ready)


async def _exchange(plan: dict[str, Any]) -> dict[str, float]:
    async with Aeron.connect() as aeron:
        return await bench_stream.exchange(aeron, bench_stream.StreamPlan(**plan))


async def _ping(plan: dict[str, Any]) -> dict[str, float]:
    async with Aeron.connect() as aeron:
        return await bench_round_trip.ping(aeron, bench_round_trip.RoundTripPlan(**plan))


async def _pong(plan: dict[str, Any]) -> dict[str, float]:
    async with Aeron.connect() as aeron:
        return await bench_round_trip.pong(
            aeron, bench_round_trip.RoundTripPlan(**plan), ready=ready
        )


async def _echo_client(plan: dict[str, Any]) -> dict[str, float]:
    return await bench_round_trip.echo_client(bench_round_trip.RoundTripPlan(**plan))


async def _echo_server(plan: dict[str, Any]) -> dict[str, float]:
    return await bench_round_trip.echo_server(bench_round_trip.RoundTripPlan(**plan), ready=ready)


def _flood(plan: dict[str, Any]) -> dict[str, float]:
    return bench_flood.flood(bench_flood.FloodPlan(**plan))


def _drain(plan: dict[str, Any]) -> dict[str, float]:
    return bench_flood.drain(bench_flood.FloodPlan(**plan), ready=ready)


ROLES: Final[Mapping[str, Role]] = {
    "publish": _publish,
    "subscribe": _subscribe,
    "exchange": _exchange,
    "ping": _ping,
    "pong": _pong,
    "echo_client": _echo_client,
    "echo_server": _echo_server,
    "flood": _flood,
    "drain": _drain,
}


def play(roles: Mapping[str, Role], arguments: Sequence[str]) -> int:
    """Play a role, and print its figures; return the exit code.

    Args:
        roles: By name.
        arguments: The role, and its plan as JSON; `loop` in it is the event loop, uvloop unless
            said otherwise.
    """
    name, plan = arguments[0], json.loads(arguments[1])
    factory = loop_factory(plan.pop("loop", None))
    signal.alarm(LIFE_S)
    try:
        figures = roles[name](plan)
        if inspect.iscoroutine(figures):
            with asyncio.Runner(loop_factory=factory) as runner:
                figures = runner.run(figures)
    except (AeronError, OSError) as error:
        complain(error)
        return ExitCode.FAILURE
    finally:
        signal.alarm(0)
    say(figures=figures)
    return ExitCode.SUCCESS


if __name__ == "__main__":
    sys.exit(play(ROLES, sys.argv[1:]))
