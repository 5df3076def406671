"""Names to addresses, off the loop: the system's resolver may block for seconds."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from aeron_async.driver.media.socket_spec import SocketAddress, literal
from aeron_async.errors import ErrorCode, RegistrationError

if TYPE_CHECKING:
    import asyncio

__all__ = ["resolve_host"]


async def resolve_host(host: str, port: int, *, loop: asyncio.AbstractEventLoop) -> SocketAddress:
    """Return the numeric address of a host: IPv4 where it has one, else IPv6.

    A numeric host is returned as it is, without any look-up. The first address of a family wins.

    Raises:
        RegistrationError: UNKNOWN_HOST; the name has no address, or cannot be a name.

    Source: Aeron `aeron_ip_addr_resolver`.
    """
    if literal(host) is not None:
        return host, port
    try:
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    # A label over 63 characters fails in Python's own codec, before the system is asked.
    except (OSError, UnicodeError) as error:
        raise _unknown(host, f"{error}") from None
    for family in (socket.AF_INET, socket.AF_INET6):
        for found_family, _, _, _, address in infos:
            if found_family == family:
                return str(address[0]), port
    raise _unknown(host, "no IPv4 or IPv6 address")


def _unknown(host: str, reason: str) -> RegistrationError:
    message = (
        f"cannot resolve host {host!r}: {reason}; "
        "check the name in the channel and the resolver of this machine, or write the address"
    )
    return RegistrationError(message, code=ErrorCode.UNKNOWN_HOST)
