"""What is asked of a strategy that somebody else has written, before it is relied on."""

from __future__ import annotations

from typing import Any

from aeron_async.errors import ConfigurationError

__all__ = ["check_strategy"]


def check_strategy(strategy: object, protocol: type[Any], *, kind: str, supplier: object) -> None:
    """Refuse what lacks anything that its protocol has: a factory forgot to inherit, or to return.

    Args:
        strategy: What was made.
        protocol: What it has to answer to.
        kind: Such as `flow control`, for the message.
        supplier: What made it.

    Raises:
        ConfigurationError: Something is missing.
    """
    lacking = [
        name for name in vars(protocol) if not name.startswith("_") and not hasattr(strategy, name)
    ]
    if isinstance(strategy, type):
        lacking = ["an instance"]
    if lacking:
        message = (
            f"{kind} {supplier!r} made {strategy!r}, which lacks {', '.join(lacking)}: let the "
            f"factory return an instance of a class that inherits from {protocol.__name__}"
        )
        raise ConfigurationError(message)
