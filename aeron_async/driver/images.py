"""Images of one driver: make one for a SETUP, join subscriptions to it, release it.

Source: Aeron `DriverConductor.onCreatePublicationImage` and its neighbours.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import attrs

from aeron_async.driver.core.congestion_control import (
    AutoWindowCongestionControl,
    CongestionControlParams,
    congestion_control,
)
from aeron_async.driver.core.losses import Losses
from aeron_async.driver.core.publication_image import PublicationImage
from aeron_async.driver.core.stream_counters import ImageCounters
from aeron_async.driver.core.stream_params import choose_delay
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.core.udp_channel import format_address
from aeron_async.driver.image_refusals import (
    ImageBudget,
    Refusal,
    RefusalFrames,
    Refusals,
    start_position,
    window_refusal,
)
from aeron_async.driver.log_creation import (
    create_log,
    create_log_now,
    with_channel_settings,
)
from aeron_async.errors import AeronError, ErrorCode, RegistrationError
from aeron_async.logbuffer.log_buffers import LogSpec
from aeron_async.logbuffer.metadata import LogType
from aeron_async.protocol.header import SetupFlags
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aeron_async.concurrent.loss_report import LossReport, ReportEntry
    from aeron_async.driver.core.congestion_control import CongestionControl
    from aeron_async.driver.core.feedback_delay import FeedbackDelay
    from aeron_async.driver.core.outbox import Address, ReceiveDestination
    from aeron_async.driver.core.stream_params import SubscriptionParams
    from aeron_async.driver.core.subscriber_position import SubscribableListener
    from aeron_async.driver.media.endpoint import ReceiveChannelEndpoint
    from aeron_async.driver.receiver import Receiver
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.subscribers import Subscribers, SubscriptionLink
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.protocol.setup import Setup

__all__ = [
    "ImageFactory",
    "Images",
]

T = TypeVar("T")


@attrs.frozen(kw_only=True, eq=False)
class ImagePlan:
    """What is decided about an image before its log is created."""

    endpoint: ReceiveChannelEndpoint
    setup: Setup
    source: Address
    destination: ReceiveDestination
    link: SubscriptionLink
    congestion_control: CongestionControl
    spec: LogSpec

    @property
    def origin(
        self,
    ) -> tuple[ReceiveChannelEndpoint, Setup, Address, ReceiveDestination, SubscriptionLink]:
        """Where the SETUP came from, and for which subscription."""
        return self.endpoint, self.setup, self.source, self.destination, self.link

    @property
    def stream(self) -> tuple[ReceiveChannelEndpoint, int, int]:
        """The stream at its endpoint, which has one image."""
        return self.endpoint, self.setup.stream_id, self.setup.session_id


class ImageFactory:
    """Makes the images of one driver; `listener` hears of their changes."""

    def __init__(self, resources: DriverResources, listener: SubscribableListener) -> None:
        self._resources = resources
        self._listener = listener

    def plan(
        self,
        endpoint: ReceiveChannelEndpoint,
        setup: Setup,
        source: Address,
        destination: ReceiveDestination,
        link: SubscriptionLink,
    ) -> ImagePlan:
        """Return the plan of an image, with the settings of the oldest subscription to its stream.

        Raises:
            RegistrationError: There is no congestion control.
            Exception: What the congestion control raised.
        """
        params = link.params
        is_group = params.is_group
        if is_group is None:
            is_group = destination.is_multicast or bool(setup.flags & SetupFlags.GROUP)
        control = self._congestion_control(params, setup, endpoint)
        spec = log_spec(
            setup,
            params,
            correlation_id=self._resources.next_id(),
            # Readers in other processes ring when they have taken a part of the least window.
            receiver_window_length=(
                control.initial_window_length()
                if params.is_window_auto
                else control.max_window_length()
            ),
            is_group=is_group,
        )
        return ImagePlan(
            endpoint=endpoint,
            setup=setup,
            source=source,
            destination=destination,
            link=link,
            congestion_control=control,
            spec=with_channel_settings(spec, link.uri, endpoint, self._resources.context),
        )

    def make(self, plan: ImagePlan, log: LogBuffers) -> PublicationImage:
        """Return the image of a new stream; the log is closed if that fails.

        Raises:
            RegistrationError: There is no counter left.
            Exception: What the congestion control raised.
        """
        resources, setup, link = self._resources, plan.setup, plan.link
        params, control, endpoint = link.params, plan.congestion_control, plan.endpoint
        with ExitStack() as undo:
            undo.callback(log.close)
            counters = self._counters(setup, link, plan.spec.correlation_id, control)
            undo.callback(counters.close)
            # This may be foreign code, called as often as peers send SETUPs.
            control.bind(counters.congestion_control)
            image = PublicationImage(
                registration_id=plan.spec.correlation_id,
                log=log,
                join_position=start_position(setup),
                source=plan.source,
                destination=plan.destination,
                context=resources.context,
                congestion_control=control,
                feedback_delay=self._delay(params, is_group=plan.spec.is_group),
                is_reliable=params.is_reliable,
                counters=counters,
                system_counters=resources.system_counters,
                receiver_id=endpoint.receiver_id,
                group_tag=endpoint.group_tag,
                listener=self._listener,
                now_ns=resources.clock.now_ns(),
                losses=Losses(
                    self._loss_recorder(setup, endpoint, plan.source), endpoint.drop_count
                ),
            )
            undo.pop_all()
        image.is_response_requested = bool(setup.flags & SetupFlags.SEND_RESPONSE)
        return image

    def _congestion_control(
        self, params: SubscriptionParams, setup: Setup, endpoint: ReceiveChannelEndpoint
    ) -> CongestionControl:
        is_auto = params.is_window_auto
        return congestion_control(
            AutoWindowCongestionControl.of if is_auto else params.congestion_control,
            CongestionControlParams(
                context=self._resources.context,
                configured_window_length=params.receiver_window_length,
                term_length=setup.term_length,
                mtu_length=setup.mtu_length,
                now_ns=self._resources.clock.now_ns(),
                granted_rcvbuf_length=endpoint.granted_rcvbuf_length,
                drop_count=endpoint.drop_count,
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

    def _loss_recorder(
        self, setup: Setup, endpoint: ReceiveChannelEndpoint, source: Address
    ) -> Callable[[int], None]:
        # One entry stands for all subscriptions of the image, so the channel is the endpoint's.
        return StreamLossRecorder(
            self._resources.storage.loss_report,
            self._resources.clock.epoch_ms,
            session_id=setup.session_id,
            stream_id=setup.stream_id,
            channel=str(endpoint.channel.uri),
            source=format_address(source),
        ).on_loss

    def _delay(self, params: SubscriptionParams, *, is_group: bool) -> FeedbackDelay:
        return choose_delay(
            self._resources.context,
            is_reliable=params.is_reliable,
            is_group=is_group,
            nak_delay_ns=params.nak_delay_ns,
            random=self._resources.random.random,
        )


class StreamLossRecorder:
    """Writes what one image has lost into the loss report; its entry is made at the first loss.

    Source: Aeron `PublicationImage.reportLoss`.
    """

    def __init__(
        self,
        report: LossReport,
        epoch_ms: Callable[[], int],
        *,
        session_id: int,
        stream_id: int,
        channel: str,
        source: str,
    ) -> None:
        self._report: LossReport | None = report
        self._epoch_ms = epoch_ms
        self._session_id = session_id
        self._stream_id = stream_id
        self._channel = channel
        self._source = source
        self._entry: ReportEntry | None = None

    def on_loss(self, bytes_lost: int) -> None:
        """Record a loss, unless the report had no room for the first one."""
        if self._entry is not None:
            self._entry.record_observation(bytes_lost, self._epoch_ms())
        elif self._report is not None:
            self._entry = self._report.create_entry(
                bytes_lost=bytes_lost,
                now_ms=self._epoch_ms(),
                session_id=self._session_id,
                stream_id=self._stream_id,
                channel=self._channel,
                source=self._source,
            )
            # As in Aeron, an image whose entry does not fit does not try again.
            self._report = None


def log_spec(
    setup: Setup,
    params: SubscriptionParams,
    *,
    correlation_id: int,
    receiver_window_length: int,
    is_group: bool,
) -> LogSpec:
    """Return the log settings of an image, from its SETUP and its oldest subscription."""
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


class Images:
    """Every image of one driver.

    `links` are all subscriptions, and `stream_links` those to one stream, oldest first.
    `on_endpoint_released` is called when an image no longer uses its endpoint.
    """

    def __init__(
        self,
        resources: DriverResources,
        receiver: Receiver,
        readers: Subscribers,
        links: Mapping[int, SubscriptionLink],
        stream_links: Mapping[int, Mapping[int, SubscriptionLink]],
        on_endpoint_released: Callable[[ReceiveChannelEndpoint], None],
    ) -> None:
        self._resources = resources
        self._receiver = receiver
        self._readers = readers
        self._links = links
        self._stream_links = stream_links
        self._on_endpoint_released = on_endpoint_released
        self._images: dict[PublicationImage, ReceiveChannelEndpoint] = {}
        # Called with each image that is removed, once statistics are taken.
        self.on_removed: Callable[[PublicationImage], object] | None = None
        # The same by stream: there may be thousands, and most streams have one.
        self._stream_images: dict[int, dict[PublicationImage, ReceiveChannelEndpoint]] = {}
        self._refusal_frames = RefusalFrames(resources)
        # The streams that were refused lately.
        self.refusals: Refusals = Refusals()
        self._budget = ImageBudget(resources.context)
        self._factory = ImageFactory(resources, readers)
        self._planned: dict[tuple[ReceiveChannelEndpoint, int, int], ImagePlan] = {}
        self._tasks = TaskOwner()

    def __iter__(self) -> Iterator[PublicationImage]:
        return iter(tuple(self._images))

    @property
    def endpoints(self) -> Mapping[PublicationImage, ReceiveChannelEndpoint]:
        """Return each image with the endpoint that receives it."""
        return self._images

    @property
    def log_length(self) -> int:
        """Return the length of the logs of all images, in bytes."""
        return self._budget.log_length

    def are_at(self, endpoint: ReceiveChannelEndpoint) -> bool:
        """Return whether any image receives at an endpoint."""
        return any(each is endpoint for each in self._images.values())

    # Events from the dispatcher and the receiver.

    def on_create_image(
        self,
        endpoint: ReceiveChannelEndpoint,
        setup: Setup,
        source: Address,
        destination: ReceiveDestination,
    ) -> None:
        """Make the image of a new stream, if the SETUP does not exceed a limit."""
        # First the checks without subscriptions: those may be many, and SETUPs come in floods.
        if (endpoint, setup.stream_id, setup.session_id) in self._planned:
            return
        image_count = endpoint.dispatcher.image_count(setup.stream_id) + sum(
            stream[:2] == (endpoint, setup.stream_id) for stream in self._planned
        )
        refusal = self._budget.refusal(setup, image_count=image_count)
        if refusal is not None:
            self._refuse(refusal, endpoint, setup, source, destination)
            return
        links = self._wanting(endpoint, setup.stream_id, setup.session_id)
        params, granted_length = links[0].params, endpoint.granted_rcvbuf_length
        window_length = params.receiver_window_length
        if params.is_window_auto and granted_length:
            window_length = min(window_length, granted_length)
        refusal = window_refusal(setup, window_length)
        if refusal is not None:
            self._refuse(refusal, endpoint, setup, source, destination)
            return
        storage, origin = self._resources.storage, (endpoint, setup, source, destination, links[0])
        plan = self._attempt(partial(self._factory.plan, *origin), *origin)
        if plan is None:
            return
        if storage.takes_long(plan.spec):
            # Until the log is there, the source repeats its SETUP, and gets no window.
            self._planned[plan.stream] = plan
            self._budget.take(setup.term_length)
            self._tasks.start(self._make_later(plan), "aeron-image-log")
            return
        log = self._attempt(partial(create_log_now, storage, plan.spec), *origin)
        if log is not None:
            self._make(plan, log)

    async def _make_later(self, plan: ImagePlan) -> None:
        """Make an image when its log has been created, unless no subscription wants it by then."""
        try:
            log = await create_log(self._resources.storage, plan.spec)
        except Exception as error:  # noqa: BLE001 - the system may give no thread; the SETUP comes again
            self._refuse(Refusal(str(error)), *plan.origin[:4])
            return
        finally:
            del self._planned[plan.stream]
            self._budget.give_back(plan.setup.term_length)
        if plan.link in self._wanting(*plan.stream):
            self._make(plan, log)
        else:
            # If another subscription wants the stream, the next SETUP leads to its image.
            log.close()

    def _attempt(
        self,
        make: Callable[[], T],
        endpoint: ReceiveChannelEndpoint,
        setup: Setup,
        source: Address,
        destination: ReceiveDestination,
        link: SubscriptionLink,
    ) -> T | None:
        """Return what `make` returns, or refuse the stream and return None."""
        try:
            return make()
        except AeronError as error:
            self._refuse(Refusal(str(error)), endpoint, setup, source, destination)
        except Exception as error:  # noqa: BLE001 - it is logged; a strategy must not end the driver
            reason = f"congestion control of {link.uri} failed: {error!r}"
            self._refuse(Refusal(reason), endpoint, setup, source, destination)
        return None

    def _make(self, plan: ImagePlan, log: LogBuffers) -> None:
        """Make an image, and join the subscriptions that want it."""
        endpoint = plan.endpoint
        image = self._attempt(partial(self._factory.make, plan, log), *plan.origin)
        if image is None:
            return
        image.is_following = plan.link.is_following
        images = self._stream_images.setdefault(image.stream_id, {})
        for older, its_endpoint in images.items():
            if its_endpoint is endpoint and older.session_id == image.session_id:
                older.disable_status_messages()
        self._images[image] = images[image] = endpoint
        self._budget.take(plan.setup.term_length)
        self.refusals.forget(
            receiver_id=endpoint.receiver_id,
            stream_id=image.stream_id,
            session_id=image.session_id,
        )
        endpoint.dispatcher.add_image(image)
        for link in self._wanting(endpoint, image.stream_id, image.session_id):
            try:
                self._join(image, link)
            except RegistrationError as error:
                self._refuse(Refusal(str(error)), *plan.origin[:4])
        self._receiver.on_activity(image)

    def _wanting(
        self, endpoint: ReceiveChannelEndpoint, stream_id: int, session_id: int
    ) -> list[SubscriptionLink]:
        """Return the subscriptions to a session of a stream, oldest first."""
        return [
            link
            for link in self._stream_links.get(stream_id, {}).values()
            if link.matches(endpoint, stream_id, session_id)
        ]

    def _refuse(
        self,
        refusal: Refusal,
        endpoint: ReceiveChannelEndpoint,
        setup: Setup,
        source: Address,
        destination: ReceiveDestination,
    ) -> None:
        now_ns, receiver_id = self._resources.clock.now_ns(), endpoint.receiver_id
        self.refusals.note(refusal, setup, source, now_ns, receiver_id=receiver_id)
        self._refusal_frames.refuse(refusal, setup, source, destination, receiver_id)

    def on_image_drained(self, image: PublicationImage) -> None:
        """Remove a drained image from its dispatcher and from its readers."""
        endpoint = self._images[image]
        endpoint.dispatcher.remove_image(image)
        if any(
            link.params.is_rejoin
            for link in self._wanting(endpoint, image.stream_id, image.session_id)
        ):
            endpoint.dispatcher.remove_cool_down(image)
        for subscriber in list(image.subscribers):
            link = self._links[subscriber.subscription_id]
            if link.session_id == image.session_id and link.unanswered_ns is None:
                # Recorded now: the image will be gone when the responses are next checked.
                link.unanswered_ns = image.life.ended_ns
            self._readers.part(image, link)
            self._readers.on_unavailable_image(image, subscriber)

    def on_image_resumed(self, image: PublicationImage) -> None:
        """Join subscriptions that were added while the stream seemed to be over."""
        endpoint = self._images[image]
        for link in self._wanting(endpoint, image.stream_id, image.session_id):
            if not image.subscribers.has(link.registration_id):
                try:
                    self._join(image, link)
                except RegistrationError as error:
                    # No counter is left. The others have their image, and the receiver goes on.
                    self._resources.system_counters.note_error(
                        error.code,
                        f"subscription {link.registration_id} has no image of stream "
                        f"{image.stream_id} session {image.session_id}, which goes on: {error}",
                    )

    def on_image_done(self, image: PublicationImage) -> None:
        """Free what an image used."""
        endpoint = self._images.pop(image)
        if self.on_removed is not None:
            self.on_removed(image)
        images = self._stream_images[image.stream_id]
        del images[image]
        if not images:
            del self._stream_images[image.stream_id]
        endpoint.dispatcher.remove_image(image)
        self._budget.give_back(image.log.term_length)
        image.counters.close()
        image.log.close()
        self._on_endpoint_released(endpoint)

    def on_destination_added(
        self, endpoint: ReceiveChannelEndpoint, destination: ReceiveDestination
    ) -> None:
        """Let the images of an endpoint await a source at a new destination."""
        for image, its_endpoint in self._images.items():
            if its_endpoint is endpoint:
                image.connections.expect(destination)

    def on_destination_removed(
        self, endpoint: ReceiveChannelEndpoint, destination: ReceiveDestination
    ) -> None:
        """Remove a destination from the images of an endpoint."""
        for image, its_endpoint in self._images.items():
            if its_endpoint is endpoint:
                image.remove_destination(destination)
                self._receiver.on_activity(image)

    # Events from subscriptions.

    def reject(self, image_id: int, reason: str) -> None:
        """Reject an image: it takes no more data, and its sources get the reason.

        Raises:
            RegistrationError: No image has this id.
        """
        image = self.find(image_id)
        if image is None:
            message = f"there is no image {image_id}: it has ended, or a spy reads it"
            raise RegistrationError(message, code=ErrorCode.GENERIC)
        self._resources.system_counters[SystemCounterId.IMAGES_REJECTED].increment()
        image.reject(reason)
        self._receiver.on_activity(image)

    def supersede(self, image: PublicationImage) -> None:
        """Drain an image, since another response stream replaces it."""
        image.supersede(self._resources.clock.now_ns())
        self._receiver.on_activity_if_known(image)

    def find(self, image_id: int) -> PublicationImage | None:
        """Return the image with that id, if there is one."""
        return next((each for each in self._images if each.registration_id == image_id), None)

    def join_existing(self, link: SubscriptionLink) -> None:
        """Join a new subscription to the images it wants that can still be read."""
        for image, endpoint in self._stream_images.get(link.stream_id, {}).items():
            is_wanted = link.matches(endpoint, image.stream_id, image.session_id)
            if is_wanted and image.is_accepting_subscriptions:
                self._join(image, link)

    def leave(self, link: SubscriptionLink) -> None:
        """Remove a subscription from every image it has joined."""
        for image in list(self._stream_images.get(link.stream_id, ())):
            if self._readers.part(image, link) is not None:
                self._receiver.on_activity(image)

    def send_eos_status_messages(self) -> None:
        """Let every image without readers send its goodbye now."""
        now_ns = self._resources.clock.now_ns()
        for image in list(self._images):
            self._receiver.poll(image, now_ns)

    def close(self) -> None:
        """Free every image at once."""
        self._tasks.cancel()
        for image in list(self._images):
            for subscriber in image.subscribers:
                subscriber.position.close()
            image.subscribers.clear()
            self._receiver.remove(image)
            image.counters.close()
            image.log.close()
        self._images.clear()
        self._stream_images.clear()

    async def wait_closed(self) -> None:
        """Wait until no image is being made; called after `close`."""
        await self._tasks.wait()

    def _join(self, image: PublicationImage, link: SubscriptionLink) -> None:
        self._readers.join(image, link, link.params, channel=link.channel)
