"""Runs of a recording without gaps, and the gaps between them.

A `Summariser` takes part of a recording in order and sums it up: the runs, and the gaps inside
them. Sorted by position, the runs of all parts are then stitched together, whatever the
order in which the parts were read. A run is one of positions, or of a number that counts messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import attrs
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from aeron_async.archive.disk.descriptor import RecordingDescriptor

__all__ = [
    "MOST_MISSING",
    "GapKind",
    "MessageRows",
    "RecordedGap",
    "Run",
    "Summariser",
    "gap_between",
    "is_term_padding",
    "position_gap",
    "stitch",
]

POSITIONS: Final = ""
"""Name of runs of positions."""
MOST_MISSING: Final = (1 << 63) - 1
"""Largest count of missing numbers in a gap; a larger one is shown as this."""


class GapKind:
    """Kinds in the table of gaps."""

    SEQUENCE: Final = "sequence"
    """Numbers that were not recorded: `missing` of them."""
    BACKWARDS: Final = "backwards"
    """A number that is not larger than the one before: a duplicate, a reordering, or a restart."""
    PADDING: Final = "padding"
    """Padding in mid term: data that was lost, or an aborted claim; `missing` bytes."""
    MISSING: Final = "missing"
    """A jump of a term or more; `missing` bytes."""


@final
@attrs.frozen(kw_only=True)
class Run:
    """A run of messages of one recording.

    Attributes:
        recording_id: The recording.
        session_id: Session of the publication.
        stream_id: The stream.
        name: Name of the number that counts messages, as `KIND.FIELD`; "" for positions.
        first_position: Where the first message begins.
        end_position: End of the last message.
        messages: Number of messages.
        bytes: Bytes of their payloads.
        first_ns: Time of the first message that has one; None if none has.
        last_ns: Time of the last message that has one; None if none has.
        first_number: Number of the first message; None for positions.
        last_number: Number of the last message; None for positions.
        gaps: Number of gaps inside, including those that were too many to be listed; in a table
            also that between this run and the batch before.
    """

    recording_id: int
    session_id: int
    stream_id: int
    name: str = POSITIONS
    first_position: int
    end_position: int
    messages: int
    bytes: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    first_number: int | None = None
    last_number: int | None = None
    gaps: int = 0


@final
@attrs.frozen(kw_only=True)
class RecordedGap:
    """A gap in a recording.

    Attributes:
        kind: See `GapKind`.
        recording_id: The recording.
        stream_id: The stream.
        name: Name of the run, as in `Run`.
        position: End of the message before the gap.
        end_position: Where the message after the gap begins.
        missing: Numbers or bytes, depending on the kind.
        before_ns: Time of the message before, if it has one.
        after_ns: Time of the message after, if it has one.
    """

    kind: str
    recording_id: int
    stream_id: int
    name: str = POSITIONS
    position: int
    end_position: int
    missing: int
    before_ns: int | None = None
    after_ns: int | None = None


def is_term_padding(position: int, end_position: int, term_length: int) -> bool:
    """Return whether a gap in positions is the padding at the end of a term."""
    return end_position & (term_length - 1) == 0 and end_position - position < term_length


def position_gap(position: int, end_position: int, term_length: int) -> str | None:
    """Return the kind of the gap between two messages; None if there is none."""
    if end_position <= position or is_term_padding(position, end_position, term_length):
        return None
    return GapKind.PADDING if end_position - position < term_length else GapKind.MISSING


def stitch(
    runs: Iterable[Run], term_lengths: Mapping[int, int]
) -> tuple[dict[tuple[int, str], Run], list[RecordedGap]]:
    """Join runs to one for each recording and name; return these and the gaps between them.

    Args:
        runs: Runs in any order.
        term_lengths: Term lengths in bytes, by recording id.
    """
    whole: dict[tuple[int, str], Run] = {}
    gaps = []
    for run in sorted(runs, key=lambda each: (each.first_position, each.end_position)):
        key = run.recording_id, run.name
        before = whole.get(key)
        if before is None:
            whole[key] = run
            continue
        gap = gap_between(before, run, term_lengths[run.recording_id])
        if gap is not None:
            gaps.append(gap)
        whole[key] = joined(before, run, gaps=0 if gap is None else 1)
    return whole, gaps


def gap_between(before: Run, after: Run, term_length: int) -> RecordedGap | None:
    """Return the gap between two runs; None if there is none."""
    kind: str | None
    if after.first_number is None or before.last_number is None:
        kind = position_gap(before.end_position, after.first_position, term_length)
        missing = after.first_position - before.end_position
    else:
        missing = after.first_number - before.last_number - 1
        # Columns have 64 bits, and the difference of two numbers may have more.
        missing = max(min(missing, MOST_MISSING), -MOST_MISSING)
        kind = GapKind.SEQUENCE if missing > 0 else GapKind.BACKWARDS if missing < 0 else None
    if kind is None:
        return None
    return RecordedGap(
        kind=kind,
        recording_id=after.recording_id,
        stream_id=after.stream_id,
        name=after.name,
        position=before.end_position,
        end_position=after.first_position,
        missing=missing,
        before_ns=before.last_ns,
        after_ns=after.first_ns,
    )


def joined(before: Run, after: Run, *, gaps: int) -> Run:
    """Return two runs as one; `after` has the session that extended the recording."""
    last = after if after.end_position >= before.end_position else before
    return attrs.evolve(
        after,
        first_position=before.first_position,
        end_position=last.end_position,
        messages=before.messages + after.messages,
        bytes=before.bytes + after.bytes,
        first_ns=after.first_ns if before.first_ns is None else before.first_ns,
        last_ns=before.last_ns if after.last_ns is None else after.last_ns,
        first_number=before.first_number,
        last_number=last.last_number,
        gaps=before.gaps + after.gaps + gaps,
    )


LISTED_GAPS: Final = 1_000
"""Upper limit on the gaps that one part lists; more are only counted."""


@final
@attrs.frozen
class MessageRows:
    """Some messages of one recording, in order, as arrays of 64 bits.

    Attributes:
        sessions: Session of each.
        positions: Where each begins.
        ends: Where each ends.
        lengths: Length of each payload.
        times: Time of each in nanoseconds; 0 if it has none.
        is_timed: Whether each has a time.
        numbers: Number that counts messages; None for runs of positions.
    """

    sessions: NDArray[Any]
    positions: NDArray[Any]
    ends: NDArray[Any]
    lengths: NDArray[Any]
    times: NDArray[Any]
    is_timed: NDArray[np.bool_]
    numbers: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.positions)

    def time_of(self, row: int) -> int | None:
        """Return the time of a message; None if it has none."""
        return int(self.times[row]) if self.is_timed[row] else None

    def counted(self, chosen: Any, numbers: NDArray[Any]) -> MessageRows:
        """Return chosen messages with the numbers that count them."""
        arrays = {
            name: getattr(self, name)[chosen]
            for name in ("sessions", "positions", "ends", "lengths", "times", "is_timed")
        }
        return MessageRows(**arrays, numbers=numbers)


@final
@attrs.frozen
class Edge:
    """The last message so far."""

    session: int
    end_position: int
    number: int
    time_ns: int | None


@final
class Summariser:
    """Sums up one part of a recording.

    Args:
        recording: Catalog entry of the recording.
        name: Name of the number that counts messages; "" for runs of positions.

    Attributes:
        runs: Runs that ended.
        gaps: Gaps, the first `LISTED_GAPS` of them.
    """

    def __init__(self, recording: RecordingDescriptor, name: str = POSITIONS) -> None:
        self._recording = recording
        self._name = name
        self._edge: Edge | None = None
        self._open: Run | None = None
        self.runs: list[Run] = []
        self.gaps: list[RecordedGap] = []

    def add(self, rows: MessageRows) -> None:
        """Add messages, which follow those before."""
        if not len(rows):
            return
        is_first, holes = self._compared(rows)
        missing, is_gap = self._gaps(rows, is_first, holes)
        starts = np.flatnonzero(is_first)
        if not is_first[0]:
            starts = np.concatenate([[0], starts])
        ends = np.append(starts[1:], len(rows))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            if is_first[start]:
                self.close()
            gaps = np.flatnonzero(is_gap[start:end]) + start
            listed = gaps[: LISTED_GAPS - len(self.gaps)].tolist()
            self.gaps += [self._gap(rows, row, int(missing[row])) for row in listed]
            run = self._run(rows, start, end, len(gaps))
            self._open = run if self._open is None else joined(self._open, run, gaps=0)
        last = len(rows) - 1
        self._edge = Edge(
            session=int(rows.sessions[last]),
            end_position=int(rows.ends[last]),
            number=0 if rows.numbers is None else int(rows.numbers[last]),
            time_ns=rows.time_of(last),
        )

    def close(self) -> None:
        """End the run."""
        if self._open is not None:
            self.runs.append(self._open)
            self._open = None

    def _compared(self, rows: MessageRows) -> tuple[Any, Any]:
        """Return which messages begin a run, and the distance of each from the one before."""
        is_first = np.ones(len(rows), np.bool_)
        is_first[1:] = rows.sessions[1:] != rows.sessions[:-1]
        holes = np.zeros(len(rows), np.int64)
        holes[1:] = rows.positions[1:] - rows.ends[:-1]
        edge = self._edge
        if edge is not None and edge.session == int(rows.sessions[0]):
            is_first[0] = False
            holes[0] = rows.positions[0] - edge.end_position
        is_first |= holes < 0
        return is_first, holes

    def _gaps(self, rows: MessageRows, is_first: Any, holes: Any) -> tuple[Any, Any]:
        """Return what is missing before each message, and which have a gap before them."""
        if rows.numbers is None:
            is_gap = ~is_first & (holes > 0)
            for row in np.flatnonzero(is_gap).tolist():
                position = int(rows.positions[row])
                end = position - int(holes[row])
                kind = position_gap(end, position, self._recording.term_length)
                is_gap[row] = kind is not None
            return holes, is_gap
        numbers = rows.numbers
        before = np.empty_like(numbers)
        before[1:] = numbers[:-1]
        before[0] = 0 if self._edge is None else self._edge.number
        missing = numbers - before - 1
        is_wrapped = (missing < 0) == (numbers > before)
        most = np.where(numbers > before, MOST_MISSING, -MOST_MISSING)
        missing = np.where(is_wrapped, most, missing)
        return missing, ~is_first & (missing != 0)

    def _run(self, rows: MessageRows, start: int, end: int, gaps: int) -> Run:
        """Return messages without a break as a run."""
        numbers = rows.numbers
        timed = np.flatnonzero(rows.is_timed[start:end]) + start
        return Run(
            recording_id=self._recording.recording_id,
            session_id=int(rows.sessions[start]),
            stream_id=self._recording.stream_id,
            name=self._name,
            first_position=int(rows.positions[start]),
            end_position=int(rows.ends[end - 1]),
            messages=end - start,
            # Runs of numbers count the same messages once more, and not their bytes.
            bytes=int(rows.lengths[start:end].sum()) if numbers is None else 0,
            first_ns=int(rows.times[timed[0]]) if len(timed) else None,
            last_ns=int(rows.times[timed[-1]]) if len(timed) else None,
            first_number=None if numbers is None else int(numbers[start]),
            last_number=None if numbers is None else int(numbers[end - 1]),
            gaps=gaps,
        )

    def _gap(self, rows: MessageRows, row: int, missing: int) -> RecordedGap:
        """Return the gap before a message."""
        edge = self._edge
        if row:
            before, time_ns = int(rows.ends[row - 1]), rows.time_of(row - 1)
        else:
            assert edge is not None
            before, time_ns = edge.end_position, edge.time_ns
        position = int(rows.positions[row])
        kind = position_gap(before, position, self._recording.term_length)
        if rows.numbers is not None:
            kind = GapKind.SEQUENCE if missing > 0 else GapKind.BACKWARDS
        assert kind is not None
        return RecordedGap(
            kind=kind,
            recording_id=self._recording.recording_id,
            stream_id=self._recording.stream_id,
            name=self._name,
            position=before,
            end_position=position,
            missing=missing,
            before_ns=time_ns,
            after_ns=rows.time_of(row),
        )
