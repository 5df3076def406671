"""Counters of an application: 64-bit numbers in the driver's table, which every process may read.

Source: Aeron `Counter`, `Aeron.addCounter`, `Aeron.addStaticCounter`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self, final

from aeron_async.client.client_conductor import BY_FORK, Closing, check_process
from aeron_async.counters import MAX_KEY_LENGTH, MAX_LABEL_LENGTH
from aeron_async.errors import ConfigurationError, WrongLoopError
from aeron_async.protocol.arguments import check_number, shown
from aeron_async.protocol.units import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from types import TracebackType
    from typing import SupportsIndex

    from aeron_async.client.client_conductor import ClientConductor
    from aeron_async.driver.commands import AddedCounter
    from aeron_async.protocol.header import Buffer

__all__ = ["Counter", "CounterSpec"]


@final
class CounterSpec:
    """The checked arguments of a counter.

    Attributes:
        type_id: Its type.
        label: Its label.
        key: Its key.
        static_registration_id: Identifies a static counter; None for a counter of the client.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    __slots__ = ("key", "label", "static_registration_id", "type_id")

    def __init__(
        self,
        type_id: SupportsIndex,
        label: str,
        key: Buffer,
        static_registration_id: SupportsIndex | None = None,
    ) -> None:
        self.type_id: int = check_number(
            type_id, "type_id", minimum=INT32_MIN, maximum=INT32_MAX, why=": signed 32 bits"
        )
        if not isinstance(label, str) or len(label.encode("utf-8", "replace")) > MAX_LABEL_LENGTH:
            message = f"label={shown(label)} must be text of at most {MAX_LABEL_LENGTH} bytes"
            raise ConfigurationError(message)
        self.label: str = label
        try:
            self.key: bytes = bytes(memoryview(key))
        except TypeError:
            self.key = bytes(MAX_KEY_LENGTH + 1)
        if len(self.key) > MAX_KEY_LENGTH:
            message = f"key={shown(key)} must be at most {MAX_KEY_LENGTH} bytes"
            raise ConfigurationError(message)
        self.static_registration_id: int | None = (
            None
            if static_registration_id is None
            else check_number(
                static_registration_id,
                "registration_id",
                minimum=INT64_MIN,
                maximum=INT64_MAX,
                why=": signed 64 bits",
            )
        )


@final
class Counter:
    """A counter in the driver's table, created by `Aeron.add_counter` or `add_static_counter`.

    Reading or writing it is one access to memory: no request to the driver, no waiting. The value
    has one writer, this client; increments of two writers of a static counter may be lost.

    Attributes:
        type_id: Type of the counter.
        label: The text that describes the value to people.
        key: As given.
        is_static: Whether the counter stays in the driver when it is closed.
        id: Id of the counter in the driver's table.
        registration_id: Registration id of the counter, by which readers find it.
    """

    def __init__(self, conductor: ClientConductor, spec: CounterSpec) -> None:
        self.type_id: int = spec.type_id
        self.label: str = spec.label
        self.key: bytes = spec.key
        self.is_static: bool = spec.static_registration_id is not None
        self._conductor = conductor
        self._closed: Closing | None = None

    def _start(self, added: AddedCounter) -> None:
        """Take the counter that the driver has allocated."""
        self._correlation_id = added.correlation_id
        self._counter = added.counter
        self.id: int = added.counter.id
        self.registration_id: int = added.registration_id

    def get(self) -> int:
        """Return the value.

        Raises:
            ClosedError: The counter is closed.
        """
        return self._counter.get()

    def set(self, value: int) -> None:
        """Replace the value.

        Raises:
            ConfigurationError: The value is no whole number, or does not fit signed 64 bits.
            ClosedError: The counter is closed.
        """
        if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
            value = check_number(
                value, "value", minimum=INT64_MIN, maximum=INT64_MAX, why=": signed 64 bits"
            )
        self._counter.set(value)

    def increment(self, amount: int = 1) -> None:
        """Add to the value.

        Raises:
            ConfigurationError: The amount is no whole number, or the sum does not fit signed 64
                bits.
            ClosedError: The counter is closed.
        """
        self.set(self._counter.get() + amount)

    def propose_max(self, value: int) -> bool:
        """Raise the value to `value` if that is greater, and return whether it was.

        Raises:
            ConfigurationError: The value does not fit signed 64 bits.
            ClosedError: The counter is closed.
        """
        is_greater = value > self._counter.get()
        if is_greater:
            self.set(value)
        return is_greater

    @property
    def is_closed(self) -> bool:
        """Return whether the counter is closed: by the caller, its client or its driver."""
        return self._closed is not None

    def close(self) -> None:
        """Close now: the driver frees a counter that is not static. When closed, do nothing.

        Raises:
            WrongLoopError: Its event loop is not running in this thread; it stays open.
        """
        check_process(self._closed, self)
        if self._closed is not None:
            return
        if not self._conductor.home.is_here():
            message = f"{self!r} belongs to another event loop, or thread: close it there"
            raise WrongLoopError(message)
        self._mark_closed(self._conductor.closing)
        self._conductor.release_counter(self._correlation_id)

    async def aclose(self) -> None:
        """Close now: the driver frees a counter that is not static. When closed, do nothing.

        Raises:
            WrongLoopError: The counter belongs to another event loop; it stays open.
        """
        self.close()
        await asyncio.sleep(0)

    def _on_driver_closed(self, error: Exception | None) -> None:
        """Close without a request to the driver, which is closed."""
        self._mark_closed(Closing.by_driver(error))

    def _on_forked(self) -> None:
        """Close in a child process."""
        self._mark_closed(BY_FORK)

    def _mark_closed(self, closed: Closing) -> None:
        self._closed = closed
        self._counter.invalidate(f"the counter {self.label!r} is closed: {closed.text}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        state = "closed" if self._closed is not None else f"= {self.get()}"
        return f"<Counter {self.id} {self.label!r}, {state}>"
