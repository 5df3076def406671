"""The publisher limit of a network publication, and the unblocking of its publishers.

Invariant: everything an offer may write to has been cleaned, and the whole term before the slowest
consumer is kept; `data_sender.oldest_resendable` says how much of it can be resent. The limit only
grows while the publication is connected, and falls back to the sender position when it is not.

`BlockedPublisherCheck` finds a claim that its publisher never commits, and turns it into padding.

Source: Aeron `NetworkPublication.updatePublisherPositionAndLimit`, `checkForBlockedPublisher`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.clock import NEVER_NS
from aeron_async.logbuffer.log_buffers import clean_to
from aeron_async.logbuffer.rebuilder import HoleScan, UnblockResult, unblock

if TYPE_CHECKING:
    from aeron_async.counters import Counter
    from aeron_async.logbuffer.log_buffers import LogBuffers

__all__ = ["RETRY_INTERVAL_NS", "BlockedPublisherCheck", "PublisherWindow"]

MAX_TERM_GAP: Final = 2
"""Terms between the one being cleaned and the furthest that may be written."""

RETRY_INTERVAL_NS: Final = 1_000_000_000
"""How often a publisher that stays blocked beyond the timeout is checked."""


class PublisherWindow:
    """The position below which an offer may begin, shown by a counter.

    It runs `window_length` ahead of the slowest consumer; the log is cleaned ahead of the limit.
    """

    def __init__(
        self, log: LogBuffers, counter: Counter, *, window_length: int, position: int
    ) -> None:
        self._log = log
        self._counter = counter
        self._window_length = window_length
        self._clean_position = position
        self.limit: int = position
        counter.set(position)

    def advance(self, min_consumer_position: int) -> bool:
        """Raise the limit as far as consumers and cleaning allow; return whether it rose."""
        proposal = min_consumer_position + self._window_length
        if proposal <= self.limit:
            return False
        term_length, bits = self._log.term_length, self._log.position_bits
        self._clean(min_consumer_position - term_length)
        term_gap = (proposal >> bits) - (self._clean_position >> bits)
        is_within_term = self._clean_position & (term_length - 1) != 0
        # There are three terms: the one last cleaned may be entered once its start is clean.
        if term_gap < MAX_TERM_GAP or (term_gap == MAX_TERM_GAP and is_within_term):
            self._set(proposal)
            return True
        return False

    def retract(self, sender_position: int) -> None:
        """Pull the limit back to the sender position, because the publication is not connected."""
        if self.limit > sender_position:
            self._set(sender_position)
            self._clean(sender_position - self._log.term_length)

    def close(self, producer_position: int) -> None:
        """Allow no appends after `producer_position`."""
        self._set(producer_position)

    def _clean(self, position: int) -> None:
        # One step per call, never past the end of a term: a stall here would stall the whole loop.
        self._clean_position = clean_to(
            self._log, clean_position=self._clean_position, position=position
        )

    def _set(self, limit: int) -> None:
        self.limit = limit
        self._counter.set(limit)


class BlockedPublisherCheck:
    """Turns a claim at which the sender has waited for `timeout_ns` into padding.

    The time begins when a claim is first seen, however long nothing was to be seen before.
    """

    def __init__(
        self, log: LogBuffers, unblocked: Counter, *, timeout_ns: int, position: int, now_ns: int
    ) -> None:
        self._log = log
        self._unblocked = unblocked
        self._timeout_ns = timeout_ns
        self._last_position = position
        self._last_change_ns = now_ns
        self._was_behind = False
        self._scan = HoleScan()

    def poll(self, *, sender_position: int, producer_position: int, now_ns: int) -> int:
        """Unblock if that is due, and return the time of the next check."""
        is_behind = producer_position > sender_position or self._is_rotation_missing(
            sender_position
        )
        if sender_position != self._last_position or not self._was_behind:
            self._last_position = sender_position
            self._last_change_ns = now_ns
        self._was_behind = is_behind
        if not is_behind:
            return NEVER_NS
        if now_ns < self._last_change_ns + self._timeout_ns:
            return self._last_change_ns + self._timeout_ns
        return now_ns if self.unblock(sender_position) else now_ns + RETRY_INTERVAL_NS

    def unblocks_ns(self, sender_position: int, now_ns: int) -> int:
        """Return when a claim at the sender position, not committed by then, becomes padding."""
        is_known = self._was_behind and sender_position == self._last_position
        return max(now_ns, (self._last_change_ns if is_known else now_ns) + self._timeout_ns)

    def unblock(self, sender_position: int) -> bool:
        """Turn an uncommitted claim at the sender position into padding.

        Return whether to call this again in the next turn, as something was done.
        """
        result = unblock(self._log, sender_position, self._scan)
        if result is UnblockResult.NO_ACTION:
            return False
        if result is not UnblockResult.UNFINISHED:
            self._unblocked.increment()
        return True

    def _is_rotation_missing(self, sender_position: int) -> bool:
        """Return whether the sender is in a term that no publisher has rotated into."""
        term_count = sender_position >> self._log.position_bits
        return self._log.metadata.active_term_count != term_count
