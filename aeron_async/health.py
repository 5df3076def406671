"""Whether a service does its work, for orchestrators, which ask, and for systemd, which is told.

`not_ready` reads a snapshot of statistics, and returns reasons. `SystemdNotifier` tells systemd
that the service is ready, what it does, that its event loop turns, and that it ends.

Source: systemd `sd_notify(3)`, `sd_watchdog_enabled(3)`.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from itertools import islice
from typing import TYPE_CHECKING, Final, Self, final

from aeron_async.errors import ConfigurationError
from aeron_async.logs import get_logger
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from types import TracebackType

    from aeron_async.stats import Stats

__all__ = ["SystemdNotifier", "not_ready", "status_of"]

REASONS_MAX: Final = 100
"""Most reasons that `not_ready` returns; the last one then counts the others."""
ENDING: Final = frozenset({"draining", "linger", "done"})
"""The states of a publication that its clients have closed."""
SETTINGS: Final = {
    "image_log_bytes": "image_log_budget_length",
    "counters_count": "counters_buffer_length",
}
"""The settings of the budgets."""
MAY_WAIT: Final = re.compile(r"[?|]alias=rpc-server(?:[/|]|$)")
"""The channels of servers of calls, which may have no client for as long as they like."""
RETRY_S: Final = 0.1
LAST_WORD_S: Final = 0.5
STATUS_INTERVAL_S: Final = 10.0
"""How often the status is looked at without a watchdog."""
US_PER_SECOND: Final = 1_000_000
WATCHDOG_DIGITS_MAX: Final = 18
_log: Final = get_logger(__name__)


# What is missing.


def not_ready(stats: Stats, *, expect: Iterable[int] | None = None) -> list[str]:
    """Return why a service is not ready, a text for each reason; none if it is.

    A publication needs a subscriber, a subscription an image, and each budget must have room. What
    the statistics do not know is no reason, and neither is a publication that was closed, nor a
    server of calls without clients: its channels have the alias `rpc-server`. There are 100 reasons
    at most, and then one that counts the others.

    Args:
        stats: A snapshot, such as `aeron.stats()` returns.
        expect: The ids of the streams that must be there and work, and of no others; by default
            all streams that are there must work.

    Raises:
        ConfigurationError: `expect` has something that is no stream id.
    """
    found = reasons(stats, None if expect is None else checked(expect))
    kept = list(islice(found, REASONS_MAX))
    more = sum(1 for _ in found)
    return [*kept, f"{more} more reasons"] if more else kept


def status_of(stats: Stats) -> str:
    """Return a line about a driver, such as `12 streams, 0 in trouble`."""
    streams = len(stats.publications) + len(stats.subscriptions)
    troubles = sum(1 for _ in reasons(stats, None))
    return f"{streams} stream{'' if streams == 1 else 's'}, {troubles} in trouble"


def checked(expect: Iterable[int]) -> Collection[int]:
    """Return stream ids that are expected, in order, each once.

    Raises:
        ConfigurationError: One of them is none.
    """
    if isinstance(expect, str | bytes):
        message = (
            f"expect={printable(repr(expect), SHORT)} must be stream ids, such as [1001, 1002]"
        )
        raise ConfigurationError(message)
    ids = dict.fromkeys(expect)
    for each in ids:
        if not isinstance(each, int) or isinstance(each, bool):
            message = (
                f"expect has {printable(repr(each), SHORT)}, and a stream id is a whole number"
            )
            raise ConfigurationError(message)
    return ids


def reasons(stats: Stats, expect: Collection[int] | None) -> Iterator[str]:
    """Yield why a service is not ready."""
    there: set[int] = set()
    rows = stats.publications
    for stream_id, channel, is_connected, state in zip(
        *map(rows.column, ("stream_id", "channel", "is_connected", "state")), strict=True
    ):
        if state in ENDING:
            continue
        there.add(stream_id)
        if is_connected is False and (
            stream_id in expect if expect is not None else not MAY_WAIT.search(channel)
        ):
            yield f"the publication of stream {stream_id} at {printable(channel)} has no subscriber"
    subscriptions = stats.subscriptions
    for stream_id, channel, image_count in zip(
        *map(subscriptions.column, ("stream_id", "channel", "image_count")), strict=True
    ):
        there.add(stream_id)
        if image_count == 0 and (
            stream_id in expect if expect is not None else not MAY_WAIT.search(channel)
        ):
            yield f"the subscription to stream {stream_id} at {printable(channel)} has no image"
    for stream_id in expect or ():
        if stream_id not in there:
            yield f"there is no publication of stream {stream_id}, and no subscription to it"
    for budget in stats.driver.budgets:
        if budget.used >= budget.limit:
            setting = SETTINGS.get(budget.name)
            remedy = f": raise {setting}" if setting else ""
            name = printable(budget.name, SHORT)
            yield f"the budget {name} is full, {budget.used:,} of {budget.limit:,}{remedy}"


# Systemd.


@final
class SystemdNotifier:
    """Tells systemd about a service of `Type=notify`; `with` says at its end that the service ends.

    Where nobody wants to know, which is where `NOTIFY_SOCKET` is not set, it does nothing. An error
    never reaches the service: what could not be sent is counted, and sent again a moment later.

    The pings of the watchdog come from the event loop in which `ready` was called, at half of
    `WATCHDOG_USEC`: if that loop stands still, systemd acts. They go on until the block ends, also
    after `stopping`, so that a service may take its time to end.

    Args:
        status: Returns what `systemctl status` shows; called with each ping, or each ten seconds.
        environ: Where the variables are; by default the environment of the process.

    Attributes:
        is_active: Whether somebody wants to know.
        watchdog_s: The time in seconds within which systemd wants a ping; 0 if it wants none.
        sent_count: Datagrams that were sent.
        failed_count: Datagrams that could not be sent.
    """

    def __init__(
        self,
        status: Callable[[], str] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        variables = os.environ if environ is None else environ
        self._status = status
        self._address = address_of(variables.get("NOTIFY_SOCKET", ""))
        self.is_active: Final = bool(self._address)
        self.watchdog_s: Final = watchdog_of(variables) if self.is_active else 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        # What was not sent yet, by name: the newest of each.
        self._unsent: dict[str, str] = {}
        self._shown = ""
        self._is_stopping = self._is_closed = False
        self._is_failing = self._is_status_failing = False
        self.sent_count = 0
        self.failed_count = 0

    def ready(self, status: str = "") -> None:
        """Say that the service works, and begin the pings; called in its event loop."""
        if self._is_closed:
            return
        fields = {"READY": "1", "MAINPID": f"{os.getpid()}"}
        if status:
            fields["STATUS"] = self._shown = printable(status)
        self._send(**fields)
        if self._timer is None:
            self._ping()

    def status(self, text: str) -> None:
        """Say what the service does now; control characters are escaped."""
        self._shown = printable(text)
        self._send(STATUS=self._shown)

    def stopping(self) -> None:
        """Say, once, that the service ends; the pings go on."""
        if not self._is_stopping:
            self._is_stopping = True
            self._send(STOPPING="1")

    def close(self) -> None:
        """Say that the service ends, unless that was said, and end the pings.

        The last word may wait a moment for a service manager that is busy.
        """
        if not self._is_closed and self.is_active:
            if not self._is_stopping:
                self._unsent["STOPPING"] = "1"
            if self._unsent:
                self._flush(LAST_WORD_S)
        self._is_closed = self._is_stopping = True
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()
        self._timer = self._retry = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _ping(self) -> None:
        """Send what is due, and come again: late if the loop was late."""
        interval_s = self.watchdog_s / 2 or (STATUS_INTERVAL_S if self._status else 0.0)
        if not self.is_active or not interval_s:
            return
        self._timer = asyncio.get_running_loop().call_later(interval_s, self._ping)
        fields = {"WATCHDOG": "1"} if self.watchdog_s else {}
        text = self._status_text()
        if text != self._shown:
            fields["STATUS"] = self._shown = text
        if fields:
            self._send(**fields)

    def _status_text(self) -> str:
        """Return the status; that of before if there is none now."""
        if self._status is None or self._is_stopping:
            return self._shown
        try:
            text = printable(self._status())
        except Exception as error:  # noqa: BLE001 - the caller's, which must not end the pings
            if not self._is_status_failing:
                _log.error("systemd_status_failed", exc_info=error)
            self._is_status_failing = True
            return self._shown
        self._is_status_failing = False
        return text

    def _send(self, **fields: str) -> None:
        if self.is_active and not self._is_closed:
            self._unsent |= fields
            self._flush()

    def _flush(self, wait_s: float = 0.0) -> None:
        """Send what was not sent yet; if that fails, try again a moment later.

        Args:
            wait_s: How long to wait for a service manager that is busy: the loop waits with it.
        """
        text = "\n".join(f"{name}={value}" for name, value in self._unsent.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.settimeout(wait_s)
                sock.connect(self._address)
                sock.send(text.encode())
        except OSError as error:
            self.failed_count += 1
            if not self._is_failing:
                _log.warning("systemd_not_notified", error=printable(str(error)))
            self._is_failing = True
            # A ping says that the loop turns now: one that is late says nothing.
            self._unsent.pop("WATCHDOG", None)
            self._try_again()
            return
        self._is_failing = False
        self._unsent.clear()
        self.sent_count += 1

    def _try_again(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # The next call tries.
        if self._unsent and self._retry is None:
            self._retry = loop.call_later(RETRY_S, self._again)

    def _again(self) -> None:
        self._retry = None
        if self._unsent:  # A later call may have sent it.
            self._flush()


def address_of(text: str) -> str:
    """Return the address of a socket for notices; empty if there is none that can be used."""
    if text.startswith("@"):
        return f"\0{text[1:]}"
    if text and not text.startswith("/"):
        _log.warning(
            "systemd_not_notified",
            error=f"NOTIFY_SOCKET={printable(text, SHORT)} is no path, and no name that begins "
            "with @",
        )
        return ""
    return text


def watchdog_of(variables: Mapping[str, str]) -> float:
    """Return within which time this process must ping, in seconds; 0 if it must not."""
    if variables.get("WATCHDOG_PID", "") not in {"", f"{os.getpid()}"}:
        return 0.0
    text = variables.get("WATCHDOG_USEC", "")
    if text.isascii() and text.isdigit() and len(text) <= WATCHDOG_DIGITS_MAX:
        return int(text) / US_PER_SECOND
    if text:
        _log.warning(
            "systemd_not_notified",
            error=f"WATCHDOG_USEC={printable(text, SHORT)} is no number of microseconds",
        )
    return 0.0
