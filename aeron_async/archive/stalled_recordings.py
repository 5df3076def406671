"""Warnings, one each, about requested recordings that do not start, and the likely reason.

By default an archive records what its own driver publishes. A user who publishes through another
driver would otherwise wait, without any message, for a recording that never starts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, final

from aeron_async.archive.api import SourceLocation
from aeron_async.archive.recording_channels import recording_key
from aeron_async.clock import NS_PER_SECOND
from aeron_async.logs import get_logger, within
from aeron_async.protocol.channel_uri import ChannelUri, Media
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.archive.api import RecordingSignalEvent
    from aeron_async.archive.signals import SignalHub
    from aeron_async.logs import LogBudget
    from aeron_async.waits import Why

__all__ = ["StalledRecordingWarner"]

MOST_REMEMBERED: Final = 256
LOCAL_REASON: Final = "LOCAL records only what the archive's own driver publishes, with a spy"
WITHOUT_SPY: Final = "if another process publishes, leave aeron-spy: out of the channel"
REMEDIES: Final = {
    Media.UDP: "if another process publishes, give source_location=SourceLocation.REMOTE",
    Media.IPC: (
        "publish with a client of the archive's own driver, or over aeron:udp: aeron:ipc does not "
        "leave a driver"
    ),
}
REMOTE_REASON: Final = "aeron:ipc and spies carry only what the archive's own driver publishes"

log: Final = get_logger(__name__)


@final
class StalledRecordingWarner:
    """Waits for requested recordings to start, and logs a warning if one does not.

    Args:
        signals: Signals of recordings.
        hint_ns: How long a recording may take to start before the warning; 0 disables it.
        is_elsewhere: Whether the archive is in another process, which publishers over IPC do not
            reach.
        log_budget: Budget of the log lines, which clients of a served archive can cause. None is
            unlimited.
    """

    def __init__(
        self,
        signals: SignalHub,
        *,
        hint_ns: int,
        is_elsewhere: bool,
        log_budget: LogBudget | None = None,
    ) -> None:
        self._log_budget = log_budget
        self._hint_s = hint_ns / NS_PER_SECOND
        self._is_elsewhere = is_elsewhere
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._keys: dict[int, str] = {}
        # A recording may start before its request is answered.
        self._begun: deque[int] = deque(maxlen=MOST_REMEMBERED)
        self._stop_listening = signals.listen(self._on_signal)

    def expect(
        self,
        subscription_id: int,
        channel: str | ChannelUri,
        stream_id: int,
        source_location: SourceLocation,
        *,
        explain: Callable[[], Why] | None = None,
    ) -> int:
        """Begin to wait for the first recording of a subscription, and return the subscription id.

        Args:
            subscription_id: Id of the subscription that records.
            channel: Channel of the request.
            stream_id: Stream within the channel.
            source_location: Source location of the request.
            explain: Returns why the subscription waits, if it belongs to this process; without it
                only likely mistakes are logged.
        """
        uri = ChannelUri.parse(channel) if isinstance(channel, str) else channel
        is_in_process_only = uri.is_spy or uri.media is Media.IPC
        if source_location is SourceLocation.LOCAL:
            is_likely_mistake = self._is_elsewhere or uri.media is Media.UDP
        else:
            is_likely_mistake = self._is_elsewhere and is_in_process_only
        reason, remedy = LOCAL_REASON, REMEDIES[uri.media]
        if source_location is SourceLocation.REMOTE:
            reason, remedy = REMOTE_REASON, WITHOUT_SPY if uri.is_spy else remedy
        is_worth_a_line = is_likely_mistake or explain is not None
        if is_worth_a_line and self._hint_s and subscription_id not in self._begun:
            mistake = (reason, remedy) if is_likely_mistake else None
            self._keys[subscription_id] = recording_key(uri, stream_id)
            self._timers[subscription_id] = asyncio.get_running_loop().call_later(
                self._hint_s, self._on_timer, subscription_id, uri, stream_id, mistake, explain
            )
        return subscription_id

    def forget(self, subscription_id: int) -> None:
        """Stop waiting for a subscription: it records, or is not wanted any more."""
        timer = self._timers.pop(subscription_id, None)
        if timer is not None:
            del self._keys[subscription_id]
            timer.cancel()

    def forget_stream(self, channel: str, stream_id: int) -> None:
        """Stop waiting for the recordings of one channel and stream."""
        key = recording_key(ChannelUri.parse(channel), stream_id)
        for subscription_id in [each for each, known in self._keys.items() if known == key]:
            self.forget(subscription_id)

    def close(self) -> None:
        """Stop waiting for all; a second call does nothing."""
        for subscription_id in list(self._timers):
            self.forget(subscription_id)
        self._stop_listening()
        self._stop_listening = lambda: None

    def _on_signal(self, event: RecordingSignalEvent) -> None:
        self._begun.append(event.subscription_id)
        self.forget(event.subscription_id)

    def _on_timer(
        self,
        subscription_id: int,
        uri: ChannelUri,
        stream_id: int,
        mistake: tuple[str, str] | None,
        explain: Callable[[], Why] | None,
    ) -> None:
        self.forget(subscription_id)
        why = None if explain is None else explain()
        reason, remedy = mistake or ("", "" if why is None else why.remedy)
        if why is not None:
            sight = str(why).removesuffix(f"; {why.remedy}")
            reason = f"{sight}; {reason}" if reason else sight
        within(self._log_budget, log).warning(
            "recording_waits",
            channel=printable(uri),
            stream_id=stream_id,
            seconds=self._hint_s,
            reason=reason,
            remedy=remedy,
        )
