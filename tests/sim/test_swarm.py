"""Many random worlds: the command line, shrinking, captures, and runs from beginning to end."""

from __future__ import annotations

import argparse
import asyncio
import logging
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from aeron_async.cli.pcap import CaptureReader
from aeron_async.testing.fates import Conditions
from aeron_async.testing.recorder import ViolationError
from aeron_async.testing.world import simulate
from tests.sim.scenarios import scenarios
from tests.sim.test_world import VirtualUvLoop
from tests.support import swarm
from tests.support.draw import draw_scenario
from tests.support.nemesis import Nemesis
from tests.support.run import Outcome, Run, run_scenario
from tests.support.scenario import FEATURES, Trouble, TroubleKind
from tests.support.swarm import Failure, main, run_seed, shrink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from aeron_async.testing.world import World
    from tests.support.scenario import Scenario

BAD = frozenset({"loss", "polling"})
GUILTY = next(seed for seed in range(10_000) if draw_scenario(seed).features > BAD)
# Many features, and a short story.
RICH = 14


@pytest.fixture(autouse=True)
def _loud_again() -> Iterator[None]:
    logger = logging.getLogger("aeron_async")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every world fail that has all the bad features."""

    def run_it(scenario: Scenario, *, watcher: Any = None) -> Outcome:
        if watcher is not None:
            return run_scenario(scenario, watcher=watcher)
        failure = "ViolationError: N1: planted" if scenario.features >= BAD else ""
        return Outcome(failure=failure, message_count=1, datagram_count=2, virtual_ns=3, digest="4")

    monkeypatch.setattr(swarm, "run_scenario", run_it)


def test_worlds_that_keep_their_promises_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "15..18", "--jobs", "1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("3 seeds, 0 failed, ")


def test_several_processes_find_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(swarm, "SEEDS_PER_TASK", 1)

    def figures(*jobs: str) -> str:
        assert main(["--seeds", "15..18", "--jobs", *jobs]) == 0
        return capsys.readouterr().out.rpartition(" s, ")[2]

    assert figures("1") == figures("2")


@pytest.mark.usefixtures("planted")
def test_a_failure_is_made_small_captured_and_can_be_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--seeds", str(GUILTY), "--jobs", "1", "--pcap", str(tmp_path)]
    assert main(arguments) == 1
    line, summary = capsys.readouterr().out.splitlines()
    path = tmp_path / f"swarm-{GUILTY}.pcap"
    assert line.startswith(f"FAILED {GUILTY} ViolationError: N1: planted | {path} | ")
    assert summary.startswith("1 seeds, 1 failed, ")
    command = line.rpartition(" | ")[2].split()
    assert command[:3] == ["python", "-m", "tests.support.swarm"]
    assert main([*command[3:], "--jobs", "1", "--no-shrink"]) == 1
    with path.open("rb") as file:
        assert sum(1 for _ in CaptureReader(file, path.name)) > 10


@pytest.mark.usefixtures("planted")
def test_shrinking_leaves_nothing_but_what_is_guilty() -> None:
    small = shrink(Failure(seed=GUILTY, without=frozenset(), what="it failed"))
    features = draw_scenario(GUILTY, without=small.without).features
    assert features == BAD
    assert small.what == "ViolationError: N1: planted"


@pytest.mark.usefixtures("planted")
def test_a_failure_that_does_not_repeat_is_told_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Scenario] = []
    fail = vars(swarm)["run_scenario"]

    def fail_once(scenario: Scenario, **options: Any) -> Outcome:
        runs.append(scenario)
        outcome: Outcome = fail(scenario, **options)
        return outcome if len(runs) == 1 else evolve(outcome, failure="")

    monkeypatch.setattr(swarm, "run_scenario", fail_once)
    assert main(["--seeds", str(GUILTY), "--jobs", "1", "--pcap", str(tmp_path)]) == 1
    line, _ = capsys.readouterr().out.splitlines()
    assert line == (
        f"FAILED {GUILTY} ViolationError: N1: planted | does not repeat | "
        f"python -m tests.support.swarm --seeds {GUILTY}..{GUILTY + 1}"
    )
    # Once as it was, and not made any smaller.
    assert [each.features for each in runs] == [draw_scenario(GUILTY).features] * 2
    assert list(tmp_path.iterdir()) == []


def test_the_directory_of_captures_is_made_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "a" / "b"
    for _ in range(2):
        assert swarm.parse(["--seeds", "1", "--pcap", str(made)]).pcap == made
        assert made.is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as caught:
        main(["--seeds", "1", "--pcap", str(tmp_path / "file")])
    assert caught.value.code == 2
    assert "file': File exists" in capsys.readouterr().err


@pytest.mark.usefixtures("planted")
def test_failures_may_be_told_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", f"{GUILTY}..{GUILTY + 1}", "--jobs", "1", "--no-shrink"]) == 1
    line, _ = capsys.readouterr().out.splitlines()
    assert line == (
        f"FAILED {GUILTY} ViolationError: N1: planted | "
        f"python -m tests.support.swarm --seeds {GUILTY}..{GUILTY + 1}"
    )


@pytest.mark.usefixtures("planted")
def test_progress_is_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--seeds", "0..1000", "--jobs", "1", "--without", ",".join(BAD)])
    assert capsys.readouterr().out.splitlines()[0] == "1000 seeds, 0 failed"


@pytest.mark.parametrize(
    ("text", "seeds"), [("7", range(7, 8)), ("3..9", range(3, 9)), ("-2..1", range(-2, 1))]
)
def test_seeds_are_a_range_or_one(text: str, seeds: range) -> None:
    assert swarm.seed_range(text) == seeds


@pytest.mark.parametrize("text", ["", "x", "5..5", "9..3", "1..", "1..2..3"])
def test_other_seeds_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"must be A\.\.B with A below B"):
        swarm.seed_range(text)


def test_features_are_named_and_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert swarm.features("loss,crash") == {"loss", "crash"}
    assert swarm.features("") == frozenset()
    with pytest.raises(SystemExit) as caught:
        main(["--seeds", "1", "--without", "los"])
    assert caught.value.code == 2
    assert "no feature los; there are bandwidth," in capsys.readouterr().err


@pytest.mark.untraced
def test_a_seed_has_the_same_digest_whenever_and_wherever_it_is_run() -> None:
    scenario = draw_scenario(RICH)
    assert len(scenario.features) > 12
    outcomes = [
        run_scenario(scenario),
        run_seed(RICH),
        run_scenario(scenario, loop_factory=VirtualUvLoop),
    ]
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert outcomes[0].failure == ""
    assert outcomes[0].message_count > 0


@pytest.mark.untraced
@pytest.mark.parametrize("feature", FEATURES)
def test_each_feature_is_survived(feature: str) -> None:
    having = [each for each in scenarios() if feature in each.features]
    scenario = min(having, key=lambda each: (len(each.features), each.seed))
    assert run_scenario(scenario).failure == ""


@pytest.mark.untraced
@pytest.mark.parametrize(
    "features",
    [{"polling", "large_messages"}, {"end_of_positions", "exclusive"}],
)
def test_features_that_matter_together_are_survived_together(features: set[str]) -> None:
    having = [each for each in scenarios() if features <= each.features and each.is_exact]
    assert all(run_scenario(each).failure == "" for each in having[:3])
    assert having


def test_a_broken_promise_is_the_failure_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def violate(self: object) -> None:
        several, message = "several", "N9: broken\non purpose"
        raise ExceptionGroup(several, [ViolationError(message)])

    monkeypatch.setattr("tests.support.run.WireAuditor.audit", violate)
    assert run_seed(1).failure == "ViolationError: N9: broken"


def test_what_a_workload_raises_is_the_failure_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: object, aeron: object) -> None:
        message = "no more"
        raise LookupError(message)

    monkeypatch.setattr("tests.support.run.Subscriber.run", fail)
    assert run_seed(1, frozenset(FEATURES)).failure == "LookupError: no more"


def test_the_failure_of_a_run_is_its_own_whatever_its_end_brings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def violate(self: object) -> None:
        message = "N9: broken"
        raise ViolationError(message)

    async def fail(self: object) -> None:
        message = "at the end"
        raise LookupError(message)

    monkeypatch.setattr("aeron_async.testing.host.Host._stop", fail)
    monkeypatch.setattr("tests.support.run.WireAuditor.audit", violate)
    assert run_seed(1).failure == "ViolationError: N9: broken"
    monkeypatch.setattr("tests.support.run.WireAuditor.audit", lambda _: None)
    assert run_seed(1, frozenset(FEATURES)).failure == "LookupError: at the end"


def test_what_does_not_recover_in_time_is_the_failure_of_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def do_not_heal(self: object) -> None:
        return

    def cut(self: Any) -> None:
        self._world.partition(self._world.hosts[0])

    monkeypatch.setattr(Nemesis, "set_up", cut)
    monkeypatch.setattr(Nemesis, "heal", do_not_heal)
    failure = run_seed(1, frozenset(FEATURES)).failure
    assert failure.startswith("ViolationError: N6: after 40 s without trouble ")


def test_a_socket_left_open_is_the_failure_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aeron_async.testing.sim_network.SimHost.socket_count", 1)
    failure = run_seed(1, frozenset(FEATURES)).failure
    assert failure.startswith("ViolationError: reclaim: after 40 s without trouble host0 holds ")
    assert failure.endswith(" 1 sockets")
    monkeypatch.setattr(Run, "_unreclaimed", lambda _: "")
    failure = run_seed(1, frozenset(FEATURES)).failure
    assert failure.startswith("ViolationError: host0 has stopped, and 1 sockets are open")


@pytest.mark.parametrize(
    ("amount", "monotonic_s", "wall_clock_s"),
    [(0.0, 0, -262), (0.4, 0, 157.2), (0.5, 0, 0), (0.7, -0.8, 0), (0.75, 0, 0), (1.0, 3_600, 0)],
)
def test_a_clock_jumps_either_way(amount: float, monotonic_s: float, wall_clock_s: float) -> None:
    async def story(world: World) -> tuple[float, float]:
        clock = world.host("a").clock
        nemesis = Nemesis(world, draw_scenario(1))
        trouble = Trouble(kind=TroubleKind.JUMP, at_ns=0, duration_ns=0, host=0, amount=amount)
        before = clock.now_ns(), clock.epoch_ms()
        await nemesis._make(trouble)
        return (clock.now_ns() - before[0]) / 1e9, (clock.epoch_ms() - before[1]) / 1e3

    jumped = simulate(story)
    assert jumped == pytest.approx((monotonic_s, wall_clock_s), abs=0.002)


def test_healing_brings_back_who_is_down() -> None:
    async def story(world: World) -> None:
        first, second = world.host("a"), world.host("b")
        scenario = draw_scenario(1, without=frozenset(FEATURES))
        await first.crash()
        first.machine.send_errors = {1: 1.0}
        first.clock.set_rate(2)
        world.set_conditions(Conditions(loss=1.0, delay_ns=10**9))
        world.partition(first)
        await Nemesis(world, scenario).heal()
        assert not first.is_down
        assert not first.machine.send_errors
        assert first.clock._rate == 1
        assert world.link(first, second).is_up
        assert world.link(first, second).conditions == Conditions(delay_ns=50_000_000)

    simulate(story)


@pytest.mark.parametrize("kind", TroubleKind)
def test_every_trouble_begins_and_ends(kind: TroubleKind) -> None:
    scenario = draw_scenario(1, without=frozenset(FEATURES))

    def state(world: World) -> list[object]:
        first, second = world.hosts[:2]
        return [
            first.is_down,
            first.machine.is_paused,
            dict(first.machine.send_errors),
            first.clock._rate,
            first.clock._base_ns < 0,
            world.link(first, second).is_up,
            world.link(second, first).is_up,
        ]

    async def story(world: World) -> tuple[list[object], list[object], list[object]]:
        for name in ("a", "b"):
            world.host(name)
        nemesis = Nemesis(world, scenario)
        trouble = Trouble(kind=kind, at_ns=0, duration_ns=10**9, host=0, amount=0.6)
        before = state(world)
        async with asyncio.TaskGroup() as group:
            group.create_task(nemesis._make(trouble))
            await world.sleep(0.5)
            amid = state(world)
        return before, amid, state(world)

    before, amid, after = simulate(story)
    assert before == after
    # A restart and a jump last no time.
    assert (amid == before) == (kind in {TroubleKind.RESTART, TroubleKind.JUMP})
