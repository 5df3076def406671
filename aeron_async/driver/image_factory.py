"""Makes images: their log, their counters, their window and their patience.

Source: Aeron `DriverConductor.onCreatePublicationImage`.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from aeron_async.driver.core.congestion_control import CongestionControlParams, congestion_control
from aeron_async.driver.core.feedback_delay import choose_delay
from aeron_async.driver.core.publication_image import PublicationImage
from aeron_async.driver.core.stream_counters import ImageCounters
from aeron_async.driver.image_budget import start_position
from aeron_async.driver.log_creation import create_log, with_channel_settings
from aeron_async.logbuffer.log_spec import LogSpec
from aeron_async.logbuffer.metadata import LogType
from aeron_async.protocol.header import SetupFlags

if TYPE_CHECKING:
    from aeron_async.driver.core.congestion_control import CongestionControl
    from aeron_async.driver.core.feedback_delay import FeedbackDelay
    from aeron_async.driver.core.outbox import Address, ReceiveDestination
    from aeron_async.driver.core.stream_params import SubscriptionParams
    from aeron_async.driver.core.subscriber_position import SubscribableListener
    from aeron_async.driver.media.receive_channel_endpoint import ReceiveChannelEndpoint
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.subscription_link import SubscriptionLink
    from aeron_async.logbuffer.term_log import LogBuffers
    from aeron_async.protocol.setup import Setup

__all__ = ["ImageFactory"]


class ImageFactory:
    """Makes the images of one driver.

    Args:
        resources: What the driver's parts share.
        listener: Hears what they decide.
    """

    def __init__(self, resources: DriverResources, listener: SubscribableListener) -> None:
        self._resources = resources
        self._listener = listener

    def make(
        self,
        endpoint: ReceiveChannelEndpoint,
        setup: Setup,
        source: Address,
        destination: ReceiveDestination,
        link: SubscriptionLink,
    ) -> PublicationImage:
        """Return the image of a stream that begins.

        Args:
            endpoint: Where it is received.
            setup: What its sender says of it.
            source: Where that came from.
            destination: By which way.
            link: The oldest subscription that wants it, whose settings it has.

        Raises:
            RegistrationError: There is no memory or counter left, or no congestion control.
            Exception: Whatever the congestion control raises.
        """
        resources, params = self._resources, link.params
        registration_id = resources.next_id()
        is_group = params.is_group
        if is_group is None:
            is_group = destination.is_multicast or bool(setup.flags & SetupFlags.GROUP)
        control = self._congestion_control(params, setup)
        with ExitStack() as undo:
            counters = self._counters(setup, link, registration_id, control)
            undo.callback(counters.close)
            log = self._log(setup, link, endpoint, registration_id, control, is_group=is_group)
            undo.callback(log.close)
            # Somebody else's code, some of it, and called at the pace of a peer's SETUPs.
            control.bind(counters.congestion_control)
            image = PublicationImage(
                registration_id=registration_id,
                log=log,
                join_position=start_position(setup),
                source=source,
                destination=destination,
                context=resources.context,
                congestion_control=control,
                feedback_delay=self._delay(params, is_group=is_group),
                is_reliable=params.is_reliable,
                counters=counters,
                system_counters=resources.system_counters,
                receiver_id=endpoint.receiver_id,
                group_tag=endpoint.group_tag,
                listener=self._listener,
                now_ns=resources.clock.now_ns(),
            )
            undo.pop_all()
        image.is_response_requested = bool(setup.flags & SetupFlags.SEND_RESPONSE)
        return image

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

    def _counters(
        self,
        setup: Setup,
        link: SubscriptionLink,
        registration_id: int,
        control: CongestionControl,
    ) -> ImageCounters:
        return ImageCounters.allocate(
            self._resources.counters_manager,
            registration_id=registration_id,
            session_id=setup.session_id,
            stream_id=setup.stream_id,
            channel=link.channel,
            client_id=link.client_id,
            congestion_control_types=control.counter_types,
        )

    def _log(
        self,
        setup: Setup,
        link: SubscriptionLink,
        endpoint: ReceiveChannelEndpoint,
        registration_id: int,
        control: CongestionControl,
        *,
        is_group: bool,
    ) -> LogBuffers:
        spec = log_spec(
            setup,
            link.params,
            correlation_id=registration_id,
            receiver_window_length=control.max_window_length(),
            is_group=is_group,
        )
        return create_log(with_channel_settings(spec, link.uri, endpoint, self._resources.context))

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
