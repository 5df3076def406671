"""What a request means to whoever made it, when its object was closed before the driver's turn."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from aeron_async.errors import ClosedError, ErrorCode, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["closed_meanwhile"]

_UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_PUBLICATION, ErrorCode.UNKNOWN_SUBSCRIPTION})


@contextmanager
def closed_meanwhile() -> Iterator[None]:
    """Let the driver's word that it knows an object no more be the one that it is closed.

    Raises:
        ClosedError: The publication or subscription was closed while the request was under way.
    """
    try:
        yield
    except RegistrationError as error:
        if error.code not in _UNKNOWN:
            raise
        message = f"closed while the request was under way: {error}"
        raise ClosedError(message) from error
