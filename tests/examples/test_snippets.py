"""What the pages show is what the files say: code, output, channels and links."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

from aeron_async.protocol.channel_uri import ChannelUri
from tests.examples.pages import PAGES, ROOT, Block, blocks, page_id
from tests.examples.programs import channel, run

CODE = [block for block in blocks() if block.language == "python"]
OUTPUT = [block for block in blocks() if block.note.startswith("output of ")]
LANGUAGES = {"python", "text", "console", "mermaid", "toml"}
LINK = re.compile(r"\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)")


def block_id(block: Block) -> str:
    return f"{block.page.stem}-{block.note}"


@pytest.mark.parametrize("block", CODE, ids=block_id)
def test_code_in_a_page_stands_in_its_example(block: Block) -> None:
    assert block.note, f"name the example above:\n{block.text}"
    example = (ROOT / block.note).read_text()
    # The same lines in a row, however deep.
    lines = [line.strip() for line in example.splitlines()]
    shown = [line.strip() for line in block.text.splitlines()]
    starts = [i for i in range(len(lines)) if lines[i : i + len(shown)] == shown]
    assert starts, f"{block.note} does not hold:\n{block.text}"
    held = "\n".join(example.splitlines()[starts[0] : starts[0] + len(shown)])
    assert dedent(block.text).strip() == dedent(held).strip()


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_a_page_names_the_examples_that_it_shows(page: Path) -> None:
    """A reader does not see the comments that name them."""
    text = page.read_text()
    seen = re.sub(r"<!--.*?-->", "", text)
    named = set(re.findall(r"^<!-- (?:output of )?(examples/\S+\.py) -->$", text, re.MULTILINE))
    assert {each for each in named if Path(each).name not in seen} == set()


def test_the_first_snippet_of_a_tutorial_shows_its_imports() -> None:
    pages = [page for page in PAGES if page.parent.name == "tutorial"]
    first = [next((each for each in CODE if each.page == page), None) for page in pages]
    shown = [each for each in first if each is not None]
    assert len(shown) >= 2
    for block in shown:
        assert "import asyncio\n" in block.text, block.page
        assert "\nimport aeron_async as aa\n" in block.text, block.page


def test_the_page_on_metrics_shows_where_each_name_lives() -> None:
    shown = "".join(block.text for block in CODE if block.page.name == "metrics.md")
    assert "import aeron_async as aa\n" in next(
        block.text for block in CODE if block.page.name == "metrics.md"
    )
    for name in ("serve_metrics", "MetricsText", "StatsInstruments", "StatsCollector"):
        assert re.search(rf"^ *from aeron_async\.metrics[.\w]* import {name}$", shown, re.MULTILINE)


def test_the_front_page_shows_the_whole_of_hello() -> None:
    (block,) = [block for block in CODE if block.page.name == "README.md"]
    assert (ROOT / "examples" / "hello.py").read_text().endswith(block.text)


@pytest.mark.parametrize("block", OUTPUT, ids=block_id)
def test_output_in_a_page_is_what_the_example_prints(block: Block, unused_udp_port: int) -> None:
    name = Path(block.note.removeprefix("output of ")).stem
    assert block.text.splitlines() == run(name, CHANNEL=channel(unused_udp_port))


def test_every_channel_in_the_pages_can_be_meant() -> None:
    for page in PAGES:
        for text in re.findall(r"""aeron:udp\?[^\s`'"{]++(?!{)""", page.read_text()):
            ChannelUri.parse(text)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text()):
        aim = (page.parent / target).resolve() if target else page
        assert aim.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", aim.read_text(), re.MULTILINE)
            assert anchor in {heading.lower().replace(" ", "-") for heading in headings}


def test_every_page_can_be_found_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    found = {(index.parent / target).resolve() for target, _ in LINK.findall(index.read_text())}
    assert set(PAGES) - found == {ROOT / "README.md", index}


def test_blocks_are_of_the_known_kinds() -> None:
    assert {block.language for block in blocks()} <= LANGUAGES
    fences = sum(page.read_text().count("```") for page in PAGES)
    assert fences == 2 * len(blocks())


def test_files_that_pages_name_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"`((?:examples|aeron_async|tests)/[\w/]+\.py)`", page.read_text()):
            assert (ROOT / name).exists(), f"{page_id(page)} names {name}"
