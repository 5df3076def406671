"""Ports for tests that open real sockets, on several processes at once.

A port that the system had chosen, and that is free again, may be chosen by it for somebody else
before the test has opened it: workers open sockets all the time. So these lie below what Linux
chooses from, and every worker of a run has its own.
"""

from __future__ import annotations

import os
import socket
from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

BELOW_THE_CHOSEN_ONES: Final = range(10_000, 32_768)


def unused_udp_ports(
    worker: str | None = os.environ.get("PYTEST_XDIST_WORKER"),
    worker_count: int = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
) -> Iterator[int]:
    """Return ports of this worker that nobody holds, none of them twice.

    They begin anywhere: test runs of several clones share a machine.
    """
    first = int(worker.removeprefix("gw")) if worker else 0
    ports = BELOW_THE_CHOSEN_ONES[first::worker_count]
    start = Random(os.getpid()).randrange(len(ports))
    return filter(is_unused, (*ports[start:], *ports[:start]))


def is_unused(port: int) -> bool:
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        try:
            sock.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
