"""The counters of streams, channels and clients, with Aeron's keys and labels.

    stream key    0 registration id i64 | 8 session i32 | 12 stream i32 | 16 length i32 | 20 channel
    channel key   0 length i32 | 4 channel
    address key   0 channel status counter id i32 | 4 length i32 | 8 address
    client key    0 client id i64

Invariant: a text that does not fit its key is cut, and the length before it is that of the part
that was kept.

Invariant: `allocate_counter_group` allocates all counters of a stream or none. If the table fills
up half-way, it frees those it has allocated.

Source: Aeron `StreamCounter`, `ChannelEndpointStatus`, `aeron_position.c`, counter types 1, 2, 3,
5, 9, 10, 12, 13, 17, 19 and 20.
"""

from __future__ import annotations

import struct
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.counters import (
    LOCAL_ADDRESS_TYPE_ID,
    PUBLISHER_POSITION_TYPE_ID,
    SENDER_POSITION_TYPE_ID,
    SUBSCRIPTION_POSITION_TYPE_ID,
)

if TYPE_CHECKING:
    from aeron_async.counters import Counter, CounterRecord, CountersManager

__all__ = [
    "NO_OWNER_ID",
    "STREAM_KEY_CHANNEL_LENGTH",
    "ChannelCounterType",
    "ChannelStatus",
    "ImageCounters",
    "IpcPublicationCounters",
    "LocalAddressType",
    "PublicationCounters",
    "StreamCounterType",
    "StreamKey",
    "allocate_channel_counter",
    "allocate_client_heartbeat",
    "allocate_counter_group",
    "allocate_local_address",
    "allocate_stream_counter",
    "allocate_subscription_position",
    "channel_counter_label",
]

# Types, and how one counter is allocated.

CLIENT_HEARTBEAT_TYPE_ID: Final = 11
# Channels and addresses belong to the driver, and outlive any client.
DRIVER_OWNER_ID: Final = 0
# The driver also owns the counters of strategies, which the C driver marks with this id.
NO_OWNER_ID: Final = -1

_STREAM_KEY: Final = struct.Struct("<qiii")
STREAM_KEY_CHANNEL_LENGTH: Final = 92
"""Bytes of a channel that a key holds."""
_CHANNEL_KEY: Final = struct.Struct("<i")
_CHANNEL_KEY_CHANNEL_LENGTH: Final = 108
_ADDRESS_KEY: Final = struct.Struct("<ii")
# In the C driver the last of the remaining 104 bytes is a terminator.
_ADDRESS_KEY_ADDRESS_LENGTH: Final = 103
_CLIENT_KEY: Final = struct.Struct("<q")


@final
class ChannelStatus(IntEnum):
    """Values of the `snd-channel` and `rcv-channel` counters.

    Source: Aeron `ChannelEndpointStatus`.
    """

    ERRORED = -1
    INITIALIZING = 0
    ACTIVE = 1
    CLOSING = 2


class _CounterType(Enum):
    """A type id and the name that begins the label; several names may share one type id."""

    def __init__(self, type_id: int, label_name: str) -> None:
        self.type_id: Final = type_id
        self.label_name: Final = label_name


@final
class StreamCounterType(_CounterType):
    """Counters of one publication, image or subscription."""

    PUBLISHER_LIMIT = (1, "pub-lmt")
    SENDER_POSITION = (SENDER_POSITION_TYPE_ID, "snd-pos")
    RECEIVER_HWM = (3, "rcv-hwm")
    SUBSCRIPTION_POSITION = (SUBSCRIPTION_POSITION_TYPE_ID, "sub-pos")
    RECEIVER_POSITION = (5, "rcv-pos")
    SENDER_LIMIT = (9, "snd-lmt")
    CUBIC_RTT = (10, "rcv-cc-cubic-rtt")
    CUBIC_WINDOW = (10, "rcv-cc-cubic-wnd")
    AUTO_WINDOW = (10, "rcv-cc-auto-wnd")
    PUBLISHER_POSITION_CONCURRENT = (PUBLISHER_POSITION_TYPE_ID, "pub-pos (concurrent)")
    PUBLISHER_POSITION_EXCLUSIVE = (PUBLISHER_POSITION_TYPE_ID, "pub-pos (exclusive)")
    SENDER_BPE = (13, "snd-bpe")
    FLOW_CONTROL_RECEIVERS = (17, "fc-receivers")
    SENDER_NAKS_RECEIVED = (19, "snd-naks-received")
    RECEIVER_NAKS_SENT = (20, "rcv-naks-sent")


@final
class ChannelCounterType(_CounterType):
    """Counters of one channel endpoint."""

    SEND_CHANNEL_STATUS = (6, "snd-channel")
    RECEIVE_CHANNEL_STATUS = (7, "rcv-channel")
    MDC_NUM_DESTINATIONS = (18, "mdc-num-dest")


@final
class LocalAddressType(_CounterType):
    """Counters of one bound address; clients read from them which port the system chose."""

    SEND = (LOCAL_ADDRESS_TYPE_ID, "snd-local-sockaddr")
    RECEIVE = (LOCAL_ADDRESS_TYPE_ID, "rcv-local-sockaddr")


@attrs.frozen(kw_only=True)
class StreamKey:
    """The key of a counter of one stream, as any driver wrote it.

    Attributes:
        registration_id: That of the publication or image, or of the subscription for `sub-pos`.
        channel: The first 92 bytes of it; not escaped.
    """

    registration_id: int
    session_id: int
    stream_id: int
    channel: str

    @classmethod
    def decode(cls, record: CounterRecord) -> StreamKey | None:
        """Return the key of a counter; None if its type is not one of a stream."""
        if record.type_id not in STREAM_TYPE_IDS:
            return None
        registration_id, session_id, stream_id, length = _STREAM_KEY.unpack_from(record.key)
        # Another process wrote the length.
        used = min(max(length, 0), STREAM_KEY_CHANNEL_LENGTH)
        channel = record.key[_STREAM_KEY.size : _STREAM_KEY.size + used]
        return cls(
            registration_id=registration_id,
            session_id=session_id,
            stream_id=stream_id,
            channel=channel.decode("utf-8", "replace"),
        )


STREAM_TYPE_IDS: Final = frozenset(each.type_id for each in StreamCounterType)


def allocate_stream_counter(
    manager: CountersManager,
    counter_type: StreamCounterType,
    *,
    registration_id: int,
    session_id: int,
    stream_id: int,
    channel: str,
    owner_id: int,
    suffix: str = "",
    reference_id: int = 0,
) -> Counter:
    """Allocate a counter of one stream, labelled `snd-pos: 4 -1205 1001 aeron:udp?...`.

    The registration id is that of the publication or image, or of the subscription for `sub-pos`.
    The owner is the client, or -1 for a counter that does not end with a client. The key holds 92
    bytes of the channel.

    Raises:
        RegistrationError: no counter is left.

    Source: Aeron `StreamCounter.allocate`, `aeron_stream_counter_allocate`.
    """
    used = channel.encode("utf-8", "replace")[:STREAM_KEY_CHANNEL_LENGTH]
    name = counter_type.label_name
    return manager.allocate(
        counter_type.type_id,
        _STREAM_KEY.pack(registration_id, session_id, stream_id, len(used)) + used,
        f"{name}: {registration_id} {session_id} {stream_id} {channel}{suffix}",
        registration_id=registration_id,
        owner_id=owner_id,
        reference_id=reference_id,
    )


def allocate_subscription_position(
    manager: CountersManager,
    *,
    registration_id: int,
    session_id: int,
    stream_id: int,
    channel: str,
    owner_id: int,
    join_position: int,
    reference_id: int,
) -> Counter:
    """Allocate the `sub-pos` of one subscription in one image or publication.

    The registration id is that of the subscription, the reference id that of the image or
    publication. The label keeps the join position; the value starts there and moves on.

    Raises:
        RegistrationError: no counter is left.

    Source: Aeron `SubscriberPos.allocate`.
    """
    counter = allocate_stream_counter(
        manager,
        StreamCounterType.SUBSCRIPTION_POSITION,
        registration_id=registration_id,
        session_id=session_id,
        stream_id=stream_id,
        channel=channel,
        owner_id=owner_id,
        suffix=f" @{join_position}",
        reference_id=reference_id,
    )
    counter.set(join_position)
    return counter


def allocate_channel_counter(
    manager: CountersManager,
    counter_type: ChannelCounterType,
    *,
    registration_id: int,
    channel: str,
    bound_address: str = "",
) -> Counter:
    """Allocate a counter of one channel endpoint; its key holds 108 bytes of the channel.

    The address is known once the socket is bound. Until then leave it out, and replace the label
    with `channel_counter_label` afterwards.

    Raises:
        RegistrationError: no counter is left.

    Source: Aeron `ChannelEndpointStatus.allocate`, `aeron_channel_endpoint_status_allocate`.
    """
    used = channel.encode("utf-8", "replace")[:_CHANNEL_KEY_CHANNEL_LENGTH]
    return manager.allocate(
        counter_type.type_id,
        _CHANNEL_KEY.pack(len(used)) + used,
        channel_counter_label(counter_type, channel=channel, bound_address=bound_address),
        registration_id=registration_id,
        owner_id=DRIVER_OWNER_ID,
    )


def channel_counter_label(
    counter_type: ChannelCounterType, *, channel: str, bound_address: str
) -> str:
    """Return `snd-channel: aeron:udp?... 127.0.0.1:40456`, without the address if it is empty."""
    label = f"{counter_type.label_name}: {channel}"
    return f"{label} {bound_address}" if bound_address else label


def allocate_local_address(
    manager: CountersManager,
    address_type: LocalAddressType,
    *,
    registration_id: int,
    channel_status_id: int,
    address: str,
) -> Counter:
    """Allocate a counter for an address that a channel endpoint is bound to: `127.0.0.1:40456`.

    The value is 0 until the caller sets `ChannelStatus.ACTIVE`, for which clients wait. The key
    holds 103 bytes of the address.

    Raises:
        RegistrationError: no counter is left.

    Source: Aeron `LocalSocketAddressStatus`, `aeron_counter_local_sockaddr_indicator_allocate`.
    """
    used = address.encode("utf-8", "replace")[:_ADDRESS_KEY_ADDRESS_LENGTH]
    return manager.allocate(
        address_type.type_id,
        _ADDRESS_KEY.pack(channel_status_id, len(used)) + used,
        f"{address_type.label_name}: {channel_status_id} {address}",
        registration_id=registration_id,
        owner_id=DRIVER_OWNER_ID,
    )


def allocate_client_heartbeat(manager: CountersManager, *, client_id: int) -> Counter:
    """Allocate the heartbeat counter of a client: its last sign of life, in epoch milliseconds.

    Raises:
        RegistrationError: no counter is left.

    Source: Aeron `ClientHeartbeatTimestamp.allocate`.
    """
    return manager.allocate(
        CLIENT_HEARTBEAT_TYPE_ID,
        _CLIENT_KEY.pack(client_id),
        f"client-heartbeat: id={client_id}",
        registration_id=client_id,
        owner_id=client_id,
    )


# The counters of one stream.


def allocate_counter_group(
    manager: CountersManager,
    counter_types: tuple[StreamCounterType, ...],
    *,
    registration_id: int,
    session_id: int,
    stream_id: int,
    channel: str,
    owner_id: int,
    driver_types: tuple[StreamCounterType, ...] = (),
) -> list[Counter]:
    """Allocate one counter of each type for one stream; return them in order, the driver's last.

    Raises:
        RegistrationError: The counter table is full; none of them is left allocated.
    """
    allocated: list[Counter] = []
    try:
        for counter_type in counter_types + driver_types:
            counter = allocate_stream_counter(
                manager,
                counter_type,
                registration_id=registration_id,
                session_id=session_id,
                stream_id=stream_id,
                channel=channel,
                owner_id=owner_id if len(allocated) < len(counter_types) else NO_OWNER_ID,
            )
            allocated.append(counter)
    except BaseException:
        for counter in allocated:
            counter.close()
        raise
    return allocated


@attrs.frozen(kw_only=True)
class PublicationCounters:
    """The counters of a network publication; positions in bytes.

    Attributes:
        flow_control_receivers: Only if the flow control tracks receivers.
    """

    publisher_limit: Counter
    publisher_position: Counter
    sender_position: Counter
    sender_limit: Counter
    back_pressure_events: Counter
    naks_received: Counter
    flow_control_receivers: Counter | None = None

    @classmethod
    def allocate(
        cls,
        manager: CountersManager,
        *,
        registration_id: int,
        session_id: int,
        stream_id: int,
        channel: str,
        client_id: int,
        is_exclusive: bool,
        is_tracking_receivers: bool = False,
    ) -> PublicationCounters:
        """Allocate every counter of a publication.

        Raises:
            RegistrationError: The counter table is full.
        """
        counters = allocate_counter_group(
            manager,
            (
                position_type(is_exclusive=is_exclusive),
                StreamCounterType.PUBLISHER_LIMIT,
                StreamCounterType.SENDER_POSITION,
                StreamCounterType.SENDER_LIMIT,
                StreamCounterType.SENDER_BPE,
                StreamCounterType.SENDER_NAKS_RECEIVED,
            ),
            registration_id=registration_id,
            session_id=session_id,
            stream_id=stream_id,
            channel=channel,
            owner_id=client_id,
            driver_types=(
                (StreamCounterType.FLOW_CONTROL_RECEIVERS,) if is_tracking_receivers else ()
            ),
        )
        return cls(
            publisher_position=counters[0],
            publisher_limit=counters[1],
            sender_position=counters[2],
            sender_limit=counters[3],
            back_pressure_events=counters[4],
            naks_received=counters[5],
            flow_control_receivers=counters[6] if is_tracking_receivers else None,
        )

    def close(self) -> None:
        """Free every counter."""
        for counter in (
            self.publisher_limit,
            self.publisher_position,
            self.sender_position,
            self.sender_limit,
            self.back_pressure_events,
            self.naks_received,
            self.flow_control_receivers,
        ):
            if counter is not None:
                counter.close()


@attrs.frozen(kw_only=True)
class IpcPublicationCounters:
    """The counters of an IPC publication; positions in bytes."""

    publisher_limit: Counter
    publisher_position: Counter

    @classmethod
    def allocate(
        cls,
        manager: CountersManager,
        *,
        registration_id: int,
        session_id: int,
        stream_id: int,
        channel: str,
        client_id: int,
        is_exclusive: bool,
    ) -> IpcPublicationCounters:
        """Allocate every counter of a publication.

        Raises:
            RegistrationError: The counter table is full.
        """
        counters = allocate_counter_group(
            manager,
            (position_type(is_exclusive=is_exclusive), StreamCounterType.PUBLISHER_LIMIT),
            registration_id=registration_id,
            session_id=session_id,
            stream_id=stream_id,
            channel=channel,
            owner_id=client_id,
        )
        return cls(publisher_position=counters[0], publisher_limit=counters[1])

    def close(self) -> None:
        """Free every counter."""
        self.publisher_limit.close()
        self.publisher_position.close()


def position_type(*, is_exclusive: bool) -> StreamCounterType:
    """Return the type of the publisher position counter."""
    if is_exclusive:
        return StreamCounterType.PUBLISHER_POSITION_EXCLUSIVE
    return StreamCounterType.PUBLISHER_POSITION_CONCURRENT


@attrs.frozen(kw_only=True)
class ImageCounters:
    """The counters of an image; positions in bytes.

    Attributes:
        congestion_control: The counters that its congestion control asked for.
    """

    receiver_hwm: Counter
    receiver_position: Counter
    naks_sent: Counter
    congestion_control: tuple[Counter, ...] = ()

    @classmethod
    def allocate(
        cls,
        manager: CountersManager,
        *,
        registration_id: int,
        session_id: int,
        stream_id: int,
        channel: str,
        client_id: int,
        congestion_control_types: tuple[StreamCounterType, ...] = (),
    ) -> ImageCounters:
        """Allocate every counter of an image, owned by the client of its oldest subscription.

        Raises:
            RegistrationError: The counter table is full.
        """
        counters = allocate_counter_group(
            manager,
            (
                StreamCounterType.RECEIVER_HWM,
                StreamCounterType.RECEIVER_POSITION,
                StreamCounterType.RECEIVER_NAKS_SENT,
            ),
            registration_id=registration_id,
            session_id=session_id,
            stream_id=stream_id,
            channel=channel,
            owner_id=client_id,
            driver_types=congestion_control_types,
        )
        return cls(
            receiver_hwm=counters[0],
            receiver_position=counters[1],
            naks_sent=counters[2],
            congestion_control=tuple(counters[3:]),
        )

    def close(self) -> None:
        """Free every counter."""
        for counter in (
            self.receiver_hwm,
            self.receiver_position,
            self.naks_sent,
            *self.congestion_control,
        ):
            counter.close()
