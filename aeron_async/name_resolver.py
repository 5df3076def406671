"""Name resolver API, for custom resolvers of the host names in channels.

A package can register a resolver as an entry point of the group `aeron_async.name_resolver`. The
entry point is a factory, as `DriverContext` accepts it.

Source: Aeron `NameResolver`.
"""

from __future__ import annotations

from aeron_async.driver.core.suppliers import NameResolver, NameResolverSupplier

__all__ = ["NameResolver", "NameResolverSupplier"]
