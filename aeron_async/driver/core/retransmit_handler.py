"""Answer NAKs: resend at once (or after a delay), then turn a deaf ear to repeats for a while.

Each answered NAK holds a slot until its linger has passed, and a NAK that begins inside the range
of a held slot is ignored: the data is on its way. Unicast has one slot, which a NAK for another
range takes over at once; a group has several, and when all are held a NAK is dropped and counted.

Source: Aeron `RetransmitHandler`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.loss_detector import NEVER_NS

if TYPE_CHECKING:
    from aeron_async.counters import Counter

__all__ = ["RESEND_BUDGET_LENGTH", "Resend", "RetransmitHandler"]

RESEND_BUDGET_LENGTH: Final = 4 * 1024 * 1024
"""Bytes that all NAKs of a publication together may bring within one linger period."""

Resend = Callable[[int, int, int], None]
"""Send again: term id, term offset and length in bytes."""


class ActionState(Enum):
    """What a slot is doing."""

    INACTIVE = auto()
    DELAYED = auto()
    LINGERING = auto()


class RetransmitAction:
    """One slot: the range that was asked for, and until when it is held."""

    __slots__ = ("expiry_ns", "length", "state", "term_id", "term_offset")

    def __init__(self) -> None:
        self.state = ActionState.INACTIVE
        self.expiry_ns = NEVER_NS
        self.term_id = 0
        self.term_offset = 0
        self.length = 0

    def covers(self, term_id: int, term_offset: int) -> bool:
        """Return whether a NAK that begins there is already being answered."""
        return (
            self.state is not ActionState.INACTIVE
            and self.term_id == term_id
            and self.term_offset <= term_offset < self.term_offset + self.length
        )


class RetransmitHandler:
    """The slots of one publication.

    Args:
        resend: Sends a range of the log again.
        delay_ns: How long to wait before resending; 0 resends at once.
        linger_ns: How long repeats of an answered NAK are ignored.
        max_resend: Slots of a group; unicast always has one.
        has_group_semantics: Whether several receivers may ask for different ranges.
        overflow: Counts NAKs dropped because every slot was held.
        suppressed: Counts NAKs cut short or dropped because the resend budget was used up.
    """

    def __init__(
        self,
        resend: Resend,
        *,
        delay_ns: int,
        linger_ns: int,
        max_resend: int,
        has_group_semantics: bool,
        overflow: Counter,
        suppressed: Counter,
    ) -> None:
        self._resend = resend
        self._delay_ns = delay_ns
        self._linger_ns = linger_ns
        self._has_group_semantics = has_group_semantics
        self._overflow = overflow
        self._suppressed = suppressed
        self._budget_length = RESEND_BUDGET_LENGTH
        self._budget_until_ns = 0
        self._slots = [RetransmitAction() for _ in range(max_resend if has_group_semantics else 1)]

    def on_nak(self, *, term_id: int, term_offset: int, length: int, now_ns: int) -> None:
        """Answer a NAK whose length flow control has already bounded.

        Args:
            term_id: Term of the gap.
            term_offset: Where the gap begins, in bytes.
            length: Bytes granted; 0 is ignored.
            now_ns: The time now.
        """
        if length <= 0:
            return
        self.poll(now_ns)
        action = self._slot_for(term_id, term_offset)
        if action is None:
            return
        length = self._within_budget(length, now_ns)
        if length == 0:
            return
        action.term_id = term_id
        action.term_offset = term_offset
        action.length = length
        if self._delay_ns == 0:
            self._resend_and_linger(action, now_ns)
        else:
            action.state = ActionState.DELAYED
            action.expiry_ns = now_ns + self._delay_ns

    def poll(self, now_ns: int) -> int:
        """Resend what was delayed, free what has lingered, and return the next deadline."""
        deadline_ns = NEVER_NS
        for action in self._slots:
            if action.state is ActionState.DELAYED and now_ns >= action.expiry_ns:
                self._resend_and_linger(action, now_ns)
            elif action.state is ActionState.LINGERING and now_ns >= action.expiry_ns:
                action.state = ActionState.INACTIVE
            # A lingering slot needs no wake-up of its own: it is looked at when a NAK arrives.
            if action.state is ActionState.DELAYED:
                deadline_ns = min(deadline_ns, action.expiry_ns)
        return deadline_ns

    def _within_budget(self, length: int, now_ns: int) -> int:
        """Return how much of a resend the budget allows.

        Differs: Aeron answers every NAK that finds a slot, and 28 bytes may bring 2 MiB each time.
        """
        if now_ns >= self._budget_until_ns:
            self._budget_until_ns = now_ns + self._linger_ns
            self._budget_length = RESEND_BUDGET_LENGTH
        granted_length = min(length, self._budget_length)
        if granted_length < length:
            self._suppressed.increment()
        self._budget_length -= granted_length
        return granted_length

    def _slot_for(self, term_id: int, term_offset: int) -> RetransmitAction | None:
        if any(action.covers(term_id, term_offset) for action in self._slots):
            return None
        if not self._has_group_semantics:
            return self._slots[0]
        for action in self._slots:
            if action.state is ActionState.INACTIVE:
                return action
        self._overflow.increment()
        return None

    def _resend_and_linger(self, action: RetransmitAction, now_ns: int) -> None:
        self._resend(action.term_id, action.term_offset, action.length)
        action.state = ActionState.LINGERING
        action.expiry_ns = now_ns + self._linger_ns
