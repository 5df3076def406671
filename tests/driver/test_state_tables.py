"""The state tables: every state, every event; what the table lacks is refused."""

from __future__ import annotations

import itertools

import pytest

from aeron_async.driver.core import image_state, publication_state
from aeron_async.driver.core.image_state import ImageEvent, ImageState
from aeron_async.driver.core.publication_state import PublicationEvent, PublicationState

PUBLICATION = {
    (PublicationState.ACTIVE, PublicationEvent.RELEASED): PublicationState.DRAINING,
    (PublicationState.ACTIVE, PublicationEvent.REVOKED): PublicationState.LINGER,
    (PublicationState.DRAINING, PublicationEvent.DRAINED): PublicationState.LINGER,
    (PublicationState.LINGER, PublicationEvent.LINGERED): PublicationState.DONE,
}
IMAGE = {
    (ImageState.ACTIVE, ImageEvent.ABANDONED): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageEvent.SOURCE_SILENT): ImageState.DRAINING,
    (ImageState.ACTIVE, ImageEvent.STREAM_ENDED): ImageState.DRAINING,
    (ImageState.DRAINING, ImageEvent.DRAINED): ImageState.LINGER,
    (ImageState.LINGER, ImageEvent.LINGERED): ImageState.DONE,
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


def test_every_state_but_the_last_can_be_left_and_the_last_cannot() -> None:
    assert {state for state, _ in publication_state.TRANSITIONS} == (
        set(PublicationState) - {PublicationState.DONE}
    )
    assert {state for state, _ in image_state.TRANSITIONS} == set(ImageState) - {ImageState.DONE}
