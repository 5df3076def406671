"""Spark session of a pipeline, with errors of Spark shortened to one line."""

from __future__ import annotations

import os
import re
import warnings
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from aeron_async.errors import ArchiveError, ConfigurationError
from aeron_async.spark.java import ensure_interpreter, ensure_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aeron_async.spark.pipeline.settings import PipelineSettings

__all__ = [
    "NEEDED_BY_REPORT",
    "check_installed",
    "in_one_line",
    "make_session",
    "problem_of",
]

OURS: Final = re.compile(r"aeron_async\.errors\.\w+: (.+)")
CAUSES: Final = re.compile(r"^Caused by: [\w.$]+: (?!Traceback)(.+)", re.MULTILINE)
LONGEST: Final = 400


def problem_of(text: str) -> str:
    """Return the relevant line of an error.

    That is the last error of this package; else the last cause that Java names; else the first
    line.
    """
    found = OURS.findall(text) or CAUSES.findall(text)
    if found:
        return str(found[-1]).strip()[:LONGEST]
    # The first line of a Py4J error names a method, and no reason.
    lines = [line.strip().removeprefix(": ") for line in text.splitlines() if line.strip(": ")]
    lines = [line for line in lines if not line.startswith("An error occurred while calling")]
    return (lines[0] if lines else "Spark failed without a message")[:LONGEST]


@contextmanager
def in_one_line() -> Iterator[None]:
    """Convert errors of Spark into errors of this package with one line.

    Raises:
        ArchiveError: Replaces any of them.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - readers of a lake do not need it
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise ArchiveError(problem_of(str(error))) from error


NEEDED: Final = ("pyspark", "pyarrow", "numpy", "deltalake")
NEEDED_BY_REPORT: Final = ("pyarrow", "numpy", "deltalake", "jinja2")
"""A report reads the tables of a lake without Spark."""
DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.speculation": "false",
}


def check_installed(names: tuple[str, ...] = NEEDED) -> None:
    """Refuse to run without a required package.

    Raises:
        ConfigurationError: A package is not installed.
    """
    for name in names:
        if find_spec(name) is None:
            message = f"{name} is not installed: pip install 'aeron-async[spark]'"
            raise ConfigurationError(message)


def make_session(settings: PipelineSettings, on_start: Callable[[], object] = lambda: None) -> Any:
    """Return the current session, or create one with these settings.

    Args:
        settings: Of the pipeline.
        on_start: Called once nothing is missing, before what takes time.

    Raises:
        ConfigurationError: Java or PySpark is missing, or the workers' Python does not fit.
        ArchiveError: Spark refuses its settings, or does not start.
    """
    check_installed()
    ensure_java()
    ensure_interpreter()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession  # noqa: PLC0415 - after the check for Java

    builder = SparkSession.builder.appName("aeron-async pipeline")
    # spark-submit sets the master itself.
    if settings.master is not None or "SPARK_ENV_LOADED" not in os.environ:
        builder = builder.master(settings.master or "local[*]")
    for name, value in (DEFAULTS | dict(settings.conf)).items():
        builder = builder.config(name, value)
    on_start()
    with warnings.catch_warnings(), in_one_line():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
