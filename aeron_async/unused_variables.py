"""Warnings about environment variables and options that look like settings and have no effect.

Differs: the official drivers ignore unknown variables silently.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from aeron_async.logs import get_logger
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

__all__ = [
    "FAINT_LIKENESS",
    "NAME_LENGTH_MAX",
    "NO_EFFECT",
    "PREFIX",
    "meant",
    "warn_of_unknown",
    "warn_of_unused",
]

PREFIX: Final = "AERON_"
LIKENESS: Final = 0.85
"""Least similarity, from 0 to 1, to suggest a name: a letter or two may differ."""
FAINT_LIKENESS: Final = 0.7
"""The same to a name that has all words of the one that is meant, and more."""
COMMON_WORDS: Final = frozenset({"AERON", "ASYNC"})
WORDS_MIN: Final = 2
"""Fewer words that are not common ones may be those of another program."""
SIMILAR_MAX: Final = 8
NAMED_MAX: Final = 32
"""Most names that a process warns about."""
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
        if name in known or len(name) > NAME_LENGTH_MAX:
            continue
        if name in NO_EFFECT:
            if _is_new(name):
                remedy = REMEDIES.get(name, "nothing here reads it: unset it")
                log.warning("setting_without_effect", variable=name, remedy=remedy)
        elif likely := meant(name, known, LIKENESS):
            warn_of_unknown({name: f"did you mean {likely}? it is ignored as it is written"})


def meant(name: str, known: Collection[str], likeness: float) -> str | None:
    """Return the variable that was probably meant: it has all words of the name, or is similar.

    Args:
        name: The name of no variable.
        known: Names of variables that are read.
        likeness: Least similarity, from 0 to 1, to one that lacks a word.
    """
    words = set(name.split("_"))
    if len(words - COMMON_WORDS) >= WORDS_MIN:
        for each in get_close_matches(name, known, n=SIMILAR_MAX, cutoff=FAINT_LIKENESS):
            if words <= set(each.split("_")):
                return each
    return next(iter(get_close_matches(name, known, n=1, cutoff=likeness)), None)


def warn_of_unknown(remedies: Mapping[str, str]) -> None:
    """Warn about settings that this program was given and does not have, once per process and name.

    Args:
        remedies: What to do, by name as it was given.
    """
    for name, remedy in remedies.items():
        if _is_new(name):
            shown = printable(name, NAME_LENGTH_MAX)
            log.warning("setting_unknown", variable=shown, remedy=remedy)


def _is_new(name: str) -> bool:
    """Return whether to warn about a name, which has not been named before; note that it was."""
    is_new = name not in _named and len(_named) < NAMED_MAX
    if is_new:
        _named.add(name)
    return is_new
