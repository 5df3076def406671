"""The streams of a driver, put together from its counters, its logs and its loss report.

A publication is known by its registration id, an image by its correlation id. Counters are read one
after the other while the driver moves them, so that a distance is never below 0 here, even if what
is behind was read later than what is ahead.

Source: Aeron `StreamStat`, `BacklogStat`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.driver.core.stream_counters import (
    STREAM_KEY_CHANNEL_LENGTH,
    StreamCounterType,
    StreamKey,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aeron_async.aeron_directory import AeronDirectory, LogDescription
    from aeron_async.counters import CounterRecord

__all__ = ["ImageFigures", "PublicationFigures", "StreamPositions", "SubscriberFigures", "distance"]

PUBLICATION_FIELDS: Final = {
    StreamCounterType.PUBLISHER_LIMIT.type_id: "limit",
    StreamCounterType.PUBLISHER_POSITION_CONCURRENT.type_id: "counted_position",
    StreamCounterType.SENDER_POSITION.type_id: "sender_position",
    StreamCounterType.SENDER_LIMIT.type_id: "sender_limit",
    StreamCounterType.SENDER_BPE.type_id: "back_pressure_events",
    StreamCounterType.SENDER_NAKS_RECEIVED.type_id: "naks_received",
    StreamCounterType.FLOW_CONTROL_RECEIVERS.type_id: "receivers",
}
IMAGE_FIELDS: Final = {
    StreamCounterType.RECEIVER_HWM.type_id: "highest_position",
    StreamCounterType.RECEIVER_POSITION.type_id: "position",
    StreamCounterType.RECEIVER_NAKS_SENT.type_id: "naks_sent",
}
EXCLUSIVE: Final = StreamCounterType.PUBLISHER_POSITION_EXCLUSIVE
SUBSCRIBER_TYPE_ID: Final = StreamCounterType.SUBSCRIPTION_POSITION.type_id


def is_window(record: CounterRecord) -> bool:
    """Return whether a counter is the window of a congestion control."""
    return record.type_id == StreamCounterType.AUTO_WINDOW.type_id and record.label.startswith(
        (StreamCounterType.AUTO_WINDOW.label_name, StreamCounterType.CUBIC_WINDOW.label_name)
    )


def channel_of(record: CounterRecord, key: StreamKey) -> str:
    """Return the channel of a counter: a long one stands in the label, and its begin in the key."""
    if len(key.channel.encode()) < STREAM_KEY_CHANNEL_LENGTH:
        return key.channel
    _, _, label = record.label.partition(
        f": {key.registration_id} {key.session_id} {key.stream_id} "
    )
    if record.type_id == SUBSCRIBER_TYPE_ID:
        label = label.rpartition(" @")[0]
    return label if label.startswith(key.channel) else key.channel


def distance(ahead: int | None, behind: int | None) -> int | None:
    """Return how far one position is ahead of another, at least 0; None if one is not known.

    Differs: `BacklogStat` shows what is below 0, as after the last message before back pressure,
    which may end beyond the limit.
    """
    return None if ahead is None or behind is None else max(ahead - behind, 0)


@attrs.frozen(kw_only=True)
class SubscriberFigures:
    """One subscription in one stream.

    Attributes:
        channel: As far as the driver keeps it, which is further than in the key; not escaped.
        source_id: Registration id of its publication, or correlation id of its image; 0 for a
            moment after an official driver has added it.
    """

    key: StreamKey
    channel: str
    position: int
    source_id: int


@attrs.define(kw_only=True)
class PublicationFigures:
    """One publication; positions in bytes, and None where the driver has no such counter.

    Attributes:
        channel: As far as the driver keeps it, which is further than in the key; not escaped.
        is_exclusive: None if its position is not counted.
        counted_position: What the driver last counted; it is behind the log.
    """

    key: StreamKey
    channel: str
    is_exclusive: bool | None = None
    counted_position: int | None = None
    limit: int | None = None
    sender_position: int | None = None
    sender_limit: int | None = None
    back_pressure_events: int | None = None
    naks_received: int | None = None
    receivers: int | None = None
    log: LogDescription | None = None
    subscribers: list[SubscriberFigures] = attrs.Factory(list)

    @property
    def position(self) -> int | None:
        """Up to where publishers have claimed: by the log if it can be read, else as counted."""
        claimed = None if self.log is None else self.log.producer_position
        if claimed is None or self.counted_position is None:
            return self.counted_position if claimed is None else claimed
        return max(claimed, self.counted_position)

    @property
    def window(self) -> int | None:
        """Bytes that publishers may claim before they meet back pressure."""
        return distance(self.limit, self.position)

    @property
    def unsent(self) -> int | None:
        """Bytes that the sender has to send; None for IPC."""
        return distance(self.position, self.sender_position)

    @property
    def sender_window(self) -> int | None:
        """Bytes that the sender may send; None for IPC."""
        return distance(self.sender_limit, self.sender_position)

    def backlog_of(self, subscriber: SubscriberFigures) -> int | None:
        """Return how many bytes a spy, or a subscriber over IPC, has to read."""
        return distance(self.position, subscriber.position)


@attrs.define(kw_only=True)
class ImageFigures:
    """One image; positions in bytes, and None where the driver has no such counter.

    Attributes:
        channel: As far as the driver keeps it, which is further than in the key; not escaped.
        position: Up to where nothing is missing.
        chosen_window: What the congestion control grants now; None for a static window.
        lost_length: Bytes that the loss report has of the stream and session, repaired or not.
    """

    key: StreamKey
    channel: str
    position: int | None = None
    highest_position: int | None = None
    naks_sent: int | None = None
    chosen_window: int | None = None
    lost_length: int = 0
    log: LogDescription | None = None
    subscribers: list[SubscriberFigures] = attrs.Factory(list)

    @property
    def incomplete(self) -> int | None:
        """Bytes between the highest position and the first gap; 0 if nothing is missing."""
        return distance(self.highest_position, self.position)

    @property
    def window(self) -> int | None:
        """Bytes that the receiver grants beyond what is read; None if that is not known.

        Source: Aeron `aeron_receiver_window_length`.
        """
        if self.chosen_window is not None:
            return self.chosen_window
        if self.log is None:
            return None
        return min(self.log.receiver_window_length, self.log.term_length // 2)

    def backlog_of(self, subscriber: SubscriberFigures) -> int | None:
        """Return how many bytes a subscriber has to read, those behind a gap included."""
        return distance(self.highest_position, subscriber.position)


@attrs.frozen(kw_only=True)
class StreamPositions:
    """All streams of a driver at about one time.

    Attributes:
        strays: Subscribers whose publication or image is not known, for a moment.
    """

    publications: list[PublicationFigures]
    images: list[ImageFigures]
    strays: list[SubscriberFigures]

    @classmethod
    def of(cls, directory: AeronDirectory) -> StreamPositions:
        """Read the streams of a driver."""
        lost: dict[tuple[int, int], int] = defaultdict(int)
        for each in directory.losses():
            lost[each.session_id, each.stream_id] += each.total_bytes_lost
        positions = cls.of_counters(directory.counter_records())
        for image in positions.images:
            image.lost_length = lost[image.key.session_id, image.key.stream_id]
            image.log = directory.image_log(image.key.registration_id)
        for publication in positions.publications:
            publication.log = directory.publication_log(publication.key.registration_id)
        return positions

    @classmethod
    def of_counters(cls, records: Iterable[CounterRecord]) -> StreamPositions:
        """Put streams together from counters alone."""
        publications: dict[int, PublicationFigures] = {}
        images: dict[int, ImageFigures] = {}
        subscribers: list[SubscriberFigures] = []
        for record in records:
            key = StreamKey.decode(record)
            if key is None:
                continue
            found, type_id = key.registration_id, record.type_id
            if type_id == SUBSCRIBER_TYPE_ID:
                subscribers.append(
                    SubscriberFigures(
                        key=key,
                        channel=channel_of(record, key),
                        position=record.value,
                        source_id=record.reference_id,
                    )
                )
            elif (field := PUBLICATION_FIELDS.get(type_id)) is not None:
                publication = publications.get(found)
                if publication is None:
                    publication = PublicationFigures(key=key, channel=channel_of(record, key))
                    publications[found] = publication
                setattr(publication, field, record.value)
                if type_id == EXCLUSIVE.type_id:
                    publication.is_exclusive = record.label.startswith(EXCLUSIVE.label_name)
            elif (field := IMAGE_FIELDS.get(type_id)) is not None or is_window(record):
                image = images.get(found)
                if image is None:
                    image = images[found] = ImageFigures(key=key, channel=channel_of(record, key))
                setattr(image, field or "chosen_window", record.value)
        strays: list[SubscriberFigures] = []
        for subscriber in subscribers:
            source = images.get(subscriber.source_id) or publications.get(subscriber.source_id)
            (strays if source is None else source.subscribers).append(subscriber)
        return cls(
            publications=list(publications.values()), images=list(images.values()), strays=strays
        )
