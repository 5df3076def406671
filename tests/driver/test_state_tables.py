"""The states of publications, images and subscribers: every state meets every event.

Each event is caused the way the driver causes it, and not by its name. What a state does not know
leaves the state as it is; where that would be a mistake of ours it is refused with a `KeyError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core import image_state, subscriber_position
from aeron_async.driver.core import publication as publication_state
from aeron_async.driver.core.image_state import (
    ImageEnd,
    ImageEndReason,
    ImageLife,
    ImageState,
    ImageStateEvent,
)
from aeron_async.driver.core.publication import PublicationEvent, PublicationState
from aeron_async.driver.core.subscriber_position import (
    SubscriberPosition,
    SubscriberPositions,
    TetherEvent,
    TetherState,
)
from aeron_async.protocol.header import StatusMessageFlags
from tests.driver.fakes import CONTEXT, SECOND, SOURCE, Counts
from tests.driver.rigs import PublicationRig
from tests.logbuffer.logs import make_log

if TYPE_CHECKING:
    from collections.abc import Callable

# A publication that has sent what its receiver had room for, and has more.


def release(rig: PublicationRig) -> None:
    rig.publication.release(0)


def revoke(rig: PublicationRig) -> None:
    rig.publication.revoke(0)


def open_window(rig: PublicationRig) -> None:
    """Let the receiver take all that is left."""
    rig.hear(rig.publication.sender_position, 0)
    rig.poll(0)
    rig.poll(0)


def pass_linger_timeout(rig: PublicationRig) -> None:
    """Let the linger timeout pass, and a receiver that still wants more be heard meanwhile."""
    rig.hear(0, CONTEXT.publication_linger_timeout_ns, receiver_window=0)
    rig.poll(CONTEXT.publication_linger_timeout_ns)


def hear_goodbye(rig: PublicationRig) -> None:
    """Let the receiver that has everything leave."""
    end = rig.publication.sender_position
    rig.hear(end, 0, receiver_window=0, flags=StatusMessageFlags.END_OF_STREAM)
    rig.poll(0)


def fail(rig: PublicationRig) -> None:
    rig.publication.fail(ValueError())


PUBLICATION_ROADS: dict[PublicationState, tuple[Callable[[PublicationRig], None], ...]] = {
    PublicationState.ACTIVE: (),
    PublicationState.DRAINING: (release,),
    PublicationState.LINGER: (release, open_window),
    PublicationState.DONE: (release, open_window, hear_goodbye),
}
"""What brings a publication into each state."""
PUBLICATION = {
    PublicationState.ACTIVE: {
        release: PublicationState.DRAINING,
        revoke: PublicationState.LINGER,
        fail: PublicationState.DONE,
    },
    PublicationState.DRAINING: {
        open_window: PublicationState.LINGER,
        # Nobody is left who could take the rest, or hear of the end.
        hear_goodbye: PublicationState.DONE,
        fail: PublicationState.DONE,
    },
    PublicationState.LINGER: {
        pass_linger_timeout: PublicationState.DONE,
        hear_goodbye: PublicationState.DONE,
        fail: PublicationState.DONE,
    },
    PublicationState.DONE: {},
}
PUBLICATION_INPUTS = (release, revoke, open_window, pass_linger_timeout, hear_goodbye, fail)


def publication_in(state: PublicationState) -> PublicationRig:
    rig = PublicationRig()
    rig.hear(0, 0, receiver_window=1_024)
    rig.poll(0)
    for _ in range(4):
        rig.offer(bytes(992))
    rig.poll(0)
    for step in PUBLICATION_ROADS[state]:
        step(rig)
    assert rig.state() is state
    return rig


def test_a_publication_goes_only_where_its_state_leads() -> None:
    with capture_logs() as lines:
        for state, leads in PUBLICATION.items():
            for event in PUBLICATION_INPUTS:
                rig = publication_in(state)
                if event is fail and state is PublicationState.DONE:
                    with pytest.raises(KeyError):
                        event(rig)
                else:
                    event(rig)
                assert rig.state() is leads.get(event, state), (state, event.__name__)
    changes = [each for each in lines if each["event"] == "publication_state_changed"]
    assert {(each["before"], each["after"]) for each in changes} == {
        (state.name, after.name) for (state, _), after in publication_state.TRANSITIONS.items()
    }


# The life of an image, asked as the image asks it.

SILENT_NS = CONTEXT.image_liveness_timeout_ns
UNFILLED = ImageEnd.at(ImageEndReason.GAP_UNFILLED, 0)
CONTRADICTED = ImageEnd.at(ImageEndReason.CONTRADICTED, 0)
OVER_RUN = ImageEnd.at(ImageEndReason.OVER_RUN, 0)


class Image:
    """The life of an image at a time, with all that its image says of itself."""

    def __init__(self) -> None:
        self.life = ImageLife(make_log(), SOURCE, CONTEXT, 0)
        self.now_ns = 0

    def end(
        self,
        *,
        silent_ns: int = 0,
        has_readers: bool = True,
        is_whole: bool = False,
        is_revoked: bool = False,
        broken: ImageEnd | None = None,
    ) -> None:
        self.life.end(
            self.now_ns,
            last_packet_ns=self.now_ns - silent_ns,
            has_readers=has_readers,
            is_whole=is_whole,
            is_revoked=is_revoked,
            broken=broken,
            position=0,
        )

    def leave(self, *, after_ns: int, has_readers: bool = True, is_drained: bool = True) -> None:
        self.now_ns += after_ns
        self.life.leave(
            self.now_ns,
            has_readers=has_readers,
            is_drained=lambda: is_drained,
            consumed=lambda: [0],
            heard_ns=0,
            position=0,
        )

    def stay_unread(self) -> None:
        """Let nobody read although another stream waits."""
        self.life.is_awaited = True
        self.leave(after_ns=SILENT_NS, is_drained=False)
        self.leave(after_ns=SILENT_NS, is_drained=False)


def end_stream(image: Image) -> None:
    image.end(is_whole=True)


def drain(image: Image) -> None:
    image.leave(after_ns=SECOND)


IMAGE_ROADS: dict[ImageState, tuple[Callable[[Image], None], ...]] = {
    ImageState.ACTIVE: (),
    ImageState.DRAINING: (end_stream,),
    ImageState.LINGER: (end_stream, drain),
    ImageState.DONE: (end_stream, drain, lambda image: image.leave(after_ns=SILENT_NS)),
}
IMAGE_INPUTS: dict[ImageStateEvent, Callable[[Image], object]] = {
    ImageStateEvent.STREAM_ENDED: end_stream,
    ImageStateEvent.REVOKED: lambda image: image.end(is_revoked=True),
    ImageStateEvent.SOURCE_SILENT: lambda image: image.end(silent_ns=SILENT_NS + 1),
    ImageStateEvent.ABANDONED: lambda image: image.end(has_readers=False),
    ImageStateEvent.SUPERSEDED: lambda image: image.life.supersede(image.now_ns, 0),
    ImageStateEvent.DRAINED: drain,
    ImageStateEvent.UNREAD: Image.stay_unread,
    ImageStateEvent.LINGERED: lambda image: image.leave(after_ns=0, has_readers=False),
    ImageStateEvent.GAP_UNFILLED: lambda image: image.end(broken=UNFILLED),
    ImageStateEvent.CONTRADICTED: lambda image: image.end(broken=CONTRADICTED),
    ImageStateEvent.OVER_RUN: lambda image: image.end(broken=OVER_RUN),
    ImageStateEvent.WENT_ON: lambda image: image.life.resume(image.now_ns, 0),
    ImageStateEvent.FAILED: lambda image: image.life.fail(image.now_ns, 0),
}
ENDS = {
    ImageStateEvent.STREAM_ENDED,
    ImageStateEvent.REVOKED,
    ImageStateEvent.SOURCE_SILENT,
    ImageStateEvent.ABANDONED,
    ImageStateEvent.GAP_UNFILLED,
    ImageStateEvent.CONTRADICTED,
    ImageStateEvent.OVER_RUN,
}
"""What an image asks its life only while it is active."""
IMAGE: dict[ImageState, dict[ImageStateEvent, ImageState]] = {
    ImageState.ACTIVE: {
        **dict.fromkeys(ENDS, ImageState.DRAINING),
        ImageStateEvent.SUPERSEDED: ImageState.DRAINING,
        ImageStateEvent.FAILED: ImageState.DRAINING,
    },
    ImageState.DRAINING: {
        ImageStateEvent.WENT_ON: ImageState.ACTIVE,
        ImageStateEvent.DRAINED: ImageState.LINGER,
        ImageStateEvent.UNREAD: ImageState.LINGER,
        ImageStateEvent.FAILED: ImageState.LINGER,
    },
    ImageState.LINGER: {
        ImageStateEvent.LINGERED: ImageState.DONE,
        # Its time is over as well.
        ImageStateEvent.UNREAD: ImageState.DONE,
        ImageStateEvent.FAILED: ImageState.DONE,
    },
    ImageState.DONE: {},
}


def image_in(state: ImageState) -> Image:
    image = Image()
    for step in IMAGE_ROADS[state]:
        step(image)
    assert image.life.state is state
    return image


def test_an_image_goes_only_where_its_state_leads() -> None:
    assert set(IMAGE_INPUTS) == set(ImageStateEvent)
    with capture_logs() as lines:
        for state, leads in IMAGE.items():
            for event, cause in IMAGE_INPUTS.items():
                image = image_in(state)
                is_mistake = event in ENDS or (event is ImageStateEvent.FAILED and not leads)
                if is_mistake and event not in leads:
                    with pytest.raises(KeyError):
                        cause(image)
                else:
                    cause(image)
                assert image.life.state is leads.get(event, state), (state, event)
    changes = [each for each in lines if each["event"] == "image_state_changed"]
    assert {(each["before"], each["event_name"], each["after"]) for each in changes} == {
        (state.name, event.name, after.name)
        for (state, event), after in image_state.TRANSITIONS.items()
    }


# An untethered subscriber among those of its stream.

TETHER_ROADS: dict[TetherState, tuple[TetherEvent, ...]] = {
    TetherState.ACTIVE: (),
    TetherState.LINGER: (TetherEvent.LEFT_BEHIND,),
    TetherState.RESTING: (TetherEvent.LEFT_BEHIND, TetherEvent.SET_ASIDE),
    TetherState.CLOSED: (TetherEvent.LEFT_BEHIND, TetherEvent.GIVEN_UP),
}
TETHER = {
    TetherState.ACTIVE: {TetherEvent.LEFT_BEHIND: TetherState.LINGER},
    TetherState.LINGER: {
        TetherEvent.SET_ASIDE: TetherState.RESTING,
        TetherEvent.GIVEN_UP: TetherState.CLOSED,
    },
    TetherState.RESTING: {TetherEvent.REJOINED: TetherState.ACTIVE},
    TetherState.CLOSED: {},
}


def test_a_subscriber_goes_only_where_its_state_leads_and_counts_while_it_is_there() -> None:
    for state, leads in TETHER.items():
        for event in TetherEvent:
            subscribers = SubscriberPositions()
            subscriber = SubscriberPosition(
                subscription_id=1, position=Counts().new(), on_progress=print, is_tether=False
            )
            subscribers.add(subscriber)
            for now_ns, step in enumerate(TETHER_ROADS[state]):
                subscribers.move(subscriber, step, now_ns)
            if event in leads:
                subscribers.move(subscriber, event, SECOND)
                assert subscriber.since_ns == (NEVER_NS if subscriber.is_active else SECOND)
            else:
                with pytest.raises(KeyError):
                    subscribers.move(subscriber, event, SECOND)
            after = leads.get(event, state)
            assert subscriber.state is after, (state, event)
            assert subscribers.has(1) == (after is not TetherState.CLOSED)
            assert bool(subscribers.active) == (after is TetherState.ACTIVE)
            assert subscribers.has_working == (after in {TetherState.ACTIVE, TetherState.LINGER})


def test_every_state_but_the_last_can_be_left_and_the_last_cannot() -> None:
    assert {state for state, _ in publication_state.TRANSITIONS} == (
        set(PublicationState) - {PublicationState.DONE}
    )
    assert {event for _, event in publication_state.TRANSITIONS} == set(PublicationEvent)
    assert {state for state, _ in image_state.TRANSITIONS} == set(ImageState) - {ImageState.DONE}
    assert {state for state, _ in subscriber_position.TRANSITIONS} == (
        set(TetherState) - {TetherState.CLOSED}
    )
