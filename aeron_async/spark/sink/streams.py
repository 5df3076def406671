"""At-least-once: the publications of a worker, and what its tasks publish on them.

A row is published as it comes; a task that fails has published some of its rows, and its next
attempt publishes them again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

from aeron_async.errors import ConfigurationError
from aeron_async.spark.sink.archives import remote_archive, wait_session_recorded
from aeron_async.spark.sink.consumption import Receivers, wait_consumed
from aeron_async.spark.sink.messages import StreamEnd
from aeron_async.spark.sink.options import CONSUMED, RECORDED
from aeron_async.spark.sink.together import together

if TYPE_CHECKING:
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.spark.sink.options import SinkOptions
    from aeron_async.spark.sink.rows import Rows

__all__ = ["Publishing", "Stream", "Streams"]


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
        self.row_count = 0

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
