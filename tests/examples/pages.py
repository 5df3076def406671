"""The documentation as the tests read it: pages, fenced blocks, tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "aeron_async"
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]

BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[^\n]+) -->\n)?^(?P<indent> *)```(?P<language>\w+)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
CELL_BREAK = re.compile(r"(?<!\\)\|")


class Block(NamedTuple):
    """A fenced block; the note is the comment right above it."""

    page: Path
    note: str
    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    return [
        Block(page, found["note"] or "", found["language"], found["text"])
        for found in BLOCK.finditer(page.read_text())
    ]


def blocks() -> list[Block]:
    return [block for page in PAGES for block in blocks_of(page)]


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def section(page: Path, title: str) -> str:
    """Return what stands between this heading of the second level and the next."""
    _, found, rest = page.read_text().partition(f"\n## {title}\n")
    assert found, f"{page} has no section {title!r}"
    return rest.partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """Return the cells of every table row, without headings and rulers."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    headings = {index - 1 for index, line in enumerate(lines) if re.fullmatch(r"[|-]+", line)}
    return [
        [cell.strip().replace("\\|", "|") for cell in CELL_BREAK.split(line)[1:-1]]
        for index, line in enumerate(lines)
        if index not in headings and index - 1 not in headings
    ]


def sources() -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


def bare(cell: str) -> str:
    """Return a cell without its code marks."""
    return cell.strip("`")
