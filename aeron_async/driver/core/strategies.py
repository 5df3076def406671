"""What is asked of a strategy that somebody else has written, and what is said when it fails."""

from __future__ import annotations

from traceback import walk_tb
from typing import Any

from aeron_async.errors import ConfigurationError

__all__ = ["cause_of_failure", "check_strategy", "name_of_supplier"]


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
            f"{kind} {name_of_supplier(supplier)} made {strategy!r}, which lacks "
            f"{', '.join(lacking)}: let the factory return an instance of a class that "
            f"inherits from {protocol.__name__}"
        )
        raise ConfigurationError(message)


def name_of_supplier(supplier: object) -> str:
    """Return what a factory is called in its source, or its repr where it has no name."""
    return getattr(supplier, "__qualname__", None) or repr(supplier)


def cause_of_failure(error: Exception, strategy: object, *, kind: str) -> str:
    """Say why a stream failed, such as `because its flow control raised ValueError: boom`.

    Args:
        error: As it was caught.
        strategy: Is to blame if the code of one of its classes' modules was running.
        kind: Such as `flow control`.
    """
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    modules = {each.__module__ for each in type(strategy).__mro__}
    for frame, _ in walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__") in modules:
            return f"because its {kind} raised {said}"
    return f"because of {said}"
