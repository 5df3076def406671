"""Exclusive publications: those that nobody else appends to.

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
    """A publication of one's own: its own session, and a cheaper append.

    Differs: Aeron's is a class beside `Publication`; here it is one, and can do more.
    """

    _appender: ExclusiveAppender

    def _make_appender(self) -> ExclusiveAppender:
        return ExclusiveAppender(self._ready.log)

    async def append_padding(self, length: int, *, timeout: float | None = None) -> int:
        """Append `length` bytes that nobody sees, waiting as `offer` does; return the position.

        Args:
            length: Of the padding behind its frame header of 32 bytes, up to what the longest
                message takes with all its headers.
            timeout: Seconds to wait at most; None waits as long as it takes.

        Raises:
            OfferTimeoutError: The timeout passed; nothing was appended.
            ClosedError: The publication was closed, before or meanwhile.
            MessageTooLongError: The length is more than the longest message takes.
            ConfigurationError: The length is no whole number, or negative.
            MaxPositionExceededError: The stream is at its end.
        """
        return await self._append(
            lambda: self._pad(length), timeout, lambda: self._appender.check_padding(length)
        )

    def try_append_padding(self, length: int) -> int | OfferOutcome:
        """Append padding as `append_padding` does if that can be done now, or say why not.

        Raises:
            ClosedError: The publication is closed.
            MessageTooLongError: The length is more than the longest message takes.
            ConfigurationError: The length is no whole number, or negative.
            MaxPositionExceededError: The stream is at its end.
        """
        result = self._pad(length)
        return result if result >= 0 else OfferOutcome(result)

    async def offer_block(self, block: Buffer, *, timeout: float | None = None) -> int:
        """Append frames made for exactly this place, waiting as `offer` does; return the position.

        Only the first header is checked: type, term offset, session, stream and term must be those
        of the place where the block goes, at `position`. A term that is full is rotated first.

        Args:
            block: Whole frames, aligned to 32 bytes, that fit into the rest of the term.
            timeout: Seconds to wait at most; None waits as long as it takes.

        Raises:
            OfferTimeoutError: The timeout passed; nothing was appended.
            ClosedError: The publication was closed, before or meanwhile.
            ConfigurationError: Length or first header of the block do not fit.
            MaxPositionExceededError: The stream is at its end.
        """
        return await self._append(
            lambda: self._offer_block(block), timeout, lambda: byte_view(block)
        )

    def try_offer_block(self, block: Buffer) -> int | OfferOutcome:
        """Append a block as `offer_block` does if that can be done now, or say why not.

        Raises:
            ClosedError: The publication is closed.
            ConfigurationError: Length or first header of the block do not fit.
            MaxPositionExceededError: The stream is at its end.
        """
        result = self._offer_block(block)
        return result if result >= 0 else OfferOutcome(result)

    def revoke(self) -> None:
        """Close now and take the stream back: what has not arrived yet is lost.

        Subscribers hear at once that the image is over, without reading what is left. Revoking
        what is closed does nothing.

        Raises:
            WrongLoopError: The event loop it belongs to is not running here; it stays open.
        """
        self._revoke()

    async def aclose(self, *, revoke: bool = False) -> None:
        """Close now; what was offered is still sent, unless the stream is revoked.

        Closing twice is closing once.

        Args:
            revoke: Whether to take the stream back, as `revoke` does.

        Raises:
            WrongLoopError: It belongs to another event loop; it stays open.
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
