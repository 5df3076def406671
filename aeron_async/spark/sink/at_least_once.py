"""At-least-once delivery: the publications of a worker, and how far subscribers have consumed them.

Rows are published as they come. A task that fails has published some of its rows, and its next
attempt publishes them again.

Only status messages tell how far subscribers have consumed, and they go to the flow control.
Therefore a `ListeningFlowControl` wraps the flow control of the channel. A receiver reports
consumption only when it has moved by a quarter of its window; so the sink appends that much padding
behind the last row. The padding costs 32 bytes on the network, and subscribers skip it.

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
    "SinkStream",
    "Streams",
    "wait_consumed",
]

SILENCE_NS: Final = 5 * NS_PER_SECOND
"""A receiver sends five status messages a second; one that was silent for this long is gone."""
MOST_RECEIVERS: Final = 1_024
HEADER_LENGTH: Final = 32
LOOK_INTERVAL_S: Final = 0.25
"""How often to check for receivers that have gone while no status message arrives."""


@final
class Receivers:
    """The receivers of one publication, and how far each has consumed.

    Attributes:
        window_length: Largest receiver window reported so far, in bytes.
    """

    def __init__(self) -> None:
        self._heard: dict[int, tuple[int, int]] = {}
        self.window_length: int = 0
        self._now_ns = 0
        self._changed = anyio.Event()

    def supplier(self, params: FlowControlParams) -> FlowControl:
        """Return the flow control of the channel, wrapped to listen to its status messages."""
        inner = flow_control(params.uri, params.context, is_group=params.is_group)
        return ListeningFlowControl(inner, self)

    def on_status_message(self, sm: StatusMessage, position: int, now_ns: int) -> None:
        """Record how far a receiver has consumed."""
        self._now_ns = now_ns
        if sm.is_end_of_stream:
            self._heard.pop(sm.receiver_id, None)
        elif sm.receiver_id in self._heard or len(self._heard) < MOST_RECEIVERS:
            self._heard[sm.receiver_id] = (position, now_ns)
            self.window_length = max(self.window_length, sm.receiver_window)
        self._changed.set()
        self._changed = anyio.Event()

    def on_idle(self, now_ns: int) -> None:
        """Record the time."""
        self._now_ns = now_ns

    def consumed(self) -> int | None:
        """Return up to where all live receivers have consumed, in bytes; None if there are none."""
        oldest_ns = self._now_ns - SILENCE_NS
        self._heard = {who: said for who, said in self._heard.items() if said[1] > oldest_ns}
        return min((position for position, _ in self._heard.values()), default=None)

    async def wait(self) -> None:
        """Wait for the next status message, or until a receiver may have gone."""
        with anyio.move_on_after(LOOK_INTERVAL_S):
            await self._changed.wait()


@final
class ListeningFlowControl(FlowControl):
    """A flow control that passes every call to another, and status messages also to `Receivers`.

    Args:
        inner: Flow control that decides.
        receivers: Records what receivers report.
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
        """Delegate to the inner flow control."""
        self._inner.on_trigger_send_setup(sm, now_ns=now_ns)

    def on_setup(self, *, sender_limit: int, now_ns: int) -> None:
        """Delegate to the inner flow control."""
        self._inner.on_setup(sender_limit=sender_limit, now_ns=now_ns)

    def on_idle(self, *, sender_limit: int, sender_position: int, now_ns: int) -> int:
        """Return the sender limit after a cycle in which no data was sent."""
        self._receivers.on_idle(now_ns)
        return self._inner.on_idle(
            sender_limit=sender_limit, sender_position=sender_position, now_ns=now_ns
        )

    def on_error(self, *, receiver_id: int, group_tag: int | None, now_ns: int) -> None:
        """Delegate to the inner flow control."""
        self._inner.on_error(receiver_id=receiver_id, group_tag=group_tag, now_ns=now_ns)

    def deadline_ns(self) -> int:
        """Return when `on_idle` may change its result without new input."""
        return self._inner.deadline_ns()

    def has_required_receivers(self) -> bool:
        """Return whether there are enough receivers for the publication to be connected."""
        return self._inner.has_required_receivers()

    def max_retransmission_length(self, *, term_offset: int, length: int, term_length: int) -> int:
        """Return how many bytes of a requested retransmission are granted."""
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
    """Wait until every connected subscriber has consumed all that was offered.

    Args:
        publication: Publication whose flow control `receivers` supplied.
        receivers: Its receivers.
        timeout_s: Time limit for all of it.

    Raises:
        AeronTimeoutError: A subscriber has not consumed everything in time, or there is none.
    """
    position, pushed_length = publication.position, -1
    with anyio.move_on_after(timeout_s):
        while (receivers.consumed() or 0) < position:
            # A window may grow with what it is pushed by: then it needs a longer push.
            if receivers.window_length > pushed_length:
                pushed_length = receivers.window_length
                await push(publication, receivers)
            await receivers.wait()
        return
    consumed = receivers.consumed()
    found = "no subscriber is left" if consumed is None else f"the slowest is at {consumed}"
    message = (
        f"what was published up to {position} on {publication.channel} stream "
        f"{publication.stream_id} was not consumed within {timeout_s} s: {found}; does it ask for "
        "the next message? Raise publishTimeoutMs, or set waitFor=none"
    )
    raise AeronTimeoutError(message)


async def push(publication: ExclusivePublication, receivers: Receivers) -> None:
    """Append enough padding that a receiver which skips it reports its position."""
    # The current window may be smaller than the largest one; padding for the largest is enough.
    wanted = receivers.window_length // 4 + HEADER_LENGTH
    longest = publication.max_message_length
    while wanted > 0:
        length = min(wanted, longest)
        await publication.append_padding(length)
        wanted -= length


@final
class SinkStream:
    """A publication with its receivers."""

    def __init__(self, publication: ExclusivePublication, receivers: Receivers) -> None:
        self.publication = publication
        self.receivers = receivers


@final
class Streams:
    """The publications of one worker process; they outlive a task that succeeds.

    Args:
        aeron: Client that owns them.
    """

    def __init__(self, aeron: Aeron) -> None:
        self.aeron = aeron
        self._streams: dict[tuple[str, int], SinkStream] = {}

    async def get(self, channel: str, stream_id: int, options: SinkOptions) -> SinkStream:
        """Return the publication of a stream; add it if there is none.

        Raises:
            ConfigurationError: There are too many streams, or the channel is invalid.
            AeronTimeoutError: No subscriber connects.
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
        stream = self._streams[channel, stream_id] = SinkStream(publication, receivers)
        return stream

    async def drop(self) -> None:
        """Close all publications, so that the next attempt has sessions of its own."""
        for stream in self._streams.values():
            stream.publication.close()
        self._streams.clear()


@final
class Publishing:
    """Publishes the rows of one task."""

    def __init__(self, streams: Streams, options: SinkOptions) -> None:
        self._streams = streams
        self._options = options
        self._used: dict[tuple[str, int], SinkStream] = {}
        self.row_count: int = 0

    async def publish(self, rows: Rows) -> None:
        """Publish the rows of a batch, in order, with back pressure.

        Raises:
            AeronError: A row cannot be published, or not in time.
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
            AeronTimeoutError: That takes too long.
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

    async def _consumed(self, stream: SinkStream) -> None:
        timeout_s = self._options.timeout_s
        await wait_consumed(stream.publication, stream.receivers, timeout_s=timeout_s)
