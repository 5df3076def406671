"""Flow control: how status messages become the sender limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.driver.core.flow_control.base import FlowControl
from aeron_async.driver.core.flow_control.unicast import UnicastFlowControl

if TYPE_CHECKING:
    from aeron_async.driver.core.context import DriverContext

__all__ = ["FlowControl", "UnicastFlowControl", "unicast_flow_control"]


def unicast_flow_control(context: DriverContext) -> FlowControl:
    """Return the flow control of a new unicast publication."""
    return UnicastFlowControl(retransmit_receiver_window_multiple=context.unicast_flow_control_rrwm)
