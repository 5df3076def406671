"""What the parts of one archive share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from aeron_async.archive.catalog_desk import CatalogDesk
    from aeron_async.archive.context import ArchiveContext
    from aeron_async.archive.disk.files import Directory
    from aeron_async.archive.disk_threads import Disk
    from aeron_async.archive.signal_hub import SignalHub
    from aeron_async.archive.tasks import Tasks
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.signal import Signal

__all__ = ["ArchiveResources"]


@attrs.frozen(kw_only=True, eq=False)
class ArchiveResources:
    """Handed to every part of an archive, and owned by none.

    Attributes:
        archive_id: Tells the archive from others.
        changed: Rings when a recording has begun, has ended, or is another than before.
    """

    aeron: Aeron
    context: ArchiveContext
    archive_id: int
    directory: Directory
    desk: CatalogDesk
    disk: Disk
    signals: SignalHub
    tasks: Tasks
    changed: Signal
