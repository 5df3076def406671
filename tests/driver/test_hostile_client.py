"""A client that writes at random into every file of a live directory, and an honest pair beside it.

The driver lives, and the honest stream stays complete and in order. `AERON_ASYNC_HOSTILE_STEPS`
makes it longer, `AERON_ASYNC_HOSTILE_SEED` another one.
"""

from __future__ import annotations

import os
import struct
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

import aeron_async as aa
from aeron_async.concurrent.ring_buffer import CORRELATION_ID_OFFSET, HEARTBEAT_OFFSET, TAIL_OFFSET
from aeron_async.errors import AeronError
from aeron_async.protocol.control_protocol import COMMANDS, GetNextAvailableSessionId
from tests.driver.foreign.client import IPC, UDP, Directory, in_directory
from tests.logs import captured_logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.driver.foreign.client import ForeignClient, Publisher, Reader

STEPS: Final = int(os.environ.get("AERON_ASYNC_HOSTILE_STEPS", "2000"))
SEED: Final = int(os.environ.get("AERON_ASYNC_HOSTILE_SEED", "0"))
STEPS_A_ROUND: Final = 20
HOSTILE_STREAM: Final = 666
HONEST_STREAM: Final = 7
CHANNELS: Final = (
    IPC,
    UDP,
    f"aeron-spy:{UDP.split('|')[0]}",
    "aeron:udp?control-mode=manual",
    "aeron:ipc?tether=false",
    "aeron:udp?endpoint=127.0.0.1:0",
    "aeron:udp?endpoint=nowhere.invalid:1",
    "aeron:ipc?session-id=tag:3",
    "aeron:ipc?control-mode=response",
    "aeron",
    "",
)
WORDS: Final = (0, 1, -1, 31, 32, 33, 63, 64, 1_408, 65_536, 2**31 - 1, -(2**31))
LONGS: Final = (*WORDS, 2**31, 2**32 + 64, 2**62, 2**63 - 1, -(2**63), 2**63 - 32)
RECORD_MAX: Final = 200
LOGS_MAX: Final = 100
"""Logs that the hostile client has mapped of its publications, and of its images."""


class Hostile:
    """A client that knows the formats, and keeps to nothing."""

    def __init__(self, client: ForeignClient, random: Random, spared: range) -> None:
        self.client = client
        self.random = random
        self.spared = spared
        self.publishers: list[Publisher] = []
        self.readers: list[Reader] = []
        self.steps: list[Callable[[], object]] = [
            self.command,
            self.command,
            self.command,
            self.bytes_of_a_command,
            self.counter,
            self.tail,
            self.frame,
            self.position,
            self.header,
            self.position,
            self.offer,
        ]

    def step(self) -> None:
        self.random.choice(self.steps)()

    def number(self, code: str) -> int:
        random = self.random
        if random.random() < 0.5:
            return random.randrange(100)
        if code in "hH":
            return random.randrange(2**15)
        if code == "Q":
            return random.randrange(4)
        return random.choice(LONGS if code == "q" else WORDS)

    def body(self) -> tuple[int, bytes]:
        """Return a command whose fields may be anything, most of them of the right form."""
        random = self.random
        type_id = random.choice([*COMMANDS, 99])
        # It must not close or end the honest ones by naming them: their ids are spared.
        client_id = random.choice((self.client.client_id, self.client.client_id, 10**6, -1))
        body = struct.pack("<qq", client_id, random.randrange(10**7, 10**7 + 200))
        for _ in range(random.randrange(4)):
            body += struct.pack("<q", random.choice((self.number("q"), 10**7 + self.number("i"))))
        if random.random() < 0.8:
            text = random.choice(CHANNELS).encode()
            stream = struct.pack("<i", random.choice((HOSTILE_STREAM, self.number("i"))))
            length = len(text) if random.random() < 0.9 else self.number("i")
            body += stream + struct.pack("<i", length) + text
        return type_id, body

    def command(self) -> None:
        self.client.ring.write(*self.body())

    def bytes_of_a_command(self) -> None:
        type_id = self.random.choice([*COMMANDS, 0x7FFF_FFFF])
        length = self.random.randrange(RECORD_MAX)
        body = self.random.randbytes(length)
        # A client id that is random is nobody's.
        self.client.ring.write(type_id, body)

    def counter(self) -> None:
        """Write any counter, but those of the honest pair."""
        counter_id = self.random.randrange(self.random.choice((46, 300)))
        if counter_id not in self.spared:
            self.client.set_value(counter_id, self.random.choice(LONGS))

    def position(self) -> None:
        if self.readers:
            self.random.choice(self.readers).position = self.random.choice(LONGS)

    def tail(self) -> None:
        if self.publishers:
            metadata = self.random.choice(self.publishers).log.metadata
            if self.random.random() < 0.3:
                metadata.active_term_count = self.random.choice(WORDS)
            else:
                metadata.longs[self.random.randrange(3)] = self.random.choice(LONGS)

    def header(self) -> None:
        """Write into the rest of the metadata of a log."""
        if self.publishers:
            block = self.random.choice(self.publishers).log.metadata.words
            block[self.random.randrange(len(block))] = self.random.choice(WORDS)

    def frame(self) -> None:
        """Write one word of a frame header near the start of a term."""
        if self.publishers:
            words = self.random.choice(self.random.choice(self.publishers).log.term_words)
            at = self.random.randrange(64) * 8 + self.random.randrange(8)
            words[at] = self.random.choice(WORDS)

    def offer(self) -> None:
        if not self.publishers:
            return
        try:
            self.random.choice(self.publishers).offer(bytes(self.random.randrange(1_000)))
        except (AeronError, ValueError, IndexError, OverflowError):
            # Its own log is no log any more.
            self.publishers.clear()

    def destroy_ring(self) -> None:
        """Write into the trailer of the ring, or into its records."""
        ring, buffer = self.client.ring, self.client.ring_buffer
        random = self.random
        if random.random() < 0.5:
            at = ring.capacity + random.choice(
                (TAIL_OFFSET, TAIL_OFFSET, CORRELATION_ID_OFFSET, HEARTBEAT_OFFSET)
            )
            if at != ring.capacity + CORRELATION_ID_OFFSET:
                buffer.store_release_64(at, random.choice(LONGS))
        else:
            index = ring.stored_consumer_position & (ring.capacity - 1) & -8
            buffer.store_release_32(index, random.choice(WORDS))

    async def add_streams(self) -> None:
        """Get streams of its own, to write into."""
        for channel in (IPC, UDP):
            for is_exclusive in (False, True):
                try:
                    self.publishers.append(
                        await self.client.add_publication(
                            channel, HOSTILE_STREAM, is_exclusive=is_exclusive
                        )
                    )
                    _, readers = await self.client.add_subscription(channel, HOSTILE_STREAM)
                except (AssertionError, OSError, AeronError):
                    # It was refused, for what it has done before.
                    return
                self.readers += readers
        self.let_go()

    def let_go(self) -> None:
        """Unmap old logs: one process has no more than some ten thousand maps."""
        for publisher in self.publishers[:-LOGS_MAX]:
            publisher.appender.detach()
            publisher.log.close()
        for reader in self.readers[:-LOGS_MAX]:
            reader.log.close()
        del self.publishers[:-LOGS_MAX], self.readers[:-LOGS_MAX]


@pytest.mark.parametrize("channel", [IPC, UDP])
@in_directory
async def test_an_honest_pair_beside_a_hostile_client(directory: Directory, channel: str) -> None:
    random = Random(f"{SEED}/{channel}")
    honest = directory.client()
    async with aa.Aeron.connect(directory.driver) as aeron:
        own = channel.replace("20121", "20130")
        # These wait for what the hostile client sends, and so the driver watches its logs.
        for each in (IPC, UDP):
            await aeron.add_subscription(each, HOSTILE_STREAM)
        subscription = await aeron.add_subscription(own, HONEST_STREAM)
        first = len(directory.driver.counters.snapshot())
        publisher = await honest.add_publication(own, HONEST_STREAM, is_exclusive=True)
        await directory.pass_time(1, honest)
        last = len(directory.driver.counters.snapshot())
        # What an honest client reads back of its own is not protected from its neighbours.
        hostile = Hostile(directory.client(), random, range(first - 10, last))
        sent = 0
        with captured_logs():
            for round_number in range(-(-STEPS // STEPS_A_ROUND)):
                if round_number % 10 == 0:
                    await hostile.add_streams()
                for _ in range(STEPS_A_ROUND):
                    hostile.step()
                await directory.settle()
                hostile.client.received()
                message = b"%d" % sent * 30
                for _ in range(100):
                    if publisher.offer(message) > 0:
                        break
                    await directory.pass_time(0.25, honest)
                await directory.settle()
                found = await anext(subscription)
                assert found.data == message
                sent += 1
                if round_number % 4 == 0:
                    await directory.pass_time(1.25, honest)
        assert not directory.driver.is_closed
        assert sent == -(-STEPS // STEPS_A_ROUND)


@pytest.mark.parametrize("seed", range(20))
@in_directory
async def test_a_ring_that_a_hostile_client_destroys(directory: Directory, seed: int) -> None:
    random = Random(f"{SEED}/{seed}")
    honest = directory.client()
    await honest.add_counter()
    hostile = Hostile(directory.client(), random, range(1_000))
    with captured_logs():
        for _ in range(10):
            hostile.command()
            hostile.destroy_ring()
            await directory.settle()
            hostile.bytes_of_a_command()
        # The unblock timeout passes, perhaps several times: once for each record.
        for _ in range(12):
            await directory.pass_time(12, honest)
    honest.received()
    answers = await honest.ask(GetNextAvailableSessionId, stream_id=1)
    assert answers
    assert not directory.driver.is_closed
