"""A child that is forked warm is like one of `asyncio.create_subprocess_exec`."""

from __future__ import annotations

import asyncio
import os
import sys
from subprocess import PIPE
from typing import Any

import pytest

from tests.warm import CONTEXT
from tests.warm_children import WarmChild, create_subprocess_exec

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(CONTEXT is None, reason="nothing is forked here"),
]
COMMAND = (sys.executable, "-m", "aeron_async.cli.demo_publisher")


@pytest.mark.parametrize("starts_session", [False, True])
async def test_it_has_a_session_of_its_own_if_that_is_wanted(*, starts_session: bool) -> None:
    child = await create_subprocess_exec(
        *COMMAND, stdin=PIPE, stdout=PIPE, start_new_session=starts_session
    )
    assert isinstance(child, WarmChild)
    assert child.stdout is not None
    await child.stdout.readline()
    assert (os.getsid(child.pid) == child.pid) == starts_session
    await child.communicate()


async def test_several_wait_for_one_and_one_of_them_gives_up() -> None:
    child = await create_subprocess_exec(*COMMAND, stdin=PIPE, stdout=PIPE)
    first, second, third = (asyncio.create_task(child.wait()) for _ in range(3))
    await asyncio.sleep(0)
    second.cancel()
    await child.communicate()
    assert await first == await third == await child.wait() == 1
    assert second.cancelled()


async def test_an_option_that_it_does_not_know_is_refused() -> None:
    options: dict[str, Any] = {"cwd": "/"}
    with pytest.raises(TypeError, match="cwd"):
        await create_subprocess_exec(*COMMAND, **options)
