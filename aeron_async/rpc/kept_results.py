"""Results that a server keeps, so that a call that is sent again does not run again.

A client sends an idempotent call again when its link was lost; all attempts have one key. The first
attempt to arrive runs, also when its client's stream has ended. Later ones wait for its result, or
get it at once.

Invariant: at most `limit` results and `limit_bytes` of them are kept. A result is given to nobody
once twice the time has passed that its call had. Newer results take the places of such ones, and
then of others: the oldest first. A call that runs is never dropped.
"""

from __future__ import annotations

import asyncio
from typing import Final, final

import attrs

from aeron_async.errors import CallFailedError, Status

__all__ = ["KeptResult", "KeptResults"]

OVERHEAD: Final = 320
"""Bytes that a result takes beside its answer."""
TEXT_MOST: Final = 255
"""Characters that are kept of the text of an error; no more are sent."""
LIFETIME: Final = 2
"""How often the time that a call had its result is kept."""
NEVER_NS: Final = 1 << 63


@final
@attrs.frozen
class Failure:
    """What is kept of an error; the error itself has all that its handler had in a traceback."""

    text: str
    status: Status
    error_type: str
    retry_after_ms: int | None

    @classmethod
    def of(cls, error: CallFailedError) -> Failure:
        """Return what is kept of an error."""
        return cls(str(error)[:TEXT_MOST], error.status, error.error_type, error.retry_after_ms)

    def error(self) -> CallFailedError:
        """Return such an error."""
        return CallFailedError(
            self.text,
            status=self.status,
            error_type=self.error_type,
            retry_after_ms=self.retry_after_ms,
        )


@final
class KeptResult:
    """The result of one call: of all attempts that have one key.

    Attributes:
        key: Of the attempts.
        outcome: The answer, or what makes the error; None while it runs, or if it was ended.
        done: Done when there is an outcome, or none will come; None from then on.
        length: Bytes that it takes.
        expires_ns: When it is given to nobody any more.
    """

    __slots__ = ("done", "expires_ns", "key", "length", "lifetime_ns", "outcome")

    def __init__(self, key: bytes, lifetime_ns: int) -> None:
        self.key = key
        self.lifetime_ns = lifetime_ns
        self.expires_ns = 0
        self.length = OVERHEAD
        self.outcome: bytes | Failure | None = None
        self.done: asyncio.Future[None] | None = asyncio.get_running_loop().create_future()

    async def wait(self) -> bool:
        """Wait until the call has ended, and return whether there is an outcome."""
        if self.done is not None:
            # Shielded: others may wait for it, too.
            await asyncio.shield(self.done)
        return self.outcome is not None

    def answer(self) -> bytes:
        """Return the answer, for another attempt.

        Raises:
            CallFailedError: There was an error.
        """
        assert self.outcome is not None, "it has ended"
        if isinstance(self.outcome, Failure):
            raise self.outcome.error()
        return self.outcome

    def end(self) -> None:
        """Tell those that wait."""
        done, self.done = self.done, None
        if done is not None:
            done.set_result(None)


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
        if (running := self._running.get(key)) is not None:
            return running
        found = self._finished.get(key)
        if found is not None and found.expires_ns <= now_ns:
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
        if self._running.get(result.key) is not result:
            return
        del self._running[result.key]
        if isinstance(outcome, CallFailedError):
            result.outcome = failure = Failure.of(outcome)
            result.length += len(failure.text) + len(failure.error_type)
        else:
            result.outcome = outcome
            result.length += len(outcome)
        result.expires_ns = now_ns + result.lifetime_ns
        result.end()
        if result.length > self._limit_bytes:
            self.dropped += 1
            return
        self._finished[result.key] = result
        self.length += result.length
        while self._finished:
            oldest = next(iter(self._finished.values()))
            if oldest.expires_ns > now_ns:
                if len(self._finished) <= self._limit and self.length <= self._limit_bytes:
                    break
                self.dropped += 1
            self._drop(oldest)

    def forget(self, result: KeptResult) -> None:
        """Note that a call was ended: the next attempt runs."""
        if self._running.get(result.key) is result:
            del self._running[result.key]
            result.end()

    def _drop(self, result: KeptResult) -> None:
        del self._finished[result.key]
        self.length -= result.length
