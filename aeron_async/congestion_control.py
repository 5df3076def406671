"""Congestion control API, for custom strategies, which choose the receiver window of an image.

A package can register a strategy as an entry point of the group `aeron_async.congestion_control`.
The entry point is a factory, as `Aeron.add_subscription` and `DriverContext` accept it.

Source: Aeron `CongestionControl` and its implementations.
"""

from __future__ import annotations

from aeron_async.driver.core.congestion_control import (
    CongestionControl,
    CongestionControlParams,
    CongestionControlSupplier,
    CubicCongestionControl,
    StaticWindowCongestionControl,
    TrackRebuild,
    congestion_control,
)

__all__ = [
    "CongestionControl",
    "CongestionControlParams",
    "CongestionControlSupplier",
    "CubicCongestionControl",
    "StaticWindowCongestionControl",
    "TrackRebuild",
    "congestion_control",
]
