"""Results that a server keeps, so that a call that is sent again does not run again.

A client sends an idempotent call again when its link was lost; all attempts have one key. The first
attempt to arrive runs, also when its client's stream has ended. Later ones wait for its result, or
get it at once.

Invariant: at most `limit` results and `limit_bytes` of them are kept. A result is dropped when
twice the time has passed that its call had, or when newer ones need the place: the oldest first. A
call that runs is never dropped.
"""

from __future__ import annotations

import asyncio
from typing import Final, final

from aeron_async.errors import CallFailedError, Status

__all__ = ["KeptResult", "KeptResults"]

OVERHEAD: Final = 256
"""Bytes that a result takes beside its answer."""
LIFETIME: Final = 2
"""How often the time that a call had its result is kept."""
NEVER_NS: Final = 1 << 63


@final
class KeptResult:
    """The result of one call: of all attempts that have one key.

    Attributes:
        key: Of the attempts.
        outcome: The answer, or the error; None while it runs, or if it was ended.
        done: Done when there is an outcome, or none will come.
        length: Bytes that it takes.
        expires_ns: When it is dropped.
    """

    __slots__ = ("done", "expires_ns", "key", "length", "lifetime_ns", "outcome")

    def __init__(self, key: bytes, lifetime_ns: int) -> None:
        self.key = key
        self.lifetime_ns = lifetime_ns
        self.expires_ns = 0
        self.length = OVERHEAD
        self.outcome: bytes | CallFailedError | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answer(self) -> bytes:
        """Return the answer, for another attempt.

        Raises:
            CallFailedError: There was an error, or the call was ended.
        """
        if isinstance(self.outcome, bytes):
            return self.outcome
        raise self.outcome or CallFailedError("an attempt was ended", status=Status.ABORTED)


@final
class KeptResults:
    """The results that one service keeps.

    Args:
        limit: Most results.
        limit_bytes: Most bytes of them.

    Attributes:
        length: Bytes that are kept.
        dropped: How many results were dropped to make room, or were too long.
    """

    __slots__ = ("_finished", "_limit", "_limit_bytes", "_running", "dropped", "length")

    def __init__(self, limit: int, limit_bytes: int) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._running: dict[bytes, KeptResult] = {}
        # In the order in which they ended.
        self._finished: dict[bytes, KeptResult] = {}
        self.length = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._finished)

    def find(self, key: bytes, now_ns: int) -> KeptResult | None:
        """Return the result of a key, which may still be running."""
        found = self._running.get(key) or self._finished.get(key)
        if found is not None and found.done.done() and found.expires_ns <= now_ns:
            self._drop(found)
            return None
        return found

    def begin(self, key: bytes, time_ns: int) -> KeptResult:
        """Note that a call runs.

        Args:
            key: Of its attempts.
            time_ns: How long it may take, in nanoseconds; 0 for as long as it takes: its result is
                kept until newer ones need the place.
        """
        lifetime_ns = LIFETIME * time_ns if time_ns else NEVER_NS
        result = self._running[key] = KeptResult(key, lifetime_ns)
        return result

    def finish(self, result: KeptResult, outcome: bytes | CallFailedError, now_ns: int) -> None:
        """Keep what a call came to, and tell the attempts that wait for it."""
        if self._running.pop(result.key, None) is not result:
            return
        # The buffer of a handler may change later.
        result.outcome = bytes(outcome) if not isinstance(outcome, Exception) else outcome
        result.length = OVERHEAD + (len(result.outcome) if type(result.outcome) is bytes else 0)
        result.expires_ns = now_ns + result.lifetime_ns
        result.done.set_result(None)
        if result.length > self._limit_bytes:
            self.dropped += 1
            return
        self._finished[result.key] = result
        self.length += result.length
        while len(self._finished) > self._limit or self.length > self._limit_bytes:
            oldest = next(iter(self._finished.values()))
            self.dropped += oldest.expires_ns > now_ns
            self._drop(oldest)

    def forget(self, result: KeptResult) -> None:
        """Note that a call was ended: the next attempt runs."""
        if self._running.pop(result.key, None) is result:
            result.done.set_result(None)

    def _drop(self, result: KeptResult) -> None:
        del self._finished[result.key]
        self.length -= result.length
