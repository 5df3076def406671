"""The order of arguments that is the same everywhere: the archive first, then its client."""

from __future__ import annotations

from typing import Any

from aeron_async.archive.context import ArchiveContext
from aeron_async.client.aeron import Aeron
from aeron_async.errors import ConfigurationError

__all__ = ["check_aeron", "check_aeron_and_context", "check_archive_and_aeron"]


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
