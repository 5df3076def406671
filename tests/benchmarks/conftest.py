"""The programs that measure are not traced: they run what other tests have shown to coverage."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests import warm_children
from tests.tracing import untraced_environment


@pytest.fixture(autouse=True)
def _untraced_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ.keys() - untraced_environment().keys():
        monkeypatch.delenv(name)


@pytest.fixture
def _warm_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the programs from one that has imported everything."""
    monkeypatch.setattr(asyncio, "create_subprocess_exec", warm_children.create_subprocess_exec)
