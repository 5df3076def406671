"""What a driver tells the clients of other processes, through its broadcast buffer.

Every client sees every message, and takes those that name its own requests, subscriptions or id.
File names are absolute paths.

Source: Aeron `ClientProxy`, `aeron_driver_conductor_client_transmit`.
"""

from __future__ import annotations

import ipaddress
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from aeron_async.errors import ConfigurationError, ErrorCode, RegistrationError
from aeron_async.protocol.control_protocol import (
    NO_COUNTER,
    NO_ID,
    AddressType,
    ClientTimeout,
    CounterReady,
    ErrorResponse,
    ExclusivePublicationBuffersReady,
    ImageBuffersReady,
    NextAvailableSessionId,
    OperationSucceeded,
    PublicationBuffersReady,
    PublicationErrorResponse,
    StaticCounterReady,
    SubscriptionReadyResponse,
    UnavailableCounter,
    UnavailableImage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.concurrent.broadcast import BroadcastTransmitter
    from aeron_async.doorbell import DriverBells
    from aeron_async.driver.commands import (
        ImageReady,
        PublicationErrorFrame,
        PublicationReady,
        SubscriptionReady,
    )
    from aeron_async.driver.core.publication import SubscribablePublication
    from aeron_async.errors import AeronError
    from aeron_async.protocol.control_protocol import ControlMessage

__all__ = ["NO_COUNTER", "ClientProxy", "code_of"]

ADDRESS_LENGTH: Final = 16
TEXT_LENGTH_MAX: Final = 16 * 1024
"""Most bytes of a text: a channel that a client wrote, or an error; all clients read them."""


class ClientProxy:
    """Writes messages to the clients of other processes.

    Args:
        transmitter: The broadcast buffer; nothing else writes it.
        bells: Wakes the clients that are asleep; None if all look by themselves.
    """

    def __init__(self, transmitter: BroadcastTransmitter, bells: DriverBells | None = None) -> None:
        self._transmitter = transmitter
        self._bells = bells
        # By the id of the image, which is that of its publication: the images to be announced.
        self._later: dict[int, dict[int, ImageBuffersReady]] = {}
        self._failed_id = NO_ID

    @contextmanager
    def images_after(self, image_id: int) -> Iterator[None]:
        """Announce the images of a publication after what is said within, as Aeron does."""
        later = self._later[image_id] = {}
        try:
            yield
        finally:
            del self._later[image_id]
            for message in later.values():
                self._transmit(message)

    def on_error(self, correlation_id: int, code: ErrorCode, message: str) -> None:
        """Refuse a command."""
        self._transmit(
            ErrorResponse(correlation_id=correlation_id, code=code, message=encoded(message))
        )

    def on_publication_ready(self, ready: PublicationReady) -> None:
        """Answer the command that added a publication."""
        kind = ExclusivePublicationBuffersReady if ready.is_exclusive else PublicationBuffersReady
        status = ready.channel_status
        self._transmit(
            kind(
                correlation_id=ready.registration_id,
                registration_id=ready.original_registration_id,
                session_id=ready.session_id,
                stream_id=ready.stream_id,
                publisher_limit_id=ready.publisher_limit.id,
                channel_status_id=NO_COUNTER if status is None else status.id,
                log_file=os.fsencode(ready.log.file),
            )
        )

    def on_publication_error(self, error: PublicationErrorFrame, registration_id: int) -> None:
        """Notify the publishers of a stream that a receiver has rejected it.

        Args:
            error: What the receiver said.
            registration_id: The id of the publication itself, which all its publishers know.
        """
        kind, port, address = address_of(error.source_address)
        destination_id = error.destination_registration_id
        self._transmit(
            PublicationErrorResponse(
                registration_id=registration_id,
                destination_registration_id=NO_ID if destination_id is None else destination_id,
                session_id=error.session_id,
                stream_id=error.stream_id,
                receiver_id=error.receiver_id,
                group_tag=NO_ID if error.group_tag is None else error.group_tag,
                address_type=kind,
                source_port=port,
                source_address=address,
                code=error.code,
                message=encoded(error.message),
            )
        )

    def on_publication_failed(self, error: Exception, publication: SubscribablePublication) -> None:
        """Notify all publishers of a stream that the driver had to end it.

        Its holds are told one after the other: the first of them notifies all.
        """
        registration_id = publication.registration_id
        if registration_id == self._failed_id:
            return
        self._failed_id = registration_id
        self._transmit(
            PublicationErrorResponse(
                registration_id=registration_id,
                destination_registration_id=NO_ID,
                session_id=publication.session_id,
                stream_id=publication.stream_id,
                receiver_id=NO_ID,
                group_tag=NO_ID,
                address_type=AddressType.NONE,
                source_port=0,
                source_address=bytes(16),
                code=ErrorCode.GENERIC,
                message=encoded(str(error)),
            )
        )

    def on_subscription_ready(self, ready: SubscriptionReady) -> None:
        """Answer the command that added a subscription."""
        status = ready.channel_status
        self._transmit(
            SubscriptionReadyResponse(
                correlation_id=ready.registration_id,
                channel_status_id=NO_COUNTER if status is None else status.id,
            )
        )

    def on_available_image(self, subscription_id: int, ready: ImageReady) -> None:
        """Give an image to a subscription."""
        message = ImageBuffersReady(
            image_id=ready.image_id,
            session_id=ready.session_id,
            stream_id=ready.stream_id,
            subscription_registration_id=subscription_id,
            subscriber_position_id=ready.position.id,
            log_file=os.fsencode(ready.log.file),
            source_identity=ready.source_identity.encode(),
        )
        later = self._later.get(ready.image_id)
        if later is None:
            self._transmit(message)
        else:
            later[subscription_id] = message

    def on_unavailable_image(
        self, subscription_id: int, image_id: int, *, stream_id: int, channel: str
    ) -> None:
        """Take an image from a subscription."""
        later = self._later.get(image_id)
        if later is not None and later.pop(subscription_id, None) is not None:
            # The client has not heard of it.
            return
        self._transmit(
            UnavailableImage(
                image_id=image_id,
                subscription_registration_id=subscription_id,
                stream_id=stream_id,
                channel=encoded(channel),
            )
        )

    def on_operation_succeeded(self, correlation_id: int) -> None:
        """Answer a command that has no other result."""
        self._transmit(OperationSucceeded(correlation_id=correlation_id))

    def on_counter_ready(
        self, correlation_id: int, counter_id: int, *, is_static: bool = False
    ) -> None:
        """Announce a counter: to the client that added it, or the heartbeat to the new client."""
        kind = StaticCounterReady if is_static else CounterReady
        self._transmit(kind(correlation_id=correlation_id, counter_id=counter_id))

    def on_unavailable_counter(self, registration_id: int, counter_id: int) -> None:
        """Announce that a counter was removed."""
        self._transmit(UnavailableCounter(registration_id=registration_id, counter_id=counter_id))

    def on_client_timeout(self, client_id: int) -> None:
        """Tell a client that it was removed because it was silent for too long."""
        self._transmit(ClientTimeout(client_id=client_id))

    def on_next_available_session_id(self, correlation_id: int, session_id: int) -> None:
        """Answer with a session id that no publication of the stream has."""
        self._transmit(NextAvailableSessionId(correlation_id=correlation_id, session_id=session_id))

    def _transmit(self, message: ControlMessage) -> None:
        self._transmitter.transmit(message.TYPE_ID, message.encode())
        if self._bells is not None:
            self._bells.ring_all()


def code_of(error: AeronError) -> ErrorCode:
    """Return Aeron's code for an error."""
    if isinstance(error, RegistrationError):
        # Clients take this code for an error of an endpoint, and its id for that of a counter.
        is_of_endpoint = error.code is ErrorCode.CHANNEL_ENDPOINT_ERROR
        return ErrorCode.GENERIC if is_of_endpoint else error.code
    is_of_channel = isinstance(error, ConfigurationError)
    return ErrorCode.INVALID_CHANNEL if is_of_channel else ErrorCode.GENERIC


def encoded(text: str) -> bytes:
    """Return a text as bytes; what exceeds the limit is cut."""
    return text.encode("utf-8", "replace")[:TEXT_LENGTH_MAX]


def address_of(source: str | None) -> tuple[AddressType, int, bytes]:
    """Return the kind, the port and the 16 bytes of an address such as `10.0.0.1:4000`."""
    if source is None:
        # As in Aeron, an IPC stream is rejected from loopback; its clients refuse no address.
        source = "127.0.0.1:0"
    host, _, port = source.rpartition(":")
    address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    kind = AddressType.IPV4 if address.version == 4 else AddressType.IPV6  # noqa: PLR2004 - IP's own numbers
    return kind, int(port), address.packed.ljust(ADDRESS_LENGTH, b"\0")
