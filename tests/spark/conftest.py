"""One Spark session for the tests that ask for it; without Java they are skipped."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.spark.java import ensure_interpreter, ensure_java
from tests.by_hand import runs_java
from tests.spark.sessions import SESSION, spark_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
# Plans are many and rows few: what Spark compiles for a plan would hardly run, and what a worker
# imports would be imported by each of them.
CONF = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.daemon.module": "tests.spark.warm_daemon",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.python.filterPushdown.enabled": "true",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        spark = spark_of(item.nodeid.partition("::")[0])
        if spark is not None:
            item.add_marker(pytest.mark.spark)
        # Or another worker starts a session of its own: see `tests/scheduling.py`.
        assert spark == SESSION or "spark" not in getattr(item, "fixturenames", ()), item.nodeid


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return the session; the workers find the package where it lies."""
    try:
        ensure_java()
    except ConfigurationError as error:
        if runs_java():
            raise
        pytest.skip(str(error))
    ensure_interpreter()
    pyspark_sql = pytest.importorskip("pyspark.sql", reason="pip install 'aeron-async[spark]'")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    inherited = os.environ.get("PYTHONPATH")
    found = [str(ROOT), str(ROOT / "aeron_async/spark/discovery"), inherited]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, found))
    folder = tmp_path_factory.mktemp("spark")
    builder = pyspark_sql.SparkSession.builder.master("local[2]").appName("aeron_async tests")
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    for name, value in CONF.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
