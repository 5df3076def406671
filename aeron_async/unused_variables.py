"""Warnings about environment variables that look like Aeron settings and have no effect.

Differs: the official drivers ignore unknown variables silently.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from aeron_async.logs import get_logger
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["NAME_LENGTH_MAX", "NO_EFFECT", "PREFIX", "warn_of_unused"]

PREFIX: Final = "AERON_"
LIKENESS: Final = 0.85
"""Least similarity, from 0 to 1, to suggest a name: a letter or two may differ."""
NAMED_MAX: Final = 32
"""Most variables that a process warns about."""
NAME_LENGTH_MAX: Final = 100
"""A longer name is not a mistyped setting."""

_NAMES: Final = """
    AGENT_ON_START_FUNCTION ARCHIVE_AUTHENTICATOR_SUPPLIER ARCHIVE_AUTHORISATION_SERVICE_SUPPLIER
    ARCHIVE_CLIENT_NAME ARCHIVE_CONDUCTOR_CYCLE_THRESHOLD ARCHIVE_CONTROL_CHANNEL_ENABLED
    ARCHIVE_CONTROL_MTU_LENGTH ARCHIVE_CONTROL_RESPONSE_CHANNEL ARCHIVE_CONTROL_RESPONSE_STREAM_ID
    ARCHIVE_CONTROL_TERM_BUFFER_LENGTH ARCHIVE_CONTROL_TERM_BUFFER_SPARSE
    ARCHIVE_DIR_DELETE_ON_START ARCHIVE_ERROR_BUFFER_LENGTH ARCHIVE_IDLE_STRATEGY
    ARCHIVE_MAX_CATALOG_ENTRIES ARCHIVE_MESSAGE_RETRY_ATTEMPTS ARCHIVE_MESSAGE_TIMEOUT
    ARCHIVE_RECORDER_CYCLE_THRESHOLD ARCHIVE_RECORDER_IDLE_STRATEGY ARCHIVE_RECORDING_EVENTS_ENABLED
    ARCHIVE_REPLAYER_CYCLE_THRESHOLD ARCHIVE_REPLAYER_IDLE_STRATEGY ARCHIVE_REPLICATION_CHANNEL
    ARCHIVE_SESSION_LIVENESS_CHECK_INTERVAL ARCHIVE_THREADING_MODE CLIENT_CLOSE_LINGER_DURATION
    CLIENT_IDLE_SLEEP_DURATION CLIENT_NAME CLIENT_PRE_TOUCH_MAPPED_MEMORY
    CLIENT_RESOURCE_LINGER_DURATION CONDUCTOR_CPU_AFFINITY
    CONDUCTOR_UDP_CHANNEL_TRANSPORT_BINDINGS_MEDIA DIR DIR_WARN_IF_EXISTS DRIVER_CPUSET_AFFINITY
    DRIVER_CPUSET_WARNINGS_AS_ERRORS DRIVER_DYNAMIC_LIBRARIES
    DRIVER_NATIVE_RESOURCE_AGENT_CPU_AFFINITY DRIVER_NATIVE_RESOURCE_AGENT_IDLE_STRATEGY
    DRIVER_NATIVE_RESOURCE_AGENT_IDLE_STRATEGY_INIT_ARGS DRIVER_RESOURCE_FREE_LIMIT
    ENABLE_EXPERIMENTAL_FEATURES EVENT_ARCHIVE_LOG EVENT_BUFFER_LENGTH EVENT_CLUSTER_LOG EVENT_LOG
    EVENT_LOG_DISABLE EVENT_LOG_FILENAME
    EVENT_LOG_FILE_MAX_LENGTH LOW_FILE_STORE_WARNING_THRESHOLD PRE_TOUCH_MAPPED_MEMORY
    RECEIVER_CPU_AFFINITY RECEIVER_IDLE_STRATEGY RECEIVER_IDLE_STRATEGY_INIT_ARGS
    SENDER_CPU_AFFINITY SENDER_IDLE_STRATEGY SENDER_IDLE_STRATEGY_INIT_ARGS
    SENDER_IO_VECTOR_CAPACITY SEND_TO_STATUS_POLL_RATIO SHAREDNETWORK_IDLE_STRATEGY
    SHAREDNETWORK_IDLE_STRATEGY_INIT_ARGS THREAD_NAMING UDP_CHANNEL_OUTGOING_INTERCEPTORS
    UDP_CHANNEL_TRANSPORT_BINDINGS_MEDIA UNICAST_FLOW_CONTROL_STRATEGY
"""
NO_EFFECT: Final = frozenset(f"{PREFIX}{name}" for name in _NAMES.split())
"""Official names of settings that have no effect here."""

log: Final = get_logger(__name__)
REMEDIES: Final = {
    "AERON_DIR": (
        "no driver in a program reads it: DriverContext(aeron_directory=...) lets one serve other "
        "processes there, and Aeron.connect(directory=...) uses the driver of another process"
    ),
}
_named: set[str] = set()


def warn_of_unused(variables: Iterable[str], known: Collection[str], *, prefix: str) -> None:
    """Warn about variables that are set and have no effect, once per process and variable.

    A name that is neither official nor similar to a known one may belong to another program, and is
    ignored.

    Args:
        variables: Names of all variables that are set.
        known: Names of the variables that are read.
        prefix: Prefix of the names to check.
    """
    for name in sorted(each for each in variables if each.startswith(prefix)):
        if name in known or name in _named or len(name) > NAME_LENGTH_MAX:
            continue
        if len(_named) >= NAMED_MAX:
            return
        if name in NO_EFFECT:
            _named.add(name)
            remedy = REMEDIES.get(name, "nothing here reads it: unset it")
            log.warning("setting_without_effect", variable=name, remedy=remedy)
        elif likely := get_close_matches(name, known, n=1, cutoff=LIKENESS):
            _named.add(name)
            log.warning(
                "setting_unknown",
                variable=printable(name),
                remedy=f"did you mean {likely[0]}? it is ignored as it is written",
            )
