"""Settings that apply to a channel: each value, and where it comes from.

As in the driver, the channel overrides the environment, which overrides the default.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.driver.core.congestion_control.auto_window import longest_window
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.stream_params import is_window_auto
from aeron_async.driver.media.sockets import wished_rcvbuf_length
from aeron_async.protocol.channel_uri import ControlMode, Media
from aeron_async.protocol.parameters import PARAMETERS, Role
from aeron_async.protocol.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.protocol.channel_uri import ChannelUri
    from aeron_async.protocol.parameters import Parameter
    from aeron_async.settings import Setting

__all__ = ["DEFAULT", "AppliedSetting", "applied_settings", "is_for_group", "keys_without_effect"]

DEFAULT: Final = "default"
"""Origin of a value that nobody has set."""
# Parameters of addresses; the facts of each role show them in words.
ADDRESS_KEYS: Final = frozenset(
    {"endpoint", "interface", "control", "control-mode", "tags", "alias"}
)
GROUP_KEYS: Final = frozenset({"ttl", "fc", "max-resend"})
"""Parameters that need several receivers."""
SILENT_KEYS: Final = frozenset(
    {
        "sparse",
        "response-endpoint",
    }
)
"""Parameters that this version parses and checks, but does not use."""
UNUSED_KEYS: Final = SILENT_KEYS | {"ats"}
"""`SILENT_KEYS`, and parameters whose only effective values the driver refuses."""
UNTETHERED_KEYS: Final = frozenset(
    {
        "untethered-window-limit-timeout",
        "untethered-linger-timeout",
        "untethered-resting-timeout",
    }
)
"""Parameters that apply only to a subscriber that may be left behind."""
RARE_KEYS: Final = frozenset(
    {
        "stream-id",
        "response-correlation-id",
        "channel-snd-ts-offset",
        "channel-rcv-ts-offset",
        "media-rcv-ts-offset",
    }
)
"""Parameters that have a meaning only if they are given."""
IPC_KEYS: Final = (
    frozenset(
        {"mtu", "term-length", "init-term-id", "term-id", "term-offset", "session-id", "pub-wnd"}
    )
    | {"tether", "response-correlation-id"}
    | UNTETHERED_KEYS
)
"""Parameters that apply to IPC, where nothing is sent."""
DRIVER_SETTINGS: Final = {
    "status_message_timeout_ns": Role.SUBSCRIPTION,
    "image_liveness_timeout_ns": Role.SUBSCRIPTION,
    "image_gap_timeout_ns": Role.SUBSCRIPTION,
    "over_run_rejoin_interval_ns": Role.SUBSCRIPTION,
    "nak_unicast_retry_delay_ratio": Role.SUBSCRIPTION,
    "publication_connection_timeout_ns": Role.PUBLICATION,
    "retransmit_unicast_delay_ns": Role.PUBLICATION,
    "retransmit_unicast_linger_ns": Role.PUBLICATION,
    "unicast_flow_control_rrwm": Role.PUBLICATION,
    "publication_unblock_timeout_ns": Role.PUBLICATION,
}
"""Settings of a unicast stream that no channel can change, and the roles to which they apply."""
GROUP_SETTINGS: Final = {
    "nak_multicast_max_backoff_ns": Role.SUBSCRIPTION,
    "nak_multicast_group_size": Role.SUBSCRIPTION,
}
"""Settings that also apply if there may be several receivers."""


@final
@attrs.frozen(kw_only=True)
class AppliedSetting:
    """One setting of a stream.

    Attributes:
        name: Key of the channel parameter, or name of the driver's property.
        roles: "P" for publications, "S" for subscriptions, or both.
        origin: "channel", the environment variable, or "default".
    """

    name: str
    roles: str
    value: str
    origin: str
    meaning: str


def applied_settings(
    uri: ChannelUri, context: DriverContext, roles: frozenset[Role]
) -> Iterator[AppliedSetting]:
    """Yield the settings that apply to a stream on this channel, the channel's own first.

    Args:
        uri: The channel.
        context: Settings of the environment, and defaults.
        roles: Roles that the channel can have.
    """
    for key, parameter in PARAMETERS.items():
        shared = sorted(roles & parameter.roles)
        if shared and _is_shown(uri, key):
            yield _applied(uri, context, parameter, "".join(shared))
    if uri.media is Media.IPC or uri.is_spy:
        return
    group_settings = GROUP_SETTINGS if is_for_group(uri) else {}
    for field_name, role in (DRIVER_SETTINGS | group_settings).items():
        setting = DriverContext.settings()[field_name]
        if role in roles:
            yield AppliedSetting(
                name=setting.name,
                roles=role,
                value=setting.format(getattr(context, field_name)),
                origin=_origin(setting),
                meaning=setting.doc,
            )


def _is_shown(uri: ChannelUri, key: str) -> bool:
    """Return whether a parameter applies to the channel, or was given."""
    is_given = key in uri.parameters
    if key in ADDRESS_KEYS | UNUSED_KEYS or (key in RARE_KEYS and not is_given):
        return False
    if key in UNTETHERED_KEYS and not is_given and uri.is_tether is not False:
        return False
    if uri.media is Media.IPC:
        return key in IPC_KEYS
    return key not in GROUP_KEYS or is_for_group(uri)


def keys_without_effect(uri: ChannelUri) -> Iterator[tuple[str, str]]:
    """Yield parameters that are given but have no effect, with the reason."""
    for key in uri.parameters:
        if key in SILENT_KEYS:
            yield key, "this version does not use it"
        elif key in GROUP_KEYS and not is_for_group(uri):
            yield key, "it is for groups of receivers, and this is unicast"


def is_for_group(uri: ChannelUri) -> bool:
    """Return whether a publication on this channel may have several receivers."""
    if uri.control_mode in {ControlMode.MANUAL, ControlMode.DYNAMIC}:
        return True
    return uri.endpoint is not None and uri.endpoint.is_multicast


def _applied(
    uri: ChannelUri, context: DriverContext, parameter: Parameter, roles: str
) -> AppliedSetting:
    given: Any = getattr(uri, parameter.name)
    found = _setting_for(uri, parameter.key)
    if given is not None:
        value, origin = parameter.write(given), "channel"
    elif found is None:
        value, origin = parameter.default, DEFAULT
    else:
        field_name, setting = found
        value, origin = setting.format(getattr(context, field_name)), _origin(setting)
    return AppliedSetting(
        name=parameter.key,
        roles=roles,
        value=_in_effect(uri, context, parameter.key, value),
        origin=origin,
        meaning=parameter.description,
    )


def _setting_for(uri: ChannelUri, key: str) -> tuple[str, Setting] | None:
    """Return the driver's setting that the parameter overrides, for the channel's medium."""
    is_ipc = uri.media is Media.IPC
    for field_name, setting in DriverContext.settings().items():
        if key == "fc":  # Several settings make up its options; this one is its name.
            is_meant = field_name == "multicast_flow_control_supplier"
        else:
            is_meant = field_name.startswith("ipc_") == is_ipc
        if setting.uri_key == key and is_meant:
            return field_name, setting
    return None


def _origin(setting: Setting) -> str:
    return setting.env_name if os.environ.get(setting.env_name) else DEFAULT


def _in_effect(uri: ChannelUri, context: DriverContext, key: str, value: str) -> str:
    """Return the value with its effect, if that depends on another setting."""
    is_ipc = uri.media is Media.IPC
    default_length = context.ipc_term_buffer_length if is_ipc else context.term_buffer_length
    half_term = (uri.term_length or default_length) // 2
    if key == "rcv-wnd":
        return _window_in_effect(uri, context, value)
    comes_to = {
        ("pub-wnd", "0"): f"{format_size(half_term)}, half a term",
        ("so-sndbuf", "0"): "the system's",
        ("so-rcvbuf", "0"): "the system's",
        ("gtag", "not set"): "none",
        ("cc", "default"): "static",
    }
    if key == "fc":
        return value.rpartition("_")[2]
    if key == "session-id" and uri.session_id is None:
        return "any"
    return comes_to.get((key, value), value)


def _window_in_effect(uri: ChannelUri, context: DriverContext, value: str) -> str:
    """Return a receiver window with what half a term and the receive buffer leave of it."""
    window = uri.receiver_window_length or context.initial_window_length
    half_term = (uri.term_length or context.term_buffer_length) // 2
    if not is_window_auto(uri, context):
        is_less = uri.term_length is not None and window > half_term
        return f"{value}, here {format_size(half_term)}" if is_less else value
    is_wished = wished_rcvbuf_length(uri, context)
    buffer = 0 if is_wished else uri.socket_rcvbuf_length or context.socket_rcvbuf_length
    longest = longest_window(2 * half_term, buffer)
    first = min(window, half_term, buffer or window)
    if first < longest:
        return f"{format_size(first)}, growing to {format_size(longest)}"
    if first < window:
        return f"{format_size(window)}, here {format_size(first)}"
    return format_size(first)
