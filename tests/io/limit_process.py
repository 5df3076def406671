"""The other process of a test about limits: `python -m tests.io.limit_process FILE COUNT SEED`.

It plays a driver: as soon as the position has come to the limit, it raises the limit by one, after
a random moment that is as short as the time between a look at the limit and the arming of its word.
"""

from __future__ import annotations

import os
import random
import sys
from typing import Final

from aeron_async.concurrent import atomic_buffer

__all__ = ["LIMIT", "POSITION", "SHARED_LENGTH"]

LIMIT: Final = 0
POSITION: Final = 128
SHARED_LENGTH: Final = 4096
PATIENCE: Final = 200_000_000
"""How often it looks for a position before it ends with an error."""
PAUSES: Final = 300


def main(path: str, count: str, seed: str) -> None:
    fd = os.open(path, os.O_RDWR)
    mapping = atomic_buffer.Mapping(fd, SHARED_LENGTH)
    os.close(fd)
    shared = atomic_buffer.AtomicBuffer(mapping)
    chance = random.Random(int(seed))
    for limit in range(1, int(count) + 1):
        for look in range(PATIENCE):
            if shared.load_acquire_64(POSITION) == limit - 1:
                break
            if look % 64 == 63:
                os.sched_yield()
        else:
            sys.exit("nobody reads")
        for _ in range(chance.randrange(PAUSES)):
            pass
        shared.store_release_64(LIMIT, limit)


if __name__ == "__main__":
    main(*sys.argv[1:])
