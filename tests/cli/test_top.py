"""The command `aeron-async top` without its application: text, JSON, and how it ends."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.cli import top as command
from aeron_async.cli.main import main
from aeron_async.cli.top_model import TopModel
from aeron_async.errors import DriverError
from aeron_async.stats import BudgetStats, PublicationStats, Stats, Table
from tests.cli.top_worlds import (
    RECEIVER,
    WORLDS,
    FakeSource,
    TopWorld,
    driver,
    healthy,
    image,
    publication,
    stats,
)
from tests.snapshots import ARCHIVE, RECORDING, archive
from tests.without import without

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, FakeSource]]:
    """Return the sources that the command opens, by their places; they are closed at its end."""
    found: dict[str, FakeSource] = {}

    def open_source(kind: str, place: str) -> FakeSource:
        return found.setdefault(place, FakeSource(name=f"{kind} {place}"))

    async def no_pause(_seconds: float) -> None:
        return None

    monkeypatch.setattr(command, "open_source", open_source)
    monkeypatch.setattr(command, "pause", no_pause)
    monkeypatch.setenv("TERM", "xterm")
    yield found
    assert all(each.is_closed for each in found.values() if each.taken)


@pytest.mark.parametrize("is_terminal", [True, False], ids=["pty", "pipe"])
def test_once_looks_twice_and_prints_one_table(
    sources: dict[str, FakeSource],
    run: Callable[..., tuple[int, str, str]],
    is_terminal: bool,  # noqa: FBT001 - pytest gives it by name
) -> None:
    code, out, err = run(["top", "--door", "/a", "--once"], is_terminal=is_terminal)
    assert (code, err) == (0, "")
    assert sources["/a"].taken == 2
    assert "\x1b[H" not in out
    assert out.count("driver 42") == 1
    assert "1.0M" in out


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_json_and_text_name_stream_cause_and_remedy(
    world: TopWorld, sources: dict[str, FakeSource], capsys: pytest.CaptureFixture[str]
) -> None:
    sources["/a"] = FakeSource(world.take)
    assert main(["top", "--door", "/a", "--once", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    said = json.loads(line)
    row = next(each for each in said["rows"] if each["kind"] != "drv")
    assert (row["kind"], row["registration_id"]) == (world.kind, world.registration_id)
    assert row["cause_word"] == world.word
    assert world.sentence in row["cause"]
    assert world.remedy in row["remedy"]
    assert row["causes"][0] == {
        "word": row["cause_word"],
        "sentence": row["cause"],
        "remedy": row["remedy"],
    }
    assert Stats.from_dict(said["stats"]) == world.take(2)

    sources["/a"] = FakeSource(world.take)
    assert main(["top", "--door", "/a", "--once"]) == 0
    out = capsys.readouterr().out
    assert world.sentence in out
    assert world.remedy in out


def test_json_is_one_object_for_each_driver_and_look(
    sources: dict[str, FakeSource], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--door", "/a", "-d", "/b", "--json", "--count", "2", "--filter", "pub"]
    assert main(["top", *arguments]) == 0
    said = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    names = ["door /a", "directory /b"]
    assert [each["driver"] for each in said] == names * 2
    assert [[row["kind"] for row in each["rows"]] for each in said] == [["pub"]] * 4
    rates = [each["rows"][0]["bytes_per_second"] for each in said]
    assert rates == [None, None, 1_000_000, 1_000_000]
    assert [each["failure"] for each in said] == [None] * 4


def test_a_table_is_printed_at_each_look(
    sources: dict[str, FakeSource], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", "--door", "/a", "--count", "3", "--sort", "stream", "--reverse"]) == 0
    out = capsys.readouterr().out
    assert out.count("driver 42") == 3
    assert out.count("stream▲") == 3
    assert sources["/a"].taken == 3


def test_a_terminal_is_redrawn_and_never_scrolls(
    sources: dict[str, FakeSource],
    run: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def many(at: float) -> Stats:
        rows = [publication(at, registration_id=each, stream_id=each) for each in range(100)]
        return attrs.evolve(healthy(at), publications=Table.of(PublicationStats, rows))

    sources["/a"] = FakeSource(many)
    monkeypatch.setenv("LINES", "24")
    code, out, _ = run(["top", "--door", "/a", "--count", "2"], is_terminal=True)
    assert code == 0
    first, second, third = out.split("\x1b[H\x1b[J")
    assert first == ""
    assert len(second.splitlines()) == len(third.splitlines()) == 23
    assert "more lines" in third


@pytest.mark.parametrize("term", ["dumb", "unknown", ""])
def test_a_simple_terminal_gets_tables_and_no_commands(
    term: str,
    sources: dict[str, FakeSource],
    run: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    sources["/a"] = FakeSource(healthy)
    monkeypatch.setattr(command.Looks, "look", stopping_after(2))
    code, out, err = run(["top", "--door", "/a"], is_terminal=True)
    assert (code, err) == (130, "")
    assert "\x1b[H" not in out
    assert out.count("driver 42") == 2


GONE = DriverError("its socket is closed")


def stopping_after(count: int) -> Callable[..., Any]:
    """Return a way to look so often, and to be interrupted then."""
    look, left = command.Looks.look, iter(range(count))

    async def stop(looks: command.Looks, patience_s: float | None = None) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        await look(looks, patience_s)

    return stop


def test_without_textual_the_view_is_plain_and_says_so_once(
    sources: dict[str, FakeSource],
    run: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(command.Looks, "look", stopping_after(3))
    monkeypatch.setitem(sys.modules, "textual", None)
    code, out, err = run(["top", "--door", "/a"], is_terminal=True)
    assert code == 130
    assert out.count("driver 42") == 3
    assert err.replace("\r\n", "\n") == (
        "textual is not installed, so this is the plain view: pip install 'aeron-async[top]'\n"
    )
    assert sources["/a"].taken == 3


@pytest.mark.parametrize("more", [["--json"], ["--plain"], []])
def test_without_the_application_nothing_of_textual_is_imported(more: list[str]) -> None:
    program = (
        "import sys; from aeron_async.cli import top; from aeron_async.cli.main import main;"
        "from tests.cli.top_worlds import FakeSource;"
        "top.open_source = lambda kind, place: FakeSource();"
        f"code = main(['top', '--door', '/a', '--once', '--interval', '0.05', *{more}]);"
        "print(code, 'textual' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == "0 False\n"


def test_the_command_works_where_textual_is_not_installed() -> None:
    program = without(["textual"]) + (
        "from aeron_async.cli import top; from aeron_async.cli.main import main;"
        "from tests.cli.top_worlds import FakeSource;"
        "top.open_source = lambda kind, place: FakeSource();"
        "sys.exit(main(['top', '--door', '/a', '--once', '--interval', '0.05']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "driver 42" in done.stdout
    assert done.stderr == ""


# Drivers that do not answer.


def test_no_driver_at_all_is_a_failure(
    sources: dict[str, FakeSource], capsys: pytest.CaptureFixture[str]
) -> None:
    sources["/a"] = FakeSource(name="/a\x1b[2J")
    sources["/a"].error = DriverError("there is no driver\x1b[2J")
    sources["/b"] = FakeSource(name="/b")
    sources["/b"].error = FileNotFoundError(2, "No such file", "/b")
    assert main(["top", "--door", "/a", "--door", "/b"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: /a\\x1b[2J: there is no driver\\x1b[2J; /b: [Errno 2]")


def test_a_driver_that_goes_away_is_shown_and_so_is_its_return(
    sources: dict[str, FakeSource], capsys: pytest.CaptureFixture[str]
) -> None:
    class Flickering(FakeSource):
        async def take(self) -> Stats:
            taken = await super().take()
            if self.taken == 3:
                raise GONE
            return taken

    sources["/a"] = Flickering()
    assert main(["top", "--door", "/a", "--count", "4", "--json"]) == 0
    said = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    assert [each["failure"] for each in said] == [None, None, "its socket is closed", None]
    assert [len(each["rows"]) for each in said] == [2, 2, 0, 2]
    assert said[2]["stats"] is None


async def test_a_driver_that_hangs_does_not_hold_the_others_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Hanging(FakeSource):
        async def take(self) -> Stats:
            await asyncio.Event().wait()
            return healthy(1)

    monkeypatch.setattr(command, "TAKE_TIMEOUT_S", 0.01)
    model = TopModel(names=["/a", "/b"])
    await command.Looks(model, [Hanging(name="/a"), FakeSource(name="/b")]).look()
    # In the order of the names, though the second one has answered first.
    assert [(each.name, each.failure) for each in model.scene().drivers] == [
        ("/a", "no answer within 0.01 s"),
        ("/b", ""),
    ]


def test_drivers_stand_in_the_order_of_the_command_line(
    sources: dict[str, FakeSource], capsys: pytest.CaptureFixture[str]
) -> None:
    class Late(FakeSource):
        async def take(self) -> Stats:
            for _ in range(5):
                await asyncio.sleep(0)
            return await super().take()

    for name, kind in (("/z", Late), ("/a", FakeSource), ("/m", Late)):
        sources[name] = kind(name=name)
    assert main(["top", "--door", "/z", "--door", "/a", "--door", "/m", "--count", "2"]) == 0
    heads = [each for each in capsys.readouterr().out.splitlines() if each.startswith("driver 42")]
    assert [each.split()[2] for each in heads] == ["/z", "/a", "/m"] * 2


async def test_a_driver_that_hangs_is_asked_once_while_the_others_are_looked_at() -> None:
    may_answer = asyncio.Event()

    class Hanging(FakeSource):
        async def take(self) -> Stats:
            found = await super().take()
            await may_answer.wait()
            return found

    hanging, other = Hanging(name="/a"), FakeSource(name="/b")
    model = TopModel()
    async with command.Looks(model, [hanging, other]) as looks:
        for number in range(1, 4):
            await looks.look(0.01)
            assert (hanging.taken, other.taken) == (1, number)
        assert model.last("/b") == healthy(3)
        may_answer.set()
        await looks.look()
        assert model.last("/a") == healthy(1)
        await looks.look()
        assert (hanging.taken, other.taken) == (2, 5)
        may_answer.clear()
        await looks.look(0)
    assert hanging.is_closed
    assert other.is_closed


async def test_what_no_driver_can_cause_ends_the_view() -> None:
    broken = FakeSource()
    broken.error = ZeroDivisionError()
    async with command.Looks(TopModel(), [broken]) as looks:
        with pytest.raises(ZeroDivisionError):
            await looks.look(0.01)


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (stats(1, [publication(1, position=None)]), "position is NoneType"),
        (stats(1, [publication(1, position="x")]), "position is str"),
        (stats(1, [publication(1, nak_count=2**63)]), "nak_count is longer than 64 bits"),
        (stats(1, driver=driver(loop_lags=(2**70,))), "loop_lags has other things than counts"),
        (stats(1, driver=driver(limits={"a": -(2**70)})), "limits is no mapping of counts"),
        (stats(1, [publication(1, is_connected=1)]), "is_connected is int"),
        (stats(1, [publication(1, receivers=None)]), "receivers is no list"),
        (stats(1, [publication(1, receivers=(1,))]), "receivers has other things than rows"),
        (
            stats(1, [publication(1, receivers=(attrs.evolve(RECEIVER, address=7),))]),  # type: ignore[arg-type]
            "receivers: address is int",
        ),
        (stats(1, images=[image(1, channel=7)]), "channel is int"),
        (attrs.evolve(stats(1), epoch_ns=2**64), "its time is longer than 64 bits"),
        (attrs.evolve(stats(1), monotonic_ns=10**400), "its time is longer than 64 bits"),
        (
            stats(1).with_archive(attrs.evolve(ARCHIVE, free_bytes="much")),  # type: ignore[arg-type]
            "free_bytes is str",
        ),
        (
            stats(1).with_archive(archive(attrs.evolve(RECORDING, lag_bytes=2**64))),
            "lag_bytes is longer than 64 bits",
        ),
        (stats(1, driver=driver(pid="x")), "pid is str"),
        (stats(1, driver=driver(loop_lags=("x",))), "loop_lags has other things than counts"),
        (stats(1, driver=driver(limits={"a": None})), "limits is no mapping of counts"),
        (stats(1, driver=driver(counters=[1])), "counters is no mapping of counts"),
        (
            stats(1, driver=driver(budgets=(BudgetStats("a", None, 1),))),  # type: ignore[arg-type]
            "budgets: used is NoneType",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
async def test_statistics_that_are_none_are_a_failure_of_their_driver(
    odd: Stats, said: str
) -> None:
    model = TopModel()
    await command.Looks(model, [FakeSource(lambda _: odd)]).look()
    (there,) = model.scene().drivers
    assert there.failure == f"its statistics cannot be read: {said}"
    assert model.scene().rows == ()


def test_statistics_of_every_world_are_as_they_must_be() -> None:
    for world in WORLDS.values():
        assert not command.odd_field(world.take(2))
        assert not command.odd_field(Stats.from_dict(world.take(2).to_dict()))


# Usage.


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--interval", "0.01"], "--interval"),
        (["--interval", "61"], "--interval"),
        (["--interval", "nan"], "--interval"),
        (["--count", "0"], "--count"),
        (["--sort", "colour"], "--sort"),
        (["--door", ""], "is empty"),
        (["/a"], "/a"),
    ],
)
def test_bad_usage_is_exit_code_2(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", *arguments]) == 2
    assert part in capsys.readouterr().err.splitlines()[-1]


def test_without_a_place_it_is_the_directory_of_this_user(
    sources: dict[str, FakeSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AERON_DIR", "/mine")
    assert main(["top", "--once"]) == 0
    assert [*sources] == ["/mine"]
    sources.clear()
    assert main(["top", "--once", "--door", "/a", "--door", "/a"]) == 0
    assert [*sources] == ["/a"]
