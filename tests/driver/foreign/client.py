"""A client of another process, in this one: it has the files of the directory and nothing else.

The words that the driver watches fire when `FakeWatcher.look` is called, so that a test decides
when the driver sees what a client has written.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import pytest

from aeron_async.concurrent.atomic_buffer import AtomicBuffer, Mapping
from aeron_async.concurrent.broadcast import BroadcastReceiver
from aeron_async.concurrent.cnc_file import CNC_FILE, CncLayout, load_layout
from aeron_async.concurrent.error_log import read_error_log
from aeron_async.concurrent.ring_buffer import ManyToOneRingBuffer
from aeron_async.counters import CountersReader
from aeron_async.driver import media_driver
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.foreign_streams import PublicationWatch
from aeron_async.errors import ConfigurationError
from aeron_async.logbuffer.appender import AppendResult, ConcurrentAppender, ExclusiveAppender
from aeron_async.logbuffer.log_buffers import LogBuffers
from aeron_async.logbuffer.metadata import LogType
from aeron_async.logbuffer.reader import TermReader
from aeron_async.protocol.control_protocol import (
    AddCounter,
    AddExclusivePublication,
    AddPublication,
    AddSubscription,
    ControlMessage,
    CounterReady,
    ErrorResponse,
    ImageBuffersReady,
    PublicationBuffersReady,
    SubscriptionReadyResponse,
    response_of,
)
from aeron_async.testing.world import simulate, tell_and_close

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
    from pathlib import Path

    from typing_extensions import Buffer

    from aeron_async.driver.client_command_adapter import ClientCommandAdapter
    from aeron_async.driver.media_driver import MediaDriver
    from aeron_async.idle_strategy import IdleStrategy
    from aeron_async.protocol.control_protocol import ClientCommand
    from aeron_async.testing.host import Host
    from aeron_async.testing.world import World

T = TypeVar("T")

IPC: Final = "aeron:ipc?term-length=64k"
UDP: Final = "aeron:udp?endpoint=127.0.0.1:20121|term-length=64k"
BY_NAME: Final = UDP.replace("127.0.0.1", "localhost")
STREAM_ID: Final = 1001
TURNS: Final = 40
"""More turns of the loop than any command takes that waits for no time to pass."""
VALUE_WORDS: Final = 16


class FakeWord:
    """One word that is watched, as `WatchedWord`."""

    def __init__(
        self, watcher: FakeWatcher, view: memoryview, callback: Callable[[], object]
    ) -> None:
        self._watcher = watcher
        self._view: memoryview | None = view
        self.callback = callback
        self._is_due: Callable[[int], bool] | None = None

    def arm(self, expected: int) -> None:
        assert self._view is not None, "a word that was removed is armed"
        self._is_due = lambda value: value != expected

    def arm_at_least(self, value: int) -> None:
        assert self._view is not None, "a word that was removed is armed"
        self._is_due = lambda found: found >= value

    def disarm(self) -> bool:
        was_armed, self._is_due = self._is_due is not None, None
        return was_armed

    def remove(self) -> None:
        self._is_due = None
        if self._view is not None:
            self._view.release()
            self._view = None
            self._watcher.words.remove(self)

    @property
    def is_armed(self) -> bool:
        return self._is_due is not None

    def fire_if_due(self) -> None:
        if self._view is None or self._is_due is None or not self._is_due(self._view[0]):
            return
        self._is_due = None
        self.callback()


class FakeWatcher:
    """Looks at the words when it is told to, as `Watcher` does all the time."""

    def __init__(self, _loop: object = None, *, word_limit: int = 65_536) -> None:
        self.word_limit = word_limit
        self.words: list[FakeWord] = []
        self.is_closed = False

    def add(
        self,
        buffer: Buffer,
        offset: int,
        width: int,
        callback: Callable[[], object],
        *,
        is_command: bool = False,
    ) -> FakeWord:
        del is_command
        size = width // 8
        assert offset % size == 0, f"a word at {offset}"
        if len(self.words) >= self.word_limit:
            message = f"the watcher has all {self.word_limit} words that it may have"
            raise ConfigurationError(message)
        view = memoryview(buffer).cast("B")[offset : offset + size].cast("q" if size == 8 else "i")
        word = FakeWord(self, view, callback)
        self.words.append(word)
        return word

    def use_bell(self, *_: object) -> None:
        """It looks when it is told to, whether a bell rings or not."""

    def keep_bell(self, _: int) -> None:
        """See `use_bell`."""

    def look(self) -> None:
        for word in tuple(self.words):
            word.fire_if_due()

    def close(self) -> None:
        self.is_closed = True
        for word in tuple(self.words):
            word.remove()


class Publisher:
    """A publication of a foreign client: its log, and the counter with its limit."""

    def __init__(self, client: ForeignClient, ready: PublicationBuffersReady) -> None:
        self.client = client
        self.ready = ready
        self.id = ready.correlation_id
        self.log = client.map_log(ready.log_file)
        is_exclusive = self.log.metadata.log_type is LogType.EXCLUSIVE_PUBLICATION
        self.appender = (ExclusiveAppender if is_exclusive else ConcurrentAppender)(self.log)

    @property
    def limit(self) -> int:
        return self.client.value(self.ready.publisher_limit_id)

    def offer(self, data: bytes) -> int:
        """Offer once, or twice if the log was rotated."""
        result = self.appender.offer(data, limit=self.limit)
        if result == AppendResult.ADMIN_ACTION:
            result = self.appender.offer(data, limit=self.limit)
        return result

    async def offer_all(self, messages: list[bytes]) -> None:
        """Offer each message, and let the driver act when there is no room."""
        for message in messages:
            for _ in range(100):
                if self.offer(message) > 0:
                    break
                await self.client.settle()
            else:
                error = f"no room at {self.appender.position}, where the limit is {self.limit}"
                raise AssertionError(error)
        await self.client.settle()


class Reader:
    """An image of a foreign client: its log, and the counter with its position."""

    def __init__(self, client: ForeignClient, ready: ImageBuffersReady) -> None:
        self.client = client
        self.ready = ready
        self.log = client.map_log(ready.log_file)
        self.reader = TermReader(self.log, self.position)

    @property
    def position(self) -> int:
        return self.client.value(self.ready.subscriber_position_id)

    @position.setter
    def position(self, value: int) -> None:
        self.client.set_value(self.ready.subscriber_position_id, value)

    def read(self) -> list[bytes]:
        """Read what is there, and store the position."""
        found: list[tuple[bytes, int, int]] = []
        before = -1
        while before != self.reader.position:
            before = self.reader.position
            self.reader.read_messages(found, limit=1_000)
        self.position = self.reader.position
        return [data for data, _, _ in found]

    async def take(self, count: int) -> list[bytes]:
        """Read so many messages, and let the driver act between."""
        taken = self.read()
        for _ in range(20 * count):
            if len(taken) >= count:
                break
            await self.client.settle()
            taken += self.read()
        await self.client.settle()
        return taken


class ForeignClient:
    """A client that writes commands into the ring, and reads the broadcast buffer."""

    def __init__(self, directory: Path, watcher: FakeWatcher, client_id: int | None = None) -> None:
        fd = os.open(directory / CNC_FILE, os.O_RDWR)
        length = os.fstat(fd).st_size
        self.memory = Mapping(fd, length)
        os.close(fd)
        layout = load_layout(self.memory, length)
        assert isinstance(layout, CncLayout)
        self.layout = layout
        self.directory = directory
        self.watcher = watcher
        self.ring_buffer = self._section(layout.to_driver_buffer)
        self.ring = ManyToOneRingBuffer(self.ring_buffer)
        self.receiver = BroadcastReceiver(self._section(layout.to_clients_buffer))
        while self.receiver.receive() is not None:
            pass
        view = memoryview(self.memory)
        values = layout.counters_values_buffer.of(view)
        self.counters = CountersReader(values, layout.counters_metadata_buffer.of(view))
        self.errors_view = layout.error_log_buffer.of(view)
        self.words = values.cast("q")
        self.subscription_ids: set[int] = set()
        self._announced: list[ImageBuffersReady] = []
        self.client_id = self.ring.next_correlation_id() if client_id is None else client_id

    def _section(self, section: tuple[int, int]) -> AtomicBuffer:
        return AtomicBuffer(self.memory, *section)

    # Counters and logs.

    def value(self, counter_id: int) -> int:
        return self.words[counter_id * VALUE_WORDS]

    def set_value(self, counter_id: int, value: int) -> None:
        self.words[counter_id * VALUE_WORDS] = value

    def errors(self) -> list[str]:
        """Return what the driver has recorded in its log of errors."""
        return [each.text for each in read_error_log(self.errors_view)]

    def map_log(self, file: bytes) -> LogBuffers:
        fd = os.open(file, os.O_RDWR)
        mapping = Mapping(fd, os.fstat(fd).st_size)
        os.close(fd)
        return LogBuffers.map(mapping)

    # Commands and answers.

    def send(self, kind: type[ClientCommand], **fields: Any) -> int:
        """Write a command, and return its correlation id."""
        correlation_id = fields.pop("correlation_id", None)
        if correlation_id is None:
            correlation_id = self.ring.next_correlation_id()
        for name, value in fields.items():
            if isinstance(value, str):
                fields[name] = value.encode()
        owner = fields.pop("client_id", self.client_id)
        command = kind(client_id=owner, correlation_id=correlation_id, **fields)
        assert self.ring.write(kind.TYPE_ID, command.encode())
        return int(correlation_id)

    async def settle(self) -> None:
        """Let the driver see what was written, and do all that follows at once."""
        for _ in range(TURNS):
            self.watcher.look()
            await asyncio.sleep(0)

    def received(self) -> list[ControlMessage]:
        """Return the messages since the last call."""
        messages: list[ControlMessage] = []
        while (found := self.receiver.receive()) is not None:
            message = response_of(*found)
            assert message is not None, found
            messages.append(message)
        self._announced += [each for each in messages if isinstance(each, ImageBuffersReady)]
        return messages

    async def ask(self, kind: type[ClientCommand], **fields: Any) -> list[ControlMessage]:
        """Write a command; return all messages that follow, but the announcement of the client."""
        self.received()
        self.send(kind, **fields)
        await self.settle()
        return [
            each
            for each in self.received()
            if not (isinstance(each, CounterReady) and each.correlation_id == self.client_id)
        ]

    async def ask_for(self, wanted: type[T], kind: type[ClientCommand], **fields: Any) -> T:
        """Write a command that has one answer of a kind, and return it."""
        answers = await self.ask(kind, **fields)
        found = [each for each in answers if isinstance(each, wanted)]
        assert len(found) == 1, answers
        return found[0]

    async def refused(self, kind: type[ClientCommand], **fields: Any) -> int:
        """Write a command that is refused, and return the code."""
        (answer,) = await self.ask(kind, **fields)
        assert isinstance(answer, ErrorResponse), answer
        return answer.code

    async def add_publication(
        self, channel: str = IPC, stream_id: int = STREAM_ID, *, is_exclusive: bool = False
    ) -> Publisher:
        kind = AddExclusivePublication if is_exclusive else AddPublication
        ready = await self.ask_for(
            PublicationBuffersReady, kind, channel=channel, stream_id=stream_id
        )
        return Publisher(self, ready)

    async def add_subscription(
        self, channel: str = IPC, stream_id: int = STREAM_ID
    ) -> tuple[SubscriptionReadyResponse, list[Reader]]:
        """Add a subscription; return the answer, and the images that came with it."""
        answers = await self.ask(AddSubscription, channel=channel, stream_id=stream_id)
        ready = answers[0]
        assert isinstance(ready, SubscriptionReadyResponse), answers
        self.subscription_ids.add(ready.correlation_id)
        return ready, await self.images()

    async def images(self) -> list[Reader]:
        """Return the images of this client that were announced since the last call."""
        await self.settle()
        self.received()
        announced, self._announced = self._announced, []
        return [
            Reader(self, each)
            for each in announced
            if each.subscription_registration_id in self.subscription_ids
        ]

    async def add_counter(self, label: str = "mine") -> CounterReady:
        return await self.ask_for(
            CounterReady, AddCounter, counter_type_id=1_001, key=b"", label=label
        )

    @property
    def heartbeat_id(self) -> int:
        """Id of the counter with the heartbeat of this client."""
        record = self.counters.find(type_id=11, registration_id=self.client_id)
        assert record is not None, "the driver does not know the client"
        return record.counter_id

    def beat(self, value: int) -> None:
        self.set_value(self.heartbeat_id, value)


class Directory:
    """A driver with an Aeron directory, and clients of both kinds."""

    def __init__(self, driver: MediaDriver, path: Path, watcher: FakeWatcher) -> None:
        self.driver = driver
        self.path = path
        self.watcher = watcher

    @property
    def adapter(self) -> ClientCommandAdapter:
        adapter = self.driver.conductor.adapter
        assert adapter is not None
        return adapter

    def client(self, client_id: int | None = None) -> ForeignClient:
        return ForeignClient(self.path, self.watcher, client_id)

    async def settle(self) -> None:
        for _ in range(TURNS):
            self.watcher.look()
            await asyncio.sleep(0)

    async def pass_time(self, seconds: float, *clients: ForeignClient) -> None:
        """Let virtual time pass, in which these clients say that they live."""
        for _ in range(round(seconds * 4)):
            for client in clients:
                client.beat(client.value(client.heartbeat_id) + 250)
            await asyncio.sleep(0.25)
            self.watcher.look()


@contextmanager
def slow_names(directory: Directory) -> Iterator[Callable[[], None]]:
    """Let no name resolve until what is returned is called."""
    is_resolved = asyncio.Event()
    queue = directory.driver.conductor._queue
    look_up = queue.look_up

    async def look_up_slowly(resolving: Coroutine[Any, Any, Any]) -> Any:
        has_begun = False

        async def resolve() -> Any:
            nonlocal has_begun
            has_begun = True
            try:
                await is_resolved.wait()
                return await resolving
            finally:
                resolving.close()

        try:
            return await look_up(resolve())
        finally:
            # It may go on without its client, or never begin.
            if not has_begun:
                resolving.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue, "look_up", look_up_slowly)
        yield is_resolved.set


def small_context(path: Path, **changes: Any) -> DriverContext:
    """Return settings of a driver with small files."""
    fields: dict[str, Any] = {
        "aeron_directory": str(path),
        "counters_buffer_length": 1 << 20,
        "loss_report_buffer_length": 4_096,
        "term_buffer_length": 64 * 1024,
        "ipc_term_buffer_length": 64 * 1024,
        "publication_linger_timeout_ns": 1_000_000_000,
    }
    return DriverContext(**(fields | changes))


@asynccontextmanager
async def directory_on(
    host: Host, path: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any
) -> AsyncIterator[Directory]:
    """Run a driver with a directory on a host."""
    watchers: list[FakeWatcher] = []

    def make_watcher(loop: object, _: IdleStrategy, *, word_limit: int) -> FakeWatcher:
        watchers.append(FakeWatcher(loop, word_limit=word_limit))
        return watchers[-1]

    async def at_once(function: Callable[..., T], *args: object, **_: object) -> T:
        return function(*args)

    monkeypatch.setattr(media_driver, "Watcher", make_watcher)
    # Other threads do not follow virtual time.
    monkeypatch.setattr(anyio.to_thread, "run_sync", at_once)
    driver = host.driver(small_context(path, **changes))
    async with driver:
        directory = Directory(driver, path, watchers[-1])
        yield directory
    assert watchers[-1].is_closed


def in_directory(
    story: Callable[..., Awaitable[object]] | None = None, **changes: Any
) -> Callable[..., Any]:
    """Make a test of a story: it takes a `Directory`, and runs in virtual time.

    Args:
        story: The coroutine function; its other parameters are those of the test.
        changes: Settings of the driver.
    """
    if story is None:
        return partial(in_directory, **changes)
    told = story

    def test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **others: Any) -> None:
        async def tell(world: World) -> None:
            place = directory_on(world.host("alice"), tmp_path / "aeron", monkeypatch, **changes)
            async with place as directory:
                await told(directory, **others)

        simulate(partial(tell_and_close, tell), limit_s=1e6)

    first, *others = signature(story).parameters.values()
    own = [
        each
        for each in signature(test).parameters.values()
        if each.name != "others" and each.name not in signature(told).parameters
    ]
    assert first.name == "directory"
    test.__name__, test.__module__, test.__doc__ = story.__name__, story.__module__, story.__doc__
    test.__signature__ = Signature([*own, *others])  # type: ignore[attr-defined]
    return test


@contextmanager
def committed_between_looks() -> Iterator[None]:
    """Let the next look of a watch meet a frame that is claimed, and the one after it see it."""
    is_committed = PublicationWatch._is_committed
    is_claimed = [True]

    def look(watch: PublicationWatch, publication: Any, length: int) -> bool:
        return is_committed(watch, publication, length) and not (is_claimed and is_claimed.pop())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PublicationWatch, "_is_committed", look)
        yield
    assert not is_claimed, "no look has met the frame"
