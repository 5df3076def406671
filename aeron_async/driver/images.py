"""The conductor's hand on images: make one for a SETUP, let subscriptions join, take it apart.

Source: Aeron `DriverConductor.onCreatePublicationImage` and its neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.driver.commands import ImageReady
from aeron_async.driver.core.congestion_control import (
    CongestionControlParams,
    congestion_control,
)
from aeron_async.driver.core.delay import choose_delay
from aeron_async.driver.core.image_counters import ImageCounters
from aeron_async.driver.core.publication_image import PublicationImage
from aeron_async.driver.core.stream_counters import allocate_subscription_position
from aeron_async.driver.core.subscriber_positions import SubscriberPosition
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.driver.core.udp_channel import format_address
from aeron_async.driver.image_budget import ImageBudget, start_position, window_refusal
from aeron_async.driver.log_creation import create_log, with_channel_settings
from aeron_async.driver.log_limiter import LogLimiter
from aeron_async.errors import AeronError, RegistrationError
from aeron_async.logbuffer.log_spec import LogSpec
from aeron_async.logbuffer.metadata import LogType
from aeron_async.logs import get_logger
from aeron_async.protocol.header import SetupFlags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aeron_async.driver.commands import SubscriptionListener
    from aeron_async.driver.core.congestion_control import CongestionControl
    from aeron_async.driver.core.delay import FeedbackDelay
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.subscriber_positions import Subscribable
    from aeron_async.driver.core.subscription_params import SubscriptionParams
    from aeron_async.driver.image_budget import Refusal
    from aeron_async.driver.media.endpoint import ReceiveChannelEndpoint
    from aeron_async.driver.receiver import Receiver
    from aeron_async.driver.resources import DriverResources
    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.protocol.setup import Setup

__all__ = ["Images", "SubscriptionLink"]

log = get_logger(__name__)


@attrs.define(kw_only=True, eq=False)
class SubscriptionLink:
    """One client's subscription, and where it receives."""

    registration_id: int
    client_id: int
    endpoint: ReceiveChannelEndpoint
    uri: ChannelUri
    stream_id: int
    params: SubscriptionParams
    listener: SubscriptionListener

    @property
    def channel(self) -> str:
        """Return the channel as counters name it."""
        return str(self.uri)

    def matches(self, endpoint: ReceiveChannelEndpoint, stream_id: int, session_id: int) -> bool:
        """Return whether this subscription wants that session."""
        return (
            self.endpoint is endpoint
            and self.stream_id == stream_id
            and self.params.session_id in {None, session_id}
        )


class Images:
    """Every image of one driver.

    Args:
        resources: What the driver's parts share.
        receiver: Polls the images.
        links: The subscriptions there are, oldest first.
        on_endpoint_released: Called when an image has let go of its endpoint.
    """

    def __init__(
        self,
        resources: DriverResources,
        receiver: Receiver,
        links: Mapping[int, SubscriptionLink],
        on_endpoint_released: Callable[[ReceiveChannelEndpoint], None],
    ) -> None:
        self._resources = resources
        self._receiver = receiver
        self._links = links
        self._on_endpoint_released = on_endpoint_released
        self._images: dict[PublicationImage, ReceiveChannelEndpoint] = {}
        self._log_limiter = LogLimiter()
        self._budget = ImageBudget(resources.context)

    def __iter__(self) -> Iterator[PublicationImage]:
        return iter(tuple(self._images))

    def are_at(self, endpoint: ReceiveChannelEndpoint) -> bool:
        """Return whether any image receives there."""
        return any(each is endpoint for each in self._images.values())

    # What the dispatcher and the receiver say.

    def on_create_image(
        self, endpoint: ReceiveChannelEndpoint, setup: Setup, source: Address
    ) -> None:
        """Make the image of a stream that begins, if what the SETUP asks for can be granted."""
        # First what needs no look at the subscriptions: there may be many, and floods of SETUPs.
        image_count = endpoint.dispatcher.image_count(setup.stream_id)
        refusal = self._budget.refusal(setup, image_count=image_count)
        if refusal is not None:
            self._refuse(refusal, setup, source)
            return
        links = [
            link
            for link in self._links.values()
            if link.matches(endpoint, setup.stream_id, setup.session_id)
        ]
        refusal = window_refusal(setup, links[0].params.receiver_window_length)
        if refusal is not None:
            self._refuse(refusal, setup, source)
            return
        try:
            image = self._create(endpoint, setup, source, links[0])
        except AeronError as error:
            self._refuse((str(error), ()), setup, source)
            return
        key = image.session_id, image.stream_id
        for older, its_endpoint in self._images.items():
            if its_endpoint is endpoint and (older.session_id, older.stream_id) == key:
                older.disable_status_messages()
        self._images[image] = endpoint
        self._budget.take(setup.term_length)
        endpoint.dispatcher.add_image(image)
        for link in links:
            try:
                self._join(image, link)
            except RegistrationError as error:
                self._refuse((str(error), ()), setup, source)
        self._receiver.on_activity(image)

    def _refuse(self, refusal: Refusal, setup: Setup, source: Address) -> None:
        self._resources.system_counters[DriverCounterId.IMAGES_REFUSED].increment()
        if self._log_limiter.allows(source, self._resources.clock.now_ns()):
            sentence, values = refusal
            log.warning(
                "image_refused",
                reason=sentence.format(*values) if values else sentence,
                source=format_address(source),
                session_id=setup.session_id,
                stream_id=setup.stream_id,
            )

    def on_image_progress(self, source: Subscribable) -> None:
        """Tell the readers that there is more to read, or where the end is."""
        for subscriber in source.subscribers:
            if subscriber.is_active:
                link = self._links[subscriber.subscription_id]
                link.listener.on_image_progress(source.registration_id)

    def on_unavailable_image(self, source: Subscribable, subscriber: SubscriberPosition) -> None:
        """Take the image from the client of a subscription that was left behind."""
        link = self._links[subscriber.subscription_id]
        link.listener.on_unavailable_image(source.registration_id)

    def on_available_image(self, source: Subscribable, subscriber: SubscriberPosition) -> None:
        """Give the image back to the client of a subscription that has rested."""
        (image,) = (image for image in self._images if image is source)
        self._tell_available(image, self._links[subscriber.subscription_id], subscriber)

    def on_image_drained(self, image: PublicationImage) -> None:
        """Take an image out of sight: of the network, and of the clients."""
        endpoint = self._images[image]
        endpoint.dispatcher.remove_image(image)
        if any(
            link.params.is_rejoin
            for link in self._links.values()
            if link.matches(endpoint, image.stream_id, image.session_id)
        ):
            endpoint.dispatcher.remove_cool_down(image)
        for subscriber in list(image.subscribers):
            link = self._links[subscriber.subscription_id]
            self._part(image, link)
            link.listener.on_unavailable_image(image.registration_id)

    def on_image_done(self, image: PublicationImage) -> None:
        """Free what an image used."""
        endpoint = self._images.pop(image)
        endpoint.dispatcher.remove_image(image)
        self._budget.give_back(image.log.term_length)
        image.counters.close()
        image.log.close()
        self._on_endpoint_released(endpoint)

    # What subscriptions do.

    def join_existing(self, link: SubscriptionLink) -> None:
        """Let a new subscription join the images it wants that still have something to give."""
        for image, endpoint in self._images.items():
            is_wanted = link.matches(endpoint, image.stream_id, image.session_id)
            if is_wanted and image.is_accepting_subscriptions:
                self._join(image, link)

    def leave(self, link: SubscriptionLink) -> None:
        """Let a subscription go from every image it has joined."""
        for image in list(self._images):
            if self._part(image, link):
                self._receiver.on_activity(image)

    def say_goodbye(self) -> None:
        """Let every image that nobody reads any more tell its source so, now."""
        now_ns = self._resources.clock.now_ns()
        for image in self._images:
            image.poll(now_ns)

    def close(self) -> None:
        """Free every image at once."""
        for image in list(self._images):
            for subscriber in image.subscribers:
                subscriber.position.close()
            image.subscribers.clear()
            self._receiver.remove(image)
            image.counters.close()
            image.log.close()
        self._images.clear()

    def _part(self, image: PublicationImage, link: SubscriptionLink) -> bool:
        subscriber = image.remove_subscriber(link.registration_id)
        if subscriber is None:
            return False
        subscriber.position.close()
        return True

    def _join(self, image: PublicationImage, link: SubscriptionLink) -> None:
        join_position = image.join_position
        position = allocate_subscription_position(
            self._resources.counters_manager,
            registration_id=link.registration_id,
            session_id=image.session_id,
            stream_id=image.stream_id,
            channel=link.channel,
            owner_id=link.client_id,
            join_position=join_position,
            reference_id=image.registration_id,
        )
        subscriber = SubscriberPosition(
            subscription_id=link.registration_id,
            position=position,
            is_tether=link.params.is_tether,
            is_rejoin=link.params.is_rejoin,
        )
        image.add_subscriber(subscriber)
        self._tell_available(image, link, subscriber)

    def _tell_available(
        self, image: PublicationImage, link: SubscriptionLink, subscriber: SubscriberPosition
    ) -> None:
        link.listener.on_available_image(
            ImageReady(
                image_id=image.registration_id,
                session_id=image.session_id,
                stream_id=image.stream_id,
                log=image.log,
                join_position=subscriber.position.get(),
                position=subscriber.position,
                source_identity=format_address(image.source),
                port=image,
                wake_receiver=lambda: self._receiver.on_activity(image),
            )
        )

    # How they are made.

    def _create(
        self,
        endpoint: ReceiveChannelEndpoint,
        setup: Setup,
        source: Address,
        link: SubscriptionLink,
    ) -> PublicationImage:
        resources, params = self._resources, link.params
        registration_id = resources.next_id()
        is_group = params.is_group
        if is_group is None:
            is_group = bool(setup.flags & SetupFlags.GROUP)
        control = self._congestion_control(params, setup)
        spec = log_spec(
            setup,
            params,
            correlation_id=registration_id,
            receiver_window_length=control.max_window_length(),
            is_group=is_group,
        )
        spec = with_channel_settings(spec, link.uri, endpoint, resources.context)
        counters = ImageCounters.allocate(
            resources.counters_manager,
            registration_id=registration_id,
            session_id=setup.session_id,
            stream_id=setup.stream_id,
            channel=link.channel,
            client_id=link.client_id,
            congestion_control_types=control.counter_types,
        )
        control.bind(counters.congestion_control)
        try:
            image_log = create_log(spec)
        except BaseException:
            counters.close()
            raise
        return PublicationImage(
            registration_id=registration_id,
            log=image_log,
            join_position=start_position(setup),
            source=source,
            control_address=source,
            context=resources.context,
            congestion_control=control,
            feedback_delay=self._delay(params, is_group=is_group),
            is_reliable=params.is_reliable,
            counters=counters,
            system_counters=resources.system_counters,
            receiver_id=endpoint.receiver_id,
            group_tag=endpoint.group_tag,
            outbox=endpoint,
            listener=self,
            now_ns=resources.clock.now_ns(),
        )

    def _congestion_control(self, params: SubscriptionParams, setup: Setup) -> CongestionControl:
        return congestion_control(
            params.congestion_control,
            CongestionControlParams(
                context=self._resources.context,
                configured_window_length=params.receiver_window_length,
                term_length=setup.term_length,
                mtu_length=setup.mtu_length,
                now_ns=self._resources.clock.now_ns(),
            ),
        )

    def _delay(self, params: SubscriptionParams, *, is_group: bool) -> FeedbackDelay:
        return choose_delay(
            self._resources.context,
            is_reliable=params.is_reliable,
            is_group=is_group,
            nak_delay_ns=params.nak_delay_ns,
            random=self._resources.random.random,
        )


def log_spec(
    setup: Setup,
    params: SubscriptionParams,
    *,
    correlation_id: int,
    receiver_window_length: int,
    is_group: bool,
) -> LogSpec:
    """Return the log of an image as its SETUP and its oldest subscription want it."""
    return LogSpec(
        session_id=setup.session_id,
        stream_id=setup.stream_id,
        initial_term_id=setup.initial_term_id,
        term_length=setup.term_length,
        mtu_length=setup.mtu_length,
        log_type=LogType.IMAGE,
        correlation_id=correlation_id,
        receiver_window_length=receiver_window_length,
        is_group=is_group,
        rejoin=params.is_rejoin,
        reliable=params.is_reliable,
        sparse=params.is_sparse,
        tether=params.is_tether,
    )
