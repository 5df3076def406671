"""Flow control of a group, as a channel says it: which receivers set the pace.

Source: Aeron `ChannelUriStringBuilder.taggedFlowControl` and its neighbours.
"""

from __future__ import annotations

from typing import Final, final

from aeron_async.errors import ChannelUriError, ConfigurationError
from aeron_async.protocol.channel_uri import FlowControlOptions, FlowControlStrategy
from aeron_async.protocol.parameters import parameter_for_key
from aeron_async.protocol.units import parse_duration_ns

__all__ = ["Fc"]

PARAMETER: Final = parameter_for_key("fc")


@final
class Fc:
    """Makes the value of `fc` in a channel: `Channel.multicast(group, fc=Fc.tagged(101, size=2))`.

    In each of them `rrwm` is how many default receiver windows one NAK may bring, 4 by default.
    """

    @staticmethod
    def max(*, rrwm: int | None = None) -> FlowControlOptions:
        """Return the pace of the fastest: nobody is waited for.

        Raises:
            ChannelUriError: A value out of range.
        """
        return _options(FlowControlStrategy.MAX, rrwm=rrwm)

    @staticmethod
    def min(
        *, size: int | None = None, timeout: int | str | None = None, rrwm: int | None = None
    ) -> FlowControlOptions:
        """Return the pace of the slowest: everybody is waited for.

        Args:
            size: How many receivers must be there for the publication to be connected.
            timeout: How long a silent receiver is still waited for, in nanoseconds or as "5s".
            rrwm: How many default receiver windows one NAK may bring.

        Raises:
            ChannelUriError: A value out of range.
        """
        return _options(FlowControlStrategy.MIN, size=size, timeout=timeout, rrwm=rrwm)

    @staticmethod
    def tagged(
        tag: int | None = None,
        *,
        size: int | None = None,
        timeout: int | str | None = None,
        rrwm: int | None = None,
    ) -> FlowControlOptions:
        """Return the pace of the slowest that says `gtag=TAG`: only those are waited for.

        Args:
            tag: Signed 64 bits; that of the driver's settings when not given.
            size: How many of them must be there for the publication to be connected.
            timeout: How long a silent one is still waited for, in nanoseconds or as "5s".
            rrwm: How many default receiver windows one NAK may bring.

        Raises:
            ChannelUriError: A value out of range.
        """
        return _options(FlowControlStrategy.TAGGED, tag=tag, size=size, timeout=timeout, rrwm=rrwm)

    @staticmethod
    def named(name: str, *options: str) -> FlowControlOptions:
        """Return a strategy that a package has registered, with options of its own.

        Raises:
            ChannelUriError: The name or an option cannot be written in a channel.
        """
        return _checked(FlowControlOptions(strategy=name, raw_options=options))


def _options(
    strategy: FlowControlStrategy,
    *,
    tag: int | None = None,
    size: int | None = None,
    timeout: int | str | None = None,
    rrwm: int | None = None,
) -> FlowControlOptions:
    if isinstance(timeout, str):
        try:
            timeout = parse_duration_ns(timeout)
        except ConfigurationError as error:
            message = f"the timeout of fc={strategy} cannot be meant: {error}"
            raise ChannelUriError(message) from None
    return _checked(
        FlowControlOptions(
            strategy=strategy,
            receiver_timeout_ns=timeout,
            group_tag=tag,
            group_min_size=size,
            retransmit_receiver_window_multiple=rrwm,
        )
    )


def _checked(options: FlowControlOptions) -> FlowControlOptions:
    PARAMETER.write(options)
    return options
