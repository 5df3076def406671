"""Client of a remote archive, ours or the official one, over its control channel.

Source: Aeron `AeronArchive`.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, Literal, Self, final
from uuid import UUID

from aeron_async.archive.api import (
    ALL_AND_FOLLOW,
    FIRST_LOOK_S,
    LAST_LOOK_S,
    Archive,
    RecordingSubscription,
    SourceLocation,
)
from aeron_async.archive.arguments import (
    check_aeron,
    check_answered_on,
    check_channel_part,
    check_flag,
    check_given,
    check_id,
    check_ids,
    check_location,
    check_replayed,
    check_stream,
)
from aeron_async.archive.control.connection import (
    ControlConnection,
    credentials_supplier,
    unknown_recording,
)
from aeron_async.archive.control.messages import (
    LOG_ID_QUESTION,
    ArchiveIdRequest,
    AttachSegmentsRequest,
    BoundedReplayRequest,
    DeleteDetachedSegmentsRequest,
    DetachSegmentsRequest,
    ExtendRecordingRequest2,
    FindLastMatchingRecordingRequest,
    ListRecordingRequest,
    ListRecordingsForUriRequest,
    ListRecordingsRequest,
    ListRecordingSubscriptionsRequest,
    MaxRecordedPositionRequest,
    PurgeRecordingRequest,
    PurgeSegmentsRequest,
    RecordingDescriptorMessage,
    RecordingPositionRequest,
    RecordingSubscriptionDescriptor,
    ReplayRequest,
    Request,
    StartPositionRequest,
    StartRecordingRequest2,
    StopAllReplaysRequest,
    StopPositionRequest,
    StopRecordingByIdentityRequest,
    StopRecordingRequest,
    StopRecordingSubscriptionRequest,
    StopReplayRequest,
    TruncateRecordingRequest,
)
from aeron_async.archive.control.remote_replay import (
    RemoteReplay,
    end_all,
    replays_beside,
    resolved,
)
from aeron_async.archive.control.settings import CONTROL_STREAM_ID
from aeron_async.archive.disk.descriptor import RecordingDescriptor
from aeron_async.archive.recording_channels import extending_channel
from aeron_async.archive.signals import RemoteSignalHub
from aeron_async.archive.stalled_recordings import StalledRecordingWarner
from aeron_async.client.arguments import (
    check_answer_timeout,
    check_callable,
    check_stream_id,
    publication_uri,
    subscription_uri,
)
from aeron_async.errors import ArchiveError, ClosedError
from aeron_async.logs import get_logger, within
from aeron_async.protocol.channel_uri import ChannelUri, ControlMode, Media
from aeron_async.tasks import TaskOwner
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator

    from aeron_async.archive.api import SignalReader
    from aeron_async.archive.control.authentication import CredentialsSupplier
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.client.image import Image

__all__ = [
    "RemoteArchive",
    "RemoteListing",
    "descriptor_of",
]

PAGE_LENGTH: Final = 64
"""Recordings requested at once by a listing."""


class RemoteListing:
    """The methods of `RemoteArchive` that list recordings and free disk space."""

    @property
    @abstractmethod
    def connection(self) -> ControlConnection:
        """Return the session with the archive."""

    @abstractmethod
    async def _ask(self, kind: type[Request], **fields: Any) -> int: ...

    async def recordings(
        self,
        from_recording_id: int = 0,
        *,
        channel: str = "",
        stream_id: int | None = None,
    ) -> AsyncIterator[RecordingDescriptor]:
        """Iterate over recordings; see `Archive.recordings`."""
        check_ids(from_recording_id=from_recording_id)
        check_given(stream_id=stream_id)
        check_channel_part(channel)
        kind: type[Request] = ListRecordingsRequest
        fields: dict[str, Any] = {}
        if stream_id is not None:
            kind = ListRecordingsForUriRequest
            fields = {"channel": channel, "stream_id": stream_id}
        last = None
        while last is None:
            pieces, last = await self.connection.list_pieces(
                kind,
                count=PAGE_LENGTH,
                from_recording_id=from_recording_id,
                record_count=PAGE_LENGTH,
                **fields,
            )
            for piece in pieces:
                descriptor = descriptor_of(piece)
                from_recording_id = descriptor.recording_id + 1
                if channel in descriptor.original_channel:
                    yield descriptor

    async def recording_subscriptions(self) -> list[RecordingSubscription]:
        """Return the active requests to record; see `Archive.recording_subscriptions`."""
        found: list[RecordingSubscription] = []
        last = None
        while last is None:
            pieces, last = await self.connection.list_pieces(
                ListRecordingSubscriptionsRequest,
                count=PAGE_LENGTH,
                pseudo_index=len(found),
                subscription_count=PAGE_LENGTH,
                apply_stream_id=0,
                stream_id=0,
                channel="",
            )
            found.extend(map(subscription_of, pieces))
        return found

    async def describe(self, recording_id: int) -> RecordingDescriptor:
        """Return the descriptor of a recording; see `Archive.describe`."""
        check_id(recording_id)
        pieces, _ = await self.connection.list_pieces(
            ListRecordingRequest, count=1, recording_id=recording_id
        )
        if not pieces:
            raise unknown_recording(recording_id)
        return descriptor_of(pieces[0])

    async def find_last(
        self, *, channel: str, stream_id: int, session_id: int, min_recording_id: int = 0
    ) -> int | None:
        """Return the id of the last recording that matches, or None."""
        found = await self._ask(
            FindLastMatchingRecordingRequest,
            channel=check_channel_part(channel),
            stream_id=stream_id,
            session_id=session_id,
            min_recording_id=min_recording_id,
        )
        return None if found < 0 else found

    async def start_position(self, recording_id: int) -> int:
        """Return the position where a recording begins, in bytes."""
        return await self._ask(StartPositionRequest, recording_id=recording_id)

    async def stop_position(self, recording_id: int) -> int | None:
        """Return the position where a recording has stopped, in bytes; None while it is active."""
        position = await self._ask(StopPositionRequest, recording_id=recording_id)
        return None if position < 0 else position

    async def recording_position(self, recording_id: int) -> int | None:
        """Return the recorded position of an active recording, in bytes; None if it has stopped."""
        position = await self._ask(RecordingPositionRequest, recording_id=recording_id)
        return None if position < 0 else position

    async def max_recorded_position(self, recording_id: int) -> int:
        """Return the position up to which a recording can be replayed, in bytes, active or not."""
        return await self._ask(MaxRecordedPositionRequest, recording_id=recording_id)

    async def log_id(self) -> UUID | None:
        """Return the id of the archive's log; None if it is an official archive, or an older one.

        The request is a listing of the recording subscriptions of a channel that cannot exist:
        other archives answer that there are none.
        """
        pieces, _ = await self.connection.list_pieces(
            ListRecordingSubscriptionsRequest,
            count=1,
            pseudo_index=0,
            subscription_count=1,
            apply_stream_id=0,
            stream_id=0,
            channel=LOG_ID_QUESTION,
        )
        return log_id_of(subscription_of(pieces[0]).channel) if pieces else None

    # Freeing disk space.

    async def truncate(self, recording_id: int, position: int) -> int:
        """Discard everything recorded after a position; see `Archive.truncate`."""
        return await self._ask(
            TruncateRecordingRequest, recording_id=recording_id, position=position
        )

    async def purge_segments(self, recording_id: int, new_start_position: int) -> int:
        """Delete the segment files before a position; see `Archive.purge_segments`."""
        return await self._ask(
            PurgeSegmentsRequest, recording_id=recording_id, new_start_position=new_start_position
        )

    async def detach_segments(self, recording_id: int, new_start_position: int) -> None:
        """Move the start of a recording forward; see `Archive.detach_segments`."""
        await self._ask(
            DetachSegmentsRequest, recording_id=recording_id, new_start_position=new_start_position
        )

    async def attach_segments(self, recording_id: int) -> int:
        """Move the start of a recording back over detached files; see `Archive.attach_segments`."""
        return await self._ask(AttachSegmentsRequest, recording_id=recording_id)

    async def delete_detached_segments(self, recording_id: int) -> int:
        """Delete the detached files before the start of a recording; return how many."""
        return await self._ask(DeleteDetachedSegmentsRequest, recording_id=recording_id)

    async def purge_recording(self, recording_id: int) -> int:
        """Delete a recording and its files; see `Archive.purge_recording`."""
        return await self._ask(PurgeRecordingRequest, recording_id=recording_id)


def subscription_of(message: object) -> RecordingSubscription:
    """Convert the message about a subscription that records."""
    assert isinstance(message, RecordingSubscriptionDescriptor), "listings have no other pieces"
    return RecordingSubscription(
        subscription_id=message.subscription_id,
        stream_id=message.stream_id,
        channel=message.stripped_channel,
    )


def log_id_of(answer: str) -> UUID:
    """Return the log id in the answer of an archive.

    Raises:
        ArchiveError: It is no UUID.
    """
    try:
        return UUID(answer.removeprefix(LOG_ID_QUESTION))
    except ValueError:
        message = f"the archive answers with {printable(answer, SHORT)!r}, which is no log id"
        raise ArchiveError(message) from None


def needs_own_session(response_channel: ChannelUri) -> bool:
    """Return whether other clients of the driver would get the answers on a channel, too."""
    is_response = response_channel.control_mode is ControlMode.RESPONSE
    is_shared = response_channel.media is Media.IPC and not is_response
    return is_shared and response_channel.session_id is None


def descriptor_of(message: object) -> RecordingDescriptor:
    """Convert the message about a recording."""
    assert isinstance(message, RecordingDescriptorMessage), "listings have no other pieces"
    return RecordingDescriptor(
        recording_id=message.recording_id,
        start_position=message.start_position,
        stop_position=message.stop_position,
        start_timestamp_ms=message.start_timestamp,
        stop_timestamp_ms=message.stop_timestamp,
        initial_term_id=message.initial_term_id,
        term_length=message.term_buffer_length,
        segment_length=message.segment_file_length,
        mtu_length=message.mtu_length,
        session_id=message.session_id,
        stream_id=message.stream_id,
        stripped_channel=message.stripped_channel,
        original_channel=message.original_channel,
        source_identity=message.source_identity,
    )


CONTROL_TERM_LENGTH: Final = 65_536
LOCAL_RESPONSES: Final = "aeron:udp?endpoint=localhost:0"
DEFAULT_TIMEOUT_S: Final = 5.0

log: Final = get_logger(__name__)


@final
class RemoteArchive(RemoteListing, Archive):
    """A client of an archive: `async with RemoteArchive.connect(aeron, ...) as archive`.

    Any number of tasks may use it at once. The archive sends signals only for recordings that this
    client has requested.

    Attributes:
        aeron: Client whose publications and subscriptions it uses.
        archive_id: Id of the archive.
        replay_channel: Channel on which `replay` receives.
        replay_stream_id: Stream within that channel.
    """

    def __init__(
        self,
        aeron: Aeron,
        *,
        control: tuple[ChannelUri, int],
        response: tuple[ChannelUri, int],
        replay: tuple[ChannelUri, int],
        credentials: CredentialsSupplier,
        timeout: float,
    ) -> None:
        self.aeron = aeron
        self.archive_id: int = -1
        self.replay_channel: str = str(replay[0])
        self.replay_stream_id: int = replay[1]
        self._control = control
        self._response = response
        self._credentials = credentials
        self._timeout = timeout
        self._connection: ControlConnection | None = None
        self._hub = RemoteSignalHub()
        hint_ns = aeron.driver.context.waiting_hint_ns
        self._hints = StalledRecordingWarner(self._hub, hint_ns=hint_ns, is_elsewhere=True)
        self._replays: dict[RemoteReplay, None] = {}
        self._is_closed = False
        self._starting = asyncio.Lock()

    @classmethod
    def connect(
        cls,
        aeron: Aeron,
        *,
        control_channel: str | ChannelUri,
        control_stream_id: int = CONTROL_STREAM_ID,
        response_channel: str | ChannelUri | None = None,
        response_stream_id: int = 20,
        replay_channel: str | ChannelUri | None = None,
        replay_stream_id: int = 21,
        credentials: bytes | CredentialsSupplier = b"",
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> Self:
        """Return a client that connects when it is entered with `async with`, or awaited.

        Args:
            aeron: A started client; close it after the archive's client.
            control_channel: Channel on which the archive receives requests.
            control_stream_id: Stream within that channel.
            response_channel: Channel for answers, as seen from the archive; with port 0 the system
                chooses a port. The default is `aeron:ipc` if the control channel is IPC, else a
                free port of localhost, which does not work if the archive is on another host.
            response_stream_id: Stream within that channel.
            replay_channel: Channel for replays, as seen from the archive; the default is the
                response channel with another port.
            replay_stream_id: Stream within that channel.
            credentials: For an archive that asks for them.
            timeout: Seconds to wait for any answer.

        Raises:
            ChannelUriError: A channel is not valid, or not for its role.
            ConfigurationError: An argument is not valid.
        """
        check_aeron("RemoteArchive.connect(aeron, ...)", aeron)
        timeout = check_answer_timeout(timeout)
        control = check_stream(
            "control", control_channel, control_stream_id, ChannelUri.check_publication
        )
        if response_channel is None:
            response_channel = "aeron:ipc" if control[0].media is Media.IPC else LOCAL_RESPONSES
        response = check_stream("response", response_channel, response_stream_id, check_answered_on)
        if replay_channel is None:
            replay_channel = replays_beside(response[0])
        return cls(
            aeron,
            control=control,
            response=response,
            replay=check_stream("replay", replay_channel, replay_stream_id, check_answered_on),
            credentials=credentials_supplier(credentials),
            timeout=timeout,
        )

    @property
    def connection(self) -> ControlConnection:
        """Return the session with the archive.

        Raises:
            ClosedError: There is no session.
        """
        if self._connection is None:
            self._check_not_closed()
            message = "the client of the archive was not started: enter it with `async with` first"
            raise ClosedError(message)
        return self._connection

    def _check_not_closed(self) -> None:
        if self._is_closed:
            message = "the client of the archive is closed: connect another"
            raise ClosedError(message)

    async def start(self) -> None:
        """Open a session with the archive; a second call does nothing.

        Raises:
            AeronTimeoutError: No archive answers.
            ArchiveError: The archive refuses.
            ClosedError: The client was closed, before or during the call.
        """
        # Another task may be starting the client.
        async with self._starting:
            self._check_not_closed()
            if self._connection is None:
                await self._start()

    async def _start(self) -> None:
        self._hub.reopen()
        response_channel, response_stream_id = self._response
        publication: ExclusivePublication | None = None
        if needs_own_session(response_channel):
            # As in the official client: else each client would get the answers to all of them, and
            # one that stands still would hold up the others.
            publication = await self._add_publication()
            response_channel = response_channel.replace(session_id=publication.session_id)
        opened: list[ControlConnection] = []

        def on_unavailable_image(image: Image) -> None:
            for each in opened:
                each.on_unavailable_image(image)

        try:
            subscription = await self.aeron.add_subscription(
                response_channel,
                response_stream_id,
                on_unavailable_image=on_unavailable_image,
            )
        except BaseException:
            if publication is not None:
                publication.close()
            raise
        try:
            if publication is None:
                publication = await self._add_publication(subscription.registration_id)
        except BaseException:
            await subscription.aclose()
            raise
        connection = ControlConnection(
            publication,
            subscription,
            timeout=self._timeout,
            first_correlation_id=self.aeron.clock.now_ns() + subscription.registration_id,
            log_budget=self.aeron.driver.conductor.log_budget,
        )
        opened.append(connection)
        connection.on_signal = self._hub.on_signal
        connection.on_lost = self._hub.close
        try:
            await connection.open(
                response_channel=str(resolved(response_channel, subscription)),
                response_stream_id=response_stream_id,
                credentials=self._credentials,
            )
            # The archive repeats that the session is open until it gets the first request.
            self.archive_id = await connection.ask(ArchiveIdRequest)
            self._check_not_closed()
        except BaseException:
            await connection.aclose()
            raise
        self._connection = connection

    async def _add_publication(
        self, response_subscription_id: int | None = None
    ) -> ExclusivePublication:
        channel, stream_id = self._control
        if self._response[0].control_mode is ControlMode.RESPONSE:
            channel = channel.replace(response_correlation_id=response_subscription_id)
        if channel.term_length is None:
            channel = channel.replace(term_length=CONTROL_TERM_LENGTH)
        return await self.aeron.add_exclusive_publication(
            channel, stream_id, on_disconnected="raise"
        )

    async def _ask(self, kind: type[Request], **fields: Any) -> int:
        check_ids(**fields)
        return await self.connection.ask(kind, **fields)

    async def wait_recorded_descriptor(
        self, recording_id: int, position: int
    ) -> tuple[int, RecordingDescriptor]:
        """Return a recorded position and the recording; see `Archive.wait_recorded_descriptor`.

        Both are asked for at once, and an archive answers the requests of a session in their order.
        """
        delay_s = FIRST_LOOK_S
        while True:
            async with TaskOwner(on_failed=lambda _: None) as tasks:
                asked = tasks.start(self.recording_position(recording_id), "recorded position")
                described = tasks.start(self.describe(recording_id), "recording")
                answered: list[asyncio.Task[Any]] = []
                for each in (asked, described):
                    each.add_done_callback(answered.append)
                recorded = await asked
                # A descriptor that came first could be older than the position.
                if recorded is None or answered[0] is not asked:
                    return await super().wait_recorded_descriptor(recording_id, position)
                descriptor = await described
            if recorded >= position:
                return recorded, descriptor
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, LAST_LOOK_S)

    # Recording.

    async def start_recording(
        self,
        channel: str,
        stream_id: int,
        *,
        source_location: SourceLocation | Literal["local", "remote"] = SourceLocation.LOCAL,
        auto_stop: bool = False,
        on_failed: Callable[[ArchiveError], object] | None = None,
    ) -> int:
        """Record a stream from now on; see `Archive.start_recording`."""
        return await self._record(
            StartRecordingRequest2,
            on_failed,
            channel=channel,
            stream_id=stream_id,
            source_location=source_location,
            auto_stop=auto_stop,
        )

    async def extend_recording(
        self,
        recording_id: int,
        channel: str,
        stream_id: int,
        *,
        source_location: SourceLocation | Literal["local", "remote"] = SourceLocation.LOCAL,
        auto_stop: bool = False,
        on_failed: Callable[[ArchiveError], object] | None = None,
    ) -> int:
        """Extend a stopped recording; see `Archive.extend_recording`."""
        return await self._record(
            ExtendRecordingRequest2,
            on_failed,
            recording_id=recording_id,
            channel=channel,
            stream_id=stream_id,
            source_location=source_location,
            auto_stop=auto_stop,
        )

    async def _record(
        self, kind: type[Request], on_failed: Callable[[ArchiveError], object] | None, **fields: Any
    ) -> int:
        fields["source_location"] = location = check_location(fields["source_location"])
        check_callable(on_failed, "on_failed")
        check_flag(fields["auto_stop"], "auto_stop")
        stream_id = check_stream_id(fields["stream_id"])
        subscription_uri(fields["channel"], stream_id)
        fields["channel"] = channel = str(fields["channel"])

        def on_late_error(error: ArchiveError) -> None:
            self._hints.forget_stream(channel, stream_id)
            if on_failed is not None:
                on_failed(error)
                return
            within(self.aeron.driver.conductor.log_budget, log).warning(
                "asked_recording_failed", error=str(error), channel=channel
            )

        subscription_id = await self._ask(kind, on_late_error=on_late_error, **fields)
        return self._hints.expect(subscription_id, channel, stream_id, location)

    async def extending_publication(
        self, recording_id: int, channel: str, stream_id: int
    ) -> ExclusivePublication:
        """Return a publication to extend a recording; see `Archive.extending_publication`."""
        check_id(recording_id)
        publication_uri(channel, check_stream_id(stream_id))
        uri = extending_channel(await self.describe(recording_id), channel)
        return await self.aeron.add_exclusive_publication(uri, stream_id)

    async def stop_recording(self, channel: str, stream_id: int) -> None:
        """Stop recording a stream; see `Archive.stop_recording`."""
        subscription_uri(channel, check_stream_id(stream_id))
        await self._ask(StopRecordingRequest, channel=str(channel), stream_id=stream_id)
        self._hints.forget_stream(str(channel), stream_id)

    async def stop_recording_subscription(self, subscription_id: int) -> None:
        """Stop a recording subscription; see `Archive.stop_recording_subscription`."""
        self._hints.forget(subscription_id)
        await self._ask(StopRecordingSubscriptionRequest, subscription_id=subscription_id)

    async def stop_recording_by_identity(self, recording_id: int) -> bool:
        """Stop one recording, and return whether it was active."""
        return await self._ask(StopRecordingByIdentityRequest, recording_id=recording_id) != 0

    # Replaying.

    def replay(
        self,
        recording_id: int,
        from_position: int | None = None,
        to_position: int | None = None,
        *,
        follow: bool = False,
    ) -> RemoteReplay:
        """Return an iterator over the messages of a recording; see `Archive.replay`.

        Differs: a replay that follows continues when a stopped recording is extended. The client
        asks the archive for that four times a second.
        """
        check_replayed(recording_id, from_position, to_position, follow=follow)
        replay = RemoteReplay(self, recording_id, from_position, to_position, follow=follow)
        self._replays[replay] = None
        return replay

    def forget_replay(self, replay: RemoteReplay) -> None:
        """Forget a replay that was closed, so that `aclose` does not close it again."""
        self._replays.pop(replay, None)

    async def start_replay(
        self,
        recording_id: int,
        channel: str,
        stream_id: int,
        *,
        position: int = -1,
        length: int = ALL_AND_FOLLOW,
        limit_counter_id: int | None = None,
    ) -> int:
        """Publish a recording on a channel; see `Archive.start_replay`."""
        publication_uri(channel, check_stream_id(stream_id))
        limit = {} if limit_counter_id is None else {"limit_counter_id": limit_counter_id}
        return await self._ask(
            BoundedReplayRequest if limit else ReplayRequest,
            recording_id=recording_id,
            position=position,
            length=length,
            replay_stream_id=stream_id,
            replay_channel=str(channel),
            **limit,
        )

    async def stop_replay(self, replay_session_id: int) -> None:
        """Stop a replay; a replay that has ended is ignored."""
        await self._ask(StopReplayRequest, replay_session_id=replay_session_id)

    async def stop_all_replays(self, recording_id: int | None = None) -> None:
        """Stop all replays, or all of one recording."""
        await self._ask(
            StopAllReplaysRequest, recording_id=-1 if recording_id is None else recording_id
        )

    # Signals.

    def signals(self) -> SignalReader:
        """Return an iterator over the signals of recordings that this client requested.

        Raises:
            ClosedError: The client was not started. If it is closed, the iteration ends at once.
        """
        if not self._is_closed:
            # Without a session no signal would come, and nothing would end the iteration.
            _ = self.connection
        return self._hub.stream()

    async def aclose(self) -> None:
        """End the session, and close; a second call does nothing."""
        self._is_closed = True
        self._hints.close()
        connection, replays = self._connection, list(self._replays)
        self._replays.clear()
        try:
            await end_all(replays, connection)
        finally:
            self._connection = None
            self._hub.close()
            if connection is not None:
                await connection.aclose()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        await self.start()
        return self
