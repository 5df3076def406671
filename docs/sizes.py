"""How much one has to read: figures of a checkout of this package.

`python docs/sizes.py [CHECKOUT]` prints the figures of the whole package, and for each concept the
modules that its own module imports when it runs, and those in turn, within the folders named.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Final, TypeAlias

Modules: TypeAlias = dict[str, Path]

# Settings, counters and the like: nobody reads them to understand what uses them.
VOCABULARY: Final = {
    "context",
    "driver_counters",
    "environment",
    "strategies",
    "stream_counters",
    "suppliers",
    "system_counters",
    "udp_channel",
}
CONCEPTS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...], set[str]]]] = {
    "`NetworkPublication`": (
        ("driver.core.network_publication",),
        ("driver.core",),
        VOCABULARY,
    ),
    "`PublicationImage`": (("driver.core.publication_image",), ("driver.core",), VOCABULARY),
    "the conductor": (("driver.conductor",), ("driver",), VOCABULARY),
    "channel URIs": (("protocol.channel_uri",), ("protocol",), set()),
    "the settings of a driver": (
        ("driver.core.context",),
        ("driver.core", "settings"),
        {"strategies", "suppliers"},
    ),
    "recording": (
        ("archive.recordings", "archive.recording_session", "archive.disk.recording_writer"),
        ("archive.disk", "archive"),
        {"context", "control", "api"},
    ),
    "the Spark source": (("spark.source",), ("spark",), set()),
    "`aeron-async archive record`": (
        ("cli.archive_record", "cli.archive.record"),
        ("cli",),
        set(),
    ),
}
APART: Final = {
    "the conductor": ("driver.core", "driver.media"),
    "the Spark source": (
        "spark.sink",
        "spark.pipeline",
        "spark.decoding",
        "spark.replayed_archive",
    ),
}
"""Folders with concepts of their own."""


def main() -> None:
    """Print the figures."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]) / "aeron_async"
    modules = {name_of(path, root): path for path in root.rglob("*.py")}
    say(f"{len(modules)} files, {sum(map(line_count, modules.values()))} lines")
    say(f"{sum(len(each) == 1 for each in users(modules).values())} modules with one importer")
    for concept, (starts, folders, skipped) in CONCEPTS.items():
        found = needed(modules, starts, folders, skipped, APART.get(concept, ()))
        class_count = sum(
            isinstance(node, ast.ClassDef)
            for name in found
            for node in ast.walk(ast.parse(modules[name].read_text()))
        )
        lines = sum(line_count(modules[name]) for name in found)
        say(f"{concept}: {len(found)} files, {class_count} classes, {lines} lines")


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")


def name_of(path: Path, root: Path) -> str:
    """Return the name of a module within the package."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def line_count(path: Path) -> int:
    """Return the number of lines of a file."""
    return len(path.read_text().splitlines())


def imported(modules: Modules, name: str, *, for_types: bool) -> set[str]:
    """Return the modules of the package that a module imports, for type checkers only or not."""
    tree = ast.parse(modules[name].read_text())
    guarded = {
        id(node)
        for each in tree.body
        if isinstance(each, ast.If) and "TYPE_CHECKING" in ast.unparse(each.test)
        for node in ast.walk(each)
    }
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        if node.module.startswith("aeron_async") and (for_types or id(node) not in guarded):
            source = node.module.removeprefix("aeron_async").removeprefix(".")
            for alias in node.names:
                inner = f"{source}.{alias.name}".strip(".")
                found.add(inner if inner in modules else source)
    return found & modules.keys()


def users(modules: Modules) -> dict[str, set[str]]:
    """Return for each module those that import it."""
    found: dict[str, set[str]] = {name: set() for name in modules}
    for name in modules:
        for each in imported(modules, name, for_types=True) - {name}:
            found[each].add(name)
    return found


def needed(
    modules: Modules,
    starts: tuple[str, ...],
    folders: tuple[str, ...],
    skipped: set[str],
    apart: tuple[str, ...],
) -> set[str]:
    """Return the modules that a concept needs, within some folders."""
    found: set[str] = set()
    todo = [name for name in starts if name in modules]
    while todo:
        name = todo.pop()
        found.add(name)
        todo += [
            each
            for each in imported(modules, name, for_types=False) - found
            if any(is_within(each, folder) for folder in folders)
            and not any(is_within(each, folder) for folder in apart)
            and each.rpartition(".")[2] not in skipped
        ]
    return found


def is_within(name: str, folder: str) -> bool:
    """Return whether a module is a folder or lies in it."""
    return name == folder or name.startswith(f"{folder}.")


if __name__ == "__main__":
    main()
