"""Congestion control: how a receiver chooses the window it advertises."""

from __future__ import annotations

from aeron_async.driver.core.congestion_control.base import (
    CongestionControl,
    receiver_window_length,
)
from aeron_async.driver.core.congestion_control.static import StaticWindowCongestionControl
from aeron_async.errors import ErrorCode, RegistrationError

__all__ = [
    "CongestionControl",
    "StaticWindowCongestionControl",
    "check_congestion_control",
    "congestion_control",
]


def check_congestion_control(name: str | None) -> None:
    """Refuse a strategy that this driver has not.

    Raises:
        RegistrationError: No strategy has that name.
    """
    if name not in {None, "default", "static"}:
        message = f"cc={name} is not supported by this driver: leave it out, or use cc=static"
        raise RegistrationError(message, code=ErrorCode.NOT_SUPPORTED)


def congestion_control(
    name: str | None, *, configured_window_length: int, term_length: int
) -> CongestionControl:
    """Return the congestion control of a new image.

    Args:
        name: As the channel or the context says; None for the default.
        configured_window_length: What the channel or the context allows, in bytes.
        term_length: Of the stream, in bytes; a window is at most half of it.

    Raises:
        RegistrationError: No strategy has that name.
    """
    check_congestion_control(name)
    return StaticWindowCongestionControl(
        window_length=receiver_window_length(
            configured_length=configured_window_length, term_length=term_length
        )
    )
