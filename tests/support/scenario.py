"""What a run is made of: a topology, its workload and its troubles, as values.

Source: swarm testing (Groce and others, 2012): a run that has every feature at once hides what a
run with few of them shows.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.clock import NS_PER_SECOND

if TYPE_CHECKING:
    from aeron_async.protocol.header import FrameType
    from aeron_async.testing.fates import Conditions

__all__ = ["FEATURES", "Reader", "Scenario", "Stream", "Trouble", "TroubleKind"]

FEATURES: Final = (
    "bandwidth",
    "bursts",
    "cancellation",
    "churn",
    "claims",
    "corruption",
    "crash",
    "delay",
    "drift",
    "duplication",
    "end_of_positions",
    "exclusive",
    "first_frames",
    "flapping",
    "jitter",
    "jump",
    "large_messages",
    "late_join",
    "loss",
    "one_way",
    "partition",
    "pause",
    "polling",
    "reordering",
    "restart",
    "send_errors",
    "several_terms",
    "slow_reader",
    "small_mtu",
    "term_id_wrap",
    "unreliable",
    # Appended, so that older seeds keep the features they had.
    "collision",
    "windows",
    "hostile",
    "multicast",
    "min_flow_control",
    "runs",
    "forger",
    "lists",
    "handlers",
    "window_auto",
    "columns",
    "turns",
    "destinations",
    "silence",
    "rejoin",
)


class TroubleKind(Enum):
    """What happens to one host for a while."""

    PARTITION = auto()
    ONE_WAY = auto()
    FLAPPING = auto()
    PAUSE = auto()
    CRASH = auto()
    RESTART = auto()
    DRIFT = auto()
    JUMP = auto()
    SEND_ERRORS = auto()


@attrs.frozen(kw_only=True)
class Trouble:
    """One trouble of one host.

    Attributes:
        kind: What happens.
        at_ns: When it begins, from the start of the run.
        duration_ns: How long it lasts.
        host: Index of the host.
        amount: How much, where that means something: a rate, or nanoseconds.
    """

    kind: TroubleKind
    at_ns: int
    duration_ns: int
    host: int
    amount: float = 0.0

    @property
    def duration_s(self) -> float:
        """Return how long it lasts, in seconds."""
        return self.duration_ns / NS_PER_SECOND


@attrs.frozen(kw_only=True)
class Stream:
    """One publication, and how it is written to.

    Attributes:
        host: Index of the host that publishes.
        endpoint_host: Index of the host that receives.
        stream_id: Of the stream.
        parameters: Of the channel, besides its endpoint.
        is_exclusive: Whether the publication is.
        has_claims: Whether some messages are claimed and some claims aborted.
        lengths: Of the messages, in bytes.
        gap_ns: Mean time between two offers.
        cancel_chance: For each offer.
        has_lists: Whether some messages are offered as lists; only where it is exclusive.
        is_contested: Whether another host publishes under the same session.
        is_multicast: Whether it goes to a group, and to readers on any host.
        has_columns: Whether its lists are columns, as pyarrow has them.
        destinations: Indices of the hosts it is sent to one by one; none of a stream that has one
            receiver, or a group.
    """

    host: int
    endpoint_host: int
    stream_id: int
    parameters: str
    is_exclusive: bool
    has_claims: bool
    lengths: tuple[int, ...]
    gap_ns: int
    cancel_chance: float
    is_contested: bool = False
    is_multicast: bool = False
    has_lists: bool = False
    has_columns: bool = False
    destinations: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class Reader:
    """One subscription, and how it is read.

    Attributes:
        host: Index of the host.
        endpoint_host: Index of the host that publishers send to; of a group, which one it is.
        stream_id: Of the stream.
        parameters: Of the channel, besides its endpoint.
        kind: `iterate`, `batches`, `poll` or `handler`.
        starts_at_ns: When it is added, from the start of the run.
        lives_ns: After which time it is closed and added again; 0 is never.
        stalls: Times and durations, in nanoseconds, at which it does not read.
        is_reliable: Whether gaps are repaired.
        is_multicast: Whether it is a member of a group.
        is_spread: Whether it is one of several that a stream is sent to, each at its own host.
        linger_ns: How long a batch waits for more messages.
        leave_chance: For each batch, that it is left to the next reader, who is the same.
    """

    host: int
    endpoint_host: int
    stream_id: int
    parameters: str
    kind: str
    starts_at_ns: int
    lives_ns: int
    stalls: tuple[tuple[int, int], ...]
    is_reliable: bool
    is_multicast: bool = False
    is_spread: bool = False
    linger_ns: int = 0
    leave_chance: float = 0.0


@attrs.frozen(kw_only=True)
class Scenario:
    """A whole run.

    Attributes:
        seed: It was drawn from.
        features: Those that are in it.
        host_count: Hosts, the first of which receives.
        conditions: Of every link from the publishers' hosts, and of every link towards them.
        first_frames: Frame type and how many of its first are lost, for each.
        streams: The publications.
        readers: The subscriptions.
        troubles: In the order in which they begin.
        duration_ns: Until when there is trouble; then all is well.
    """

    seed: int
    features: frozenset[str]
    host_count: int
    conditions: tuple[Conditions, Conditions]
    first_frames: tuple[tuple[FrameType, int], ...]
    streams: tuple[Stream, ...]
    readers: tuple[Reader, ...]
    troubles: tuple[Trouble, ...]
    duration_ns: int

    @property
    def is_exact(self) -> bool:
        """Return whether every byte can be held to what was offered."""
        return "corruption" not in self.features

    @property
    def has_forger(self) -> bool:
        """Return whether a stranger sends frames in the publishers' names.

        Where gaps are filled rather than repaired, nothing contradicts what was forged.
        """
        return "forger" in self.features and "unreliable" not in self.features

    @property
    def may_fall_silent(self) -> bool:
        """Return whether a publisher may be unheard for a while, or be gone."""
        return not self.features.isdisjoint(
            {"partition", "one_way", "flapping", "pause", "crash", "restart", "jump", "drift"}
            | {"send_errors", "bursts", "corruption"}
        )

    @property
    def is_late(self) -> bool:
        """Return whether genuine datagrams, or answers, may come long after a forged one was read.

        Then their publisher may have moved on too far to be asked for what it has sent.
        """
        return not self.features.isdisjoint(
            {"loss", "bursts", "reordering", "delay", "jitter", "bandwidth", "send_errors", "drift"}
        )

    @property
    def may_lose_images(self) -> bool:
        """Return whether silence may end an image before its stream has ended."""
        # A SETUP that was held up for seconds makes an image where its stream no longer is, if a
        # subscription has just come back: too far behind to be repaired, it ends in silence.
        is_stale = "churn" in self.features and not self.features.isdisjoint(
            {"duplication", "reordering"}
        )
        # The fastest sets the pace of a group unless it is told otherwise; others may be lapped.
        is_lapped = "multicast" in self.features and "min_flow_control" not in self.features
        # One that gets its SETUP late joins far behind, if the others were faster.
        is_lapped = is_lapped or "destinations" in self.features
        # At its last position a stream can say no more where it is.
        is_lapped = is_lapped or (
            "end_of_positions" in self.features
            and not self.features.isdisjoint({"silence", "slow_reader"})
        )
        return (
            is_stale
            or is_lapped
            or not self.features.isdisjoint(
                {"partition", "one_way", "flapping", "pause", "crash", "restart", "jump", "drift"}
                | {"send_errors", "bandwidth", "corruption", "bursts", "delay", "collision"}
                | {"forger"}
            )
        )
