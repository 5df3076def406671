"""Subscriptions for responses: they follow the session that their server answers with.

A server that restarts answers with another session. The subscription takes it where the session
before has ended or fallen silent, and a stream that is heard is never given up for what one frame
says: such a frame can be forged.

Source: Aeron `aeron_driver_conductor_on_response_setup`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.clock import NS_PER_SECOND
from aeron_async.driver.core.loss_detector import NEVER_NS
from aeron_async.driver.core.session_states import SUCCESSION_SILENCE_NS, gives_way, gives_way_ns
from aeron_async.driver.core.system_counters import DriverCounterId
from aeron_async.logs import get_logger, within

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aeron_async.driver.core.publication_image import PublicationImage
    from aeron_async.driver.images import Images
    from aeron_async.driver.media.receive_channel_endpoint import ReceiveChannelEndpoint
    from aeron_async.driver.receive_endpoints import ReceiveEndpoints
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.subscription_link import SubscriptionLink

__all__ = ["ResponseSubscriptions"]

ELICIT_INTERVAL_NS: Final = NS_PER_SECOND // 10
"""How often one subscription asks for the SETUP of its responses, however often it is told to."""
SUCCESSOR_TIMEOUT_NS: Final = 2 * NS_PER_SECOND
"""How long a subscription waits for the next session before its client is told."""
UNANSWERED: Final = (
    "session {} does not answer, and the server has named no other within {:g} s: it has gone, or "
    "adds no publication for this client's image"
)

log = get_logger(__name__)


class ResponseSubscriptions:
    """The subscriptions for responses of one driver.

    Args:
        resources: What the driver's parts share.
        links: The subscriptions there are.
        images: What they have joined.
        endpoints: Where they receive.
        wake: Called when `poll` has to be called sooner than it said.

    Attributes:
        is_asked: Says whether a publication asks for the responses of a subscription.
    """

    is_asked: Callable[[int], bool]

    def __init__(
        self,
        resources: DriverResources,
        links: Mapping[int, SubscriptionLink],
        images: Images,
        endpoints: ReceiveEndpoints,
        wake: Callable[[], None],
    ) -> None:
        self._resources = resources
        self._links = links
        self._images = images
        self._endpoints = endpoints
        self._wake = wake
        # Frames of strangers cause lines, too: each may name another session.
        self._log = within(resources.log_budget, log)

    def on_response_setup(self, registration_id: int, session_id: int) -> None:
        """Let a subscription for responses take the session that its server answers with.

        What repeats it has the SETUP asked for again, and is sent every 200 ms by honest peers.
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
        """Tell clients whose requests nothing answers, and return when to look again.

        A session that answers now is missing for long enough in two seconds at the earliest: until
        then nobody looks.
        """
        silent = self._silent_from()
        return min(
            (
                self._look(link, silent.get((link.registration_id, link.session_id)), now_ns)
                for link in self._links.values()
                if link.is_following and not link.is_response
            ),
            default=NEVER_NS,
        )

    def _look(self, link: SubscriptionLink, silent_ns: int | None, now_ns: int) -> int:
        """Tell one client, or take it back; return when to look again.

        Args:
            link: Of a subscription that follows its server, and has been told a session.
            silent_ns: When that session counts as silent; None where it is not joined.
            now_ns: The time.
        """
        if silent_ns is not None and now_ns < silent_ns:
            link.unanswered_ns = None
            if link.is_told:
                link.is_told = False
                link.listener.on_unanswered(None)
            return now_ns + SUCCESSOR_TIMEOUT_NS
        if silent_ns is not None:
            # It may have been heard since the last look.
            link.unanswered_ns = max(silent_ns, link.bound_ns)
        elif link.unanswered_ns is None:
            link.unanswered_ns = max(now_ns, link.bound_ns)
        told_ns = link.unanswered_ns + SUCCESSOR_TIMEOUT_NS
        if not link.is_told and now_ns < told_ns:
            return told_ns
        if not link.is_told and self.is_asked(link.registration_id):
            # Where nothing asks any more, nothing is missing.
            link.is_told = True
            self._tell(link)
        return max(now_ns, link.unanswered_ns) + SUCCESSION_SILENCE_NS

    def _silent_from(self) -> dict[tuple[int, int | None], int]:
        """Return which subscriptions hear which sessions, and from when those count as silent."""
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
        """Want a session no more that a subscription wanted, unless another wants it, too."""
        is_still_wanted = any(
            other.endpoint is endpoint
            and other.stream_id == link.stream_id
            and other.session_id == session_id
            and not other.is_response
            for other in self._links.values()
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
        # The silence of the session before says nothing of this one, which has yet to be joined.
        link.session_id, link.unanswered_ns = session_id, None
        link.bound_ns, link.next_elicit_ns = now_ns, now_ns + ELICIT_INTERVAL_NS
        self._wake()
        self._endpoints.take_interest(endpoint, link.stream_id, session_id)

    def _image(self, link: SubscriptionLink) -> PublicationImage | None:
        """Return the newest image of the session that a subscription wants."""
        found = None
        for image in self._images:
            if image.session_id == link.session_id and image.subscribers.has(link.registration_id):
                found = image
        return found

    def _is_free(self, link: SubscriptionLink, now_ns: int) -> bool:
        """Return whether a subscription may take another session than it has.

        Differs: Aeron keeps the first session for ever, and hears nothing after it has ended.
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
