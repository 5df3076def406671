"""Calls of what gives messages to functions, which do anything meanwhile."""

from __future__ import annotations

from contextvars import copy_context
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.calls import paths
from tests.twins import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

deliveries: Final = compiled("deliveries")


class Delivery(deliveries.Delivering):  # type: ignore[misc,name-defined] # without types
    """One whose handler does anything."""

    def __init__(self, held: Delivered) -> None:
        self.held = held
        self._context = copy_context() if held.v.rng.randrange(8) else held.v.anything()
        self._events = held.v.rng.choice((None, SimpleNamespace(is_expecting=False)))
        self._subject, self._handler = held.subscription, self.handle
        self._hand_out_fast = held.subscription._hand_out_fast
        self._loop = SimpleNamespace(call_soon=lambda *_, **__: held.look())

    def handle(self, _: object) -> object:
        self.held.look()
        if self.held.v.rarely():
            raise ValueError
        if self.held.v.rarely():
            self.wake()
            self.deliver_now()
        return None if self.held.v.flag() else self

    def _hand_out(self, left: int) -> int:
        self._call(left)
        return left // 2

    def _put_back(self) -> None:
        self.held.look()

    def _report(self, _: BaseException) -> None:
        self.held.look()

    def _check_result(self, _: object) -> None:
        self._is_over = self.held.look()

    def _go_on(self, *, is_more: bool) -> None:
        self._is_due = is_more and self.held.look()


class Delivered(paths.Held):
    """A delivery of a subscription, which every round uses or replaces."""

    delivery: Any = None

    def make_delivery(self) -> None:
        self.delivery = Delivery(self)

    def deliver(self) -> None:
        delivery, acts = self.delivery, ("wake", "deliver_now", "_deliver_scheduled", "done")
        delivery._is_due |= self.v.flag()
        getattr(delivery, self.v.rng.choice(acts))()

    def change_delivery(self) -> None:
        names = [each for each in dir(deliveries.Delivering) if each[:2] != "__"]
        setattr(self.delivery, self.v.rng.choice(names), self.v.anything())


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each method of a delivery, and for what is delivered."""
    held = Delivered(values)
    held.make_delivery()
    found = {
        each.__name__: each
        for each in (
            *(held.make_delivery, held.deliver, held.hand_out_fast, held.make_subscription),
            *(held.anext, held.drive, held.drop),
        )
    }
    found["change_delivery"] = partial(paths.at_times, values, held.change_delivery)
    return found
