"""The live receivers of a publication: those whose status messages keep coming.

Invariant: only a receiver that was heard before can leave. Goodbyes and rejections of strangers are
counted, and change nothing.

Source: Aeron `NetworkPublication.livenessTracker`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.budgets import ReplyLimiter
from aeron_async.driver.core.rare_changes import RARE_CHANGES
from aeron_async.driver.core.system_counters import DriverCounterId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.system_counters import SystemCounters

__all__ = ["MAX_DEPARTED", "MAX_RECEIVERS", "ReceiverLiveness"]

MAX_RECEIVERS: Final = 4096
"""Receivers one publication tracks; the ids come off the wire, so their number is bounded."""
MAX_DEPARTED: Final = 64
"""Receivers that left last: each repeats its goodbye, and the repeats are not counted."""


class ReceiverLiveness:
    """When each receiver was last heard; beyond the bound the longest silent one is dropped.

    If it refused the newest receiver, forged ids would keep a real receiver out.

    Attributes:
        reports: What each live receiver reported last: its position and its window, in bytes.
        last_gone: Id of the receiver that left or timed out last, and when it was last heard;
            None if a receiver has rejected or refused the stream since.
    """

    def __init__(self, context: DriverContext, system_counters: SystemCounters) -> None:
        self._timeout_ns = context.publication_connection_timeout_ns
        self._ignored_goodbyes = system_counters[DriverCounterId.GOODBYES_IGNORED]
        self._ignored_errors = system_counters[DriverCounterId.ERROR_FRAMES_IGNORED]
        self._error_limiter = ReplyLimiter(
            limit=context.max_error_frames_per_second,
            limit_per_asker=context.max_error_frames_per_second,
        )
        self._overdue_ns = context.status_message_timeout_ns * 3 // 2
        self._unheard_position: int | None = None
        self._last_heard_ns: dict[int, int] = {}
        self._departed: dict[int, None] = {}
        self._sources: dict[int, Address] = {}
        self.reports: dict[int, tuple[int, int]] = {}
        self.last_gone: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self._last_heard_ns)

    def heard(self) -> Iterable[tuple[int, int]]:
        """Return each live receiver and when it was last heard, longest silent first."""
        return self._last_heard_ns.items()

    def source_of(self, receiver_id: int) -> Address | None:
        """Return the address of a receiver, for explanations; None if unknown."""
        return self._sources.get(receiver_id)

    def on_status_message_fast(self, receiver_id: int, now_ns: int) -> bool:
        """Record that a known receiver was heard again; return False for an unknown one.

        Its address stays the one of its last status message that took the long way.
        """
        heard_ns = self._last_heard_ns
        if receiver_id not in heard_ns:
            return False
        if len(heard_ns) > 1:
            del heard_ns[receiver_id]
        heard_ns[receiver_id] = now_ns
        return True

    def on_status_message(
        self, receiver_id: int, now_ns: int, source: Address | None = None
    ) -> None:
        """Record that a receiver was heard; beyond the bound, drop the longest silent one."""
        heard_ns = self._last_heard_ns
        # Removed first, so that the entries stay in the order in which they were heard.
        heard_ns.pop(receiver_id, None)
        if len(heard_ns) >= MAX_RECEIVERS:
            oldest = next(iter(heard_ns))
            del heard_ns[oldest]
            self._drop(oldest)
        heard_ns[receiver_id] = now_ns
        if source is not None and self._sources.get(receiver_id) != source:
            self._sources[receiver_id] = source
            RARE_CHANGES.note()

    def on_goodbye(self, receiver_id: int) -> bool:
        """Remove a receiver that sent a goodbye; return False if it was unknown.

        Differs: Aeron takes the goodbye of an unknown receiver for that of the only one, and does
        not linger for the live one.
        """
        if receiver_id in self._last_heard_ns:
            self._forget(receiver_id)
            return True
        if receiver_id not in self._departed:
            self._ignored_goodbyes.increment()
        return False

    def on_refusal(self, receiver_id: int, now_ns: int) -> bool:
        """Return whether to report why a receiver did not join; only if there is no receiver."""
        is_heard = not self._last_heard_ns and self._error_limiter.try_take(receiver_id, now_ns)
        if is_heard:
            self.last_gone = None
        else:
            self._ignored_errors.increment()
        return is_heard

    def on_error(self, receiver_id: int, now_ns: int) -> bool:
        """Remove a receiver that rejected the stream; return False if it was unknown.

        Differs: Aeron accepts any number of rejections, and asks its flow control about strangers.
        """
        if receiver_id in self._last_heard_ns and self._error_limiter.try_take(receiver_id, now_ns):
            self._forget(receiver_id)
            self.last_gone = None
            return True
        if receiver_id not in self._departed:
            self._ignored_errors.increment()
        return False

    def deadline_ns(self) -> int:
        """Return when the next receiver times out."""
        for heard_ns in self._last_heard_ns.values():
            return heard_ns + self._timeout_ns + 1
        return NEVER_NS

    def expire(self, now_ns: int) -> None:
        """Remove every receiver that has been silent for longer than the timeout."""
        # In the order in which they were heard: all after a live one are alive.
        while self._last_heard_ns:
            receiver_id = next(iter(self._last_heard_ns))
            if now_ns <= self._last_heard_ns[receiver_id] + self._timeout_ns:
                break
            self.last_gone = receiver_id, self._last_heard_ns.pop(receiver_id)
            self._drop(receiver_id)

    def note_position(self, sender_position: int, now_ns: int) -> int:
        """Record from which position no receiver can have got data; return when that may change.

        Every receiver reports in time. Once the last report is overdue, new data reaches no
        receiver that was there.
        """
        for heard_ns in reversed(self._last_heard_ns.values()):
            if now_ns < heard_ns + self._overdue_ns:
                self._unheard_position = None
                return heard_ns + self._overdue_ns
            break
        if self._unheard_position is None:
            self._unheard_position = sender_position
        return NEVER_NS

    def start_position(self, sender_position: int, term_length: int) -> int:
        """Return where a receiver that joins now starts, in bytes.

        Half a term is kept for resends; data that only spies have read may go back further.

        Differs: in Aeron it starts at the sender position. A request that was sent while the server
        restarted would be lost, although its publication stayed connected.
        """
        unheard = self._unheard_position
        is_kept = unheard is not None and sender_position - unheard <= term_length // 2
        return unheard if unheard is not None and is_kept else sender_position

    def _drop(self, receiver_id: int) -> None:
        """Drop all else that is known of a receiver that is no longer alive."""
        self._sources.pop(receiver_id, None)
        RARE_CHANGES.note()
        self.reports.pop(receiver_id, None)

    def _forget(self, receiver_id: int) -> None:
        self.last_gone = receiver_id, self._last_heard_ns.pop(receiver_id)
        self._drop(receiver_id)
        self._departed.pop(receiver_id, None)
        if len(self._departed) >= MAX_DEPARTED:
            del self._departed[next(iter(self._departed))]
        self._departed[receiver_id] = None
