"""What a publication sends without a poll: a datagram that comes alone, and heartbeats.

A poll moves the limit, looks after receivers, readers and claims, and asks the strategy. For one
datagram, or none, that is most of the work, and finds nothing to do. While a publication is quiet
it waits: for the next deadline of any of these, for an eighth of the window, or for a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.core.publication_counters import PublicationCounters
    from aeron_async.driver.core.stream_sender import StreamSender
    from aeron_async.kernel import Doorbell

__all__ = ["QuietSender"]

LONGEST_NS: Final = 1_000_000_000
"""How often a publication is polled at least: as often as Aeron's conductor looks at timeouts."""


class QuietSender:
    """The short ways of one publication; each returns a false value where `poll` is to be called.

    Args:
        sender: Sends.
        doorbell: Rung when something was offered.
        counters: The publication's.
        on_sent: Told of data that was sent.
    """

    __slots__ = ("_counters", "_doorbell", "_on_sent", "_position", "_sender", "_until_ns")

    def __init__(
        self,
        sender: StreamSender,
        doorbell: Doorbell,
        counters: PublicationCounters,
        on_sent: Callable[[], None],
    ) -> None:
        self._sender = sender
        self._doorbell = doorbell
        self._counters = counters
        self._on_sent = on_sent
        self._until_ns = self._position = 0

    def begin(self, now_ns: int, *, until_ns: int, position: int) -> None:
        """Be quiet from now on.

        Args:
            now_ns: The time now.
            until_ns: When anything is due but heartbeats.
            position: Data beyond it lets the limit move, in bytes.
        """
        self._until_ns = min(until_ns, now_ns + LONGEST_NS)
        self._position = position

    def end(self) -> None:
        """Leave everything to polls."""
        self._until_ns = 0

    def try_send_alone(self, now_ns: int) -> bool:
        """Send what was offered just now, if that is all there is to send."""
        sender = self._sender
        is_quiet = now_ns < self._until_ns and sender.position <= self._position
        if not (is_quiet and sender.send_alone(now_ns)):
            return False
        self._doorbell.is_rung = False
        self._counters.publisher_position.set(sender.position)
        self._on_sent()
        return True

    def try_beat(self, now_ns: int) -> int:
        """Send a heartbeat if it is time to, and return the next deadline."""
        until_ns = self._until_ns
        if now_ns >= until_ns or self._doorbell.is_rung:
            return 0
        sender = self._sender
        if now_ns >= sender.heartbeat_deadline_ns:
            sender.send_heartbeat(now_ns, is_end_of_stream=False)
        return min(sender.heartbeat_deadline_ns, until_ns)
