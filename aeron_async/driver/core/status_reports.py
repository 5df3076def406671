"""What the one receiver of a unicast publication says thousands of times a second, taken in one go.

A plain status message of a receiver that is known, to a publication that is connected, moves the
sender limit and nothing else: no value is made of it, and no strategy of somebody else's is asked.
Whatever is out of the ordinary is left to the long way, which says what is wrong with it.

Source: Aeron `NetworkPublication.onStatusMessage`, `UnicastFlowControl`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, Self

from aeron_async.driver.core.flow_control.unicast import UnicastFlowControl
from aeron_async.protocol.header import FRAME_ALIGNMENT

if TYPE_CHECKING:
    from aeron_async.driver.core.flow_control.base import FlowControl
    from aeron_async.driver.core.publication_connection import PublicationConnection
    from aeron_async.driver.core.receiver_liveness import ReceiverLiveness
    from aeron_async.driver.core.retransmit_budget import RetransmitBudget
    from aeron_async.driver.core.stream_sender import StreamSender
    from aeron_async.logbuffer.term_log import LogBuffers

__all__ = ["PLAIN", "REPORT", "StatusReports"]

UINT32_MASK: Final = 0xFFFF_FFFF
LAST_TERM_COUNT: Final = 2**31 - 1

REPORT: Final = Struct("<iiiiiiiq")
"""A status message whose version, flags and type are read as one word."""
PLAIN: Final = 3 << 16
"""That word of a status message of our version without flags."""


class StatusReports:
    """The short way of status messages to one publication.

    Args:
        flow_control: The publication's.
        log: The terms that positions are told by.
        sender: Keeps the limit.
        receivers: Those that were heard before.
        connection: Says whether there is one.
        budget: Wants to know of the receiver window.
    """

    __slots__ = (
        "_bits",
        "_budget",
        "_connection",
        "_flow_control",
        "_half_term",
        "_initial_term_id",
        "_receivers",
        "_sender",
        "_term_length",
    )

    def __init__(
        self,
        flow_control: UnicastFlowControl,
        log: LogBuffers,
        sender: StreamSender,
        receivers: ReceiverLiveness,
        connection: PublicationConnection,
        budget: RetransmitBudget,
    ) -> None:
        self._bits = log.position_bits
        self._initial_term_id = log.initial_term_id
        self._term_length = log.term_length
        self._half_term = log.term_length // 2
        self._sender = sender
        self._receivers = receivers
        self._connection = connection
        self._flow_control = flow_control
        self._budget = budget

    @classmethod
    def of(
        cls,
        flow_control: FlowControl,
        log: LogBuffers,
        sender: StreamSender,
        receivers: ReceiverLiveness,
        connection: PublicationConnection,
        budget: RetransmitBudget,
    ) -> Self | None:
        """Return the short way to a publication; None where its strategy is not that of unicast.

        One derived from that may do more, and wants to be asked.
        """
        if type(flow_control) is not UnicastFlowControl:
            return None
        return cls(flow_control, log, sender, receivers, connection, budget)

    def try_take(
        self, term_id: int, term_offset: int, window_length: int, receiver_id: int, now_ns: int
    ) -> bool:
        """Take a plain status message; False where it has to go the long way, and did nothing yet.

        Args:
            term_id: Of the consumption.
            term_offset: Of the consumption, in bytes.
            window_length: Of the receiver, in bytes.
            receiver_id: Who says so.
            now_ns: The time now.
        """
        if not (
            0 <= term_offset < self._term_length
            and not term_offset % FRAME_ALIGNMENT
            and 0 <= window_length <= self._half_term
            and self._connection.is_connected
        ):
            return False
        # Not by `compute_position`: a term before the first, and the end of all positions, lie
        # beyond half a term here.
        term_count = (term_id - self._initial_term_id) & UINT32_MASK
        position = (term_count << self._bits) + term_offset
        sender, half_term = self._sender, self._half_term
        sent_position, limit = sender.position, sender.limit
        lowest = min(limit, sent_position) - half_term
        if (
            term_count > LAST_TERM_COUNT
            or not lowest <= position <= sent_position + half_term
            or not self._receivers.hear_again(receiver_id, now_ns)
        ):
            return False
        self._budget.window_length = window_length
        self._flow_control.receiver_id = receiver_id
        edge = min(sent_position, position) + window_length
        if edge > limit:
            sender.set_limit(edge)
        return True
