"""Segment files: which positions of a recording each holds, and how it is named.

Source: Aeron `Archive.segmentFileName`, `AeronArchive.segmentFileBasePosition`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "DEFAULT_SEGMENT_LENGTH",
    "LONGEST_SEGMENT",
    "SEGMENT_SUFFIX",
    "SHORTEST_SEGMENT",
    "parse_segment_name",
    "segment_base",
    "segment_bases",
    "segment_name",
    "term_base",
]

SEGMENT_SUFFIX: Final = ".rec"
DEFAULT_SEGMENT_LENGTH: Final = 128 * 1024 * 1024
"""In bytes; raised to the term length if that is longer."""
SHORTEST_SEGMENT: Final = 65_536
LONGEST_SEGMENT: Final = 1 << 30
NAME: Final = re.compile(r"(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]{0,18})\.rec", re.ASCII)
LARGEST: Final = (1 << 63) - 1


def segment_name(recording_id: int, base_position: int) -> str:
    """Return the name of the file that begins at a position, such as `0-131072.rec`."""
    return f"{recording_id}-{base_position}{SEGMENT_SUFFIX}"


def parse_segment_name(name: str) -> tuple[int, int] | None:
    """Return the recording id and base position in a file name; None if it is no segment's name.

    Only names that `segment_name` could have made are accepted.
    """
    match = NAME.fullmatch(name)
    if match is None:
        return None
    recording_id, position = int(match[1]), int(match[2])
    return None if max(recording_id, position) > LARGEST else (recording_id, position)


def segment_bases(names: Iterable[str], recording_id: int) -> list[int]:
    """Return the sorted base positions of a recording's segments among file names."""
    found = map(parse_segment_name, names)
    return sorted(each[1] for each in found if each is not None and each[0] == recording_id)


def term_base(position: int, term_length: int) -> int:
    """Return the position where a position's term begins."""
    return position & -term_length


def segment_base(
    position: int, *, start_position: int, term_length: int, segment_length: int
) -> int:
    """Return the base position of the segment that holds a position.

    Args:
        position: Position; not before the start of the recording.
        start_position: Start of the recording; its first segment begins with that term.
        term_length: In bytes.
        segment_length: In bytes; a multiple of the term length.
    """
    first = term_base(start_position, term_length)
    return first + ((position - first) & -segment_length)
