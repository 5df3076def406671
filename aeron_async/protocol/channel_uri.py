"""Channel URIs: `aeron:udp?endpoint=localhost:40456|term-length=64k`, read, checked and printed.

    uri    = [ "aeron-spy:" ] "aeron:" ( "udp" | "ipc" ) [ "?" param { "|" param } ]
    param  = key "=" value

Nothing is escaped, and keys are case sensitive. A `ChannelUri` that exists is one that can be
meant: every value is in its range and no two contradict each other. What depends on the role is
checked by `check_publication`, `check_subscription` and the two checks of destinations.

Source: Aeron `ChannelUri`, `ChannelUriStringBuilder`, `aeron_uri.c`.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import attrs

from aeron_async.errors import ChannelUriError
from aeron_async.protocol import channel_uri_checks
from aeron_async.protocol.channel_uri_values import (
    PROTOTYPE_CORRELATION_ID,
    RESERVED_TIMESTAMP_OFFSET,
    CongestionControlStrategy,
    ControlMode,
    FlowControlOptions,
    FlowControlStrategy,
    Group,
    Media,
    TagReference,
    Tags,
)
from aeron_async.protocol.parameters import PARAMETERS, find_parameter, parameter_for_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aeron_async.protocol.address import Address, InterfaceSpec
    from aeron_async.protocol.parameters import Parameter

__all__ = [
    "MAX_LENGTH",
    "PROTOTYPE_CORRELATION_ID",
    "RESERVED_TIMESTAMP_OFFSET",
    "ChannelUri",
    "CongestionControlStrategy",
    "ControlMode",
    "FlowControlOptions",
    "FlowControlStrategy",
    "Group",
    "Media",
    "TagReference",
    "Tags",
]

MAX_LENGTH: Final = 4095
"""The longest channel URI, in characters."""

SPY_PREFIX: Final = "aeron-spy:"
SCHEME_PREFIX: Final = "aeron:"
_SHOWN_LENGTH: Final = 200


@attrs.frozen(kw_only=True)
class ChannelUri:
    """A channel: its media, and the parameters that were given; the others are None.

    Lengths are in bytes, times in nanoseconds. What each parameter does, where it counts and what
    applies when it is None stands in `PARAMETERS`.

    Attributes:
        media: What carries the stream.
        is_spy: Whether it attaches to a network publication of the same driver.

    Raises:
        ChannelUriError: a value out of range, or values that contradict each other.
    """

    media: Media
    is_spy: bool = False
    endpoint: Address | None = None
    interface: InterfaceSpec | None = None
    control: Address | None = None
    control_mode: ControlMode | None = None
    ttl: int | None = None
    mtu_length: int | None = None
    term_length: int | None = None
    initial_term_id: int | None = None
    term_id: int | None = None
    term_offset: int | None = None
    session_id: int | TagReference | None = None
    tags: Tags | None = None
    alias: str | None = None
    linger_timeout_ns: int | None = None
    is_sparse: bool | None = None
    signal_eos: bool | None = None
    spies_simulate_connection: bool | None = None
    is_reliable: bool | None = None
    is_rejoin: bool | None = None
    is_tether: bool | None = None
    group: Group | None = None
    receiver_window_length: int | None = None
    socket_sndbuf_length: int | None = None
    socket_rcvbuf_length: int | None = None
    congestion_control: CongestionControlStrategy | str | None = None
    flow_control: FlowControlOptions | None = None
    group_tag: int | None = None
    nak_delay_ns: int | None = None
    max_resend: int | None = None
    publication_window_length: int | None = None
    response_correlation_id: int | None = None
    response_endpoint: Address | None = None
    stream_id: int | None = None
    untethered_window_limit_timeout_ns: int | None = None
    untethered_linger_timeout_ns: int | None = None
    untethered_resting_timeout_ns: int | None = None
    media_receive_timestamp_offset: int | None = None
    channel_receive_timestamp_offset: int | None = None
    channel_send_timestamp_offset: int | None = None
    ats: bool | None = None

    def __attrs_post_init__(self) -> None:
        # Printing reads every value back, so this checks all of them.
        _check_length(str(self))
        channel_uri_checks.check_consistency(self)

    @classmethod
    def parse(cls, text: str) -> ChannelUri:
        """Read a channel URI.

        Differs: unknown and repeated keys, and keys without a value, are refused; the official
        drivers ignore the first and disagree about the others.

        Raises:
            ChannelUriError: says which part cannot be meant, and what was probably intended.
        """
        try:
            _check_length(text)
            is_spy, media, query = _split(text)
            return cls(media=media, is_spy=is_spy, **_read_query(query))
        except ChannelUriError as error:
            shown = text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."
            message = f"{error} (channel {shown!r})"
            raise ChannelUriError(message) from None

    @classmethod
    def from_parameters(
        cls, media: Media, *, is_spy: bool = False, **parameters: object
    ) -> ChannelUri:
        """Build a channel from parameters, as values or as the text a URI would hold.

        `from_parameters(Media.UDP, endpoint="localhost:40456", term_length="64k", mtu=1408)`

        Args:
            media: What carries the stream.
            is_spy: Whether it attaches to a network publication of the same driver.
            parameters: By the names of the attributes, or by their keys with `_` for `-`; None
                leaves a parameter out.

        Raises:
            ChannelUriError: an unknown name, one given twice, or a value that cannot be meant.
        """
        return cls(media=media, is_spy=is_spy, **_read_parameters(parameters))

    def replace(self, *, is_spy: bool | None = None, **parameters: object) -> ChannelUri:
        """Return this channel with some parameters changed, named as in `from_parameters`.

        None takes a parameter away. All changes are made at once, so parameters that must agree
        can be changed together.

        Args:
            is_spy: Whether the result is a spy; None leaves that as it is.
            parameters: The new values, or their texts.

        Raises:
            ChannelUriError: an unknown name, one given twice, or a channel that cannot be meant.
        """
        values = _read_parameters(parameters)
        return attrs.evolve(self, is_spy=self.is_spy if is_spy is None else is_spy, **values)

    @property
    def channel_tag(self) -> int | None:
        """The number by which others refer to this endpoint."""
        return None if self.tags is None else self.tags.channel_tag

    @property
    def entity_tag(self) -> int | None:
        """The number by which others refer to this publication or subscription."""
        return None if self.tags is None else self.tags.entity_tag

    @property
    def parameters(self) -> dict[str, str]:
        """What was given, as text under its key, in the order of printing."""
        return {
            key: parameter.write(value)
            for key, parameter in PARAMETERS.items()
            if (value := getattr(self, parameter.name)) is not None
        }

    def check_publication(self, stream_id: int | None = None) -> None:
        """Refuse a channel that no publication can use.

        Args:
            stream_id: The stream asked for, to be compared with the parameter `stream-id`.

        Raises:
            ChannelUriError: says what does not fit, and what would.
        """
        channel_uri_checks.check_publication(self, stream_id)

    def check_subscription(self, stream_id: int | None = None) -> None:
        """Refuse a channel that no subscription, spies included, can use.

        Args:
            stream_id: The stream asked for, to be compared with the parameter `stream-id`.

        Raises:
            ChannelUriError: says what does not fit, and what would.
        """
        channel_uri_checks.check_subscription(self, stream_id)

    def check_send_destination(self) -> None:
        """Refuse a channel that cannot be added to a publication as a destination.

        Raises:
            ChannelUriError: says what does not fit, and what would.
        """
        channel_uri_checks.check_send_destination(self)

    def check_receive_destination(self) -> None:
        """Refuse a channel that cannot be added to a subscription as a destination.

        Raises:
            ChannelUriError: says what does not fit, and what would.
        """
        channel_uri_checks.check_receive_destination(self)

    def __str__(self) -> str:
        spy = SPY_PREFIX if self.is_spy else ""
        query = "|".join(f"{key}={text}" for key, text in self.parameters.items())
        return f"{spy}{SCHEME_PREFIX}{self.media}{'?' if query else ''}{query}"

    def __repr__(self) -> str:
        return f"ChannelUri.parse({str(self)!r})"


def _split(text: str) -> tuple[bool, Media, str]:
    is_spy = text.startswith(SPY_PREFIX)
    channel = text.removeprefix(SPY_PREFIX)
    if not channel.startswith(SCHEME_PREFIX):
        message = "a channel begins with aeron:udp?, aeron:ipc or aeron-spy:aeron:udp?"
        raise ChannelUriError(message)
    name, _, query = channel.removeprefix(SCHEME_PREFIX).partition("?")
    media_names = [str(media) for media in Media]
    if name not in media_names:
        guesses = get_close_matches(name.lower(), media_names, n=1)
        hint = f": did you mean {guesses[0]!r}?" if guesses else ""
        message = f"unknown media {name!r}, it must be udp or ipc{hint}"
        raise ChannelUriError(message)
    return is_spy, Media(name), query


def _read_query(query: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for item in query.split("|") if query else ():
        key, equals, text = item.partition("=")
        if not key or not equals:
            message = f"{item!r} is not of the form key=value; '|' stands between two of them"
            raise ChannelUriError(message)
        parameter = parameter_for_key(key)
        _refuse_second(parameter, values)
        values[parameter.name] = parameter.read(text)
    return values


def _read_parameters(parameters: Mapping[str, object]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in parameters.items():
        parameter = find_parameter(name)
        _refuse_second(parameter, values)
        values[parameter.name] = parameter.read(value) if type(value) is str else value
    return values


def _refuse_second(parameter: Parameter, values: Mapping[str, object]) -> None:
    if parameter.name in values:
        message = f"parameter {parameter.key!r} is given twice"
        raise ChannelUriError(message)


def _check_length(text: str) -> None:
    if len(text) > MAX_LENGTH:
        message = f"a channel has at most {MAX_LENGTH} characters, this one has {len(text)}"
        raise ChannelUriError(message)
