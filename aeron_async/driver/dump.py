"""A dump: the counters, errors and losses of a driver as files that Aeron's own tools read.

A driver without an Aeron directory keeps them in memory that no other process sees. A dump writes
them as `cnc.dat` and `loss-report.dat` into a new directory, in Aeron's layout, for `AeronStat`,
`ErrorStat`, `LossStat` and our own commands. It shows one moment, and is no driver: its heartbeat
says that its driver has closed, so that no client tries to use it.

Invariant: what is written was copied in the event loop at one moment; a thread writes it.

Source: Aeron `CncFileDescriptor`, `LossReportUtil`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

import attrs

from aeron_async.aeron_directory import HEARTBEAT_ENDED
from aeron_async.concurrent.cnc_file import (
    CNC_FILE,
    CNC_VERSION,
    META_DATA_LENGTH,
    VERSION_OFFSET,
    CncLayout,
)
from aeron_async.concurrent.loss_report import LOSS_REPORT_FILE
from aeron_async.concurrent.ring_buffer import HEARTBEAT_OFFSET, RING_TRAILER_LENGTH
from aeron_async.counters import METADATA_LENGTH, VALUE_LENGTH
from aeron_async.errors import DriverError
from aeron_async.protocol.units import align

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.driver.resources import DriverResources

__all__ = ["Dump"]

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
NEW_FILE: Final = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
VERSION_LENGTH: Final = 4
WORD_LENGTH: Final = 8


@attrs.frozen(kw_only=True)
class Dump:
    """What is to be written: the parts of each file by their offsets, and how long it is."""

    cnc: dict[int, bytes]
    cnc_length: int
    loss_report: bytes
    loss_report_length: int

    @classmethod
    def of(cls, resources: DriverResources) -> Self:
        """Return the state of a driver at this moment."""
        context, storage = resources.context, resources.storage
        layout = CncLayout(
            to_driver_buffer_length=context.conductor_buffer_length,
            to_clients_buffer_length=context.clients_buffer_length,
            counters_values_buffer_length=context.counters_buffer_length,
            error_log_buffer_length=context.error_buffer_length,
            client_liveness_timeout_ns=context.client_liveness_timeout_ns,
            start_timestamp_ms=resources.clock.epoch_ms(),
            pid=os.getpid(),
            file_page_size=context.file_page_size,
        )
        count = resources.counters_manager.used_count
        header = bytearray(META_DATA_LENGTH)
        encoded = layout.encode()
        header[: len(encoded)] = encoded
        header[VERSION_OFFSET : VERSION_OFFSET + VERSION_LENGTH] = CNC_VERSION.to_bytes(
            VERSION_LENGTH, "little"
        )
        ring = layout.to_driver_buffer
        heartbeat_at = ring.end - RING_TRAILER_LENGTH + HEARTBEAT_OFFSET
        values = memoryview(storage.counter_values)[: count * VALUE_LENGTH]
        metadata = memoryview(storage.counter_metadata)[: count * METADATA_LENGTH]
        return cls(
            cnc={
                0: bytes(header),
                heartbeat_at: HEARTBEAT_ENDED.to_bytes(WORD_LENGTH, "little", signed=True),
                layout.counters_metadata_buffer.offset: bytes(metadata),
                layout.counters_values_buffer.offset: bytes(values),
                layout.error_log_buffer.offset: storage.error_log.to_bytes(),
            },
            cnc_length=layout.file_length,
            loss_report=storage.loss_report.to_bytes(),
            loss_report_length=align(context.loss_report_buffer_length, context.file_page_size),
        )

    def write(self, directory: Path) -> None:
        """Write the files into a new directory, or an empty one; any thread may call it.

        Raises:
            DriverError: The directory is not empty, or a file cannot be written; none is left.
        """
        made: list[Path] = []
        try:
            directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            if any(directory.iterdir()):
                message = f"{directory} is not empty: name a new directory for the dump"
                raise DriverError(message)
            for name, parts, length in (
                (CNC_FILE, self.cnc, self.cnc_length),
                (LOSS_REPORT_FILE, {0: self.loss_report}, self.loss_report_length),
            ):
                path = directory / name
                fd = os.open(path, NEW_FILE, FILE_MODE)
                made.append(path)
                with os.fdopen(fd, "wb") as file:
                    # What is not written is a hole, of zeros.
                    file.truncate(length)
                    for offset, part in parts.items():
                        file.seek(offset)
                        file.write(part)
        except OSError as error:
            for path in made:
                with suppress(OSError):
                    path.unlink()
            message = f"no dump can be written to {directory}: {error}"
            raise DriverError(message) from error
