"""A log by name: one stream over all its recordings, restarts and extensions.

`DurableStream` names the log by channel and stream id. `produce` continues it, and `consume` reads
it from any place. Both work with an archive in this loop and with one elsewhere.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Self, final
from uuid import UUID

from aeron_async.archive.api import Archive, SourceLocation
from aeron_async.archive.arguments import check_aeron, check_flag, check_location, named
from aeron_async.archive.durable.consumer import Consumer
from aeron_async.archive.durable.cursors import Cursor
from aeron_async.archive.durable.log import LogLink, LogName
from aeron_async.archive.durable.producer import Producer
from aeron_async.archive.durable.records import check_producer_name
from aeron_async.client.arguments import check_stream_id, publication_uri
from aeron_async.client.opening import Opening
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.arguments import check_number, shown
from aeron_async.protocol.channel_uri import Media

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from aeron_async.archive.durable.consumer import Start
    from aeron_async.archive.durable.cursors import CursorStore
    from aeron_async.client.aeron import Aeron

__all__ = ["DurableStream"]

MOST_IN_FLIGHT: Final = 1 << 20
DEFAULT_IN_FLIGHT: Final = 1_024


@final
class DurableStream:
    """One logical stream over all its recordings: `async with DurableStream(...) as log`.

    Args:
        archive: An open archive, which stays open; or a function that opens one, such as
            `lambda: RemoteArchive.connect(aeron, control_channel=...)`. With a function, producers
            and consumers open the archive again when it was lost.
        aeron: A started client, which publishes.
        channel: Channel of the stream. Endpoint, control address, interface and `alias` tell logs
            apart; over IPC that is the alias, and the stream id.
        stream_id: Stream within the channel.
        source_location: Whether a producer publishes in the archive's own driver.
        log_id: Id of the log, for an official archive, which has none: a UUID that you keep.

    Raises:
        ChannelUriError: The channel is not valid, or cannot be published on.
        ConfigurationError: The channel names a session or a position; or another argument is not
            valid.
    """

    def __init__(
        self,
        archive: Archive | Callable[[], AbstractAsyncContextManager[Archive]],
        aeron: Aeron,
        channel: str,
        stream_id: int,
        *,
        source_location: SourceLocation | Literal["local", "remote"] = SourceLocation.LOCAL,
        log_id: UUID | None = None,
    ) -> None:
        check_log(archive, log_id)
        check_aeron("DurableStream(archive, aeron, ...)", aeron)
        stream_id = check_stream_id(stream_id)
        uri = publication_uri(channel, stream_id)
        for name in ("session_id", "initial_term_id", "term_id", "term_offset"):
            if getattr(uri, name) is not None:
                message = (
                    f"{uri} has {name.replace('_', '-')}: leave it out, each producer has its own"
                )
                raise ConfigurationError(message)
        self._source_location = check_location(source_location)
        self._name = LogName(uri.replace(spies_simulate_connection=None), stream_id)
        is_spied = uri.media is Media.UDP and self._source_location is SourceLocation.LOCAL
        if is_spied and uri.spies_simulate_connection is None:
            # The archive records through a spy, and there may be no other subscriber.
            uri = uri.replace(spies_simulate_connection=True)
        self._channel = uri
        self._aeron = aeron
        self._link = LogLink(archive, aeron, log_id)

    def __repr__(self) -> str:
        return f"<DurableStream {self._name.channel} stream {self._name.stream_id}>"

    async def log_id(self) -> UUID:
        """Return the id of the archive's log, which every cursor names.

        Raises:
            ConfigurationError: The archive has none, and none was given.
            ArchiveError: The archive cannot be reached.
        """
        return (await self._link.get())[1]

    def produce(self, name: str, *, max_in_flight: int = DEFAULT_IN_FLIGHT) -> Opening[Producer]:
        """Open the log to append to it: `async with log.produce("orders") as producer`.

        A producer that was open before is fenced: its next `append` raises `FencedError`.

        Args:
            name: Name of the producer, for the records and the logs.
            max_in_flight: Most records that are appended and not recorded yet; `append` waits.

        Raises:
            ConfigurationError: An argument is not valid; raised by the call itself.
            ArchiveError: The log cannot be opened; raised by `await` and `async with`.
            FencedError: Another producer has opened the log at the same time.
        """
        check_producer_name(name)
        max_in_flight = check_number(
            max_in_flight, "max_in_flight", minimum=1, maximum=MOST_IN_FLIGHT
        )
        return Opening(self._produce(name, max_in_flight), "DurableStream.produce")

    async def _produce(self, name: str, max_in_flight: int) -> Producer:
        producer = Producer(
            self._link,
            self._aeron,
            self._name,
            self._channel,
            name=name,
            source_location=self._source_location,
            max_in_flight=max_in_flight,
        )
        await producer.start()
        return producer

    def consume(
        self,
        *,
        start: Start = "first",
        cursor: CursorStore | None = None,
        auto_commit: bool = False,
    ) -> Opening[Consumer]:
        """Open the log to read it: `async with log.consume(cursor=store) as consumer`.

        Args:
            start: Where to begin if there is no stored cursor: "first", "end", a `Cursor`, or a
                `datetime` with a time zone, which is the first record appended at that time.
                Messages of other programs have no time, and are skipped in the recording of that
                time until there is a record.
            cursor: Where the cursor is kept; the caller closes it.
            auto_commit: Store the cursor by itself, 50 ms after a record was processed or after
                1,000 of them. A record counts as processed when the next one is asked for. Without
                it, call `commit`.

        Raises:
            ConfigurationError: An argument is not valid; raised by the call itself.
            ForeignLogError: The cursor is of the log of another archive.
            InvalidPositionError: The cursor is behind the end of its recording.
            ArchiveError: The archive cannot be reached, and nothing opens it again.
        """
        check_start(start)
        if check_flag(auto_commit, "auto_commit") and cursor is None:
            message = "auto_commit=True needs a store: pass cursor=FileCursorStore(path)"
            raise ConfigurationError(message)
        return Opening(self._consume(start, cursor, auto_commit), "DurableStream.consume")

    async def _consume(
        self,
        start: Start,
        store: CursorStore | None,
        auto_commit: bool,  # noqa: FBT001 - checked
    ) -> Consumer:
        consumer = Consumer(
            self._link,
            self._aeron,
            self._name,
            start=start,
            store=store,
            auto_commit=auto_commit,
        )
        await consumer.start()
        return consumer

    async def aclose(self) -> None:
        """Close the archive if this log has opened it; close producers and consumers first."""
        await self._link.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


def check_start(start: Any) -> None:
    """Check where a consumer is to begin.

    Raises:
        ConfigurationError: It is no place in a log.
    """
    is_time = isinstance(start, datetime) and start.tzinfo is not None
    if not (is_time or isinstance(start, Cursor) or start in {"first", "end"}):
        message = (
            f'start={shown(start)} must be "first", "end", a Cursor, or a datetime with a time zone'
        )
        raise ConfigurationError(message)


def check_log(archive: Any, log_id: Any) -> None:
    """Check the archive of a log, and the id of the log.

    Raises:
        ConfigurationError: One of them has the wrong type.
    """
    if not isinstance(archive, Archive) and not callable(archive):
        message = (
            f"DurableStream(archive, aeron, ...) was given {named(archive)}: give an open archive, "
            "or a function that opens one"
        )
        raise ConfigurationError(message)
    if log_id is not None and not isinstance(log_id, UUID):
        message = f"log_id={shown(log_id)} must be a uuid.UUID"
        raise ConfigurationError(message)
