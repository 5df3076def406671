"""Logs of an embedded driver: anonymous memory, and a refusal where there is none.

Source: Aeron `LogFactory`, `aeron_raw_log`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.logbuffer.term_log import LogBuffers, file_length

if TYPE_CHECKING:
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.media.endpoint import ChannelEndpoint
    from aeron_async.logbuffer.log_spec import LogSpec
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["create_log", "with_channel_settings"]


def with_channel_settings(
    spec: LogSpec, uri: ChannelUri, endpoint: ChannelEndpoint, context: DriverContext
) -> LogSpec:
    """Return the log with what its metadata says of the channel: socket buffers, and timeouts.

    Source: Aeron `DriverConductor.initLogMetadata`.
    """
    window_limit_timeout_ns = given(
        uri.untethered_window_limit_timeout_ns, context.untethered_window_limit_timeout_ns
    )
    return attrs.evolve(
        spec,
        socket_sndbuf_length=endpoint.socket_sndbuf_length,
        socket_rcvbuf_length=endpoint.socket_rcvbuf_length,
        untethered_window_limit_timeout_ns=window_limit_timeout_ns,
        untethered_linger_timeout_ns=given(
            uri.untethered_linger_timeout_ns,
            given(context.untethered_linger_timeout_ns, window_limit_timeout_ns),
        ),
        untethered_resting_timeout_ns=given(
            uri.untethered_resting_timeout_ns, context.untethered_resting_timeout_ns
        ),
    )


def given(value: int | None, default: int) -> int:
    """Return the value, or the default where there is none."""
    return default if value is None else value


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
