"""Our side: a client with a driver of its own, and what its counters say."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aeron_async as aa
from tests.interop.official import TERM_LENGTH

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def our_client() -> AsyncIterator[aa.Aeron]:
    """A client with a driver of ours, whose terms are as short as the official one's."""
    context = aa.DriverContext(term_buffer_length=TERM_LENGTH)
    async with aa.Aeron.connect(context=context) as aeron:
        yield aeron


def count_of(aeron: aa.Aeron, label: str) -> int:
    """The sum of our counters whose labels begin so."""
    return sum(record.value for record in aeron.counters if record.label.startswith(label))
