"""The other process of a test about bells: `python -m tests.io.bell_process FOLDER COUNT SEED`.

It writes a number as soon as the last one was answered, and after a random moment that is as short
as the time that the reader takes to fall asleep. It rings when the reader says that it sleeps.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Final

from aeron_async import doorbell
from aeron_async.concurrent import atomic_buffer

__all__ = [
    "ANSWER",
    "ASLEEP_AT",
    "CLIENT_ID",
    "DATA",
    "random_pauses",
    "share",
]

DATA: Final = 0
ANSWER: Final = 128
ASLEEP_AT: Final = 256
SHARED_LENGTH: Final = 4096
CLIENT_ID: Final = 42
PATIENCE: Final = 500_000_000
"""How often it looks for an answer before it ends with an error."""
PAUSES: Final = 200


def share(path: Path) -> atomic_buffer.AtomicBuffer:
    """Map a file of zeros that both processes have."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(fd, SHARED_LENGTH)
        return atomic_buffer.AtomicBuffer(atomic_buffer.Mapping(fd, SHARED_LENGTH))
    finally:
        os.close(fd)


def random_pauses(seed: int) -> list[range]:
    """Return how often to do nothing, each time, for up to some microseconds."""
    chance = random.Random(seed)
    return [range(chance.randrange(PAUSES)) for _ in range(1_009)]


def main(folder: str, count: str, seed: str) -> None:
    shared = share(Path(folder, "shared"))
    ringer = doorbell.BellRinger(Path(folder))
    pauses = random_pauses(int(seed))
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
        if not ringer.ring_if_asleep(CLIENT_ID, shared=shared, offset=ASLEEP_AT):
            sys.exit("the bell is gone")


if __name__ == "__main__":
    main(*sys.argv[1:])
