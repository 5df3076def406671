"""The programs that measure are not traced: they run what other tests have shown to coverage."""

from __future__ import annotations

import os

import pytest

from tests.tracing import untraced_environment


@pytest.fixture(autouse=True)
def _untraced_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ.keys() - untraced_environment().keys():
        monkeypatch.delenv(name)
