"""Options that several commands share, and the validation of their values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import attrs
from cyclopts import Parameter, validators

from aeron_async.protocol.units import INT64_MAX, parse_size
from aeron_async.spark.urls import scheme_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cyclopts import Token

__all__ = [
    "LONGEST_MESSAGE",
    "ClientOptions",
    "Count",
    "Flag",
    "Folder",
    "Int32",
    "Int64",
    "MessageSize",
    "Names",
    "Port",
    "Positive",
    "Quiet",
    "RecordingId",
    "RunOptions",
    "Size",
    "Stream",
    "is_a_name",
    "sized",
]

INT32 = validators.Number(gte=-(2**31), lt=2**31)
LONGEST_MESSAGE = 16 * 1024 * 1024
"""Longest message of any channel, in bytes."""
WHOLE = re.compile(r"-?[0-9]{1,40}")
MOST = 1e9
"""Upper limit on a duration in seconds, which is 31 years, and on a rate per second."""


def _is_positive(_type: object, value: float | None) -> None:
    if value is not None and not 0 < value <= MOST:
        message = f"must be more than 0, and at most {MOST:,.0f}"
        raise ValueError(message)


def is_a_name(_type: object, value: str | None) -> None:
    """Refuse an empty name, such as that of a shell's variable that is not set."""
    if value == "":
        message = "must name a directory, and is empty"
        raise ValueError(message)


Positive = Annotated[float, Parameter(validator=_is_positive)]
"""A duration in seconds, or a rate."""
Count = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=INT64_MAX))]


def are_names(_type: object, values: tuple[str, ...]) -> None:
    """Refuse an empty name, such as that of a shell's variable that is not set."""
    if "" in values:
        message = "must name something, and is empty"
        raise ValueError(message)


def folder_from(_type: object, tokens: Sequence[Token]) -> Path:
    """Return a folder of this host: a URL would become one whose name ends with a colon.

    Raises:
        ValueError: The text is a URL.
    """
    text = tokens[0].value
    if scheme_of(text) is not None:
        message = f"{text!r} is a URL: name a folder of this host, or one that is mounted"
        raise ValueError(message)
    return Path(text)


Folder = Annotated[Path, Parameter(converter=folder_from)]
"""A folder of this host."""
Names = Annotated[tuple[str, ...], Parameter(validator=are_names)]


def bytes_from(_type: object, tokens: Sequence[Token]) -> int:
    """Parse an amount of bytes as in a channel: `64k`, `1m` or digits.

    Raises:
        ValueError: The text is no amount of bytes.
    """
    text = tokens[0].value.strip()
    # `sized` checks the limits.
    return int(text) if WHOLE.fullmatch(text) else parse_size(text)


def sized(minimum: int, maximum: int = INT64_MAX) -> Parameter:
    """Return a parameter that parses an amount of bytes within limits."""

    def bytes_within(kind: object, tokens: Sequence[Token]) -> int:
        length = bytes_from(kind, tokens)
        if not minimum <= length <= maximum:
            # The validator would quote the number of bytes, which is not what the user typed.
            message = f"{tokens[0].value!r} must be from {minimum} to {maximum} bytes"
            raise ValueError(message)
        return length

    return Parameter(converter=bytes_within, validator=validators.Number(gte=minimum, lte=maximum))


Size = Annotated[int, sized(0)]
"""A position, or an amount of bytes."""
MessageSize = Annotated[int, sized(0, LONGEST_MESSAGE)]
RecordingId = Annotated[int, Parameter(validator=validators.Number(gte=0, lte=INT64_MAX))]
Int32 = Annotated[int, Parameter(validator=INT32)]
"""A stream id or a session id, for example."""
Int64 = Annotated[int, Parameter(validator=validators.Number(gte=-INT64_MAX - 1, lte=INT64_MAX))]
Port = Annotated[int, Parameter(validator=validators.Number(gte=0, lt=2**16))]
Stream = Annotated[int, Parameter(name=("--stream", "-s"), validator=INT32)]
Flag = Annotated[bool, Parameter(negative=(), show_default=False)]
Quiet = Annotated[bool, Parameter(name=("--quiet", "-q"), negative=(), show_default=False)]


@Parameter(name="*", group="Running")
@attrs.frozen(kw_only=True)
class RunOptions:
    """Options of every command that runs a driver.

    Attributes:
        loop: Event loop to run on; uvloop where it is installed.
        verbose: Log everything that changes, and not warnings only.
    """

    loop: Literal["asyncio", "uvloop"] | None = None
    verbose: Annotated[
        bool, Parameter(name=("--verbose", "-v"), negative=(), show_default=False)
    ] = False


@Parameter(name="*", group="Running")
@attrs.frozen(kw_only=True)
class ClientOptions(RunOptions):
    """Options of every command that runs a driver of its own, or uses another one.

    Attributes:
        aeron_dir: Use the driver in this Aeron directory, whose clients share aeron:ipc; without
            it, whatever AERON_DIR says, a driver of its own.
    """

    aeron_dir: Annotated[
        str | None,
        Parameter(name=("--aeron-dir", "--directory", "-d"), validator=is_a_name),
    ] = None
