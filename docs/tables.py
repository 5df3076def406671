"""The tables of settings on the pages, written from the declarations.

`make settings` writes every table below a marker: `<!-- settings of ArchiveContext -->` for all
settings of a class, `<!-- settings of DriverContext, from timer_interval_ns -->` for those from
one field on, up to the first field of the next marker.

It also writes line numbers: in a row ``| 1 | `Sender.on_offer` | `driver/sender.py:9` |`` the line
at which that function begins.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aeron_async.archive.context import ArchiveContext
from aeron_async.archive.control.settings import ControlSettings
from aeron_async.driver.core.context import DriverContext
from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.pipeline.settings import PipelineSettings
from aeron_async.spark.sink.options import SinkOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.settings import Setting, Settings

DOCS: Final = Path(__file__).parent
CLASSES: Final[dict[str, type[Settings]]] = {
    each.__name__: each
    for each in (
        DriverContext,
        ArchiveContext,
        ControlSettings,
        ArchiveOptions,
        SinkOptions,
        PipelineSettings,
    )
}
MARKER: Final = re.compile(
    r"(?P<marker><!-- settings of (?P<owner>\w+)(?:, from (?P<first>\w+))? -->\n\n)"
    r"(?P<table>(?:\|.*\n)*)"
)
NO_EFFECT: Final = " †"
HOP: Final = re.compile(r"(?P<begin>\| `(?P<name>[\w.]+)` \| `(?P<file>[\w/]+\.py)):\d+`")
PACKAGE: Final = DOCS.parent / "aeron_async"


def main() -> None:
    """Write the tables of all pages."""
    for page in pages():
        text = page.read_text()
        if (new := with_lines(written(text))) != text:
            page.write_text(new)


def pages() -> list[Path]:
    """Return the pages of the documentation."""
    return sorted(DOCS.rglob("*.md"))


def written(text: str) -> str:
    """Return a page with its tables as the declarations have them."""
    return MARKER.sub(
        lambda found: f"{found['marker']}{table(found['owner'], found['first'])}", text
    )


def with_lines(text: str) -> str:
    """Return a page with the line numbers of its hops as the code has them."""
    return HOP.sub(lambda found: f"{found['begin']}:{line_of(found['file'], found['name'])}`", text)


def line_of(file: str, name: str) -> int:
    """Return the line at which a function or method of the package begins.

    Raises:
        LookupError: There is none.
    """
    body = tree(PACKAGE / file).body
    line = 0
    for part in name.split("."):
        named = [
            each
            for each in body
            if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and each.name == part
        ]
        if not named:
            message = f"{file} has no {name}"
            raise LookupError(message)
        body, line = named[0].body, named[0].lineno
    return line


@cache
def tree(path: Path) -> ast.Module:
    """Return the parsed text of a module."""
    return ast.parse(path.read_text())


def table(owner: str, first: str | None) -> str:
    """Return one table: the settings of a class from one field on."""
    settings = CLASSES[owner].settings()
    has_variables = any(each.env_name for each in settings.values())
    has_parameters = any(each.uri_key for each in settings.values())
    heads = ["field", "property", "environment"] if has_variables else ["name"]
    heads += [*(["URI"] if has_parameters else []), "default", "limits", "meaning"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for name in fields_from(owner, first):
        each = settings[name]
        mark = "" if each.has_effect else NO_EFFECT
        cells = [f"`{name}`{mark}"] if has_variables else [f"`{each.name}`{mark}"]
        cells += [f"`{each.name}`", f"`{each.env_name}`"] if has_variables else []
        cells += [f"`{each.uri_key}`" if each.uri_key else ""] if has_parameters else []
        cells += [default_of(each), each.kind.limits(), each.doc]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "".join(f"{line}\n" for line in lines)


def default_of(setting: Setting) -> str:
    """Return the default of a setting as text."""
    return setting.format(setting.default)


def fields_from(owner: str, first: str | None) -> list[str]:
    """Return the fields of one table."""
    names = list(CLASSES[owner].settings())
    places = sorted(names.index(each) for each in first_fields(owner) if each)
    begin = names.index(first) if first else 0
    for low, high in pairwise([*places, len(names)]):
        if low == begin:
            return names[low:high]
    return names


def first_fields(owner: str) -> Iterator[str | None]:
    """Return the first field of every table of a class."""
    for page in pages():
        for found in MARKER.finditer(page.read_text()):
            if found["owner"] == owner:
                yield found["first"]


if __name__ == "__main__":
    main()
