"""Stretches of a recording, and what is missing between them.

Whoever reads one part of a recording in order sums it up in a few rows: stretches without a hole,
and what was found missing inside. Sorted by position these are stitched together, whichever part
came from where, and in whichever order. A stretch is of positions, or of a number that counts
messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["MOST_MISSING", "Gap", "GapKind", "Run", "is_term_padding", "position_gap", "stitch"]

POSITIONS: Final = ""
"""The name of runs of positions."""
MOST_MISSING: Final = (1 << 63) - 1
"""Numbers that a gap says are missing; more are told as so many."""


class GapKind:
    """What a gap is called in the table of gaps."""

    SEQUENCE: Final = "sequence"
    """Numbers that nobody has recorded: `missing` of them."""
    BACKWARDS: Final = "backwards"
    """A number that is not larger than the one before it: a duplicate, a disorder, a restart."""
    PADDING: Final = "padding"
    """Padding in mid term: data that was lost, or a claim that was aborted; `missing` bytes."""
    MISSING: Final = "missing"
    """At least a term that was skipped; `missing` bytes."""


@final
@attrs.frozen(kw_only=True)
class Run:
    """A stretch of messages of one recording.

    Attributes:
        recording_id: Of the recording.
        session_id: Of the publication.
        stream_id: Of the stream.
        name: Of the number that counts them, as `KIND.FIELD`; "" for positions.
        first_position: Where its first message begins.
        end_position: Behind its last one.
        messages: How many there are.
        bytes: Of their payloads.
        first_ns: The time of the first that has one; None when none has.
        last_ns: The time of the last.
        first_number: What counts them, of the first message; None for positions.
        last_number: Of the last.
        gaps: How many gaps were found inside, also those that were too many to be listed.
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
class Gap:
    """Something that is missing.

    Attributes:
        kind: See `GapKind`.
        recording_id: Of the recording.
        stream_id: Of the stream.
        name: As of its `Run`.
        position: Behind the last message before it.
        end_position: Where the next one begins.
        missing: Numbers, or bytes.
        before_ns: The time of the message before it, if there is one.
        after_ns: The time of the message behind it.
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
    """Return whether a hole is what fills every term to its end."""
    return end_position & (term_length - 1) == 0 and end_position - position < term_length


def position_gap(position: int, end_position: int, term_length: int) -> str | None:
    """Return which kind of gap lies between two messages; None where there is none."""
    if end_position <= position or is_term_padding(position, end_position, term_length):
        return None
    return GapKind.PADDING if end_position - position < term_length else GapKind.MISSING


def stitch(
    runs: Iterable[Run], term_lengths: Mapping[int, int]
) -> tuple[dict[tuple[int, str], Run], list[Gap]]:
    """Put runs together, and return one for each recording and name, and the gaps between them.

    Args:
        runs: In any order.
        term_lengths: By recording id, in bytes.
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


def gap_between(before: Run, after: Run, term_length: int) -> Gap | None:
    """Return what is missing between two runs."""
    kind: str | None
    if after.first_number is None or before.last_number is None:
        kind = position_gap(before.end_position, after.first_position, term_length)
        missing = after.first_position - before.end_position
    else:
        missing = after.first_number - before.last_number - 1
        # Columns have 64 bits, and a message may hold any number.
        missing = max(min(missing, MOST_MISSING), -MOST_MISSING)
        kind = GapKind.SEQUENCE if missing > 0 else GapKind.BACKWARDS if missing < 0 else None
    if kind is None:
        return None
    return Gap(
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
    """Return one run of two; `after` is of the session that a recording was extended by."""
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
