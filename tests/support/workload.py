"""The work of the hosts of a run: to publish, to subscribe, and to note every message.

A host is one service with one driver and one client. When it crashes and starts again it adds all
its publications and subscriptions again, and the recorder sees new publications and new images.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING

from aeron_async.client.batch_offer import BatchOffer
from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import MaxPositionExceededError
from aeron_async.logbuffer.position import framed_length
from aeron_async.protocol.header import DATA_HEADER_LENGTH
from aeron_async.testing.recorder import ViolationError
from tests.support.scenario import Reader, Stream

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from typing import Any

    from aeron_async.client.aeron import Aeron
    from aeron_async.client.image import FragmentHeader, Image, Message, MessageBatch
    from aeron_async.client.publication import Publication
    from aeron_async.client.subscription import Subscription
    from aeron_async.testing.recorder import Offered, Received, Recorder
    from aeron_async.testing.world import World

__all__ = ["PORT", "Publisher", "Subscriber"]

PORT = 20_121
LAST_MESSAGES = 3
LIST_LENGTH_MAX = 40
POLL_INTERVAL_S = 0.005


def channel_of(world: World, side: Stream | Reader, parameters: str) -> str:
    """Return the channel of one end of a stream."""
    if side.is_multicast:
        endpoint = f"224.20.30.{2 * side.endpoint_host + 1}:{PORT}|interface=10.0.0.0/8"
    elif isinstance(side, Stream) and side.destinations:
        return f"aeron:udp?{parameters}"
    else:
        host = side.host if isinstance(side, Reader) and side.is_spread else side.endpoint_host
        endpoint = f"{world.hosts[host].name}:{PORT}"
    return f"aeron:udp?endpoint={endpoint}" + (f"|{parameters}" if parameters else "")


def end_of_next(offered: Offered, length: int) -> int:
    """Return where the next message of an exclusive publication ends, with padding if needed."""
    framed = framed_length(length, max_payload_length=offered.mtu_length - DATA_HEADER_LENGTH)
    left = offered.term_length - offered.position % offered.term_length
    return offered.position + framed + (left if framed > left else 0)


class Column:
    """Messages as an array of pyarrow holds them; importing that takes longer than many a world.

    Args:
        messages: Them.
        offset: How many others lie before them in the same buffers.
    """

    __module__ = "pyarrow.stand_in"
    type = "binary"
    null_count = 0

    def __init__(self, messages: list[bytes], offset: int) -> None:
        self.offset = offset
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._messages)

    def buffers(self) -> tuple[None, array[int], bytes]:
        """Return no mask, then where each message begins and ends, then what they are."""
        laid = [b"?"] * self.offset + self._messages
        return None, array("i", accumulate(map(len, laid), initial=0)), b"".join(laid)


class NotedBatch(BatchOffer):  # type: ignore[misc]  # It is final for users.
    """A list of messages whose appending is noted piece by piece: a piece may be read at once."""

    __slots__ = ("_noted", "_noted_count", "_offered")

    def __init__(
        self,
        publication: Publication,
        offered: Offered,
        messages: list[tuple[int, bytes]],
        column_offset: int,
    ) -> None:
        self._noted = [(number, len(payload)) for number, payload in messages]
        self._noted_count = 0
        self._offered = offered
        payloads = [payload for _, payload in messages]
        is_column = column_offset >= 0
        super().__init__(publication, Column(payloads, column_offset) if is_column else payloads)

    @property
    def accepted(self) -> int:
        return self._noted_count

    @accepted.setter
    def accepted(self, count: int) -> None:
        for number, length in self._noted[self._noted_count : count]:
            self._offered.on_offered(end_of_next(self._offered, length), number, length)
        self._noted_count = count


class Publisher:
    """One publication of a host's present life.

    Args:
        world: Where.
        stream: Which, and what is offered.
        recorder: Takes note of every offer.
        finishing: Set when all is well: the last messages are to be offered.
        name: For messages to people, and for the dice.

    Attributes:
        offered: The record, once the publication is there.
        publication: Once it is there.
        has_finished: Whether the last messages were offered.
    """

    def __init__(
        self, world: World, stream: Stream, recorder: Recorder, finishing: asyncio.Event, name: str
    ) -> None:
        self.stream = stream
        self.name = name
        self.offered: Offered | None = None
        self.publication: Publication | None = None
        self.has_finished = False
        self._world = world
        self._recorder = recorder
        self._finishing = finishing
        self._random = Random(f"{world.seed}/{name}")

    async def run(self, aeron: Aeron) -> None:
        """Publish until told to finish, then offer the last messages."""
        stream = self.stream
        channel = channel_of(self._world, stream, stream.parameters)
        add = aeron.add_exclusive_publication if stream.is_exclusive else aeron.add_publication
        self.publication = publication = await add(channel, stream.stream_id)
        for host in stream.destinations:
            name = self._world.hosts[host].name
            await publication.add_destination(f"aeron:udp?endpoint={name}:{PORT}")
        self.offered = offered = self._recorder.publishing(publication, aeron)
        try:
            lengths = deque(stream.lengths)
            while lengths and not self._finishing.is_set():
                await self._pause()
                if stream.has_lists and stream.is_exclusive and self._random.random() < 0.5:
                    count = min(len(lengths), self._random.randint(1, LIST_LENGTH_MAX))
                    listed = [lengths.popleft() for _ in range(count)]
                    await self._send_list(publication, offered, listed)
                else:
                    await self._send(publication, offered, lengths.popleft())
            await self._finishing.wait()
            for _ in range(LAST_MESSAGES):
                number, payload = offered.next_message(24)
                offered.on_offered(await publication.offer(payload), number, 24)
        except MaxPositionExceededError:
            await self._finishing.wait()
        self.has_finished = True

    async def _pause(self) -> None:
        """Wait a while, or go on at once as often as not: bursts are what streams are made of."""
        if self._random.random() < 0.5:
            wait_s = self._random.expovariate(1) * 2 * self.stream.gap_ns / NS_PER_SECOND
            await self._world.sleep(min(wait_s, 1.0))

    async def _send(self, publication: Publication, offered: Offered, length: int) -> None:
        number, payload = offered.next_message(length)
        if self.stream.has_claims and length <= publication.max_payload_length:
            await self._claim(publication, offered, number, payload)
        elif self._random.random() < self.stream.cancel_chance:
            await self._offer_in_a_hurry(publication, offered, number, payload)
        else:
            offered.on_offered(await publication.offer(payload), number, length)

    async def _claim(
        self, publication: Publication, offered: Offered, number: int, payload: bytes
    ) -> None:
        claim = await publication.claim(len(payload))
        is_kept = self._random.random() < 0.9
        if is_kept:
            claim.data[:] = payload
            claim.commit()
            offered.on_offered(claim.position, number, len(payload))
        else:
            claim.abort()
            offered.skip_to(claim.position)

    async def _send_list(
        self, publication: Publication, offered: Offered, lengths: list[int]
    ) -> None:
        """Offer a list, or a column; where that was cancelled, what is left of it once more."""
        left = [offered.next_message(length) for length in lengths]
        while left:
            offset = self._random.randrange(3) if self.stream.has_columns else -1
            batch = NotedBatch(publication, offered, left, offset)
            if self._random.random() < self.stream.cancel_chance:
                await self._in_a_hurry(_awaited(batch))
            else:
                await batch
            left = left[batch.accepted :]

    async def _offer_in_a_hurry(
        self, publication: Publication, offered: Offered, number: int, payload: bytes
    ) -> None:
        """Offer with an end to the patience: what is not appended then is nowhere."""

        async def offer() -> None:
            # Noted in the task that offers: another that shares the stream may be next.
            offered.on_offered(await publication.offer(payload), number, len(payload))

        await self._in_a_hurry(offer())

    async def _in_a_hurry(self, deed: Coroutine[Any, Any, None]) -> None:
        """Let something begin, and be cancelled soon."""
        offering = asyncio.ensure_future(deed)
        # Cancelled here, nobody is left to ask what became of it.
        offering.add_done_callback(lambda task: task.cancelled() or task.exception())
        # A turn or a few: some offers are done by then, others have not begun.
        for _ in range(self._random.randint(0, 3)):
            await asyncio.sleep(0)
        offering.cancel()
        await asyncio.wait([offering])
        if not offering.cancelled():
            offering.result()


async def _awaited(batch: BatchOffer) -> None:
    await batch


class Subscriber:
    """One subscription of a host's present life, added again and again where it churns.

    Args:
        world: Where.
        reader: Which, and how it is read.
        recorder: Takes note of every message.
        finishing: Set when all is well: nothing churns and nothing stalls any more.
        name: For messages to people.
        may_lose_images: Whether sources may fall silent for so long that their images end.

    Attributes:
        subscription: The one there is now, if any.
        received: Records of its images, by the image's id.
    """

    def __init__(
        self,
        world: World,
        reader: Reader,
        recorder: Recorder,
        finishing: asyncio.Event,
        name: str,
        *,
        may_lose_images: bool,
    ) -> None:
        self.reader = reader
        self._may_lose_images = may_lose_images
        self.name = name
        self.subscription: Subscription | None = None
        self.received: dict[int, Received] = {}
        self._world = world
        self._recorder = recorder
        self._finishing = finishing
        self._partial: dict[int, tuple[bytes, int]] = {}
        self._random = Random(f"{world.seed}/{name}")

    async def run(self, aeron: Aeron) -> None:
        """Subscribe and read, until cancelled."""
        reader = self.reader
        if not self._finishing.is_set():
            await self._or_finishing(reader.starts_at_ns)
        channel = channel_of(self._world, reader, reader.parameters)
        while True:
            self.received.clear()
            self._partial.clear()
            self.subscription = await aeron.add_subscription(
                channel,
                reader.stream_id,
                on_available_image=self._on_available_image,
                on_unavailable_image=self._on_unavailable_image,
            )
            async with self.subscription, asyncio.TaskGroup() as group:
                if reader.lives_ns and not self._finishing.is_set():
                    group.create_task(self._close_later(self.subscription))
                await self._read(self.subscription)

    async def _close_later(self, subscription: Subscription) -> None:
        await self._or_finishing(self.reader.lives_ns)
        if not self._finishing.is_set():
            await subscription.aclose()

    async def _or_finishing(self, ns: int) -> None:
        try:
            async with asyncio.timeout(ns / NS_PER_SECOND):
                await self._finishing.wait()
        except TimeoutError:
            pass

    async def _read(self, subscription: Subscription) -> None:
        if self.reader.kind == "poll":
            while not subscription.is_closed:
                await self._stall()
                for image in subscription.images:
                    image.poll(self._on_fragment, 10)
                await self._world.sleep(POLL_INTERVAL_S)
        elif self.reader.kind == "handler":
            await self._handle(subscription)
        elif self.reader.kind == "batches":
            while not subscription.is_closed:
                await self._read_batches(subscription)
        else:
            async for message in subscription:
                self.received[message.image.image_id].on_message(message.position, message.data)
                await self._stall()

    async def _read_batches(self, subscription: Subscription) -> None:
        """Read batches until one is left to the next reader, or the subscription closes."""
        reader = self.reader
        async for batch in subscription.batches(linger_ns=reader.linger_ns):
            if reader.leave_chance and self._random.random() < reader.leave_chance:
                return
            self._take_batch(batch)
            await self._stall()

    def _take_batch(self, batch: MessageBatch) -> None:
        """Note what is in a batch, in one of the ways in which that can be read."""
        received = self.received[batch.image.image_id]
        if not self.reader.leave_chance or self._random.random() < 0.5:
            for message in batch:
                received.on_message(message.position, message.data)
            return
        payloads = [bytes(view) for view in batch.views()]
        for position, payload in zip(batch.positions(), payloads, strict=True):
            received.on_message(position, payload)

    async def _handle(self, subscription: Subscription) -> None:
        """Let a function take the messages, but while reading stalls."""
        failures: list[ViolationError] = []

        def take(message: Message) -> None:
            try:
                self.received[message.image.image_id].on_message(message.position, message.data)
            except ViolationError as error:
                failures.append(error)

        is_taking = False
        while not subscription.is_closed:
            if self._is_stalling():
                subscription.on_message(None)
                is_taking = False
                await self._stall()
            elif is_taking:
                await self._world.sleep(POLL_INTERVAL_S)
            else:
                subscription.on_message(take)
                is_taking = True
            if failures:
                raise failures[0]

    def _is_stalling(self) -> bool:
        now_ns = self._world.now_ns
        return not self._finishing.is_set() and any(
            at_ns <= now_ns < at_ns + duration_ns for at_ns, duration_ns in self.reader.stalls
        )

    async def _stall(self) -> None:
        """Stop reading for as long as the timetable says, if its time has come."""
        now_ns = self._world.now_ns
        for at_ns, duration_ns in self.reader.stalls:
            if at_ns <= now_ns < at_ns + duration_ns and not self._finishing.is_set():
                await self._or_finishing(at_ns + duration_ns - now_ns)

    def _on_available_image(self, image: Image) -> None:
        self.received[image.image_id] = self._recorder.receiving(
            image, self.name, is_reliable=self.reader.is_reliable
        )

    def _on_unavailable_image(self, image: Image) -> None:
        if not image.subscription.is_closed:
            self.received[image.image_id].on_end(may_be_lost=self._may_lose_images)

    def _on_fragment(self, payload: memoryview, header: FragmentHeader) -> None:
        """Put messages together by the flags alone, as somebody would who knows no better."""
        key = header.image.image_id
        start = header.position - framed_length(len(payload), max_payload_length=len(payload))
        partial = b""
        if not header.is_begin:
            # A fragment that does not follow the last one has lost its message's beginning.
            partial, expected = self._partial.pop(key, (b"", -1))
            if start != expected:
                return
        if header.is_end:
            self._partial.pop(key, None)
            self.received[key].on_message(header.position, partial + payload)
        else:
            self._partial[key] = partial + payload, header.position
