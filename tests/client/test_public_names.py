"""What completion shows of the public objects is what the reference page explains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.abc
import pytest

import aeron_async as aa

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE = Path(__file__).parents[2] / "docs/reference/api.md"
STREAM_ID = 1001
# A stream of anyio's has these; its own documentation explains them.
OF_ANYIO = {name for name in dir(anyio.abc.ObjectStream) if name[0] != "_"}


def explained(*classes: str) -> set[str]:
    """Return the members of some classes that the page has a row for."""
    rows = re.findall(r"^\| `(\w+)\.(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    return {member for name, member in rows if name in classes}


def shown(thing: object) -> set[str]:
    """Return what a user who looks at an object sees."""
    return {name for name in dir(thing) if name[0] != "_"}


def without(names: Iterable[str], others: set[str]) -> list[str]:
    return sorted(set(names) - others)


def test_the_package_shows_its_names_and_no_other() -> None:
    assert shown(aa) == set(aa.__all__)


@pytest.mark.parametrize(
    "classes",
    [("Aeron",), ("Publication",), ("ExclusivePublication", "Publication"), ("Subscription",)],
    ids=lambda classes: classes[0],
)
async def test_a_class_and_its_objects_show_what_is_explained(
    classes: tuple[str, ...], aeron: aa.Aeron, channel: str
) -> None:
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    things: dict[str, object] = {
        "Aeron": aeron,
        "Publication": await aeron.add_publication(channel, STREAM_ID),
        "ExclusivePublication": await aeron.add_exclusive_publication(channel, STREAM_ID),
        "Subscription": subscription,
    }
    known = explained(*classes) | OF_ANYIO
    assert without(shown(getattr(aa, classes[0])), known) == []
    assert without(shown(things[classes[0]]), known) == []
    assert without(explained(*classes), {*dir(things[classes[0]])}) == []


async def test_an_image_shows_what_is_explained(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer(b"message", timeout=5)
    message = await anext(subscription)
    known = explained("Image")
    assert without(shown(aa.Image) | shown(message.image), known) == []
    assert without(known, {*dir(message.image)}) == []
    assert shown(message) == {
        *("data", "image", "position", "reserved_value", "session_id", "stream_id"),
    }
