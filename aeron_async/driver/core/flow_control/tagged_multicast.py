"""Tagged flow control: the slowest receiver that carries the group's tag sets the pace.

Source: Aeron `TaggedMulticastFlowControl`, `PreferredMulticastFlowControl`.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

from aeron_async.driver.core.flow_control.group import GroupFlowControl

if TYPE_CHECKING:
    from aeron_async.protocol.status_message import StatusMessage

__all__ = ["DEFAULT_GROUP_TAG", "PreferredMulticastFlowControl", "TaggedMulticastFlowControl"]

DEFAULT_GROUP_TAG: Final = -1


class TaggedMulticastFlowControl(GroupFlowControl):
    """Members are those whose status messages are 44 bytes and carry the tag; others may lose data.

    Args:
        group_tag: Signed, 64 bits.
        options: As for `GroupFlowControl`.
    """

    def __init__(self, *, group_tag: int = DEFAULT_GROUP_TAG, **options: Any) -> None:
        super().__init__(**options)
        self._group_tag = group_tag

    def matches(self, sm: StatusMessage) -> bool:
        """Return whether a status message carries the tag.

        Differs: feedback of another length is no tag. The Java driver compares the first four bytes
        with its old marker; the C driver records an error each time.
        """
        return sm.group_tag == self._group_tag


class PreferredMulticastFlowControl(TaggedMulticastFlowControl):
    """The old name of `TaggedMulticastFlowControl`, which does the same. Deprecated: use that one.

    Source: Aeron `PreferredMulticastFlowControl`.
    """

    def __init__(self, **options: Any) -> None:
        warnings.warn(
            "PreferredMulticastFlowControl is deprecated: use TaggedMulticastFlowControl",
            DeprecationWarning,
            stacklevel=2,
        )
        super().__init__(**options)
