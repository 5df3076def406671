"""What a sender asks of its flow control.

Flow control turns the status messages of receivers into the sender limit: the position up to
which data may be sent. It knows no streams and no sockets; it is told values and returns a
position.

Source: Aeron `FlowControl`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aeron_async.protocol.status_message import StatusMessage

__all__ = ["DEFAULT_RECEIVER_WINDOW_LENGTH", "FlowControl", "max_retransmission_length"]

# Not the window a receiver advertises: the official drivers bound resends by the default one.
DEFAULT_RECEIVER_WINDOW_LENGTH = 128 * 1024


class FlowControl(Protocol):
    """The pace of one publication, set by its receivers. Positions and limits are in bytes."""

    def on_status_message(
        self, sm: StatusMessage, *, position: int, sender_limit: int, now_ns: int
    ) -> int:
        """Return the sender limit after a status message whose consumption is at `position`."""
        ...

    def on_trigger_send_setup(self, sm: StatusMessage, *, now_ns: int) -> None:
        """Take note that a receiver asked for a SETUP."""
        ...

    def on_setup(self, *, sender_limit: int, now_ns: int) -> None:
        """Take note that an elicited SETUP is about to be sent."""
        ...

    def on_idle(self, *, sender_limit: int, sender_position: int, now_ns: int) -> int:
        """Return the sender limit after a cycle in which no data was sent."""
        ...

    def on_error(self, *, receiver_id: int, group_tag: int | None, now_ns: int) -> None:
        """Take note that a receiver rejected the stream."""
        ...

    def has_required_receivers(self) -> bool:
        """Return whether enough receivers are there for the publication to be connected."""
        ...

    def max_retransmission_length(self, *, term_offset: int, length: int, term_length: int) -> int:
        """Return how much of a requested resend is granted, in bytes."""
        ...

    def slowest_receiver(self) -> str | None:
        """Return the identity of the receiver that sets the pace, where it is known."""
        ...


def max_retransmission_length(
    *, term_offset: int, length: int, term_length: int, multiple: int
) -> int:
    """Return how much of a requested resend is granted, in bytes.

    Args:
        term_offset: Where the gap begins.
        length: What the NAK asks for.
        term_length: A resend never leaves its term.
        multiple: How many default receiver windows one NAK may bring.

    Source: Aeron `FlowControl.calculateRetransmissionLength`.
    """
    window = min(DEFAULT_RECEIVER_WINDOW_LENGTH, term_length // 2)
    return min(length, term_length - term_offset, window * multiple)
