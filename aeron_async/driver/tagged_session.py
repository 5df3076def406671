"""`session-id=tag:N`: the session, MTU and terms of the publication that has the entity tag N.

Source: Aeron `PublicationParams.getSessionId`, `aeron_uri_publication_session_id_param`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.protocol.channel_uri import TagReference

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aeron_async.driver.core.publication import SubscribablePublication
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = ["with_tagged_session"]


def with_tagged_session(
    uri: ChannelUri, publications: Iterable[SubscribablePublication]
) -> ChannelUri:
    """Return the channel with what it takes from the publication its tag names, if it names one.

    Args:
        uri: The channel.
        publications: Those that it may mean; the first one counts.

    Raises:
        RegistrationError: INVALID_CHANNEL; none of them has the tag.
    """
    reference = uri.session_id
    if not isinstance(reference, TagReference):
        return uri
    for publication in publications:
        log = publication.log
        if log.metadata.entity_tag == reference.tag:
            return uri.replace(
                session_id=publication.session_id,
                mtu_length=log.mtu_length,
                term_length=log.term_length,
            )
    message = (
        f"session-id={reference} names no publication of this driver: add the one with "
        f"tags=,{reference.tag} first"
    )
    raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)
