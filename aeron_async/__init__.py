"""Aeron for asyncio: reliable, ordered, back-pressured streams, byte-compatible with Aeron.

Everything an application needs stands here; what is below may change between releases.
"""

from __future__ import annotations

from aeron_async import congestion_control, flow_control, name_resolver
from aeron_async.client.aeron import Aeron
from aeron_async.client.buffer_claim import BufferClaim
from aeron_async.client.channel import Channel
from aeron_async.client.exclusive_publication import ExclusivePublication
from aeron_async.client.fc import Fc
from aeron_async.client.image import Image
from aeron_async.client.image_events import ImageEvent, ImageEventKind
from aeron_async.client.message import FragmentHeader, Message
from aeron_async.client.offer_outcome import OfferOutcome
from aeron_async.client.publication import Publication
from aeron_async.client.streams import AeronAttribute
from aeron_async.client.subscription import Subscription
from aeron_async.clock import Clock, SystemClock
from aeron_async.driver.commands import PublicationErrorFrame
from aeron_async.driver.core.congestion_control import CongestionControl
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.flow_control import FlowControl
from aeron_async.driver.core.name_resolution import NameResolver
from aeron_async.driver.media_driver import MediaDriver
from aeron_async.errors import (
    AeronError,
    AeronTimeoutError,
    BusyError,
    ChannelUriError,
    ClosedError,
    ConfigurationError,
    DriverError,
    DriverTimeoutError,
    ErrorCode,
    MaxPositionExceededError,
    MessageTooLongError,
    NotConnectedError,
    OfferTimeoutError,
    ProtocolError,
    PublicationError,
    RegistrationError,
    WrongLoopError,
)
from aeron_async.protocol.channel_uri import ChannelUri

__all__ = [
    "Aeron",
    "AeronAttribute",
    "AeronError",
    "AeronTimeoutError",
    "BufferClaim",
    "BusyError",
    "Channel",
    "ChannelUri",
    "ChannelUriError",
    "Clock",
    "ClosedError",
    "ConfigurationError",
    "CongestionControl",
    "DriverContext",
    "DriverError",
    "DriverTimeoutError",
    "ErrorCode",
    "ExclusivePublication",
    "Fc",
    "FlowControl",
    "FragmentHeader",
    "Image",
    "ImageEvent",
    "ImageEventKind",
    "MaxPositionExceededError",
    "MediaDriver",
    "Message",
    "MessageTooLongError",
    "NameResolver",
    "NotConnectedError",
    "OfferOutcome",
    "OfferTimeoutError",
    "ProtocolError",
    "Publication",
    "PublicationError",
    "PublicationErrorFrame",
    "RegistrationError",
    "Subscription",
    "SystemClock",
    "WrongLoopError",
    "congestion_control",
    "flow_control",
    "name_resolver",
]
