"""Checks of the arguments that callers hand to an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aeron_async.archive.api import SourceLocation
from aeron_async.archive.context import ArchiveContext
from aeron_async.client.aeron import Aeron
from aeron_async.client.arguments import check_stream_id, parse_channel
from aeron_async.errors import ChannelUriError, ConfigurationError
from aeron_async.protocol.arguments import INT64_MAX, INT64_MIN, check_number, shown
from aeron_async.protocol.channel_uri import ControlMode

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
"""What has signed 32 bits, here and on the wire."""


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
        ConfigurationError: One is no whole number, or does not fit the bits that it has.
    """
    for name, value in values.items():
        if name in NARROW:
            check_stream_id(value, name)
        elif name.endswith("_id") or name in PLACES:
            check_id(value, name)


def check_given(**values: Any) -> None:
    """Check likewise what may be None where it is not given.

    Raises:
        ConfigurationError: One is no whole number, or does not fit the bits that it has.
    """
    check_ids(**{name: value for name, value in values.items() if value is not None})


def check_replayed(
    recording_id: int, from_position: int | None, to_position: int | None, *, follow: bool
) -> None:
    """Check what is to be replayed, as far as that can be told from the arguments alone.

    Raises:
        ConfigurationError: One is no whole number, or does not fit signed 64 bits; or `follow` is
            neither true nor false.
    """
    check_id(recording_id)
    check_given(from_position=from_position, to_position=to_position)
    check_flag(follow, "follow")


def check_flag(value: object, name: str) -> bool:
    """Return what is true or false.

    Raises:
        ConfigurationError: It is neither: the text "no" would be taken for true.
    """
    if not isinstance(value, bool):
        message = f"{name}={shown(value)} must be True or False"
        raise ConfigurationError(message)
    return value


def check_channel_part(channel: object) -> str:
    """Return a part of channels that are looked for.

    Raises:
        ConfigurationError: It is no text.
    """
    if not isinstance(channel, str):
        message = f"channel={shown(channel)} must be text: a part of the recorded channel, or ''"
        raise ConfigurationError(message)
    return channel


def check_stream(
    role: str, channel: object, stream_id: int, check: Callable[[ChannelUri, int], None]
) -> tuple[ChannelUri, int]:
    """Return a channel as a value, and a stream of it.

    Args:
        role: The arguments are called after it, such as `control_channel`, `control_stream_id`.
        channel: Given.
        stream_id: Within the channel.
        check: Refuses what cannot play the role.

    Raises:
        ChannelUriError: The channel cannot be meant, or not for that role.
        ConfigurationError: It is neither text nor a channel, or the stream id is none.
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
    """Refuse a channel on which an archive elsewhere cannot publish to this client.

    Raises:
        ChannelUriError: Says what does not fit.
    """
    uri.check_subscription(stream_id)
    if uri.is_spy:
        message = f"{uri} is a spy, and the archive publishes there: leave aeron-spy: out"
        raise ChannelUriError(message)
    if uri.control_mode is ControlMode.MANUAL:
        message = f"{uri} has control-mode=manual, and nobody adds a destination: leave it out"
        raise ChannelUriError(message)


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


def check_archive_and_aeron(call: str, archive: Any, aeron: Any, *, needs: tuple[str, ...]) -> None:
    """Refuse arguments that are something else, or in another order.

    Args:
        call: What they were given to.
        archive: An archive that is open.
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
    """Refuse what is no client, or no settings of an archive.

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
    """Refuse what is no client.

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
