"""Claims: space in the log into which the caller writes a message without a copy.

Source: Aeron `BufferClaim`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self, final

from aeron_async.errors import ClosedError, WrongLoopError
from aeron_async.protocol.arguments import check_reserved

if TYPE_CHECKING:
    from types import TracebackType

    from aeron_async.client.publication import PublicationBase
    from aeron_async.logbuffer.appender import Claim

__all__ = ["BufferClaim"]


@final
class BufferClaim:
    """Space in the log for one message: its `with` block commits it, or aborts it on an exception.

    Nothing behind the claim can be sent until it is committed or aborted. After the publication
    unblock timeout (15 s by default) the driver turns a claim of a shared publication into padding.

    Attributes:
        data: Buffer for the payload; invalid once the claim is committed or aborted.
    """

    __slots__ = ("_claim", "_is_finished", "_publication", "data")

    def __init__(self, publication: PublicationBase, claim: Claim) -> None:
        self._publication = publication
        self._claim = claim
        self._is_finished = False
        self.data: memoryview = claim.data

    @property
    def position(self) -> int:
        """Return the position at which the message ends, in bytes."""
        return self._claim.position

    @property
    def reserved_value(self) -> int:
        """Return the application's value that is sent with the message: signed 64 bits.

        Raises:
            ClosedError: The claim was committed or aborted, or the publication is closed.
            ConfigurationError: The new value is no whole number, or does not fit 64 bits.
        """
        self._check_open()
        return self._claim.reserved_value

    @reserved_value.setter
    def reserved_value(self, value: int) -> None:
        self._check_open()
        self._claim.reserved_value = check_reserved(value)

    def commit(self) -> int:
        """Release the message for sending; return the position at which it ends.

        Raises:
            ClosedError: The claim was committed or aborted, or the publication is closed.
            WrongLoopError: Another event loop or thread called; the claim stays as it is.
        """
        self._finish()
        self._claim.commit()
        self._publication._wake()
        return self._claim.position

    def abort(self) -> None:
        """Discard the message: its space becomes padding, which subscribers skip.

        Raises:
            ClosedError: The claim was committed or aborted, or the publication is closed.
            WrongLoopError: Another event loop or thread called; the claim stays as it is.
        """
        self._finish()
        self._claim.abort()
        self._publication._wake()

    def _finish(self) -> None:
        self._check_open()
        self._publication._check_loop()  # noqa: SLF001 - a claim is part of its publication
        self._is_finished = True

    def _check_open(self) -> None:
        if self._is_finished:
            message = "the claim has been committed or aborted already"
            raise ClosedError(message)
        if self._publication.is_closed:
            closed = self._publication._closed  # noqa: SLF001 - a claim is part of its publication
            assert closed is not None
            message = f"the publication was closed before its claim was finished: {closed.text}"
            raise ClosedError(message) from closed.error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_finished or (exc_type is not None and self._publication.is_closed):
            return
        if exc_type is None:
            self.commit()
        else:
            # Elsewhere it cannot be aborted; the driver does so after the unblock timeout.
            with suppress(ClosedError, WrongLoopError):
                self.abort()
