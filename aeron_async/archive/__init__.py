"""Recording and replaying of streams, in Aeron Archive's own format.

Names are imported on first use, so that a program that only reads files loads no client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aeron_async.archive.api import (
        ALL_AND_FOLLOW,
        ALL_AND_STOP,
        Archive,
        RecordingSignal,
        RecordingSignalEvent,
        RecordingSubscription,
        Replay,
        SignalReader,
        SourceLocation,
    )
    from aeron_async.archive.context import ArchiveContext
    from aeron_async.archive.control.client import RemoteArchive
    from aeron_async.archive.control.server import ControlServer
    from aeron_async.archive.control.settings import ControlSettings
    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.archive.durable.consumer import Consumer
    from aeron_async.archive.durable.cursors import (
        Cursor,
        CursorStore,
        FileCursorStore,
        SqliteCursorStore,
    )
    from aeron_async.archive.durable.producer import Producer
    from aeron_async.archive.durable.records import Boundary, Record, RecordBatch
    from aeron_async.archive.durable.stream import DurableStream
    from aeron_async.archive.local_archive import LocalArchive
    from aeron_async.archive.persistent_subscription import (
        PersistentSubscription,
        RecordingGap,
        subscribe,
    )

__all__ = [
    "ALL_AND_FOLLOW",
    "ALL_AND_STOP",
    "Archive",
    "ArchiveContext",
    "Boundary",
    "Consumer",
    "ControlServer",
    "ControlSettings",
    "Cursor",
    "CursorStore",
    "DurableStream",
    "FileCursorStore",
    "LocalArchive",
    "PersistentSubscription",
    "Producer",
    "Record",
    "RecordBatch",
    "RecordingDescriptor",
    "RecordingGap",
    "RecordingSignal",
    "RecordingSignalEvent",
    "RecordingSubscription",
    "RemoteArchive",
    "Replay",
    "SignalReader",
    "SourceLocation",
    "SqliteCursorStore",
    "subscribe",
]

MODULES: Final = {
    "ArchiveContext": "context",
    "Boundary": "durable.records",
    "Consumer": "durable.consumer",
    "ControlServer": "control.server",
    "ControlSettings": "control.settings",
    "Cursor": "durable.cursors",
    "CursorStore": "durable.cursors",
    "DurableStream": "durable.stream",
    "FileCursorStore": "durable.cursors",
    "LocalArchive": "local_archive",
    "PersistentSubscription": "persistent_subscription",
    "Producer": "durable.producer",
    "Record": "durable.records",
    "RecordBatch": "durable.records",
    "RecordingDescriptor": "disk.descriptor",
    "RecordingGap": "persistent_subscription",
    "RemoteArchive": "control.client",
    "SqliteCursorStore": "durable.cursors",
    "subscribe": "persistent_subscription",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"{__name__}.{MODULES.get(name, 'api')}"), name)
