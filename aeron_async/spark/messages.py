"""Puts fragments together to messages, without touching their payloads.

A message is a run of data frames in one term, the first with the flag that begins one and the last
with the flag that ends one, and nothing between them. Fragments before the first beginning belong
to a message that began earlier; a run that padding interrupts, or that never ends, is broken.

Source: Aeron `FragmentAssembler`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np

from aeron_async.spark.frame_finder import DATA, KIND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aeron_async.spark.frame_finder import Frames

    Longs = NDArray[np.int64]

__all__ = ["Messages", "assemble", "each_frame"]

BEGIN: Final = 0x8000
END: Final = 0x4000
WHOLE: Final = BEGIN | END | DATA


@final
class Messages:
    """Rows of a piece: messages, or single frames.

    Attributes:
        frames: Those that are in a row, and no others.
        first: Number of the first frame of each row.
        last: Number of its last one.
        end: Up to where the piece is done with; a message that goes on behind it begins there.
        dropped: Fragments in no row: their message began earlier, or lacks a part.
        broken: Messages that lack a part.
    """

    __slots__ = ("broken", "dropped", "end", "first", "frames", "last")

    def __init__(
        self,
        frames: Frames,
        first: Longs,
        last: Longs,
        *,
        end: int,
        dropped: int = 0,
        broken: int = 0,
    ) -> None:
        self.frames = frames
        self.first = first
        self.last = last
        self.end = end
        self.dropped = dropped
        self.broken = broken

    def __len__(self) -> int:
        return len(self.first)


def each_frame(frames: Frames, *, with_padding: bool) -> Messages:
    """Return a row for each frame."""
    if not with_padding:
        is_data = (frames.heads[:, KIND] & DATA) != 0
        if not is_data.all():
            frames = frames.picked(is_data)
    numbers = np.arange(len(frames))
    return Messages(frames, numbers, numbers, end=frames.end)


def assemble(frames: Frames, *, goes_on: bool) -> Messages:
    """Return a row for each message.

    Args:
        frames: Of a piece, in order.
        goes_on: Whether frames of the same term follow the piece.
    """
    kinds = frames.heads[:, KIND]
    if not len(kinds) or np.bitwise_and.reduce(kinds) & WHOLE == WHOLE:
        return each_frame(frames, with_padding=True)
    end = frames.end
    is_data = (kinds & DATA) != 0
    data = frames if is_data.all() else frames.picked(is_data)
    kinds = data.heads[:, KIND]
    begins = np.flatnonzero(kinds & BEGIN)
    ends = np.flatnonzero(kinds & END)
    # Which run of frames without anything between them each is in.
    runs = np.zeros(len(data), np.int64)
    np.cumsum(data.starts[1:] != data.ends[:-1], out=runs[1:])
    first, last = pairs(begins, ends, runs)
    broken = len(begins) - len(first)
    if len(begins) and (not len(ends) or ends[-1] < begins[-1]):
        opened = begins[-1]
        if goes_on and runs[opened] == runs[-1] and data.ends[-1] == end:
            end = int(data.starts[opened])
            broken -= 1
    is_kept = in_rows(first, last, len(data))
    numbers = np.cumsum(is_kept) - 1
    dropped = int(np.searchsorted(data.starts, end)) - int(is_kept.sum())
    return Messages(
        data.picked(is_kept), numbers[first], numbers[last], end=end, dropped=dropped, broken=broken
    )


def pairs(begins: Longs, ends: Longs, runs: Longs) -> tuple[Longs, Longs]:
    """Return the first and the last frame of each message that is whole."""
    if not len(ends):
        return ends, ends
    places = np.searchsorted(ends, begins)
    following = np.append(begins[1:], len(runs))
    last = ends[np.minimum(places, len(ends) - 1)]
    is_whole = (last >= begins) & (last < following) & (runs[last] == runs[begins])
    return begins[is_whole], last[is_whole]


def in_rows(first: Longs, last: Longs, count: int) -> NDArray[np.bool_]:
    """Return which of so many frames lie from a first to its last one."""
    steps = np.zeros(count + 1, np.int64)
    steps[first] += 1
    steps[last + 1] -= 1
    return np.cumsum(steps[:-1]) > 0
