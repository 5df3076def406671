"""The plugin for pytest, from outside: whole runs of pytest over small files."""

from __future__ import annotations

import runpy
import subprocess
import sys

import pytest

from aeron_async.testing import pytest_plugin
from tests.sim.runs import Run

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    return Run(pytester)


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_an_async_test_has_a_world_in_virtual_time(run: Run, mode: str) -> None:
    result = run(
        """
        @pytest.mark.asyncio
        async def test_it(world):
            await world.sleep(1000)
            assert len(await exchange(world)) == 50
            assert world.now_ns > 1000 * 10**9
        """,
        mode=mode,
    )
    result.assert_outcomes(passed=1)


def test_a_plain_test_tells_a_story(run: Run) -> None:
    result = run(
        """
        @pytest.mark.aeron(seed=9, delay_ns=1000)
        def test_it(simulate):
            async def story(world):
                assert world.seed == 9
                a, b = world.host("a"), world.host("b")
                assert world.link(a, b).conditions.delay_ns == 1000
                return await exchange(world)
            assert len(simulate(story)) == 50

        def test_it_says_otherwise(simulate):
            async def story(world):
                return world.seed
            assert simulate(story) == 0
            assert simulate(story, seed=3) == 3
        """
    )
    result.assert_outcomes(passed=2)


def test_plain_stories_need_no_asyncio_plugin(run: Run) -> None:
    result = run(
        """
        def test_it(simulate):
            assert len(simulate(exchange)) == 50
        """,
        "-p",
        "no:asyncio",
        "-W",
        "ignore::pytest.PytestConfigWarning",
    )
    result.assert_outcomes(passed=1)


def test_a_lossy_link_loses_what_its_marker_says(run: Run) -> None:
    result = run(
        """
        pytestmark = pytest.mark.aeron(seed=5, jitter_ns=7)

        def conditions(world):
            return world.link(world.host("a"), world.host("b")).conditions

        async def test_by_default(lossy_link):
            assert conditions(lossy_link).loss == 0.2
            assert len(await exchange(lossy_link)) == 50
            assert lossy_link.network.trace.counts[2] > 0

        @pytest.mark.aeron(loss=0.4, seed=6)
        async def test_the_closest_marker_wins(lossy_link, world):
            assert lossy_link is world
            assert world.seed == 6
            assert conditions(world).loss == 0.4
            assert conditions(world).jitter_ns == 7

        async def test_a_world_has_the_conditions_too(world):
            assert conditions(world).loss == 0
            assert conditions(world).jitter_ns == 7
        """
    )
    result.assert_outcomes(passed=3)


def test_a_partition_lasts_as_long_as_its_block(run: Run) -> None:
    result = run(
        """
        async def test_it(world, partition):
            alice, bob = world.host("alice"), world.host("bob")
            with partition(alice):
                assert not world.link(alice, bob).is_up
            assert world.link(alice, bob).is_up
        """
    )
    result.assert_outcomes(passed=1)


def test_async_fixtures_of_the_user_share_the_loop(run: Run) -> None:
    result = run(
        """
        @pytest.fixture
        async def aeron(world):
            async with world.host("alice").aeron() as aeron:
                yield aeron

        async def test_it(aeron):
            publication = await aeron.add_publication("aeron:udp?endpoint=10.0.0.1:1", 1)
            await asyncio.sleep(100)
        """
    )
    result.assert_outcomes(passed=1)


def test_a_failing_test_tells_its_seed_and_the_option_brings_it_back(run: Run) -> None:
    test = """
        @pytest.mark.aeron(seed=7)
        async def test_async(world):
            assert world.seed == 8, "sad"

        @pytest.mark.aeron(seed=7)
        def test_plain(simulate):
            async def story(world):
                assert world.seed == 8, "sad"
            simulate(story)
        """
    result = run(test)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*aeron_async seed 7*", "run again with --aeron-seed 7"])
    run(test, "--aeron-seed", "8").assert_outcomes(passed=2)


def test_a_test_that_asks_for_no_world_says_nothing_of_seeds(run: Run) -> None:
    result = run(
        """
        def test_it():
            assert False
        """
    )
    result.stdout.no_fnmatch_line("*aeron_async seed*")


def test_other_tests_run_on_the_loop_they_would_have(run: Run) -> None:
    run.pytester.makeconftest(
        """
        import asyncio

        class TheirLoop(asyncio.SelectorEventLoop):
            pass

        def pytest_asyncio_loop_factories(config, item):
            return {"one": TheirLoop, "two": TheirLoop}
        """
    )
    result = run(
        """
        async def test_theirs():
            assert type(asyncio.get_running_loop()).__name__ == "TheirLoop"

        async def test_ours(world):
            assert type(asyncio.get_running_loop()).__name__ == "VirtualLoop"
        """
    )
    result.assert_outcomes(passed=3)


def test_a_world_of_the_users_own_is_left_alone(run: Run) -> None:
    result = run(
        """
        @pytest.fixture
        def world():
            return "theirs"

        @pytest.fixture
        async def simulate(world):
            return world

        async def test_async(world, simulate):
            assert simulate == "theirs"
            assert type(asyncio.get_running_loop()) is asyncio.SelectorEventLoop

        def test_plain(world):
            assert world == "ours"

        @pytest.mark.parametrize("world", ["given"])
        async def test_given(world):
            assert world == "ours"
        """
    )
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.no_fnmatch_line("*aeron_async seed*")


def test_a_fixture_that_adds_to_the_world_still_has_virtual_time(run: Run) -> None:
    result = run(
        """
        @pytest.fixture
        async def world(world):
            world.host("alice")
            return world

        async def test_it(world):
            await world.sleep(1000)
            assert [host.name for host in world.hosts] == ["alice"]
        """
    )
    result.assert_outcomes(passed=1)


def test_a_name_without_a_fixture_is_not_ours() -> None:
    assert not pytest_plugin.is_ours("world", ())


def test_without_a_hook_of_their_own_others_keep_their_loop_and_name(run: Run) -> None:
    result = run(
        """
        async def test_before():
            assert type(asyncio.get_running_loop()) is asyncio.SelectorEventLoop

        async def test_ours(world):
            assert type(asyncio.get_running_loop()).__name__ == "VirtualLoop"
        """,
        "-v",
    )
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*::test_before PASSED*", "*::test_ours PASSED*"])


@pytest.mark.parametrize(
    ("test", "outcomes", "complaint"),
    [
        (
            "asyncio.create_task(world.sleep(50), name='forgotten')",
            {"passed": 1, "failed": 1, "errors": 1},
            "*task forgotten at *",
        ),
        (
            "asyncio.get_running_loop().call_soon(lambda: 1 / 0)",
            {"failed": 2},
            "*ZeroDivisionError*",
        ),
    ],
)
def test_what_is_left_open_is_an_error_of_the_test(
    run: Run, test: str, outcomes: dict[str, int], complaint: str
) -> None:
    result = run(
        f"""
        async def test_async(world):
            world.task = {test}

        def test_plain(simulate):
            async def story(world):
                world.task = {test}
            simulate(story)
        """
    )
    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines([complaint])


def test_an_open_socket_is_an_error_of_the_test(run: Run) -> None:
    result = run(
        """
        from aeron_async.driver.media.sockets import SocketSpec

        async def test_it(world):
            spec = SocketSpec(local=("0.0.0.0", 0))
            world.socket = await world.host("alice").machine.open(asyncio.DatagramProtocol, spec)
        """
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*LeakError: left open *1 sockets of alice*"])


def test_a_failing_test_is_not_told_what_it_left_open(run: Run) -> None:
    result = run(
        """
        async def test_it(world):
            world.task = asyncio.create_task(world.sleep(50))
            assert False
        """
    )
    result.assert_outcomes(failed=1)


def test_a_deadlock_and_endless_waiting_are_failures_that_name_who_waits(run: Run) -> None:
    result = run(
        """
        async def test_deadlock(world):
            await asyncio.Event().wait()

        async def test_endless(world):
            while True:
                await world.sleep(60)
        """
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*DeadlockError: nothing is scheduled*test_a_deadlock*"])
    result.stdout.fnmatch_lines(["*TimeLimitError: 3600 virtual seconds*"])


def test_a_plain_test_that_asks_for_a_world_is_told_to_simulate(run: Run) -> None:
    result = run(
        """
        def test_it(world):
            pass
        """
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*a plain test asks for simulate*"])


def test_a_marker_with_something_else_is_refused(run: Run) -> None:
    result = run(
        """
        @pytest.mark.aeron(los=0.2)
        async def test_it(world):
            pass
        """
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*@pytest.mark.aeron has no los; there are seed, loss,*"])


def test_the_marker_is_declared(run: Run) -> None:
    run("", "--markers").stdout.fnmatch_lines(["@pytest.mark.aeron(seed=0, loss=0.2, ...)*"])


def test_loading_the_plugin_imports_no_world() -> None:
    program = (
        "import sys, aeron_async\n"
        "before = set(sys.modules)\n"
        "import aeron_async.testing.pytest_plugin\n"
        "print(*sorted(m for m in set(sys.modules) - before if m.startswith('aeron_async')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["aeron_async.testing", "aeron_async.testing.pytest_plugin"]


def test_without_pytest_asyncio_the_module_can_still_be_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pytest_asyncio", None)
    names = runpy.run_path(pytest_plugin.__file__)
    assert names["async_fixture"] is pytest.fixture
