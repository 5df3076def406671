"""Snapshot and updates: join a stream of changes with a state, without gap and without double.

A publisher of changes keeps a state, and says up to which position of its stream the state is
complete. A reader joins the live stream first and keeps what arrives, then gets a snapshot, drops
what the snapshot contains, and applies the rest in order. Positions stand in for sequence numbers
in the messages, as long as one publication is the source. A gap, or another session, begins again.

How a snapshot travels is up to the application: a callable returns it. `looped_snapshots` is one
for snapshots that are repeated on a stream of their own, so that any number of late readers asks
nobody, as exchanges do it.

Invariant: the messages that are kept are bounded; the oldest are dropped, and then only a snapshot
that contains them will do.

Source: none of Aeron's; exchange feeds with a snapshot channel.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, final

import attrs

from aeron_async.client.arguments import check_limit
from aeron_async.client.gaps import Gap, log_length
from aeron_async.client.typed import Undecodable
from aeron_async.client.waiters import Notify
from aeron_async.errors import ClosedError, DecodeError, SnapshotError
from aeron_async.protocol.arguments import check_function
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from aeron_async.client.gaps import GapReader
    from aeron_async.client.image import ImageEvent, ImageEvents, Message
    from aeron_async.client.publication import Publication
    from aeron_async.client.subscription import Subscription

__all__ = [
    "Snapshot",
    "SnapshotReader",
    "SnapshotServer",
    "join_with_snapshot",
    "looped_snapshots",
]

DataT = TypeVar("DataT")
ChangeT = TypeVar("ChangeT")

MAX_KEPT_BYTES: Final = 8 * 1024 * 1024
"""Most bytes that are kept by default while a snapshot is fetched."""
OVERHEAD_BYTES: Final = 256
"""What a message costs beside its payload: empty ones must not fill the memory."""
MAX_ATTEMPTS: Final = 50
"""Most snapshots that are asked for in a row, by default."""
RETRY_DELAY: Final = 0.1
"""Seconds before another snapshot is asked for: the next one must be newer."""
HEADER: Final = Struct("<iiq")
"""Version, session id and position, before the state in a message of a loop."""
VERSION: Final = 1


@final
@attrs.frozen
class Snapshot(Generic[DataT]):
    """A state of a stream of changes.

    Attributes:
        session_id: Session id of the publication of the changes.
        position: Where the last change that the state contains ends, in bytes.
        data: The state, as the application represents it.
    """

    session_id: int
    position: int
    data: DataT


# The publisher.


@final
class SnapshotServer(Generic[DataT]):
    """Publishes changes, and makes snapshots of the state that they lead to.

    Nothing else may offer to the publication.

    Args:
        publication: For the changes; an exclusive one, or one that no one else adds.
        apply: Applies a change to the state: called with the bytes that were offered, in order.
        dump: Returns the state, which must not change afterwards: a copy, or bytes.

    Raises:
        ConfigurationError: `apply` or `dump` cannot be called.
    """

    def __init__(
        self,
        publication: Publication,
        *,
        apply: Callable[[bytes], object],
        dump: Callable[[], DataT],
    ) -> None:
        check_function(apply, "apply")
        check_function(dump, "dump")
        self._publication = publication
        self._apply = apply
        self._dump = dump
        self._position = publication.position
        # Offers of several tasks would otherwise be applied in the order in which the tasks run.
        self._lock = asyncio.Lock()

    async def publish(self, change: bytes) -> int:
        """Offer a change, and apply it once it is in the stream; return its position.

        A change that could not be offered is not applied.

        Raises:
            AeronError: What `offer` has raised.
            Exception: What `apply` has raised; the change is in the stream.
        """
        async with self._lock:
            self._position = await self._publication.offer(change)
            self._apply(change)
            return self._position

    def snapshot(self) -> Snapshot[DataT]:
        """Return the state as it is between two changes."""
        return Snapshot(self._publication.session_id, self._position, self._dump())

    async def loop(
        self, publication: Publication, *, interval: float, encode: Callable[[DataT], bytes]
    ) -> None:
        """Repeat snapshots on a stream of their own, until cancelled; see `looped_snapshots`.

        Args:
            publication: For the snapshots. One for which there is no room is left out.
            interval: Seconds between two snapshots.
            encode: Makes bytes of a state, up to `max_message_length` of the publication.

        Raises:
            MessageTooLongError: The bytes do not fit one message: give `publication` a larger
                `term-length`.
        """
        while True:
            shot = self.snapshot()
            head = HEADER.pack(VERSION, shot.session_id, shot.position)
            # Without a reader, or room, this one is left out: it would be old when it is sent.
            publication.try_offer([head, encode(shot.data)])
            await asyncio.sleep(interval)


# The reader.


@final
class LoopedSnapshots:
    """What `looped_snapshots` returns: call it, and await the next snapshot of the loop."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._undecodable = Undecodable(None)

    @property
    def undecodable_count(self) -> int:
        """Return how many messages were skipped because they are no snapshots."""
        return self._undecodable.count

    async def __call__(self) -> Snapshot[bytes]:
        """Wait for the next snapshot and return it.

        A message that is no snapshot is skipped, counted, and logged once a second at most.

        Raises:
            ClosedError: The subscription for the snapshots is closed.
            BusyError: Another task consumes the subscription.
        """
        # What has arrived before is older than what comes next.
        self._subscription.skip_to_newest()
        async for found in self._subscription:
            data = found.data
            if len(data) >= HEADER.size:
                version, session_id, position = HEADER.unpack_from(data)
                if version == VERSION:
                    return Snapshot(session_id, position, bytes(data[HEADER.size :]))
            message = f"{len(data)} bytes are no snapshot of version {VERSION}"
            self._undecodable.refuse(found, DecodeError(message))
        message = (
            f"the subscription for the snapshots of {self._subscription.channel} is closed: no "
            "snapshot can come; close it after the reader of the changes"
        )
        raise ClosedError(message)


def looped_snapshots(subscription: Subscription) -> LoopedSnapshots:
    """Return a callable that returns the next snapshot of a loop; for `join_with_snapshot`.

    Args:
        subscription: For the stream to which `SnapshotServer.loop` publishes.
    """
    return LoopedSnapshots(subscription)


class KeptMessages:
    """The messages that have arrived since the live stream was joined.

    Attributes:
        session_id: Their session; None before the first one.
        join_position: Behind which none is missing, in bytes.
        dropped_count: How many were dropped for lack of room.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._messages: deque[Message] = deque()
        self._length = 0
        self.session_id: int | None = None
        self.join_position = 0
        self.dropped_count = 0
        self.arrived = Notify()
        self.failure: BaseException | None = None
        self.is_over = False

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, item: Message | Gap) -> None:
        """Keep a message; a gap or another session begins again behind it."""
        if isinstance(item, Gap):
            if item.to_position is not None:
                self.begin(item.session_id, item.to_position)
            elif item.session_id == self.session_id:
                self.begin(None, 0)
            return
        image = item.image
        if image.session_id != self.session_id:
            # Of an image that was read before, more may be missing than it has joined without.
            self.begin(
                image.session_id, item.position - log_length(len(item.data), image.mtu_length)
            )
        self._messages.append(item)
        self._length += len(item.data) + OVERHEAD_BYTES
        while self._length > self._max_bytes:
            dropped = self._messages.popleft()
            self._length -= len(dropped.data) + OVERHEAD_BYTES
            self.join_position = dropped.position
            self.dropped_count += 1

    def begin(self, session_id: int | None, position: int) -> None:
        """Forget what was kept; nothing of this session is missing behind a position."""
        self._messages.clear()
        self._length = 0
        self.session_id, self.join_position = session_id, position

    def behind(self, shot: Snapshot[Any]) -> deque[Message] | None:
        """Return the messages behind a snapshot; None if it does not join them."""
        if shot.session_id != self.session_id or shot.position < self.join_position:
            return None
        while self._messages and self._messages[0].position <= shot.position:
            self._messages.popleft()
        messages, self._messages, self._length = self._messages, deque(), 0
        return messages


async def keep(reader: GapReader[Message], kept: KeptMessages) -> None:
    """Keep what arrives until cancelled."""
    try:
        async for item in reader:
            kept.put(item)
            kept.arrived.notify()
    except Exception as error:  # noqa: BLE001 - it reaches the reader
        kept.failure = error
    finally:
        kept.is_over = True
        kept.arrived.notify()


async def anext_or_none(events: ImageEvents) -> ImageEvent | None:
    """Return the next event; None at the end."""
    return await anext(events, None)


@final
class SnapshotReader(AsyncIterator["Snapshot[DataT] | Message"], Generic[DataT]):
    """What `join_with_snapshot` returns: a snapshot, then each message behind it, in order.

    Another snapshot follows where the stream has a gap, or another publisher has taken over, even
    if that has sent nothing yet: it replaces the state. While a snapshot is fetched, a task reads
    the subscription. Of several publishers, that of the snapshot is followed.

    Attributes:
        fetched_count: How many snapshots were asked for.
    """

    def __init__(
        self,
        subscription: Subscription,
        fetch: Callable[[], Awaitable[Snapshot[DataT]]],
        *,
        max_kept_bytes: int,
        max_attempts: int,
        retry_delay: float,
    ) -> None:
        self._subscription = subscription
        self._fetch = fetch
        self._kept = KeptMessages(check_limit(max_kept_bytes, "max_kept_bytes"))
        self._max_attempts = check_limit(max_attempts, "max_attempts")
        self._retry_delay = retry_delay
        self._reader = subscription.with_gaps()
        # Those that were kept, and not delivered yet; None before a snapshot.
        self._messages: deque[Message] | None = None
        # One that has joined and was not delivered: what delivers it may be cancelled.
        self._shot: Snapshot[DataT] | None = None
        # Up to where the state is complete: a snapshot may be ahead of the live stream.
        self._position = 0
        # The images that there were when the last snapshot was asked for, and their sessions.
        self._images_then: dict[int, int] = {}
        # Whether one may have come or gone while it was fetched: the event was taken by then.
        self._looks = False
        self._tasks = TaskOwner()
        self.fetched_count: int = 0

    @property
    def dropped_count(self) -> int:
        """Return how many kept messages were dropped because `max_kept_bytes` was reached."""
        return self._kept.dropped_count

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Snapshot[DataT] | Message:
        """Wait for the next snapshot or message and return it.

        Iteration ends when the subscription closes.

        Raises:
            SnapshotError: No snapshot joined the live stream in `max_attempts`.
            BusyError: Another task consumes the subscription.
            ClosedError: The driver failed.
            Exception: What `fetch` has raised.
        """
        kept = self._kept
        if self._shot is not None:
            # Another call was cancelled before it could end the task that reads.
            await self._tasks.aclose()
            return self._take_shot()
        while self._messages is not None:
            if self._messages:
                return self._messages.popleft()
            item = None if self._looks else await self._reader.next_or_change()
            if item is None:
                if self._has_new_publisher():
                    self._messages = None
                continue
            if isinstance(item, Gap):
                is_ours = item.session_id == kept.session_id
                is_behind = item.to_position is not None and item.to_position <= self._position
                if not is_ours or is_behind:
                    # The state contains it, or it is of a session that has ended before.
                    continue
            elif item.session_id == kept.session_id:
                if item.position <= self._position:
                    continue
                return item
            kept.put(item)
            self._messages = None
        return await self._join()

    def _has_new_publisher(self) -> bool:
        """Return whether another publisher has come that may say nothing for long."""
        looks, self._looks = self._looks, False
        session_id, then = self._kept.session_id, self._images_then
        images = self._subscription.images
        others = [each.image_id for each in images if each.session_id != session_id]
        if not others:
            return False
        # If it was gone before the snapshot was asked for, another one says the same.
        is_gone = len(others) == len(images) and (not looks or session_id in then.values())
        return is_gone or not then.keys() >= set(others)

    def _follow(self, session_id: int) -> None:
        """Join the session of a snapshot instead of another one, if that is older or idle."""
        kept = self._kept
        images = {each.session_id: each for each in self._subscription.images}
        if session_id == kept.session_id or session_id not in images:
            return
        # Oldest first.
        order = list(images)
        is_older = kept.session_id in order and order.index(kept.session_id) > order.index(
            session_id
        )
        if not (is_older and len(kept)):
            kept.begin(session_id, images[session_id].position)

    async def _join(self) -> Snapshot[DataT]:
        """Fetch snapshots until one joins what arrives in the meantime."""
        kept = self._kept
        # A call that was cancelled may have left a task that has not ended yet.
        await self._tasks.aclose()
        # What an earlier task has met is not what this one meets.
        kept.is_over, kept.failure = False, None
        self._tasks.start(keep(self._reader, kept), "aeron-snapshot-keep")
        try:
            while kept.session_id is None and not kept.is_over:
                if images := self._subscription.images:
                    kept.begin(images[-1].session_id, images[-1].position)
                    break
                await self._wait_for_image()
            for attempt in range(self._max_attempts):
                if attempt:
                    await asyncio.sleep(self._retry_delay)
                if kept.is_over:
                    break
                self.fetched_count += 1
                images = self._subscription.images
                self._images_then = {each.image_id: each.session_id for each in images}
                shot = await self._fetch()
                self._follow(shot.session_id)
                messages = kept.behind(shot)
                if messages is not None:
                    self._messages, self._position = messages, shot.position
                    self._shot, self._looks = shot, True
                    break
        finally:
            await self._tasks.aclose()
        if self._shot is not None:
            return self._take_shot()
        failure, kept.failure = kept.failure, None
        if failure is not None:
            raise failure
        if kept.is_over and self._subscription.is_closed:
            raise StopAsyncIteration
        message = (
            f"none of {self._max_attempts} snapshots joins the live stream of session "
            f"{kept.session_id} at {kept.join_position}: look whether they are of another "
            "publisher or older than the stream, or raise max_kept_bytes, max_attempts or "
            "retry_delay"
        )
        raise SnapshotError(message)

    def _take_shot(self) -> Snapshot[DataT]:
        shot, self._shot = self._shot, None
        assert shot is not None, "asked for by who has seen it"
        return shot

    async def _wait_for_image(self) -> None:
        """Wait until there is an image, a message, or the end of the subscription."""
        kept = self._kept
        async with self._subscription.image_events() as events:
            waiting = [
                self._tasks.start(kept.arrived.wait(), "aeron-snapshot-message"),
                self._tasks.start(anext_or_none(events), "aeron-snapshot-image"),
            ]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waiting:
                    each.cancel()

    async def aclose(self) -> None:
        """End the iteration: another task may read the subscription."""
        await self._tasks.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


def join_with_snapshot(
    subscription: Subscription,
    fetch: Callable[[], Awaitable[Snapshot[DataT]]],
    *,
    max_kept_bytes: int = MAX_KEPT_BYTES,
    max_attempts: int = MAX_ATTEMPTS,
    retry_delay: float = RETRY_DELAY,
) -> SnapshotReader[DataT]:
    """Iterate over a snapshot and the messages behind it, without gap and without double.

    Args:
        subscription: For the stream of changes, which has one publisher at a time.
        fetch: Asks for a snapshot and returns it, such as a call of the publisher; it is called
            again if the snapshot is too old, or of another session. Give it a timeout of its own.
        max_kept_bytes: Most bytes that are kept while a snapshot is fetched, of payload and 256
            for each message; then the oldest are dropped, and only a newer snapshot will do.
        max_attempts: Most snapshots that are asked for in a row.
        retry_delay: Seconds between two attempts.

    Raises:
        ConfigurationError: An argument is not valid.
    """
    return SnapshotReader(
        subscription,
        fetch,
        max_kept_bytes=max_kept_bytes,
        max_attempts=max_attempts,
        retry_delay=retry_delay,
    )
