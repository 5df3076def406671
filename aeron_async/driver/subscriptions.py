"""Subscriptions of one driver: add, join images, follow responses, release.

A subscription in `Subscriptions` receives from the network, or reads streams of its own driver, or
both, as its channel and its destinations say.

Invariant: `ResponseSubscriptions` never drops a stream that is still heard because of one frame,
since a frame can be forged. A server that restarts answers with another session; the subscription
takes that session only when the one before has ended or is silent.

Source: Aeron `DriverConductor.onAddNetworkSubscription` and its neighbours,
`aeron_driver_conductor_on_response_setup`.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from aeron_async.clock import NEVER_NS, NS_PER_SECOND
from aeron_async.driver.commands import SubscriptionReady
from aeron_async.driver.core.congestion_control import congestion_control_supplier
from aeron_async.driver.core.session_states import SUCCESSION_SILENCE_NS, gives_way, gives_way_ns
from aeron_async.driver.core.stream_params import SubscriptionParams
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.driver.endpoints import ReceiveEndpoints
from aeron_async.driver.images import Images
from aeron_async.driver.sightings import Sightings
from aeron_async.driver.subscribers import (
    LocalInterest,
    LocalStreams,
    Subscribers,
    SubscriptionLink,
)
from aeron_async.errors import AeronError, ConfigurationError, ErrorCode, RegistrationError
from aeron_async.logs import get_logger, within
from aeron_async.protocol.channel_uri import ControlMode, Media

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aeron_async.driver.commands import SubscriptionListener
    from aeron_async.driver.core.publication_image import PublicationImage
    from aeron_async.driver.core.suppliers import CongestionControlSupplier
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.media.endpoint import ReceiveChannelEndpoint
    from aeron_async.driver.publication_table import PublicationTable
    from aeron_async.driver.receiver import Receiver
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.sender import Sender
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = [
    "ResponseSubscriptions",
    "Subscriptions",
]

ELICIT_INTERVAL_NS: Final = NS_PER_SECOND // 10
"""How often one subscription requests the SETUP of its responses, at most."""
SUCCESSOR_TIMEOUT_NS: Final = 2 * NS_PER_SECOND
"""How long a subscription waits for the next session before its client is notified."""
UNANSWERED: Final = (
    "session {} does not answer, and the server has named no other within {:g} s: the "
    "server is gone, or adds no publication for this client's image"
)

log: Final = get_logger(__name__)


class ResponseSubscriptions:
    """The subscriptions for responses of one driver.

    Args:
        resources: What the driver's parts share.
        links: All subscriptions.
        images: All images.
        endpoints: All receive endpoints.
        wake: Called when `poll` must be called sooner than it returned.

    Attributes:
        is_asked: Returns whether a publication requests the responses of a subscription.
    """

    is_asked: Callable[[int], bool]

    def __init__(
        self,
        resources: DriverResources,
        links: Mapping[int, SubscriptionLink],
        stream_links: Mapping[int, Mapping[int, SubscriptionLink]],
        images: Images,
        endpoints: ReceiveEndpoints,
        wake: Callable[[], None],
    ) -> None:
        self._resources = resources
        self._links = links
        self._stream_links = stream_links
        self._images = images
        self._endpoints = endpoints
        self._wake = wake
        # Those that follow their servers from session to session: most drivers have none, and then
        # a turn of the conductor looks at no subscription and no image.
        self._followers: dict[int, SubscriptionLink] = {}
        # Strangers can cause lines too: each of their frames may name another session.
        self._log = within(resources.log_budget, log)

    def add(self, link: SubscriptionLink) -> None:
        """Look after a subscription, if it is one that follows its server."""
        if link.is_following:
            self._followers[link.registration_id] = link

    def forget(self, registration_id: int) -> None:
        """Forget a subscription that is removed."""
        self._followers.pop(registration_id, None)

    def close(self) -> None:
        """Forget every subscription."""
        self._followers.clear()

    def on_response_setup(self, registration_id: int, session_id: int) -> None:
        """Bind a subscription for responses to the session with which its server answers.

        A repeated frame requests the SETUP of the session again; honest peers repeat it every
        200 ms.
        """
        link = self._links.get(registration_id)
        endpoint = None if link is None else link.endpoint
        if link is None or endpoint is None or not endpoint.channel.is_response:
            return
        now_ns = self._resources.clock.now_ns()
        if link.is_response:
            link.is_response = False
            self._bind(link, endpoint, session_id, now_ns)
        elif link.is_following and session_id != link.session_id and self._is_free(link, now_ns):
            self._follow(link, endpoint, session_id, now_ns)
        elif link.session_id is not None:
            if now_ns < link.next_elicit_ns:
                # Differs: Aeron answers each one, however many there are.
                counters = self._resources.system_counters
                counters[DriverCounterId.ELICITED_SETUPS_SUPPRESSED].increment()
                return
            link.next_elicit_ns = now_ns + ELICIT_INTERVAL_NS
            self._endpoints.on_interest(endpoint, link.stream_id, link.session_id)

    def poll(self, now_ns: int) -> int:
        """Notify clients whose requests are not answered, and return the next deadline.

        A session that answers now can be overdue in two seconds at the earliest, so there is no
        check before that.
        """
        bound = [link for link in self._followers.values() if not link.is_response]
        if not bound:
            return NEVER_NS
        silent = self._silent_from()
        return min(
            self._look(link, silent.get((link.registration_id, link.session_id)), now_ns)
            for link in bound
        )

    def _look(self, link: SubscriptionLink, silent_ns: int | None, now_ns: int) -> int:
        """Notify one client that its session is silent, or back; return when to check again.

        Args:
            link: A subscription that follows its server, and knows a session.
            silent_ns: When that session counts as silent; None if it has no image.
            now_ns: The time now.
        """
        if silent_ns is not None and now_ns < silent_ns:
            link.unanswered_ns = None
            if link.is_told:
                link.is_told = False
                link.listener.on_unanswered(None)
            return now_ns + SUCCESSOR_TIMEOUT_NS
        if silent_ns is not None:
            # It may have been heard since the last check.
            link.unanswered_ns = max(silent_ns, link.bound_ns)
        elif link.unanswered_ns is None:
            link.unanswered_ns = max(now_ns, link.bound_ns)
        told_ns = link.unanswered_ns + SUCCESSOR_TIMEOUT_NS
        if not link.is_told and now_ns < told_ns:
            return told_ns
        if not link.is_told and self.is_asked(link.registration_id):
            # Without requests there are no responses to miss.
            link.is_told = True
            self._tell(link)
        return max(now_ns, link.unanswered_ns) + SUCCESSION_SILENCE_NS

    def _silent_from(self) -> dict[tuple[int, int | None], int]:
        """Return when each session counts as silent, by subscription and session id."""
        return {
            (subscriber.subscription_id, image.session_id): gives_way_ns(image)
            for image in self._images
            if image.is_following
            for subscriber in image.subscribers
        }

    def _tell(self, link: SubscriptionLink) -> None:
        reason = UNANSWERED.format(link.session_id, SUCCESSOR_TIMEOUT_NS / NS_PER_SECOND)
        self._log.warning(
            "response_session_silent",
            channel=link.channel,
            stream_id=link.stream_id,
            session_id=link.session_id,
            reason=reason,
        )
        link.listener.on_unanswered(reason)

    def lose_interest(
        self, link: SubscriptionLink, endpoint: ReceiveChannelEndpoint, session_id: int | None
    ) -> None:
        """Drop a subscription's interest in a session, unless another subscription wants it."""
        is_still_wanted = any(
            other.endpoint is endpoint and other.session_id == session_id and not other.is_response
            for other in self._stream_links.get(link.stream_id, {}).values()
        )
        if not is_still_wanted:
            endpoint.dispatcher.remove_subscription(link.stream_id, session_id)

    def _bind(
        self,
        link: SubscriptionLink,
        endpoint: ReceiveChannelEndpoint,
        session_id: int,
        now_ns: int,
    ) -> None:
        # The silence of the previous session says nothing about this one, which is not joined yet.
        link.session_id, link.unanswered_ns = session_id, None
        link.bound_ns, link.next_elicit_ns = now_ns, now_ns + ELICIT_INTERVAL_NS
        self._wake()
        self._endpoints.take_interest(endpoint, link.stream_id, session_id)

    def _image(self, link: SubscriptionLink) -> PublicationImage | None:
        """Return the newest image of the session to which a subscription is bound."""
        found = None
        for image in self._images:
            if image.session_id == link.session_id and image.subscribers.has(link.registration_id):
                found = image
        return found

    def _is_free(self, link: SubscriptionLink, now_ns: int) -> bool:
        """Return whether a subscription may change to another session.

        Differs: Aeron keeps the first session for good, and receives nothing after it has ended.
        """
        image = self._image(link)
        if image is None:
            return now_ns >= link.bound_ns + SUCCESSION_SILENCE_NS
        return gives_way(image, now_ns)

    def _follow(
        self,
        link: SubscriptionLink,
        endpoint: ReceiveChannelEndpoint,
        session_id: int,
        now_ns: int,
    ) -> None:
        before, image = link.session_id, self._image(link)
        self._bind(link, endpoint, session_id, now_ns)
        self.lose_interest(link, endpoint, before)
        if image is not None:
            self._images.supersede(image)
        self._log.info(
            "response_session_changed",
            channel=link.channel,
            stream_id=link.stream_id,
            before=before,
            after=session_id,
        )


class Subscriptions:
    """Every subscription of one driver, with the endpoints they receive at.

    Args:
        resources: What the driver's parts share.
        receiver: Polls the images.
        sender: Polls the publications of this driver that subscriptions read.
        publications: The publications of the driver.
        wake: Called when the conductor must call `responses.poll` sooner than planned.

    Attributes:
        readers: Joins subscriptions to streams, and notifies their clients.
        local: The streams of this driver that subscriptions read.
        images: The images of streams from the network.
        endpoints: The receive endpoints.
        responses: Binds subscriptions for responses to the sessions that answer.
        sightings: Explains what subscriptions that wait can see.
    """

    def __init__(
        self,
        resources: DriverResources,
        receiver: Receiver,
        sender: Sender,
        publications: PublicationTable,
        wake: Callable[[], None],
    ) -> None:
        self._resources = resources
        self._receiver = receiver
        self._links: dict[int, SubscriptionLink] = {}
        # Called with each subscription that is removed, once statistics are taken.
        self.on_removed: Callable[[SubscriptionLink], object] | None = None
        self._client_links: dict[int, dict[int, SubscriptionLink]] = {}
        self._stream_links: dict[int, dict[int, SubscriptionLink]] = {}
        # How many subscriptions receive at each endpoint.
        self._link_counts: Counter[ReceiveChannelEndpoint] = Counter()
        self.readers: Subscribers = Subscribers(resources, receiver, sender, self._links)
        self.local: LocalStreams = LocalStreams(resources, self.readers, sender, publications)
        self.images: Images = Images(
            resources,
            receiver,
            self.readers,
            self._links,
            self._stream_links,
            self._close_if_unused,
        )
        self.endpoints: ReceiveEndpoints = ReceiveEndpoints(resources, receiver, self.images)
        self.responses: ResponseSubscriptions = ResponseSubscriptions(
            resources, self._links, self._stream_links, self.images, self.endpoints, wake
        )
        self.sightings: Sightings = Sightings(resources, self, publications)

    async def add(
        self,
        uri: ChannelUri,
        channel: UdpChannel | None,
        *,
        registration_id: int,
        stream_id: int,
        client_id: int,
        listener: SubscriptionListener,
        congestion_control: CongestionControlSupplier | None = None,
    ) -> SubscriptionReady:
        """Add a subscription; existing images become available to it before this returns.

        Args:
            uri: As the client wrote it.
            channel: The same, resolved; None for IPC.
            registration_id: The id of the subscription.
            stream_id: Within the channel.
            client_id: The client.
            listener: Called when its images change.
            congestion_control: Factory for the congestion control of its images; overrides channel
                and context.

        Raises:
            RegistrationError: The socket cannot be opened, or its buffer is smaller than the
                window.
            ConfigurationError: The channel contradicts a subscription of the same stream, or the
                socket it would share.
        """
        params = SubscriptionParams.of(
            uri, self._resources.context, congestion_control=congestion_control
        )
        link = SubscriptionLink(
            registration_id=registration_id,
            client_id=client_id,
            endpoint=None,
            uri=uri,
            stream_id=stream_id,
            params=params,
            listener=listener,
            session_id=params.session_id,
        )
        if channel is None or uri.is_spy:
            return self._add_local(link, channel)
        congestion_control_supplier(params.congestion_control)
        endpoint = link.endpoint = await self.endpoints.get(
            channel, params.group_tag, registration_id=registration_id
        )
        link.is_response = endpoint.channel.is_response and params.session_id is None
        try:
            self._check_same_stream(endpoint, channel, params, stream_id)
            self._check_window(endpoint, params)
        except AeronError:
            self._close_if_unused(endpoint)
            raise
        return self._begin(link, endpoint)

    def _begin(self, link: SubscriptionLink, endpoint: ReceiveChannelEndpoint) -> SubscriptionReady:
        """Let a subscription receive at an endpoint, and join the images that are there."""
        self._keep(link)
        if not link.is_response:
            self.endpoints.take_interest(endpoint, link.stream_id, link.session_id)
        try:
            self.images.join_existing(link)
        except RegistrationError:
            self.remove(link.registration_id)
            raise
        return self._ready(link, endpoint)

    def _add_local(self, link: SubscriptionLink, channel: UdpChannel | None) -> SubscriptionReady:
        """Let a subscription read streams of this driver: IPC publications, or as a spy."""
        interest = LocalInterest(
            link=link,
            uri=link.uri,
            channel=channel,
            params=link.params,
            session_id=link.session_id,
            is_response=_is_for_local_responses(link) and link.session_id is None,
        )
        self._keep(link)
        try:
            self.local.add(interest)
        except RegistrationError:
            self.remove(link.registration_id)
            raise
        return self._ready(link, None)

    def _ready(
        self, link: SubscriptionLink, endpoint: ReceiveChannelEndpoint | None
    ) -> SubscriptionReady:
        return SubscriptionReady(
            registration_id=link.registration_id,
            uri=link.uri,
            stream_id=link.stream_id,
            channel_status=None if endpoint is None else endpoint.status,
            local_address="" if endpoint is None else endpoint.local_address,
            seen=partial(self.sightings.of_subscription, link),
        )

    def has(self, registration_id: int) -> bool:
        """Return whether there is a subscription with this id."""
        return registration_id in self._links

    def find(self, registration_id: int) -> SubscriptionLink | None:
        """Return the subscription with this id, or None."""
        return self._links.get(registration_id)

    @property
    def links(self) -> tuple[SubscriptionLink, ...]:
        """Return every subscription; for explanations."""
        return tuple(self._links.values())

    def _keep(self, link: SubscriptionLink) -> None:
        self._links[link.registration_id] = link
        self._client_links.setdefault(link.client_id, {})[link.registration_id] = link
        self._stream_links.setdefault(link.stream_id, {})[link.registration_id] = link
        if link.endpoint is not None:
            self._link_counts[link.endpoint] += 1
        self.responses.add(link)

    def _forget(self, registration_id: int) -> SubscriptionLink | None:
        """Remove a subscription from where it is found by its id, its client and its endpoint."""
        link = self._links.pop(registration_id, None)
        if link is None:
            return None
        self.responses.forget(registration_id)
        if self.on_removed is not None:
            self.on_removed(link)
        _forget_in(self._client_links, link.client_id, registration_id)
        _forget_in(self._stream_links, link.stream_id, registration_id)
        endpoint = link.endpoint
        if endpoint is not None:
            self._link_counts[endpoint] -= 1
            if not self._link_counts[endpoint]:
                del self._link_counts[endpoint]
        return link

    def remove(self, registration_id: int) -> None:
        """Remove a subscription; images without readers say goodbye to their sources."""
        link = self._forget(registration_id)
        if link is None:
            return
        self.local.remove(link)
        endpoint = link.endpoint
        if endpoint is None:
            return
        self.images.leave(link)
        if not link.is_response:
            self.responses.lose_interest(link, endpoint, link.session_id)
        self._close_if_unused(endpoint)

    async def add_destination(
        self,
        registration_id: int,
        uri: ChannelUri,
        channel: UdpChannel | None,
        *,
        destination_id: int,
        client_id: int,
    ) -> int:
        """Add a destination to a subscription; return the id of the destination.

        Args:
            registration_id: Registration id of the subscription.
            uri: The destination, as the client wrote it.
            channel: The same, resolved; None for IPC.
            destination_id: The id of the destination.
            client_id: The client that asks for it.

        Raises:
            RegistrationError: UNKNOWN_SUBSCRIPTION: the client has none with this id; or its
                channel takes no more destinations.
        """
        link = self._link(registration_id, client_id)
        endpoint = _manual_endpoint(link)
        local_count = self.local.destination_count(link)
        self.endpoints.check_destination_count(endpoint, uri, also=local_count)
        if channel is not None and not uri.is_spy:
            await self.endpoints.add_destination(endpoint, channel, destination_id)
            if registration_id not in self._links:
                # Closed while the socket was opened: the endpoint may be closed or used elsewhere.
                self.endpoints.remove_destination(endpoint, registration_id=destination_id)
                self._link(registration_id, client_id)
            return destination_id
        params = SubscriptionParams.of(uri, self._resources.context)
        interest = LocalInterest(
            link=link,
            uri=uri,
            channel=channel,
            params=params,
            session_id=params.session_id,
            registration_id=destination_id,
        )
        try:
            self.local.add(interest)
        except RegistrationError:
            self.local.remove_destination(link, destination_id)
            raise
        return destination_id

    def remove_destination(
        self,
        registration_id: int,
        destination: ChannelUri | int,
        *,
        canonical_form: str | None,
        client_id: int,
        missing_ok: bool = False,
    ) -> None:
        """Remove a destination from a subscription.

        Args:
            registration_id: Registration id of the subscription.
            destination: Its channel, or the id returned when it was added.
            canonical_form: Canonical form of the channel; None if an id is given.
            client_id: The client that asks for it.
            missing_ok: Do nothing if no socket of it is such a destination. As in Aeron, a stream
                of this driver must be one.

        Raises:
            RegistrationError: UNKNOWN_SUBSCRIPTION: the client has none with this id, or it does
                not read such a stream of this driver; or it has no such destination.
        """
        link = self._link(registration_id, client_id)
        if self._remove_destination(link, destination, canonical_form):
            return
        is_local = not isinstance(destination, int) and (
            destination.is_spy or destination.media is Media.IPC
        )
        if is_local or not missing_ok:
            message = f"{destination} is not a destination of {link.uri}"
            # The code is Aeron's, and official clients know it.
            code = ErrorCode.UNKNOWN_SUBSCRIPTION if missing_ok else ErrorCode.GENERIC
            raise RegistrationError(message, code=code)
        _manual_endpoint(link)

    def undo_destination(self, registration_id: int, destination_id: int) -> None:
        """Remove a destination whose caller no longer waits for it."""
        link = self._links.get(registration_id)
        if link is not None:
            self._remove_destination(link, destination_id, None)

    def _remove_destination(
        self, link: SubscriptionLink, destination: ChannelUri | int, canonical_form: str | None
    ) -> bool:
        if self.local.remove_destination(link, destination):
            return True
        return link.endpoint is not None and self.endpoints.remove_destination(
            link.endpoint,
            uri=None if isinstance(destination, int) else destination,
            canonical_form=canonical_form,
            registration_id=destination if isinstance(destination, int) else 0,
        )

    def is_for_responses(self, registration_id: int | None) -> bool:
        """Return whether this subscription exists, and receives responses from the network."""
        link = None if registration_id is None else self._links.get(registration_id)
        endpoint = None if link is None else link.endpoint
        return endpoint is not None and endpoint.channel.is_response

    def is_for_local_responses(self, registration_id: int) -> bool:
        """Return whether this subscription exists, and receives responses over IPC."""
        link = self._links.get(registration_id)
        return link is not None and _is_for_local_responses(link)

    def remove_client(self, client_id: int) -> None:
        """Remove all subscriptions of a client."""
        for registration_id in tuple(self._client_links.get(client_id, ())):
            self.remove(registration_id)

    def close(self) -> None:
        """Free everything at once, consumed or not."""
        self._links.clear()
        self._client_links.clear()
        self._stream_links.clear()
        self._link_counts.clear()
        self.responses.close()
        self.images.close()
        self.endpoints.close_all()

    def _link(self, registration_id: int, client_id: int) -> SubscriptionLink:
        link = self._links.get(registration_id)
        # Differs: Aeron lets a client change the destinations of what another one has added.
        if link is None or link.client_id != client_id:
            message = (
                f"unknown subscription: {registration_id}: it was closed, or client {client_id} "
                "has none such"
            )
            raise RegistrationError(message, code=ErrorCode.UNKNOWN_SUBSCRIPTION)
        return link

    def _check_same_stream(
        self,
        endpoint: ReceiveChannelEndpoint,
        channel: UdpChannel,
        params: SubscriptionParams,
        stream_id: int,
    ) -> None:
        """Refuse a channel that contradicts a subscription of the same stream on this endpoint.

        Raises:
            ConfigurationError: Reliability, rejoining or the role of the endpoint differ.
        """
        for link in self._stream_links.get(stream_id, {}).values():
            if link.endpoint is endpoint:
                params.check_same_stream(link.params, stream_id=stream_id)
                _check_same_role(channel, link, endpoint)

    def _check_window(self, endpoint: ReceiveChannelEndpoint, params: SubscriptionParams) -> None:
        granted_length = endpoint.granted_rcvbuf_length
        window_length = params.receiver_window_length
        if params.is_window_auto:
            # It takes what there is, if that is a datagram.
            window_length = min(window_length, self._resources.context.mtu_length)
        if 0 < granted_length < window_length:
            message = (
                f"receiver window of {window_length} bytes exceeds the socket's receive buffer of "
                f"{granted_length}: raise so-rcvbuf and net.core.rmem_max, or lower rcv-wnd"
            )
            raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)

    def _close_if_unused(self, endpoint: ReceiveChannelEndpoint) -> None:
        if endpoint not in self._link_counts and not self.images.are_at(endpoint):
            self.endpoints.close(endpoint)


def _check_same_role(
    channel: UdpChannel, link: SubscriptionLink, endpoint: ReceiveChannelEndpoint
) -> None:
    # A channel given by its tag has the role of the channel with that tag.
    tag = channel.uri.channel_tag
    is_same_tag = tag is not None and tag == endpoint.channel.uri.channel_tag
    if not is_same_tag and channel.is_response != endpoint.channel.is_response:
        message = (
            "option conflicts with existing subscription: "
            f"isResponse={'true' if channel.is_response else 'false'} "
            f"existingChannel={link.written_channel} channel={channel.uri}: use another endpoint "
            "for responses"
        )
        raise ConfigurationError(message)


def _manual_endpoint(link: SubscriptionLink) -> ReceiveChannelEndpoint:
    endpoint = link.endpoint
    if endpoint is None or not endpoint.channel.is_manual:
        message = (
            f"destinations of {link.uri} cannot be added or removed: a subscription has them with "
            "control-mode=manual only"
        )
        raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)
    return endpoint


def _is_for_local_responses(link: SubscriptionLink) -> bool:
    uri = link.uri
    return uri.media is Media.IPC and uri.control_mode is ControlMode.RESPONSE


def _forget_in(
    table: dict[int, dict[int, SubscriptionLink]], key: int, registration_id: int
) -> None:
    links = table[key]
    del links[registration_id]
    if not links:
        del table[key]
