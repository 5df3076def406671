"""A session learns of the sources once, and is not warned of what it knew."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.spark.source import is_known, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JavaError = pytest.importorskip(
    "py4j.protocol", reason="pip install 'aeron-async[spark]'"
).Py4JError


def session_that(exists: Any) -> Any:
    """Return a session whose answer whether a source is there comes from a function."""
    manager = SimpleNamespace(dataSourceExists=exists)
    state = SimpleNamespace(dataSourceManager=lambda: manager)
    registered: list[str] = []
    return SimpleNamespace(
        _jsparkSession=SimpleNamespace(sessionState=lambda: state),
        dataSource=SimpleNamespace(register=lambda source: registered.append(source.name())),
        registered=registered,
    )


def test_what_a_session_knows_is_left_as_it_is() -> None:
    session = session_that(lambda name: name == "aeron_archive")
    register(session)
    assert session.registered == ["aeron_archive_plans", "aeron"]


def test_a_session_that_cannot_be_asked_is_told() -> None:
    def refuse(_name: str) -> bool:
        raise JavaError

    session = session_that(refuse)
    register(session)
    assert session.registered == ["aeron_archive", "aeron_archive_plans", "aeron"]
    assert not is_known(SimpleNamespace(), "aeron")  # type: ignore[arg-type]


def test_registering_again_replaces_nothing(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(spark)
    replaced: list[Any] = []
    monkeypatch.setattr(
        type(spark.dataSource), "register", lambda _, source: replaced.append(source)
    )
    register(spark)
    assert replaced == []
    assert is_known(spark, "aeron_archive")
    assert not is_known(spark, "nobody_has_this")
