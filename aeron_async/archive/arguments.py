"""What callers of an archive hand in, checked before it is asked anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aeron_async.archive.values import SourceLocation
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.arguments import INT64_MAX, INT64_MIN, check_number, shown

if TYPE_CHECKING:
    from typing import SupportsIndex

__all__ = ["check_given", "check_id", "check_ids", "check_location", "check_replayed"]

PLACES: Final = frozenset(
    {"length", "position", "new_start_position", "from_position", "to_position"}
)


def check_id(number: SupportsIndex, name: str = "recording_id") -> int:
    """Return the id of a recording, a replay or a subscription, or a position.

    One that cannot be is for the archive to refuse, which knows those that are.

    Raises:
        ConfigurationError: It is no whole number, or does not fit signed 64 bits.
    """
    return check_number(number, name, minimum=INT64_MIN, maximum=INT64_MAX, why=": signed 64 bits")


def check_ids(**values: Any) -> None:
    """Check all that are ids, positions or lengths by their names.

    Raises:
        ConfigurationError: One is no whole number, or does not fit signed 64 bits.
    """
    for name, value in values.items():
        if name.endswith("_id") or name in PLACES:
            check_id(value, name)


def check_given(**values: Any) -> None:
    """Check likewise what may be None where it is not given.

    Raises:
        ConfigurationError: One is no whole number, or does not fit signed 64 bits.
    """
    check_ids(**{name: value for name, value in values.items() if value is not None})


def check_replayed(recording_id: int, from_position: int | None, to_position: int | None) -> None:
    """Check what is to be replayed, as far as that can be told from the numbers alone.

    Raises:
        ConfigurationError: One is no whole number, or does not fit signed 64 bits.
    """
    check_id(recording_id)
    check_given(from_position=from_position, to_position=to_position)


def check_location(source_location: Any) -> SourceLocation:
    """Return where a stream to be recorded comes from; its name and its number are taken, too.

    Raises:
        ConfigurationError: It is neither place.
    """
    if isinstance(source_location, str):
        found = SourceLocation.__members__.get(source_location.strip().upper())
    elif isinstance(source_location, bool) or source_location not in set(SourceLocation):
        found = None
    else:
        found = SourceLocation(source_location)
    if found is None:
        message = (
            f"source_location={shown(source_location)} must be SourceLocation.LOCAL, for what this "
            "driver publishes, or SourceLocation.REMOTE"
        )
        raise ConfigurationError(message)
    return found
