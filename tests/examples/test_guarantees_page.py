"""The page about delivery guarantees rests on tests that exist."""

from __future__ import annotations

import re

import pytest

from tests.examples.pages import DOCS, ROOT, rows, section

PAGE = DOCS / "explanation" / "delivery-guarantees.md"
TITLES = ("By channel", "When a side restarts", "By the way it is read", "By feature")


def test_every_test_that_the_page_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text())
    assert len(named) > 30
    for path, name in named:
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), name


@pytest.mark.parametrize("title", TITLES)
def test_every_row_has_its_proof(title: str) -> None:
    for *_, proof in rows(section(PAGE, title)):
        assert re.search(r"`tests/[\w/]+\.py(::\w+)?`|\]\([\w./-]+\.md", proof), proof
