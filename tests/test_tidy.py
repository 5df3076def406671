"""The shape of the tree, executed: file and function sizes, and which floor may import which."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "aeron_async"
FILE_LIMIT = 900
FUNCTION_LIMIT = 60
SMALL = 80

# What each floor may import of the package; `OPEN_TO_ALL` lists what all may import. The longest
# prefix decides.
FLOORS: dict[str, tuple[str, ...]] = {
    "_speedups": ("_speedups",),
    "errors": (),
    "clock": (),
    "counters": (),
    "door": ("clock", "door_connection", "door_socket", "stats_json"),
    "door_connection": ("door_socket",),
    "door_socket": (),
    "doorbell": ("clock", "concurrent", "counters", "logbuffer", "watcher"),
    "health": (),
    "idle_strategy": ("clock", "protocol.units"),
    "logs": (),
    "metrics": ("metrics", "clock", "protocol"),
    "metrics.definitions": (),
    "metrics.series": ("metrics.definitions", "protocol"),
    "metrics.text": ("metrics.definitions", "metrics.series", "protocol"),
    "settings": ("protocol.units", "unused_variables"),
    "stats": (),
    "stats_columns": (),
    "stats_json": ("stats",),
    "tasks": (),
    "text": (),
    "trace_context": (),
    "unused_variables": (),
    "waits": (),
    "watcher": ("clock", "concurrent", "idle_strategy"),
    "protocol": ("protocol",),
    "codecs": ("codecs", "protocol", "trace_context"),
    "logbuffer": ("logbuffer", "protocol"),
    "concurrent": ("concurrent", "protocol"),
    "aeron_directory": ("concurrent", "logbuffer", "protocol", "counters"),
    "driver.core": (
        "clock",
        "concurrent",
        "door_socket",
        "driver.core",
        "idle_strategy",
        "logbuffer",
        "protocol",
        "counters",
    ),
    "driver": (
        "driver",
        "aeron_directory",
        "door",
        "doorbell",
        "concurrent",
        "health",
        "idle_strategy",
        "logbuffer",
        "protocol",
        "counters",
        "clock",
        "watcher",
    ),
    "client": (
        "client",
        "codecs",
        "concurrent",
        "doorbell",
        "aeron_directory",
        "driver.commands",
        "driver.counter_stats",
        "driver.own_loop",
        "driver.media_driver",
        "driver.core.context",
        "idle_strategy",
        "watcher",
        "logbuffer",
        "protocol",
        "counters",
        "clock",
    ),
    "archive": (
        "archive",
        "client",
        "logbuffer",
        "protocol",
        "counters",
        "clock",
        "unused_variables",
    ),
    "rpc": ("rpc", "client", "codecs", "counters", "protocol", "clock", "trace_context"),
    "cli": ("",),
    "spark": (
        "spark",
        "archive",
        "client",
        "codecs",
        "flow_control",
        "logbuffer",
        "protocol",
        "clock",
    ),
    "testing": ("",),
    "__main__": ("cli",),
    "": (
        "client",
        "driver.commands",
        "driver.own_loop",
        "driver.media_driver",
        "driver.core",
        "protocol",
        "clock",
        "flow_control",
        "congestion_control",
        "name_resolver",
        "waits",
    ),
}
# What only these may touch of the world outside.
ONLY = {
    "pyspark": ("spark",),
    "deltalake": ("spark",),
    "duckdb": ("cli",),
    "polars": ("spark",),
    "pyarrow": ("spark", "client.arrow", "codecs.columns", "codecs.sbe_columns"),
    "numpy": ("spark", "codecs.columns", "codecs.sbe_columns"),
    "google": ("codecs.values",),
    "msgspec": ("codecs.values",),
    "cyclopts": ("cli",),
    # Frameworks of applications, which use us and not the other way around.
    "aiohttp": (),
    "fastapi": (),
    "httpx2": (),
    "opentelemetry": ("metrics.otel",),
    "prometheus_client": ("metrics.prometheus",),
    "rich": ("cli",),
    "starlette": ("cli",),
    "structlog": ("cli",),
    "textual": ("cli",),
    "uvicorn": ("cli",),
    "uvloop": ("cli", "driver.own_loop"),
    "socket": ("door", "door_connection", "door_socket", "driver.media", "health"),
    "random": ("driver",),
    "time": ("clock",),
}
TOP_LEVEL = {
    "CHANGELOG.md",
    "LICENSE",
    "MANIFEST.in",
    "Makefile",
    "README.md",
    "aeron_async",
    "benchmarks",
    "docs",
    "examples",
    "pyproject.toml",
    "tests",
}
OPEN_TO_ALL = {
    "_speedups",
    "errors",
    "logs",
    "settings",
    "stats",
    "stats_columns",
    "tasks",
    "text",
    "waits",
}
DOORS = ("cli", "spark", "testing")


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor_of(name: str) -> str:
    candidates = [floor for floor in FLOORS if floor and is_within(name, floor)]
    return max(candidates, key=len, default="")


def is_within(name: str, floor: str) -> bool:
    return not floor or name == floor or name.startswith(f"{floor}.")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def statements(path: Path) -> tuple[ast.AST, ...]:
    """Return all statements of a module, and what holds some: expressions are most of its nodes."""
    found: list[ast.AST] = [*parsed(path).body]
    for each in found:
        for inner in ("body", "handlers", "orelse", "finalbody", "cases"):
            found += getattr(each, inner, ())
    return tuple(found)


@cache
def imports(path: Path) -> tuple[str, ...]:
    found: list[str] = []
    for node in statements(path):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            if node.module == "aeron_async":
                found += [f"aeron_async.{alias.name}" for alias in node.names]
            else:
                found.append(node.module)
    return tuple(found)


@cache
def importers() -> dict[str, set[str]]:
    """Return who imports each module, for types as well as at run time, packages left out."""
    names = {module_name(path): path for path in modules()}
    found: dict[str, set[str]] = {name: set() for name in names}
    for name, path in names.items():
        for node in statements(path):
            if isinstance(node, ast.ImportFrom):
                source = (node.module or "").removeprefix("aeron_async").removeprefix(".")
                for alias in node.names:
                    inner = f"{source}.{alias.name}".removeprefix(".")
                    target = inner if inner in names else source
                    if target in found and target != name and names[target].stem != "__init__":
                        found[target].add(name)
    return found


def test_no_more_than_two_modules_import_each_other() -> None:
    """Three or more that need one another, be it for types, are one concept cut into pieces."""
    edges = importers()
    bits = {name: 1 << number for number, name in enumerate(edges)}
    # What a walk along the edges comes to, by way of one module more in each turn.
    behind = {name: sum(bits[each] for each in found) for name, found in edges.items()}
    for middle, bit in bits.items():
        for name in edges:
            if behind[name] & bit:
                behind[name] |= behind[middle]
    circles = {
        frozenset(other for other in edges if behind[name] & bits[other] and behind[other] & bit)
        for name, bit in bits.items()
        if behind[name] & bit
    }
    assert [sorted(circle) for circle in circles if len(circle) > 2] == []


def test_a_small_module_serves_more_than_one_other() -> None:
    """A concept has a file; a piece that only one other file uses belongs into that file."""
    entries = {module_name(path) for path in modules() if path.stem in {"__init__", "__main__"}}
    lonely = []
    for path in modules():
        name = module_name(path)
        is_small = len(path.read_text().splitlines()) < SMALL
        if is_small and len(importers()[name]) == 1 and not importers()[name] <= entries:
            lonely.append(name)
    assert lonely == []


def test_every_function_is_short_enough_to_read() -> None:
    too_long = [
        f"{path}: {node.name}"
        for path in modules()
        for node in statements(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LIMIT
    ]
    assert too_long == []


@pytest.mark.parametrize("folder", ["aeron_async", "tests", "examples", "benchmarks"])
def test_every_file_is_short_enough_to_read(folder: str) -> None:
    paths = [path for path in (ROOT / folder).rglob("*.py*") if path.suffix != ".pyc"]
    lengths = {path: len(path.read_text().splitlines()) for path in paths}
    assert {path for path, length in lengths.items() if length > FILE_LIMIT} == set()


def test_every_floor_imports_only_from_floors_below() -> None:
    forbidden = []
    for path in modules():
        floor = floor_of(module_name(path))
        for name in imports(path):
            top, _, inner = name.partition(".")
            if top != "aeron_async" or inner.partition(".")[0] in OPEN_TO_ALL:
                continue
            if not any(is_within(inner, allowed) for allowed in FLOORS[floor]):
                forbidden.append(f"{module_name(path)} must not import {inner}")
    assert forbidden == []


def test_the_world_is_touched_by_one_floor_only() -> None:
    forbidden = []
    for path in modules():
        name = module_name(path)
        for imported in imports(path):
            owners = ONLY.get(imported.partition(".")[0], ("",))
            owned = any(is_within(name, owner) for owner in owners)
            if not owned and floor_of(name) not in DOORS:
                forbidden.append(f"{name} must not import {imported}")
    assert forbidden == []


def test_a_core_takes_only_constants_from_the_clock() -> None:
    taken = {
        alias.name
        for path in (PACKAGE / "driver" / "core").rglob("*.py")
        for node in statements(path)
        if isinstance(node, ast.ImportFrom) and node.module == "aeron_async.clock"
        for alias in node.names
    }
    assert {name for name in taken if not name.isupper()} == set()


def test_no_two_classes_share_a_name() -> None:
    """One name, one concept.

    `Verdict` is public of authenticators and of simulated networks. `Counter` is public for
    applications, as Aeron's, and what all counters are, which Aeron calls `AtomicCounter`.
    """
    names = Counter(
        node.name
        for path in modules()
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} == {"Counter", "Verdict"}


def test_every_task_has_an_owner() -> None:
    """A task belongs to a task group or to a `TaskOwner`; `testing` has loops of its own."""
    makers = "create_task", "ensure_future"
    bare = [
        f"{path}:{node.lineno}"
        for path in modules()
        if module_name(path) != "tasks" and floor_of(module_name(path)) != "testing"
        if any(name in path.read_text() for name in makers)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in makers
        and not (isinstance(node.func.value, ast.Name) and node.func.value.id == "group")
    ]
    assert bare == []


def test_the_floors_stand_in_order() -> None:
    order = ("protocol", "logbuffer", "driver.core", "driver", "client", "archive")
    for lower, upper in pairwise(order):
        assert upper not in FLOORS[lower]


def test_the_top_level_holds_no_more() -> None:
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()]
    assert {
        path.name
        for path in ROOT.iterdir()
        if path.name[0] != "." and not any(path.match(pattern) for pattern in ignored)
    } == TOP_LEVEL


def test_nothing_is_left_unsaid() -> None:
    assert [path for path in modules() if not ast.get_docstring(parsed(path))] == []


ONE_HOME = {
    "protocol.units": ("INT32_MIN", "INT32_MAX", "INT64_MIN", "INT64_MAX"),
    "protocol.control_protocol": ("NO_ID", "NO_COUNTER"),
    "clock": ("NS_PER_MS",),
}


def test_a_number_that_many_need_is_defined_once() -> None:
    homes = {name: home for home, names in ONE_HOME.items() for name in names}
    defined = {
        (node.target.id, module_name(path))
        for path in modules()
        if not is_within(module_name(path), "spark.pipeline")
        for node in parsed(path).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert {each for each in defined if each[0] in homes} == set(homes.items())


def test_the_pythons_that_are_promised_are_those_that_are_tested() -> None:
    """The classifiers name each Python from the oldest one allowed to the newest tested."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    prefix = "Programming Language :: Python :: 3."
    named = [
        int(each.removeprefix(prefix))
        for each in project["project"]["classifiers"]
        if each.startswith(prefix)
    ]
    oldest = re.fullmatch(r">=3\.(\d+)", project["project"]["requires-python"])
    assert oldest is not None
    matrix = re.search(r"^PYTHONS \?= (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert matrix is not None
    tested = [int(each.removeprefix("python3.")) for each in matrix[1].split()]
    assert named == list(range(int(oldest[1]), max(named) + 1))
    # Newer ones run in the matrix; what the oldest one takes is what linters and types hold to.
    assert tested == named[1:]
    assert project["tool"]["mypy"]["python_version"] == f"3.{oldest[1]}"
    assert f"Python 3.{oldest[1]} or later" in (ROOT / "README.md").read_text()
    assert sys.version_info[:2] >= (3, int(oldest[1]))
