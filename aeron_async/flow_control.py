"""Flow control API, for custom strategies, which decide how far a publication may send.

A package can register a strategy as an entry point of the group `aeron_async.flow_control`. The
entry point is a factory, as `Aeron.add_publication` and `DriverContext` accept it.

Source: Aeron `FlowControl` and its implementations.
"""

from __future__ import annotations

from aeron_async.driver.core.flow_control import (
    FlowControl,
    FlowControlParams,
    FlowControlSupplier,
    GroupFlowControl,
    MaxMulticastFlowControl,
    MinMulticastFlowControl,
    TaggedMulticastFlowControl,
    UnicastFlowControl,
    flow_control,
)
from aeron_async.protocol.status_message import StatusMessage

__all__ = [
    "FlowControl",
    "FlowControlParams",
    "FlowControlSupplier",
    "GroupFlowControl",
    "MaxMulticastFlowControl",
    "MinMulticastFlowControl",
    "StatusMessage",
    "TaggedMulticastFlowControl",
    "UnicastFlowControl",
    "flow_control",
]
