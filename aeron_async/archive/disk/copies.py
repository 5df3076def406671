"""Copies of files that are about to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.archive.disk.files import read_exactly, write_all

if TYPE_CHECKING:
    from aeron_async.archive.disk.files import Directory, File

__all__ = ["COPY_SUFFIX", "keep_copy"]

COPY_SUFFIX: Final = ".before-repair"


def keep_copy(directory: Directory, name: str) -> str:
    """Copy a file, holes and all, under a name that none has; return that."""
    names = set(directory.names())
    copy, number = name + COPY_SUFFIX, 1
    while copy in names:
        number += 1
        copy = f"{name}{COPY_SUFFIX}.{number}"
    source = directory.open_to_read(name)
    try:
        target = directory.open(copy, exclusive=True)
        try:
            copy_file(source, target)
        finally:
            target.close()
    finally:
        source.close()
    directory.sync()
    return copy


def copy_file(source: File, target: File) -> None:
    """Copy what is not zero, in pieces."""
    length = source.length()
    target.set_length(length)
    buffer = memoryview(bytearray(1 << 16))
    offset = 0
    while offset < length:
        count = read_exactly(source, buffer, offset)
        if count == 0:
            break
        if any(buffer[:count]):
            write_all(target, [buffer[:count]], offset)
        offset += count
    target.sync(metadata=True)
