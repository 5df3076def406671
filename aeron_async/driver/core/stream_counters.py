"""The counters that streams, channels and clients own, with Aeron's own keys and labels.

    stream key    0 registration id i64 | 8 session i32 | 12 stream i32 | 16 length i32 | 20 channel
    channel key   0 length i32 | 4 channel
    address key   0 channel status counter id i32 | 4 length i32 | 8 address
    client key    0 client id i64

Invariant: a text that does not fit its key is cut, and the length beside it says how much is there.

Source: Aeron `StreamCounter`, `ChannelEndpointStatus`, `aeron_position.c`.
"""

from __future__ import annotations

import struct
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from aeron_async.counters import Counter, CountersManager

__all__ = [
    "NO_OWNER_ID",
    "ChannelCounterType",
    "ChannelStatus",
    "LocalAddressType",
    "StreamCounterType",
    "allocate_channel_counter",
    "allocate_client_heartbeat",
    "allocate_local_address",
    "allocate_stream_counter",
    "allocate_subscription_position",
    "channel_counter_label",
]

CLIENT_HEARTBEAT_TYPE_ID: Final = 11
LOCAL_ADDRESS_TYPE_ID: Final = 14
# Channels and addresses belong to the driver: no client takes them along when it goes.
DRIVER_OWNER_ID: Final = 0
# Nor do those of strategies, which the C driver marks by this.
NO_OWNER_ID: Final = -1

_STREAM_KEY: Final = struct.Struct("<qiii")
_STREAM_KEY_CHANNEL_LENGTH: Final = 92
_CHANNEL_KEY: Final = struct.Struct("<i")
_CHANNEL_KEY_CHANNEL_LENGTH: Final = 108
_ADDRESS_KEY: Final = struct.Struct("<ii")
# The last of the 104 bytes that are left is a terminator in the C driver.
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
    SENDER_POSITION = (2, "snd-pos")
    RECEIVER_HWM = (3, "rcv-hwm")
    SUBSCRIPTION_POSITION = (4, "sub-pos")
    RECEIVER_POSITION = (5, "rcv-pos")
    SENDER_LIMIT = (9, "snd-lmt")
    CUBIC_RTT = (10, "rcv-cc-cubic-rtt")
    CUBIC_WINDOW = (10, "rcv-cc-cubic-wnd")
    PUBLISHER_POSITION_CONCURRENT = (12, "pub-pos (concurrent)")
    PUBLISHER_POSITION_EXCLUSIVE = (12, "pub-pos (exclusive)")
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
    """Counters of one bound address, from which clients learn the port the system chose."""

    SEND = (LOCAL_ADDRESS_TYPE_ID, "snd-local-sockaddr")
    RECEIVE = (LOCAL_ADDRESS_TYPE_ID, "rcv-local-sockaddr")


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
    """Publish a counter of one stream, labelled `snd-pos: 4 -1205 1001 aeron:udp?...`.

    The registration is that of the publication or image, or of the subscription for `sub-pos`; the
    owner is the client, or -1 where nobody's death ends it. 92 bytes of the channel fit the key.

    Raises:
        RegistrationError: no counter is left.

    Source: Aeron `StreamCounter.allocate`, `aeron_stream_counter_allocate`.
    """
    used = channel.encode("utf-8", "replace")[:_STREAM_KEY_CHANNEL_LENGTH]
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
    """Publish the `sub-pos` of one subscription in one image or publication, at its join position.

    The registration is the subscription's, the reference that of the image or publication. The
    label names the join position for good; the value moves on from there.

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
    """Publish a counter of one channel endpoint; 108 bytes of the channel fit its key.

    The address is known once the socket is bound; until then leave it out, and replace the label
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
    """Return `snd-channel: aeron:udp?... 127.0.0.1:40456`; without an address it ends earlier."""
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
    """Publish an address that a channel endpoint is bound to, such as `127.0.0.1:40456`.

    The value is 0 until the caller sets `ChannelStatus.ACTIVE`, and clients wait for that. 103
    bytes of the address fit the key.

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
    """Publish the counter in which a client keeps its last sign of life, in epoch milliseconds.

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
