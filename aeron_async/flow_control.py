"""Flow control API, for custom strategies: which receivers set the pace of a publication.

The entry points of the group `aeron_async.flow_control` are factories, as `Aeron.add_publication`
and `DriverContext` take them.

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
