"""Ask a publication or a subscription why it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aeron_async.client.publication_base import PublicationBase
    from aeron_async.client.subscription_base import SubscriptionBase
    from aeron_async.waits import Why

__all__ = ["why"]


def why(waiter: PublicationBase | SubscriptionBase) -> Why:
    """Return why a publication or subscription waits: the reason, what was seen, what to change.

    It can be asked at any time; `reason` is `WaitReason.NOTHING` while nothing is in the way. The
    text, `str()` of it, is what the log says of a wait longer than `waiting_hint_ns`, and what the
    error of a timeout ends with.

    Args:
        waiter: Of this process; from its own event loop.

    Raises:
        ConfigurationError: It is neither a publication nor a subscription.
    """
    explain = getattr(waiter, "explain", None)
    if explain is None:
        from aeron_async.errors import ConfigurationError  # noqa: PLC0415 - the rare case

        message = f"why() explains a publication or a subscription, got {type(waiter).__name__}"
        raise ConfigurationError(message)
    found: Why = explain()
    return found
