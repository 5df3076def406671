"""Subscribers of one driver, and the local streams that they read: IPC and spies.

A stream is anything with a log in this driver: an image, a network publication with its spies, or
an IPC publication. Its readers get that log, never a copy.

Invariant: a subscription reads a publication at most once, even if several of its channels match
it. It reads the publication exactly while one channel matches and there is something left to read.

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
from aeron_async.driver.core.shared_logs import CheckedPosition
from aeron_async.driver.core.stream_counters import allocate_subscription_position
from aeron_async.driver.core.subscriber_position import SubscriberPosition
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.driver.core.udp_channel import format_address
from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aeron_async.counters import Counter
    from aeron_async.driver.commands import SubscriptionListener
    from aeron_async.driver.core.stream_params import SubscriptionParams
    from aeron_async.driver.core.subscriber_position import Subscribable
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.media.endpoint import ReceiveChannelEndpoint
    from aeron_async.driver.publication_table import PublicationTable
    from aeron_async.driver.receiver import Receiver
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.sender import Sender
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = [
    "LocalInterest",
    "LocalStreams",
    "Subscribers",
    "SubscriptionLink",
]


@attrs.define(kw_only=True, eq=False)
class SubscriptionLink:
    """One client's subscription, and where it receives.

    Attributes:
        endpoint: Its endpoint; None if it only reads streams of this driver.
        session_id: The one session wanted, or None for all.
        is_response: Whether it still waits to learn its session, and wants none until then.
        next_elicit_ns: When a repeated RSP_SETUP may next cause a SETUP request.
        bound_ns: When it learned its present session.
        unanswered_ns: When that session was first found silent or gone; None while it is heard.
        is_told: Whether its client was notified that no session answers.
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
        """Return whether it receives responses, in the session that its server announces."""
        endpoint = self.endpoint
        return (
            endpoint is not None and endpoint.channel.is_response and self.params.session_id is None
        )

    @property
    def channel(self) -> str:
        """Return the channel as counters show it."""
        return str(self.uri)

    @property
    def written_channel(self) -> str:
        """Return the channel as its client wrote it, as far as that is known."""
        return self.listener.written_channel or self.channel

    def matches(self, endpoint: ReceiveChannelEndpoint, stream_id: int, session_id: int) -> bool:
        """Return whether this subscription wants that session."""
        return (
            self.endpoint is endpoint
            and self.stream_id == stream_id
            and not self.is_response
            and self.session_id in {None, session_id}
        )


LOCAL_SOURCE_IDENTITY: Final = "aeron:ipc"
"""Aeron's source identity for a stream of the same driver, IPC or spied upon."""


class Subscribers:
    """Joins subscriptions to streams, and notifies their clients.

    Args:
        resources: What the driver's parts share.
        receiver: Polls the images.
        sender: Polls the publications.
        links: All subscriptions.
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
        """Join a subscription to a stream, at the stream's join position.

        Args:
            source: The stream.
            link: The subscription.
            params: Whether it is tethered, and rejoins.
            channel: The channel in its counter.

        Raises:
            RegistrationError: The counter table is full, or the client cannot be watched.
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
        if source.log.file:
            position = self._checked(position, source)
        subscriber = SubscriberPosition(
            subscription_id=link.registration_id,
            position=position,
            on_progress=link.listener.on_image_progress,
            client=link.listener,
            is_tether=params.is_tether,
            is_rejoin=params.is_rejoin,
            is_polling=link.listener.is_polling,
        )
        source.add_subscriber(subscriber)
        try:
            self.on_available_image(source, subscriber)
        except RegistrationError:
            self.part(source, link)
            raise

    def _checked(self, position: Counter, source: Subscribable) -> CheckedPosition:
        """Return a position that other processes can write; the first that is wrong is recorded."""
        resources = self._resources

        def furthest() -> int:
            # A reader sees a frame before its image has been polled.
            return (
                source.hwm_position
                if isinstance(source, PublicationImage)
                else source.rebuild_position
            )

        def on_forged(value: int) -> None:
            message = (
                f"position {value} in counter {position.id} is none of a reader of session "
                f"{source.session_id}, stream {source.stream_id}"
            )
            resources.system_counters.note_error(ErrorCode.GENERIC, message)

        return CheckedPosition(position, furthest, on_forged)

    def part(self, source: Subscribable, link: SubscriptionLink) -> SubscriberPosition | None:
        """Remove a subscription from a stream; return its position, if it had one."""
        subscriber = source.remove_subscriber(link.registration_id)
        if subscriber is not None:
            subscriber.position.close()
        return subscriber

    # Events from the cores.

    def on_unavailable_image(self, source: Subscribable, subscriber: SubscriberPosition) -> None:
        """Take an image from the client of a subscription that was left behind, or at its end."""
        # `ended` is None if the image continues and only this subscriber was left behind.
        end = source.life.ended if isinstance(source, PublicationImage) else None
        link = self._links[subscriber.subscription_id]
        link.listener.on_unavailable_image(source.registration_id, end)

    def on_available_image(self, source: Subscribable, subscriber: SubscriberPosition) -> None:
        """Give an image to the client of a subscription that has joined or rejoined."""
        if isinstance(source, PublicationImage):
            source_identity = format_address(source.source)
            source.wake_flag.callback = partial(self._receiver.on_consumed, source)
        else:
            assert isinstance(source, SubscribablePublication), "there is no third kind of stream"
            source_identity = LOCAL_SOURCE_IDENTITY
            source.wake_flag.callback = partial(self._sender.on_offer, source)
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
                wake_flag=source.wake_flag,
            )
        )


log: Final = get_logger(__name__)


@attrs.define(kw_only=True, eq=False)
class LocalInterest:
    """One channel by which a subscription wants streams of its own driver.

    Attributes:
        link: The subscription.
        uri: As the client wrote it.
        channel: The channel spied upon, resolved; None for IPC.
        params: Its parameters from the channel and the context.
        session_id: The one session wanted, or None for all.
        is_response: Whether it still waits to learn its session, and wants none until then.
        registration_id: Id of the destination; 0 for the subscription's own channel.
    """

    link: SubscriptionLink
    uri: ChannelUri
    channel: UdpChannel | None
    params: SubscriptionParams
    session_id: int | None
    is_response: bool = False
    registration_id: int = 0

    def matches(self, publication: SubscribablePublication, channel: UdpChannel | None) -> bool:
        """Return whether this channel matches a publication.

        Args:
            publication: The publication.
            channel: The channel it sends to; None for IPC.
        """
        if self.link.stream_id != publication.stream_id or self.is_response:
            return False
        if self.channel is None or channel is None:
            return self.channel is channel and self._wants(publication.session_id)
        tag = self.channel.uri.channel_tag
        # As in Aeron, a matching tag decides: the session id then does not count.
        if tag is not None and tag == channel.uri.channel_tag:
            return True
        is_same = self.channel.canonical_form == channel.canonical_form
        return is_same and self._wants(publication.session_id)

    def _wants(self, session_id: int) -> bool:
        return self.session_id is None or self.session_id == session_id


class LocalStreams:
    """Which subscriptions of one driver read which publications of the same driver.

    Args:
        resources: What the driver's parts share.
        readers: Joins subscriptions to streams, and notifies their clients.
        sender: Polls the publications.
        publications: The publications of the driver.
    """

    def __init__(
        self,
        resources: DriverResources,
        readers: Subscribers,
        sender: Sender,
        publications: PublicationTable,
    ) -> None:
        self._resources = resources
        self._readers = readers
        self._sender = sender
        self._publications = publications
        # By subscription id; subscriptions that only receive from the network have no entry.
        self._interests: dict[int, list[LocalInterest]] = {}

    def is_response_pending(self, link: SubscriptionLink) -> bool:
        """Return whether a subscription waits for a server to announce its session."""
        return any(each.is_response for each in self._interests.get(link.registration_id, ()))

    # Events from publications.

    def on_publication_done(self, publication: SubscribablePublication) -> None:
        """Remove all readers of a publication that is done, without notifying them."""
        for subscriber in publication.subscribers:
            subscriber.position.close()
        publication.subscribers.clear()

    def on_accepting_subscriptions(self, publication: SubscribablePublication) -> None:
        """Join all matching subscriptions to a publication, new or no longer rejected."""
        for interests in self._interests.values():
            for interest in interests:
                try:
                    self._join(publication, interest)
                except RegistrationError as error:
                    # This is no error of the publisher, and the others still get their image.
                    self._refuse(publication, str(error))

    # Events from subscriptions.

    def add(self, interest: LocalInterest) -> None:
        """Let a subscription read all matching publications, present and future.

        Raises:
            RegistrationError: The counter table is full.
        """
        self._interests.setdefault(interest.link.registration_id, []).append(interest)
        for publication in self._publications:
            self._join(publication, interest)

    def remove(self, link: SubscriptionLink) -> None:
        """Remove a subscription from every publication that it reads."""
        if self._interests.pop(link.registration_id, None) is None:
            return
        for publication in self._publications:
            if self._readers.part(publication, link) is not None:
                self._sender.on_activity(publication)

    def destination_count(self, link: SubscriptionLink) -> int:
        """Return how many destinations of a subscription are streams of this driver."""
        return len(self._interests.get(link.registration_id, ()))

    def remove_destination(self, link: SubscriptionLink, destination: ChannelUri | int) -> bool:
        """Remove one channel of a subscription; return False if it has no such channel.

        Args:
            link: The subscription.
            destination: The channel that was added, or its id.
        """
        interests = self._interests.get(link.registration_id, [])
        for interest in interests:
            if interest.registration_id and destination in {interest.uri, interest.registration_id}:
                interests.remove(interest)
                self._part_from_unwanted(link, interests)
                return True
        return False

    def on_response_setup(self, subscription_id: int, session_id: int) -> None:
        """Bind a subscription for responses to a session; it reads only that one."""
        for interest in self._interests.get(subscription_id, ()):
            interest.is_response = False
            interest.session_id = session_id

    def _join(self, publication: SubscribablePublication, interest: LocalInterest) -> None:
        link = interest.link
        if (
            interest.matches(publication, self._publications.channel(publication))
            and publication.is_accepting_subscriptions
            and not publication.subscribers.has(link.registration_id)
        ):
            self._readers.join(publication, link, interest.params, channel=str(interest.uri))
            self._sender.on_activity(publication)

    def _part_from_unwanted(self, link: SubscriptionLink, interests: list[LocalInterest]) -> None:
        for publication in self._publications:
            channel = self._publications.channel(publication)
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
