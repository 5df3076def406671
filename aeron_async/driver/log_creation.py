"""Logs of an embedded driver: anonymous memory, and a refusal where there is none.

Source: Aeron `LogFactory`, `aeron_raw_log`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.logbuffer.term_log import LogBuffers, file_length

if TYPE_CHECKING:
    from aeron_async.logbuffer.log_spec import LogSpec

__all__ = ["create_log"]


def create_log(spec: LogSpec) -> LogBuffers:
    """Return a fresh log in anonymous memory.

    Raises:
        RegistrationError: STORAGE_SPACE; the system has no memory for it.
    """
    try:
        return LogBuffers.create(spec)
    except (OSError, MemoryError) as error:
        length = file_length(term_length=spec.term_length, page_size=spec.page_size)
        message = (
            f"no memory for a log of {length} bytes ({error}): lower term-length, now "
            f"{spec.term_length}, or raise the memory limit of the process"
        )
        raise RegistrationError(message, code=ErrorCode.STORAGE_SPACE) from error
