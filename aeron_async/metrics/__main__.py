"""`python -m aeron_async.metrics dashboard|alerts`: the files for Grafana and Prometheus.

Both are made for the metrics of `aeron_async.metrics.definitions`.
"""

from __future__ import annotations

import argparse
import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FILES", "main", "shipped"]

FILES: Final = {"dashboard": "aeron-dashboard.json", "alerts": "aeron-alerts.yml"}
"""The files by what they are."""
PAGE: Final = re.compile(r"\bdocs/([\w/-]+)\.md#")


def shipped(what: str, docs_url: str = "") -> str:
    """Return the text of one of `FILES`.

    Args:
        what: `dashboard` or `alerts`.
        docs_url: Where the site of the documentation is served; empty leaves the names of pages.

    Raises:
        KeyError: There is no such file.
    """
    text = files("aeron_async.metrics").joinpath("files", FILES[what]).read_text(encoding="utf-8")
    base = docs_url.rstrip("/")
    return PAGE.sub(lambda page: f"{base}/{page[1]}.html#", text) if base else text


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a file, or write it; return the exit code, 1 if it cannot be written."""
    parser = argparse.ArgumentParser(
        prog="python -m aeron_async.metrics",
        description="Print the dashboard for Grafana, or the alert rules for Prometheus.",
    )
    parser.add_argument("what", choices=sorted(FILES))
    parser.add_argument("path", nargs="?", type=Path, help="write it here, and not to the terminal")
    parser.add_argument(
        "--docs-url", default="", metavar="URL", help="where the site of the documentation is"
    )
    options = parser.parse_args(arguments)
    text = shipped(options.what, options.docs_url)
    if options.path is None:
        sys.stdout.write(text)
        return 0
    try:
        options.path.write_text(text, encoding="utf-8")
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
