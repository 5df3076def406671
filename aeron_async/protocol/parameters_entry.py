"""One parameter of a channel URI: what it is called, what it means, how its value is read."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.errors import ChannelUriError, ConfigurationError

if TYPE_CHECKING:
    from aeron_async.protocol.channel_uri_kinds import Kind

__all__ = ["Parameter", "Role"]

# What travels to a driver in ASCII, without the one separator that has no escape.
_VALUE: Final = re.compile(r"[ -{}~]+")


@final
class Role(StrEnum):
    """What a channel URI may describe; the letters are those of Aeron's own tables."""

    PUBLICATION = "P"
    SUBSCRIPTION = "S"
    DESTINATION = "D"
    SPY = "X"


@attrs.frozen(kw_only=True)
class Parameter:
    """One parameter of a channel URI.

    Attributes:
        key: As it stands in the URI.
        name: As `ChannelUri` calls it: with its unit, in Python's spelling.
        kind: How its values are read and printed.
        roles: Where it has an effect. Elsewhere the drivers ignore it, so that one URI can serve
            both sides of a stream; so do we.
        default: What applies when it is not given, as text.
        description: What it does, in one sentence.
    """

    key: str
    name: str
    kind: Kind
    roles: frozenset[Role]
    default: str
    description: str

    def read(self, text: str) -> Any:
        """Return the value this text stands for.

        Raises:
            ChannelUriError: it stands for none.
        """
        if _VALUE.fullmatch(text) is None:
            reason = "only printable ASCII without '|' fits" if text else "nothing follows the '='"
            message = f"{self.key}={text!r} must be {self.kind.expects}: {reason}"
            raise ChannelUriError(message)
        try:
            return self.kind.read(text)
        except ConfigurationError as error:
            message = f"{self.key}={text} must be {self.kind.expects}: {error}"
            raise ChannelUriError(message) from None

    def write(self, value: object) -> str:
        """Return the text of a value, after checking that it reads back as the same value.

        Raises:
            ChannelUriError: a value of another type, or out of range.
        """
        if type(value) not in self.kind.types:
            message = (
                f"{self.key} ({self.name}) must be {self.kind.expects}: "
                f"{value!r} is of type {type(value).__name__}"
            )
            raise ChannelUriError(message)
        try:
            text = self.kind.write(value)
        except ConfigurationError as error:
            message = f"{self.key}={value!r} must be {self.kind.expects}: {error}"
            raise ChannelUriError(message) from None
        if self.read(text) != value:
            message = f"{self.key}: {value!r} reads back from {text!r} as another value"
            raise ChannelUriError(message)
        return text
