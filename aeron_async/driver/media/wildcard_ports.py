"""Ports of a range, handed out in turn where a channel leaves the choice to the driver.

Nothing is remembered but where to go on: whether a port is free, only the system knows.

Source: Aeron `WildcardPortManager`, `aeron_port_manager.c`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import attrs

from aeron_async.errors import ErrorCode, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["WildcardPorts"]


@attrs.define(eq=False)
class WildcardPorts:
    """A range of ports, and the one to try next.

    Differs: Aeron knows the ports of its own sockets only, and fails on one that another program
    has; here every port of the range is tried.

    Attributes:
        low: The first port of the range.
        high: The last one.
    """

    low: int
    high: int
    _next_port: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._next_port = self.low

    @classmethod
    def of(cls, port_range: tuple[int, int]) -> WildcardPorts | None:
        """Return the ports of a setting, or None where 0 and 0 leave the choice to the system."""
        low, high = port_range
        return None if low == high == 0 else cls(low, high)

    def candidates(self) -> Iterator[int]:
        """Yield every port once, the one after that which was taken last at first."""
        first = self._next_port
        # A range from 0 has no port 0: the system would take it for any port at all.
        for port in (*range(first, self.high + 1), *range(self.low, first)):
            if port:
                yield port

    def take(self, port: int) -> None:
        """Go on behind a port that could be bound."""
        self._next_port = port + 1 if port < self.high else self.low

    def refuse(self, host: str) -> NoReturn:
        """Say that no port of the range could be bound.

        Raises:
            RegistrationError: CHANNEL_ENDPOINT_ERROR, always.
        """
        message = (
            f"no port from {self.low} to {self.high} is free on {host}: widen the setting "
            "sender_wildcard_port_range or receiver_wildcard_port_range, or close a channel"
        )
        raise RegistrationError(message, code=ErrorCode.CHANNEL_ENDPOINT_ERROR)
