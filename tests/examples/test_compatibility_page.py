"""The page on compatibility is complete: every difference, every setting without effect."""

from __future__ import annotations

import re
from collections import Counter

from aeron_async.driver.core.context import DriverContext
from tests.examples.pages import DOCS, ROOT, bare, rows, section, sources

PAGE = DOCS / "compatibility.md"
CONFIGURATION = DOCS / "reference" / "configuration.md"
# Where settings are declared and checked, which is not where they are used.
DECLARATIONS = {"context.py", "context_limits.py", "context_settings.py"}


def test_every_difference_is_told() -> None:
    found = {
        str(path.relative_to(ROOT)): len(re.findall(r"\bDiffers:", text))
        for path, text in sources().items()
    }
    told = Counter(bare(row[0]) for row in rows(section(PAGE, "Where we differ")))
    assert told == {path: count for path, count in found.items() if count}


def test_every_setting_without_effect_is_told() -> None:
    used = "".join(
        text
        for path, text in sources().items()
        if path.name not in DECLARATIONS and path.parent.name != "cli"  # which only explains them
    )
    unused = {
        name for name in DriverContext.settings() if not re.search(rf"context\.{name}\b", used)
    }
    told = [bare(row[0]) for row in rows(section(PAGE, "Settings without effect"))]
    assert len(told) == len(set(told))
    marked = re.findall(r"^\| `(\w+)` † \|", CONFIGURATION.read_text(), re.MULTILINE)
    assert set(marked) == set(told)
    assert set(told) == unused


def test_every_feature_is_had_lacked_or_different() -> None:
    for title in (
        "Channels and transports",
        "Wire",
        "Publications",
        "Subscriptions and images",
        "Flow and congestion control",
        "Driver, clients and tools",
    ):
        for feature, here, note in rows(section(PAGE, title)):
            assert here in {"have", "lack", "differ"}, feature
            assert here != "differ" or note, feature
