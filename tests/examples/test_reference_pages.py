"""The reference pages say what the code says."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

import aeron_async
from aeron_async import errors
from aeron_async.cli.main import (
    ARCHIVE_COMMANDS,
    COMMANDS,
    DRIVER_COMMANDS,
    PIPELINE_COMMANDS,
)
from aeron_async.driver.core import image_state, subscriber_position
from aeron_async.driver.core import publication as publication_state
from aeron_async.driver.core.stream_counters import (
    ChannelCounterType,
    LocalAddressType,
    StreamCounterType,
)
from aeron_async.driver.core.system_counters import (
    DRIVER_COUNTER_LABELS,
    SYSTEM_COUNTER_LABELS,
    DriverCounterId,
    SystemCounterId,
)
from aeron_async.protocol.parameters import PARAMETERS
from docs import tables
from tests.examples.pages import DOCS, bare, blocks_of, rows, section, sources

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import Enum
    from types import ModuleType

REFERENCE = DOCS / "reference"
API = REFERENCE / "api.md"
COUNTERS = REFERENCE / "counters.md"
SPEEDUPS = "aeron_async._speedups"
STREAM_KINDS = (StreamCounterType, ChannelCounterType, LocalAddressType)
LOG_LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}


def test_the_api_page_names_every_public_name() -> None:
    names = [bare(row[0]) for row in rows(section(API, "Names"))]
    assert sorted(names) == sorted(aeron_async.__all__)


def test_the_command_page_names_every_command_with_its_purpose() -> None:
    page = REFERENCE / "command-line.md"
    found = {
        heading: [(bare(row[0]), row[1]) for row in rows(section(page, heading))]
        for heading in ("Commands", "Of a driver", "Of an archive", "Of a pipeline")
    }
    assert found == {
        "Commands": list(COMMANDS),
        "Of a driver": [(f"driver {name}", purpose) for name, _, purpose in DRIVER_COMMANDS],
        "Of an archive": [(f"archive {name}", purpose) for name, _, purpose in ARCHIVE_COMMANDS],
        "Of a pipeline": [(f"pipeline {name}", purpose) for name, _, purpose in PIPELINE_COMMANDS],
    }


def test_every_member_on_the_api_page_exists() -> None:
    for name, *_ in rows(API.read_text()):
        owner_name, dot, member = bare(name).partition(".")
        if not dot:
            continue
        owner = getattr(aeron_async, owner_name)
        is_attribute = re.search(rf"\bself\.{member}\b[^=\n]* = ", source_of(owner))
        assert hasattr(owner, member) or is_attribute, name


def test_the_api_page_names_what_the_modules_of_statistics_offer() -> None:
    _, *parts = section(API, "Statistics and metrics").split("\n### ")
    names = [part.partition("\n")[0] for part in parts]
    assert {"aeron_async.metrics", "aeron_async.stats", "aeron_async.health"} <= set(names)
    for name, part in zip(names, parts, strict=True):
        module = pytest.importorskip(name, reason=f"{name} needs a package of an extra")
        assert sorted(bare(row[0]) for row in rows(part)) == sorted(module.__all__), name


def test_the_page_on_batches_has_their_limits() -> None:
    limits = inspect.signature(aeron_async.Subscription.batches).parameters
    page = (DOCS / "howto" / "batches.md").read_text()
    count, length = limits["max_messages"].default, limits["max_bytes"].default
    assert (
        f"`max_messages`, {count} by default, and `max_bytes`, {length // 1024} KiB, bound" in page
    )
    assert f"of at most {count} messages, unless" in page


@cache
def source_of(owner: type) -> str:
    """Return the source of a class and of those of ours that it inherits from."""
    ours = [cls for cls in owner.__mro__ if cls.__module__.startswith("aeron_async.")]
    # What is compiled has no source to look into, and makes no attributes of `self`.
    plain = [cls for cls in ours if inspect.getfile(cls).endswith(".py")]
    return "".join(map(inspect.getsource, plain))


def test_the_channel_page_names_every_parameter_as_the_table_has_it() -> None:
    shown = [row[:6] for row in rows((REFERENCE / "channel.md").read_text())]
    assert shown == [
        [
            f"`{parameter.key}`",
            f"`{parameter.name}`",
            " ".join(letter for letter in "PSDX" if letter in parameter.roles),
            parameter.kind.expects,
            parameter.default,
            parameter.description,
        ]
        for parameter in PARAMETERS.values()
    ]


def test_the_channel_page_says_of_every_parameter_whether_we_have_it() -> None:
    for row in rows((REFERENCE / "channel.md").read_text()):
        assert re.match(r"(have|lack)\b", row[6]), row[0]


def test_the_tables_of_settings_are_those_that_the_command_writes() -> None:
    old = [page for page in tables.pages() if tables.written(page.read_text()) != page.read_text()]
    assert old == [], "run `make settings`, which writes the tables from the declarations"


def test_the_hops_that_a_page_names_are_in_the_code() -> None:
    named = [
        (found["file"], found["name"])
        for page in tables.pages()
        for found in tables.HOP.finditer(page.read_text())
    ]
    assert len(named) > 40
    assert all(tables.line_of(file, name) for file, name in named)
    with pytest.raises(LookupError, match=r"sender.py has no Sender\.guess"):
        tables.line_of("driver/sender.py", "Sender.guess")


def test_the_hops_that_have_a_compiled_twin_say_so() -> None:
    count = 0
    for line in (DOCS / "explanation" / "layers.md").read_text().splitlines():
        found = tables.HOP.search(line)
        if found is None:
            continue
        note = line[found.end() :]
        compiled = names_of_compiled_code(found["file"])
        is_compiled = found["name"].split(".")[0] in compiled
        calls_compiled = any(f"the compiled `{name}`" in note for name in compiled)
        assert ("compiled" in note) == (is_compiled or calls_compiled), line
        count += is_compiled
    assert count > 5


def names_of_compiled_code(file: str) -> set[str]:
    """Return what a module imports from the compiled code."""
    return {
        alias.name
        for node in ast.walk(tables.tree(tables.PACKAGE / file))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(SPEEDUPS)
        for alias in node.names
    }


@pytest.mark.parametrize("owner", tables.CLASSES)
def test_every_setting_is_in_one_table(owner: str) -> None:
    firsts = list(tables.first_fields(owner))
    shown = [name for first in firsts for name in tables.fields_from(owner, first)]
    assert shown == list(tables.CLASSES[owner].settings())


@cache
def touched() -> frozenset[tuple[str, str]]:
    """Return the counters, each as class and name, that code outside the table of names touches."""
    kinds = "|".join(kind.__name__ for kind in (SystemCounterId, DriverCounterId, *STREAM_KINDS))
    name = re.compile(rf"\b({kinds})\.(\w+)\b(?!:)")
    return frozenset(found for text in sources().values() for found in name.findall(text))


def moves(counter: Enum) -> str:
    """Return yes if any code outside the table of names touches the counter."""
    return "yes" if (type(counter).__name__, counter.name) in touched() else "no"


@pytest.mark.parametrize(
    ("title", "labels"),
    [
        ("Of the driver", dict(zip(SystemCounterId, SYSTEM_COUNTER_LABELS, strict=True))),
        ("Of the driver, ours", DRIVER_COUNTER_LABELS),
    ],
)
def test_the_counters_page_names_every_counter_of_the_driver(
    title: str, labels: Mapping[SystemCounterId | DriverCounterId, str]
) -> None:
    shown = rows(section(COUNTERS, title))
    assert [(int(row[0]), bare(row[1]), row[3]) for row in shown] == [
        (int(counter), counter.name, moves(counter)) for counter in labels
    ]
    for row, label in zip(shown, labels.values(), strict=True):
        assert label.startswith(row[2])


def test_the_counters_page_names_every_counter_of_streams_and_sockets() -> None:
    shown = rows(section(COUNTERS, "Of streams and sockets"))
    assert [(bare(row[0]), int(row[1]), row[3]) for row in shown] == [
        (counter.label_name, counter.type_id, moves(counter))
        for kind in STREAM_KINDS
        for counter in kind
    ]


def drawing() -> str:
    """Return the tree in the docstring of `errors`."""
    assert errors.__doc__ is not None
    lines = [line for line in errors.__doc__.splitlines() if line.startswith("    ")]
    return dedent("\n".join(lines)) + "\n"


def test_the_tree_of_errors_is_drawn_as_it_grows() -> None:
    path: list[str] = []
    drawn: dict[str, tuple[str, bool]] = {}
    for line in drawing().splitlines():
        found = re.match(r"(?P<branch>[ │├└─]*)(?P<name>\w+)(?: +\((?P<builtin>\w+)\))?", line)
        assert found is not None, line
        depth = len(found["branch"]) // 4
        path[depth:] = [found["name"]]
        parent = path[depth - 1] if depth else "Exception"
        drawn[found["name"]] = parent, bool(found["builtin"])
        if found["builtin"]:
            assert found["builtin"] in {base.__name__ for base in cls_of(found["name"]).__bases__}
    grown = {
        name: (cls.__bases__[0].__name__, len(cls.__bases__) > 1)
        for name in errors.__all__
        if issubclass(cls := cls_of(name), Exception)
    }
    assert drawn == grown


def cls_of(name: str) -> type:
    cls = getattr(errors, name)
    assert isinstance(cls, type)
    return cls


def test_the_errors_page_shows_the_same_tree() -> None:
    (block,) = [
        block
        for block in blocks_of(REFERENCE / "errors.md")
        if block.note == "generated from aeron_async.errors"
    ]
    assert block.text == drawing()


def diagram(states: type[Enum], module: ModuleType) -> str:
    """Return a state table as mermaid draws it."""
    first, *_, last = states
    arrows = [
        f"    {before.name} --> {after.name}: {event.name}"
        for (before, event), after in module.TRANSITIONS.items()
    ]
    lines = ["stateDiagram-v2", f"    [*] --> {first.name}", *arrows, f"    {last.name} --> [*]"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("title", "module", "states", "events"),
    [
        (
            "Publication",
            publication_state,
            publication_state.PublicationState,
            publication_state.PublicationEvent,
        ),
        ("Image", image_state, image_state.ImageState, image_state.ImageStateEvent),
        (
            "Untethered subscriber",
            subscriber_position,
            subscriber_position.TetherState,
            subscriber_position.TetherEvent,
        ),
    ],
)
def test_the_state_diagrams_are_drawn_from_the_tables(
    title: str, module: ModuleType, states: type[Enum], events: type[Enum]
) -> None:
    page = DOCS / "explanation" / "states.md"
    (block,) = [b for b in blocks_of(page) if b.note == f"generated from {module.__name__}"]
    assert block.text == diagram(states, module)
    assert [bare(row[0]) for row in rows(section(page, title))] == [event.name for event in events]


def test_the_logs_page_names_every_event() -> None:
    written: set[tuple[str, str]] = set()
    # To parse a file takes long, and most log nothing.
    log_call = re.compile(rf"\.({'|'.join(LOG_LEVELS)})\b")
    for path, text in sources().items():
        # The command line writes for people, not through the driver's log.
        if "cli" in path.parts or not log_call.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr=level), args=[ast.Constant(value=str(event)), *_]
                ) if level in LOG_LEVELS:
                    written.add((event, level))
    shown = {(bare(row[0]), row[1]) for row in rows((DOCS / "howto" / "logs.md").read_text())}
    assert shown == written
