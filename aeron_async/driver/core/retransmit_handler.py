"""The answers to NAKs: resend at once or after a delay, then ignore repeats for a linger.

Each answered NAK holds its range until its linger has passed. A NAK that begins inside a held range
is ignored: the data is on its way. On unicast the handler holds the latest ranges, and a new NAK
replaces the oldest. For a group it holds a fixed number, and a NAK beyond that is dropped and
counted. A budget limits how much all NAKs together can make the sender resend.

On unicast a linger is no longer than the resend needs: `RoundTrip` measures that. Where many
receivers may ask for the same data, each linger has the configured length.

Differs: in Aeron each linger has the configured length, 10 ms. If a resend is lost, its receiver
waits that long: at a loss of 5 % one datagram in 400 would cost 10 ms.

Source: Aeron `RetransmitHandler`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core.budgets import RetransmitBudget
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId

if TYPE_CHECKING:
    from aeron_async.counters import Counter
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.round_trip import RoundTrip
    from aeron_async.driver.core.stream_params import PublicationParams
    from aeron_async.driver.core.system_counters import SystemCounters

__all__ = ["Resend", "RetransmitHandler"]

Resend = Callable[[int, int], int]
"""Resend a range: position and length in bytes; returns how many bytes it covered."""


class RetransmitAction:
    """One requested range, and the end of its delay or linger."""

    __slots__ = ("expiry_ns", "is_delayed", "length", "position")

    def __init__(self, position: int, length: int, expiry_ns: int) -> None:
        self.position: int = position
        self.length: int = length
        self.expiry_ns: int = expiry_ns
        self.is_delayed: bool = True


class RetransmitHandler:
    """The ranges of one publication that are being answered, oldest first.

    A group holds at most `max_ranges` ranges; a NAK beyond that counts as an overflow. A NAK that
    the budget cuts short or drops counts as suppressed.
    """

    def __init__(
        self,
        resend: Resend,
        budget: RetransmitBudget,
        *,
        delay_ns: int,
        linger_ns: int,
        max_ranges: int,
        has_group_semantics: bool,
        overflow: Counter,
        suppressed: Counter,
        round_trip: RoundTrip | None = None,
    ) -> None:
        self._resend = resend
        self.budget = budget
        self._delay_ns = delay_ns
        self._linger_ns = linger_ns
        self._max_ranges = max_ranges
        self._has_group_semantics = has_group_semantics
        self._overflow = overflow
        self._suppressed = suppressed
        self._round_trip = None if has_group_semantics else round_trip
        # How often it has resent, and how many bytes of the stream.
        self.resend_count = self.resent_length = 0
        # Oldest first: their delays end in this order, but not always their lingers.
        # Not a deque: an empty one takes 600 bytes, and there is one of these for each publication.
        self._actions: list[RetransmitAction] = []

    @classmethod
    def of(
        cls,
        resend: Resend,
        context: DriverContext,
        params: PublicationParams,
        system_counters: SystemCounters,
        round_trip: RoundTrip,
        *,
        position: int,
    ) -> Self:
        """Return the handler of a publication that starts at `position`."""
        is_group = params.has_group_semantics
        return cls(
            resend,
            RetransmitBudget(context, mtu_length=params.mtu_length, position=position),
            delay_ns=context.retransmit_unicast_delay_ns,
            linger_ns=context.retransmit_unicast_linger_ns,
            max_ranges=params.max_resend if is_group else context.max_lingering_ranges,
            has_group_semantics=is_group,
            overflow=system_counters[SystemCounterId.RETRANSMIT_OVERFLOW],
            suppressed=system_counters[DriverCounterId.NAKS_SUPPRESSED],
            round_trip=round_trip,
        )

    def on_nak(self, *, position: int, length: int, sender_position: int, now_ns: int) -> bool:
        """Answer a NAK whose length flow control has already bounded; a length of 0 is ignored.

        Return whether anything was resent at once.
        """
        if length <= 0:
            return False
        self.poll(now_ns)
        if self._is_being_answered(position, now_ns):
            return False
        if self._has_group_semantics and len(self._actions) >= self._max_ranges:
            self._overflow.increment()
            return False
        granted_length = self.budget.take(length, sender_position=sender_position, now_ns=now_ns)
        if granted_length < length:
            self._suppressed.increment()
        action = RetransmitAction(position, granted_length, now_ns + self._delay_ns)
        if self._delay_ns == 0 and granted_length > 0:
            self._answer(action, now_ns)
        if action.length > 0:
            self._hold(action, now_ns)
        return not action.is_delayed and action.length > 0

    def poll(self, now_ns: int) -> int:
        """Resend what was delayed, end lingers, and return the next deadline."""
        actions = self._actions
        while actions and not actions[0].is_delayed and now_ns >= actions[0].expiry_ns:
            del actions[0]
        if self._delay_ns == 0:
            # The end of a linger needs no deadline: it is checked when the next NAK arrives.
            return NEVER_NS
        for action in actions:
            if action.is_delayed:
                if now_ns < action.expiry_ns:
                    return action.expiry_ns
                self._answer(action, now_ns)
        return NEVER_NS

    def take_back(self, length: int) -> int:
        """Forget ranges that were answered last, because so many bytes could not be sent.

        Return how many: the next NAKs for them are answered again.
        """
        count = 0
        for action in reversed(self._actions.copy()):
            if length <= 0:
                break
            if not action.is_delayed:
                self._actions.remove(action)
                self.budget.give_back(action.length)
                length -= action.length
                count += 1
        return count

    def _is_being_answered(self, position: int, now_ns: int) -> bool:
        for action in self._actions:
            if action.position <= position < action.position + action.length and (
                action.is_delayed or now_ns < action.expiry_ns
            ):
                return True
        return False

    def _hold(self, action: RetransmitAction, now_ns: int) -> None:
        # Differs: Aeron holds one range on unicast, so two alternating NAKs cause two resends each
        # time; here the range just answered stays held when another is added.
        actions = self._actions
        if len(actions) >= self._max_ranges:
            # A linger may be over before that of an older range.
            actions[:] = [each for each in actions if each.is_delayed or now_ns < each.expiry_ns]
        if len(actions) >= self._max_ranges:
            oldest = actions.pop(0)
            if oldest.is_delayed:
                self.budget.give_back(oldest.length)
        actions.append(action)

    def _answer(self, action: RetransmitAction, now_ns: int) -> None:
        """Resend, and hold the range that this covers, unless it is taken back.

        Differs: Aeron holds the requested range, even if nothing could be sent: a NAK for less than
        a frame at the start of a gap would keep the gap from being repaired.
        """
        resent_length = self._resend(action.position, action.length)
        # Padding counts in full although only its header is sent, and may pass the end.
        resent_length = min(resent_length, action.length)
        self.resend_count += resent_length > 0
        self.resent_length += resent_length
        self.budget.give_back(action.length - resent_length)
        action.length = resent_length
        action.is_delayed = False
        linger_ns, round_trip = self._linger_ns, self._round_trip
        if round_trip is not None:
            linger_ns = round_trip.linger_ns(linger_ns)
        action.expiry_ns = now_ns + linger_ns
