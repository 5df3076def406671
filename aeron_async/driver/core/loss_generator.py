"""Loss on purpose: which of the arriving datagrams a driver drops, for tests of applications.

The setting `udp_channel_incoming_interceptors` names the generators, and each has a setting for its
arguments, such as `rate=0.1|seed=7`:

- `loss` drops datagrams at random, of the frame types in its mask;
- `fixed-loss` drops one range of a term of each stream, once;
- `multi-gap-loss` drops a range at each multiple of a length in a term of each stream, once.

Invariant: what is sent again for a range that was dropped arrives. A generator decides by the bytes
of the datagram and by what it has decided before: the same arguments and datagrams give the same
losses. No more streams are remembered than `STREAMS_MAX`; those beyond it lose nothing.

Source: Aeron `aeron_udp_channel_transport_loss.c`, `aeron_udp_channel_transport_fixed_loss.c`,
`aeron_udp_channel_transport_multi_gap_loss.c`, `aeron_fixed_loss_generator.c`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import attrs

from aeron_async.errors import ConfigurationError
from aeron_async.protocol.header import DATA_HEADER_LENGTH, FrameType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aeron_async.protocol.header import Buffer

__all__ = ["FixedLoss", "LossGenerator", "LossGenerators", "MultiGapLoss", "RandomLoss"]

STREAMS_MAX: Final = 4_096
"""Most streams of which one socket remembers how far it has dropped."""
EVERY_TYPE: Final = 0xFFFF_FFFF
TYPE_BITS: Final = 32
_TYPE: Final = Struct("<6xH")
# The frame's length, its type, and the place of a data frame: offset, session, stream and term.
_PLACE: Final = Struct("<i2xHiiii")


class LossGenerator(Protocol):
    """Decides which datagrams of one socket are dropped."""

    def should_drop(self, datagram: Buffer) -> bool:
        """Return whether to drop a datagram; any bytes will do."""
        ...


# At random.

MULTIPLIER: Final = 0x5_DEEC_E66D
INCREMENT: Final = 0xB
MODULUS: Final = 1 << 48


@final
class RandomLoss:
    """Drops datagrams at random, each on its own.

    With the same seed it draws the numbers that the C driver draws.

    Args:
        rate: How many of them, from 0 to 1.
        seed: The same seed gives the same numbers.
        type_mask: A bit for each frame type to drop; bit 0 is padding, bit 1 is data.
    """

    def __init__(self, *, rate: float, seed: int = 0, type_mask: int = EVERY_TYPE) -> None:
        self._rate = rate
        self._type_mask = type_mask
        low, middle, high = seed & 0xFFFF, seed >> 16 & 0xFFFF, seed >> 32 & 0xFFFF
        self._state = low << 32 | middle << 16 | high

    def should_drop(self, datagram: Buffer) -> bool:
        """Return whether its first frame is of a type in the mask, and the number is low enough."""
        if len(datagram) < _TYPE.size or self._rate <= 0:
            return False
        (frame_type,) = _TYPE.unpack_from(datagram)
        if frame_type >= TYPE_BITS or not self._type_mask >> frame_type & 1:
            return False
        # The generator of `erand48`, of POSIX.
        self._state = (self._state * MULTIPLIER + INCREMENT) % MODULUS
        return self._state / MODULUS <= self._rate


# In known places.


class _PlacedLoss:
    """Drops datagrams of data by their place, each place of a stream once."""

    def __init__(self, term_id: int) -> None:
        self._term_id = term_id
        # For each stream, the offset up to which datagrams were dropped.
        self._limits: dict[tuple[int, int], int] = {}

    def should_drop(self, datagram: Buffer) -> bool:
        """Return whether it begins behind all that was dropped, and is in a place to drop.

        Differs: the C driver drops heartbeats as well, and then not the data in their place.
        """
        if len(datagram) < DATA_HEADER_LENGTH:
            return False
        length, frame_type, offset, session_id, stream_id, term_id = _PLACE.unpack_from(datagram)
        if frame_type != FrameType.DATA or length <= 0 or term_id != self._term_id:
            return False
        limit = offset + len(datagram)
        if not self._is_in_place(offset, limit):
            return False
        stream = stream_id, session_id
        before = self._limits.get(stream)
        if before is None:
            if len(self._limits) >= STREAMS_MAX:
                return False
        elif offset < before:
            return False
        self._limits[stream] = limit
        return True

    def _is_in_place(self, offset: int, limit: int) -> bool:
        raise NotImplementedError


@final
class FixedLoss(_PlacedLoss):
    """Drops what overlaps one range of a term; lengths and offsets are in bytes.

    Differs: the C driver drops all from the first datagram of the term on.
    """

    def __init__(self, *, term_id: int, term_offset: int, length: int) -> None:
        super().__init__(term_id)
        self._begin = term_offset
        self._end = term_offset + length

    def _is_in_place(self, offset: int, limit: int) -> bool:
        return offset < self._end and limit > self._begin


@final
class MultiGapLoss(_PlacedLoss):
    """Drops what overlaps the begin of each gap of a term.

    Args:
        term_id: The term.
        gap_radix: Gaps begin at its multiples, in bytes, after the first; it is rounded up to a
            power of two.
        gap_length: In bytes.
        total_gaps: How many gaps.
    """

    def __init__(self, *, term_id: int, gap_radix: int, gap_length: int, total_gaps: int) -> None:
        super().__init__(term_id)
        self._radix = 1 << (gap_radix - 1).bit_length()
        self._length = gap_length
        self._last_limit = total_gaps * gap_radix + gap_length

    def _is_in_place(self, offset: int, limit: int) -> bool:
        if offset > self._last_limit:
            return False
        begin = offset - offset % self._radix
        return (begin > 0 and offset < begin + self._length) or limit > begin + self._radix


# As they are configured.


@attrs.frozen(kw_only=True)
class Argument:
    """One argument of a generator, as it is written.

    Attributes:
        parameter: The parameter of the generator's class.
        parse: Returns the value of a text, or raises ValueError.
        minimum: The least value.
        is_required: Whether the class has no default for it.
    """

    parameter: str
    parse: Callable[[str], float]
    minimum: float = 0
    is_required: bool = True


@attrs.frozen(kw_only=True)
class Interceptor:
    """One generator by its name in the C driver.

    Attributes:
        setting: The name of the setting with its arguments.
        make: Makes the generator of a socket.
        arguments: Its arguments by name.
    """

    setting: str
    make: Callable[..., LossGenerator]
    arguments: Mapping[str, Argument]


def _hexadecimal(text: str) -> int:
    return int(text, 16)


_TERM_ID: Final = Argument(parameter="term_id", parse=int, minimum=-(2**31))
INTERCEPTORS: Final[Mapping[str, Interceptor]] = {
    "loss": Interceptor(
        setting="udp_channel_loss_args",
        make=RandomLoss,
        arguments={
            "rate": Argument(parameter="rate", parse=float),
            "seed": Argument(parameter="seed", parse=int, is_required=False),
            "recv-msg-mask": Argument(parameter="type_mask", parse=_hexadecimal, is_required=False),
        },
    ),
    "fixed-loss": Interceptor(
        setting="udp_channel_fixed_loss_args",
        make=FixedLoss,
        arguments={
            "term-id": _TERM_ID,
            "term-offset": Argument(parameter="term_offset", parse=int),
            "length": Argument(parameter="length", parse=int, minimum=1),
        },
    ),
    "multi-gap-loss": Interceptor(
        setting="udp_channel_multi_gap_loss_args",
        make=MultiGapLoss,
        arguments={
            "term-id": _TERM_ID,
            "gap-radix": Argument(parameter="gap_radix", parse=int, minimum=1),
            "gap-length": Argument(parameter="gap_length", parse=int, minimum=1),
            "total-gaps": Argument(parameter="total_gaps", parse=int, minimum=1),
        },
    ),
}


class LossSettings(Protocol):
    """The settings of a driver that ask for loss."""

    @property
    def udp_channel_incoming_interceptors(self) -> str | None:
        """Names of generators, separated by commas."""
        ...

    @property
    def udp_channel_loss_args(self) -> str | None:
        """Arguments of `loss`."""
        ...

    @property
    def udp_channel_fixed_loss_args(self) -> str | None:
        """Arguments of `fixed-loss`."""
        ...

    @property
    def udp_channel_multi_gap_loss_args(self) -> str | None:
        """Arguments of `multi-gap-loss`."""
        ...


class LossGenerators:
    """The generators that a context asks for, in the order in which datagrams meet them.

    Raises:
        ConfigurationError: A name or an argument is unknown, missing or out of its limits.
    """

    def __init__(self, context: LossSettings) -> None:
        names = (context.udp_channel_incoming_interceptors or "").split(",")
        texts = {
            "loss": context.udp_channel_loss_args,
            "fixed-loss": context.udp_channel_fixed_loss_args,
            "multi-gap-loss": context.udp_channel_multi_gap_loss_args,
        }
        self._made: list[tuple[Callable[..., LossGenerator], dict[str, Any]]] = []
        for name in filter(None, map(str.strip, names)):
            if name not in INTERCEPTORS:
                message = (
                    f"udp_channel_incoming_interceptors must be names of {', '.join(INTERCEPTORS)}"
                    f", separated by commas, got {name!r}"
                )
                raise ConfigurationError(message)
            interceptor = INTERCEPTORS[name]
            values = parse_arguments(interceptor, texts[name] or "")
            make = interceptor.make
            if make is RandomLoss:
                # All sockets of a driver draw their numbers from one sequence.
                shared = RandomLoss(**values)
                self._made.append((lambda generator=shared: generator, {}))
            else:
                self._made.append((make, values))

    def __bool__(self) -> bool:
        return bool(self._made)

    def of_socket(self) -> tuple[LossGenerator, ...]:
        """Return the generators of a new socket."""
        return tuple(make(**values) for make, values in self._made)


def parse_arguments(interceptor: Interceptor, text: str) -> dict[str, Any]:
    """Return the arguments of a generator's class.

    Differs: the C driver ignores an unknown argument, and a missing one has any value.

    Raises:
        ConfigurationError: An argument is unknown, missing, no number or too low.
    """
    known, setting = interceptor.arguments, interceptor.setting
    values: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split("|"))):
        key, _, written = part.partition("=")
        argument = known.get(key)
        if argument is None:
            message = f"{setting} has {key!r}, which is none of {', '.join(known)}"
            raise ConfigurationError(message)
        try:
            value = argument.parse(written)
        except ValueError:
            message = f"{setting} has {key}={written}, which is no number"
            raise ConfigurationError(message) from None
        if not value >= argument.minimum:
            message = f"{key} in {setting} must be at least {argument.minimum}, got {written}"
            raise ConfigurationError(message)
        values[argument.parameter] = value
    missing = [
        key for key, each in known.items() if each.is_required and each.parameter not in values
    ]
    if missing:
        example = "|".join(f"{key}=…" for key in known)
        message = f"{setting} lacks {', '.join(missing)}: write {example}"
        raise ConfigurationError(message)
    return values
