"""The parameters of a publication or a subscription, from its channel and the context.

`check_is_supported` refuses the kinds of channel that this driver does not support; the conductor
calls it before it resolves a name. When a kind becomes supported, remove it there, and change its
row in `docs/compatibility.md`.

Source: Aeron `PublicationParams`, `SubscriptionParams`, `DriverConductor.nextAvailableSessionId`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from aeron_async.driver.core.feedback_delay import (
    NO_DELAY,
    SHORTEST_NS,
    FeedbackDelay,
    GroupDelay,
    StaticDelay,
)
from aeron_async.driver.core.stream_settings import DEFAULT_WINDOW_LENGTH
from aeron_async.errors import ConfigurationError, ErrorCode, RegistrationError
from aeron_async.logbuffer.position import term_id_at
from aeron_async.protocol.channel_uri import PROTOTYPE_CORRELATION_ID, ControlMode, Group, Media
from aeron_async.protocol.channel_uri_values import AUTO_WINDOW
from aeron_async.protocol.header import TERM_MIN_LENGTH, wrap_int32

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.core.suppliers import CongestionControlSupplier, FlowControlSupplier
    from aeron_async.logbuffer.log_buffers import LogBuffers
    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = [
    "PublicationParams",
    "SessionIds",
    "StartPosition",
    "SubscriptionParams",
    "check_can_share",
    "check_is_supported",
    "choose_delay",
    "chosen_session_id",
]


def check_is_supported(uri: ChannelUri) -> None:
    """Refuse a channel with a parameter that this driver does not support.

    Raises:
        RegistrationError: NOT_SUPPORTED; the message names the parameter.
    """
    asked = (("ats=true", uri.ats is True),)
    what = next((text for text, is_asked in asked if is_asked), None)
    if what is not None:
        message = (
            f"{what} is not supported by this driver: {uri}; docs/compatibility.md lists what is"
        )
        raise RegistrationError(message, code=ErrorCode.NOT_SUPPORTED)


# Publications.

NULL_VALUE: Final = -1
"""The value of a correlation id in a channel that means none."""


@attrs.frozen(kw_only=True)
class StartPosition:
    """Where a stream starts, in the terms of its log."""

    initial_term_id: int
    term_id: int
    term_offset: int

    @classmethod
    def of(cls, log: LogBuffers, position: int) -> StartPosition:
        """Return a position in bytes in the terms of `log`."""
        initial_term_id = log.initial_term_id
        return cls(
            initial_term_id=initial_term_id,
            term_id=term_id_at(position, initial_term_id=initial_term_id, bits=log.position_bits),
            term_offset=position & (log.term_length - 1),
        )


@attrs.frozen(kw_only=True)
class PublicationParams:
    """Settings of one publication; lengths in bytes.

    Attributes:
        session_id: The channel's session id, or None for the next free one.
        start: The channel's start position, or None to start at 0 of a random term id.
        publication_window_length: How far offers may run ahead of what was sent.
        has_group_semantics: Whether there may be several receivers.
        is_unicast: Whether one receiver's goodbye ends the linger.
        ttl: The channel's; 0 without one, whatever the context says.
        response_correlation_id: For a request: its response subscription. For a response: the
            image that it answers. Else None.
        is_response: Whether this publication is a response.
        flow_control: Makes the strategy, before channel and context; None leaves it to them.
        handshake_length: Bytes that may be sent before a receiver has answered; None: no limit.
        is_batching: Whether several datagrams may be sent in one system call.
    """

    mtu_length: int
    term_length: int
    session_id: int | None
    start: StartPosition | None
    publication_window_length: int
    linger_timeout_ns: int
    max_resend: int
    signal_eos: bool
    is_sparse: bool
    spies_simulate_connection: bool
    is_exclusive: bool
    has_group_semantics: bool = False
    is_unicast: bool = True
    ttl: int = 0
    response_correlation_id: int | None = None
    is_response: bool = False
    flow_control: FlowControlSupplier | None = None
    handshake_length: int | None = None
    is_batching: bool = True

    @property
    def is_response_requested(self) -> bool:
        """Return whether receivers are asked to answer on a response stream."""
        return self.response_correlation_id not in {None, NULL_VALUE} and not self.is_response

    @classmethod
    def of(
        cls, uri: ChannelUri, context: DriverContext, *, is_exclusive: bool
    ) -> PublicationParams:
        """Return the parameters that `uri` gives, with the context's where it gives none.

        Raises:
            ConfigurationError: The window does not fit between the MTU and half a term.
        """

        def given(value: int | None, default: int) -> int:
            return default if value is None else value

        is_ipc = uri.media is Media.IPC
        term_length = given(
            uri.term_length,
            context.ipc_term_buffer_length if is_ipc else context.term_buffer_length,
        )
        if is_prototype(uri):
            # It answers no request: it only opens the socket before the first one arrives.
            term_length = TERM_MIN_LENGTH
            if (uri.term_offset or 0) > term_length:
                message = (
                    f"term-offset={uri.term_offset} exceeds a prototype's term of {term_length}"
                )
                raise ConfigurationError(message)
        mtu_length = given(uri.mtu_length, context.ipc_mtu_length if is_ipc else context.mtu_length)
        return cls(
            mtu_length=mtu_length,
            term_length=term_length,
            session_id=uri.session_id if isinstance(uri.session_id, int) else None,
            start=start_position(uri),
            publication_window_length=publication_window_length(
                uri.publication_window_length,
                context.ipc_publication_term_window_length
                if is_ipc
                else context.publication_term_window_length,
                mtu_length=mtu_length,
                term_length=term_length,
            ),
            linger_timeout_ns=given(uri.linger_timeout_ns, context.publication_linger_timeout_ns),
            max_resend=given(uri.max_resend, context.max_resend),
            signal_eos=uri.signal_eos is not False,
            is_sparse=given(uri.is_sparse, context.term_buffer_sparse_file) is not False,
            spies_simulate_connection=bool(
                given(uri.spies_simulate_connection, context.spies_simulate_connection)
            ),
            is_exclusive=is_exclusive,
            ttl=given(uri.ttl, 0),
            response_correlation_id=uri.response_correlation_id,
            is_response=uri.control_mode is ControlMode.RESPONSE,
            is_batching=context.socket_batching and context.transport != "loop",
        )


def is_prototype(uri: ChannelUri) -> bool:
    """Return whether a channel is a response to no image: Aeron gives it the shortest terms.

    Source: Aeron `DriverConductor.onAddNetworkPublication`.
    """
    return (
        uri.media is Media.UDP
        and uri.control_mode is ControlMode.RESPONSE
        and uri.response_correlation_id == PROTOTYPE_CORRELATION_ID
    )


def start_position(uri: ChannelUri) -> StartPosition | None:
    """Return where the channel wants the stream to start; the URI has checked the three values."""
    if uri.initial_term_id is None or uri.term_id is None or uri.term_offset is None:
        return None
    return StartPosition(
        initial_term_id=uri.initial_term_id, term_id=uri.term_id, term_offset=uri.term_offset
    )


def publication_window_length(
    asked_length: int | None, default_length: int, *, mtu_length: int, term_length: int
) -> int:
    """Return how far offers may run ahead: as asked, or the default capped at half a term.

    Raises:
        ConfigurationError: The window in the channel does not fit.
    """
    half_term = term_length // 2
    if asked_length is None:
        return min(default_length, half_term) if default_length else half_term
    if not mtu_length <= asked_length <= half_term:
        message = (
            f"pub-wnd of {asked_length} bytes must lie between the mtu of {mtu_length} and half "
            f"the term-length, {half_term}: change pub-wnd, mtu or term-length in the channel"
        )
        raise ConfigurationError(message)
    return asked_length


def check_can_share(
    uri: ChannelUri,
    existing: PublicationParams,
    *,
    session_id: int,
    start: StartPosition,
    flow_control: FlowControlSupplier | None = None,
) -> None:
    """Refuse to share a publication with a channel whose parameters differ.

    Args:
        uri: The channel of the request; a parameter that it leaves out agrees with any value.
        existing: Parameters of the existing publication.
        session_id: Its session id.
        start: Where it started.
        flow_control: The factory in the request; None agrees with any.

    Raises:
        ConfigurationError: The channel gives a parameter another value, or the strategies differ.

    Source: Aeron `PublicationParams.validateMtu` and its neighbours.
    """
    wanted = start_position(uri)
    pairs: tuple[tuple[str, object, object], ...] = (
        ("session-id", uri.session_id, session_id),
        ("mtu", uri.mtu_length, existing.mtu_length),
        ("term-length", uri.term_length, existing.term_length),
        ("init-term-id", wanted and wanted.initial_term_id, start.initial_term_id),
        ("term-id", wanted and wanted.term_id, start.term_id),
        ("term-offset", wanted and wanted.term_offset, start.term_offset),
        ("ssc", uri.spies_simulate_connection, existing.spies_simulate_connection),
        ("flow_control", flow_control, existing.flow_control),
    )
    for key, asked, actual in pairs:
        if asked is not None and asked != actual:
            message = (
                f"{key}={asked} differs from {actual}, which the publication of this channel and "
                f"stream already has: leave {key} out, or add an exclusive publication"
            )
            raise ConfigurationError(message)


# Subscriptions.


@attrs.frozen(kw_only=True)
class SubscriptionParams:
    """Settings of one subscription; lengths in bytes.

    Attributes:
        session_id: The one session wanted, or None for all.
        receiver_window_length: The first window of an image; half a term is the most.
        is_window_auto: Whether the window then grows; see `is_window_auto`.
        is_group: Whether to wait before sending a NAK, as one receiver of many; None leaves it to
            the sender.
        congestion_control: Name of the strategy, or a factory; "default" is the static window.
    """

    session_id: int | None
    is_reliable: bool
    is_rejoin: bool
    is_tether: bool
    is_sparse: bool
    receiver_window_length: int
    is_window_auto: bool
    nak_delay_ns: int | None
    is_group: bool | None
    group_tag: int | None
    congestion_control: str | CongestionControlSupplier

    @classmethod
    def of(
        cls,
        uri: ChannelUri,
        context: DriverContext,
        *,
        congestion_control: CongestionControlSupplier | None = None,
    ) -> SubscriptionParams:
        """Return the parameters that `uri` gives, with the context's where it gives none.

        Args:
            uri: The channel.
            context: The driver's settings.
            congestion_control: For this subscription; takes precedence over channel and context.
        """

        def given(value: bool | None, default: bool) -> bool:  # noqa: FBT001 - both are data
            return default if value is None else value

        is_group = context.receiver_group_consideration
        if uri.group is not None:
            is_group = {Group.TRUE: True, Group.FALSE: False, Group.INFER: None}[uri.group]
        tag = uri.group_tag
        return cls(
            session_id=uri.session_id if isinstance(uri.session_id, int) else None,
            is_reliable=given(uri.is_reliable, context.reliable_stream),
            is_rejoin=given(uri.is_rejoin, context.rejoin_stream),
            is_tether=given(uri.is_tether, context.tether_subscriptions),
            is_sparse=given(uri.is_sparse, context.term_buffer_sparse_file),
            receiver_window_length=uri.receiver_window_length or context.initial_window_length,
            is_window_auto=congestion_control is None and is_window_auto(uri, context),
            nak_delay_ns=uri.nak_delay_ns,
            is_group=is_group,
            group_tag=context.receiver_group_tag if tag is None else tag,
            congestion_control=congestion_control or chosen_congestion_control(uri, context),
        )

    def check_same_stream(self, other: SubscriptionParams, *, stream_id: int) -> None:
        """Refuse a second subscription of one stream with other guarantees.

        Raises:
            ConfigurationError: Reliability or rejoining differ.

        Source: Aeron `DriverConductor.checkForClashingSubscription`.
        """
        pairs = (
            ("reliable", self.is_reliable, other.is_reliable),
            ("rejoin", self.is_rejoin, other.is_rejoin),
        )
        for key, ours, theirs in pairs:
            if self.session_id == other.session_id and ours != theirs:
                message = (
                    f"{key}={str(ours).lower()} differs from {key}={str(theirs).lower()}, which a "
                    f"subscription of stream {stream_id} on this endpoint already has"
                )
                raise ConfigurationError(message)


def is_window_auto(uri: ChannelUri, context: DriverContext) -> bool:
    """Return whether the receiver window grows while its readers take it fast.

    A channel asks for that by `rcv-wnd=auto`. Without a `rcv-wnd` it is the default, unless the
    context has another first window than the default one. A congestion control that was chosen
    decides on the window itself.
    """
    if chosen_congestion_control(uri, context) != "default":
        return False
    if uri.receiver_window_length is not None:
        return uri.receiver_window_length == AUTO_WINDOW
    is_default = context.initial_window_length == DEFAULT_WINDOW_LENGTH
    return context.receiver_window_auto and is_default


def chosen_congestion_control(
    uri: ChannelUri, context: DriverContext
) -> str | CongestionControlSupplier:
    """Return the congestion control of an image: the context's; if "default", the channel's."""
    supplier = context.congestion_control_supplier
    if supplier == "default" and uri.congestion_control is not None:
        return str(uri.congestion_control)
    return supplier


# Session ids.


DRAWS_MOST: Final = 64


class SessionIds:
    """A count through the signed 32-bit ids that leaves out a reserved range.

    Args:
        first: Where to start; random, so that a restarted driver does not reuse its last ids.
        reserved_low: First id never given out.
        reserved_high: Last id never given out.
    """

    def __init__(self, first: int, *, reserved_low: int, reserved_high: int) -> None:
        self._next = wrap_int32(first)
        self._reserved_low = reserved_low
        self._reserved_high = reserved_high

    def take(self, is_in_use: Callable[[int], bool]) -> int:
        """Return the next id that is neither reserved nor in use."""
        while True:
            if self._reserved_low <= self._next <= self._reserved_high:
                self._next = wrap_int32(self._reserved_high + 1)
            session_id = self._next
            self._next = wrap_int32(session_id + 1)
            if not is_in_use(session_id):
                return session_id

    def draw(self, is_in_use: Callable[[int], bool], random_int32: Callable[[], int]) -> int:
        """Return a random id that is neither reserved nor in use, which nobody can guess.

        It is the next one if most ids are reserved.
        """
        for _ in range(DRAWS_MOST):
            session_id = random_int32()
            is_reserved = self._reserved_low <= session_id <= self._reserved_high
            if not is_reserved and not is_in_use(session_id):
                return session_id
        return self.take(is_in_use)


def chosen_session_id(
    session_ids: SessionIds,
    params: PublicationParams,
    is_in_use: Callable[[int], bool],
    random_int32: Callable[[], int],
    *,
    where: str,
) -> int:
    """Return the session id in the channel, or a free one: of responses, a random one.

    Differs: in Aeron the id of responses is the next one, too. Who guesses it can ask for them.

    Args:
        session_ids: The source of free ids.
        params: Parameters of the channel.
        is_in_use: Returns whether another publication has a session id already.
        random_int32: Returns a random signed 32-bit number.
        where: Stream and channel, for the message.

    Raises:
        RegistrationError: INVALID_CHANNEL; the session id is taken.

    Source: Aeron `DriverConductor.checkForSessionClash`.
    """
    if params.session_id is None:
        if params.is_response:
            return session_ids.draw(is_in_use, random_int32)
        return session_ids.take(is_in_use)
    if is_in_use(params.session_id):
        message = (
            f"session-id={params.session_id} is in use by another publication of {where}: "
            "choose another, or leave session-id out"
        )
        raise RegistrationError(message, code=ErrorCode.INVALID_CHANNEL)
    return params.session_id


def choose_delay(
    context: DriverContext,
    *,
    is_reliable: bool,
    is_group: bool,
    nak_delay_ns: int | None,
    random: Callable[[], float],
) -> FeedbackDelay:
    """Return the NAK delays for one image.

    Args:
        context: The source of the defaults.
        is_reliable: Whether NAKs are sent at all.
        is_group: Whether other receivers may miss the same data.
        nak_delay_ns: The channel's own `nak-delay`; unicast only.
        random: Draws uniformly from [0, 1).
    """
    if not is_reliable:
        return NO_DELAY
    if is_group:
        return GroupDelay(
            max_backoff_ns=context.nak_multicast_max_backoff_ns,
            group_size=context.nak_multicast_group_size,
            random=random,
        )
    initial_ns = context.nak_unicast_delay_ns if nak_delay_ns is None else nak_delay_ns
    # Differs: C repeats a zero delay in every cycle; like Java we take at least 1 us times the
    # ratio, since an event loop must not spin on a gap that is never filled.
    retry_ns = max(initial_ns, SHORTEST_NS) * context.nak_unicast_retry_delay_ratio
    # `now_ns` is read before a batch of datagrams is examined, and that takes longer than such a
    # short delay. A turn of the loop in between would run the readers, and last a hundred times as
    # long.
    return StaticDelay(initial_ns=initial_ns if initial_ns > SHORTEST_NS else 0, retry_ns=retry_ns)
