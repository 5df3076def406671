"""What a channel and the context together say of a subscription.

Source: Aeron `SubscriptionParams`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.errors import ConfigurationError
from aeron_async.protocol.channel_uri import Group

if TYPE_CHECKING:
    from aeron_async.driver.core.congestion_control.base import CongestionControlSupplier
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["SubscriptionParams"]


@attrs.frozen(kw_only=True)
class SubscriptionParams:
    """Settings of one subscription; lengths in bytes.

    Attributes:
        session_id: The one session wanted, or None for all.
        receiver_window_length: What the first image may use, before half a term caps it.
        is_group: Whether to back off before asking for lost data; None lets the sender say.
        congestion_control: Name of the strategy, or whatever makes one; "default" is the static
            window.
    """

    session_id: int | None
    is_reliable: bool
    is_rejoin: bool
    is_tether: bool
    is_sparse: bool
    receiver_window_length: int
    nak_delay_ns: int | None
    is_group: bool | None
    group_tag: int | None
    congestion_control: str | CongestionControlSupplier

    @classmethod
    def of(
        cls,
        uri: ChannelUri,
        context: DriverContext,
        *,
        congestion_control: CongestionControlSupplier | None = None,
    ) -> SubscriptionParams:
        """Return what `uri` says, and the context where it is silent.

        Args:
            uri: The channel.
            context: The driver's settings.
            congestion_control: For this subscription, whatever the others say.
        """

        def given(value: bool | None, default: bool) -> bool:  # noqa: FBT001 - both are data
            return default if value is None else value

        is_group = context.receiver_group_consideration
        if uri.group is not None:
            is_group = {Group.TRUE: True, Group.FALSE: False, Group.INFER: None}[uri.group]
        window_length = uri.receiver_window_length
        tag = uri.group_tag
        return cls(
            session_id=uri.session_id if isinstance(uri.session_id, int) else None,
            is_reliable=given(uri.is_reliable, context.reliable_stream),
            is_rejoin=given(uri.is_rejoin, context.rejoin_stream),
            is_tether=given(uri.is_tether, context.tether_subscriptions),
            is_sparse=given(uri.is_sparse, context.term_buffer_sparse_file),
            receiver_window_length=(
                context.initial_window_length if window_length is None else window_length
            ),
            nak_delay_ns=uri.nak_delay_ns,
            is_group=is_group,
            group_tag=context.receiver_group_tag if tag is None else tag,
            congestion_control=congestion_control or chosen_congestion_control(uri, context),
        )

    def check_same_stream(self, other: SubscriptionParams, *, stream_id: int) -> None:
        """Refuse a second subscription of one stream that wants other guarantees.

        Raises:
            ConfigurationError: Reliability or rejoining differ.

        Source: Aeron `DriverConductor.checkForClashingSubscription`.
        """
        pairs = (
            ("reliable", self.is_reliable, other.is_reliable),
            ("rejoin", self.is_rejoin, other.is_rejoin),
        )
        for key, ours, theirs in pairs:
            if self.session_id == other.session_id and ours != theirs:
                message = (
                    f"{key}={str(ours).lower()} differs from {key}={str(theirs).lower()}, which a "
                    f"subscription of stream {stream_id} on this endpoint already has"
                )
                raise ConfigurationError(message)


def chosen_congestion_control(
    uri: ChannelUri, context: DriverContext
) -> str | CongestionControlSupplier:
    """Return which strategy an image gets: the context's, unless that leaves it to the channel."""
    supplier = context.congestion_control_supplier
    if supplier == "default" and uri.congestion_control is not None:
        return str(uri.congestion_control)
    return supplier
