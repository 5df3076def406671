"""The other process of a test about bells: `python -m tests.speedups.bell_process FILE COUNT SEED`.

It writes a number as soon as the last one was answered, and after a random moment that is as short
as the time that the reader takes to fall asleep. Then it rings.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Final

from aeron_async.concurrent.atomic_buffer import AtomicBuffer, Mapping
from aeron_async.watcher import Bells

__all__ = ["ANSWER", "ASLEEP_AT", "DATA", "MODE_AT", "map_shared"]

DATA: Final = 0
ANSWER: Final = 128
ASLEEP_AT: Final = 256
MODE_AT: Final = 388
SHARED_LENGTH: Final = 4096
PATIENCE: Final = 500_000_000
"""How often it looks for an answer before it ends with an error."""
PAUSES: Final = 200


def map_shared(path: Path) -> Mapping:
    """Map a file of zeros that both processes have."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(fd, SHARED_LENGTH)
        return Mapping(fd, SHARED_LENGTH)
    finally:
        os.close(fd)


def main(path: str, count: str, seed: str) -> None:
    mapping = map_shared(Path(path))
    shared, bells = AtomicBuffer(mapping), Bells(mapping)
    chance = random.Random(int(seed))
    pauses = [range(chance.randrange(PAUSES)) for _ in range(1_009)]
    for number in range(1, int(count) + 1):
        for look in range(PATIENCE):
            if shared.load_acquire_64(ANSWER) == number - 1:
                break
            if look % 64 == 63:
                os.sched_yield()
        else:
            sys.exit("nobody answers")
        for _ in pauses[number % len(pauses)]:
            pass
        shared.store_release_64(DATA, number)
        bells.ring(ASLEEP_AT)


if __name__ == "__main__":
    main(*sys.argv[1:])
