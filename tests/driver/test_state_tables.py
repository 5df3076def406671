"""The state tables: every state, every event; what the table lacks is refused."""

from __future__ import annotations

import itertools

import pytest

from aeron_async.driver.core import image_state, subscriber_position
from aeron_async.driver.core import publication as publication_state
from aeron_async.driver.core.image_state import ImageEvent, ImageState
from aeron_async.driver.core.publication import PublicationEvent, PublicationState
from aeron_async.driver.core.subscriber_position import TetherEvent, TetherState

PUBLICATION = {
    (PublicationState.ACTIVE, PublicationEvent.RELEASED): PublicationState.DRAINING,
    (PublicationState.ACTIVE, PublicationEvent.REVOKED): PublicationState.LINGER,
    (PublicationState.DRAINING, PublicationEvent.DRAINED): PublicationState.LINGER,
    (PublicationState.LINGER, PublicationEvent.LINGERED): PublicationState.DONE,
    (PublicationState.ACTIVE, PublicationEvent.FAILED): PublicationState.DONE,
    (PublicationState.DRAINING, PublicationEvent.FAILED): PublicationState.DONE,
    (PublicationState.LINGER, PublicationEvent.FAILED): PublicationState.DONE,
}
IMAGE = {
    (ImageState.ACTIVE, ImageEvent.ABANDONED): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageEvent.REVOKED): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageEvent.GAP_UNFILLED): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageEvent.CONTRADICTED): ImageState.DRAINING,
    (ImageState.DRAINING, ImageEvent.WENT_ON): ImageState.ACTIVE,
    (ImageState.ACTIVE, ImageEvent.SOURCE_SILENT): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageEvent.SUPERSEDED): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageEvent.STREAM_ENDED): ImageState.DRAINING,
    (ImageState.DRAINING, ImageEvent.DRAINED): ImageState.LINGER,
    (ImageState.DRAINING, ImageEvent.UNREAD): ImageState.LINGER,
    (ImageState.LINGER, ImageEvent.LINGERED): ImageState.DONE,
    (ImageState.ACTIVE, ImageEvent.FAILED): ImageState.DRAINING,
    (ImageState.DRAINING, ImageEvent.FAILED): ImageState.LINGER,
    (ImageState.LINGER, ImageEvent.FAILED): ImageState.DONE,
}
UNTETHERED = {
    (TetherState.ACTIVE, TetherEvent.LEFT_BEHIND): TetherState.LINGER,
    (TetherState.LINGER, TetherEvent.SET_ASIDE): TetherState.RESTING,
    (TetherState.LINGER, TetherEvent.GIVEN_UP): TetherState.CLOSED,
    (TetherState.RESTING, TetherEvent.REJOINED): TetherState.ACTIVE,
}


@pytest.mark.parametrize(
    ("state", "event"), list(itertools.product(PublicationState, PublicationEvent)), ids=str
)
def test_a_publication_goes_only_where_its_table_says(
    state: PublicationState, event: PublicationEvent
) -> None:
    if (state, event) in PUBLICATION:
        assert publication_state.next_state(state, event) is PUBLICATION[state, event]
    else:
        with pytest.raises(KeyError):
            publication_state.next_state(state, event)


@pytest.mark.parametrize(
    ("state", "event"), list(itertools.product(ImageState, ImageEvent)), ids=str
)
def test_an_image_goes_only_where_its_table_says(state: ImageState, event: ImageEvent) -> None:
    if (state, event) in IMAGE:
        assert image_state.next_state(state, event) is IMAGE[state, event]
    else:
        with pytest.raises(KeyError):
            image_state.next_state(state, event)


@pytest.mark.parametrize(
    ("state", "event"), list(itertools.product(TetherState, TetherEvent)), ids=str
)
def test_a_subscriber_goes_only_where_its_table_says(
    state: TetherState, event: TetherEvent
) -> None:
    if (state, event) in UNTETHERED:
        assert subscriber_position.next_state(state, event) is UNTETHERED[state, event]
    else:
        with pytest.raises(KeyError):
            subscriber_position.next_state(state, event)


def test_every_state_but_the_last_can_be_left_and_the_last_cannot() -> None:
    assert {state for state, _ in publication_state.TRANSITIONS} == (
        set(PublicationState) - {PublicationState.DONE}
    )
    assert {state for state, _ in image_state.TRANSITIONS} == set(ImageState) - {ImageState.DONE}
    assert {state for state, _ in subscriber_position.TRANSITIONS} == (
        set(TetherState) - {TetherState.CLOSED}
    )
