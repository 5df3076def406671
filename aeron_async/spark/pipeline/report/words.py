"""Numbers and foreign words as a report shows them."""

from __future__ import annotations

import html
from typing import Final

from aeron_async.text import printable

__all__ = ["escape", "format_amount", "format_ns"]

AMOUNTS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
TIMES: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "\N{GREEK SMALL LETTER MU}s"))


def escape(text: str) -> str:
    """Return foreign words for the page: no markup, and nothing that hides or turns letters."""
    return html.escape(printable(text))


def format_amount(value: float, unit: str) -> str:
    """Return `1.5 kB/s`, in powers of ten."""
    for scale, prefix in AMOUNTS:
        if value >= scale:
            return f"{value / scale:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def format_ns(value: float) -> str:
    """Return `850 ns`, `12.3 μs` or `1.23 ms`."""
    for scale, unit in TIMES:
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f} ns"
