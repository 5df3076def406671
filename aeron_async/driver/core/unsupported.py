"""Channels that can be read and resolved, but that this driver does nothing for yet.

The conductor asks here before it looks up a name. A kind of channel that begins to work leaves this
module, and its row of the page of compatibility changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.errors import ErrorCode, RegistrationError

if TYPE_CHECKING:
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["check_is_supported"]


def check_is_supported(uri: ChannelUri) -> None:
    """Refuse a channel of a kind that this driver has nothing for, or that asks for such a thing.

    Raises:
        RegistrationError: NOT_SUPPORTED; the message names it.
    """
    asked = (("ats=true", uri.ats is True),)
    what = next((text for text, is_asked in asked if is_asked), None)
    if what is not None:
        message = (
            f"{what} is not supported by this driver: {uri}; docs/compatibility.md lists what is"
        )
        raise RegistrationError(message, code=ErrorCode.NOT_SUPPORTED)
