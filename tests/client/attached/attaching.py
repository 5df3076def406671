"""What tests of clients have in common that are attached to a driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from aeron_async.driver.core.stream_counters import allocate_subscription_position
from aeron_async.protocol.control_protocol import ErrorResponse, ImageBuffersReady
from tests.client.local import IPC, STREAM_ID

if TYPE_CHECKING:
    import aeron_async as aa
    from aeron_async.client.attached_driver import AttachedDriver
    from aeron_async.client.attachment import Attachment
    from aeron_async.client.driver_proxy import DriverProxy
    from aeron_async.counters import Counter
    from aeron_async.protocol.control_protocol import ControlMessage


def attached(aeron: aa.Aeron) -> AttachedDriver:
    """Return the driver of an attached client."""
    return cast("AttachedDriver", aeron.driver)


def attachment_of(aeron: aa.Aeron) -> Attachment:
    """Return what an attached client holds."""
    return attached(aeron)._attachment()


def proxy_of(aeron: aa.Aeron) -> DriverProxy:
    """Return what takes the requests of an attached client."""
    return attached(aeron)._proxy()


def say(driver: aa.MediaDriver, message: ControlMessage) -> None:
    """Let a driver say something to all clients."""
    adapter = driver.conductor.adapter
    assert adapter is not None
    adapter._proxy._transmit(message)


def write_over(driver: aa.MediaDriver) -> None:
    """Let a driver say more than its buffer holds, in one turn of the loop."""
    for number in range(1_200):
        say(driver, ErrorResponse(correlation_id=-number, code=1, message=bytes(1_000)))


def log_file(publication: aa.Publication) -> bytes:
    """Return the path of a publication's log, as a driver names it."""
    return publication._ready.log.file.encode()


def image_ready(subscription: aa.Subscription, log_file: bytes, **more: int) -> ImageBuffersReady:
    fields = {"image_id": 1, "session_id": 2, "subscriber_position_id": 3, **more}
    return ImageBuffersReady(
        stream_id=STREAM_ID,
        subscription_registration_id=subscription.registration_id,
        log_file=log_file,
        source_identity=b"",
        **fields,
    )


def position_counter(driver: aa.MediaDriver, registration_id: int) -> Counter:
    """Allocate the position of a subscription in some image."""
    return allocate_subscription_position(
        driver.counters,
        registration_id=registration_id,
        session_id=2,
        stream_id=STREAM_ID,
        channel=IPC,
        owner_id=1,
        join_position=0,
        reference_id=1,
    )


async def connected(aeron: aa.Aeron) -> tuple[aa.Subscription, aa.Publication]:
    """Return a subscription with one image, and its publication."""
    subscription = await aeron.add_subscription(IPC, STREAM_ID)
    publication = await aeron.add_publication(IPC, STREAM_ID)
    await publication.wait_connected(timeout=5)
    await subscription.wait_connected(timeout=5)
    return subscription, publication
