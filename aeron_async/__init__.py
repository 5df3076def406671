"""Aeron for asyncio: reliable, ordered, back-pressured streams, byte-compatible with Aeron.

This module exports the public API; the modules that define it may change between releases. Each
name is imported on first use, so that a program that only reads recordings, or plans a query, does
not load the driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aeron_async import congestion_control, flow_control, name_resolver
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.batch_offer import BatchOffer
    from aeron_async.client.buffer_claim import BufferClaim
    from aeron_async.client.channel import Channel, Fc
    from aeron_async.client.client_conductor import NotAdded, Reconnected
    from aeron_async.client.counter import Counter
    from aeron_async.client.exclusive_publication import ExclusivePublication
    from aeron_async.client.gaps import Gap, GapCause
    from aeron_async.client.image import (
        FragmentHeader,
        Image,
        ImageEvent,
        ImageEventKind,
        Message,
        MessageBatch,
    )
    from aeron_async.client.latest import Latest
    from aeron_async.client.publication import OfferOutcome, Publication
    from aeron_async.client.snapshots import (
        Snapshot,
        SnapshotReader,
        SnapshotServer,
        join_with_snapshot,
        looped_snapshots,
    )
    from aeron_async.client.streams import AeronAttribute, ImageStream
    from aeron_async.client.subscription import Subscription
    from aeron_async.client.typed import TypedBatch, TypedPublication, TypedSubscription
    from aeron_async.client.why import why
    from aeron_async.clock import Clock, SystemClock
    from aeron_async.driver.commands import ImageEnd, ImageEndReason, PublicationErrorFrame
    from aeron_async.driver.core.congestion_control import CongestionControl
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.flow_control import FlowControl
    from aeron_async.driver.core.suppliers import NameResolver
    from aeron_async.driver.media_driver import MediaDriver
    from aeron_async.driver.own_loop import InvokedMediaDriver, ThreadedMediaDriver
    from aeron_async.errors import (
        AeronError,
        AeronTimeoutError,
        BusyError,
        ChannelUriError,
        ClosedError,
        ConfigurationError,
        DecodeError,
        DoorInUseError,
        DriverError,
        DriverTimeoutError,
        EncodeError,
        ErrorCode,
        LaggedError,
        MaxPositionExceededError,
        MessageTooLongError,
        NotConnectedError,
        OfferTimeoutError,
        ProtocolError,
        PublicationError,
        RegistrationError,
        SnapshotError,
        TooManyKeysError,
        WrongLoopError,
    )
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.waits import WaitReason, Why

__all__ = [
    "Aeron",
    "AeronAttribute",
    "AeronError",
    "AeronTimeoutError",
    "BatchOffer",
    "BufferClaim",
    "BusyError",
    "Channel",
    "ChannelUri",
    "ChannelUriError",
    "Clock",
    "ClosedError",
    "ConfigurationError",
    "CongestionControl",
    "Counter",
    "DecodeError",
    "DoorInUseError",
    "DriverContext",
    "DriverError",
    "DriverTimeoutError",
    "EncodeError",
    "ErrorCode",
    "ExclusivePublication",
    "Fc",
    "FlowControl",
    "FragmentHeader",
    "Gap",
    "GapCause",
    "Image",
    "ImageEnd",
    "ImageEndReason",
    "ImageEvent",
    "ImageEventKind",
    "ImageStream",
    "InvokedMediaDriver",
    "LaggedError",
    "Latest",
    "MaxPositionExceededError",
    "MediaDriver",
    "Message",
    "MessageBatch",
    "MessageTooLongError",
    "NameResolver",
    "NotAdded",
    "NotConnectedError",
    "OfferOutcome",
    "OfferTimeoutError",
    "ProtocolError",
    "Publication",
    "PublicationError",
    "PublicationErrorFrame",
    "Reconnected",
    "RegistrationError",
    "Snapshot",
    "SnapshotError",
    "SnapshotReader",
    "SnapshotServer",
    "Subscription",
    "SystemClock",
    "ThreadedMediaDriver",
    "TooManyKeysError",
    "TypedBatch",
    "TypedPublication",
    "TypedSubscription",
    "WaitReason",
    "Why",
    "WrongLoopError",
    "congestion_control",
    "flow_control",
    "join_with_snapshot",
    "looped_snapshots",
    "name_resolver",
    "why",
]

MODULES: Final = {
    "Aeron": "client.aeron",
    "AeronAttribute": "client.streams",
    "BatchOffer": "client.batch_offer",
    "BufferClaim": "client.buffer_claim",
    "Channel": "client.channel",
    "ChannelUri": "protocol.channel_uri",
    "Clock": "clock",
    "CongestionControl": "driver.core.congestion_control",
    "Counter": "client.counter",
    "DriverContext": "driver.core.context",
    "ExclusivePublication": "client.exclusive_publication",
    "Fc": "client.channel",
    "FlowControl": "driver.core.flow_control",
    "FragmentHeader": "client.image",
    "Gap": "client.gaps",
    "GapCause": "client.gaps",
    "Image": "client.image",
    "ImageEnd": "driver.commands",
    "ImageEndReason": "driver.commands",
    "ImageEvent": "client.image",
    "ImageEventKind": "client.image",
    "ImageStream": "client.streams",
    "Latest": "client.latest",
    "MediaDriver": "driver.media_driver",
    "Message": "client.image",
    "MessageBatch": "client.image",
    "NameResolver": "driver.core.suppliers",
    "NotAdded": "client.client_conductor",
    "OfferOutcome": "client.publication",
    "Publication": "client.publication",
    "PublicationErrorFrame": "driver.commands",
    "Reconnected": "client.client_conductor",
    "Snapshot": "client.snapshots",
    "SnapshotReader": "client.snapshots",
    "SnapshotServer": "client.snapshots",
    "join_with_snapshot": "client.snapshots",
    "looped_snapshots": "client.snapshots",
    "Subscription": "client.subscription",
    "SystemClock": "clock",
    "InvokedMediaDriver": "driver.own_loop",
    "ThreadedMediaDriver": "driver.own_loop",
    "TypedBatch": "client.typed",
    "TypedPublication": "client.typed",
    "TypedSubscription": "client.typed",
    "WaitReason": "waits",
    "Why": "waits",
    "why": "client.why",
}
SUBMODULES: Final = frozenset({"congestion_control", "flow_control", "name_resolver"})


def __getattr__(name: str) -> object:
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    if name in SUBMODULES:
        return import_module(f"{__name__}.{name}")
    found: object = getattr(import_module(f"{__name__}.{MODULES.get(name, 'errors')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
