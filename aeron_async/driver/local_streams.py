"""Streams that subscriptions read where they are written: IPC, and publications spied upon.

Invariant: a subscription reads a publication once at most, however many of its channels mean it;
and it does so exactly while one of them does, and the publication still has something to give.

Source: Aeron `IpcSubscriptionLink`, `SpySubscriptionLink`, `DriverConductor.linkIpcSubscriptions`,
`linkSpies`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.errors import RegistrationError
from aeron_async.logs import get_logger

if TYPE_CHECKING:
    from aeron_async.driver.core.publication import SubscribablePublication
    from aeron_async.driver.core.stream_params import SubscriptionParams
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.readers import Readers
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.sender import Sender
    from aeron_async.driver.subscription_link import SubscriptionLink
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["LocalInterest", "LocalStreams"]

log = get_logger(__name__)


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
