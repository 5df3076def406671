"""What the demonstration shows, one phase after the other, and the message its processes exchange.

Message layout, little endian: time int64 (monotonic nanoseconds), sequence int64, kind uint8; the
rest is filled up to the size asked for. The kind is the phase's number, so that the subscriber
needs no other word to know what is being shown.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import attrs

__all__ = ["ECHO", "END", "FAST", "HEADER", "PHASES", "SLOW", "SLOW_NS_PER_MESSAGE", "Phase"]

HEADER: Final = Struct("<qqB")
SLOW_NS_PER_MESSAGE: Final = 50_000
END: Final = 255
"""Kind of the last message, which is echoed: then everything before it has arrived."""


@attrs.frozen(kw_only=True)
class Phase:
    """One thing to be seen.

    Attributes:
        kind: Of its messages.
        key: In JSON.
        title: For people.
        lesson: What to look at, and why it is so.
        share: Of the whole duration.
    """

    kind: int
    key: str
    title: str
    lesson: str
    share: float


FAST: Final = Phase(
    kind=0,
    key="fast",
    title="as fast as it goes",
    lesson=(
        "The publisher offers message after message and never pauses. They travel many to a "
        "datagram, and as long as the subscriber keeps up, there is always room for more."
    ),
    share=0.4,
)
SLOW: Final = Phase(
    kind=1,
    key="slow",
    title="a slow subscriber",
    lesson=(
        f"The subscriber now takes {SLOW_NS_PER_MESSAGE // 1_000} μs over each message. Its window "
        "fills, the publisher's room runs out, and offers wait: nothing is dropped."
    ),
    share=0.3,
)
ECHO: Final = Phase(
    kind=2,
    key="echo",
    title="one at a time",
    lesson=(
        "Each message comes back before the next one leaves: nothing waits in a queue, and the "
        "latency is that of the way there and back, through two event loops."
    ),
    share=0.3,
)
PHASES: Final = (FAST, SLOW, ECHO)
