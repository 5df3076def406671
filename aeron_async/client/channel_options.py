"""What channels may say beside their mode, for type checkers and editors.

Parameters have the names of their keys, with `_` for `-`; the page of channel parameters says what
each does. Lengths are bytes, or texts such as "64k"; times are nanoseconds, or texts such as "5s".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from aeron_async.protocol.channel_uri import (
        CongestionControlStrategy,
        FlowControlOptions,
        Group,
        TagReference,
        Tags,
    )

__all__ = [
    "GroupOptions",
    "IpcOptions",
    "PublicationOptions",
    "ResponsePublicationOptions",
    "ResponseSubscriptionOptions",
    "SpyOptions",
    "SubscriptionOptions",
    "UnicastOptions",
]


class Named(TypedDict, total=False):
    """What says which stream is meant, and how people call it."""

    session_id: int | TagReference | str
    tags: Tags | str
    alias: str


class Untethered(TypedDict, total=False):
    """When a slow subscriber is left behind, and comes back."""

    untethered_window_limit_timeout: int | str
    untethered_linger_timeout: int | str
    untethered_resting_timeout: int | str


class Sockets(TypedDict, total=False):
    """What both sides say of their sockets and their memory."""

    so_sndbuf: int | str
    so_rcvbuf: int | str
    sparse: bool
    ats: bool


class Terms(TypedDict, total=False):
    """What a publication says of its log."""

    mtu: int | str
    term_length: int | str
    init_term_id: int
    term_id: int
    term_offset: int
    pub_wnd: int | str
    linger: int | str
    stream_id: int


class Sending(TypedDict, total=False):
    """What a publication says of its sending."""

    eos: bool
    ssc: bool
    response_correlation_id: int | str
    channel_snd_ts_offset: int | str


class Receiving(TypedDict, total=False):
    """What a subscription says."""

    reliable: bool
    rejoin: bool
    tether: bool
    group: Group | Literal["true", "false", "infer"]
    rcv_wnd: int | str
    cc: CongestionControlStrategy | str
    gtag: int
    nak_delay: int | str
    media_rcv_ts_offset: int | str
    channel_rcv_ts_offset: int | str


class UnicastOptions(Named, Untethered, Sockets, Terms, Sending, Receiving, total=False):
    """For `Channel.udp`, which serves both sides."""


class GroupOptions(Named, Untethered, Sockets, Terms, Sending, Receiving, total=False):
    """For `Channel.multicast`, which serves both sides."""

    ttl: int | str
    fc: FlowControlOptions | str
    max_resend: int


class PublicationOptions(Named, Untethered, Sockets, Terms, Sending, total=False):
    """For `Channel.mdc_publisher`."""

    ttl: int | str
    fc: FlowControlOptions | str
    max_resend: int


class SubscriptionOptions(Named, Untethered, Sockets, Receiving, total=False):
    """For `Channel.mdc_subscriber` and `Channel.mds`."""

    ttl: int | str


class ResponsePublicationOptions(Named, Untethered, Sockets, Terms, total=False):
    """For `Channel.response` of a server."""

    eos: bool
    ssc: bool
    channel_snd_ts_offset: int | str


class ResponseSubscriptionOptions(Named, Untethered, Sockets, Receiving, total=False):
    """For `Channel.response` of a client."""


class IpcOptions(Named, Untethered, Terms, total=False):
    """For `Channel.ipc`, which serves both sides."""

    sparse: bool
    tether: bool
    response_correlation_id: int | str


class SpyOptions(Named, Untethered, total=False):
    """For `Channel.spy`."""

    tether: bool
