"""The number of the last rare change of any stream of this process.

Who looks at thousands of streams again and again asks here whether any of what changes rarely has
changed, and looks at none of it if not. Rare is what no message changes: the states of streams,
whether publications are connected, who reads, the windows and ends of images, the clients of
publications, the addresses of receivers, and the first loss of an image.

Invariant: after such a change the number is one that it never was before, also where drivers run in
several threads.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RARE_CHANGES", "RareChanges"]


class RareChanges:
    """Counts rare changes.

    Attributes:
        number: That of the last one.
    """

    __slots__ = ("_numbers", "number")

    def __init__(self) -> None:
        self._numbers: Iterator[int] = count(1)
        self.number: int = 0

    def note(self) -> None:
        """Note a change."""
        self.number = next(self._numbers)


RARE_CHANGES: Final = RareChanges()
