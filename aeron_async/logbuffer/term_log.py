"""Three terms that take turns, and their metadata, over one buffer.

Layout: term 0, 1, 2, a hole where pages are larger than 4 KiB, and the metadata in the last 4096
bytes. The buffer may be anonymous memory or a mapped file of an Aeron directory; nothing here can
tell.

Source: Aeron `LogBuffers`, `LogBufferDescriptor`.
"""

from __future__ import annotations

import contextlib
import mmap
from typing import TYPE_CHECKING, final

from aeron_async.errors import ConfigurationError
from aeron_async.logbuffer.log_spec import initialise
from aeron_async.logbuffer.metadata import LOG_TYPE_OFFSET, METADATA_LENGTH, LogMetadata, LogType
from aeron_async.logbuffer.position import (
    PARTITION_COUNT,
    check_mtu,
    check_page_size,
    check_term_length,
    position_bits,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from aeron_async.logbuffer.log_spec import LogSpec

__all__ = ["LogBuffers", "file_length"]


def file_length(*, term_length: int, page_size: int) -> int:
    """Return the length of a whole log: three terms and the metadata, rounded up to pages."""
    return -(-(PARTITION_COUNT * term_length + METADATA_LENGTH) // page_size) * page_size


@final
class LogBuffers:
    """One log: three terms of equal length and the metadata.

    Attributes:
        metadata: Typed access to the last 4096 bytes.
        terms: The terms as bytes.
        term_words: The same as signed 32-bit integers: one load or store per frame length.
        term_longs: The same as signed 64-bit integers: a frame header is four of them.
        term_length: In bytes; a power of two.
        position_bits: log2 of the term length.
        is_closed: Whether the views have been given back.
    """

    __slots__ = (
        "_base",
        "_owned",
        "initial_term_id",
        "is_closed",
        "metadata",
        "mtu_length",
        "position_bits",
        "session_id",
        "stream_id",
        "term_length",
        "term_longs",
        "term_words",
        "terms",
    )

    def __init__(self, base: memoryview, metadata: LogMetadata, owned: mmap.mmap | None) -> None:
        self._base = base
        self._owned = owned
        self.metadata = metadata
        self.term_length = length = metadata.term_length
        self.position_bits = position_bits(length)
        self.initial_term_id = metadata.initial_term_id
        self.mtu_length = metadata.mtu_length
        self.session_id = metadata.session_id
        self.stream_id = metadata.stream_id
        self.terms = (base[:length], base[length : 2 * length], base[2 * length : 3 * length])
        first, second, third = self.terms
        self.term_words = (first.cast("i"), second.cast("i"), third.cast("i"))
        self.term_longs = (first.cast("q"), second.cast("q"), third.cast("q"))
        self.is_closed = False

    @classmethod
    def create(cls, spec: LogSpec, buffer: Buffer | None = None) -> LogBuffers:
        """Make a log as `spec` says, in anonymous memory unless a zeroed buffer is given.

        Anonymous memory costs nothing until a page is touched. It is shared and not private, for
        the kernel may back private memory by huge pages, of which one written byte costs 2 MiB.

        Raises:
            ConfigurationError: The buffer has not the length that the spec needs.
        """
        length = file_length(term_length=spec.term_length, page_size=spec.page_size)
        owned = None
        if buffer is None:
            buffer = owned = mmap.mmap(-1, length)
        base = memoryview(buffer).cast("B")
        if base.nbytes != length:
            msg = (
                f"buffer of {base.nbytes} bytes must be {length} bytes long for terms of "
                f"{spec.term_length} bytes and pages of {spec.page_size}"
            )
            _release(base)
            raise ConfigurationError(msg)
        metadata = LogMetadata(base[-METADATA_LENGTH:])
        initialise(metadata, spec)
        return cls(base, metadata, owned)

    @classmethod
    def map(cls, buffer: Buffer) -> LogBuffers:
        """Open a log that exists, in a buffer that stays the caller's.

        Raises:
            ConfigurationError: The buffer cannot be a whole log; nothing holds on to it.
        """
        base = memoryview(buffer).cast("B")
        if base.nbytes < METADATA_LENGTH:
            msg = f"log buffer of {base.nbytes} bytes must hold {METADATA_LENGTH} of metadata"
            _release(base)
            raise ConfigurationError(msg)
        metadata = LogMetadata(base[-METADATA_LENGTH:])
        try:
            _check_layout(metadata, base.nbytes)
        except ConfigurationError:
            _release(metadata.longs, metadata.words, metadata.block, base)
            raise
        return cls(base, metadata, None)

    def close(self) -> None:
        """Give back every view of the buffer, and the buffer itself if this log made it.

        A view that the application still holds keeps the memory alive: unmapping under it would be
        a crash, so the mapping is then left to the garbage collector, which unmaps after the last
        view.
        """
        if self.is_closed:
            return
        self.is_closed = True
        metadata = self.metadata
        _release(*self.term_longs, *self.term_words, *self.terms)
        _release(metadata.longs, metadata.words, metadata.block, self._base)
        if self._owned is not None:
            with contextlib.suppress(BufferError):
                self._owned.close()
            self._owned = None


def _check_layout(metadata: LogMetadata, length: int) -> None:
    """Refuse metadata that does not describe a log of `length` bytes."""
    check_term_length(metadata.term_length)
    check_page_size(metadata.page_size)
    check_mtu(metadata.mtu_length)
    expected = file_length(term_length=metadata.term_length, page_size=metadata.page_size)
    if length != expected:
        msg = (
            f"log buffer of {length} bytes must be {expected} bytes long for terms of "
            f"{metadata.term_length} bytes and pages of {metadata.page_size}"
        )
        raise ConfigurationError(msg)
    if metadata.block[LOG_TYPE_OFFSET] not in tuple(LogType):
        msg = f"log buffer of type {metadata.block[LOG_TYPE_OFFSET]} is of no publication or image"
        raise ConfigurationError(msg)


def _release(*views: memoryview) -> None:
    for view in views:
        with contextlib.suppress(BufferError):
            view.release()
