"""Which run of the system this is: what was not on the disk is lost when another begins."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["current_boot"]

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def current_boot() -> int:
    """Return a number that tells this run of the system from others; 0 where it has none."""
    try:
        text = BOOT_ID.read_text()
    except OSError:
        return 0
    return int(text.replace("-", "")[:15], 16)
