"""Counters that clients add to a driver: those of a client of this process, or of another one.

A counter is freed when its client removes it, and with its client. A static counter has no owner,
and stays for as long as the driver: every client that asks for its type and registration id gets
the same one.

Source: Aeron `DriverConductor.onAddCounter`, `onAddStaticCounter`, `onRemoveCounter`,
`CounterLink`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aeron_async.driver.core.stream_counters import NO_OWNER_ID
from aeron_async.errors import ErrorCode, RegistrationError

if TYPE_CHECKING:
    from aeron_async.counters import Counter, CountersManager

__all__ = ["ClientCounters", "CounterListener"]


class CounterListener(Protocol):
    """Hears of the counters that clients add and remove, to tell the clients of all processes."""

    def on_counter_ready(
        self, correlation_id: int, counter_id: int, *, is_static: bool = False
    ) -> None:
        """A counter was added."""
        ...

    def on_unavailable_counter(self, registration_id: int, counter_id: int) -> None:
        """A counter was removed."""
        ...


class ClientCounters:
    """The counters that the clients of one driver have added.

    Args:
        manager: Allocates them.

    Attributes:
        listener: Hears of them; None if no client of another process can.
    """

    def __init__(self, manager: CountersManager) -> None:
        self._manager = manager
        self._counters: dict[int, tuple[int, Counter]] = {}
        # By client: its ids, in the order in which they were added.
        self._client_ids: dict[int, dict[int, None]] = {}
        self.listener: CounterListener | None = None

    def has(self, registration_id: int) -> bool:
        """Return whether a client holds a counter under an id."""
        return registration_id in self._counters

    def add(
        self, client_id: int, registration_id: int, type_id: int, *, key: bytes, label: str
    ) -> int:
        """Add a counter of a client; return the id of the counter.

        Raises:
            RegistrationError: No counter is left.
        """
        counter = self._manager.allocate(
            type_id, key, label, registration_id=registration_id, owner_id=client_id
        )
        self._counters[registration_id] = client_id, counter
        self._client_ids.setdefault(client_id, {})[registration_id] = None
        if self.listener is not None:
            self.listener.on_counter_ready(registration_id, counter.id)
        return counter.id

    def add_static(
        self, correlation_id: int, registration_id: int, type_id: int, *, key: bytes, label: str
    ) -> int:
        """Add a static counter, or find it; return the id of the counter.

        Args:
            correlation_id: Of the request.
            registration_id: Identifies the counter among those of its type.
            type_id: Its type.
            key: Its key, if it is new.
            label: Its label, if it is new.

        Raises:
            RegistrationError: No counter is left, or a client owns one with these ids.
        """
        found = self._manager.find(type_id=type_id, registration_id=registration_id)
        if found is None:
            counter_id = self._manager.allocate(
                type_id, key, label, registration_id=registration_id, owner_id=NO_OWNER_ID
            ).id
        elif found.owner_id == NO_OWNER_ID:
            counter_id = found.counter_id
        else:
            message = (
                "cannot add static counter, because a non-static counter exists "
                f"(counterId={found.counter_id}) for typeId={type_id} and "
                f"registrationId={registration_id}"
            )
            raise RegistrationError(message)
        if self.listener is not None:
            self.listener.on_counter_ready(correlation_id, counter_id, is_static=True)
        return counter_id

    def check_owner(self, client_id: int, registration_id: int) -> None:
        """Refuse to remove what is no counter of a client.

        Raises:
            RegistrationError: UNKNOWN_COUNTER; the client has no such counter.
        """
        owner_id, _ = self._counters.get(registration_id, (None, None))
        if owner_id != client_id:
            message = f"unknown counter: {registration_id}"
            raise RegistrationError(message, code=ErrorCode.UNKNOWN_COUNTER)

    def remove(self, registration_id: int) -> None:
        """Free a counter; do nothing if it is freed already."""
        found = self._counters.pop(registration_id, None)
        if found is None:
            return
        client_id, counter = found
        ids = self._client_ids[client_id]
        del ids[registration_id]
        if not ids:
            del self._client_ids[client_id]
        counter_id = counter.id
        counter.close()
        if self.listener is not None:
            self.listener.on_unavailable_counter(registration_id, counter_id)

    def remove_client(self, client_id: int) -> None:
        """Free the counters of a client."""
        for registration_id in tuple(self._client_ids.get(client_id, ())):
            self.remove(registration_id)
