"""What does not begin to be recorded is remarked on once, and only where a slip is likely."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from aeron_async.archive import begin_hints
from aeron_async.archive.begin_hints import BeginHints
from aeron_async.archive.signal_hub import SignalHub
from aeron_async.archive.values import RecordingSignal, RecordingSignalEvent, SourceLocation
from aeron_async.client.signal import Signal
from tests.archive.test_served import served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.archive.conftest import OpenArchive

UDP = "aeron:udp?endpoint=localhost:24325"
BEGAN = RecordingSignalEvent(
    recording_id=1, subscription_id=7, position=0, signal=RecordingSignal.START
)


class Timers:
    """A loop's timers, which fire when they are told to."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def call_later(self, _delay: float, function: Any, *arguments: Any) -> Timers.Handle:
        handle = Timers.Handle(self, lambda: function(*arguments))
        self.waiting.append(handle)
        return handle

    def fire(self) -> None:
        """Let all the time pass that anybody waits for."""
        for each in list(self.waiting):
            each.function()

    class Handle:
        """One of them."""

        def __init__(self, timers: Timers, function: Any) -> None:
            self._timers = timers
            self.function = function

        def cancel(self) -> None:
            if self in self._timers.waiting:
                self._timers.waiting.remove(self)


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Timers]:
    timers = Timers()
    with monkeypatch.context() as patch:
        patch.setattr("asyncio.get_running_loop", lambda: timers)
        yield timers


def hinted(timers: Timers) -> list[Any]:
    with capture_logs() as lines:
        timers.fire()
    return [each for each in lines if each["event"] == "recording_waits"]


def test_a_stream_that_nobody_brings_is_remarked_on_once(timers: Timers) -> None:
    hints = BeginHints(SignalHub(), is_elsewhere=True)
    assert hints.expect(7, UDP, 5, SourceLocation.LOCAL) == 7
    (line,) = hinted(timers)
    assert (line["channel"], line["stream_id"], line["seconds"]) == (UDP, 5, 5.0)
    assert "SourceLocation.REMOTE" in line["remedy"]
    assert hinted(timers) == []


@pytest.mark.parametrize(
    ("channel", "location", "is_elsewhere", "remedy"),
    [
        (UDP, SourceLocation.LOCAL, False, "SourceLocation.REMOTE"),
        ("aeron:ipc", SourceLocation.LOCAL, True, "aeron:udp"),
        ("aeron:ipc", SourceLocation.LOCAL, False, None),
        (UDP, SourceLocation.REMOTE, True, None),
        ("aeron:ipc", SourceLocation.REMOTE, True, "aeron:udp"),
        ("aeron:ipc", SourceLocation.REMOTE, False, None),
        (f"aeron-spy:{UDP}", SourceLocation.REMOTE, True, "leave aeron-spy: out"),
    ],
)
def test_only_likely_slips_are_remarked_on(
    channel: str,
    location: SourceLocation,
    remedy: str | None,
    timers: Timers,
    *,
    is_elsewhere: bool,
) -> None:
    BeginHints(SignalHub(), is_elsewhere=is_elsewhere).expect(7, channel, 5, location)
    found = hinted(timers)
    assert [remedy in each["remedy"] for each in found] == [True] * (remedy is not None)


@pytest.mark.parametrize("how", ["began before", "began", "forgotten", "stream", "closed"])
def test_nothing_is_said_of_what_has_begun_or_is_not_wanted(how: str, timers: Timers) -> None:
    signals = SignalHub()
    hints = BeginHints(signals, is_elsewhere=True)
    if how == "began before":
        signals.tell(BEGAN)
    hints.expect(7, UDP, 5, SourceLocation.LOCAL)
    if how == "began":
        signals.tell(BEGAN)
    elif how == "forgotten":
        hints.forget(7)
    elif how == "stream":
        hints.forget_stream(f"{UDP}|alias=other", 6)
        hints.forget_stream(f"{UDP}|alias=other", 5)
    elif how == "closed":
        hints.close()
        hints.close()
    assert hinted(timers) == []


async def test_a_client_hears_of_a_stream_that_is_none_of_the_archives_own(
    open_archive: OpenArchive, monkeypatch: pytest.MonkeyPatch, unused_udp_port: int
) -> None:
    monkeypatch.setattr(begin_hints, "HINT_AFTER_S", 0.01)
    said = Signal()
    lines: list[Any] = []

    def warning(event: str, **fields: Any) -> None:
        lines.append((event, fields))
        said.ring()

    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    async with served(open_archive) as (_, _, remote):
        monkeypatch.setattr(begin_hints, "log", SimpleNamespace(warning=warning))
        subscription_id = await remote.start_recording(channel, 5)
        while len(lines) < 2:
            await said.wait()
        await remote.stop_recording_subscription(subscription_id)
        monkeypatch.setattr(begin_hints, "HINT_AFTER_S", 60.0)
        await remote.start_recording(channel, 5)
        await remote.stop_recording(channel, 5)
    # The archive's own log has it, and that of who asked.
    assert [event for event, _ in lines] == ["recording_waits"] * 2
