"""Subscribers of one driver, and the local streams that they read: IPC and spies.

A stream is whatever has a log in this driver: an image, a network publication with its spies, or an
IPC publication. Their readers are given that log, and never a copy of it.

Invariant: a subscription reads a publication once at most, however many of its channels mean it;
and it does so exactly while one of them does, and the publication still has something to give.

Source: Aeron `SubscriptionLink`, `aeron_subscription_link_t`, `DriverConductor.linkSubscription`
and its neighbours, `ClientProxy`, `IpcSubscriptionLink`, `SpySubscriptionLink`,
`DriverConductor.linkIpcSubscriptions`, `linkSpies`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.driver.commands import ImageReady
from aeron_async.driver.core.publication import SubscribablePublication
from aeron_async.driver.core.publication_image import PublicationImage
from aeron_async.driver.core.stream_counters import allocate_subscription_position
from aeron_async.driver.core.subscriber_position import SubscriberPosition
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.driver.core.udp_channel import format_address
from aeron_async.errors import RegistrationError
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aeron_async.driver.commands import SubscriptionListener
    from aeron_async.driver.core.stream_params import SubscriptionParams
    from aeron_async.driver.core.subscriber_position import Subscribable
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.media.endpoint import ReceiveChannelEndpoint
    from aeron_async.driver.receiver import Receiver
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.sender import Sender
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = [
    "LocalInterest",
    "LocalStreams",
    "Readers",
    "SubscriptionLink",
]


@attrs.define(kw_only=True, eq=False)
class SubscriptionLink:
    """One client's subscription, and where it receives.

    Attributes:
        endpoint: Its sockets; None where it reads streams of this driver only.
        session_id: The one session wanted, or None for all.
        is_response: Whether the session is still to be learned, and none is wanted till then.
        next_elicit_ns: When a repeated RSP_SETUP may next make it ask for the SETUP of its session.
        bound_ns: When it learned the session that it wants now.
        unanswered_ns: When that session was first found silent, or gone; None where it is heard.
        is_told: Whether its client knows that nothing answers.
    """

    registration_id: int
    client_id: int
    endpoint: ReceiveChannelEndpoint | None
    uri: ChannelUri
    stream_id: int
    params: SubscriptionParams
    listener: SubscriptionListener
    session_id: int | None = None
    is_response: bool = False
    next_elicit_ns: int = 0
    bound_ns: int = 0
    unanswered_ns: int | None = None
    is_told: bool = False

    @property
    def is_following(self) -> bool:
        """Return whether it is for responses, and takes the session that its server names."""
        endpoint = self.endpoint
        return (
            endpoint is not None and endpoint.channel.is_response and self.params.session_id is None
        )

    @property
    def channel(self) -> str:
        """Return the channel as counters name it."""
        return str(self.uri)

    def matches(self, endpoint: ReceiveChannelEndpoint, stream_id: int, session_id: int) -> bool:
        """Return whether this subscription wants that session."""
        return (
            self.endpoint is endpoint
            and self.stream_id == stream_id
            and not self.is_response
            and self.session_id in {None, session_id}
        )


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


log: Final = get_logger(__name__)


@attrs.define(kw_only=True, eq=False)
class LocalInterest:
    """One channel by which a subscription wants streams of its own driver.

    Attributes:
        link: The subscription.
        uri: As the client wrote it.
        channel: What is spied upon, resolved; None for IPC.
        params: What the channel and the context say of it.
        session_id: The one session wanted, or None for all.
        is_response: Whether the session is still to be learned, and none is wanted till then.
        registration_id: Of a destination; 0 for the subscription's own channel.
    """

    link: SubscriptionLink
    uri: ChannelUri
    channel: UdpChannel | None
    params: SubscriptionParams
    session_id: int | None
    is_response: bool = False
    registration_id: int = 0

    def matches(self, publication: SubscribablePublication, channel: UdpChannel | None) -> bool:
        """Return whether this channel means that publication.

        Args:
            publication: The one in question.
            channel: What it sends to; None for IPC.
        """
        if self.link.stream_id != publication.stream_id or self.is_response:
            return False
        if self.channel is None or channel is None:
            return self.channel is channel and self._wants(publication.session_id)
        tag = self.channel.uri.channel_tag
        # As in Aeron, a tag says it all: beside one the session does not count.
        if tag is not None and tag == channel.uri.channel_tag:
            return True
        is_same = self.channel.canonical_form == channel.canonical_form
        return is_same and self._wants(publication.session_id)

    def _wants(self, session_id: int) -> bool:
        return self.session_id is None or self.session_id == session_id


class LocalStreams:
    """Who of one driver reads what of the same driver.

    Args:
        resources: What the driver's parts share.
        readers: Lets subscriptions join, and tells their clients.
        sender: Polls the publications.
    """

    def __init__(self, resources: DriverResources, readers: Readers, sender: Sender) -> None:
        self._resources = resources
        self._readers = readers
        self._sender = sender
        self._publications: dict[SubscribablePublication, UdpChannel | None] = {}
        # By subscription; those that receive from the network only have no entry.
        self._interests: dict[int, list[LocalInterest]] = {}

    @property
    def publications(self) -> tuple[SubscribablePublication, ...]:
        """Return the publications of this driver; for explanations."""
        return tuple(self._publications)

    def is_response_pending(self, link: SubscriptionLink) -> bool:
        """Return whether a subscription waits for a server to name its session."""
        return any(each.is_response for each in self._interests.get(link.registration_id, ()))

    # What publications do.

    def add_publication(
        self, publication: SubscribablePublication, channel: UdpChannel | None
    ) -> None:
        """Let whoever wants it read a new publication.

        Args:
            publication: The new one.
            channel: What it sends to; None for IPC.
        """
        self._publications[publication] = channel
        self.on_accepting_subscriptions(publication)

    def remove_publication(self, publication: SubscribablePublication) -> None:
        """Let nobody read a publication any more that is done; nobody is told."""
        del self._publications[publication]
        for subscriber in publication.subscribers:
            subscriber.position.close()
        publication.subscribers.clear()

    def on_accepting_subscriptions(self, publication: SubscribablePublication) -> None:
        """Let whoever wants it read a publication, new or no longer rejected."""
        for interests in self._interests.values():
            for interest in interests:
                try:
                    self._join(publication, interest)
                except RegistrationError as error:
                    # The publisher has done nothing wrong, and the others are to have their image.
                    self._refuse(publication, str(error))

    # What subscriptions do.

    def add(self, interest: LocalInterest) -> None:
        """Let a subscription read what there is, and whatever comes later.

        Raises:
            RegistrationError: The counter table is full.
        """
        self._interests.setdefault(interest.link.registration_id, []).append(interest)
        for publication in list(self._publications):
            self._join(publication, interest)

    def remove(self, link: SubscriptionLink) -> None:
        """Let a subscription go from all that it reads."""
        if self._interests.pop(link.registration_id, None) is None:
            return
        for publication in list(self._publications):
            if self._readers.part(publication, link) is not None:
                self._sender.on_activity(publication)

    def destination_count(self, link: SubscriptionLink) -> int:
        """Return how many destinations of a subscription are streams of this driver."""
        return len(self._interests.get(link.registration_id, ()))

    def remove_destination(self, link: SubscriptionLink, destination: ChannelUri | int) -> bool:
        """Let a subscription want one channel less; return False if it was none of them.

        Args:
            link: The subscription.
            destination: The channel that was added, or the id it was given.
        """
        interests = self._interests.get(link.registration_id, [])
        for interest in interests:
            if interest.registration_id and destination in {interest.uri, interest.registration_id}:
                interests.remove(interest)
                self._part_from_unwanted(link, interests)
                return True
        return False

    def on_response_setup(self, subscription_id: int, session_id: int) -> None:
        """Let a subscription for responses want the session that they have, and only that."""
        for interest in self._interests.get(subscription_id, ()):
            interest.is_response = False
            interest.session_id = session_id

    def _join(self, publication: SubscribablePublication, interest: LocalInterest) -> None:
        link = interest.link
        if (
            interest.matches(publication, self._publications[publication])
            and publication.is_accepting_subscriptions
            and not publication.subscribers.has(link.registration_id)
        ):
            self._readers.join(publication, link, interest.params, channel=str(interest.uri))
            self._sender.on_activity(publication)

    def _part_from_unwanted(self, link: SubscriptionLink, interests: list[LocalInterest]) -> None:
        for publication, channel in list(self._publications.items()):
            if any(interest.matches(publication, channel) for interest in interests):
                continue
            subscriber = self._readers.part(publication, link)
            if subscriber is not None:
                if subscriber.is_active:
                    self._readers.on_unavailable_image(publication, subscriber)
                self._sender.on_activity(publication)

    def _refuse(self, publication: SubscribablePublication, reason: str) -> None:
        self._resources.system_counters[DriverCounterId.IMAGES_REFUSED].increment()
        log.warning(
            "image_refused",
            reason=reason,
            source=publication.channel,
            session_id=publication.session_id,
            stream_id=publication.stream_id,
        )
