"""Words of memory that other processes write, looked at by a timer of the event loop.

This costs a turn of the loop each millisecond while a word is armed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from typing_extensions import Buffer

__all__ = ["PolledWords"]

INTERVAL_S: Final = 0.001
INT_BITS: Final = 32


class PolledWord:
    """One word; see `WatchedWord`."""

    def __init__(
        self, owner: PolledWords, view: memoryview, callback: Callable[[], object]
    ) -> None:
        self._owner = owner
        self._view = view
        self._callback = callback
        self._expected = 0
        self._is_at_least = False

    def arm(self, expected: int) -> None:
        """Call back once when the word is not `expected`."""
        self._expected, self._is_at_least = expected, False
        self._owner.begin(self)

    def arm_at_least(self, value: int) -> None:
        """Call back once when the word is `value` or more."""
        self._expected, self._is_at_least = value, True
        self._owner.begin(self)

    def disarm(self) -> None:
        """Call back no more."""
        self._owner.armed.pop(self, None)

    def remove(self) -> None:
        """Stop looking at the memory."""
        self.disarm()
        self._view.release()

    def look(self) -> None:
        """Call back if the word is as was asked for."""
        value = self._view[0]
        if value >= self._expected if self._is_at_least else value != self._expected:
            self.disarm()
            self._callback()


class PolledWords:
    """Looks at all armed words once a millisecond.

    Args:
        loop: Calls back.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self.armed: dict[PolledWord, None] = {}

    def add(
        self, buffer: Buffer, offset: int, width: int, callback: Callable[[], object]
    ) -> PolledWord:
        """Return a word of 32 or 64 bits at an offset in bytes, which is not armed."""
        with memoryview(buffer) as whole, whole.cast("B") as view:
            bytes_of_word = view[offset : offset + width // 8]
            word = bytes_of_word.cast("i") if width == INT_BITS else bytes_of_word.cast("q")
        return PolledWord(self, word, callback)

    def begin(self, word: PolledWord) -> None:
        """Look at a word from now on."""
        self.armed[word] = None
        if self._timer is None:
            self._timer = self._loop.call_later(INTERVAL_S, self._look)

    def _look(self) -> None:
        self._timer = None
        for word in list(self.armed):
            if word in self.armed:
                word.look()
        if self.armed and self._timer is None:
            self._timer = self._loop.call_later(INTERVAL_S, self._look)
