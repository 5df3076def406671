"""Settings of a control server, checked once and never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import attrs

from aeron_async.archive.control.authentication import AcceptAll, AuthenticatorSupplier
from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.arguments import check_number
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.protocol.units import duration_ns_of, size_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.archive.context import ArchiveContext

__all__ = ["CONTROL_STREAM_ID", "ControlSettings"]

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
CONTROL_STREAM_ID: Final = 10
"""Default stream of requests, as in official archives."""


def _check_positive(_: object, attribute: attrs.Attribute[Any], value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        message = f"{attribute.name} is {value!r}, and must be a number of more than 0"
        raise ConfigurationError(message)


def _check_stream_id(_: object, attribute: attrs.Attribute[Any], value: int) -> None:
    check_number(
        value, attribute.name, minimum=INT32_MIN, maximum=INT32_MAX, why=": signed 32 bits"
    )


def _check_channel(_: object, attribute: attrs.Attribute[Any], value: str | None) -> None:
    _check(attribute, value, ChannelUri.check_subscription)


def _check_publication(_: object, attribute: attrs.Attribute[Any], value: str | None) -> None:
    _check(attribute, value, ChannelUri.check_publication)


def _check(
    attribute: attrs.Attribute[Any], value: str | None, check: Callable[[ChannelUri], object]
) -> None:
    if value is None:
        return
    try:
        check(ChannelUri.parse(value))
    except ConfigurationError as error:
        message = f"{attribute.name}: {error}"
        raise ConfigurationError(message) from None


@attrs.frozen(kw_only=True)
class ControlSettings:
    """The channels of a control server, and the limits of its clients.

    Sizes are in bytes and durations in nanoseconds; either may be text such as `64k` or `5s`.

    Attributes:
        control_channel: Channel for requests of remote clients; None admits none.
        control_stream_id: Stream within that channel.
        local_control_channel: Channel for requests of clients of the same driver; None admits none.
        local_control_stream_id: Stream within that channel.
        recording_events_channel: Channel on which recording events are published; None publishes
            none.
        recording_events_stream_id: Stream within that channel.
        control_term_length: Term length of answers, whatever the client's channel says, in bytes.
        control_mtu_length: MTU of answers, unless the client's channel sets it, in bytes.
        is_control_term_sparse: Whether the terms of answers take memory only as they are used.
        connect_timeout_ns: How long a client may be silent, or take no answer.
        liveness_interval_ns: Interval between two checks whether a client is connected.
        resend_interval_ns: Interval of the answer that a session is open, until the first request.
        max_sessions: Most active clients; the next one is refused.
        max_unconnected_sessions: Most sessions whose clients are not admitted yet.
        max_unconnected_sessions_per_image: The same limit for the requests of one image.
        unconnected_session_timeout_ns: How long a session waits for its client to take answers.
        max_pending_requests: Most requests of one client that wait to be executed.
        max_pending_responses: Most messages to one client that wait to be sent.
        max_request_length: Longest request, in bytes.
        authenticator_supplier: Makes the authenticator of each session.
    """

    control_channel: str | None = attrs.field(default=None, validator=_check_channel)
    control_stream_id: int = attrs.field(default=CONTROL_STREAM_ID, validator=_check_stream_id)
    local_control_channel: str | None = attrs.field(
        default="aeron:ipc?term-length=64k", validator=_check_channel
    )
    local_control_stream_id: int = attrs.field(default=10, validator=_check_stream_id)
    recording_events_channel: str | None = attrs.field(default=None, validator=_check_publication)
    recording_events_stream_id: int = attrs.field(default=30, validator=_check_stream_id)
    control_term_length: int = attrs.field(
        default=65_536, converter=size_of, validator=_check_positive
    )
    control_mtu_length: int = attrs.field(
        default=1_408, converter=size_of, validator=_check_positive
    )
    is_control_term_sparse: bool = True
    connect_timeout_ns: int = attrs.field(
        default=5 * NS_PER_SECOND, converter=duration_ns_of, validator=_check_positive
    )
    liveness_interval_ns: int = attrs.field(
        default=NS_PER_SECOND, converter=duration_ns_of, validator=_check_positive
    )
    resend_interval_ns: int = attrs.field(
        default=NS_PER_SECOND // 5, converter=duration_ns_of, validator=_check_positive
    )
    max_sessions: int = attrs.field(default=256, validator=_check_positive)
    max_unconnected_sessions: int = attrs.field(default=32, validator=_check_positive)
    max_unconnected_sessions_per_image: int = attrs.field(default=4, validator=_check_positive)
    unconnected_session_timeout_ns: int = attrs.field(
        default=NS_PER_SECOND, converter=duration_ns_of, validator=_check_positive
    )
    max_pending_requests: int = attrs.field(default=1_024, validator=_check_positive)
    max_pending_responses: int = attrs.field(default=4_096, validator=_check_positive)
    max_request_length: int = attrs.field(
        default=65_536, converter=size_of, validator=_check_positive
    )
    authenticator_supplier: AuthenticatorSupplier = AcceptAll

    @classmethod
    def of(cls, context: ArchiveContext, **others: Any) -> Self:
        """Return the settings that an archive's context holds; `others` sets the rest."""
        return cls(
            control_channel=context.control_channel,
            control_stream_id=context.control_stream_id,
            local_control_channel=context.local_control_channel or None,
            local_control_stream_id=context.local_control_stream_id,
            recording_events_channel=context.recording_events_channel,
            recording_events_stream_id=context.recording_events_stream_id,
            connect_timeout_ns=context.connect_timeout_ns,
            max_unconnected_sessions=context.max_unconnected_sessions,
            max_unconnected_sessions_per_image=context.max_unconnected_sessions_per_image,
            unconnected_session_timeout_ns=context.unconnected_session_timeout_ns,
            **others,
        )
