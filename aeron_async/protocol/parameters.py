"""The parameters of channel URIs under their keys, and the search for the key that was meant.

`PARAMETERS` is what help texts and the documentation print: for each key its kind, the roles in
which it counts, its default and its meaning.
"""

from __future__ import annotations

from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from aeron_async.errors import ChannelUriError
from aeron_async.protocol.parameters_entry import Parameter, Role
from aeron_async.protocol.parameters_table import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["PARAMETERS", "Parameter", "Role", "find_parameter", "parameter_for_key"]

PARAMETERS: Final[Mapping[str, Parameter]] = MappingProxyType(
    {parameter.key: parameter for parameter in TABLE}
)
"""Each parameter under its key, in the order they are printed."""

_BY_NAME: Final[Mapping[str, Parameter]] = MappingProxyType(
    {parameter.key.replace("-", "_"): parameter for parameter in TABLE}
    | {parameter.name: parameter for parameter in TABLE}
)


def find_parameter(name: str) -> Parameter:
    """Return the parameter of this Python name, `mtu_length`, or of this key, `mtu`.

    Raises:
        ChannelUriError: there is none; names the nearest one.
    """
    parameter = _BY_NAME.get(name.replace("-", "_"))
    if parameter is None:
        raise _unknown(name, _BY_NAME)
    return parameter


def parameter_for_key(key: str) -> Parameter:
    """Return the parameter of this key, as it stands in a channel URI.

    Differs: the official drivers ignore keys they do not know, so that a misspelt key silently
    leaves the default in force.

    Raises:
        ChannelUriError: there is none; names the nearest one.
    """
    parameter = PARAMETERS.get(key)
    if parameter is None:
        raise _unknown(key, PARAMETERS)
    return parameter


def _unknown(given: str, known: Iterable[str]) -> ChannelUriError:
    # Names the drivers use for the same thing in their settings and APIs lead to the key as well.
    near = _BY_NAME.get(given.lower().replace("-", "_"))
    guesses = [near.key] if near else get_close_matches(given.lower(), list(known), n=1)
    hint = f": did you mean {guesses[0]!r}?" if guesses else ""
    return ChannelUriError(f"unknown parameter {given!r}{hint}")
