"""Settings of a control server, checked once and never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import attrs

from aeron_async.archive.control.authentication import AcceptAll, AuthenticatorSupplier
from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.protocol.units import INT32_MAX, INT32_MIN, INT64_MAX
from aeron_async.settings import (
    Kind,
    Settings,
    declare,
    duration,
    flag,
    integer,
    size,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.archive.context import ArchiveContext

__all__ = ["CONTROL_STREAM_ID", "ControlSettings"]

CONTROL_STREAM_ID: Final = 10
"""Default stream of requests, as in official archives."""


class Factory(Kind):
    """A function or a class that makes an object; text cannot name one."""

    LIMITS: ClassVar[str] = "a factory"

    def parse(self, text: str) -> object:
        """Refuse any text.

        Raises:
            ConfigurationError: Always.
        """
        message = f"{text!r} is text, and not a factory"
        raise ConfigurationError(message)

    def refusal(self, value: object) -> str:
        """Refuse what cannot be called."""
        return "" if callable(value) else f"must be a factory, got {value!r}"

    def format(self, value: Any) -> str:
        """Return the name of the factory."""
        return str(getattr(value, "__qualname__", value))


@attrs.frozen(kw_only=True)
class ControlSettings(Settings):
    """The channels of a control server, and the limits of its clients.

    Sizes are in bytes and durations in nanoseconds; either may be text such as `64k` or `5s`.
    `settings` describes every field.

    Raises:
        ConfigurationError: A value is beyond its limits; names the setting.
    """

    control_channel: str | None = text(
        "control_channel", None, "Channel of the requests from other machines."
    )
    control_stream_id: int = integer(
        "control_stream_id",
        CONTROL_STREAM_ID,
        "Stream id of the control channel.",
        minimum=INT32_MIN,
        maximum=INT32_MAX,
    )
    local_control_channel: str | None = text(
        "local_control_channel",
        "aeron:ipc?term-length=64k",
        "Channel of the requests from clients of the same driver.",
        is_optional=True,
    )
    local_control_stream_id: int = integer(
        "local_control_stream_id",
        10,
        "Stream id of the local control channel.",
        minimum=INT32_MIN,
        maximum=INT32_MAX,
    )
    recording_events_channel: str | None = text(
        "recording_events_channel", None, "Channel that publishes the progress of recordings."
    )
    recording_events_stream_id: int = integer(
        "recording_events_stream_id",
        30,
        "Stream id of the recording events.",
        minimum=INT32_MIN,
        maximum=INT32_MAX,
    )
    control_term_length: int = size(
        "control_term_length",
        65_536,
        "Term length of responses; Aeron's `aeron.archive.control.term.buffer.length`.",
        minimum=1,
        maximum=INT64_MAX,
    )
    control_mtu_length: int = size(
        "control_mtu_length",
        1_408,
        "MTU of responses whose channel sets none; Aeron's `aeron.archive.control.mtu.length`.",
        minimum=1,
        maximum=INT64_MAX,
    )
    is_control_term_sparse: bool = flag(
        "is_control_term_sparse",
        True,
        "Whether the terms of responses use memory only as they fill, as in Aeron's "
        "`aeron.archive.control.term.buffer.sparse`.",
    )
    connect_timeout_ns: int = duration(
        "connect_timeout_ns",
        5 * NS_PER_SECOND,
        "How long a client may be silent, or receive no response; Aeron's "
        "`aeron.archive.connect.timeout`.",
        minimum=1,
    )
    liveness_interval_ns: int = duration(
        "liveness_interval_ns",
        NS_PER_SECOND,
        "How often the server checks that a client is connected; Aeron's "
        "`aeron.archive.session.liveness.check.interval`.",
        minimum=1,
    )
    resend_interval_ns: int = duration(
        "resend_interval_ns",
        NS_PER_SECOND // 5,
        "How often the server repeats that a session is open, until the first request comes.",
        minimum=1,
    )
    max_sessions: int = integer(
        "max_sessions",
        256,
        "Maximum number of clients; the server refuses the next one (not in Aeron).",
        minimum=1,
    )
    max_unconnected_sessions: int = integer(
        "max_unconnected_sessions",
        32,
        "Maximum number of sessions whose clients are not admitted yet (not in Aeron).",
        minimum=1,
    )
    max_unconnected_sessions_per_image: int = integer(
        "max_unconnected_sessions_per_image",
        4,
        "Maximum number of such sessions that one publication may open (not in Aeron).",
        minimum=1,
    )
    unconnected_session_timeout_ns: int = duration(
        "unconnected_session_timeout_ns",
        NS_PER_SECOND,
        "How long a new session waits for its client to receive responses (not in Aeron).",
        minimum=1,
    )
    max_pending_requests: int = integer(
        "max_pending_requests",
        1_024,
        "Maximum number of requests of one client that wait to be executed (not in Aeron).",
        minimum=1,
    )
    max_pending_responses: int = integer(
        "max_pending_responses",
        4_096,
        "Maximum number of messages to one client that wait to be sent (not in Aeron).",
        minimum=1,
    )
    max_request_length: int = size(
        "max_request_length",
        65_536,
        "Length of the longest request that the server accepts (not in Aeron).",
        minimum=1,
        maximum=INT64_MAX,
    )
    authenticator_supplier: AuthenticatorSupplier = declare(
        "authenticator_supplier",
        AcceptAll,
        "Factory of the object that authenticates a client; Aeron's "
        "`aeron.archive.authenticator.supplier`.",
        kind=Factory(),
    )

    def __attrs_post_init__(self) -> None:
        _check("control_channel", self.control_channel, ChannelUri.check_subscription)
        _check("local_control_channel", self.local_control_channel, ChannelUri.check_subscription)
        _check(
            "recording_events_channel", self.recording_events_channel, ChannelUri.check_publication
        )

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


def _check(name: str, channel: str | None, check: Callable[[ChannelUri], object]) -> None:
    if channel is None:
        return
    try:
        check(ChannelUri.parse(channel))
    except ConfigurationError as error:
        message = f"{name}: {error}"
        raise ConfigurationError(message) from None
