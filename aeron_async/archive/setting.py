"""One setting of an archive: its names, its limits, and how its text in the environment reads.

Source: Aeron `Archive.Configuration`.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.errors import ConfigurationError
from aeron_async.protocol.units import (
    IN_BYTES,
    IN_NANOSECONDS,
    INT64_MAX,
    parse_duration_ns,
    parse_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ArchiveSetting", "channel", "count", "duration", "name", "setting_of", "size"]

KEY: Final = "aeron_async.archive.setting"
INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
UNITS: Final[Mapping[Callable[[str], object], str]] = MappingProxyType(
    {parse_size: IN_BYTES, parse_duration_ns: IN_NANOSECONDS}
)
INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1


@attrs.frozen(kw_only=True)
class ArchiveSetting:
    """What is known of a setting beyond its value.

    Attributes:
        name: Aeron's property, such as `aeron.archive.dir`.
        default: In the unit of the field.
        doc: One sentence.
        minimum: Least number.
        maximum: Largest number.
        parse: Reads its text.
        is_optional: Whether it may be None.
    """

    name: str
    default: object
    doc: str
    parse: Callable[[str], object]
    minimum: int = 0
    maximum: int = INT64_MAX
    is_optional: bool = False

    @property
    def env_name(self) -> str:
        """Return the environment variable, such as `AERON_ARCHIVE_DIR`."""
        return self.name.upper().replace(".", "_")

    def convert(self, value: object) -> object:
        """Return a size or a duration that was given as text, such as `64k` or `5s`, as a number.

        Raises:
            ConfigurationError: The text means nothing for this kind of setting.
        """
        if isinstance(value, str) and self.parse in {parse_size, parse_duration_ns}:
            return self.read(value)
        return value

    def read(self, text: str) -> object:
        """Return the value that a text spells.

        Raises:
            ConfigurationError: The text means nothing for this kind of setting.
        """
        try:
            return self.parse(text.strip())
        except ConfigurationError as error:
            message = f"{self} cannot be read: {error}"
            raise ConfigurationError(message) from error

    def check(self, value: object) -> None:
        """Refuse a value of another kind, or beyond the limits.

        Raises:
            ConfigurationError: Names the property, the variable, the limit and the value.
        """
        if value is None and self.is_optional:
            return
        if isinstance(self.default, int):
            is_number = isinstance(value, int) and not isinstance(value, bool)
            if not is_number or not self.minimum <= int(str(value)) <= self.maximum:
                message = (
                    f"{self} must be a whole number from {self.minimum} to {self.maximum}, "
                    f"got {value!r}{UNITS.get(self.parse, '')}"
                )
                raise ConfigurationError(message)
        elif not isinstance(value, str):
            message = f"{self} must be text, got {value!r}"
            raise ConfigurationError(message)

    def __str__(self) -> str:
        return f"{self.name} ({self.env_name})"


def parse_integer(text: str) -> int:
    """Return a whole number.

    Raises:
        ConfigurationError: It is none.
    """
    if INTEGER.fullmatch(text) is None:
        message = f"{text!r} is not a whole number"
        raise ConfigurationError(message)
    return int(text)


def setting_of(attribute: attrs.Attribute[Any]) -> ArchiveSetting:
    """Return what is known of a field made by the functions below."""
    setting: ArchiveSetting = attribute.metadata[KEY]
    return setting


def size(property_name: str, default: int, doc: str, **more: Any) -> Any:
    """Declare a number of bytes."""
    return field(property_name, default, doc, parse=parse_size, **more)


def duration(property_name: str, default: int, doc: str, **more: Any) -> Any:
    """Declare a number of nanoseconds."""
    return field(property_name, default, doc, parse=parse_duration_ns, **more)


def count(property_name: str, default: int, doc: str, **more: Any) -> Any:
    """Declare any other number."""
    return field(property_name, default, doc, parse=parse_integer, **more)


def name(property_name: str, default: str | None, doc: str, **more: Any) -> Any:
    """Declare a text."""
    return field(property_name, default, doc, parse=str, **more)


def channel(property_name: str, default: str | None, doc: str) -> Any:
    """Declare a channel; None leaves it out."""
    return field(property_name, default, doc, parse=str, is_optional=True)


def field(
    property_name: str, default: object, doc: str, *, parse: Callable[[str], object], **more: Any
) -> Any:
    """Declare a setting."""
    setting = ArchiveSetting(name=property_name, default=default, doc=doc, parse=parse, **more)
    return attrs.field(
        default=default, converter=setting.convert, validator=validate, metadata={KEY: setting}
    )


def validate(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Check a value when it is given."""
    setting_of(attribute).check(value)
