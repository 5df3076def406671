"""The return of a client to the next driver of its Aeron directory, after it has lost one.

While it is away, a publication has a log of its own without a subscriber, so that an offer waits;
a subscription has no image; a counter has memory of its own. Each keeps its user's object, and
gets the streams of the next driver when it has been added there.

Invariant: an id that a driver has given is not used with another driver. While the client is away
its things have negative ids, which no driver gives.

Differs: official clients end with their driver; a program opens a new one, and adds all again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, TypeAlias, final

import attrs

from aeron_async.client.attached_streams import AttachedPublication, AttachedSubscription
from aeron_async.clock import NS_PER_SECOND
from aeron_async.counters import METADATA_LENGTH, VALUE_LENGTH, Counter, CountersReader
from aeron_async.driver.commands import AddedCounter, ImageEnd, ImageEndReason
from aeron_async.errors import (
    AeronError,
    ClosedError,
    DriverError,
    DriverTimeoutError,
    ErrorCode,
    RegistrationError,
)
from aeron_async.logbuffer.log_buffers import LogBuffers, LogSpec
from aeron_async.logbuffer.wake_flag import WakeFlag
from aeron_async.logs import get_logger
from aeron_async.protocol.channel_uri import PROTOTYPE_CORRELATION_ID
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.client.attached_driver import AttachedDriver
    from aeron_async.client.attached_streams import AttachedCounter, AttachedImage, AwayIds
    from aeron_async.client.attachment import Attachment
    from aeron_async.driver.commands import PublicationReady, SubscriptionReady

__all__ = ["Comeback", "ReconnectListener"]

SHORTEST_NAP_S: Final = 0.016
LONGEST_NAP_S: Final = 1.0
LONGEST_STAND_IN: Final = 128 << 20
"""A term of this length takes the longest message that there is."""

Thing: TypeAlias = "AttachedPublication | AttachedSubscription | AttachedCounter"

log: Final = get_logger(__name__)


class ReconnectListener(Protocol):
    """What a client implements to keep its things while it goes from driver to driver."""

    def on_publication_moved(
        self,
        registration_id: int,
        ready: PublicationReady,
        lost: Callable[[], Exception] | None = None,
    ) -> None:
        """A publication has another log and id; its waits end with `lost` if the driver is gone."""
        ...

    def on_subscription_moved(self, registration_id: int, ready: SubscriptionReady) -> None:
        """A subscription has another id."""
        ...

    def on_counter_moved(self, correlation_id: int, added: AddedCounter) -> None:
        """A counter has another word, and another id."""
        ...

    def on_not_added(
        self, registration_id: int, error: AeronError, destination: str | None = None
    ) -> None:
        """A thing could not be added again, and is closed; or only one of its destinations."""
        ...

    def on_reconnected(self, client_id: int, reason: str, away_ns: int) -> int:
        """Everything was added again, as far as possible; return how much was not."""
        ...

    def on_driver_closed(self, error: Exception | None) -> None:
        """The client ends with its driver."""
        ...


@final
class Comeback:
    """What an attached client does from the loss of a driver until all is added to the next one.

    Args:
        driver: The client's side of the driver.
        away_ids: Has the ids of what no driver has.

    Attributes:
        is_away: Whether the client has no driver, or has not added everything again.
        found: Set while a driver is attached to.
        reason: Why the last driver was lost.
    """

    def __init__(self, driver: AttachedDriver, away_ids: AwayIds) -> None:
        self._driver = driver
        self._away_ids = away_ids
        self._tasks = TaskOwner()
        self._nap_s = SHORTEST_NAP_S
        self._lost_ns = 0
        # Which things a driver that lives has once not answered for, by their order.
        self._late: set[int] = set()
        self.is_away: bool = False
        self.found: Final = asyncio.Event()
        self.reason: str = ""
        # Why the driver that is there cannot be attached to.
        self._refusal = ""

    @property
    def listener(self) -> ReconnectListener:
        """The client."""
        listener = self._driver.listener
        assert listener is not None, "only a client that has started loses its driver"
        return listener

    def error(self) -> DriverTimeoutError:
        """Return the error of a call that waited for a driver that has gone."""
        message = (
            f"the media driver at {self._driver.path} was lost: {self.reason}; the client "
            "reconnects: it looks for the next driver and adds everything again, so try again"
        )
        return DriverTimeoutError(message)

    # The loss.

    def begin(self, attached: Attachment, reason: str) -> None:
        """Leave a driver that was lost, and look for the next one."""
        self._away_ids.are_needed = True
        self.found.clear()
        self.reason = reason
        attached.proxy.lose(self.error())
        for publication in list(self._driver.publications.values()):
            if publication.is_attached:
                self._put_publication_away(publication, attached)
        for subscription in list(self._driver.subscriptions.values()):
            self._put_subscription_away(subscription, attached)
        for counter in list(self._driver.own_counters.values()):
            if counter.is_attached:
                self._put_counter_away(counter)
        if self.is_away:
            # The task that adds everything to the driver gets the error, and begins again.
            return
        self.is_away = True
        self._lost_ns = self._driver.clock.now_ns()
        log.warning("driver_lost", directory=str(self._driver.path), reason=reason)
        self._tasks.start(self._run(), "aeron-reconnect")

    def on_alive(self) -> None:
        """Note that the driver has lived for a while: the next search begins with short naps."""
        if not self.is_away:
            self._nap_s = SHORTEST_NAP_S

    def close(self) -> None:
        """End the search, if there is one."""
        self._tasks.cancel()
        self.is_away = False
        self.found.set()

    async def wait_closed(self) -> None:
        """Wait until the search has ended; called after `close`."""
        await self._tasks.wait()

    async def wait_found(self) -> None:
        """Wait until there is a driver, for as long as the driver timeout.

        Raises:
            DriverTimeoutError: There is none.
        """
        timeout_ms = self._driver.context.driver_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                await self.found.wait()
        except TimeoutError:
            message = (
                f"no media driver at {self._driver.path} within {timeout_ms} ms, which is "
                f"driver_timeout_ms; the last one was lost: {self.reason}; the client goes on "
                f"looking: {self._refusal or 'start a driver there'}"
            )
            raise DriverTimeoutError(message) from None

    def _put_publication_away(self, publication: AttachedPublication, attached: Attachment) -> None:
        publications, before = self._driver.publications, publication.ready
        put_destinations_away(publication)
        publication.close()
        publication.ready = stand_in(before, self._away_ids.next(), self._raise_lost)
        publications[publication.ready.registration_id] = publications.pop(before.registration_id)
        self.listener.on_publication_moved(before.registration_id, publication.ready, self.error)
        attached.logs.release(before.log)

    def _put_subscription_away(
        self, subscription: AttachedSubscription, attached: Attachment
    ) -> None:
        ready, subscriptions = subscription.ready, self._driver.subscriptions
        if ready is None:
            # It is being added: its caller gets the error.
            self._driver.end_subscription(subscription, attached)
            return
        # Also those that came before the driver's answer was taken.
        for image_id, image in list(subscription.images.items()):
            subscription.listener.on_unavailable_image(image_id, end_of(image))
            image.close()
            attached.logs.release(image.log)
        subscription.images.clear()
        subscription.unopened.clear()
        if subscription.asked_id is not None:
            subscriptions.pop(subscription.asked_id, None)
            subscription.asked_id = None
        if not subscription.is_attached:
            return
        subscription.is_attached = False
        put_destinations_away(subscription)
        subscription.close_status()
        away_id, before_id = self._away_ids.next(), subscription.registration_id
        subscriptions[away_id] = subscriptions.pop(before_id)
        subscription.registration_id = away_id
        subscription.ready = attrs.evolve(
            ready, registration_id=away_id, channel_status=None, local_address=""
        )
        self.listener.on_subscription_moved(before_id, subscription.ready)

    def _put_counter_away(self, counter: AttachedCounter) -> None:
        before = counter.added
        assert before is not None, "an attached counter was added"
        local = local_counter()
        local.set(before.counter.get())
        before.counter.invalidate()
        counter.is_attached = False
        counter.added = attrs.evolve(before, correlation_id=self._away_ids.next(), counter=local)
        counters = self._driver.own_counters
        counters[counter.added.correlation_id] = counters.pop(before.correlation_id)
        self.listener.on_counter_moved(before.correlation_id, counter.added)

    def _raise_lost(self) -> NoReturn:
        raise self.error()

    # The return.

    async def _run(self) -> None:
        try:
            while not await self._try():
                await asyncio.sleep(self._nap_s)
                self._nap_s = min(2 * self._nap_s, LONGEST_NAP_S)
        except Exception as error:
            # Nothing of this is expected; a client that waits for ever would be worse.
            self._driver.end(DriverError(f"the client could not reconnect: {error!r}"))
            raise
        self.is_away = False
        self._late.clear()
        away_ns = self._driver.clock.now_ns() - self._lost_ns
        client_id = self._driver.client_id
        not_added_count = self.listener.on_reconnected(client_id, self.reason, away_ns)
        log.warning(
            "driver_found",
            directory=str(self._driver.path),
            seconds=round(away_ns / NS_PER_SECOND, 3),
            client_id=client_id,
            not_added_count=not_added_count,
        )

    async def _try(self) -> bool:
        """Attach to a driver and add everything to it; return whether that was possible."""
        try:
            if self._driver.look_for_driver() is not None:
                return False
        except (AeronError, OSError) as error:
            # Such as a file of another version, which another driver may replace.
            if (refusal := str(error)) != self._refusal:
                self._refusal = refusal
                log.warning("driver_not_usable", directory=str(self._driver.path), error=refusal)
            return False
        self._refusal = ""
        self.found.set()
        try:
            await self._driver.add_bell()
            while things := self._to_add():
                await self._add_again(things[0])
        except (ClosedError, DriverTimeoutError) as error:
            self._driver.lose(str(error))
            return False
        return True

    def _to_add(self) -> list[Thing]:
        """Return what is not added yet, in the order in which it was added at first."""
        driver = self._driver
        things: list[Thing] = [
            *driver.publications.values(),
            *(each for each in driver.subscriptions.values() if each.ready is not None),
            *driver.own_counters.values(),
        ]
        away = (each for each in things if not each.is_attached)
        return sorted(away, key=lambda each: each.order)

    async def _add_again(self, thing: Thing) -> None:
        """Add one thing to the driver; if the driver refuses it, close it.

        Raises:
            DriverTimeoutError: The driver is lost, or does not answer.
            ClosedError: The client is closed.
        """
        try:
            if isinstance(thing, AttachedPublication):
                await self._add_publication(thing)
            elif isinstance(thing, AttachedSubscription):
                await self._add_subscription(thing)
            else:
                await self._add_counter(thing)
        except AeronError as error:
            if self._is_over(error, thing):
                raise
            self._give_up(thing, error)
            return
        if isinstance(thing, AttachedPublication | AttachedSubscription):
            await self._add_destinations(thing)

    def _is_over(self, error: AeronError, thing: Thing) -> bool:
        """Return whether an error is the end of the driver, and no refusal of one thing.

        A driver that lives, and twice does not answer for one thing, refuses that: it must not keep
        all others away.
        """
        if not isinstance(error, ClosedError | DriverTimeoutError):
            return False
        if self._driver.is_attached and thing.order in self._late:
            return False
        if self._driver.is_attached:
            self._late.add(thing.order)
        return True

    async def _add_publication(self, publication: AttachedPublication) -> None:
        away = publication.ready
        self._check_response(publication)
        await self._driver.open_publication(publication)
        publications = self._driver.publications
        if publications.get(away.registration_id) is not publication:
            # It was closed in the meantime.
            publications[publication.ready.registration_id] = publication
            self._driver.remove_publication(publication.ready.registration_id)
            return
        del publications[away.registration_id]
        publications[publication.ready.registration_id] = publication
        self.listener.on_publication_moved(away.registration_id, publication.ready)
        away.log.close()

    def _check_response(self, publication: AttachedPublication) -> None:
        """Refuse a publication whose channel names what the lost driver had.

        The next driver may have given the id to a subscription or an image of another client.

        Raises:
            RegistrationError: It names an image, or a subscription that is not there any more.
        """
        named, answers = publication.uri.response_correlation_id, publication.answers
        if named is None or named == PROTOTYPE_CORRELATION_ID:
            return
        if answers is not None and answers.is_attached:
            return
        what = "an image of the lost media driver"
        if answers is not None:
            what = "a subscription for responses that is closed"
        message = (
            f"response-correlation-id={named} names {what}: add a publication with the id of one "
            "that the next driver has"
        )
        raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)

    async def _add_subscription(self, subscription: AttachedSubscription) -> None:
        away_id = subscription.registration_id
        ready = await self._driver.open_subscription(subscription)
        if ready is not None:
            del self._driver.subscriptions[away_id]
            self.listener.on_subscription_moved(away_id, ready)

    async def _add_counter(self, counter: AttachedCounter) -> None:
        away = counter.added
        assert away is not None, "it was added before"
        added = await self._driver.open_counter(counter)
        counters = self._driver.own_counters
        counters[added.correlation_id] = counter
        if counters.pop(away.correlation_id, None) is None:
            self._driver.remove_counter(added.correlation_id)
            return
        if not added.is_static:
            added.counter.set(away.counter.get())
        self.listener.on_counter_moved(away.correlation_id, added)

    async def _add_destinations(self, owner: AttachedPublication | AttachedSubscription) -> None:
        for key in list(owner.destinations):
            known = owner.destinations.get(key)
            # Another request for the same publication may have added it again.
            if not owner.is_attached or known is None or known.driver_id is not None:
                continue
            try:
                await self._driver.destinations.add_again(owner, key)
            except AeronError as error:
                if self._is_over(error, owner):
                    raise
                destination = owner.destinations.pop(key, None)
                if owner.is_attached and owner.ready is not None and destination is not None:
                    self.listener.on_not_added(
                        owner.ready.registration_id, error, str(destination.uri)
                    )

    def _give_up(self, thing: Thing, error: AeronError) -> None:
        """Close what the driver has refused, unless its user has closed it in the meantime."""
        driver = self._driver
        if isinstance(thing, AttachedPublication):
            away_id = thing.ready.registration_id
            is_open = driver.publications.pop(away_id, None) is not None
        elif isinstance(thing, AttachedSubscription):
            away_id = thing.registration_id
            is_open = driver.subscriptions.pop(away_id, None) is not None
        else:
            assert thing.added is not None, "it was added before"
            away_id = thing.added.correlation_id
            is_open = driver.own_counters.pop(away_id, None) is not None
        if is_open:
            self.listener.on_not_added(away_id, error)
            if isinstance(thing, AttachedPublication):
                thing.ready.log.close()


class LostPosition(Counter):
    """The position up to which a lost driver has sent: nobody knows it.

    Args:
        reader: Names the counter.
        raise_lost: Raises the error of a call that asks for it.
    """

    __slots__ = ("_raise_lost",)

    def __init__(self, reader: CountersReader, raise_lost: Callable[[], NoReturn]) -> None:
        local = Counter.mapped(reader, 0, reader.word(0))
        super().__init__(reader, local.id, local.cell)
        self._raise_lost = raise_lost

    def get(self) -> int:
        """Raise the error.

        Raises:
            DriverTimeoutError: Always.
        """
        self._raise_lost()


def put_destinations_away(owner: AttachedPublication | AttachedSubscription) -> None:
    """Note that no driver has the destinations."""
    for destination in owner.destinations.values():
        destination.driver_id = None


def local_reader() -> CountersReader:
    """Return one counter in memory of its own."""
    return CountersReader(bytearray(VALUE_LENGTH), bytearray(METADATA_LENGTH))


def local_counter() -> Counter:
    """Return a counter in memory of its own, with value 0."""
    reader = local_reader()
    return Counter.mapped(reader, 0, reader.word(0))


def stand_in(
    ready: PublicationReady, away_id: int, raise_lost: Callable[[], NoReturn]
) -> PublicationReady:
    """Return what a publication has while there is no driver: a log that takes no message.

    Args:
        ready: What it had.
        away_id: Its id in the meantime.
        raise_lost: Raises the error of a call that asks how much was sent.
    """
    before = ready.log
    spec = LogSpec(
        session_id=ready.session_id,
        stream_id=ready.stream_id,
        initial_term_id=before.initial_term_id,
        term_length=min(before.term_length, LONGEST_STAND_IN),
        mtu_length=before.mtu_length,
    )
    return attrs.evolve(
        ready,
        registration_id=away_id,
        original_registration_id=away_id,
        log=LogBuffers.create(spec),
        publisher_limit=local_counter(),
        sender_position=LostPosition(local_reader(), raise_lost),
        channel_status=None,
        local_address="",
        wake_flag=WakeFlag(),
    )


def end_of(image: AttachedImage) -> ImageEnd | None:
    """Return how an image ends with its driver; None if its stream had ended before."""
    position = image.position.get()
    if position >= image.log.metadata.end_of_stream_position:
        return None
    return ImageEnd.at(ImageEndReason.FAILED, position)
