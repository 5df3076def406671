"""What the page about the exchange says of its code."""

from __future__ import annotations

import re
from pathlib import Path

from examples.exchange import browsers, desk, engine, matching
from examples.exchange.__main__ import DEATHS_MOST, PARTS
from examples.exchange.book import LEVELS_MOST

ROOT = Path(__file__).parents[2]
CODE = ROOT / "examples/exchange"
PAGE = (ROOT / "docs/explanation/exchange.md").read_text()


def test_the_title_is_true() -> None:
    found = re.match(r"# An exchange in under ([\d,]+) lines\n", PAGE)
    assert found is not None
    lines = sum(len(path.read_text().splitlines()) for path in CODE.glob("*.py"))
    assert lines < int(found[1].replace(",", ""))


def test_every_module_is_named() -> None:
    named = set(re.findall(r"`(\w+)\.py`", PAGE)) | {"__init__"}
    assert {path.stem for path in CODE.glob("*.py")} - named == {"load"}
    assert "examples.exchange.load" in PAGE
    assert {f"{part}.py" for part in PARTS} <= {path.name for path in CODE.glob("*.py")}


def test_the_limits_are_those_of_the_code() -> None:
    for number in (
        matching.ACCOUNTS_MOST,
        matching.ORDERS_MOST,
        matching.ANSWERS_KEPT,
        matching.CHECKPOINT,
        LEVELS_MOST,
        engine.WAITING_MOST,
        engine.FILLS_KEPT,
        browsers.BROWSERS_MOST,
        browsers.ORDERS_AT_ONCE,
        desk.FILLS_WAITING_MOST,
        DEATHS_MOST,
    ):
        assert re.search(rf"\b{number:,}\b", PAGE), number
