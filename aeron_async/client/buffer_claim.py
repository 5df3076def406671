"""A piece of the log to write a message into without a copy.

Source: Aeron `BufferClaim`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, final

from aeron_async.errors import ClosedError
from aeron_async.protocol.arguments import check_reserved

if TYPE_CHECKING:
    from types import TracebackType

    from aeron_async.client.publication import PublicationBase
    from aeron_async.logbuffer.appender import Claim

__all__ = ["BufferClaim"]


@final
class BufferClaim:
    """Room for one message: leaving its `with` block commits it, an exception aborts it.

    Nothing behind the claim can be sent before it is finished, and after the publication unblock
    timeout (15 s) the driver takes it away.

    Attributes:
        data: Where the payload goes; invalid once the claim is finished.
    """

    __slots__ = ("_claim", "_is_finished", "_publication", "data")

    def __init__(self, publication: PublicationBase, claim: Claim) -> None:
        self._publication = publication
        self._claim = claim
        self._is_finished = False
        self.data = claim.data

    @property
    def position(self) -> int:
        """Return where the message ends in its stream, in bytes."""
        return self._claim.position

    @property
    def reserved_value(self) -> int:
        """Return what will stand beside the message: signed 64 bits.

        Raises:
            ClosedError: The claim is finished, or the publication is closed.
            ConfigurationError: It was set to what is no whole number, or does not fit.
        """
        self._check_open()
        return self._claim.reserved_value

    @reserved_value.setter
    def reserved_value(self, value: int) -> None:
        self._check_open()
        self._claim.reserved_value = check_reserved(value)

    def commit(self) -> int:
        """Let the message be sent, and return its position.

        Raises:
            ClosedError: The claim is finished, or the publication is closed.
        """
        self._finish()
        self._claim.commit()
        self._publication.wake_sender()
        return self._claim.position

    def abort(self) -> None:
        """Give the room back; it becomes padding that nobody sees.

        Raises:
            ClosedError: The claim is finished, or the publication is closed.
        """
        self._finish()
        self._claim.abort()
        self._publication.wake_sender()

    def _finish(self) -> None:
        self._check_open()
        self._is_finished = True

    def _check_open(self) -> None:
        if self._is_finished:
            message = "the claim has been committed or aborted already"
            raise ClosedError(message)
        if self._publication.is_closed:
            message = "the publication was closed before its claim was finished"
            raise ClosedError(message)

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
            self.abort()
