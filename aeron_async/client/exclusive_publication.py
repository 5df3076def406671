"""Exclusive publications, each with its own session and only one writer.

Source: Aeron `ExclusivePublication`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from aeron_async.client.publication import OfferOutcome, Publication
from aeron_async.logbuffer.appender import AppendResult, ExclusiveAppender, byte_view

if TYPE_CHECKING:
    from aeron_async.protocol.header import Buffer

__all__ = ["ExclusivePublication"]


@final
class ExclusivePublication(Publication):
    """A publication that is never shared: it has its own session, and a cheaper append.

    Differs: Aeron's `ExclusivePublication` is not a `Publication`; here it is a subclass.
    """

    _appender: ExclusiveAppender

    def _make_appender(self) -> ExclusiveAppender:
        return ExclusiveAppender(self._ready.log)

    async def append_padding(self, length: int, *, timeout: float | None = None) -> int:
        """Append padding, which subscribers skip, waiting as `offer` does; return the position.

        Args:
            length: Length of the padding behind its 32-byte frame header, in bytes; at most what
                the longest message takes with all its headers.
            timeout: Most seconds to wait; None sets no limit.

        Raises:
            OfferTimeoutError: The timeout passed; nothing was appended.
            ClosedError: The publication was closed, before or during the call.
            MessageTooLongError: The length is more than the longest message takes.
            ConfigurationError: The length is no whole number, or negative.
            MaxPositionExceededError: The stream is at its last position.
        """
        return await self._append(
            lambda: self._pad(length), timeout, lambda: self._appender.check_padding(length)
        )

    def try_append_padding(self, length: int) -> int | OfferOutcome:
        """Append padding as `append_padding` does if that can be done now, or return why not.

        Raises:
            ClosedError: The publication is closed.
            MessageTooLongError: The length is more than the longest message takes.
            ConfigurationError: The length is no whole number, or negative.
            MaxPositionExceededError: The stream is at its last position.
        """
        result = self._pad(length)
        return result if result >= 0 else OfferOutcome(result)

    async def offer_block(self, block: Buffer, *, timeout: float | None = None) -> int:
        """Append whole frames, headers included, waiting as `offer` does; return the position.

        Only the first header is checked: its type, term offset, session id, stream id and term id
        must be those of a data frame at `position`. If the term is full, it is rotated first.

        Args:
            block: Whole frames, aligned to 32 bytes, that fit into the rest of the term.
            timeout: Most seconds to wait; None sets no limit.

        Raises:
            OfferTimeoutError: The timeout passed; nothing was appended.
            ClosedError: The publication was closed, before or during the call.
            ConfigurationError: Length or first header of the block do not fit.
            MaxPositionExceededError: The stream is at its last position.
        """
        return await self._append(
            lambda: self._offer_block(block), timeout, lambda: byte_view(block)
        )

    def try_offer_block(self, block: Buffer) -> int | OfferOutcome:
        """Append a block as `offer_block` does if that can be done now, or return why not.

        Raises:
            ClosedError: The publication is closed.
            ConfigurationError: Length or first header of the block do not fit.
            MaxPositionExceededError: The stream is at its last position.
        """
        result = self._offer_block(block)
        return result if result >= 0 else OfferOutcome(result)

    def revoke(self) -> None:
        """Close now and revoke the stream: what has not arrived yet is lost.

        The image of each subscriber ends at once, without the messages that were not read yet.
        Revoking a closed publication does nothing.

        Raises:
            WrongLoopError: Its event loop is not running in this thread; it stays open.
        """
        self._revoke()

    async def aclose(self, *, revoke: bool = False) -> None:
        """Close now; what was offered is still sent, unless the stream is revoked.

        Closing a closed publication does nothing.

        Args:
            revoke: Whether to revoke the stream, as `revoke` does.

        Raises:
            WrongLoopError: The publication belongs to another event loop; it stays open.
        """
        if revoke:
            self._revoke()
            await asyncio.sleep(0)
        else:
            await super().aclose()

    def _pad(self, length: int) -> int:
        self._check_usable()
        while True:
            result = self._appender.append_padding(length, limit=self._limit.get())
            if result >= 0 or result == AppendResult.ADMIN_ACTION:
                self._wake_sender()
            if result != AppendResult.ADMIN_ACTION:
                return result if result >= 0 else self._refused(result)

    def _offer_block(self, block: Buffer) -> int:
        self._check_usable()
        result = self._appender.offer_block(block, limit=self._limit.get())
        if result < 0:
            return self._refused(result)
        self._wake_sender()
        return result
