"""A core on a list for a network, with the means to offer to it, feed it and read from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from aeron_async.driver.core.congestion_control import CongestionControlParams, congestion_control
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.data_packet_dispatcher import DataPacketDispatcher
from aeron_async.driver.core.flow_control import unicast_flow_control
from aeron_async.driver.core.network_publication import NetworkPublication
from aeron_async.driver.core.publication_image import PublicationImage
from aeron_async.driver.core.stream_counters import ImageCounters, PublicationCounters
from aeron_async.driver.core.stream_params import choose_delay
from aeron_async.driver.core.subscriber_position import SubscriberPosition
from aeron_async.logbuffer.appender import ExclusiveAppender, SharedAppender
from aeron_async.logbuffer.metadata import LogType
from aeron_async.logbuffer.reader import TermReader
from aeron_async.protocol.data import DataHeader
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.status_message import StatusMessage
from tests.driver.fakes import (
    CONTEXT,
    RECEIVER_ID,
    SOURCE,
    WINDOW,
    Counts,
    Outbox,
    make_params,
    position_of,
    status_message,
)
from tests.logbuffer.logs import SESSION_ID, STREAM_ID, make_log

if TYPE_CHECKING:
    from aeron_async.counters import Counter
    from aeron_async.driver.core.congestion_control import CongestionControlSupplier
    from aeron_async.driver.core.feedback_delay import FeedbackDelay
    from aeron_async.driver.core.flow_control import FlowControl
    from aeron_async.driver.core.image_connection import ImageConnection
    from aeron_async.driver.core.image_state import ImageState
    from aeron_async.driver.core.losses import Losses
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.publication import PublicationState
    from aeron_async.driver.core.session_states import SessionState
    from aeron_async.driver.core.subscriber_position import Subscribable
    from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
    from aeron_async.driver.core.timestamps import SendTimestamps
    from aeron_async.protocol.error import ErrorFrame
    from aeron_async.protocol.setup import Setup


class SpiedPublication(NetworkPublication):
    """A publication whose methods a test can replace: it has a dictionary of its own."""


class PublicationRig:
    """A publication on an outbox, with an appender to offer by."""

    publication_type: ClassVar[type[NetworkPublication]] = NetworkPublication

    def __init__(
        self,
        *,
        context: DriverContext = CONTEXT,
        now_ns: int = 0,
        spec: dict[str, Any] | None = None,
        flow_control: FlowControl | None = None,
        timestamps: SendTimestamps | None = None,
        counts: Counts | None = None,
        outbox: Outbox | None = None,
        **params: Any,
    ) -> None:
        is_exclusive = params.setdefault("is_exclusive", True)
        kind = LogType.EXCLUSIVE_PUBLICATION if is_exclusive else LogType.CONCURRENT_PUBLICATION
        self.log = make_log(log_type=kind, **(spec or {}))
        self.counts = counts or Counts(context)
        self.outbox = outbox or Outbox()
        self.window_changes = 0
        self.errors: list[ErrorFrame] = []
        self.error_origins: list[tuple[Address | None, int | None]] = []
        flow_control = flow_control or unicast_flow_control(context)
        self.counters = PublicationCounters.allocate(
            self.counts.manager,
            registration_id=1,
            session_id=self.log.session_id,
            stream_id=STREAM_ID,
            channel="aeron:udp?endpoint=localhost:40123",
            client_id=1,
            is_exclusive=is_exclusive,
            is_tracking_receivers=flow_control.receiver_count() is not None,
        )
        self.params = make_params(self.log, **params)
        self.publication = self.publication_type(
            registration_id=1,
            channel="aeron:udp?endpoint=localhost:40123",
            log=self.log,
            params=self.params,
            context=context,
            flow_control=flow_control,
            counters=self.counters,
            system_counters=self.counts.system,
            outbox=self.outbox,
            listener=self,
            readers=self,
            now_ns=now_ns,
            timestamps=timestamps,
        )
        self.told: list[tuple[str, int]] = []
        self.progress = 0
        self.publication.window_listeners.append(self)
        self.appender = ExclusiveAppender(self.log) if is_exclusive else SharedAppender(self.log)

    def on_window_changed(self) -> None:
        self.window_changes += 1

    def on_publication_error(
        self,
        publication: NetworkPublication,
        error: ErrorFrame,
        source: Address | None,
        destination_id: int | None,
    ) -> None:
        assert publication is self.publication
        self.errors.append(error)
        self.error_origins.append((source, destination_id))

    def on_progress(self) -> None:
        self.progress += 1

    def on_unavailable_image(self, source: Subscribable, subscriber: SubscriberPosition) -> None:
        assert source is self.publication
        self.told.append(("unavailable", subscriber.subscription_id))

    def on_available_image(self, source: Subscribable, subscriber: SubscriberPosition) -> None:
        assert source is self.publication
        self.told.append(("available", subscriber.subscription_id))

    def offer(self, data: bytes) -> int:
        """Offer up to the publisher limit, once more after a rotation; return what came of it."""
        limit = self.publication.publisher_limit
        result = self.appender.offer(data, limit=limit)
        return self.appender.offer(data, limit=limit) if result == -3 else result

    def state(self) -> PublicationState:
        return self.publication.state

    def is_connected(self) -> bool:
        return self.publication.is_connected

    def is_accepting(self) -> bool:
        return self.publication.is_accepting_subscriptions

    def hear(self, position: int, now_ns: int, **changes: Any) -> None:
        self.publication.on_status_message(status_message(self.log, position, **changes), now_ns)

    def hear_nak(self, nak: Nak, now_ns: int, source: Address | None = None) -> None:
        asked = ((nak.term_id, nak.term_offset, nak.length),)
        self.publication.on_naks(asked, now_ns, source=source)

    def poll(self, now_ns: int) -> list[bytes]:
        self.publication.poll(now_ns)
        return self.outbox.take()

    def spy(self, subscription_id: int = 0, *, is_tether: bool = True) -> Counter:
        """Let a spy join, and return its position."""
        position = self.counts.new(self.publication.join_position)
        self.publication.add_subscriber(
            SubscriberPosition(
                subscription_id=subscription_id,
                position=position,
                on_progress=self.on_progress,
                is_tether=is_tether,
            )
        )
        return position

    def connect(self, now_ns: int) -> None:
        """Bring the publication to where its first receiver has spoken, and forget the SETUP."""
        self.publication.poll(now_ns)
        self.hear(self.publication.sender_position, now_ns)
        self.publication.poll(now_ns)
        self.outbox.take()


class ImageRig:
    """An image on an outbox, and subscribers that read it."""

    def __init__(
        self,
        *,
        context: DriverContext = CONTEXT,
        now_ns: int = 0,
        join_position: int = 0,
        subscribers: int = 1,
        is_reliable: bool = True,
        feedback_delay: FeedbackDelay | None = None,
        group_tag: int | None = None,
        spec: dict[str, Any] | None = None,
        counts: Counts | None = None,
        outbox: Outbox | None = None,
        window_length: int = WINDOW,
        source: Any = SOURCE,
        chosen_control: str | CongestionControlSupplier | None = None,
        kind: type[PublicationImage] = PublicationImage,
        losses: Losses | None = None,
    ) -> None:
        self.log = make_log(log_type=LogType.IMAGE, **(spec or {}))
        self.counts = Counts(context) if counts is None else counts
        self.outbox = Outbox() if outbox is None else outbox
        self.progress = 0
        self.told: list[tuple[str, int]] = []
        control = congestion_control(
            chosen_control,
            CongestionControlParams(
                context=context,
                configured_window_length=window_length,
                term_length=self.log.term_length,
                mtu_length=self.log.mtu_length,
                now_ns=now_ns,
            ),
        )
        self.counters = ImageCounters.allocate(
            self.counts.manager,
            registration_id=2,
            session_id=SESSION_ID,
            stream_id=STREAM_ID,
            channel="aeron:udp?endpoint=localhost:40123",
            client_id=1,
            congestion_control_types=control.counter_types,
        )
        control.bind(self.counters.congestion_control)
        delay = choose_delay(
            context, is_reliable=is_reliable, is_group=False, nak_delay_ns=None, random=float
        )
        self.image = kind(
            registration_id=2,
            log=self.log,
            join_position=join_position,
            source=source,
            destination=self.outbox,
            context=context,
            congestion_control=control,
            feedback_delay=delay if feedback_delay is None else feedback_delay,
            is_reliable=is_reliable,
            counters=self.counters,
            system_counters=self.counts.system,
            receiver_id=RECEIVER_ID,
            group_tag=group_tag,
            listener=self,
            now_ns=now_ns,
            losses=losses,
        )
        self.readers: list[tuple[TermReader, Counter]] = []
        for _ in range(subscribers):
            self.subscribe()

    def on_progress(self) -> None:
        self.progress += 1

    def on_unavailable_image(self, source: Subscribable, subscriber: SubscriberPosition) -> None:
        assert source is self.image
        self.told.append(("unavailable", subscriber.subscription_id))

    def on_available_image(self, source: Subscribable, subscriber: SubscriberPosition) -> None:
        assert source is self.image
        self.told.append(("available", subscriber.subscription_id))

    def subscribe(self, *, is_tether: bool = True, is_rejoin: bool = True) -> int:
        """Let one more subscription join; return where it does."""
        position = self.image.join_position
        counter = self.counts.new(position)
        self.image.add_subscriber(
            SubscriberPosition(
                subscription_id=len(self.readers),
                position=counter,
                on_progress=self.on_progress,
                is_tether=is_tether,
                is_rejoin=is_rejoin,
            )
        )
        self.readers.append((TermReader(self.log, position), counter))
        return position

    def read(
        self, index: int = 0, *, limit: int = 1_000, limit_position: int | None = None
    ) -> list[bytes]:
        """Let a subscriber read what is there, and move its position behind it."""
        reader, counter = self.readers[index]
        found: list[tuple[bytes, int, int]] = []
        position = -1
        while position != reader.position and len(found) < limit:
            position = reader.position
            reader.read_messages(found, limit=limit - len(found), limit_position=limit_position)
        counter.set(reader.position)
        return [data for data, _, _ in found]

    def consume_to(self, position: int, index: int = 0) -> None:
        self.readers[index][1].set(position)

    def state(self) -> ImageState:
        return self.image.state

    def feed(self, datagram: bytes, now_ns: int) -> None:
        """Hand a datagram of data to the image as the dispatcher would."""
        header = DataHeader.decode(datagram)
        self.image.insert_packet(
            memoryview(datagram),
            self.connection(),
            term_id=header.term_id,
            term_offset=header.term_offset,
            now_ns=now_ns,
        )

    def connection(self, destination: Outbox | None = None) -> ImageConnection:
        """Return what the image knows of its source, or of that of another destination."""
        destination = self.outbox if destination is None else destination
        return connect(self.image, destination, self.image.source, 0)

    def status_messages(self) -> list[StatusMessage]:
        return self.outbox.take_frames(StatusMessage)

    def naks(self) -> list[tuple[int, int]]:
        """Return position and length of the gaps asked for since the last look."""
        return [
            (position_of(nak.term_id, nak.term_offset, self.log), nak.length)
            for nak in self.outbox.take_frames(Nak)
        ]

    def __getitem__(self, counter_id: SystemCounterId | DriverCounterId) -> int:
        return self.counts[counter_id]


def connect(
    image: PublicationImage, destination: Outbox, source: Any, now_ns: int
) -> ImageConnection:
    """Let an image hear of a source that way, and return what it knows of it then."""
    connection = image.connections.find(destination, source, now_ns)
    assert connection is not None
    if connection.is_new:
        connection.last_activity_ns = now_ns
        image.connections.keep(connection)
    return connection


class DispatcherRig:
    """A dispatcher that makes images at once, unless told not to."""

    def __init__(
        self, *, context: DriverContext | None = None, group_tag: int | None = None
    ) -> None:
        self.counts = Counts()
        self.context = context or DriverContext()
        self.outbox = Outbox()
        self.is_refusing = False
        self.setups: list[tuple[Setup, Any]] = []
        self.activity: list[PublicationImage] = []
        self.invalid: list[tuple[bytes, Address, int]] = []
        self.images: list[ImageRig] = []
        self.dispatcher = DataPacketDispatcher(
            context=self.context,
            system_counters=self.counts.system,
            receiver_id=RECEIVER_ID,
            group_tag=group_tag,
            listener=self,
        )

    def on_image_activity(self, image: PublicationImage) -> None:
        self.activity.append(image)

    def on_create_image(self, setup: Setup, source: Any, destination: Any) -> None:
        self.setups.append((setup, source))
        if not self.is_refusing:
            rig = ImageRig(
                context=self.context,
                counts=self.counts,
                outbox=destination,
                spec={"session_id": setup.session_id, "initial_term_id": setup.initial_term_id},
                source=source,
            )
            self.images.append(rig)
            self.dispatcher.add_image(rig.image)

    def on_invalid_datagram(self, datagram: memoryview, source: Address, now_ns: int) -> None:
        self.invalid.append((bytes(datagram), source, now_ns))

    def feed(
        self,
        datagram: bytes,
        now_ns: int = 0,
        source: Any = SOURCE,
        destination: Outbox | None = None,
    ) -> None:
        self.dispatcher.on_datagram(
            memoryview(datagram),
            source,
            now_ns,
            self.outbox if destination is None else destination,
        )

    def elicited(self) -> list[StatusMessage]:
        return self.outbox.take_frames(StatusMessage)

    def state(self, now_ns: int = 0, session_id: int = SESSION_ID) -> SessionState | None:
        return self.dispatcher._states.state_of(STREAM_ID, session_id, now_ns)
