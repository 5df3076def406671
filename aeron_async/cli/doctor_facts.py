"""What is to be known of a machine, before anybody says whether it is good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from aeron_async.driver.core.context import DriverContext

__all__ = ["GROUP", "Buffer", "Facts", "NetworkCard"]

GROUP: Final = "224.20.30.39"
"""The group that is tried; Aeron's samples use it."""


@attrs.frozen(kw_only=True)
class Buffer:
    """A socket buffer, in bytes.

    Attributes:
        asked_length: By the settings; 0 leaves it to the system.
        granted_length: What the system gave, comparable with what was asked for.
        limit_length: The most that anybody may ask for; None where the system does not say.
    """

    asked_length: int
    granted_length: int
    limit_length: int | None


@attrs.frozen(kw_only=True)
class NetworkCard:
    """An interface that is up.

    Attributes:
        name: Such as `eth0`.
        mtu_length: Longest packet it carries, in bytes, IP header included.
        is_loopback: Whether it leads to this machine itself.
    """

    name: str
    mtu_length: int
    is_loopback: bool


@attrs.frozen(kw_only=True)
class Facts:
    """A machine, as far as it matters.

    Attributes:
        context: The settings of the environment.
        is_linux: Whether Linux runs it.
        receive_buffer: Of a socket as the driver opens it.
        send_buffer: Likewise.
        cards: The interfaces that are up.
        multicast_interface: The address that a group is reached from; None where it is not.
        multicast_error: Why a group cannot be joined or sent to; empty where it can.
        has_gso: Whether the system cuts a run of datagrams into segments (`UDP_SEGMENT`).
        has_gro: Whether the system hands over a run of datagrams as one (`UDP_GRO`).
        why_pure: Why the kernel is the one in Python; None if it is compiled.
        loop_name: The event loop that commands run on.
        shared_free_length: Bytes free in /dev/shm; None where there is no such folder.
        loop_lag_median_ns: How late a timer of the event loop fired.
        loop_lag_max_ns: The worst of them.
        clock_step_ns: The shortest step that the monotonic clock was seen to make.
        clock_cost_ns: How long reading it takes.
        clock_source: What the system reads it from; empty where it does not say.
    """

    context: DriverContext
    is_linux: bool
    receive_buffer: Buffer
    send_buffer: Buffer
    cards: tuple[NetworkCard, ...]
    multicast_interface: str | None
    multicast_error: str
    has_gso: bool
    has_gro: bool
    why_pure: str | None
    loop_name: str
    shared_free_length: int | None
    loop_lag_median_ns: int
    loop_lag_max_ns: int
    clock_step_ns: int
    clock_cost_ns: int
    clock_source: str
