"""Clients that die in the middle of an append: for each line of stdin, a life of one.

`python -m tests.slow.killed_client DIRECTORY STREAM_ID`. A line is `LIFE SEED CHANNEL`. The life
offers numbered messages of random lengths, and is killed at a random instruction of the code that
writes them into the log. Afterwards a line of stdout says how many offers had returned.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import sys
from random import Random
from typing import TYPE_CHECKING, Any

import aeron_async as aa
from aeron_async.logbuffer import appender, frame

if TYPE_CHECKING:
    from types import FrameType

WRITING = {appender.__file__, frame.__file__}
INSTRUCTIONS_MAX = 60_000
"""Instructions after which a life is over; an append takes about a thousand."""
PATIENCE_S = 30


def message_of(life: int, number: int, random: Random) -> bytes:
    """Return a message that says whose it is, of one to five frames."""
    return b"%d %d " % (life, number) + bytes(random.randrange(6_000))


async def live(
    directory: str, channel: str, stream_id: int, life: int, seed: int, done: Any
) -> None:
    """Offer messages until killed."""
    random = Random(seed)
    async with aa.Aeron.connect(directory=directory) as aeron:
        publication = await aeron.add_publication(channel, stream_id)
        await publication.wait_connected(PATIENCE_S)
        left = random.randrange(1, INSTRUCTIONS_MAX)

        def trace(frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal left
            if frame.f_code.co_filename not in WRITING:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        # Python 3.12 counts instructions only if a frame asks for them before tracing begins.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(trace)
        for number in range(1_000_000):
            await publication.offer(message_of(life, number, random), timeout=PATIENCE_S)
            done[:8] = (number + 1).to_bytes(8, "little")


def say(text: str) -> None:
    """Write a line for the process that started this one."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    """Let one life after the other begin and end."""
    directory, stream_id = sys.argv[1], int(sys.argv[2])
    done = mmap.mmap(-1, mmap.PAGESIZE)
    say("ready")
    for line in sys.stdin:
        life, seed, channel = line.split()
        done[:8] = bytes(8)
        child = os.fork()
        if child == 0:
            asyncio.run(live(directory, channel, stream_id, int(life), int(seed), done))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        say(str(int.from_bytes(done[:8], "little")) if killed else f"status {status}")


if __name__ == "__main__":
    main()
