"""Aeron directories for tests: one that an official driver left, and small ones made here."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aeron_async.concurrent.cnc_file import CNC_VERSION, CncLayout
from aeron_async.concurrent.error_log import DistinctErrorLog
from aeron_async.concurrent.loss_report import LossReport
from aeron_async.concurrent.ring_buffer import HEAD_OFFSET, HEARTBEAT_OFFSET, TAIL_OFFSET
from aeron_async.counters import CountersManager
from aeron_async.driver.core.stream_counters import (
    ImageCounters,
    PublicationCounters,
    allocate_subscription_position,
)
from aeron_async.logbuffer.log_buffers import LogSpec, file_length, initialise
from aeron_async.logbuffer.metadata import METADATA_LENGTH, LogMetadata, LogType
from aeron_async.logbuffer.position import pack_tail

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN: Final = Path(__file__).parents[1] / "golden" / "aeron_directory"
NOW_MS: Final = 1_795_473_000_000
CAPACITY: Final = 1024
COUNTER_COUNT: Final = 32
SMALL: Final = CncLayout(
    to_driver_buffer_length=CAPACITY + 768,
    to_clients_buffer_length=CAPACITY + 128,
    counters_values_buffer_length=COUNTER_COUNT * 128,
    error_log_buffer_length=4096,
    start_timestamp_ms=NOW_MS - 60_000,
    pid=4_711,
)
CHANNEL: Final = "aeron:udp?endpoint=localhost:20121"
TERM_LENGTH: Final = 64 * 1024


def golden_directory(directory: Path) -> Path:
    """Make again what an official driver left; most of it is holes."""
    path = directory
    for line in (GOLDEN / "files.hex").read_text().splitlines():
        first, *rest = line.split()
        if first == "#":
            continue
        if first == "file":
            path = directory / rest[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.truncate(int(rest[1]))
            continue
        with path.open("r+b") as file:
            file.seek(int(first, 16))
            file.write(bytes.fromhex(rest[0]))
    return directory


def cnc_bytes(
    *,
    heartbeat_ms: int = NOW_MS,
    layout: CncLayout = SMALL,
    version: int = CNC_VERSION,
    fill: Callable[[CountersManager], object] | None = None,
    errors: tuple[str, ...] = (),
) -> bytearray:
    """Return a `cnc.dat` whose ring has 96 bytes of commands that its driver has not read."""
    data = bytearray(layout.file_length)
    data[:128] = layout.encode()
    struct.pack_into("<i", data, 0, version)
    trailer = layout.to_driver_buffer.offset + layout.to_driver_buffer_length - 768
    struct.pack_into("<q", data, trailer + HEARTBEAT_OFFSET, heartbeat_ms)
    struct.pack_into("<q", data, trailer + TAIL_OFFSET, 4_096)
    struct.pack_into("<q", data, trailer + HEAD_OFFSET, 4_000)
    view = memoryview(data)
    manager = CountersManager(
        layout.counters_values_buffer.of(view),
        layout.counters_metadata_buffer.of(view),
        free_to_reuse_timeout_ms=1_000,
        epoch_ms=lambda: NOW_MS,
    )
    if fill is not None:
        fill(manager)
    log = DistinctErrorLog(layout.error_log_buffer.of(view))
    for each in errors:
        log.record(each, NOW_MS)
    return bytearray(data)


def fill_streams(manager: CountersManager, channel: str = CHANNEL) -> None:
    """Add a publication with a spy, an image with a subscriber, and a subscriber of nothing."""
    publication = PublicationCounters.allocate(
        manager,
        registration_id=5,
        session_id=-7,
        stream_id=1001,
        channel=channel,
        client_id=1,
        is_exclusive=True,
        is_tracking_receivers=True,
    )
    publication.publisher_position.set(10_000)
    publication.publisher_limit.set(40_000)
    publication.sender_position.set(8_000)
    publication.sender_limit.set(20_000)
    publication.back_pressure_events.set(3)
    publication.naks_received.set(4)
    image = ImageCounters.allocate(
        manager,
        registration_id=9,
        session_id=8,
        stream_id=1002,
        channel=channel,
        client_id=1,
    )
    image.receiver_hwm.set(6_400)
    image.receiver_position.set(6_000)
    image.naks_sent.set(2)
    for registration_id, source_id, position in ((6, 5, 9_000), (7, 9, 5_000), (8, 77, 1_000)):
        allocate_subscription_position(
            manager,
            registration_id=registration_id,
            session_id=8,
            stream_id=1002,
            channel=channel,
            owner_id=1,
            join_position=position,
            reference_id=source_id,
        )


def log_bytes(log_type: LogType, *, tail: int | None = None) -> bytes:
    """Return the metadata of a log, whose file is 200,704 bytes long."""
    block = bytearray(METADATA_LENGTH)
    metadata = LogMetadata(memoryview(block))
    spec = LogSpec(
        session_id=-7,
        stream_id=1001,
        initial_term_id=-3,
        term_length=TERM_LENGTH,
        mtu_length=1408,
        log_type=log_type,
        receiver_window_length=128 * 1024,
    )
    initialise(metadata, spec)
    metadata.term_length, metadata.page_size = TERM_LENGTH, 4096
    metadata.mtu_length, metadata.log_type = 1408, log_type
    if tail is not None:
        metadata.set_tail(0, pack_tail(-3, tail))
    return bytes(block)


def write_log(path: Path, block: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.truncate(file_length(term_length=TERM_LENGTH, page_size=4096))
        file.seek(-METADATA_LENGTH, 2)
        file.write(block)


def loss_bytes(channel: str = CHANNEL, source: str = "127.0.0.1:40086") -> bytearray:
    data = bytearray(4096)
    entry = LossReport(data).create_entry(
        bytes_lost=1_408,
        now_ms=NOW_MS,
        session_id=8,
        stream_id=1002,
        channel=channel,
        source=source,
    )
    assert entry is not None
    entry.record_observation(92, NOW_MS + 1)
    return bytearray(data)


def small_directory(directory: Path, *, channel: str = CHANNEL, error: str = "no room") -> Path:
    """Make a directory with every kind of file, as a driver that is alive at `NOW_MS` has it."""
    directory.mkdir(parents=True, exist_ok=True)
    cnc = cnc_bytes(fill=lambda manager: fill_streams(manager, channel), errors=(error,))
    (directory / "cnc.dat").write_bytes(cnc)
    (directory / "loss-report.dat").write_bytes(loss_bytes(channel, channel))
    publication = log_bytes(LogType.EXCLUSIVE_PUBLICATION, tail=12_000)
    write_log(directory / "publications" / "5.logbuffer", publication)
    write_log(directory / "images" / "9.logbuffer", log_bytes(LogType.IMAGE))
    return directory
