"""Where frames begin in what was sent: a NAK may begin nowhere else.

The log cannot tell by itself, because payload may look like a header: a peer that has a say in what
is published could have bytes of its own sent to the receivers as frames. So the sender remembers,
for every 4 KiB of the stream, where the first datagram in it began, and a frame is found by walking
from header to header from there. Only these two kinds of places are ever believed.

An honest NAK begins where a gap does: where some datagram ended that was sent or sent again. What
is sent again may be cut elsewhere than before, so that is the start of a frame, but not always that
of a datagram as it was first sent.

The cost: a comparison for each datagram, and 8 bytes for each 4 KiB of a term, touched as the
stream goes by. A question walks over 4 KiB and a datagram at most, and that only if the place
claims to be the one that is asked for, which hardly any payload does. Rejected: a bit for each
place in a term, which costs a store for each datagram and knows nothing of other cuts; and walking
from the start of the term, which takes milliseconds for every NAK.

Source: Aeron has none; it resends from wherever a NAK says.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Final

from aeron_async.kernel import mark_starts
from aeron_async.kernel.scanning import BLOCK_BITS
from aeron_async.logbuffer.position import partition_index, term_id_at

if TYPE_CHECKING:
    from aeron_async.kernel.placing import Cuts
    from aeron_async.logbuffer.term_log import LogBuffers

__all__ = ["FrameStarts"]

POSITION_LENGTH: Final = 8


class FrameStarts:
    """The datagrams that began a block of the stream, for the last term's length of it.

    Args:
        log: Where the frames are.
        position: Where the stream starts, in bytes.

    Attributes:
        next_position: From here on the start of a datagram is worth a `mark`, in bytes.
    """

    def __init__(self, log: LogBuffers, position: int) -> None:
        self._log = log
        self._block_count = log.term_length >> BLOCK_BITS
        # A datagram that covers a place began so many blocks before it at most.
        self._reach = (log.mtu_length >> BLOCK_BITS) + 1
        # Anonymous memory: the pages of what is never sent are never taken.
        memory = mmap.mmap(-1, self._block_count * POSITION_LENGTH)
        self._positions = memoryview(memory).cast("q")
        self.mark(position)

    def mark(self, position: int) -> None:
        """Take note that the first datagram of a block begins at `position`."""
        block = position >> BLOCK_BITS
        self._positions[block % self._block_count] = position
        self.next_position = (block + 1) << BLOCK_BITS

    def mark_runs(self, position: int, length: int, cuts: Cuts) -> None:
        """Take note of runs of datagrams: for each block that they reach, of its first one there.

        Args:
            position: Of the first.
            length: Of all together, as far as they have left.
            cuts: Where they are cut; see `scan_runs`.
        """
        self.next_position = mark_starts(
            self._positions, self.next_position, position, cuts, length
        )

    def is_start(self, position: int) -> bool:
        """Return whether a frame is known to begin at `position`, a multiple of 32."""
        log = self._log
        words = log.term_words[partition_index(position, bits=log.position_bits)]
        offset = position & (log.term_length - 1)
        # What most lies do not survive, at the price of two loads. It proves nothing.
        term_id = term_id_at(position, initial_term_id=log.initial_term_id, bits=log.position_bits)
        if words[(offset >> 2) + 2] != offset or words[(offset >> 2) + 5] != term_id:
            return False
        known_position = self._known_start_before(position)
        if known_position is None:
            return False
        walked = offset - (position - known_position)
        while walked < offset:
            frame_length = words[walked >> 2]
            if frame_length <= 0:
                return False
            walked += (frame_length + 31) & -32
        return walked == offset

    def _known_start_before(self, position: int) -> int | None:
        """Return the start of a datagram at or before `position`, if one is near enough.

        Terms begin with a datagram and with a block, so that it never lies in another term.
        """
        block = position >> BLOCK_BITS
        for each in range(block, block - self._reach - 1, -1):
            known_position = self._positions[each % self._block_count]
            if known_position >> BLOCK_BITS == each and known_position <= position:
                return known_position
        return None
