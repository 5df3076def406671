"""Everything about a driver that can be set, checked once and never changed.

Invariant: a context that exists is consistent; no later code asks again, except for what only the
operating system knows, such as the socket buffers it really gives.

Source: Aeron `MediaDriver.Context`, `Configuration`, `aeron_driver_context.c`.
"""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, final

import attrs

from aeron_async.driver.core.context_legacy import LEGACY_SETTINGS, legacy_value
from aeron_async.driver.core.context_limits import DriverSettings
from aeron_async.driver.core.context_settings import MS, SECOND
from aeron_async.driver.core.environment import INT32_MAX, setting_of
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.units import INT64_MAX
from aeron_async.unused_variables import PREFIX, warn_of_unused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aeron_async.driver.core.environment import Setting

__all__ = [
    "DESTINATION_TIMEOUT_NS",
    "EOS_STATUS_MESSAGE_COUNT",
    "HEARTBEAT_INTERVAL_NS",
    "PENDING_SETUP_TIMEOUT_NS",
    "SETUP_INTERVAL_NS",
    "DriverContext",
]

ARCHIVE_PREFIX: Final = f"{PREFIX}ARCHIVE_"

# Times that Aeron fixes, because both ends of a stream rely on them.
SETUP_INTERVAL_NS: Final = 100 * MS
HEARTBEAT_INTERVAL_NS: Final = 100 * MS
PENDING_SETUP_TIMEOUT_NS: Final = SECOND
DESTINATION_TIMEOUT_NS: Final = 5 * SECOND
# Status messages that an image still sends after the end of its stream.
EOS_STATUS_MESSAGE_COUNT: Final = 5

# (larger, smaller): what is checked at every tick must last longer than a tick, and nothing of a
# client is unblocked while the client may still be alive.
_MORE_THAN: Final = (
    ("publication_unblock_timeout_ns", "client_liveness_timeout_ns"),
    ("client_liveness_timeout_ns", "timer_interval_ns"),
    ("untethered_window_limit_timeout_ns", "timer_interval_ns"),
    ("untethered_linger_timeout_ns", "timer_interval_ns"),
    ("untethered_resting_timeout_ns", "timer_interval_ns"),
)
# (smaller, larger): a datagram must fit the window and the buffers it passes through.
_AT_MOST: Final = (
    ("mtu_length", "initial_window_length"),
    ("mtu_length", "socket_sndbuf_length"),
    ("initial_window_length", "socket_rcvbuf_length"),
    ("publication_reserved_session_id_low", "publication_reserved_session_id_high"),
)
# 0 in one of these is the system's own number, known only once a socket is open.
_SYSTEM_DEFAULT_IF_ZERO: Final = frozenset({"socket_sndbuf_length", "socket_rcvbuf_length"})


@final
@attrs.frozen(kw_only=True)
class DriverContext(DriverSettings):
    """The settings of a media driver: what is not given has Aeron's default.

    Sizes are in bytes and durations in what their name ends in, or either is text as in a channel:
    `"64k"`, `"5s"`. The field then holds the number. Reads no environment; `from_environment` does.
    Every field is described in the reference page of settings, and by `DriverContext.settings()`.

    Raises:
        ConfigurationError: a value is beyond its limits or contradicts another; names both.

    Source: Aeron `MediaDriver.Context.conclude`.
    """

    def __attrs_post_init__(self) -> None:
        for larger, smaller in _MORE_THAN:
            value = getattr(self, larger)
            if value is not None and value <= getattr(self, smaller):
                self._refuse(larger, "must be more than", smaller)
        for smaller, larger in _AT_MOST:
            limit = getattr(self, larger)
            if limit == 0 and larger in _SYSTEM_DEFAULT_IF_ZERO:
                continue
            if getattr(self, smaller) > limit:
                self._refuse(smaller, "must be at most", larger)
        low = self.publication_reserved_session_id_low
        if self.publication_reserved_session_id_high - low > INT32_MAX:
            self._refuse(
                "publication_reserved_session_id_high",
                f"must be at most {INT32_MAX} more than",
                "publication_reserved_session_id_low",
            )
        if self.nak_unicast_retry_delay_ns > INT64_MAX:
            self._refuse(
                "nak_unicast_retry_delay_ratio",
                f"must give at most {INT64_MAX} when multiplied by",
                "nak_unicast_delay_ns",
            )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> Self:
        """Take what is given, else what the environment says, else the defaults.

        An empty variable counts as absent, and one that is overridden is not read at all. Old names
        of a setting count where its own is absent. A variable that changes nothing, by a slip of
        the pen or because its setting means nothing here, is named in the log, once.

        Args:
            environ: Variables by name; those of this process unless given.
            overrides: Settings by field name, as for the class itself.

        Raises:
            ConfigurationError: a value cannot be read, or as for the class itself.
        """
        variables = os.environ if environ is None else environ
        found: dict[str, Any] = {}
        for field_name, setting in cls.settings().items():
            text = variables.get(setting.env_name)
            if field_name in overrides:
                continue
            value = setting.parse(text) if text else legacy_value(field_name, variables)
            if value is not None or text:
                found[field_name] = value
        # Those of archives are theirs to judge; see `ArchiveContext`.
        names = [name for name in variables if not name.startswith(ARCHIVE_PREFIX)]
        warn_of_unused(names, _ENV_NAMES, prefix=PREFIX)
        return cls(**found, **overrides)

    @classmethod
    def settings(cls) -> Mapping[str, Setting]:
        """Return what is known of every setting, by field name."""
        return _SETTINGS

    @property
    def nak_unicast_retry_delay_ns(self) -> int:
        """Pause before a unicast NAK is repeated, in nanoseconds."""
        return self.nak_unicast_delay_ns * self.nak_unicast_retry_delay_ratio

    def _refuse(self, field_name: str, relation: str, other_name: str) -> None:
        message = (
            f"{_SETTINGS[field_name]} {relation} {_SETTINGS[other_name]}, "
            f"got {getattr(self, field_name)} and {getattr(self, other_name)}"
        )
        raise ConfigurationError(message)


_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(
    {attribute.name: setting_of(attribute) for attribute in attrs.fields(DriverContext)}
)
_ENV_NAMES: Final = frozenset(
    {setting.env_name for setting in _SETTINGS.values()}
    | {env_name for names in LEGACY_SETTINGS.values() for env_name, _ in names}
)
