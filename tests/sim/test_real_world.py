"""What belongs to the real world is refused by name, on either loop."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.testing.virtual_clock import REFUSED, VirtualLoop, run_virtual
from tests.sim.test_virtual_clock import VirtualUvLoop

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIXES = ("add_", "connect_", "create_", "sock_", "subprocess_", "send", "start_", "get")


@pytest.mark.parametrize("loop_factory", [VirtualLoop, VirtualUvLoop])
@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name(name: str, loop_factory: Callable[[], Any]) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=f"^{name} belongs to the real world.* of a World$"):
            getattr(asyncio.get_running_loop(), name)(7, print, host="localhost")

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


def test_no_way_into_the_real_world_is_forgotten() -> None:
    own = {"create_task", "create_future", "get_debug", "get_exception_handler", "get_task_factory"}
    ways = {name for name in dir(asyncio.AbstractEventLoop) if name.startswith(PREFIXES)}
    assert ways - own == set(REFUSED)


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("create_connection", lambda: asyncio.open_connection("localhost", 1)),
        ("create_server", lambda: asyncio.start_server(print, "localhost", 1)),
        ("subprocess_exec", lambda: asyncio.create_subprocess_exec("true")),
        ("getaddrinfo", lambda: asyncio.get_running_loop().getaddrinfo("localhost", 1)),
    ],
)
def test_what_asyncio_builds_upon_it_is_refused(name: str, use: Callable[[], Any]) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=f"^{name} belongs"):
            await use()

    run_virtual(main())


def test_a_refused_socket_is_still_the_callers() -> None:
    async def main() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            with pytest.raises(RuntimeError, match=r"^create_datagram_endpoint belongs"):
                await asyncio.get_running_loop().create_datagram_endpoint(
                    asyncio.DatagramProtocol, sock=sock
                )
            assert sock.fileno() >= 0

    run_virtual(main())
