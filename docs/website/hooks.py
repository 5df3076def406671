"""Hooks of MkDocs: what the site has beside the pages, made from the pages and the package."""

from __future__ import annotations

import ast
import hashlib
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mermaidx  # type: ignore[import-untyped]
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
INDEX = ROOT / "docs" / "index.md"
CHANGELOG = "changelog.md"
PACKAGES = (
    "aeron_async",
    "aeron_async.archive",
    "aeron_async.testing",
    "aeron_async.spark",
    "aeron_async.spark.lake",
)
COLORS = (Path(__file__).parent / "diagrams.css").read_text()
FETCHED = re.compile(r"""(?:\bsrc=|<link\b[^>]*\bhref=|url\()["']?((?:https?:)?//[^"'\s>]+)""")
EXAMPLE = re.compile(r"^<!-- (examples/\S+\.py) -->\n```python$", re.MULTILINE)
LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Order the navigation as the index does, and draw diagrams while pages are built."""
    config.nav = navigation()
    config.mdx_configs["pymdownx.superfences"] = {
        "custom_fences": [{"name": "mermaid", "class": "diagram", "format": drawing}]
    }
    return config


def navigation() -> list[Any]:
    """Return the sections of the index, each with its links in order, and the API reference."""
    nav: list[Any] = [{"Start": "index.md"}]
    for line in re.split(r"\n(?=- |\S+.*:\n)", INDEX.read_text()):
        if not line.startswith("- "):
            if line.rstrip().endswith(":"):
                nav.append({line.strip().rstrip(":"): []})
            continue
        (pages,) = nav[-1].values()
        pages += [
            {re.sub(r"\s+", " ", title).capitalize() if title.islower() else title: site_path(aim)}
            for title, aim in LINK.findall(line)
        ]
    (pages,) = nav[-1].values()
    pages.append({"Python": [{package: api_path(package)} for package in PACKAGES]})
    return nav


def site_path(link: str) -> str:
    """Return where the aim of a link of the index is on the site."""
    return CHANGELOG if link.endswith("CHANGELOG.md") else link


def api_path(package: str) -> str:
    """Return where the reference of a package is on the site."""
    return f"reference/python/{package}.md"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the changelog, and a page for each public package."""
    changelog = ROOT / "CHANGELOG.md"
    files.append(File.generated(config, CHANGELOG, content=changelog.read_text()))
    for package in PACKAGES:
        files.append(File.generated(config, api_path(package), content=reference(package)))
    return files


def reference(package: str) -> str:
    """Return the page of one package: every public name, for mkdocstrings to fill in."""
    source = ROOT.joinpath(*package.split("."), "__init__.py").read_text()
    (names,) = [
        ast.literal_eval(statement.value)
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__"
    ]
    return "\n\n".join([f"# {package}", *(f"::: {package}.{name}" for name in names)])


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Point links to and from the changelog at where it is on the site, and title the examples."""
    if page.file.src_uri == "index.md":
        return markdown.replace("](../CHANGELOG.md)", f"]({CHANGELOG})")
    if page.file.src_uri == CHANGELOG:
        return markdown.replace("](docs/", "](")
    # `host[:port][/prefix]` is a grammar, though mkdocstrings would take it for a reference.
    return EXAMPLE.sub(r'```python title="\1"', markdown.replace("][/", r"]\[/"))


def on_post_page(output: str, *, page: Page, **_: object) -> str:
    """Refuse a page that makes a browser fetch anything from elsewhere."""
    fetched = FETCHED.findall(output)
    if fetched:
        message = f"{page.file.src_uri} has a browser fetch {', '.join(fetched)}"
        raise PluginError(message)
    return output


def drawing(source: str, _language: str, css_class: str, *_: object, **__: object) -> str:
    """Return a diagram as the SVG that Mermaid makes of it, with ids of its own."""
    name = f"diagram-{hashlib.sha256(source.encode()).hexdigest()[:8]}"
    diagram = mermaidx.render(merged(source), config={"themeCSS": COLORS})
    return f'<figure class="{escape(css_class)}">{diagram.svg().replace("my-svg", name)}</figure>'


def merged(source: str) -> str:
    """Return a diagram with one arrow from state to state, where Mermaid draws labels on labels."""
    lines: list[str] = []
    places: dict[str, int] = {}
    for line in source.splitlines():
        arrow, _, event = line.partition(": ")
        if arrow in places:
            lines[places[arrow]] += f"<br>{event}"
            continue
        if event and " --> " in arrow:
            places[arrow] = len(lines)
        lines.append(line)
    return "\n".join(lines)
