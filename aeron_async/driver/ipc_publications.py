"""IPC publications of one driver: add, share, answer, reject, release.

Source: Aeron `DriverConductor.addIpcPublication` and its neighbours.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.driver.commands import PublicationErrorFrame, PublicationReady
from aeron_async.driver.core.ipc_publication import IpcPublication
from aeron_async.driver.core.publication import PublicationState
from aeron_async.driver.core.shared_logs import CheckedIpcPublication
from aeron_async.driver.core.stream_counters import IpcPublicationCounters
from aeron_async.driver.core.stream_params import (
    PublicationParams,
    check_can_share,
    chosen_session_id,
)
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.log_creation import (
    create_log,
    publication_log_spec,
    with_channel_settings,
    with_tagged_session,
)
from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.protocol.channel_uri import PROTOTYPE_CORRELATION_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.commands import PublicationListener
    from aeron_async.driver.core.stream_params import SessionIds
    from aeron_async.driver.publication_table import PublicationTable
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.sender import Sender
    from aeron_async.driver.subscriptions import Subscriptions
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["IpcPublications"]

IN_USE: Final = frozenset({PublicationState.ACTIVE, PublicationState.DRAINING})
"""States in which no other publication may use the session id."""
NO_RECEIVER_ID: Final = -1
"""The receiver id in a rejection by a subscription of the same driver, as in Aeron."""


class IpcPublications:
    """Every IPC publication of one driver.

    Args:
        resources: What the driver's parts share.
        sender: Polls the publications.
        links: Records which client holds which publication.
        subscriptions: The subscriptions that read them.
        session_ids: The source of session ids that no channel gives.
        on_done: Called after a publication was freed.
    """

    def __init__(
        self,
        resources: DriverResources,
        sender: Sender,
        table: PublicationTable,
        subscriptions: Subscriptions,
        session_ids: SessionIds,
        on_done: Callable[[], None],
    ) -> None:
        self._resources = resources
        self._sender = sender
        self._table = table
        self._subscriptions = subscriptions
        self._session_ids = session_ids
        self._on_done = on_done

    async def add(
        self,
        asked: ChannelUri,
        *,
        registration_id: int,
        stream_id: int,
        is_exclusive: bool,
        client_id: int,
        listener: PublicationListener,
    ) -> PublicationReady:
        """Add a publication, or share an existing one.

        Raises:
            RegistrationError: The session is taken, a tag or correlation id names nothing that
                fits, or there is no memory or counter left.
            ConfigurationError: The channel contradicts the publication it would share.
        """
        uri = with_tagged_session(asked, (*self._table.ipc, *self._table.network))
        params = PublicationParams.of(uri, self._resources.context, is_exclusive=is_exclusive)
        params, request = self._as_response(params)
        publication = None if is_exclusive else self._find_shared(stream_id, params)
        if publication is None:
            publication = await self._make(
                uri,
                params,
                registration_id=registration_id,
                stream_id=stream_id,
                client_id=client_id,
            )
            self._table.add(publication, None)
            if request is not None:
                self._subscriptions.local.on_response_setup(request, publication.session_id)
            self._subscriptions.local.on_accepting_subscriptions(publication)
            self._sender.on_activity(publication)
        else:
            check_can_share(
                uri, publication.params, session_id=publication.session_id, start=publication.start
            )
        self._table.hold(publication, registration_id, client_id=client_id, listener=listener)
        return self._ready(registration_id, asked, publication)

    def reject(self, image_id: int, reason: str) -> bool:
        """Remove all readers of a publication for a while; return False if there is none.

        Args:
            image_id: The id of its images, which is that of the publication.
            reason: The reason given to its publishers.
        """
        publication = self._find(image_id)
        if publication is None:
            return False
        self._resources.system_counters[SystemCounterId.IMAGES_REJECTED].increment()
        publication.reject(reason, self._resources.clock.now_ns())
        self._sender.on_activity(publication)
        return True

    def on_publication_done(self, publication: IpcPublication) -> None:
        """Free what a publication used; called by the sender."""
        self._table.remove(publication)
        self._subscriptions.local.on_publication_done(publication)
        publication.counters.close()
        publication.log.close()
        self._on_done()

    def close(self) -> None:
        """Free everything at once, consumed or not."""
        for publication in self._table.ipc:
            self._sender.remove(publication)
            self.on_publication_done(publication)

    # Events from the cores.

    def on_image_rejected(self, publication: IpcPublication, reason: str) -> None:
        """Notify every client that holds the publication."""
        self._table.on_publication_error(
            publication,
            PublicationErrorFrame(
                code=ErrorCode.IMAGE_REJECTED,
                message=reason,
                session_id=publication.session_id,
                stream_id=publication.stream_id,
                receiver_id=NO_RECEIVER_ID,
                group_tag=None,
                source_address=None,
                registration_id=publication.registration_id,
                destination_registration_id=None,
            ),
        )

    def on_accepting_subscriptions(self, publication: IpcPublication) -> None:
        """Join all matching subscriptions to the publication again."""
        self._subscriptions.local.on_accepting_subscriptions(publication)

    # Look-up and creation.

    def _find(self, registration_id: int) -> IpcPublication | None:
        found = (each for each in self._table.ipc if each.registration_id == registration_id)
        return next(found, None)

    def _find_shared(self, stream_id: int, params: PublicationParams) -> IpcPublication | None:
        for publication in self._table.ipc:
            theirs = publication.params
            if (
                publication.stream_id == stream_id
                and not theirs.is_exclusive
                and publication.state is PublicationState.ACTIVE
                and theirs.response_correlation_id == params.response_correlation_id
            ):
                return publication
        return None

    def _as_response(self, params: PublicationParams) -> tuple[PublicationParams, int | None]:
        """Return the parameters of a request or response, and the subscription that it answers.

        Raises:
            RegistrationError: INVALID_CHANNEL; the id matches nothing.

        Source: Aeron `DriverConductor.findAndUpdateResponseIpcSubscription`.
        """
        correlation_id = params.response_correlation_id
        is_prototype = params.is_response and correlation_id == PROTOTYPE_CORRELATION_ID
        if is_prototype or not (params.is_response or params.is_response_requested):
            return params, None
        assert correlation_id is not None, "no channel for responses is read without one"
        # In Aeron anything that names a request is its response, whatever the channel says.
        requests = self._find(correlation_id)
        if requests is not None and requests.params.is_response_requested:
            subscription_id = requests.params.response_correlation_id
            return attrs.evolve(params, is_response=True), subscription_id
        if not params.is_response and self._subscriptions.is_for_local_responses(correlation_id):
            return params, None
        # Differs: Aeron makes the publication nevertheless, and no request is ever answered.
        wanted = (
            "the correlation_id of an image whose aeron:ipc publication has a "
            "response-correlation-id of its own"
            if params.is_response
            else "the registration_id of a subscription to aeron:ipc?control-mode=response"
        )
        message = (
            f"response-correlation-id={correlation_id} matches nothing on aeron:ipc: give {wanted}"
        )
        raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)

    async def _make(
        self,
        uri: ChannelUri,
        params: PublicationParams,
        *,
        registration_id: int,
        stream_id: int,
        client_id: int,
    ) -> IpcPublication:
        resources = self._resources
        session_id = chosen_session_id(
            self._session_ids,
            params,
            lambda session_id: self._is_in_use(session_id, stream_id),
            resources.random_int32,
            where=f"stream {stream_id} on aeron:ipc",
        )
        spec = publication_log_spec(
            resources,
            uri,
            params,
            registration_id=registration_id,
            session_id=session_id,
            stream_id=stream_id,
        )
        log = await create_log(
            resources.storage, with_channel_settings(spec, uri, None, resources.context)
        )
        channel = str(uri)
        try:
            counters = IpcPublicationCounters.allocate(
                resources.counters_manager,
                registration_id=registration_id,
                session_id=session_id,
                stream_id=stream_id,
                channel=channel,
                client_id=client_id,
                is_exclusive=params.is_exclusive,
            )
        except BaseException:
            log.close()
            raise
        kind = CheckedIpcPublication if log.file else IpcPublication
        return kind(
            registration_id=registration_id,
            channel=channel,
            log=log,
            params=params,
            context=resources.context,
            counters=counters,
            system_counters=resources.system_counters,
            listener=self,
            readers=self._subscriptions.readers,
            now_ns=resources.clock.now_ns(),
        )

    def _is_in_use(self, session_id: int, stream_id: int) -> bool:
        return any(
            (each.session_id, each.stream_id) == (session_id, stream_id) and each.state in IN_USE
            for each in self._table.ipc
        )

    def _ready(
        self, registration_id: int, uri: ChannelUri, publication: IpcPublication
    ) -> PublicationReady:
        counters = publication.counters
        publication.wake_flag.callback = partial(self._sender.on_offer, publication)
        return PublicationReady(
            registration_id=registration_id,
            original_registration_id=publication.registration_id,
            uri=uri,
            session_id=publication.session_id,
            stream_id=publication.stream_id,
            log=publication.log,
            publisher_limit=counters.publisher_limit,
            # Published data has arrived already, so both positions are the same.
            sender_position=counters.publisher_position,
            channel_status=None,
            local_address="",
            is_exclusive=publication.params.is_exclusive,
            wake_flag=publication.wake_flag,
            slowest_receiver=lambda: None,
            seen=partial(self._subscriptions.sightings.of_ipc_publication, publication, uri),
        )
