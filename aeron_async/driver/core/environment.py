"""The declaration of one driver setting: its names, its limits, and the parser of its text.

A setting is a field of an attrs class, and its `Setting` is kept in the metadata of the field. The
class, its error messages, the environment and the reference page all use it, so they agree.

Invariant: a value is checked the same way wherever it came from.

Source: Aeron `Configuration`, `aeron_properties_util.c`.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import attrs

from aeron_async.driver.core.strategies import find_registered, known_names
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.units import (
    IN_BYTES,
    IN_NANOSECONDS,
    INT64_MAX,
    format_duration,
    format_size,
    parse_duration_ns,
    parse_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "INT32_MAX",
    "INT32_MIN",
    "INT64_MIN",
    "Kind",
    "Setting",
    "choice",
    "duration",
    "flag",
    "inferable",
    "integer",
    "port_range",
    "setting_of",
    "size",
    "supplier",
]

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
MAX_PORT: Final = 65_535

_SETTING_KEY: Final = "aeron_async.setting"
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_PORT_RANGE: Final = re.compile(r"\s*([0-9]{1,5})\s+([0-9]{1,5})\s*")
_FLAGS: Final = {"1": True, "on": True, "true": True, "0": False, "off": False, "false": False}
_INFERABLES: Final[dict[str, bool | None]] = {"true": True, "false": False, "infer": None}


@final
class Kind(Enum):
    """The kind of value of a setting, which decides how its text is parsed."""

    SIZE = "size"
    DURATION = "duration"
    INTEGER = "integer"
    FLAG = "true or false"
    INFERABLE = "true, false or infer"
    CHOICE = "text"
    SUPPLIER = "a name or a factory"
    PORT_RANGE = "two ports"


@attrs.frozen(kw_only=True)
class Setting:
    """The description of a setting.

    Attributes:
        name: Aeron's property, such as `aeron.mtu.length`; ours begin with `aeron_async.`.
        env_name: The environment variable, such as `AERON_MTU_LENGTH`.
        default: In the unit of the field: bytes, nanoseconds, or the unit in the field's name.
        multiple: A number must be a multiple of this.
        uri_key: The parameter of a channel URI that overrides this setting for one channel.
        entry_point_group: The group in which further names are registered.
        unit_ns: For an integer that is a time: its unit in nanoseconds; its text may then have a
            unit. Else 0.
        instance_method: A method that a strategy instance has and a factory has not; empty if only
            factories are accepted.
        doc: One sentence.
    """

    name: str
    env_name: str
    kind: Kind
    default: object
    doc: str
    minimum: int = INT64_MIN
    maximum: int = INT64_MAX
    multiple: int = 1
    power_of_two: bool = False
    choices: tuple[str, ...] = ()
    uri_key: str | None = None
    entry_point_group: str = ""
    instance_method: str = ""
    unit_ns: int = 0

    def parse(self, text: str) -> object:
        """Return the value of a text from the environment, without checking its limits.

        Differs: the C driver warns about a text that it cannot parse, and takes the default.

        Raises:
            ConfigurationError: the text cannot be parsed for this kind of setting.
        """
        try:
            if self.unit_ns and _INTEGER.fullmatch(text.strip()) is None:
                return _parse_in_unit(text.strip(), self.unit_ns)
            return _PARSERS[self.kind](text.strip())
        except ConfigurationError as error:
            self._refuse(f"cannot be read: {error}", cause=error)

    def convert(self, value: object) -> object:
        """Return a size or a duration that was given as text, such as `64k` or `5s`, as a number.

        Raises:
            ConfigurationError: The text cannot be parsed for this kind of setting.
        """
        is_measure = self.kind in {Kind.SIZE, Kind.DURATION} or self.unit_ns
        if isinstance(value, str) and is_measure:
            return self.parse(value)
        return value

    def check(self, value: object) -> None:
        """Refuse a value of another type, or beyond the limits.

        Differs: the C driver moves a value to the nearest limit without a message.

        Raises:
            ConfigurationError: names the property, the variable, the limit and the value.
        """
        if value is None and self.default is None:
            return
        match self.kind:
            case Kind.SIZE | Kind.DURATION | Kind.INTEGER:
                self._check_number(value)
            case Kind.FLAG | Kind.INFERABLE:
                if not isinstance(value, bool):
                    self._refuse(f"must be {self.kind.value}, got {value!r}")
            case Kind.CHOICE:
                if value not in self.choices:
                    self._refuse(f"must be one of {', '.join(self.choices)}, got {value!r}")
            case Kind.SUPPLIER:
                self._check_supplier(value)
            case _:  # Kind.PORT_RANGE
                self._check_ports(value)

    def format(self, value: object) -> str:
        """Return a value as text, as the environment would give it."""
        match value:
            case None:
                return "infer" if self.kind is Kind.INFERABLE else "not set"
            case bool():
                return str(value).lower()
            case int() if self.kind is Kind.SIZE:
                return format_size(value)
            case int() if self.kind is Kind.DURATION:
                return format_duration(value)
            case (low, high):
                return f"{low} {high}"
            case _:
                # The name of a factory reads better than its repr.
                return str(getattr(value, "__qualname__", value))

    def __str__(self) -> str:
        return f"{self.name} ({self.env_name})"

    def _check_number(self, value: object) -> None:
        unit = _UNITS.get(self.kind, "")
        if not isinstance(value, int) or isinstance(value, bool):
            self._refuse(f"must be a whole number, got {value!r}{unit}")
        if value < self.minimum:
            self._refuse(f"must be at least {self.minimum}, got {value}{unit}")
        if value > self.maximum:
            self._refuse(f"must be at most {self.maximum}, got {value}{unit}")
        if value % self.multiple:
            self._refuse(f"must be a multiple of {self.multiple}, got {value}{unit}")
        if self.power_of_two and value.bit_count() != 1:
            self._refuse(f"must be a power of two, got {value}{unit}")

    def _check_supplier(self, value: object) -> None:
        if callable(value) or value in self.choices:
            return
        if self.instance_method and callable(getattr(value, self.instance_method, None)):
            return
        if not isinstance(value, str) or find_registered(self.entry_point_group, value) is None:
            names = known_names(self.entry_point_group, self.choices)
            self._refuse(f"must be one of {names}, or a factory, got {value!r}")

    def _check_ports(self, value: object) -> None:
        match value:
            case (int(low), int(high)) if 0 <= low <= high <= MAX_PORT:
                return
        self._refuse(f"must be two ports, low before high, 0 to {MAX_PORT}, got {value!r}")

    def _refuse(self, reason: str, *, cause: Exception | None = None) -> NoReturn:
        message = f"{self} {reason}"
        raise ConfigurationError(message) from cause


def setting_of(attribute: attrs.Attribute[Any]) -> Setting:
    """Return the description of a field made by the functions below."""
    setting: Setting = attribute.metadata[_SETTING_KEY]
    return setting


def size(
    name: str, default: int, doc: str, *, minimum: int = 0, maximum: int = INT32_MAX, **more: Any
) -> Any:
    """Declare a number of bytes."""
    return _field(Kind.SIZE, name, default, doc, minimum=minimum, maximum=maximum, **more)


def duration(name: str, default: int | None, doc: str, *, minimum: int = 0, **more: Any) -> Any:
    """Declare a number of nanoseconds."""
    return _field(Kind.DURATION, name, default, doc, minimum=minimum, **more)


def integer(name: str, default: int | None, doc: str, **more: Any) -> Any:
    """Declare any other integer; without limits it has 64 bits."""
    return _field(Kind.INTEGER, name, default, doc, **more)


def flag(name: str, default: bool, doc: str, **more: Any) -> Any:  # noqa: FBT001  a value, not a switch
    """Declare a boolean."""
    return _field(Kind.FLAG, name, default, doc, **more)


def inferable(name: str, doc: str, **more: Any) -> Any:
    """Declare a boolean that is inferred by default: `None`."""
    return _field(Kind.INFERABLE, name, None, doc, **more)


def choice(name: str, default: str, doc: str, *, choices: tuple[str, ...], **more: Any) -> Any:
    """Declare one of a few names."""
    return _field(Kind.CHOICE, name, default, doc, choices=choices, **more)


def supplier(
    name: str, default: str, doc: str, *, choices: tuple[str, ...], group: str, **more: Any
) -> Any:
    """Declare a strategy: one of our names, a registered name, or a factory."""
    more |= {"choices": choices, "entry_point_group": group}
    return _field(Kind.SUPPLIER, name, default, doc, **more)


def port_range(name: str, doc: str) -> Any:
    """Declare two ports, both included; the default 0 and 0 means any port."""
    return _field(Kind.PORT_RANGE, name, (0, 0), doc)


def _field(
    kind: Kind, name: str, default: object, doc: str, *, env_name: str | None = None, **more: Any
) -> Any:
    if env_name is None:
        env_name = name.upper().replace(".", "_")
    setting = Setting(name=name, env_name=env_name, kind=kind, default=default, doc=doc, **more)
    return attrs.field(
        default=default,
        converter=setting.convert,
        validator=_validate,
        metadata={_SETTING_KEY: setting},
    )


def _validate(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    setting_of(attribute).check(value)


def _parse_integer(text: str) -> int:
    # `int` would also accept underscores and the digits of other scripts.
    if _INTEGER.fullmatch(text) is None:
        message = f"{text!r} is not a whole number"
        raise ConfigurationError(message)
    return int(text)


def _parse_in_unit(text: str, unit_ns: int) -> int:
    count, rest_ns = divmod(parse_duration_ns(text), unit_ns)
    if rest_ns:
        message = f"{text!r} is not a whole number of {format_duration(unit_ns)}"
        raise ConfigurationError(message)
    return count


def _parse_port_range(text: str) -> tuple[int, int]:
    match = _PORT_RANGE.fullmatch(text)
    if match is None:
        message = f"{text!r} is not two ports with a blank between"
        raise ConfigurationError(message)
    return int(match[1]), int(match[2])


def _one_of(words: Mapping[str, bool | None]) -> Callable[[str], bool | None]:
    def parse(text: str) -> bool | None:
        if text.lower() not in words:
            message = f"{text!r} is none of {', '.join(words)}"
            raise ConfigurationError(message)
        return words[text.lower()]

    return parse


_UNITS: Final[Mapping[Kind, str]] = {
    Kind.SIZE: IN_BYTES,
    Kind.DURATION: IN_NANOSECONDS,
}
_PARSERS: Final[Mapping[Kind, Callable[[str], object]]] = {
    Kind.SIZE: parse_size,
    Kind.DURATION: parse_duration_ns,
    Kind.INTEGER: _parse_integer,
    Kind.FLAG: _one_of(_FLAGS),
    Kind.INFERABLE: _one_of(_INFERABLES),
    Kind.CHOICE: str,
    Kind.SUPPLIER: str,
    Kind.PORT_RANGE: _parse_port_range,
}
