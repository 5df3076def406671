"""What the conversations share: a wire that judges what is sent, and counters used again."""

from __future__ import annotations

from operator import le
from typing import TYPE_CHECKING, Final

from aeron_async.protocol.datagram import INVALID, frame_type
from tests.driver.fakes import Counts, Outbox

if TYPE_CHECKING:
    from aeron_async.driver.core.outbox import Address
    from aeron_async.protocol.header import Buffer

WORDS_PER_COUNTER: Final = 16
LONGEST_DATAGRAM: Final = 1_408
"""The MTU; scripts send nothing longer either, so that no echo is."""


class Wire(Outbox):
    """Takes datagrams, and keeps of them their number only."""

    def __init__(self) -> None:
        super().__init__()
        self.sent_count = 0

    def send(self, datagram: Buffer) -> bool:
        assert frame_type(datagram) != INVALID
        assert len(datagram) <= LONGEST_DATAGRAM
        if self.is_full:
            return False
        self.sent_count += 1
        return True

    def send_to(self, datagram: Buffer, address: Address) -> bool:
        return self.send(datagram)

    def send_batch(self, batch: memoryview, segment_length: int, address: Address) -> int:
        starts = range(0, len(batch), segment_length)
        return sum(
            segment_length * self.send(batch[start : start + segment_length]) for start in starts
        )


class Watch:
    """Sees that no system counter goes back."""

    def __init__(self, counts: Counts) -> None:
        self._values = counts.manager._values[: len(counts.system._counters) * WORDS_PER_COUNTER]
        self._before = self._values[::WORDS_PER_COUNTER].tolist()

    def check(self) -> None:
        now = self._values[::WORDS_PER_COUNTER].tolist()
        assert all(map(le, self._before, now))
        self._before = now

    def begin_again(self) -> None:
        """Set every counter to zero: making them anew for each conversation is slow."""
        for at in range(0, len(self._values), WORDS_PER_COUNTER):
            self._values[at] = 0
        self._before = [0] * len(self._before)
