"""Checks of the arguments that callers pass to an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aeron_async.archive.api import SourceLocation
from aeron_async.archive.context import ArchiveContext
from aeron_async.client.aeron import Aeron
from aeron_async.client.arguments import check_stream_id
from aeron_async.errors import ChannelUriError, ConfigurationError
from aeron_async.protocol.arguments import check_number, shown
from aeron_async.protocol.channel_uri import ControlMode, parse_channel
from aeron_async.protocol.units import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import SupportsIndex

    from aeron_async.protocol.channel_uri import ChannelUri

__all__ = [
    "check_aeron",
    "check_aeron_and_context",
    "check_answered_on",
    "check_archive_and_aeron",
    "check_channel_part",
    "check_flag",
    "check_given",
    "check_id",
    "check_ids",
    "check_location",
    "check_replayed",
    "check_stream",
]

PLACES: Final = frozenset(
    {"length", "position", "new_start_position", "from_position", "to_position"}
)
NARROW: Final = frozenset({"stream_id", "session_id", "limit_counter_id"})
"""Arguments that are signed 32 bits, here and on the wire."""


def check_id(number: SupportsIndex, name: str = "recording_id") -> int:
    """Return the id of a recording, replay or subscription, or a position.

    Only type and size are checked. The archive refuses ids and positions that do not exist.

    Raises:
        ConfigurationError: It is not a whole number, or does not fit signed 64 bits.
    """
    return check_number(number, name, minimum=INT64_MIN, maximum=INT64_MAX, why=": signed 64 bits")


def check_ids(**values: Any) -> None:
    """Check ids, positions and lengths by the names of the arguments.

    Raises:
        ConfigurationError: One is not a whole number, or does not fit its number of bits.
    """
    for name, value in values.items():
        if name in NARROW:
            check_stream_id(value, name)
        elif name.endswith("_id") or name in PLACES:
            check_id(value, name)


def check_given(**values: Any) -> None:
    """Check ids, positions and lengths like `check_ids`; None is allowed.

    Raises:
        ConfigurationError: One is not a whole number, or does not fit its number of bits.
    """
    check_ids(**{name: value for name, value in values.items() if value is not None})


def check_replayed(
    recording_id: int, from_position: int | None, to_position: int | None, *, follow: bool
) -> None:
    """Check the arguments of a replay, as far as that is possible without the recording.

    Raises:
        ConfigurationError: One is not a whole number, or does not fit signed 64 bits; or `follow`
            is not a bool.
    """
    check_id(recording_id)
    check_given(from_position=from_position, to_position=to_position)
    check_flag(follow, "follow")


def check_flag(value: object, name: str) -> bool:
    """Return a bool argument.

    Raises:
        ConfigurationError: It is not a bool: the text "no", for example, would count as true.
    """
    if not isinstance(value, bool):
        message = f"{name}={shown(value)} must be True or False"
        raise ConfigurationError(message)
    return value


def check_channel_part(channel: object) -> str:
    """Return the part of a channel that a listing searches for.

    Raises:
        ConfigurationError: It is not text.
    """
    if not isinstance(channel, str):
        message = f"channel={shown(channel)} must be text: a part of the recorded channel, or ''"
        raise ConfigurationError(message)
    return channel


def check_stream(
    role: str, channel: object, stream_id: int, check: Callable[[ChannelUri, int], None]
) -> tuple[ChannelUri, int]:
    """Return a parsed channel and a stream id.

    Args:
        role: Prefix of the argument names, as in `control_channel`, `control_stream_id`.
        channel: The channel argument.
        stream_id: Stream within the channel.
        check: Refuses a channel that does not suit the role.

    Raises:
        ChannelUriError: The channel is not valid, or not for that role.
        ConfigurationError: It is neither text nor a channel, or the stream id is not valid.
    """
    stream_id = check_stream_id(stream_id, f"{role}_stream_id")
    try:
        uri = parse_channel(channel)
        check(uri, stream_id)
    except ConfigurationError as error:
        message = f"{role}_channel: {error}"
        raise type(error)(message) from None
    return uri, stream_id


def check_answered_on(uri: ChannelUri, stream_id: int) -> None:
    """Refuse a channel on which a remote archive cannot publish to this client.

    Raises:
        ChannelUriError: Says what does not fit.
    """
    uri.check_subscription(stream_id)
    if uri.is_spy:
        message = f"{uri} is a spy, and the archive publishes there: leave aeron-spy: out"
        raise ChannelUriError(message)
    if uri.control_mode is ControlMode.MANUAL:
        message = (
            f"{uri} has control-mode=manual, but the archive adds no destination: leave it out"
        )
        raise ChannelUriError(message)


def check_location(source_location: Any) -> SourceLocation:
    """Return a source location; its name or its number is accepted, too.

    Raises:
        ConfigurationError: It is not a source location.
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


def check_archive_and_aeron(call: str, archive: Any, aeron: Any, *, needs: tuple[str, ...]) -> None:
    """Refuse arguments of the wrong type, or in the wrong order.

    Args:
        call: Name of the called function or class.
        archive: An open archive.
        aeron: A client.
        needs: Attributes that the archive must have.

    Raises:
        ConfigurationError: Names what was given, and the order.
    """
    given = f"{call}(archive, aeron, ...) was given {named(archive)} and {named(aeron)}"
    if isinstance(archive, Aeron):
        message = f"{given}: the archive comes first"
        raise ConfigurationError(message)
    if not all(hasattr(archive, each) for each in needs):
        message = (
            f"{given}: the first must be an archive that is open, such as "
            "`archive = await LocalArchive.open(aeron, context)`"
        )
        raise ConfigurationError(message)
    if not isinstance(aeron, Aeron):
        message = f"{given}: the second must be the client, an Aeron"
        raise ConfigurationError(message)


def check_aeron_and_context(call: str, aeron: object, context: object) -> None:
    """Refuse what is not a client, or not the settings of an archive.

    Raises:
        ConfigurationError: Names what was given, and what to give.
    """
    check_aeron(f"{call}(aeron, context)", aeron)
    if not isinstance(context, ArchiveContext):
        message = (
            f"{call}(aeron, context) was given {named(context)} as its settings: give "
            "ArchiveContext(directory=...)"
        )
        raise ConfigurationError(message)


def check_aeron(call: str, aeron: object) -> None:
    """Refuse what is not a client.

    Raises:
        ConfigurationError: Names what was given.
    """
    if not isinstance(aeron, Aeron):
        message = f"{call} was given {named(aeron)} as its client: give an Aeron"
        raise ConfigurationError(message)


def named(value: object) -> str:
    """Return the name of a value's type with its article."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
