"""Of a query that failed, the one line that matters is shown."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from aeron_async.errors import ArchiveError
from aeron_async.spark.pipeline.session import in_one_line, problem_of

JAVA = """[STREAM_FAILED] Query terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed
Traceback (most recent call last):
aeron_async.errors.DataLossError: recording 3, position 64: it is not there; failOnDataLoss=false
\tat org.apache.spark.X
"""


def test_an_error_of_ours_is_found_among_those_of_java() -> None:
    assert problem_of(JAVA).startswith("recording 3, position 64: it is not there")


def test_else_the_last_cause_that_java_names_is_shown() -> None:
    text = (
        "org.X: wrapped\n\tat Y\nCaused by: org.Z: worker crashed. Consider\nCaused by: java.io.E\n"
    )
    assert problem_of(text) == "worker crashed. Consider"
    python = "org.X: why\nCaused by: org.P: Traceback (most recent call last):\n"
    assert problem_of(python) == "org.X: why"


def test_else_the_first_line_is_shown() -> None:
    assert problem_of("\n\n  [OOM] no memory\nmore") == "[OOM] no memory"
    assert "without a message" in problem_of(" \n")


def test_a_line_that_names_only_a_method_of_java_is_passed_over() -> None:
    text = "An error occurred while calling o5.start.\n: org.X: two queries use it\n\tat Y"
    assert problem_of(text) == "org.X: two queries use it"


def test_errors_of_spark_become_errors_of_ours() -> None:
    error = PySparkException("[OOM] no memory")
    with pytest.raises(ArchiveError, match="no memory"), in_one_line():
        raise error
