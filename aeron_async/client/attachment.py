"""What a client holds while it is attached to a driver of another process.

Source: Aeron `Aeron.Context.conclude`, `ClientConductor`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from contextlib import ExitStack, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final
from weakref import finalize, ref

from aeron_async.aeron_directory import DIRECTORY_VARIABLE
from aeron_async.client.attached_streams import (
    AttachedImage,
    CounterCell,
    MappedLogs,
)
from aeron_async.client.driver_proxy import DriverProxy
from aeron_async.clock import NEVER_NS, NS_PER_MS, NS_PER_SECOND
from aeron_async.doorbell import BELL_KEY, BELL_TYPE_ID, CLIENT_BELL_NS, ClientBells
from aeron_async.driver.core.context import DriverContext
from aeron_async.errors import DriverError, DriverTimeoutError, ErrorCode, RegistrationError
from aeron_async.logs import get_logger
from aeron_async.protocol.control_protocol import (
    AddCounter,
    ControlMessage,
    CounterReady,
    RemoveCounter,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.aeron_directory import AeronDirectory
    from aeron_async.client.attached_streams import AttachedSubscription
    from aeron_async.protocol.control_protocol import ImageBuffersReady
    from aeron_async.watcher import Spinner, Watcher

__all__ = [
    "NOT_HEARD",
    "Attachment",
    "refuse_strategy",
    "wait_for_driver",
]

ATTACH_INTERVAL_S: Final = 0.016
LAPSED_INTERVAL_S: Final = 0.05
SILENCE_MS: Final = 2_000
"""A driver that has not beaten for two of its seconds may have been replaced by another one."""
CATCH_UP_TYPE_ID: Final = 20_001
"""Type of a counter that exists for a moment only."""
REMEDY: Final = (
    "block its event loop for less long, or raise client_liveness_timeout_ns of the driver"
)
NOT_HEARD: Final = f"the media driver has not heard this client in time: {REMEDY}"

log: Final = get_logger(__name__)


async def wait_for_driver(
    look: Callable[[], AeronDirectory | str], context: DriverContext, *, now_ns: Callable[[], int]
) -> AeronDirectory:
    """Return the directory of a driver as soon as there is one.

    A wait that lasts longer than `waiting_hint_ns` is logged once, with what it waits for.

    Args:
        look: Returns the directory if it has an active driver; if not, why not.
        context: Says how long to wait.
        now_ns: Reads the clock, in nanoseconds.

    Raises:
        DriverTimeoutError: There was none within `driver_timeout_ms`.
    """
    timeout_ms, began_ns = context.driver_timeout_ms, now_ns()
    hint_ns = context.waiting_hint_ns or NEVER_NS
    while isinstance(found := look(), str):
        waited_ns = now_ns() - began_ns
        if waited_ns >= hint_ns:
            hint_ns = NEVER_NS
            seconds = round(waited_ns / NS_PER_SECOND, 3)
            log.warning("wait_lasted_long", operation="connect", seconds=seconds, why=found)
        if waited_ns >= timeout_ms * NS_PER_MS:
            message = f"no media driver within {timeout_ms} ms, which is driver_timeout_ms: {found}"
            raise DriverTimeoutError(message)
        # A driver that starts wakes no client.
        await asyncio.sleep(ATTACH_INTERVAL_S)
    return found


class Attachment:
    """What a client holds while it is attached: the driver's directory, and what looks at it.

    Args:
        directory: Closed by `close`.
        watcher: Looks at its memory; closed by `close`, and if this raises.
        timeout_ms: How long to wait for an answer of the driver.
        on_event: Called with what the driver says and no request has asked for.
        on_missed: Called if some of that was missed.
        on_failed: Called if that cannot be read.
        on_lapsed: Called in another thread if the client has not run for too long.
        now_ns: Returns the time.
    """

    def __init__(
        self,
        directory: AeronDirectory,
        watcher: Watcher,
        *,
        timeout_ms: int,
        on_event: Callable[[ControlMessage], object],
        on_missed: Callable[[], object],
        on_failed: Callable[[Exception], object],
        on_lapsed: Callable[[], object],
        now_ns: Callable[[], int],
    ) -> None:
        self.directory: Final = directory
        self._now_ns = now_ns
        self._timeout_ms = timeout_ms
        self._on_failed = on_failed
        self._on_lapsed = on_lapsed
        self._is_closed = False
        # The garbage collector may put something there: this queue, unlike an event, allows that.
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._served_ns = now_ns()
        self.logs: Final = MappedLogs(directory.path)
        self.watcher: Final = watcher
        self._heartbeat: CounterCell | None = None
        self._driver_beat_ms, self._heard_ns = directory.heartbeat_ms, now_ns()
        self.values: Final = directory.counter_values()
        self.bells: Final = ClientBells(directory.counters, self.values, now_ns)
        try:
            self._watch_liveness()
            self.proxy: Final = DriverProxy(
                directory,
                self.watcher,
                timeout_ms=timeout_ms,
                on_event=on_event,
                on_missed=on_missed,
                on_failed=on_failed,
                on_written=partial(self.bells.ring_driver, is_command=True),
            )
        except BaseException:
            self._end_thread()
            self.watcher.close()
            self.bells.close()
            self.values.release()
            raise

    def new_spinner(self) -> Spinner | None:
        """Return what lets one reader look for a moment before it sleeps; None if none should."""
        return self.watcher.new_spinner(self._now_ns)

    def _watch_liveness(self) -> None:
        limit_s = self.directory.layout.client_liveness_timeout_ns / NS_PER_SECOND
        thread = threading.Thread(
            target=watch_liveness,
            args=(ref(self), self._ended, min(limit_s, threading.TIMEOUT_MAX)),
            name="aeron-liveness",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, "the system gives no thread for the client") from error
        # A client that is dropped without `aclose` takes its thread with it.
        finalize(self, self._ended.put, None).atexit = False

    def open_heartbeat(self, counter_id: int) -> None:
        """Take the counter in which the client says that it lives.

        Raises:
            ProtocolError: There is no such counter.
        """
        if self._heartbeat is None:
            self._heartbeat = CounterCell(self.directory.counters, self.values, counter_id)

    def check_served(self) -> None:
        """Fail a client that has not run for so long that its driver may have given it up.

        The driver gives its counters away then, and a position must not be stored in one of them.

        Source: Aeron `ClientConductor.checkServiceInterval`.
        """
        if self._is_closed:
            # A reader of a client that comes back may still ask what it has left.
            return
        silent_ns = self._now_ns() - self._served_ns
        limit_ns = self.directory.layout.client_liveness_timeout_ns
        if silent_ns > limit_ns:
            message = (
                f"this client has not run for {silent_ns // NS_PER_MS} ms, of "
                f"{limit_ns // NS_PER_MS} ms that its media driver allows: {REMEDY}"
            )
            self._on_failed(DriverError(message))

    def look_from_thread(self) -> float:
        """Look whether the client has not run for too long; return when to look again, in seconds.

        Its readers then ask `check_served` before the next message.
        """
        limit_ns = self.directory.layout.client_liveness_timeout_ns
        left_ns = self._served_ns + limit_ns - self._now_ns()
        if left_ns >= 0:
            return left_ns / NS_PER_SECOND + LAPSED_INTERVAL_S
        self._on_lapsed()
        return LAPSED_INTERVAL_S

    def open_image(
        self, event: ImageBuffersReady, subscription: AttachedSubscription
    ) -> AttachedImage | None:
        """Return an image of a subscription; None if the driver has closed it in the meantime.

        Raises:
            ProtocolError: The driver names what it does not have.
            DriverError: This user may not open its log, or it is none.
            OSError: The system gives no descriptor or no memory for it now.
        """
        counter_id = event.subscriber_position_id
        cell = CounterCell(self.directory.counters, self.values, counter_id)
        # The driver may have closed the image, or given up the client, and given the counter away.
        is_there = cell.is_position_of(event.subscription_registration_id)
        mapped = None
        try:
            mapped = self.logs.map(event.log_file) if is_there else None
            if mapped is None:
                cell.close()
                return None
            return AttachedImage(
                event,
                log=mapped,
                cell=cell,
                watcher=self.watcher,
                bells=self.bells,
                on_progress=subscription.listener.on_image_progress,
                is_tethered=subscription.uri.is_tether is not False,
            )
        except BaseException:
            cell.close()
            if mapped is not None:
                self.logs.release(mapped)
            raise

    def beat(self, now_ms: int) -> None:
        """Say that the client lives."""
        self._served_ns = self._now_ns()
        # The driver may have given the counter to another client.
        if self._heartbeat is not None and self.is_known():
            self._heartbeat.counter.set(now_ms)
            self._keep_bell()

    async def add_bell(self) -> None:
        """Add a bell, if the driver rings; without one this client looks by itself.

        Raises:
            DriverTimeoutError: The driver did not answer in time.
            ProtocolError: The driver's answer cannot be.
            ClosedError: The client or the driver is closed.
        """
        if not self.bells.has_driver:
            return
        proxy = self.proxy
        command = AddCounter(
            client_id=proxy.client_id,
            correlation_id=proxy.next_id(),
            counter_type_id=BELL_TYPE_ID,
            key=BELL_KEY,
            label=b"bell of client %d" % proxy.client_id,
        )
        try:
            answer = await proxy.ask(command, CounterReady, RemoveCounter)
        except RegistrationError as error:
            log.info("bell_refused", error=str(error))
            return
        # It is there, and the driver's file says so.
        CounterCell(self.directory.counters, self.values, answer.counter_id).close()
        self.bells.use(self.watcher, answer.counter_id)
        self._keep_bell()

    def _keep_bell(self) -> None:
        # The driver may have freed it, for another client that names itself by this one's id.
        if self.bells.is_own(self.proxy.client_id):
            timeout_ns = self.directory.layout.client_liveness_timeout_ns
            self.watcher.keep_bell(min(CLIENT_BELL_NS, timeout_ns // 2))

    async def catch_up(self) -> None:
        """Hear everything that the driver has said by now.

        Raises:
            AeronError: The driver does not answer, or the client is closed.
        """
        # The driver says things in order. Every version of it knows this command, and a counter
        # disturbs nothing else.
        proxy = self.proxy
        answer = await proxy.ask(
            AddCounter(
                client_id=proxy.client_id,
                correlation_id=proxy.next_id(),
                counter_type_id=CATCH_UP_TYPE_ID,
                key=b"",
                label=b"catch-up",
            ),
            CounterReady,
            RemoveCounter,
        )
        proxy.undo(RemoveCounter, answer.correlation_id)

    def is_known(self) -> bool:
        """Return whether the driver counts this client among its own, as far as one can see."""
        return self._heartbeat is None or self._heartbeat.is_of(self.proxy.client_id)

    def why_lost(self) -> DriverTimeoutError | None:
        """Return why the driver is lost, although it has not ended in order; None if it lives."""
        now_ns, path = self._now_ns(), self.directory.path
        beat_ms = self.directory.heartbeat_ms
        if beat_ms != self._driver_beat_ms:
            self._driver_beat_ms, self._heard_ns = beat_ms, now_ns
        silent_ms = (now_ns - self._heard_ns) // NS_PER_MS
        if silent_ms > self._timeout_ms:
            message = (
                f"the media driver at {path} has shown no life for {silent_ms} ms, of "
                f"{self._timeout_ms} ms that driver_timeout_ms allows: it has died or stands "
                "still; start it again, or raise driver_timeout_ms"
            )
            return DriverTimeoutError(message)
        if silent_ms > SILENCE_MS and self.directory.is_replaced():
            message = (
                f"the media driver that this client used has gone from {path}, and another one may "
                "be there: connect again, as reconnect=True does"
            )
            return DriverTimeoutError(message)
        return None

    def _end_thread(self) -> None:
        self._is_closed = True
        self._ended.put(None)

    def close(self) -> None:
        """Stop looking, and unmap the directory, also if a part cannot be closed."""
        self._end_thread()
        with ExitStack() as stack:
            stack.callback(self.directory.close)
            stack.callback(self.values.release)
            stack.callback(self.bells.close)
            stack.callback(self.watcher.close)
            if self._heartbeat is not None:
                stack.callback(self._heartbeat.close)


def watch_liveness(attachment: ref[Attachment], ended: SimpleQueue[None], wait_s: float) -> None:
    """Look, from a thread, whether a client has not run for too long.

    An event loop that is blocked cannot look itself, and the reader that blocks it may go on to
    take messages without a turn of the loop.
    """
    while not has_ended(ended, wait_s):
        found = attachment()
        if found is None:
            return
        wait_s = min(found.look_from_thread(), threading.TIMEOUT_MAX)
        # The thread keeps no client that nothing else does.
        del found


def has_ended(ended: SimpleQueue[None], wait_s: float) -> bool:
    """Wait so long, and return whether the end has come."""
    with suppress(Empty):
        ended.get(timeout=wait_s)
        return True
    return False


def refuse_strategy(supplier: object, name: str, key: str) -> None:
    """Refuse a strategy, which is an object of this process.

    Raises:
        RegistrationError: NOT_SUPPORTED; one is given.
    """
    if supplier is not None:
        message = f"{name} needs a driver of the same process: name a strategy by {key}= instead"
        raise RegistrationError(message, code=ErrorCode.NOT_SUPPORTED)


def context_here() -> DriverContext:
    """Return the settings of the environment, without a word about a directory that is given."""
    variables = {name: text for name, text in os.environ.items() if name != DIRECTORY_VARIABLE}
    return DriverContext.from_environment(variables)
