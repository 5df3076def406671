"""What a loop in virtual time refuses: all that waits for the machine.

Invariant: refused are the public ways in. What the loop beneath needs for itself, such as the
socket it wakes itself with, it reaches by private ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["REFUSED", "refuse_real_world"]

T = TypeVar("T")

REFUSED: Final = (
    *("add_reader", "add_writer", "add_signal_handler"),
    *("create_connection", "create_server", "create_datagram_endpoint"),
    *("create_unix_connection", "create_unix_server", "connect_accepted_socket"),
    *("connect_read_pipe", "connect_write_pipe", "subprocess_exec", "subprocess_shell"),
    *("sock_accept", "sock_connect", "sock_recv", "sock_recv_into", "sock_recvfrom"),
    *("sock_recvfrom_into", "sock_sendall", "sock_sendto", "sock_sendfile"),
    *("sendfile", "start_tls", "getaddrinfo", "getnameinfo"),
)
"""Methods of a loop, by name."""


def refuse_real_world(loop_class: type[T]) -> type[T]:
    """Let a loop class refuse them all, each with a RuntimeError that names it."""
    for name in REFUSED:
        setattr(loop_class, name, refusal(name))
    return loop_class


def refusal(name: str) -> Callable[..., NoReturn]:
    """Return a method that refuses, as soon as it is called."""

    def refuse(self: object, *args: Any, **options: Any) -> NoReturn:
        del self, args, options
        message = (
            f"{name} belongs to the real world, which stands still in virtual time; "
            "use the network of a World"
        )
        raise RuntimeError(message)

    refuse.__name__ = name
    return refuse
