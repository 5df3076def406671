"""Hosts of their own for each test; skipped without the right to make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.netns.hosts import Hosts

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    hosts = Hosts(3)
    try:
        hosts.make()
        yield hosts
    finally:
        hosts.close()
