"""Flow control: its interface, and the strategies that track no group.

Flow control turns the status messages of receivers into the sender limit: the position up to
which data may be sent. A strategy knows no streams and no sockets; it gets values and returns a
position.

Source: Aeron `FlowControl`, `UnicastFlowControl`, `MaxMulticastFlowControl`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final, Protocol

from aeron_async.clock import NEVER_NS

if TYPE_CHECKING:
    from aeron_async.protocol.status_message import StatusMessage

__all__ = [
    "DEFAULT_GROUP_MULTIPLE",
    "DEFAULT_RECEIVER_WINDOW_LENGTH",
    "FlowControl",
    "MaxMulticastFlowControl",
    "UnicastFlowControl",
    "format_receiver_id",
    "max_retransmission_length",
]

# Not the window a receiver advertises: the official drivers limit resends by the default window.
DEFAULT_RECEIVER_WINDOW_LENGTH: Final = 128 * 1024
DEFAULT_GROUP_MULTIPLE: Final = 4
"""How many default receiver windows one NAK of a group may ask for, unless configured."""


class FlowControl(Protocol):
    """The sender limit of one publication, from its receivers. Positions and limits are in bytes.

    A strategy inherits from this class and implements `on_status_message`; all other methods have
    harmless defaults.
    """

    @abstractmethod
    def on_status_message(
        self, sm: StatusMessage, *, position: int, sender_limit: int, now_ns: int
    ) -> int:
        """Return the sender limit after a status message whose consumption is at `position`."""
        ...

    def on_trigger_send_setup(self, sm: StatusMessage, *, now_ns: int) -> None:
        """Record that a receiver asked for a SETUP."""
        del sm, now_ns

    def on_setup(self, *, sender_limit: int, now_ns: int) -> None:
        """Record that a SETUP that a receiver asked for is about to be sent."""
        del sender_limit, now_ns

    def on_idle(self, *, sender_limit: int, sender_position: int, now_ns: int) -> int:
        """Return the sender limit after a cycle in which no data was sent; it may go back."""
        del sender_position, now_ns
        return sender_limit

    def on_error(self, *, receiver_id: int, group_tag: int | None, now_ns: int) -> None:
        """Record that a receiver rejected the stream."""
        del receiver_id, group_tag, now_ns

    def deadline_ns(self) -> int:
        """Return when `on_idle` would return something new without any status message."""
        return NEVER_NS

    def has_required_receivers(self) -> bool:
        """Return whether enough receivers are there for the publication to be connected."""
        return True

    def max_retransmission_length(self, *, term_offset: int, length: int, term_length: int) -> int:
        """Return how much of a requested resend is granted, in bytes."""
        return max_retransmission_length(
            term_offset=term_offset,
            length=length,
            term_length=term_length,
            multiple=DEFAULT_GROUP_MULTIPLE,
        )

    def receiver_count(self) -> int | None:
        """Return how many receivers are tracked, for `fc-receivers`; None if it tracks none."""
        return None

    def refused_count(self) -> int:
        """Return how often a receiver was not tracked because there were too many already."""
        return 0

    def slowest_receiver(self) -> str | None:
        """Return the id of the receiver that sets the limit, if known."""
        return None


def format_receiver_id(receiver_id: int) -> str:
    """Return a receiver id as 16 hexadecimal digits."""
    return f"{receiver_id & 0xFFFF_FFFF_FFFF_FFFF:#018x}"


def max_retransmission_length(
    *, term_offset: int, length: int, term_length: int, multiple: int
) -> int:
    """Return how much of a requested resend is granted, in bytes.

    Args:
        term_offset: Where the gap begins, in bytes.
        length: Bytes that the NAK asks for.
        term_length: Length of the term, which a resend never leaves, in bytes.
        multiple: How many default receiver windows one NAK may ask for.

    Source: Aeron `FlowControl.calculateRetransmissionLength`.
    """
    window = min(DEFAULT_RECEIVER_WINDOW_LENGTH, term_length // 2)
    return min(length, term_length - term_offset, window * multiple)


class UnicastFlowControl(FlowControl):
    """The limit is the furthest edge that any status message gave: consumption plus window.

    It never goes back; a receiver drops by its over-run rule what it can no longer hold. A single
    receiver needs neither a guard when it joins nor a timeout: the publication tracks it.

    Args:
        retransmit_receiver_window_multiple: Default receiver windows that one NAK may ask for.

    Attributes:
        receiver_id: The receiver last heard; None before the first.
    """

    def __init__(self, *, retransmit_receiver_window_multiple: int) -> None:
        self._multiple = retransmit_receiver_window_multiple
        self.receiver_id: int | None = None

    def on_status_message(
        self, sm: StatusMessage, *, position: int, sender_limit: int, now_ns: int
    ) -> int:
        """Return the sender limit after a status message whose consumption is at `position`."""
        del now_ns
        self.receiver_id = sm.receiver_id
        return max(sender_limit, position + sm.receiver_window)

    def max_retransmission_length(self, *, term_offset: int, length: int, term_length: int) -> int:
        """Return how much of a requested resend is granted, in bytes."""
        return max_retransmission_length(
            term_offset=term_offset,
            length=length,
            term_length=term_length,
            multiple=self._multiple,
        )

    def slowest_receiver(self) -> str | None:
        """Return the id of the receiver last heard."""
        return None if self.receiver_id is None else format_receiver_id(self.receiver_id)


class MaxMulticastFlowControl(FlowControl):
    """The limit is the furthest edge that any receiver gave: consumption plus window.

    Slow receivers are overrun: they lose data, send NAKs for it, and finally lose the image if they
    never catch up.

    Args:
        retransmit_receiver_window_multiple: Default receiver windows that one NAK may ask for.
    """

    def __init__(
        self, *, retransmit_receiver_window_multiple: int = DEFAULT_GROUP_MULTIPLE
    ) -> None:
        self._multiple = retransmit_receiver_window_multiple
        self._pace_setter: int | None = None

    def on_status_message(
        self, sm: StatusMessage, *, position: int, sender_limit: int, now_ns: int
    ) -> int:
        """Return the sender limit after a status message whose consumption is at `position`."""
        del now_ns
        edge = position + sm.receiver_window
        if edge > sender_limit:
            self._pace_setter = sm.receiver_id
        return max(sender_limit, edge)

    def max_retransmission_length(self, *, term_offset: int, length: int, term_length: int) -> int:
        """Return how much of a requested resend is granted, in bytes."""
        return max_retransmission_length(
            term_offset=term_offset,
            length=length,
            term_length=term_length,
            multiple=self._multiple,
        )

    def slowest_receiver(self) -> str | None:
        """Return the id of the receiver that last moved the limit; the slower ones do not count."""
        return None if self._pace_setter is None else format_receiver_id(self._pace_setter)
