"""Congestion control API, for custom strategies: the window that a receiver advertises.

The entry points of the group `aeron_async.congestion_control` are factories, as
`Aeron.add_subscription` and `DriverContext` take them.

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
