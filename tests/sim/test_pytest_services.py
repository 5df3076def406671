"""What a test says whose services fail, from outside: whole runs of pytest over small files."""

from __future__ import annotations

import pytest

from tests.sim.runs import Run

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    return Run(pytester)


SERVICES = """
async def boom(host):
    await asyncio.sleep(3)
    raise ValueError("boom")

async def boom_again(host):
    await asyncio.sleep(4)
    raise LookupError("bang")

async def fail_at_the_end(host):
    try:
        await asyncio.Event().wait()
    finally:
        raise LookupError("at the end")
"""


def test_a_test_whose_service_failed_fails_with_what_the_service_raised(run: Run) -> None:
    result = run(
        SERVICES
        + """
async def test_one(world):
    world.host("shop").start(boom)
    await world.sleep(10)

async def test_two(world):
    world.host("shop").start(boom)
    world.host("bank").start(boom_again)
    await world.sleep(10)
"""
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["E * ValueError: boom", "E * Raised by service 'boom' on host 'shop', at 3.*"]
    )
    result.stdout.fnmatch_lines(["*ExceptionGroup:*service 'boom' on host 'shop' failed: *"])


@pytest.mark.parametrize(
    ("ending", "complaint"),
    [
        ("assert 1 == 2", "E * assert 1 == 2"),
        ("pytest.fail('sad')", "E * Failed: sad"),
        ("raise asyncio.CancelledError", "E * asyncio.exceptions.CancelledError"),
        ("await task", "E * ValueError: boom"),
    ],
)
def test_a_test_that_fails_by_itself_tells_of_its_service_beside_that(
    run: Run, ending: str, complaint: str
) -> None:
    result = run(
        SERVICES
        + f"""
async def test_it(world):
    task = world.host("shop").start(boom)
    await world.sleep(10)
    {ending}
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([complaint])
    result.stdout.fnmatch_lines(["*Raised by service 'boom' on host 'shop'*"])


def test_a_test_that_waits_for_a_dead_service_fails_with_why_it_died(run: Run) -> None:
    result = run(
        SERVICES
        + """
async def test_it(world):
    world.host("shop").start(boom)
    await asyncio.Event().wait()
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *ValueError: boom",
            "The above exception was the direct cause of the following exception:",
            "E *DeadlockError: service 'boom' on host 'shop' failed: ValueError: boom; since *",
        ]
    )


def test_what_a_service_raises_when_it_is_stopped_is_an_error_of_the_test(run: Run) -> None:
    result = run(
        SERVICES
        + """
async def test_it(world):
    world.host("shop").start(fail_at_the_end)
    await world.sleep(1)
"""
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*service 'fail_at_the_end' on host 'shop' failed*"])


def test_a_test_that_skips_itself_is_not_failed_by_what_a_service_raised(run: Run) -> None:
    result = run(
        SERVICES
        + """
async def test_it(world):
    world.host("shop").start(boom)
    await world.sleep(10)
    pytest.skip("enough")
"""
    )
    # It is no failure of a test that came to no end, and still no secret.
    result.assert_outcomes(skipped=1, errors=1)


def test_the_plugin_is_asked_for_by_the_name_of_its_entry_point_however_it_is_loaded(
    run: Run,
) -> None:
    test = """
        async def test_it(world):
            await world.sleep(1000)
        """
    run(test, "-p", "aeron_async").assert_outcomes(passed=1)
    run(test, "-p", "no:aeron_async", "-p", "aeron_async").assert_outcomes(passed=1)
