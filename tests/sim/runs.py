"""Whole runs of pytest over small files, within this one."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import aeron_async.testing.world  # noqa: F401 - or each run within this one would import it anew

if TYPE_CHECKING:
    import pytest

SETTINGS = """
[pytest]
asyncio_mode = {mode}
asyncio_default_fixture_loop_scope = function
filterwarnings =
    error
    ignore:Module already imported
"""
EXCHANGE = """
import asyncio
import pytest

CHANNEL = "aeron:udp?endpoint=bob:20121|term-length=64k"

async def exchange(world, count=50):
    alice, bob = world.host("alice"), world.host("bob")
    async with alice.aeron() as sending, bob.aeron() as receiving:
        subscription = await receiving.add_subscription(CHANNEL, 1)
        publication = await sending.add_publication(CHANNEL, 1)
        for number in range(count):
            await publication.offer(bytes([number]))
        return [(await anext(subscription)).data for _ in range(count)]
"""


class Run:
    """Runs pytest over one file, in this process."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester

    def __call__(self, test: str, *args: str, mode: str = "auto") -> pytest.RunResult:
        self.pytester.makeini(SETTINGS.format(mode=mode))
        self.pytester.makepyfile(EXCHANGE + dedent(test))
        return self.pytester.runpytest_inprocess("-p", "no:cacheprovider", *args)
