"""What a directory and its files have in common that can only be read."""

from __future__ import annotations

from io import UnsupportedOperation
from typing import TYPE_CHECKING, ClassVar, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

__all__ = ["ReadOnlyDirectory", "ReadOnlyFile", "refuse"]


class ReadOnlyDirectory:
    """Half of a `Directory`: what would change it is refused.

    Attributes:
        source: What it is read from, for error texts.
    """

    source: ClassVar[str]

    def other_kinds(self) -> dict[str, str]:
        """Return nothing: only files are visible."""
        return {}

    def open(self, name: str, *, create: bool = False, exclusive: bool = False) -> NoReturn:
        """Refuse: the directory is read-only."""
        del create, exclusive
        refuse(name, self.source)

    def remove(self, name: str) -> None:
        """Refuse: the directory is read-only."""
        refuse(name, self.source)

    def rename(self, old: str, new: str) -> None:
        """Refuse: the directory is read-only."""
        del new
        refuse(old, self.source)

    def sync(self) -> None:
        """Do nothing: the directory is read-only."""


class ReadOnlyFile:
    """Half of a `File`: what would change it is refused.

    Attributes:
        source: What it is read from, for error texts.
        name: Its name in the directory.
    """

    source: ClassVar[str]
    name: str

    def number(self) -> None:
        """Return None: this is no file of the operating system."""

    def write(self, buffers: Sequence[Buffer], offset: int) -> NoReturn:
        """Refuse: the file is read-only."""
        del buffers, offset
        refuse(self.name, self.source)

    def set_length(self, length: int) -> None:
        """Refuse: the file is read-only."""
        del length
        refuse(self.name, self.source)

    def sync(self, *, metadata: bool) -> None:
        """Do nothing: the file is read-only."""

    def try_lock(self) -> None:
        """Return None: there is nothing to lock."""


def refuse(name: str, source: str) -> NoReturn:
    """Raise that nothing is written.

    Raises:
        UnsupportedOperation: Always.
    """
    message = f"{name}: {source} can only be read"
    raise UnsupportedOperation(message)
