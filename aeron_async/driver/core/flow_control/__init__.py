"""Flow control: status messages become the sender limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.core.flow_control.base import (
    FlowControl,
    MaxMulticastFlowControl,
    UnicastFlowControl,
)
from aeron_async.driver.core.flow_control.group import (
    GroupFlowControl,
    MinMulticastFlowControl,
    PreferredMulticastFlowControl,
    TaggedMulticastFlowControl,
)
from aeron_async.driver.core.flow_control.supplier import flow_control, flow_control_supplier
from aeron_async.driver.core.suppliers import FlowControlParams, FlowControlSupplier

if TYPE_CHECKING:
    from aeron_async.driver.core.context import DriverContext

__all__ = [
    "FlowControl",
    "FlowControlParams",
    "FlowControlSupplier",
    "GroupFlowControl",
    "MaxMulticastFlowControl",
    "MinMulticastFlowControl",
    "PreferredMulticastFlowControl",
    "TaggedMulticastFlowControl",
    "UnicastFlowControl",
    "flow_control",
    "flow_control_supplier",
    "unicast_flow_control",
]


def unicast_flow_control(context: DriverContext) -> FlowControl:
    """Return Aeron's flow control for unicast, whatever the context chooses."""
    return UnicastFlowControl(retransmit_receiver_window_multiple=context.unicast_flow_control_rrwm)
