"""The choice of a flow control: by the channel, the context or a factory.

Source: Aeron `FlowControlSupplier`, `DefaultMulticastFlowControlSupplier`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.flow_control.base import (
    FlowControl,
    MaxMulticastFlowControl,
    UnicastFlowControl,
)
from aeron_async.driver.core.flow_control.group import (
    MinMulticastFlowControl,
    TaggedMulticastFlowControl,
)
from aeron_async.driver.core.strategies import (
    FLOW_CONTROL_GROUP,
    check_strategy,
    find_registered,
    known_names,
    name_of_supplier,
)
from aeron_async.driver.core.suppliers import FlowControlParams, FlowControlSupplier
from aeron_async.errors import AeronError, ErrorCode, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = [
    "flow_control",
    "flow_control_supplier",
]


def _unicast(params: FlowControlParams) -> FlowControl:
    multiple = params.retransmit_receiver_window_multiple
    return UnicastFlowControl(retransmit_receiver_window_multiple=multiple)


def _max(params: FlowControlParams) -> FlowControl:
    multiple = params.retransmit_receiver_window_multiple
    return MaxMulticastFlowControl(retransmit_receiver_window_multiple=multiple)


def _min(params: FlowControlParams) -> FlowControl:
    return MinMulticastFlowControl(**params.group_settings())


def _tagged(params: FlowControlParams) -> FlowControl:
    return TaggedMulticastFlowControl(group_tag=params.group_tag, **params.group_settings())


_BY_URI: Final[Mapping[str, FlowControlSupplier]] = {"max": _max, "min": _min, "tagged": _tagged}
# The names in the settings of the C driver.
_BY_SETTING: Final[Mapping[str, FlowControlSupplier]] = {
    "unicast_max": _unicast,
    "multicast_max": _max,
    "multicast_min": _min,
    "multicast_tagged": _tagged,
}


def flow_control_supplier(
    uri: ChannelUri, context: DriverContext, *, is_group: bool
) -> FlowControlSupplier:
    """Return the factory for the flow control of a publication.

    Raises:
        RegistrationError: No strategy has the name in the channel.
        ConfigurationError: The strategy with that name cannot be used.
    """
    options = uri.flow_control
    if options is not None and is_group:
        return _named(str(options.strategy), _BY_URI)
    chosen = (
        context.multicast_flow_control_supplier
        if is_group
        else context.unicast_flow_control_supplier
    )
    return chosen if callable(chosen) else _named(chosen, _BY_SETTING)


def flow_control(
    uri: ChannelUri,
    context: DriverContext,
    *,
    is_group: bool,
    supplier: FlowControlSupplier | None = None,
) -> FlowControl:
    """Return the flow control of a new publication.

    Args:
        uri: Its channel; `fc` in it overrides the context, for groups only.
        context: The driver's settings.
        is_group: Whether there may be several receivers.
        supplier: A factory that overrides channel and context.

    Raises:
        RegistrationError: No strategy has the name in the channel, or it could not be made.
        ConfigurationError: The strategy with that name cannot be used, or the factory returned
            something that is no flow control.
    """
    if supplier is None:
        supplier = flow_control_supplier(uri, context, is_group=is_group)
    try:
        control = supplier(FlowControlParams(uri=uri, context=context, is_group=is_group))
    except AeronError:
        raise
    except Exception as error:
        message = f"flow control {name_of_supplier(supplier)} could not be made: {error!r}"
        raise RegistrationError(message, code=ErrorCode.GENERIC) from error
    check_strategy(control, FlowControl, kind="flow control", supplier=supplier)
    return control


def _named(name: str, ours: Mapping[str, FlowControlSupplier]) -> FlowControlSupplier:
    supplier = ours.get(name) or find_registered(FLOW_CONTROL_GROUP, name)
    if supplier is None:
        message = (
            f"there is no flow control {name!r}: fc must be one of "
            f"{known_names(FLOW_CONTROL_GROUP, ours)}, or registered as an entry point of the "
            f"group {FLOW_CONTROL_GROUP}"
        )
        raise RegistrationError(message, code=ErrorCode.NOT_SUPPORTED)
    return supplier
