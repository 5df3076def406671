"""What type checkers refuse: a call that could not succeed is an error before it runs.

mypy reports an ignored error that is none, so each `ignore` below holds one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aeron_async import Aeron
from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    import aeron_async as aa


async def test_text_is_no_message(publication: aa.Publication) -> None:
    await publication.wait_connected(5)
    with pytest.raises(TypeError):
        await publication.offer("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        await publication.offer_many(["text"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        publication.try_offer("text")  # type: ignore[arg-type]


async def test_a_message_and_its_image_have_the_types_that_the_page_says(
    publication: aa.Publication, subscription: aa.Subscription
) -> None:
    await publication.offer([b"head", b"body"], timeout=5)
    message = await anext(subscription)
    image: aa.Image = message.image
    assert (message.data, image.position) == (b"headbody", 0)
    image.reject(b"a reason is text").close()  # type: ignore[arg-type]


async def test_a_wrong_type_is_a_configuration_error_unless_it_is_a_message(
    aeron: aa.Aeron, publication: aa.Publication
) -> None:
    """As the page of errors says."""
    with pytest.raises(ConfigurationError, match="stream_id='1'"):
        await aeron.add_subscription("aeron:ipc", "1")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="timeout='1'"):
        await publication.offer(b"message", timeout="1")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        await publication.offer(b"message", patience=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Aeron.connect(directory=5)  # type: ignore[arg-type]
