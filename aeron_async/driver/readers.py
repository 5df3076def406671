"""The conductor's hand on readers: it lets subscriptions join streams, and tells their clients.

A stream is whatever has a log in this driver: an image, a network publication with its spies, or an
IPC publication. Their readers are given that log, and never a copy of it.

Source: Aeron `DriverConductor.linkSubscription` and its neighbours, `ClientProxy`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from aeron_async.driver.commands import ImageReady
from aeron_async.driver.core.publication import SubscribablePublication
from aeron_async.driver.core.publication_image import PublicationImage
from aeron_async.driver.core.stream_counters import allocate_subscription_position
from aeron_async.driver.core.subscriber_position import SubscriberPosition
from aeron_async.driver.core.udp_channel import format_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aeron_async.driver.core.stream_params import SubscriptionParams
    from aeron_async.driver.core.subscriber_position import Subscribable
    from aeron_async.driver.receiver import Receiver
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.sender import Sender
    from aeron_async.driver.subscription_link import SubscriptionLink

__all__ = ["Readers"]

LOCAL_SOURCE_IDENTITY: Final = "aeron:ipc"
"""What Aeron calls the source of a stream that never left the driver, spied upon or not."""


class Readers:
    """Everybody in one driver who reads a stream.

    Args:
        resources: What the driver's parts share.
        receiver: Polls the images.
        sender: Polls the publications.
        links: The subscriptions there are.
    """

    def __init__(
        self,
        resources: DriverResources,
        receiver: Receiver,
        sender: Sender,
        links: Mapping[int, SubscriptionLink],
    ) -> None:
        self._resources = resources
        self._receiver = receiver
        self._sender = sender
        self._links = links

    def join(
        self,
        source: Subscribable,
        link: SubscriptionLink,
        params: SubscriptionParams,
        *,
        channel: str,
    ) -> None:
        """Let a subscription read a stream from where a reader that comes now starts.

        Args:
            source: The stream.
            link: The subscription.
            params: Whether it may be left behind, and comes back.
            channel: What its counter names.

        Raises:
            RegistrationError: The counter table is full.
        """
        join_position = source.join_position
        position = allocate_subscription_position(
            self._resources.counters_manager,
            registration_id=link.registration_id,
            session_id=source.session_id,
            stream_id=source.stream_id,
            channel=channel,
            owner_id=link.client_id,
            join_position=join_position,
            reference_id=source.registration_id,
        )
        subscriber = SubscriberPosition(
            subscription_id=link.registration_id,
            position=position,
            is_tether=params.is_tether,
            is_rejoin=params.is_rejoin,
        )
        source.add_subscriber(subscriber)
        self.on_available_image(source, subscriber)

    def part(self, source: Subscribable, link: SubscriptionLink) -> SubscriberPosition | None:
        """Let a subscription read a stream no more; return what it was, if it did."""
        subscriber = source.remove_subscriber(link.registration_id)
        if subscriber is not None:
            subscriber.position.close()
        return subscriber

    # What the cores say.

    def on_image_progress(self, source: Subscribable) -> None:
        """Tell the readers that there is more to read, or where the end is."""
        for subscriber in source.subscribers.active:
            link = self._links[subscriber.subscription_id]
            link.listener.on_image_progress(source.registration_id)

    def on_unavailable_image(self, source: Subscribable, subscriber: SubscriberPosition) -> None:
        """Take the image from the client of a subscription: it was left behind, or all is over."""
        # Of an image that is not over it is the subscriber that was left behind.
        end = source.ended if isinstance(source, PublicationImage) else None
        link = self._links[subscriber.subscription_id]
        link.listener.on_unavailable_image(source.registration_id, end)

    def on_available_image(self, source: Subscribable, subscriber: SubscriberPosition) -> None:
        """Give an image to the client of a subscription that has joined, or has rested."""
        if isinstance(source, PublicationImage):
            source_identity = format_address(source.source)
            source.doorbell.answer = partial(self._receiver.on_consumed, source)
        else:
            assert isinstance(source, SubscribablePublication), "there is no third kind of stream"
            source_identity = LOCAL_SOURCE_IDENTITY
            source.doorbell.answer = partial(self._sender.on_offer, source)
        self._links[subscriber.subscription_id].listener.on_available_image(
            ImageReady(
                image_id=source.registration_id,
                session_id=source.session_id,
                stream_id=source.stream_id,
                log=source.log,
                join_position=subscriber.position.get(),
                position=subscriber.position,
                source_identity=source_identity,
                port=source,
                hold=subscriber,
                doorbell=source.doorbell,
            )
        )
