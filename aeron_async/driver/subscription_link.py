"""One client's subscription, as the conductor knows it.

Source: Aeron `SubscriptionLink`, `aeron_subscription_link_t`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from aeron_async.driver.commands import SubscriptionListener
    from aeron_async.driver.core.stream_params import SubscriptionParams
    from aeron_async.driver.media.receive_channel_endpoint import ReceiveChannelEndpoint
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["SubscriptionLink"]


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
