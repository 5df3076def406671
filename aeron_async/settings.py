"""Declarations of settings, and their values as text, in code and in the environment.

A class of settings is a frozen attrs class, and each of its fields is declared by one call:

    @attrs.frozen(kw_only=True)
    class Cache(EnvironmentSettings):
        cache_length: int = size("aeron_async.cache.length", 1 << 20, "Length of the cache.")

The declaration, a `Setting`, is kept in the metadata of the field. The constructor, the error
texts, the environment, the command line and the reference pages all use it, so they agree.

Invariant: a value is checked the same way wherever it came from.

Source: Aeron `Configuration`, `aeron_properties_util.c`.
"""

from __future__ import annotations

import difflib
import os
import re
from abc import ABC, abstractmethod
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    NoReturn,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    final,
)

import attrs

from aeron_async.errors import ConfigurationError
from aeron_async.protocol.units import (
    IN_BYTES,
    IN_NANOSECONDS,
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    format_duration,
    format_size,
    parse_duration_ns,
    parse_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "Choice",
    "Duration",
    "EnvironmentSettings",
    "Flag",
    "Inferable",
    "Integer",
    "Kind",
    "More",
    "OptionSettings",
    "PortRange",
    "Setting",
    "Settings",
    "Size",
    "Text",
    "choice",
    "declare",
    "duration",
    "flag",
    "inferable",
    "integer",
    "port_range",
    "size",
    "text",
]

MAX_PORT: Final = 65_535
NOT_SET: Final = "not set"
IN_MILLISECONDS: Final = "; in milliseconds, or as text such as '5s'"

_SETTING_KEY: Final = "aeron_async.setting"
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_PORT_RANGE: Final = re.compile(r"\s*([0-9]{1,5})\s+([0-9]{1,5})\s*")
_FLAGS: Final[Mapping[str, bool | None]] = {
    "1": True,
    "on": True,
    "true": True,
    "0": False,
    "off": False,
    "false": False,
}
_INFERABLES: Final[Mapping[str, bool | None]] = {"true": True, "false": False, "infer": None}
_PROPERTY: Final = re.compile(r"aeron(_async)?\.")

T = TypeVar("T")
Number = TypeVar("Number", bound=int | None)
Word = TypeVar("Word", bound=str | None)


# Kinds of values. Another package can add its own: see `driver.core.strategies.Supplier`.


class Kind(ABC):
    """The values that a setting accepts, and how they are written as text."""

    LIMITS: ClassVar[str] = ""
    """The accepted values as the reference page says them; empty if any will do."""

    @abstractmethod
    def parse(self, text: str) -> object:
        """Return the value of a text, without checking its limits.

        Raises:
            ConfigurationError: The text is not written like this kind; the message quotes it.
        """

    def read(self, given: object) -> object:
        """Return the value of an entry of a TOML file, where a number needs no quotes.

        Raises:
            ConfigurationError: As for `parse`.
        """
        is_plain = isinstance(given, str | int | float)
        if not is_plain:
            message = f"{given!r} is not text, a number, true or false"
            raise ConfigurationError(message)
        return self.parse(str(given).lower() if isinstance(given, bool) else str(given))

    def convert(self, value: object) -> object:
        """Return a value that was given in code, where some kinds also accept text.

        Raises:
            ConfigurationError: As for `parse`.
        """
        return value

    @abstractmethod
    def refusal(self, value: object) -> str:
        """Return why a value is refused, such as `must be at least 1, got 0`; else nothing."""

    def format(self, value: Any) -> str:
        """Return a value as text that `parse` accepts."""
        return str(value)

    def limits(self) -> str:
        """Return `LIMITS`, or limits that differ from setting to setting."""
        return self.LIMITS


class Text(Kind):
    """Text that is not blank."""

    def parse(self, text: str) -> object:
        """Return the text."""
        return text

    def refusal(self, value: object) -> str:
        """Refuse another type, and blank text."""
        if not isinstance(value, str):
            return f"must be text, got {value!r}"
        return "" if value.strip() else f"must be text that is not empty, got {value!r}"


@attrs.frozen(kw_only=True)
class Integer(Kind):
    """A whole number within limits."""

    minimum: int = INT64_MIN
    maximum: int = INT64_MAX
    multiple: int = 1
    power_of_two: bool = False
    trailer: int = 0
    """What a power of two is followed by."""

    def parse(self, text: str) -> object:
        """Return the number."""
        # `int` would also accept underscores and the digits of other scripts.
        if _INTEGER.fullmatch(text) is None:
            message = f"{text!r} is not a whole number"
            raise ConfigurationError(message)
        return int(text)

    def refusal(self, value: object) -> str:
        """Refuse another type, and a number beyond the limits."""
        limit = ""
        if not isinstance(value, int) or isinstance(value, bool):
            limit = "a whole number"
        elif value < self.minimum:
            limit = f"at least {self.minimum}"
        elif value > self.maximum:
            limit = f"at most {self.maximum}"
        elif value % self.multiple:
            limit = f"a multiple of {self.multiple}"
        elif self.power_of_two and (value - self.trailer).bit_count() != 1:
            limit = f"a {self._shape()}"
        return limit and f"must be {limit}, got {value!r}{self.hint}"

    def _shape(self) -> str:
        return f"power of two plus {self.trailer}" if self.trailer else "power of two"

    @property
    def hint(self) -> str:
        """Return the end of an error: the unit, and that text is accepted too."""
        return ""

    def limits(self) -> str:
        """Return the range, and what else a number must be."""
        low, high = self.minimum, self.maximum
        if (low, high) == (INT64_MIN, INT64_MAX):
            parts = ["any 64-bit number"]
        elif (low, high) == (INT32_MIN, INT32_MAX):
            parts = ["any 32-bit number"]
        elif high in {INT32_MAX, INT64_MAX}:
            parts = [f"at least {self.format(low)}"]
        else:
            parts = [f"{self.format(low)} to {self.format(high)}"]
        if self.power_of_two:
            parts.append(self._shape())
        if self.multiple > 1:
            parts.append(f"multiple of {self.multiple}")
        return ", ".join(parts)


class Size(Integer):
    """A number of bytes; code may give it as text such as `64k`."""

    @property
    def hint(self) -> str:
        """Return the unit."""
        return IN_BYTES

    def parse(self, text: str) -> object:
        """Return the number of bytes."""
        return parse_size(text)

    def convert(self, value: object) -> object:
        """Return text as a number."""
        return self.parse(value.strip()) if isinstance(value, str) else value

    def format(self, value: Any) -> str:
        """Return the number in the largest unit that is exact."""
        return format_size(value)


@attrs.frozen(kw_only=True)
class Duration(Integer):
    """A duration as a number of some unit; code may give it as text such as `5s`."""

    unit_ns: int = 1
    """Unit of the number, and of a text without a unit; in nanoseconds."""

    @property
    def hint(self) -> str:
        """Return the unit."""
        return IN_NANOSECONDS if self.unit_ns == 1 else IN_MILLISECONDS

    def parse(self, text: str) -> object:
        """Return the number of units."""
        if self.unit_ns == 1:
            return parse_duration_ns(text)
        if _INTEGER.fullmatch(text):
            return int(text)
        count, rest_ns = divmod(parse_duration_ns(text), self.unit_ns)
        if rest_ns:
            message = f"{text!r} is not a whole number of {format_duration(self.unit_ns)}"
            raise ConfigurationError(message)
        return count

    def convert(self, value: object) -> object:
        """Return text as a number."""
        return self.parse(value.strip()) if isinstance(value, str) else value

    def format(self, value: Any) -> str:
        """Return the duration in the largest unit that is exact."""
        duration_ns = value * self.unit_ns
        return format_duration(duration_ns) if 0 <= duration_ns <= INT64_MAX else str(value)


class Flag(Kind):
    """True or false."""

    words: ClassVar[Mapping[str, bool | None]] = _FLAGS
    LIMITS: ClassVar[str] = "true or false"

    def parse(self, text: str) -> object:
        """Return the value of a word, in any case."""
        if text.lower() not in self.words:
            message = f"{text!r} is none of {', '.join(self.words)}"
            raise ConfigurationError(message)
        return self.words[text.lower()]

    def refusal(self, value: object) -> str:
        """Refuse another type."""
        return "" if isinstance(value, bool) else f"must be {self.LIMITS}, got {value!r}"

    def format(self, value: Any) -> str:
        """Return the word."""
        return str(value).lower()


class Inferable(Flag):
    """True, false, or None for `infer`."""

    words: ClassVar[Mapping[str, bool | None]] = _INFERABLES
    LIMITS: ClassVar[str] = "true, false or infer"


@attrs.frozen(kw_only=True)
class Choice(Kind):
    """One of a few words; text may have them in any case.

    Attributes:
        choices: The words.
        synonyms: The same words by names that the official drivers also accept in text.
    """

    choices: tuple[str, ...]
    synonyms: Mapping[str, str] = attrs.field(default=MappingProxyType({}), eq=False)

    def parse(self, text: str) -> object:
        """Return the word as it is declared."""
        word = self.synonyms.get(text, text)
        return next((each for each in self.choices if each.lower() == word.lower()), word)

    def refusal(self, value: object) -> str:
        """Refuse any other word."""
        if value in self.choices:
            return ""
        return f"must be one of {', '.join(self.choices)}, got {value!r}"

    def limits(self) -> str:
        """Return the words."""
        return ", ".join(f"`{name}`" for name in self.choices)


class PortRange(Kind):
    """Two ports, both included, as in Aeron's `20000 20100`."""

    LIMITS: ClassVar[str] = "two ports, low and high"

    def parse(self, text: str) -> object:
        """Return both ports."""
        match = _PORT_RANGE.fullmatch(text)
        if match is None:
            message = f"{text!r} is not two ports with a blank between"
            raise ConfigurationError(message)
        return int(match[1]), int(match[2])

    def refusal(self, value: object) -> str:
        """Refuse anything but two ports in order."""
        match value:
            case (int(low), int(high)) if 0 <= low <= high <= MAX_PORT:
                return ""
        return f"must be two ports, low before high, 0 to {MAX_PORT}, got {value!r}"

    def format(self, value: Any) -> str:
        """Return both ports with a blank between."""
        low, high = value
        return f"{low} {high}"


# One setting.


@final
@attrs.frozen(kw_only=True)
class Setting:
    """The declaration of one setting.

    Attributes:
        name: Name in files, options and errors: Aeron's property such as `aeron.mtu.length`, ours
            such as `aeron_async.transport`, an option of Spark, or a key of a file.
        kind: Values that it accepts.
        default: Value if it is not given, in the unit of the field.
        doc: What it does, in one sentence.
        env_name: Environment variable such as `AERON_MTU_LENGTH`; empty if there is none.
        old_variables: Older variables that count if that one is absent, with their parsers.
        uri_key: Parameter of a channel URI that overrides it for one channel.
        unset: What None means, on the page and in the output of commands.
        has_effect: Whether anything uses it yet.
        is_optional: Whether None is a value although it is not the default.
    """

    name: str
    kind: Kind
    default: Any
    doc: str
    env_name: str = ""
    old_variables: Mapping[str, Callable[[str], object]] = MappingProxyType({})
    uri_key: str | None = None
    unset: str = NOT_SET
    has_effect: bool = True
    is_optional: bool = False

    def parse(self, text: str) -> Any:
        """Return the value of a text, without checking its limits.

        Differs: the C driver warns about a text that it cannot parse, and takes the default.

        Raises:
            ConfigurationError: The text is not valid for this kind of setting.
        """
        return self._try(self.kind.parse, text.strip())

    def read(self, given: object) -> Any:
        """Return the value of text, or of an entry of a TOML file, without checking its limits.

        A text setting keeps its blanks: the name of a directory may end in one.

        Raises:
            ConfigurationError: The value is not valid for this kind of setting.
        """
        if isinstance(given, str) and not isinstance(self.kind, Text):
            given = given.strip()
        return self._try(self.kind.read, given)

    def convert(self, value: object) -> Any:
        """Return a value that was given in code; a size or a duration may be `64k` or `5s`.

        Raises:
            ConfigurationError: A text is not valid for this kind of setting.
        """
        return self._try(self.kind.convert, value)

    def check(self, value: object) -> None:
        """Refuse a value of another type, or beyond the limits.

        Differs: the C driver moves a value to the nearest limit without a message.

        Raises:
            ConfigurationError: Names the setting, the limit and the value.
        """
        if value is self.default or (value is None and self.is_optional):
            return
        if refusal := self.kind.refusal(value):
            message = f"{self} {refusal}"
            raise ConfigurationError(message)

    def format(self, value: object) -> str:
        """Return a value as text, as the environment would give it."""
        return self.unset if value is None or value in ("", (), {}) else self.kind.format(value)

    def find(self, variables: Mapping[str, str]) -> Any:
        """Return the value in the environment, or None; an empty variable counts as absent.

        Raises:
            ConfigurationError: A variable is not valid for this kind of setting.
        """
        if self.env_name and (text := variables.get(self.env_name, "").strip()):
            return self.parse(text)
        for env_name, parse in self.old_variables.items():
            if text := variables.get(env_name, "").strip():
                try:
                    return parse(text)
                except ConfigurationError as error:
                    message = f"{env_name} cannot be read: {error}"
                    raise ConfigurationError(message) from error
        return None

    def __str__(self) -> str:
        return f"{self.name} ({self.env_name})" if self.env_name else self.name

    def _try(self, read: Callable[[Any], object], given: object) -> object:
        try:
            return read(given)
        except ConfigurationError as error:
            message = f"{self} cannot be read: {error}"
            raise ConfigurationError(message) from error


class More(TypedDict, total=False):
    """What a declaration says only where it must; see `Setting`."""

    env_name: str
    old_variables: Mapping[str, Callable[[str], object]]
    uri_key: str
    unset: str
    has_effect: bool
    is_optional: bool


# Declarations: what stands on the right side of a field.


def declare(name: str, default: T, doc: str, *, kind: Kind, **more: Unpack[More]) -> T:
    """Declare a setting of any kind.

    A property of Aeron, or one of ours, has an environment variable unless `env_name` is empty.
    """
    if "env_name" not in more and _PROPERTY.match(name):
        more["env_name"] = name.upper().replace(".", "_")
    setting = Setting(name=name, kind=kind, default=default, doc=doc, **more)
    return attrs.field(
        default=default,
        converter=setting.convert,
        validator=_validate,
        metadata={_SETTING_KEY: setting},
    )


def text(name: str, default: Word, doc: str, **more: Unpack[More]) -> Word:
    """Declare a text."""
    return declare(name, default, doc, kind=Text(), **more)


def choice(
    name: str,
    default: Word,
    doc: str,
    *,
    choices: tuple[str, ...],
    synonyms: Mapping[str, str] = MappingProxyType({}),
    **more: Unpack[More],
) -> Word:
    """Declare one of a few words."""
    return declare(name, default, doc, kind=Choice(choices=choices, synonyms=synonyms), **more)


def flag(name: str, default: bool, doc: str, **more: Unpack[More]) -> bool:  # noqa: FBT001 - a value
    """Declare a boolean."""
    return declare(name, default, doc, kind=Flag(), **more)


def inferable(name: str, doc: str, **more: Unpack[More]) -> bool | None:
    """Declare a boolean that is inferred by default: `None`."""
    more["unset"] = "infer"
    default: bool | None = None
    return declare(name, default, doc, kind=Inferable(), **more)


def integer(
    name: str,
    default: Number,
    doc: str,
    *,
    minimum: int = INT64_MIN,
    maximum: int = INT64_MAX,
    **more: Unpack[More],
) -> Number:
    """Declare any other whole number; without limits it has 64 bits."""
    return declare(name, default, doc, kind=Integer(minimum=minimum, maximum=maximum), **more)


def size(
    name: str,
    default: Number,
    doc: str,
    *,
    minimum: int = 0,
    maximum: int = INT32_MAX,
    multiple: int = 1,
    power_of_two: bool = False,
    trailer: int = 0,
    **more: Unpack[More],
) -> Number:
    """Declare a number of bytes."""
    kind = Size(
        minimum=minimum,
        maximum=maximum,
        multiple=multiple,
        power_of_two=power_of_two,
        trailer=trailer,
    )
    return declare(name, default, doc, kind=kind, **more)


def duration(
    name: str,
    default: Number,
    doc: str,
    *,
    minimum: int = 0,
    unit_ns: int = 1,
    **more: Unpack[More],
) -> Number:
    """Declare a duration; in nanoseconds unless `unit_ns` says otherwise."""
    return declare(name, default, doc, kind=Duration(minimum=minimum, unit_ns=unit_ns), **more)


def port_range(name: str, doc: str) -> tuple[int, int]:
    """Declare two ports, both included; the default 0 and 0 means any port."""
    return declare(name, (0, 0), doc, kind=PortRange())


# Classes of settings.


@attrs.frozen(kw_only=True)
class Settings:
    """The base of every class of settings."""

    _settings: ClassVar[Mapping[str, Setting]] = MappingProxyType({})

    if TYPE_CHECKING:

        def __init__(self, **values: Any) -> None: ...

    @classmethod
    def __attrs_init_subclass__(cls) -> None:
        fields = attrs.fields(cls)
        cls._settings = MappingProxyType(
            {each.name: each.metadata[_SETTING_KEY] for each in fields}
        )

    @classmethod
    def settings(cls) -> Mapping[str, Setting]:
        """Return the declaration of every setting, by field name."""
        return cls._settings

    def _refuse(self, field_name: str, relation: str, other_name: str) -> NoReturn:
        """Refuse two settings that contradict each other."""
        settings = self.settings()
        message = (
            f"{settings[field_name]} {relation} {settings[other_name]}, "
            f"got {getattr(self, field_name)} and {getattr(self, other_name)}"
        )
        raise ConfigurationError(message)


class EnvironmentSettings(Settings):
    """Settings that have environment variables.

    Attributes:
        _PREFIX: Begin of every variable. One that begins like this and is not read gets a warning.
        _OTHER_PREFIX: Begin of those that another class reads.
    """

    __slots__ = ()

    _PREFIX: ClassVar[str] = "AERON_"
    _OTHER_PREFIX: ClassVar[str] = ""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> Self:
        """Return settings from the overrides, then the environment, then the defaults.

        An empty variable counts as absent, and a variable that is overridden is not read. The old
        names of a setting count if its own name is absent. A variable without effect, because it is
        misspelt or its setting does not exist here, is logged once.

        Args:
            environ: Variables by name; those of this process if not given.
            overrides: Settings by field name, as for the class itself.

        Raises:
            ConfigurationError: A value cannot be parsed, or as for the class itself.
        """
        variables = os.environ if environ is None else environ
        found = cls.found_in(variables, besides=overrides)
        cls.warn_of_unused(variables)
        return cls(**found, **overrides)

    @classmethod
    def warn_of_unused(cls, variables: Iterable[str], *, besides: Iterable[str] = ()) -> None:
        """Log each variable without effect, once in a process.

        Args:
            variables: Names of those that are set.
            besides: Names of those that are read elsewhere.
        """
        # Spark's tasks read no environment, and import no logs for it.
        from aeron_async.unused_variables import warn_of_unused  # noqa: PLC0415

        known = {*besides, *(setting.env_name for setting in cls.settings().values())}
        known.update(*(setting.old_variables for setting in cls.settings().values()))
        other = cls._OTHER_PREFIX
        names = [name for name in variables if not (other and name.startswith(other))]
        warn_of_unused(names, known, prefix=cls._PREFIX)

    @classmethod
    def found_in(
        cls, variables: Mapping[str, str], *, besides: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Return the settings that variables give, by field name.

        Args:
            variables: Variables by name.
            besides: Fields whose variables are not read.

        Raises:
            ConfigurationError: A value cannot be parsed, or is beyond its limits.
        """
        found = {}
        for name in sorted(cls.settings().keys() - set(besides)):
            setting = cls.settings()[name]
            value = setting.find(variables)
            if value is not None:
                setting.check(value)
                found[name] = value
        return found


class OptionSettings(Settings):
    """Settings that are given by their names: options of Spark, or entries of a TOML file.

    Attributes:
        _NOUN: What errors call them.
        _HINTS: What to do instead, by names in lower case that are not known here.
        _IGNORED: Names in lower case that are accepted and mean nothing here.
    """

    __slots__ = ()

    _NOUN: ClassVar[str] = "setting"
    _HINTS: ClassVar[Mapping[str, str]] = MappingProxyType({})
    _IGNORED: ClassVar[frozenset[str]] = frozenset()

    def __attrs_post_init__(self) -> None:
        for is_wrong, problem in self._problems():
            if is_wrong:
                raise ConfigurationError(problem)

    def _problems(self) -> Iterable[tuple[bool, str]]:
        """Return rules over several settings: whether each is broken, and what to do about it."""
        return ()

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> Self:
        """Return the settings of text by name; names may have any case.

        Raises:
            ConfigurationError: A name is unknown, a value is invalid, or two settings contradict
                each other.
        """
        fields = {setting.name.lower(): field for field, setting in cls.settings().items()}
        found: dict[str, Any] = {}
        for name, value in given.items():
            field = fields.get(name.lower())
            if field in found:
                message = f"{cls.settings()[field]} is given twice, in another case: leave one out"
                raise ConfigurationError(message)
            if field is not None:
                found[field] = cls.settings()[field].read(value)
            elif name.lower() not in cls._IGNORED:
                raise ConfigurationError(cls._unknown(name))
        return cls(**found)

    @classmethod
    def _unknown(cls, name: str) -> str:
        """Return the error text for an unknown name, with the one that was probably meant."""
        names = {setting.name.lower(): setting.name for setting in cls.settings().values()}
        hint = cls._HINTS.get(name.lower(), "")
        if not hint and (near := difflib.get_close_matches(name.lower(), names, n=1)):
            hint = f"did you mean {names[near[0]]}?"
        end = "" if hint.endswith("?") else "."
        known = f"The {cls._NOUN}s are {', '.join(names.values())}"
        return f"no {cls._NOUN} is named {name!r}{hint and ': '}{hint}{end} {known}"


def _validate(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    setting: Setting = attribute.metadata[_SETTING_KEY]
    setting.check(value)
