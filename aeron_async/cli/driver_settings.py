"""Settings of the command `aeron-async driver`: variables, properties and their order.

As with `aeronmd`, every property is an environment variable by another name: `-D` options override
the environment, properties files override these, and later ones override earlier ones.

Invariant: a variable that no setting reads is ignored without a word, because a program that starts
`aeronmd` may set whatever `aeronmd` takes.

Differs: `aeronmd` warns of a value that it cannot read, and takes the default; here it is an error.
So is a `-D` option, which is typed by hand, if its name is a misspelt one; one whose name is like
no other is warned of. `aeronmd` also loads properties from `http://` addresses.

Source: Aeron `aeronmd.c`, `aeron_properties_util.c`, `aeron_driver_context_print_configuration`.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from aeron_async.aeron_directory import DIRECTORY_VARIABLE, default_directory
from aeron_async.driver.core.context import DriverContext
from aeron_async.errors import ConfigurationError
from aeron_async.settings import Flag, Integer
from aeron_async.text import printable
from aeron_async.unused_variables import (
    FAINT_LIKENESS,
    NAME_LENGTH_MAX,
    NO_EFFECT,
    meant,
    warn_of_unknown,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from aeron_async.settings import Setting

__all__ = ["DriverConfiguration", "Variables", "configure", "warn_of_misspelt"]

DIRECTORY_PROPERTY: Final = "aeron.dir"
DIRECTORY_FIELD: Final = "aeron_directory"
PRINT_VARIABLE: Final = "AERON_PRINT_CONFIGURATION"
FILE_SCHEME: Final = "file://"
IDLE_FIELD: Final = "idle_strategy"
DEFAULT: Final = "default"
LIKENESS: Final = 0.88
"""Least similarity, from 0 to 1, of a misspelt name: one letter in eight may differ."""
ARCHIVE_PREFIX: Final = "AERON_ARCHIVE_"
"""Begin of the variables of an archive, which may be in the same process as an official driver."""


@final
class Variables:
    """Environment variables after `-D` options and properties files, and where each comes from.

    Args:
        environ: The environment of the process.

    Attributes:
        values: Text by name of the variable.
        unknown: By the name of each `-D` option that no driver has, what to do about it.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.values: Final = dict(environ)
        self.unknown: Final[dict[str, str]] = {}
        self._origins: dict[str, str] = {}

    def define(self, text: str) -> None:
        """Take the `name=value` of a `-D` option.

        Raises:
            ConfigurationError: It has no name, or no `=`, or its name is a misspelt one.
        """
        try:
            found = list(properties_of([text]))
        except ConfigurationError:
            found = []
        if len(found) != 1:
            message = f"-D {text!r} is not name=value"
            raise ConfigurationError(message)
        _, name, value = found[0]
        if remedy := check_spelling(name):
            self.unknown[name] = remedy
        self._set(name, value, f"-D{name}")

    def load(self, file: str) -> None:
        """Take the properties of a file.

        Raises:
            ConfigurationError: A line has no name, or no `=`.
            OSError: The file cannot be read.
        """
        path = Path(file.removeprefix(FILE_SCHEME))
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            for number, name, value in properties_of(lines):
                self._set(name, value, f"{file}:{number}")
        except (ConfigurationError, UnicodeDecodeError) as error:
            message = f"{file} is no file of properties: {error}"
            raise ConfigurationError(message) from error

    def origin_of(self, variable: str) -> str:
        """Return where the value of a variable comes from."""
        return self._origins.get(variable, variable)

    def _set(self, name: str, value: str, origin: str) -> None:
        """Set the variable of a property; as in `aeronmd`, without a value it counts as absent."""
        variable = variable_of(name)
        self.values.pop(variable, None)
        if value:
            self.values[variable] = value
            self._origins[variable] = origin


def variable_of(name: str) -> str:
    """Return the environment variable of a property."""
    for setting in DriverContext.settings().values():
        if setting.name == name and setting.env_name:
            return setting.env_name
    return name.upper().replace(".", "_")


def check_spelling(name: str) -> str:
    """Return what to do about a property that no driver has; empty if a driver has it.

    Raises:
        ConfigurationError: Its name almost is that of a setting.
    """
    variable = variable_of(name)
    known = {PRINT_VARIABLE: PRINT_VARIABLE, DIRECTORY_VARIABLE: DIRECTORY_PROPERTY}
    for setting in DriverContext.settings().values():
        known |= dict.fromkeys((setting.env_name, *setting.old_variables), setting.name)
    if variable in known or variable in NO_EFFECT or variable.startswith(ARCHIVE_PREFIX):
        return ""
    if len(name) <= NAME_LENGTH_MAX:
        for likely in get_close_matches(variable, known, n=1, cutoff=LIKENESS):
            message = f"-D {name!r} is no setting: did you mean {known[likely]}?"
            raise ConfigurationError(message)
        if similar := meant(variable, known, FAINT_LIKENESS):
            return f"did you mean {known[similar]}? it is ignored as it is written"
    return "no setting has this name, and it is ignored: --print-config lists them all"


def warn_of_misspelt(configuration: DriverConfiguration) -> None:
    """Warn about `-D` options that no driver has, and variables that are nearly those of a setting.

    Official ones without effect are passed over: programs that start `aeronmd` set them.
    """
    given = set(map(variable_of, configuration.unknown))
    DriverContext.warn_of_unused(
        set(configuration.variables) - NO_EFFECT - given,
        besides=(PRINT_VARIABLE, DIRECTORY_VARIABLE),
    )
    warn_of_unknown(configuration.unknown)


def properties_of(lines: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """Yield number of the line, name and value of each property.

    Raises:
        ConfigurationError: A line has no name, or no `=`; or the last one ends in a backslash.
    """
    number, name, value = 0, "", ""
    for place, line in enumerate(lines, 1):
        text = line.lstrip(" \t")
        if not text or text[0] in "!#":
            continue
        if not name:
            end = min((at for at in map(text.find, "=:") if at > 0), default=0)
            name = text[:end].rstrip(" \t")
            if not name:
                message = f"line {place} is not name=value"
                raise ConfigurationError(message)
            number, text = place, text[end + 1 :].lstrip(" \t")
        if text.endswith("\\"):
            value += text[:-1]
            continue
        yield number, name, value + text
        name, value = "", ""
    if name:
        message = f"line {number} continues after the end"
        raise ConfigurationError(message)


@final
@attrs.frozen(kw_only=True)
class DriverConfiguration:
    """The settings of a driver, and where each comes from.

    Attributes:
        context: The settings.
        origins: By field name; a field that is not here has its default.
        is_printed: Whether a variable asks for the lines of `lines`.
        variables: Names of all variables, of the process and of what was given besides.
        unknown: What to do about `-D` options that no driver has, by their names.
    """

    context: DriverContext
    origins: Mapping[str, str]
    is_printed: bool
    variables: Collection[str]
    unknown: Mapping[str, str]

    def lines(self) -> list[str]:
        """Return a line for each setting: its property, its value, and where that comes from."""
        lines = []
        for field, setting in DriverContext.settings().items():
            name = DIRECTORY_PROPERTY if field == DIRECTORY_FIELD else setting.name
            value = setting.format(getattr(self.context, field))
            lines.append(printable(f"{name}={value} ({self.origins.get(field, DEFAULT)})"))
        return lines


def configure(
    *,
    directory: str | None = None,
    idle_strategy: str | None = None,
    defines: Sequence[str] = (),
    files: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> DriverConfiguration:
    """Return the settings of a driver with an Aeron directory.

    Args:
        directory: The Aeron directory; None if a variable or the default decides.
        idle_strategy: Name of the idle strategy; None if a variable or the default decides.
        defines: Each `name=value`.
        files: Paths of properties files.
        environ: Environment variables; None for those of this process.

    Raises:
        ConfigurationError: A value cannot be read, or two contradict each other.
        OSError: A file cannot be read.
    """
    variables = Variables(os.environ if environ is None else environ)
    for text in defines:
        variables.define(text)
    for file in files:
        variables.load(file)
    found: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for field, setting in DriverContext.settings().items():
        value = setting.find(variables.values)
        if value is not None:
            found[field] = within_limits(setting, value)
            origins[field] = variables.origin_of(variable_read(setting, variables.values))
    if directory == "":
        message = "--directory must name a directory, and is empty"
        raise ConfigurationError(message)
    if directory is not None:
        found[DIRECTORY_FIELD], origins[DIRECTORY_FIELD] = directory, "--directory"
    elif variables.values.get(DIRECTORY_VARIABLE):
        found[DIRECTORY_FIELD] = variables.values[DIRECTORY_VARIABLE]
        origins[DIRECTORY_FIELD] = variables.origin_of(DIRECTORY_VARIABLE)
    elif DIRECTORY_FIELD not in found:
        found[DIRECTORY_FIELD] = str(default_directory(variables.values))
    if idle_strategy is not None:
        found[IDLE_FIELD], origins[IDLE_FIELD] = idle_strategy, "--idle-strategy"
    is_printed = Flag.words.get(variables.values.get(PRINT_VARIABLE, "").strip().lower())
    return DriverConfiguration(
        context=DriverContext(**found),
        origins=origins,
        is_printed=bool(is_printed),
        variables=variables.values.keys(),
        unknown=variables.unknown,
    )


def variable_read(setting: Setting, variables: Mapping[str, str]) -> str:
    """Return the variable from which a setting was read: its own, else an older one."""
    names = (setting.env_name, *setting.old_variables)
    return next(name for name in names if variables.get(name, "").strip())


def within_limits(setting: Setting, value: object) -> object:
    """Return a number, moved to the nearest limit as `aeronmd` does; else the value.

    Programs that start `aeronmd` rely on this, for example with a NAK delay of 0.
    """
    kind = setting.kind
    if not isinstance(kind, Integer) or not isinstance(value, int):
        return value
    return min(max(value, kind.minimum), kind.maximum)
