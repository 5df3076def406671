"""What is done once in each worker."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from aeron_async.spark import worker_process
from aeron_async.spark.worker_process import settle

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def frozen() -> Iterator[None]:
    """Let what a test froze be collected again."""
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen")
def test_who_is_no_worker_of_spark_keeps_its_garbage_collector() -> None:
    settle()
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("frozen")
def test_a_worker_spares_what_has_been_imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class InTask:
        @staticmethod
        def get() -> object:
            return object()

    monkeypatch.setattr(worker_process, "TaskContext", InTask)
    settle()
    spared = gc.get_freeze_count()
    assert spared > 10_000
    more: list[list[int]] = [[] for _ in range(1_000)]
    settle()
    assert gc.get_freeze_count() <= spared
    assert len(more) == 1_000
