"""At-least-once writing: the publications of a worker, and what subscribers have consumed.

Only the status messages of receivers say that, to the flow control, so one stands around the flow
control that the channel has, and listens. A receiver speaks of consumption when it has moved by a
quarter of the window, and then repeats that: behind what is to be consumed there must be padding of
as much. It costs 32 bytes on the network, and readers skip it.

A row is published as it comes; a task that fails has published some of its rows, and its next
attempt publishes them again.

Source: Aeron `PublicationImage.sendPendingStatusMessage`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import anyio

from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import AeronTimeoutError, ConfigurationError
from aeron_async.flow_control import FlowControl, flow_control
from aeron_async.spark.sink.archives import remote_archive, wait_session_recorded
from aeron_async.spark.sink.identity import StreamEnd
from aeron_async.spark.sink.options import CONSUMED, RECORDED
from aeron_async.spark.worker import together

if TYPE_CHECKING:
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.flow_control import FlowControlParams, StatusMessage
    from aeron_async.spark.sink.options import SinkOptions
    from aeron_async.spark.sink.rows import Rows

__all__ = [
    "Publishing",
    "Receivers",
    "Stream",
    "Streams",
    "wait_consumed",
]

SILENCE_NS: Final = 5 * NS_PER_SECOND
"""A receiver speaks five times a second; one that has been silent for so long is gone."""
MOST_RECEIVERS: Final = 1_024
HEADER_LENGTH: Final = 32
LOOK_INTERVAL_S: Final = 0.25
"""How often to look whether a receiver has gone, while none says anything."""


@final
class Receivers:
    """Who receives one publication, and how far each has read.

    Attributes:
        window_length: Of the largest window that any has told, in bytes.
    """

    def __init__(self) -> None:
        self._heard: dict[int, tuple[int, int]] = {}
        self.window_length: int = 0
        self._now_ns = 0
        self._changed = anyio.Event()

    def supplier(self, params: FlowControlParams) -> FlowControl:
        """Make the flow control that the channel has, and listen to what it is told."""
        inner = flow_control(params.uri, params.context, is_group=params.is_group)
        return ListeningFlowControl(inner, self)

    def on_status_message(self, sm: StatusMessage, position: int, now_ns: int) -> None:
        """Remember how far a receiver has read."""
        self._now_ns = now_ns
        if sm.is_end_of_stream:
            self._heard.pop(sm.receiver_id, None)
        elif sm.receiver_id in self._heard or len(self._heard) < MOST_RECEIVERS:
            self._heard[sm.receiver_id] = (position, now_ns)
            self.window_length = max(self.window_length, sm.receiver_window)
        self._changed.set()
        self._changed = anyio.Event()

    def on_idle(self, now_ns: int) -> None:
        """Take note of the time."""
        self._now_ns = now_ns

    def consumed(self) -> int | None:
        """Return up to where all that are there have read, in bytes; None if none is there."""
        oldest_ns = self._now_ns - SILENCE_NS
        self._heard = {who: said for who, said in self._heard.items() if said[1] > oldest_ns}
        return min((position for position, _ in self._heard.values()), default=None)

    async def wait(self) -> None:
        """Wait until one says something, or may have gone."""
        with anyio.move_on_after(LOOK_INTERVAL_S):
            await self._changed.wait()


@final
class ListeningFlowControl(FlowControl):
    """Another flow control, and somebody who hears what it is told.

    Args:
        inner: Decides everything.
        receivers: Hears.
    """

    def __init__(self, inner: FlowControl, receivers: Receivers) -> None:
        self._inner = inner
        self._receivers = receivers

    def on_status_message(
        self, sm: StatusMessage, *, position: int, sender_limit: int, now_ns: int
    ) -> int:
        """Return the sender limit after a status message whose consumption is at `position`."""
        self._receivers.on_status_message(sm, position, now_ns)
        return self._inner.on_status_message(
            sm, position=position, sender_limit=sender_limit, now_ns=now_ns
        )

    def on_trigger_send_setup(self, sm: StatusMessage, *, now_ns: int) -> None:
        """Pass it on."""
        self._inner.on_trigger_send_setup(sm, now_ns=now_ns)

    def on_setup(self, *, sender_limit: int, now_ns: int) -> None:
        """Pass it on."""
        self._inner.on_setup(sender_limit=sender_limit, now_ns=now_ns)

    def on_idle(self, *, sender_limit: int, sender_position: int, now_ns: int) -> int:
        """Return the sender limit after a cycle in which no data was sent."""
        self._receivers.on_idle(now_ns)
        return self._inner.on_idle(
            sender_limit=sender_limit, sender_position=sender_position, now_ns=now_ns
        )

    def on_error(self, *, receiver_id: int, group_tag: int | None, now_ns: int) -> None:
        """Pass it on."""
        self._inner.on_error(receiver_id=receiver_id, group_tag=group_tag, now_ns=now_ns)

    def deadline_ns(self) -> int:
        """Return when `on_idle` would say something new although nothing is heard."""
        return self._inner.deadline_ns()

    def has_required_receivers(self) -> bool:
        """Return whether enough receivers are there for the publication to be connected."""
        return self._inner.has_required_receivers()

    def max_retransmission_length(self, *, term_offset: int, length: int, term_length: int) -> int:
        """Return how much of a requested resend is granted, in bytes."""
        return self._inner.max_retransmission_length(
            term_offset=term_offset, length=length, term_length=term_length
        )

    def receiver_count(self) -> int | None:
        """Return how many receivers are tracked."""
        return self._inner.receiver_count()

    def refused_count(self) -> int:
        """Return how often a receiver was not tracked because there were too many already."""
        return self._inner.refused_count()

    def slowest_receiver(self) -> str | None:
        """Return the identity of the receiver that sets the pace, where it is known."""
        return self._inner.slowest_receiver()


async def wait_consumed(
    publication: ExclusivePublication, receivers: Receivers, *, timeout_s: float
) -> None:
    """Wait until every subscriber that is there has read all that was offered.

    Args:
        publication: Whose flow control `receivers` made.
        receivers: Its receivers.
        timeout_s: For all of it.

    Raises:
        AeronTimeoutError: They have not; or none is there.
    """
    position = publication.position
    with anyio.move_on_after(timeout_s):
        await push(publication, receivers)
        while (receivers.consumed() or 0) < position:
            await receivers.wait()
        return
    consumed = receivers.consumed()
    found = "nobody is there any more" if consumed is None else f"the slowest is at {consumed}"
    message = (
        f"what was published up to {position} on {publication.channel} stream "
        f"{publication.stream_id} was not consumed within {timeout_s} s: {found}; does it ask for "
        "the next message? Raise publishTimeoutMs, or set waitFor=none"
    )
    raise AeronTimeoutError(message)


async def push(publication: ExclusivePublication, receivers: Receivers) -> None:
    """Append so much padding that whoever skips it says where it is."""
    # A window may be smaller than the last one, but what was told of it is a quarter at most.
    wanted = receivers.window_length // 4 + HEADER_LENGTH
    longest = publication.max_message_length
    while wanted > 0:
        length = min(wanted, longest)
        await publication.append_padding(length)
        wanted -= length


@final
class Stream:
    """A publication, and who receives it.

    Args:
        publication: Open.
        receivers: Made its flow control.
    """

    def __init__(self, publication: ExclusivePublication, receivers: Receivers) -> None:
        self.publication = publication
        self.receivers = receivers


@final
class Streams:
    """The publications of one worker process; they outlive a task that succeeds.

    Args:
        aeron: Whose they are.
    """

    def __init__(self, aeron: Aeron) -> None:
        self.aeron = aeron
        self._streams: dict[tuple[str, int], Stream] = {}

    async def get(self, channel: str, stream_id: int, options: SinkOptions) -> Stream:
        """Return the publication of a stream, added when there is none.

        Raises:
            ConfigurationError: There are too many; or the channel is none.
            AeronTimeoutError: Nobody subscribes.
        """
        stream = self._streams.get((channel, stream_id))
        if stream is not None and not stream.publication.is_closed:
            return stream
        if len(self._streams) >= options.max_streams:
            message = (
                f"rows name more than maxStreams={options.max_streams} streams; the next is "
                f"{channel} stream {stream_id}: raise maxStreams, or repartition by stream"
            )
            raise ConfigurationError(message)
        receivers = Receivers()
        publication = await self.aeron.add_exclusive_publication(
            channel, stream_id, flow_control=receivers.supplier
        )
        try:
            await publication.wait_connected(options.timeout_s)
        except BaseException:
            publication.close()
            raise
        stream = self._streams[channel, stream_id] = Stream(publication, receivers)
        return stream

    async def drop(self) -> None:
        """Close all of them: the next attempt is to have sessions of its own."""
        for stream in self._streams.values():
            stream.publication.close()
        self._streams.clear()


@final
class Publishing:
    """What one task publishes.

    Args:
        streams: Of its worker.
        options: Of the query.
    """

    def __init__(self, streams: Streams, options: SinkOptions) -> None:
        self._streams = streams
        self._options = options
        self._used: dict[tuple[str, int], Stream] = {}
        self.row_count: int = 0

    async def publish(self, rows: Rows) -> None:
        """Publish the rows of a batch, in order, waiting for room.

        Raises:
            AeronError: One cannot be published, or not in time.
        """
        options, used = self._options, self._used
        timeout_s = options.timeout_s
        for channel, stream_id, payload, reserved in rows.messages(
            options.channel, options.stream_id
        ):
            key = (channel, stream_id)
            stream = used.get(key)
            if stream is None:
                stream = used[key] = await self._streams.get(channel, stream_id, options)
            await stream.publication.offer(payload, reserved_value=reserved, timeout=timeout_s)
        self.row_count += len(rows.payloads)

    async def finish(self) -> list[StreamEnd]:
        """Wait as the options say; return where each stream ends.

        Raises:
            AeronTimeoutError: It takes too long.
        """
        options = self._options
        if options.waits_for == CONSUMED:
            waits = [partial(self._consumed, each) for each in self._used.values()]
            await together(waits, at_once=max(len(waits), 1))
        elif options.waits_for == RECORDED and self._used:
            async with remote_archive(self._streams.aeron, options) as archive:
                for stream in self._used.values():
                    await wait_session_recorded(
                        archive, stream.publication, timeout_s=options.timeout_s
                    )
        return [
            StreamEnd(
                channel=channel,
                stream_id=stream_id,
                session_id=each.publication.session_id,
                position=each.publication.position,
            )
            for (channel, stream_id), each in self._used.items()
        ]

    async def _consumed(self, stream: Stream) -> None:
        timeout_s = self._options.timeout_s
        await wait_consumed(stream.publication, stream.receivers, timeout_s=timeout_s)
