"""`aeron-async archive stop`: let an archive record something no more, whoever asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.cli.archive_where import needs_control, opened
from aeron_async.cli.options import Int64, RecordingId, RunOptions, Stream
from aeron_async.cli.output import complain, print_line
from aeron_async.cli.runner import ExitCode, run
from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from aeron_async.archive.api import Archive

__all__ = ["stop"]


def stop(
    control: str,
    recording_id: RecordingId | None = None,
    /,
    *,
    subscription: Int64 | None = None,
    channel: str | None = None,
    stream: Stream | None = None,
    options: RunOptions | None = None,
) -> int:
    """Record something no more, also where the client that asked for it is gone.

    What was asked for in one request ends together: other sources of the stream too.

    Args:
        control: Control channel of an archive that is running.
        recording_id: Of a recording that goes on; see `archive ls`.
        subscription: In its place: the id of what waits to be recorded; see `archive ls`.
        channel: In their place: as the request to record had it; with --stream.
        stream: Stream id within the channel.
        options: How to run.

    Raises:
        ConfigurationError: None of these is given, or more than one, or no control channel.
    """
    if (channel is None) != (stream is None):
        message = "--channel and --stream go together: they are what was asked to be recorded"
        raise ConfigurationError(message)
    if [recording_id, subscription, channel].count(None) != 2:  # noqa: PLR2004 - all but one
        message = "one thing stops: give a recording id, or --subscription, or --channel, --stream"
        raise ConfigurationError(message)
    needs_control(control, "what records is running")
    main = _stop(control, recording_id, subscription, channel, stream)
    return run(main, options or RunOptions())


async def _stop(
    control: str,
    recording_id: int | None,
    subscription: int | None,
    channel: str | None,
    stream: int | None,
) -> int:
    async with opened(control) as (_, archive):
        if recording_id is not None:
            return await _stop_recording(archive, recording_id)
        if subscription is not None:
            await archive.stop_recording_subscription(subscription)
            print_line(f"subscription {subscription} records no more")
        elif channel is not None and stream is not None:
            await archive.stop_recording(channel, stream)
            print_line(f"stream {stream} of {channel} is recorded no more")
    return ExitCode.SUCCESS


async def _stop_recording(archive: Archive, recording_id: int) -> int:
    if not await archive.stop_recording_by_identity(recording_id):
        complain(f"recording {recording_id} was not going on: nothing is stopped")
        return ExitCode.FAILURE
    position = await archive.max_recorded_position(recording_id)
    print_line(f"recording {recording_id} ended at position {position}")
    return ExitCode.SUCCESS
