"""What a flow control is made from, and where it comes from: channel, context, or a factory.

Source: Aeron `FlowControlSupplier`, `DefaultMulticastFlowControlSupplier`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.driver.core.flow_control.base import FlowControl
from aeron_async.driver.core.flow_control.max_multicast import MaxMulticastFlowControl
from aeron_async.driver.core.flow_control.min_multicast import MinMulticastFlowControl
from aeron_async.driver.core.flow_control.tagged_multicast import TaggedMulticastFlowControl
from aeron_async.driver.core.flow_control.unicast import UnicastFlowControl
from aeron_async.driver.core.registered import FLOW_CONTROL_GROUP, find_registered, known_names
from aeron_async.driver.core.strategies import check_strategy, name_of_supplier
from aeron_async.errors import AeronError, ErrorCode, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.protocol.channel_uri import ChannelUri, FlowControlOptions

__all__ = ["FlowControlParams", "FlowControlSupplier", "flow_control", "flow_control_supplier"]

FlowControlSupplier = Callable[["FlowControlParams"], "FlowControl"]
"""Makes the strategy of one publication."""


@attrs.frozen(kw_only=True)
class FlowControlParams:
    """What is known of a publication when its flow control is chosen.

    What the channel says goes before what the context says.

    Attributes:
        uri: The channel.
        context: The driver's settings.
        is_group: Whether there may be several receivers.
    """

    uri: ChannelUri
    context: DriverContext
    is_group: bool

    @property
    def options(self) -> FlowControlOptions | None:
        """Return what follows `fc=` in the channel."""
        return self.uri.flow_control

    @property
    def raw_options(self) -> tuple[str, ...]:
        """Return the options of a strategy that is not ours, as they were written."""
        return () if self.options is None else self.options.raw_options

    @property
    def group_tag(self) -> int:
        """Return the tag by which members of the group are known."""
        given = None if self.options is None else self.options.group_tag
        return self.context.flow_control_group_tag if given is None else given

    @property
    def retransmit_receiver_window_multiple(self) -> int:
        """Return how many default receiver windows one NAK may bring."""
        context, options = self.context, self.options
        if options is not None and options.retransmit_receiver_window_multiple is not None:
            return options.retransmit_receiver_window_multiple
        if self.is_group:
            return context.multicast_flow_control_rrwm
        return context.unicast_flow_control_rrwm

    def group_settings(self) -> dict[str, Any]:
        """Return the arguments of a `GroupFlowControl`."""
        context, options = self.context, self.options
        timeout_ns = None if options is None else options.receiver_timeout_ns
        min_size = None if options is None else options.group_min_size
        return {
            "receiver_timeout_ns": (
                context.flow_control_receiver_timeout_ns if timeout_ns is None else timeout_ns
            ),
            "group_min_size": context.flow_control_group_min_size if min_size is None else min_size,
            "retransmit_receiver_window_multiple": self.retransmit_receiver_window_multiple,
            "max_receivers": context.max_flow_control_receivers,
        }


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
# As the C driver names them in its settings.
_BY_SETTING: Final[Mapping[str, FlowControlSupplier]] = {
    "unicast_max": _unicast,
    "multicast_max": _max,
    "multicast_min": _min,
    "multicast_tagged": _tagged,
}


def flow_control_supplier(
    uri: ChannelUri, context: DriverContext, *, is_group: bool
) -> FlowControlSupplier:
    """Return what makes the flow control of a publication; nothing is made yet.

    Raises:
        RegistrationError: No strategy has the name that the channel gives.
        ConfigurationError: The one that has it cannot be used.
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
        uri: Its channel; `fc` in it beats the context, but only a group listens to it.
        context: The driver's settings.
        is_group: Whether there may be several receivers.
        supplier: Makes it, whatever channel and context say.

    Raises:
        RegistrationError: No strategy has the name that the channel gives, or it could not be made.
        ConfigurationError: The one that has it cannot be used, or what was made is no strategy.
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
