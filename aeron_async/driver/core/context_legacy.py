"""Old names of settings, which count where the new name is absent.

Source: Aeron `Configuration`, `PreferredMulticastFlowControl`, `aeron_driver_context.c`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from aeron_async.errors import ConfigurationError
from aeron_async.protocol.units import parse_duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["LEGACY_SETTINGS", "legacy_value"]

_TAG_LENGTH: Final = 8
_STRATEGIES: Final = {"max": "multicast_max", "min": "multicast_min", "tagged": "multicast_tagged"}


def _parse_tag(text: str) -> int:
    """Read the eight bytes of feedback, in hexadecimal and in the order of the wire."""
    if re.fullmatch(r"[0-9A-Fa-f]{16}", text) is None:
        message = f"{text!r} is not {_TAG_LENGTH} bytes in hexadecimal"
        raise ConfigurationError(message)
    return int.from_bytes(bytes.fromhex(text), "little", signed=True)


def _parse_strategy(text: str) -> str:
    return _STRATEGIES.get(text, text)


LEGACY_SETTINGS: Final[Mapping[str, tuple[tuple[str, Callable[[str], Any]], ...]]] = {
    "multicast_flow_control_supplier": (
        ("AERON_MULTICAST_FLOW_CONTROL_STRATEGY", _parse_strategy),
    ),
    "flow_control_receiver_timeout_ns": (
        ("AERON_MIN_MULTICAST_FLOW_CONTROL_RECEIVER_TIMEOUT", parse_duration_ns),
    ),
    "flow_control_group_tag": (("AERON_PREFERREDMULTICASTFLOWCONTROL_ASF", _parse_tag),),
    "receiver_group_tag": (("AERON_FLOW_CONTROL_SM_APPLICATIONSPECIFICFEEDBACK", _parse_tag),),
}
"""Variables by field, each with how its text reads."""


def legacy_value(field_name: str, variables: Mapping[str, str]) -> Any:
    """Return what an old variable says of a field, or None where there is none.

    Raises:
        ConfigurationError: Its text cannot be read.
    """
    for env_name, parse in LEGACY_SETTINGS.get(field_name, ()):
        text = variables.get(env_name, "").strip()
        if text:
            try:
                return parse(text)
            except ConfigurationError as error:
                message = f"{env_name} cannot be read: {error}"
                raise ConfigurationError(message) from error
    return None
