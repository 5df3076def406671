"""The creation of logs: their settings from channel, tags and context, and their memory.

Source: Aeron `PublicationParams.getSessionId`, `aeron_uri_publication_session_id_param`,
`LogFactory`, `aeron_raw_log`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from aeron_async.driver.core.stream_params import StartPosition
from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.logbuffer.log_buffers import LogBuffers, LogSpec, file_length
from aeron_async.logbuffer.metadata import LogType
from aeron_async.protocol.channel_uri import TagReference
from aeron_async.tasks import make_in_thread

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.publication import SubscribablePublication
    from aeron_async.driver.core.stream_params import PublicationParams
    from aeron_async.driver.media.endpoint import ChannelEndpoint
    from aeron_async.driver.resources import DriverResources
    from aeron_async.driver.storage import DriverStorage
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = [
    "create_log",
    "create_log_now",
    "publication_log_spec",
    "with_channel_settings",
    "with_tagged_session",
]


def with_tagged_session(
    uri: ChannelUri, publications: Iterable[SubscribablePublication]
) -> ChannelUri:
    """Return the channel with session, MTU and term length of the publication its session names.

    A channel whose session id is no tag reference is returned as it is.

    Args:
        uri: The channel.
        publications: The publications to search; the first with the tag counts.

    Raises:
        RegistrationError: INVALID_CHANNEL; none of them has the tag.
    """
    reference = uri.session_id
    if not isinstance(reference, TagReference):
        return uri
    for publication in publications:
        log = publication.log
        if publication.entity_tag == reference.tag:
            return uri.replace(
                session_id=publication.session_id,
                mtu_length=log.mtu_length,
                term_length=log.term_length,
            )
    message = (
        f"session-id={reference} names no publication of this driver: add the one with "
        f"tags=,{reference.tag} first"
    )
    raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)


def publication_log_spec(
    resources: DriverResources,
    uri: ChannelUri,
    params: PublicationParams,
    *,
    registration_id: int,
    session_id: int,
    stream_id: int,
) -> LogSpec:
    """Return the log settings of a publication; without a start position it starts anywhere.

    Source: Aeron `DriverConductor.initLogMetadata`.
    """
    start = params.start
    if start is None:
        term_id = resources.random_int32()
        start = StartPosition(initial_term_id=term_id, term_id=term_id, term_offset=0)
    spec = LogSpec(
        session_id=session_id,
        stream_id=stream_id,
        initial_term_id=start.initial_term_id,
        start_term_id=start.term_id,
        start_term_offset=start.term_offset,
        term_length=params.term_length,
        mtu_length=params.mtu_length,
        log_type=(
            LogType.EXCLUSIVE_PUBLICATION if params.is_exclusive else LogType.CONCURRENT_PUBLICATION
        ),
        correlation_id=registration_id,
        publication_window_length=params.publication_window_length,
        max_resend=params.max_resend,
        linger_timeout_ns=params.linger_timeout_ns,
        sparse=params.is_sparse,
        signal_eos=params.signal_eos,
        spies_simulate_connection=params.spies_simulate_connection,
        is_group=params.has_group_semantics,
        is_response=params.is_response,
    )
    # These have another default than None, so they are set only if given.
    if uri.entity_tag is not None:
        spec = attrs.evolve(spec, entity_tag=uri.entity_tag)
    if params.response_correlation_id is not None:
        spec = attrs.evolve(spec, response_correlation_id=params.response_correlation_id)
    return spec


def with_channel_settings(
    spec: LogSpec, uri: ChannelUri, endpoint: ChannelEndpoint | None, context: DriverContext
) -> LogSpec:
    """Return the log settings with socket buffer lengths and timeouts, for its metadata.

    Args:
        spec: The log settings.
        uri: The channel.
        endpoint: The endpoint with the sockets; None for IPC.
        context: Gives the values that the channel leaves out.

    Source: Aeron `DriverConductor.initLogMetadata`.
    """
    window_limit_timeout_ns = given(
        uri.untethered_window_limit_timeout_ns, context.untethered_window_limit_timeout_ns
    )
    return attrs.evolve(
        spec,
        socket_sndbuf_length=0 if endpoint is None else endpoint.socket_sndbuf_length,
        socket_rcvbuf_length=0 if endpoint is None else endpoint.socket_rcvbuf_length,
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
    """Return the value, or the default if it is None."""
    return default if value is None else value


async def create_log(storage: DriverStorage, spec: LogSpec) -> LogBuffers:
    """Return a new log in the memory of its driver; in a worker thread if it takes long.

    Raises:
        RegistrationError: STORAGE_SPACE; there is no memory or no room for it.
    """
    create = partial(create_log_now, storage, spec)
    if storage.takes_long(spec):
        return await make_in_thread(create, LogBuffers.close, limiter=storage.limiter)
    return create()


def create_log_now(storage: DriverStorage, spec: LogSpec) -> LogBuffers:
    """Return a new log, as `create_log`, without letting other tasks run.

    Raises:
        RegistrationError: As `create_log`.
    """
    try:
        return storage.create_log(spec)
    except (OSError, MemoryError) as error:
        length = file_length(term_length=spec.term_length, page_size=spec.page_size)
        message = (
            f"no memory for a log of {length} bytes ({error}): lower term-length, now "
            f"{spec.term_length}, or make room for the process or its Aeron directory"
        )
        raise RegistrationError(message, code=ErrorCode.STORAGE_SPACE) from error
