"""Explanations why a publication or subscription waits, from the driver's present state.

Nothing is recorded for them: everything is looked up when a client asks, which is rare. For that,
this module alone reads private attributes of objects on the data path. It changes nothing.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from aeron_async.clock import NS_PER_SECOND
from aeron_async.driver.core.flow_control.base import format_receiver_id
from aeron_async.driver.core.flow_control.group import GroupFlowControl
from aeron_async.driver.core.session_states import SessionState
from aeron_async.driver.core.udp_channel import format_address
from aeron_async.logbuffer.position import partition_index
from aeron_async.protocol.channel_uri import ChannelUri, ControlMode, Media
from aeron_async.waits import (
    ClaimSeen,
    ImageSeen,
    PublicationSeen,
    ReceiverSeen,
    StreamSeen,
    SubscriptionSeen,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aeron_async.driver.core.ipc_publication import IpcPublication
    from aeron_async.driver.core.network_publication import NetworkPublication
    from aeron_async.driver.core.outbox import Address
    from aeron_async.driver.core.publication import SubscribablePublication
    from aeron_async.driver.core.receiver_liveness import ReceiverLiveness
    from aeron_async.driver.core.udp_channel import UdpChannel
    from aeron_async.driver.media.endpoint import ReceiveChannelEndpoint, SendChannelEndpoint
    from aeron_async.driver.publication_table import PublicationTable
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.subscribers import SubscriptionLink
    from aeron_async.driver.subscriptions import Subscriptions
    from aeron_async.protocol.address import Address as WrittenAddress

__all__ = ["Sightings"]

Entry = TypeVar("Entry")

MAX_SEEN: Final = 8
"""Most entries in each list."""
RECENT_NS: Final = 5 * NS_PER_SECOND
"""What was heard longer ago says little about now."""


class Sightings:
    """Looks up the state of the streams of one driver.

    Args:
        resources: What the driver's parts share.
        subscriptions: The subscriptions of the driver.
        publications: The publications of the driver.
    """

    def __init__(
        self,
        resources: DriverResources,
        subscriptions: Subscriptions,
        publications: PublicationTable,
    ) -> None:
        self._clock = resources.clock
        self._unblock_timeout_ns = resources.context.publication_unblock_timeout_ns
        self._subscriptions = subscriptions
        self._publications = publications

    # Publications.

    def of_network_publication(
        self, publication: NetworkPublication, endpoint: SendChannelEndpoint
    ) -> PublicationSeen:
        """Return the state of a network publication."""
        now_ns = self._clock.now_ns()
        sender, receivers = publication._sender, publication._receivers  # noqa: SLF001 - see above
        flow_control, spies = publication.flow_control, publication.subscribers
        is_group = isinstance(flow_control, GroupFlowControl)
        tracker = endpoint.destinations
        destinations = () if tracker is None else tracker.destinations
        addresses = (
            [endpoint.remote] if tracker is None else [each.address for each in destinations]
        )
        gone, slowest = receivers.last_gone, flow_control.slowest_receiver()
        refusals = self._subscriptions.images.refusals.of(
            endpoint.data.bound_address,
            now_ns - RECENT_NS,
            stream_id=publication.stream_id,
            session_id=publication.session_id,
        )
        return PublicationSeen(
            setup_count=sender.setup_count,
            setups_for_ns=now_ns - sender.first_setup_ns if sender.setup_count else 0,
            is_answered=publication._has_initial_connection,  # noqa: SLF001 - see above
            sent_to=first(format_address(each) for each in addresses if each is not None),
            interfaces=interfaces((endpoint.channel,)),
            has_destinations=tracker is not None,
            is_manual=tracker is not None and tracker.is_manual,
            destination_count=len(destinations),
            unresolved=first(
                str(each.uri) for each in destinations if each.address is None and each.uri
            ),
            receivers=first(
                seen_receiver(*each, now_ns, receivers.source_of(each[0]))
                for each in receivers.heard()
            ),
            receiver_count=len(receivers),
            last_gone=None if gone is None else seen_receiver(*gone, now_ns),
            group_size=flow_control.receiver_count(),
            group_min_size=flow_control._group_min_size if is_group else 0,  # type: ignore[attr-defined]  # noqa: SLF001 - see above
            slowest_receiver=slowest,
            slowest_address=address_of(slowest, receivers),
            claim=self._claim(publication, publication.sender_position),
            sender_position=publication.sender_position,
            sender_limit=publication.sender_limit,
            reader_count=len(spies),
            reader_lag=lag(publication),
            do_spies_connect=publication.params.spies_simulate_connection,
            nearly=likeliest(self._nearly_subscribed(publication, endpoint.channel.uri)),
            refusal=refusals[-1] if refusals else None,
        )

    def of_ipc_publication(self, publication: IpcPublication, uri: ChannelUri) -> PublicationSeen:
        """Return the state of an IPC publication."""
        return PublicationSeen(
            is_ipc=True,
            claim=self._claim(publication, min(publication.subscribers.consumed(), default=0)),
            sender_position=publication.counters.publisher_position.get(),
            sender_limit=publication.publisher_limit,
            reader_count=len(publication.subscribers),
            reader_lag=lag(publication),
            nearly=likeliest(self._nearly_subscribed(publication, uri)),
        )

    def _claim(self, publication: SubscribablePublication, position: int) -> ClaimSeen | None:
        """Return the claim at a position, if there is one that is not committed.

        Args:
            publication: The publication.
            position: Up to where all was sent, or read.
        """
        log = publication.log
        words = log.term_words[partition_index(position, bits=log.position_bits)]
        offset = position & (log.term_length - 1)
        if position >= publication.producer_position or words[offset >> 2] > 0:
            return None
        now_ns = self._clock.now_ns()
        unblocks_ns = publication._blocked_check.unblocks_ns(position, now_ns)  # noqa: SLF001 - see above
        return ClaimSeen(
            position=position,
            unblocks_in_ns=None if publication.params.is_exclusive else unblocks_ns - now_ns,
            timeout_ns=self._unblock_timeout_ns,
        )

    def _nearly_subscribed(
        self, publication: SubscribablePublication, uri: ChannelUri
    ) -> Iterator[StreamSeen]:
        """Yield the subscriptions of this driver that differ from a publication in one respect."""
        for link in self._subscriptions.links:
            if publication.subscribers.has(link.registration_id):
                continue
            difference = only_difference(
                is_same_address=are_alike(uri, link.uri),
                is_same_stream=link.stream_id == publication.stream_id,
                is_same_session=link.session_id in {None, publication.session_id},
            )
            if difference is not None:
                yield StreamSeen(
                    stream_id=link.stream_id,
                    session_id=link.session_id,
                    channel=str(link.uri),
                    differs_in=difference,
                )

    # Subscriptions.

    def of_subscription(self, link: SubscriptionLink) -> SubscriptionSeen:
        """Return the state of a subscription."""
        now_ns, endpoint = self._clock.now_ns(), link.endpoint
        nearly = likeliest(self._nearly_published(link))
        images, resting_count = self._images_of(link)
        if endpoint is None:
            return SubscriptionSeen(
                images=images,
                is_local=True,
                session_id=link.session_id,
                is_response_pending=self._subscriptions.local.is_response_pending(link),
                resting_count=resting_count,
                nearly=nearly,
            )
        dispatcher = endpoint.dispatcher
        states = dispatcher._states.of_stream(link.stream_id)  # noqa: SLF001 - see above
        strangers = dispatcher._states.strangers.heard_since(now_ns - RECENT_NS)  # noqa: SLF001 - see above
        wanted = dispatcher._streams  # noqa: SLF001 - see above
        return SubscriptionSeen(
            images=images,
            listening_at=first(each.local_address for each in endpoint.destinations),
            interfaces=interfaces(each.channel for each in endpoint.destinations),
            reports_to=first(control_addresses(endpoint, is_response=False)),
            answered_from=first(control_addresses(endpoint, is_response=True)),
            session_id=link.session_id,
            is_response_pending=link.is_response,
            asked_sessions=last(states, SessionState.PENDING_SETUP),
            other_sessions=last(states, SessionState.NO_INTEREST),
            cooling_sessions=last(states, SessionState.COOL_DOWN),
            other_streams=first(
                StreamSeen(
                    stream_id=stream_id, session_id=session_id, source=format_address(source)
                )
                for stream_id, session_id, source in strangers
                if stream_id not in wanted
            ),
            refusals=self._subscriptions.images.refusals.at(
                endpoint.receiver_id,
                now_ns - RECENT_NS,
                stream_id=link.stream_id,
                session_id=link.session_id,
            )[-MAX_SEEN:],
            resting_count=resting_count,
            nearly=nearly,
        )

    def _images_of(self, link: SubscriptionLink) -> tuple[tuple[ImageSeen, ...], int]:
        """Return the images that a subscription reads, and how many it was left behind by."""
        found: list[ImageSeen] = []
        resting_count = 0
        sources = (*self._subscriptions.images, *self._publications)
        for source in sources:
            for each in source.subscribers:
                if each.subscription_id != link.registration_id:
                    continue
                if not each.is_active:
                    resting_count += 1
                    continue
                address = getattr(source, "source", None)
                rebuilt = source.rebuild_position
                found.append(
                    ImageSeen(
                        session_id=source.session_id,
                        source="" if address is None else format_address(address),
                        unread_length=max(0, rebuilt - each.position.get()),
                        missing_length=max(0, getattr(source, "hwm_position", 0) - rebuilt),
                    )
                )
        return tuple(found[:MAX_SEEN]), resting_count

    def _nearly_published(self, link: SubscriptionLink) -> Iterator[StreamSeen]:
        """Yield the publications of this driver that differ from a subscription in one respect."""
        for publication in self._publications:
            if publication.subscribers.has(link.registration_id):
                continue
            difference = only_difference(
                is_same_address=are_alike(ChannelUri.parse(publication.channel), link.uri),
                is_same_stream=publication.stream_id == link.stream_id,
                is_same_session=link.session_id in {None, publication.session_id},
            )
            if difference is not None:
                yield StreamSeen(
                    stream_id=publication.stream_id,
                    session_id=publication.session_id,
                    channel=publication.channel,
                    differs_in=difference,
                )


def first(found: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the first entries, as many as are shown."""
    return tuple(islice(found, MAX_SEEN))


DIFFERENCES: Final = ("session id", "stream id", "channel")
"""In what two streams differ that were meant to be one, the likeliest first."""


def likeliest(found: Iterable[StreamSeen]) -> tuple[StreamSeen, ...]:
    """Return the streams that are most likely meant, as many as are shown."""
    return first(sorted(found, key=lambda each: DIFFERENCES.index(each.differs_in)))


def only_difference(
    *, is_same_address: bool, is_same_stream: bool, is_same_session: bool
) -> str | None:
    """Return in what two streams differ; None if in nothing, or in channel and stream id."""
    if is_same_address and is_same_stream:
        return None if is_same_session else "session id"
    if is_same_address:
        return "stream id"
    return "channel" if is_same_stream else None


def last(states: Iterable[tuple[int, SessionState]], wanted: SessionState) -> tuple[int, ...]:
    """Return the sessions in a state, those heard last."""
    return tuple(session_id for session_id, state in states if state is wanted)[-MAX_SEEN:]


def seen_receiver(
    receiver_id: int, heard_ns: int, now_ns: int, source: Address | None = None
) -> ReceiverSeen:
    """Return a receiver in readable form."""
    return ReceiverSeen(
        receiver_id=format_receiver_id(receiver_id),
        silent_ns=now_ns - heard_ns,
        address="" if source is None else format_address(source),
    )


def address_of(receiver: str | None, receivers: ReceiverLiveness) -> str:
    """Return the address of the receiver that a strategy names; empty if unknown."""
    for receiver_id, _ in receivers.heard():
        source = receivers.source_of(receiver_id)
        if source is not None and format_receiver_id(receiver_id) == receiver:
            return format_address(source)
    return ""


def lag(publication: SubscribablePublication) -> int | None:
    """Return how many bytes the slowest reader in this driver has not read; None without one."""
    consumed = publication.subscribers.consumed()
    return publication.producer_position - min(consumed) if consumed else None


def interfaces(channels: Iterable[UdpChannel]) -> tuple[str, ...]:
    """Return the interfaces on which groups are joined, or sent to."""
    return first(
        f"{each.interface.name} {each.interface.address}".strip()
        for each in channels
        if each.is_multicast and each.interface is not None
    )


def control_addresses(endpoint: ReceiveChannelEndpoint, *, is_response: bool) -> Iterator[str]:
    """Yield the control addresses where receivers report, or from which servers respond."""
    for each in endpoint.destinations:
        channel = each.channel
        if channel.is_response is not is_response or not channel.has_explicit_control:
            continue
        if channel.remote_control is not None:
            yield format_address(channel.remote_control)


def are_alike(one: ChannelUri, other: ChannelUri) -> bool:
    """Return whether the texts of two channels name the same address."""
    if Media.IPC in {one.media, other.media}:
        return one.media is other.media
    return meeting_place(one) == meeting_place(other)


def meeting_place(uri: ChannelUri) -> WrittenAddress | None:
    """Return the address that publisher and subscriber must both name."""
    if uri.control_mode is ControlMode.DYNAMIC and uri.control:
        # The endpoint of such a channel differs for each subscriber.
        return uri.control
    return uri.endpoint or uri.control
