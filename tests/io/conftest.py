"""Every test that asks for `network` runs over both transports."""

from __future__ import annotations

import pytest

from aeron_async.driver.media.network import SystemNetwork, TransportKind


@pytest.fixture(params=["socket", "loop"])
def transport_kind(request: pytest.FixtureRequest) -> TransportKind:
    kind: TransportKind = request.param
    return kind


@pytest.fixture
def network(transport_kind: TransportKind) -> SystemNetwork:
    return SystemNetwork(transport_kind)
