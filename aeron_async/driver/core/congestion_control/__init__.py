"""Congestion control: the choice of the window that a receiver advertises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aeron_async.driver.core.congestion_control.auto_window import AutoWindowCongestionControl
from aeron_async.driver.core.congestion_control.base import CongestionControl, TrackRebuild
from aeron_async.driver.core.congestion_control.windows import (
    CubicCongestionControl,
    StaticWindowCongestionControl,
)
from aeron_async.driver.core.strategies import (
    CONGESTION_CONTROL_GROUP,
    check_strategy,
    find_registered,
    known_names,
    name_of_supplier,
)
from aeron_async.driver.core.suppliers import CongestionControlParams, CongestionControlSupplier
from aeron_async.errors import AeronError, ErrorCode, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AutoWindowCongestionControl",
    "CongestionControl",
    "CongestionControlParams",
    "CongestionControlSupplier",
    "CubicCongestionControl",
    "StaticWindowCongestionControl",
    "TrackRebuild",
    "congestion_control",
    "congestion_control_supplier",
]

_OURS: Final[Mapping[str, CongestionControlSupplier]] = {
    "static": StaticWindowCongestionControl.of,
    "cubic": CubicCongestionControl.of,
}


def congestion_control_supplier(
    chosen: str | CongestionControlSupplier | None,
) -> CongestionControlSupplier:
    """Return the factory for the congestion control of an image.

    Args:
        chosen: A name, of ours or registered in `aeron_async.congestion_control`; a factory; or
            None for the default, the static window.

    Raises:
        RegistrationError: No strategy has that name.
        ConfigurationError: The strategy with that name cannot be used.
    """
    if callable(chosen):
        return chosen
    name = "static" if chosen in {None, "default"} else str(chosen)
    supplier = _OURS.get(name) or find_registered(CONGESTION_CONTROL_GROUP, name)
    if supplier is None:
        names = known_names(CONGESTION_CONTROL_GROUP, _OURS)
        message = (
            f"there is no congestion control {name!r}: cc must be one of {names}, or registered "
            f"as an entry point of the group {CONGESTION_CONTROL_GROUP}"
        )
        raise RegistrationError(message, code=ErrorCode.NOT_SUPPORTED)
    return supplier


def congestion_control(
    chosen: str | CongestionControlSupplier | None, params: CongestionControlParams
) -> CongestionControl:
    """Return the congestion control of a new image.

    Raises:
        RegistrationError: No strategy has that name, or it could not be made.
        ConfigurationError: The strategy with that name cannot be used, or the factory returned
            something that is no congestion control.
    """
    supplier = congestion_control_supplier(chosen)
    try:
        control = supplier(params)
    except AeronError:
        raise
    except Exception as error:
        # A foreign strategy failed, on a peer's SETUP: refuse the image, and do nothing else.
        name = name_of_supplier(supplier)
        message = f"congestion control {name} could not be made: {error!r}"
        raise RegistrationError(message, code=ErrorCode.GENERIC) from error
    check_strategy(control, CongestionControl, kind="congestion control", supplier=supplier)
    return control
