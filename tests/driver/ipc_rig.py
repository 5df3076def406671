"""An IPC publication with the means to offer to it and to read from it, and who hears of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aeron_async.driver.core.ipc_publication import IpcPublication
from aeron_async.driver.core.stream_counters import IpcPublicationCounters
from aeron_async.driver.core.subscriber_position import SubscriberPosition
from aeron_async.logbuffer.appender import ExclusiveAppender, SharedAppender
from aeron_async.logbuffer.metadata import LogType
from aeron_async.logbuffer.reader import TermReader
from tests.driver.fakes import CONTEXT, SECOND, Counts, make_params
from tests.logbuffer.logs import SESSION_ID, STREAM_ID, make_log

if TYPE_CHECKING:
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.publication import PublicationState
    from aeron_async.driver.core.subscriber_position import Subscribable

UNTETHERED = {
    "untethered_window_limit_timeout_ns": 5 * SECOND,
    "untethered_linger_timeout_ns": 2 * SECOND,
    "untethered_resting_timeout_ns": 10 * SECOND,
}


class Reader:
    """One subscription, as its client sees it."""

    def __init__(self, rig: IpcRig, subscriber: SubscriberPosition) -> None:
        self.rig = rig
        self.subscriber = subscriber
        self.has_image = True
        self.reader = TermReader(rig.log, subscriber.position.get())

    @property
    def position(self) -> int:
        return self.subscriber.position.get()

    def read(self, limit: int = 10_000) -> list[bytes]:
        """Read what is there, move the position, and wake the publication if it wants that."""
        found: list[tuple[bytes, int, int]] = []
        before = -1
        while self.has_image and before != self.reader.position and len(found) < limit:
            before = self.reader.position
            self.reader.read_messages(
                found,
                limit=limit - len(found),
                limit_position=self.rig.publication.rebuild_position,
            )
        if self.has_image and self.reader.position > self.position:
            self.subscriber.position.set(self.reader.position)
            if self.position > self.rig.publication.consumption_trigger:
                self.rig.is_woken = True
        return [data for data, _, _ in found]


class IpcRig:
    """An IPC publication, its publisher and its subscribers."""

    def __init__(
        self,
        *,
        context: DriverContext = CONTEXT,
        spec: dict[str, Any] | None = None,
        **params: Any,
    ) -> None:
        is_exclusive = params.setdefault("is_exclusive", True)
        kind = LogType.EXCLUSIVE_PUBLICATION if is_exclusive else LogType.CONCURRENT_PUBLICATION
        self.log = make_log(log_type=kind, **(UNTETHERED | (spec or {})))
        self.counts = Counts(context)
        self.window_changes = 0
        self.progress = 0
        self.rejections: list[str] = []
        self.told: list[tuple[str, int]] = []
        self.acceptances = 0
        self.readers: dict[int, Reader] = {}
        self.is_woken = False
        self.counters = IpcPublicationCounters.allocate(
            self.counts.manager,
            registration_id=1,
            session_id=SESSION_ID,
            stream_id=STREAM_ID,
            channel="aeron:ipc",
            client_id=1,
            is_exclusive=is_exclusive,
        )
        self.publication = IpcPublication(
            registration_id=1,
            channel="aeron:ipc",
            log=self.log,
            params=make_params(self.log, **params),
            context=context,
            counters=self.counters,
            system_counters=self.counts.system,
            listener=self,
            readers=self,
            now_ns=0,
        )
        self.publication.window_listeners.append(self)
        self.appender = ExclusiveAppender(self.log) if is_exclusive else SharedAppender(self.log)

    def on_window_changed(self) -> None:
        self.window_changes += 1

    def on_image_rejected(self, publication: IpcPublication, reason: str) -> None:
        assert publication is self.publication
        self.rejections.append(reason)

    def on_accepting_subscriptions(self, publication: IpcPublication) -> None:
        assert publication is self.publication
        self.acceptances += 1

    def on_progress(self) -> None:
        self.progress += 1

    def on_unavailable_image(self, source: Subscribable, subscriber: SubscriberPosition) -> None:
        assert source is self.publication
        self.readers[subscriber.subscription_id].has_image = False
        self.told.append(("unavailable", subscriber.subscription_id))

    def on_available_image(self, source: Subscribable, subscriber: SubscriberPosition) -> None:
        assert source is self.publication
        self.readers[subscriber.subscription_id] = Reader(self, subscriber)
        self.told.append(("available", subscriber.subscription_id))

    def subscribe(self, subscription_id: int = 0, **options: Any) -> Reader:
        subscriber = SubscriberPosition(
            subscription_id=subscription_id,
            position=self.counts.new(self.publication.join_position),
            on_progress=self.on_progress,
            **options,
        )
        self.publication.add_subscriber(subscriber)
        reader = self.readers[subscription_id] = Reader(self, subscriber)
        return reader

    def unsubscribe(self, subscription_id: int = 0) -> None:
        self.readers.pop(subscription_id).has_image = False
        subscriber = self.publication.remove_subscriber(subscription_id)
        if subscriber is not None:
            subscriber.position.close()

    def offer(self, data: bytes) -> int:
        """Offer up to the publisher limit, once more after a rotation; return what came of it."""
        limit = self.publication.publisher_limit
        result = self.appender.offer(data, limit=limit)
        return self.appender.offer(data, limit=limit) if result == -3 else result

    def fill(self, length: int = 992) -> int:
        """Offer until there is no room; return how many messages that took."""
        count = 0
        while self.offer(bytes(length)) > 0:
            count += 1
        return count

    def was_woken(self) -> bool:
        """Return whether a reader has asked for a poll since the last time."""
        is_woken, self.is_woken = self.is_woken, False
        return is_woken

    def is_accepting(self) -> bool:
        return self.publication.is_accepting_subscriptions

    def is_connected(self) -> bool:
        assert self.publication.is_connected == self.log.metadata.is_connected
        return self.publication.is_connected

    def state(self) -> PublicationState:
        return self.publication.state

    @property
    def limit(self) -> int:
        assert self.counters.publisher_limit.get() == self.publication.publisher_limit
        return self.publication.publisher_limit
