"""An archive with one recording of some segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from aeron_async.archive.disk.catalog import Catalog
from aeron_async.archive.disk.files import OsDirectory
from aeron_async.archive.disk.recording_writer import RecordingWriter
from tests.archive.disk.streams import FrameSource, described

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.archive.disk.checksums import Checksum
    from aeron_async.archive.disk.descriptor import RecordingDescriptor

END = 600_000


@attrs.define
class Kept:
    """An archive, and what was recorded in it."""

    path: Path
    directory: OsDirectory
    catalog: Catalog
    data: bytes
    stop: int
    starts: list[int]

    @property
    def descriptor(self) -> RecordingDescriptor:
        return self.catalog.get(0)

    def files(self) -> list[int]:
        names = [each for each in self.directory.names() if each.endswith(".rec")]
        return sorted(int(each.split("-")[1].split(".")[0]) for each in names)


def recorded(path: Path, checksum: Checksum | None = None, *, stops: bool = True) -> Kept:
    """Return an archive with a recording from 4,096 to about 600,000."""
    directory = OsDirectory(path)
    catalog = Catalog.open(directory, capacity=4_096)
    descriptor = catalog.add(described(start_position=4_096))
    writer = RecordingWriter(directory, descriptor, position=4_096, checksum=checksum)
    source, data = FrameSource(descriptor, 7), bytearray()
    while writer.position < END:
        block, padding = source.block()
        writer.write([(block, padding)])
        data += block
        data += bytes(padding)
    writer.close()
    if stops:
        catalog.update(0, stop_position=writer.position, stop_timestamp_ms=9)
    starts, at = [], 0
    while at < len(data):
        starts.append(4_096 + at)
        at += (int.from_bytes(data[at : at + 4], "little") + 31) & -32
    return Kept(path, directory, catalog, bytes(data), writer.position, starts)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return recorded(tmp_path)
