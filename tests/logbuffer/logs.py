"""Logs to test with, small enough to fill."""

from __future__ import annotations

from typing import Any, Final

from aeron_async.logbuffer.log_buffers import LogBuffers, LogSpec
from aeron_async.logbuffer.reader import TermReader

TERM_LENGTH: Final = 64 * 1024
MTU_LENGTH: Final = 1408
MAX_PAYLOAD: Final = MTU_LENGTH - 32
SESSION_ID: Final = 194_931_032
STREAM_ID: Final = 1001
INITIAL_TERM_ID: Final = 1_854_242_456
NO_LIMIT: Final = 2**62


def make_spec(**changes: Any) -> LogSpec:
    fields: dict[str, Any] = {
        "session_id": SESSION_ID,
        "stream_id": STREAM_ID,
        "initial_term_id": INITIAL_TERM_ID,
        "term_length": TERM_LENGTH,
        "mtu_length": MTU_LENGTH,
    }
    return LogSpec(**(fields | changes))


def make_log(**changes: Any) -> LogBuffers:
    return LogBuffers.create(make_spec(**changes))


def header(log: LogBuffers, offset: int, *, partition: int = 0) -> tuple[int, ...]:
    """Return frame length, version, flags, type, term offset, session, stream, term, reserved."""
    term = log.terms[partition]
    words = log.term_words[partition]
    at = offset >> 2
    frame_type = int.from_bytes(term[offset + 6 : offset + 8], "little")
    return (
        words[at],
        term[offset + 4],
        term[offset + 5],
        frame_type,
        *words[at + 2 : at + 6],
        log.term_longs[partition][(offset >> 3) + 3],
    )


def read_all(log: LogBuffers, position: int = 0) -> list[bytes]:
    """Return every message from a position on, whatever the number of terms."""
    reader = TermReader(log, position)
    out: list[tuple[bytes, int, int]] = []
    while True:
        before = reader.position
        reader.read_messages(out, limit=100)
        if reader.position == before:
            return [data for data, _, _ in out]
