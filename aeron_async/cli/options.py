"""Options that every command with a driver has."""

from __future__ import annotations

from typing import Annotated, Literal

import attrs
from cyclopts import Parameter, validators

__all__ = ["Count", "Flag", "Positive", "Quiet", "RunOptions", "Size", "Stream"]

INT32 = validators.Number(gte=-(2**31), lt=2**31)


def _is_positive(_type: object, value: float | None) -> None:
    if value is not None and not 0 < value < float("inf"):
        message = "must be more than 0"
        raise ValueError(message)


Positive = Annotated[float, Parameter(validator=_is_positive)]
"""A duration in seconds, or a rate."""
Count = Annotated[int, Parameter(validator=validators.Number(gte=1))]
Size = Annotated[int, Parameter(validator=validators.Number(gte=0))]
Stream = Annotated[int, Parameter(name=("--stream", "-s"), validator=INT32)]
Flag = Annotated[bool, Parameter(negative=(), show_default=False)]
Quiet = Annotated[bool, Parameter(name=("--quiet", "-q"), negative=(), show_default=False)]


@Parameter(name="*", group="Running")
@attrs.frozen(kw_only=True)
class RunOptions:
    """How a command runs, whatever it does.

    Attributes:
        loop: Event loop to run on; uvloop where it is installed.
        verbose: Log everything that changes, and not warnings only.
    """

    loop: Literal["asyncio", "uvloop"] | None = None
    verbose: Annotated[
        bool, Parameter(name=("--verbose", "-v"), negative=(), show_default=False)
    ] = False
