"""Room in a log that its owner fills in place and then commits.

Source: Aeron `BufferClaim`.
"""

from __future__ import annotations

import contextlib
from typing import final

from aeron_async.errors import ClosedError
from aeron_async.logbuffer.frame import HEADER, OPEN_UNFRAGMENTED

__all__ = ["Claim"]


@final
class Claim:
    """One frame, opened and not yet committed; readers stop before it until it is.

    It must be committed or aborted within the publication unblock timeout (15 s by default), or the
    driver of a shared publication turns it into padding.

    Attributes:
        data: The payload, to be filled in place; released by `commit` and `abort`.
        position: End of the frame in the stream.
        is_open: Whether neither `commit` nor `abort` has been called.
    """

    __slots__ = (
        "_frame_length",
        "_longs",
        "_offset",
        "_term",
        "_words",
        "data",
        "is_open",
        "position",
    )

    def __init__(
        self,
        term: memoryview,
        words: memoryview,
        longs: memoryview,
        offset: int,
        *,
        session: int,
        stream: int,
        length: int,
        position: int,
    ) -> None:
        self._term = term
        self._words = words
        self._longs = longs
        self._offset = offset
        self._frame_length = frame_length = HEADER + length
        index = offset >> 3
        longs[index] = OPEN_UNFRAGMENTED - frame_length
        longs[index + 1] = session + offset
        longs[index + 2] = stream
        self.data = self._term[offset + HEADER : offset + frame_length]
        self.position = position
        self.is_open = True

    @property
    def flags(self) -> int:
        """The flags of the frame, as in `DataFlags`; unfragmented unless set otherwise."""
        self._check_open()
        return self._term[self._offset + 5]

    @flags.setter
    def flags(self, flags: int) -> None:
        self._check_open()
        self._term[self._offset + 5] = flags

    @property
    def reserved_value(self) -> int:
        """Signed 64 bits that the application may use as it likes."""
        self._check_open()
        return self._longs[(self._offset >> 3) + 3]

    @reserved_value.setter
    def reserved_value(self, value: int) -> None:
        self._check_open()
        self._longs[(self._offset >> 3) + 3] = value

    def commit(self) -> None:
        """Let readers have the frame.

        Raises:
            ClosedError: The claim was committed or aborted before.
        """
        self._finish()

    def abort(self) -> None:
        """Turn the frame into padding, which readers step over; the room stays used.

        Raises:
            ClosedError: The claim was committed or aborted before.
        """
        self._check_open()
        # The type is the high half of the second word; padding is type zero.
        self._words[(self._offset >> 2) + 1] &= 0xFFFF
        self._finish()

    def _finish(self) -> None:
        self._check_open()
        self.is_open = False
        with contextlib.suppress(BufferError):
            # An array over the view keeps it alive; that is no reason to keep readers waiting.
            self.data.release()
        self._words[self._offset >> 2] = self._frame_length

    def _check_open(self) -> None:
        if not self.is_open:
            msg = f"the claim up to position {self.position} was committed or aborted before"
            raise ClosedError(msg)
