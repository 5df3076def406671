"""Min flow control: the slowest receiver of a group sets the pace.

Source: Aeron `MinMulticastFlowControl`.
"""

from __future__ import annotations

from aeron_async.driver.core.flow_control.group import GroupFlowControl

__all__ = ["MinMulticastFlowControl"]


class MinMulticastFlowControl(GroupFlowControl):
    """Every receiver is a member of the group, and the slowest one sets the pace."""
