"""Streams that are refused: the reason is logged and recorded, and sent to the publisher.

`ImageBudget` and `window_refusal` decide what is refused; `Refusals` remembers the refusals, to
explain why a subscription waits.

Invariant: a SETUP may be forged, so `RefusalFrames` sends its source little: one frame a second at
most for each stream, no more than three bytes for each byte of the SETUP, and to no source more
than half of all frames.

Differs: Aeron logs the error in its own driver, and its publisher gets no reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import attrs

from aeron_async.driver.core.budgets import ReplyLimiter
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.driver.core.udp_channel import format_address
from aeron_async.errors import ErrorCode
from aeron_async.logbuffer.position import PARTITION_COUNT, compute_position, position_bits
from aeron_async.logs import get_logger
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import DATA_HEADER_LENGTH
from aeron_async.waits import RefusalSeen

if TYPE_CHECKING:
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.outbox import Address, ReceiveDestination
    from aeron_async.driver.resources import DriverResources
    from aeron_async.protocol.setup import Setup

__all__ = [
    "MAX_TEXT_LENGTH",
    "ImageBudget",
    "Refusal",
    "RefusalFrames",
    "Refusals",
    "start_position",
    "window_refusal",
]

# Frames to the publisher.

MAX_TEXT_LENGTH: Final = 80
"""Bytes of a reason on the wire: with its frame header, three times the length of a SETUP."""
NO_GROUP_TAG: Final = -1

log: Final = get_logger(__name__)


class RefusalFrames:
    """Counts, logs, records and reports the streams that one driver refuses.

    Args:
        resources: What the driver's parts share.
    """

    def __init__(self, resources: DriverResources) -> None:
        self._resources = resources
        self._clock = resources.clock
        self._counters = resources.system_counters
        limit = resources.context.max_elicited_setups_per_second
        # Publications that share a socket share their source, and each must get its own reason.
        self._limiter = ReplyLimiter(
            limit=limit, limit_per_asker=1, limit_per_source=max(1, limit // 2)
        )

    def refuse(
        self,
        refusal: Refusal,
        setup: Setup,
        source: Address,
        destination: ReceiveDestination,
        receiver_id: int,
    ) -> None:
        """Count a refused stream, log and record the reason, and send it to the publisher.

        Args:
            refusal: The reason.
            setup: The SETUP that was refused.
            source: The address it came from.
            destination: The destination that received it, by which the frame is sent.
            receiver_id: Identifies this receiver to the publisher.
        """
        self._counters[DriverCounterId.IMAGES_REFUSED].increment()
        now_ns = self._clock.now_ns()
        # The budget limits the records as well: a peer can make any number of them.
        if self._resources.log_budget.allows("image_refused", source, now_ns):
            self._resources.system_counters.note_error(
                refusal.code,
                f"{refusal.words()}: source={format_address(source)} "
                f"streamId={setup.stream_id} sessionId={setup.session_id}",
            )
            log.warning(
                "image_refused",
                reason=refusal.reason(),
                source=format_address(source),
                session_id=setup.session_id,
                stream_id=setup.stream_id,
            )
        asker = source, setup.session_id, setup.stream_id
        if not self._limiter.try_take(asker, now_ns, source=source):
            self._counters[DriverCounterId.REFUSALS_WITHHELD].increment()
            return
        frame = ErrorFrame(
            session_id=setup.session_id,
            stream_id=setup.stream_id,
            receiver_id=receiver_id,
            group_tag=NO_GROUP_TAG,
            error_code=refusal.code,
            message=refusal.brief_reason().encode()[:MAX_TEXT_LENGTH],
        ).encode()
        if destination.send_to(frame, source):
            self._counters[SystemCounterId.ERROR_FRAMES_SENT].increment()
        else:
            self._counters[SystemCounterId.SHORT_SENDS].increment()


# Limits.

TOO_MUCH: Final = "{} would be {}, and the limit is {}: raise {}"
TOO_MUCH_TWICE: Final = f"{TOO_MUCH}; {TOO_MUCH}"
BEFORE_ITS_START: Final = (
    "active term id {} lies before the initial term id {}: no Aeron driver sends such a SETUP"
)
NO_ROOM_FOR_DATA: Final = "mtu is {}, and must be more than {}, the length of a data header"
WINDOW_TOO_SHORT: Final = (
    "mtu would be {}, and the limit is {}: raise rcv-wnd, or lower mtu at the publisher"
)
SESSIONS_OFFICIALLY: Final = "exceeded session limit"
WINDOW_OFFICIALLY: Final = "mtuLength={} > initialWindowLength={}"


class Refusal(NamedTuple):
    """Why a stream is refused; the text is made only where it is read.

    Attributes:
        sentence: For the log of the receiver, a format string.
        values: The values for the format strings.
        brief: For the publisher, a format string for the same values.
        code: Error code for the publisher.
        official: Aeron's words for it, which tools look for, a format string for the same values;
            empty where Aeron has no such limit.
    """

    sentence: str
    values: tuple[object, ...] = ()
    brief: str = "the stream cannot be joined, and the log of the receiver says why"
    code: ErrorCode = ErrorCode.GENERIC
    official: str = ""

    @classmethod
    def by_limits(cls, *limits: tuple[str, int, int, str]) -> Refusal:
        """Return the refusal of a stream that exceeds one limit or two.

        Args:
            limits: For each: the quantity, its value, the limit, and the setting of the limit.
        """
        values = tuple(value for limit in limits for value in limit)
        code = ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE
        if len(limits) == 1:
            return cls(TOO_MUCH, values, "the receiver's {3} is {2}", code)
        return cls(TOO_MUCH_TWICE, values, "{3} is {2}, {7} is {6}", code)

    def reason(self) -> str:
        """Return the whole reason, for the log."""
        return self.sentence.format(*self.values) if self.values else self.sentence

    def words(self) -> str:
        """Return the reason for the log of distinct errors."""
        return ": ".join(
            each.format(*self.values) for each in (self.official, self.sentence) if each
        )

    def brief_reason(self) -> str:
        """Return the reason for the publisher."""
        return self.brief.format(*self.values)


class ImageBudget:
    """The memory that the images of one driver use, and its limits.

    Args:
        context: The settings with the limits.

    Attributes:
        log_length: Length of all their logs, in bytes.
    """

    def __init__(self, context: DriverContext) -> None:
        self.log_length: int = 0
        self._context = context
        # Differs: Aeron has no limit of its own by default. Ours applies as well as Aeron's.
        self._image_limit, self._image_setting = min(
            (context.max_images_per_stream, "max_images_per_stream"),
            (context.stream_session_limit, "stream_session_limit"),
        )

    def refusal(self, setup: Setup, *, image_count: int) -> Refusal | None:
        """Return why a stream is refused, or None if there is room for its image.

        Args:
            setup: The SETUP of the stream.
            image_count: How many images of the stream the endpoint has.
        """
        context, term_length = self._context, setup.term_length
        if image_count >= self._image_limit:
            limit = self._image_limit
            refusal = Refusal.by_limits(("sessions", image_count + 1, limit, self._image_setting))
            return refusal._replace(official=SESSIONS_OFFICIALLY)
        log_length = self.log_length + PARTITION_COUNT * term_length
        asked = (
            ("term-length", term_length, context.max_image_term_length, "max_image_term_length"),
            ("image logs", log_length, context.image_log_budget_length, "image_log_budget_length"),
        )
        # Both at once: else the user raises one limit, only to find the other too low as well.
        limits = [each for each in asked if each[1] > each[2]]
        if limits:
            return Refusal.by_limits(*limits)
        if setup.mtu_length <= DATA_HEADER_LENGTH:
            return Refusal(NO_ROOM_FOR_DATA, (setup.mtu_length, DATA_HEADER_LENGTH))
        if start_position(setup) < 0:
            return Refusal(BEFORE_ITS_START, (setup.active_term_id, setup.initial_term_id))
        return None

    def take(self, term_length: int) -> None:
        """Count an image that was made."""
        self.log_length += PARTITION_COUNT * term_length

    def give_back(self, term_length: int) -> None:
        """Subtract an image whose log was freed."""
        self.log_length -= PARTITION_COUNT * term_length


def start_position(setup: Setup) -> int:
    """Return where a stream is joined, in bytes; negative if the SETUP cannot be valid."""
    return compute_position(
        setup.active_term_id,
        setup.term_offset,
        initial_term_id=setup.initial_term_id,
        bits=position_bits(setup.term_length),
    )


def window_refusal(setup: Setup, receiver_window_length: int) -> Refusal | None:
    """Return a refusal if the window is shorter than one datagram, else None.

    Args:
        setup: The SETUP of the stream.
        receiver_window_length: The subscription's window, in bytes.
    """
    window_length = min(receiver_window_length, setup.term_length // 2)
    if setup.mtu_length > window_length:
        values = setup.mtu_length, window_length
        brief = "mtu {} exceeds the receiver's window of {}"
        code = ErrorCode.NOT_SUPPORTED
        return Refusal(WINDOW_TOO_SHORT, values, brief, code, WINDOW_OFFICIALLY)
    return None


# Past refusals, for explanations.

MAX_REFUSALS: Final = 64
"""Most streams that are remembered."""
WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to


class Key(NamedTuple):
    """Identifies a refused stream; other endpoints may have streams with the same ids."""

    receiver_id: int
    stream_id: int
    session_id: int
    source: Address


@attrs.frozen
class RefusalEntry:
    """One stream that was refused."""

    refusal: Refusal
    refused_ns: int


class Refusals:
    """The refused streams, by endpoint, stream, session and source, the latest last.

    An endpoint is identified by its receiver id, which is unique in a driver.
    """

    def __init__(self) -> None:
        self._entries: dict[Key, RefusalEntry] = {}

    def note(
        self, refusal: Refusal, setup: Setup, source: Address, now_ns: int, *, receiver_id: int
    ) -> None:
        """Record why a stream was refused.

        Args:
            refusal: The reason.
            setup: The SETUP that was refused.
            source: The address it came from.
            now_ns: The time now.
            receiver_id: Receiver id of the endpoint.
        """
        key = Key(receiver_id, setup.stream_id, setup.session_id, source)
        self._entries.pop(key, None)
        if len(self._entries) >= MAX_REFUSALS:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = RefusalEntry(refusal, now_ns)

    def forget(self, *, receiver_id: int, stream_id: int, session_id: int) -> None:
        """Remove a stream that has an image now."""
        for key in [
            key for key in self._entries if key[:3] == (receiver_id, stream_id, session_id)
        ]:
            del self._entries[key]

    def at(
        self, receiver_id: int, since_ns: int, *, stream_id: int, session_id: int | None
    ) -> tuple[RefusalSeen, ...]:
        """Return the refusals at an endpoint since a time, of one session or of all."""
        return tuple(
            seen(key, each)
            for key, each in self._entries.items()
            if (key.receiver_id, key.stream_id) == (receiver_id, stream_id)
            and session_id in {None, key.session_id}
            and each.refused_ns >= since_ns
        )

    def of(
        self, sender: Address, since_ns: int, *, stream_id: int, session_id: int
    ) -> tuple[RefusalSeen, ...]:
        """Return the refusals of a publication of this same driver since a time.

        Args:
            sender: The address its socket is bound to.
            since_ns: The time.
            stream_id: Stream id of the publication.
            session_id: Session id of the publication.
        """
        return tuple(
            seen(key, each)
            for key, each in self._entries.items()
            if (key.stream_id, key.session_id) == (stream_id, session_id)
            and is_from(key.source, sender)
            and each.refused_ns >= since_ns
        )


def seen(key: Key, entry: RefusalEntry) -> RefusalSeen:
    """Return a refusal in readable form."""
    return RefusalSeen(
        session_id=key.session_id,
        source=format_address(key.source),
        reason=entry.refusal.reason(),
    )


def is_from(source: Address, sender: Address) -> bool:
    """Return whether a datagram from `source` may come from a socket bound to `sender`."""
    return source[1] == sender[1] and (sender[0] in WILDCARDS or source[0] == sender[0])
