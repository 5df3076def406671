"""What looks up the names of hosts: the system's own resolver, or one of the application's.

Source: Aeron `NameResolver`, `aeron_name_resolver.c`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from aeron_async.driver.core.context_settings import SYSTEM_NAME_RESOLVER
from aeron_async.driver.core.registered import NAME_RESOLVER_GROUP, find_registered
from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.outbox import Address

__all__ = ["NameResolver", "NameResolverSupplier", "name_resolver"]


class NameResolver(Protocol):
    """Knows the addresses of names."""

    async def resolve(self, host: str, port: int, *, is_re_resolution: bool = False) -> Address:
        """Return the numeric address of a host, and its port.

        Called in the driver's event loop, which waits for nothing else meanwhile: it must not
        block. Numeric hosts are never asked for.

        Args:
            host: A name, as the channel has it.
            port: To be returned, unless the name stands for another.
            is_re_resolution: Whether it was resolved before, and may have changed since.

        Raises:
            Exception: The name has no address now; whoever adds the stream is told
                `UNKNOWN_HOST`, with what was raised as the cause.
        """
        ...


NameResolverSupplier = Callable[[], NameResolver]
"""Makes a resolver for one driver, when it starts."""


def name_resolver(context: DriverContext) -> NameResolver | None:
    """Return the resolver that a context asks for, or None for the one of the network.

    Raises:
        ConfigurationError: What a factory made cannot resolve anything.
    """
    wanted: object = context.name_resolver_supplier
    if wanted == SYSTEM_NAME_RESOLVER:
        return None
    if isinstance(wanted, str):
        wanted = find_registered(NAME_RESOLVER_GROUP, wanted)
    # A class has the method too, and is a factory.
    if isinstance(wanted, type) or not hasattr(wanted, "resolve"):
        wanted = cast("NameResolverSupplier", wanted)()
    if not callable(getattr(wanted, "resolve", None)):
        message = f"name_resolver_supplier gave {wanted!r}, which has no method resolve"
        raise ConfigurationError(message)
    return cast("NameResolver", wanted)
