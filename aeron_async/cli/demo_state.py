"""What the two processes of the demonstration have reported, put together."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, final

import attrs

from aeron_async.cli.demo_phases import PHASES, Phase
from aeron_async.cli.figures import per_second
from aeron_async.cli.pauses import Pauses
from aeron_async.clock import NS_PER_SECOND

__all__ = ["DemoState", "PhaseSummary", "Snapshot"]

HISTORY_LENGTH: Final = 60
_PHASES: Final = {phase.key: phase for phase in PHASES}


@final
@attrs.frozen(kw_only=True)
class Snapshot:
    """How things stand, and how fast they went since the snapshot before.

    Attributes:
        elapsed_s: Since the first report.
        waiting_share: Part of the time in which the publisher waited for room, from 0 to 1.
        room: Bytes the publisher may offer at once, of `room_limit` at most.
        latency: Summary of what was measured since, as JSON has it; None if nothing was.
    """

    phase: Phase
    elapsed_s: float
    sent: int
    received: int
    sent_per_second: float
    received_per_second: float
    bytes_per_second: float
    waits: int
    waits_per_second: float
    waiting_share: float
    room: int
    room_limit: int
    retransmits: int
    naks: int
    latency: dict[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        """Return the snapshot as JSON has it."""
        values = attrs.asdict(self, filter=lambda attribute, _: attribute.name != "phase")
        rounded = {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in values.items()
        }
        return {"type": "sample", "phase": self.phase.key} | rounded


@final
@attrs.frozen(kw_only=True)
class PhaseSummary:
    """What became of one phase; `latency` is one way, or there and back where messages echo."""

    phase: Phase
    sent: int
    received: int
    sent_per_second: float
    bytes_per_second: float
    waits: int
    waiting_share: float
    retransmits: int
    latency: dict[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON has it."""
        values = attrs.asdict(self, filter=lambda attribute, _: attribute.name != "phase")
        return {"phase": self.phase.key} | values


@final
class DemoState:
    """Takes in reports, and says how things stand.

    Attributes:
        duration_s: Of all phases together.
        history: Messages received a second, most recent last.
    """

    def __init__(self, duration_s: float) -> None:
        self.duration_s = duration_s
        self.history: deque[float] = deque(maxlen=HISTORY_LENGTH)
        self._latest: dict[str, dict[str, Any]] = {}
        self._previous: dict[str, dict[str, Any]] = {}
        self._ends: dict[str, dict[str, Any]] = {}
        self._started_ns: int | None = None

    def take(self, role: str, event: dict[str, Any]) -> Snapshot | None:
        """Take in one report; return a new snapshot if it makes one.

        The publisher's reports set the pace; the subscriber's latest is put beside them.
        """
        if event["event"] == "end":
            self._ends[role] = event
        if event["event"] != "sample":
            return None
        if role == "publisher" and self._started_ns is None:
            self._started_ns = event["at_ns"]
        if role in self._latest:
            self._previous[role] = self._latest[role]
        self._latest[role] = event
        is_complete = self._previous.keys() >= {"publisher", "subscriber"}
        return self._snapshot() if role == "publisher" and is_complete else None

    def _snapshot(self) -> Snapshot:
        published, received = self._latest["publisher"], self._latest["subscriber"]
        received_rate = self._rate("subscriber", "received")
        self.history.append(received_rate)
        assert self._started_ns is not None
        return Snapshot(
            phase=_PHASES[published["phase"]],
            elapsed_s=(published["at_ns"] - self._started_ns) / NS_PER_SECOND,
            sent=published["sent"],
            received=received["received"],
            sent_per_second=self._rate("publisher", "sent"),
            received_per_second=received_rate,
            bytes_per_second=self._rate("subscriber", "bytes"),
            waits=published["waits"],
            waits_per_second=self._rate("publisher", "waits"),
            waiting_share=min(1.0, self._rate("publisher", "waited_ns") / NS_PER_SECOND),
            room=published["room"],
            room_limit=published["room_limit"],
            retransmits=published["retransmits"],
            naks=received["naks"],
            latency=published["latency"] or received["latency"],
        )

    def _rate(self, role: str, name: str) -> float:
        latest, previous = self._latest[role], self._previous[role]
        return per_second(latest[name] - previous[name], latest["at_ns"] - previous["at_ns"])

    @property
    def is_intact(self) -> bool:
        """Return whether everything arrived, once and in order."""
        return not self._ends["subscriber"]["out_of_order"] and all(
            summary.sent == summary.received for summary in self.summaries()
        )

    @property
    def pauses(self) -> Pauses:
        """Return those of both processes, after they have ended."""
        ends = self._ends.values()
        return Pauses(
            sum(end.get("loop_pauses", 0) for end in ends),
            max(end.get("longest_loop_pause_ns", 0) for end in ends),
        )

    def summaries(self) -> list[PhaseSummary]:
        """Return what became of each phase, after both processes have ended."""
        pairs = zip(
            self._ends["publisher"]["phases"], self._ends["subscriber"]["phases"], strict=True
        )
        return [_summary(sent, received) for sent, received in pairs]


def _summary(sent: dict[str, Any], received: dict[str, Any]) -> PhaseSummary:
    elapsed_ns = int(sent["seconds"] * NS_PER_SECOND)
    return PhaseSummary(
        phase=_PHASES[sent["phase"]],
        sent=sent["sent"],
        received=received["received"],
        sent_per_second=per_second(sent["sent"], elapsed_ns),
        bytes_per_second=per_second(received["bytes"], elapsed_ns),
        waits=sent["waits"],
        waiting_share=min(1.0, sent["waited_seconds"] / sent["seconds"]),
        retransmits=sent["retransmits"],
        latency=sent["round_trip"] or received["latency"],
    )
