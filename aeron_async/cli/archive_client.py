"""How the archive commands speak with an archive elsewhere: the official client's own variables.

Source: Aeron `AeronArchive.Configuration`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from aeron_async.archive.context import parse_integer
from aeron_async.cli.wording import MESSAGE_TIMEOUT
from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.units import parse_duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["client_settings"]


def seconds(text: str) -> float:
    """Return a duration such as 10s."""
    return parse_duration_ns(text) / NS_PER_SECOND


VARIABLES: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "AERON_ARCHIVE_CONTROL_STREAM_ID": ("control_stream_id", parse_integer),
    "AERON_ARCHIVE_CONTROL_RESPONSE_CHANNEL": ("response_channel", str),
    "AERON_ARCHIVE_CONTROL_RESPONSE_STREAM_ID": ("response_stream_id", parse_integer),
    MESSAGE_TIMEOUT: ("timeout", seconds),
}


def client_settings(environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what the environment says of a client, as `RemoteArchive.connect` takes it.

    Raises:
        ConfigurationError: A value cannot be read; names the variable.
    """
    variables = os.environ if environ is None else environ
    found: dict[str, Any] = {}
    for name, (argument, parse) in VARIABLES.items():
        text = variables.get(name, "").strip()
        if not text:
            continue
        try:
            found[argument] = parse(text)
        except ConfigurationError as error:
            message = f"{name} cannot be read: {error}"
            raise ConfigurationError(message) from error
    return found
