"""Name resolver API, for custom resolvers of the host names in channels.

The entry points of the group `aeron_async.name_resolver` are factories, as `DriverContext` takes
them.

Source: Aeron `NameResolver`.
"""

from __future__ import annotations

from aeron_async.driver.core.suppliers import NameResolver, NameResolverSupplier

__all__ = ["NameResolver", "NameResolverSupplier"]
