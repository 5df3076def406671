"""An archive that is elsewhere, asked from threads without an event loop.

The session with it lives beside the driver of this process, and outlasts a task. One that does not
answer any more is left, and another is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, final

from aeron_async.archive.control.client import RemoteArchive
from aeron_async.errors import (
    AeronError,
    ConfigurationError,
    InvalidPositionError,
    UnknownRecordingError,
)
from aeron_async.spark.worker_connection import worker_connection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aeron_async.archive.disk.descriptor import RecordingDescriptor
    from aeron_async.spark.replayed.access import ArchiveAccess
    from aeron_async.spark.worker_connection import WorkerConnection

__all__ = ["LINGER_MS", "ArchiveLink", "answer"]

T = TypeVar("T")
LINGER_MS: Final = 10_000
"""How long a session stays open after a question."""


@final
class ArchiveLink:
    """Asks an archive; every call blocks.

    Args:
        access: Where it is.
    """

    def __init__(self, access: ArchiveAccess) -> None:
        self.access = access

    def recordings(self) -> dict[int, RecordingDescriptor]:
        """Return all recordings by their ids, in order.

        Raises:
            ConfigurationError: The archive does not answer.
        """
        return self._asked(listed, "which recordings it has")

    def describe(self, recording_id: int) -> RecordingDescriptor:
        """Return what is known of a recording.

        Raises:
            ConfigurationError: The archive does not answer.
            UnknownRecordingError: There is none with that id.
        """
        return self._asked(
            lambda archive: archive.describe(recording_id), f"what recording {recording_id} is"
        )

    def position(self, recording_id: int) -> int:
        """Return up to where a recording has been made, in bytes.

        Raises:
            ConfigurationError: The archive does not answer.
            UnknownRecordingError: There is none with that id.
        """
        return self._asked(
            lambda archive: archive.max_recorded_position(recording_id),
            f"where recording {recording_id} ends",
        )

    def _asked(self, ask: Callable[[RemoteArchive], Awaitable[T]], what: str) -> T:
        failure: AeronError | None = None
        for _ in range(self.access.retries + 1):
            try:
                with worker_connection(LINGER_MS) as connection:
                    found: T = connection.call(answer, connection, self.access, ask)
                    return found
            except (ConfigurationError, UnknownRecordingError, InvalidPositionError):
                raise
            except AeronError as error:
                failure = error
        message = (
            f"the archive at archive.control.channel={self.access.control_channel} does not say "
            f"{what}: {failure}; change archive.control.channel, archive.timeoutMs or "
            "archive.retries"
        )
        raise ConfigurationError(message) from failure


async def answer(
    connection: WorkerConnection,
    access: ArchiveAccess,
    ask: Callable[[RemoteArchive], Awaitable[T]],
) -> T:
    """Ask in the session that there is; leave that if it fails, so that the next one is new."""
    archive = await session_with(connection, access)
    try:
        return await ask(archive)
    except (ConfigurationError, UnknownRecordingError, InvalidPositionError):
        raise
    except AeronError:
        if connection.kept.get(name_of(access)) is archive:
            del connection.kept[name_of(access)]
        await archive.aclose()
        raise


async def session_with(connection: WorkerConnection, access: ArchiveAccess) -> RemoteArchive:
    """Return the session of this process with an archive, opened when there is none."""
    name = name_of(access)
    archive: RemoteArchive | None = connection.kept.get(name)
    if archive is None:
        archive = await RemoteArchive.connect(
            connection.aeron,
            control_channel=access.control_channel,
            response_channel=access.response_channel,
            timeout=access.timeout_ms / 1_000,
        )
        connection.kept[name] = archive
        connection.closing[name] = archive.aclose
    return archive


def name_of(access: ArchiveAccess) -> str:
    """Return what a session is kept under."""
    return f"archive {access.control_channel} {access.response_channel} {access.timeout_ms}"


async def listed(archive: RemoteArchive) -> dict[int, RecordingDescriptor]:
    """Return all recordings of an archive."""
    return {each.recording_id: each async for each in archive.recordings()}
