"""What does not begin to be recorded is remarked on once, and only where a slip is likely."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from aeron_async.archive import stalled_recordings
from aeron_async.archive.api import RecordingSignal, RecordingSignalEvent, SourceLocation
from aeron_async.archive.signals import SignalHub
from aeron_async.archive.stalled_recordings import StalledRecordingWarner
from aeron_async.client.waiters import Notify
from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import OfferTimeoutError
from aeron_async.waits import SubscriptionSeen, WaitReason, Why
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
    hints = StalledRecordingWarner(SignalHub(), hint_ns=5 * NS_PER_SECOND, is_elsewhere=True)
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
    StalledRecordingWarner(
        SignalHub(), hint_ns=5 * NS_PER_SECOND, is_elsewhere=is_elsewhere
    ).expect(7, channel, 5, location)
    found = hinted(timers)
    assert [remedy in each["remedy"] for each in found] == [True] * (remedy is not None)


@pytest.mark.parametrize("how", ["began before", "began", "forgotten", "stream", "closed"])
def test_nothing_is_said_of_what_has_begun_or_is_not_wanted(how: str, timers: Timers) -> None:
    signals = SignalHub()
    hints = StalledRecordingWarner(signals, hint_ns=5 * NS_PER_SECOND, is_elsewhere=True)
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
    said = Notify()
    lines: list[Any] = []

    def warning(event: str, **fields: Any) -> None:
        lines.append((event, fields))
        said.notify()

    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    async with served(open_archive, waiting_hint_ns=10_000_000) as (_, _, remote):
        monkeypatch.setattr(
            stalled_recordings,
            "log",
            SimpleNamespace(warning=warning, is_enabled_for=lambda _: True),
        )
        subscription_id = await remote.start_recording(channel, 5)
        while len(lines) < 2:
            await said.wait()
        await remote.stop_recording_subscription(subscription_id)
    # The archive's own log has it, and that of who asked; the former knows more.
    assert [event for event, _ in lines] == ["recording_waits"] * 2
    reasons = [fields["reason"] for _, fields in lines]
    assert sum("no publication of this driver has this channel" in each for each in reasons) == 1


async def test_a_recording_over_udp_of_what_this_driver_publishes_names_ssc(
    open_archive: OpenArchive, unused_udp_port: int
) -> None:
    """The spy that records does not connect the publication, and two lines say what does.

    The recording has begun: what waits is the offer.
    """
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    with capture_logs() as lines:
        async with open_archive(waiting_hint_ns=50_000_000) as (aeron, archive):
            await archive.start_recording(channel, 5)
            publication = await aeron.add_publication(channel, 5)
            with pytest.raises(OfferTimeoutError, match="add ssc=true") as caught:
                await publication.offer(b"x", timeout=0.2)
            await archive.stop_recording(channel, 5)
            await archive.start_recording(f"{channel}|alias=ssc", 6)
            simulated = await aeron.add_publication(f"{channel}|ssc=true", 6)
            await simulated.offer(b"x", timeout=5)
    assert caught.value.why is not None
    assert caught.value.why.reason is WaitReason.SPIES_DO_NOT_CONNECT
    (line,) = [each for each in lines if each["event"] == "wait_lasted_long"]
    assert (line["operation"], line["cause"]) == ("offer", "spies_do_not_connect")
    assert "ssc=true" in line["why"]


def test_a_recording_in_this_process_says_what_was_seen(timers: Timers) -> None:
    def explain() -> Why:
        return Why(
            reason=WaitReason.NOTHING_HEARD,
            subject="no publication on it",
            sight="nothing was heard",
            remedy="publish",
            seen=SubscriptionSeen(),
        )

    hints = StalledRecordingWarner(SignalHub(), hint_ns=NS_PER_SECOND, is_elsewhere=False)
    hints.expect(7, UDP, 5, SourceLocation.REMOTE, explain=explain)
    hints.expect(8, UDP, 5, SourceLocation.LOCAL, explain=explain)
    theirs, ours = hinted(timers)
    assert (theirs["reason"], theirs["remedy"], theirs["seconds"]) == (
        "no publication on it: nothing was heard",
        "publish",
        1.0,
    )
    assert ours["reason"].startswith("no publication on it: nothing was heard; LOCAL records")
    assert "SourceLocation.REMOTE" in ours["remedy"]


def test_no_hint_is_given_where_hints_are_off(timers: Timers) -> None:
    hints = StalledRecordingWarner(SignalHub(), hint_ns=0, is_elsewhere=True)
    hints.expect(7, UDP, 5, SourceLocation.LOCAL)
    assert hinted(timers) == []
