"""The tables of a lake in Delta Lake: files of a version, readers for them, and maintenance.

Names are imported on first access, so that a reader needs only what it reads with.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aeron_async.spark.lake.maintenance import (
        Maintainer,
        MaintenanceSettings,
        TableReport,
        maintain,
    )
    from aeron_async.spark.lake.reading import TableSnapshot, lake_tables, read_delta

__all__ = [
    "Maintainer",
    "MaintenanceSettings",
    "TableReport",
    "TableSnapshot",
    "lake_tables",
    "maintain",
    "read_delta",
]

MODULES: Final = {
    "Maintainer": "maintenance",
    "MaintenanceSettings": "maintenance",
    "TableReport": "maintenance",
    "TableSnapshot": "reading",
    "lake_tables": "reading",
    "maintain": "maintenance",
    "read_delta": "reading",
}


def __getattr__(name: str) -> object:
    if name not in MODULES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
