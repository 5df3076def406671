"""Commands `aeron-async archive record`, `stop` and `serve`."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib.metadata import version as installed_version
from ipaddress import ip_address
from pathlib import Path  # noqa: TC003 - cyclopts reads annotations at run time
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aeron_async.archive.api import RecordingSignal, SourceLocation
from aeron_async.archive.context import ArchiveContext
from aeron_async.archive.control.server import ControlServer
from aeron_async.archive.control.settings import ControlSettings
from aeron_async.archive.local_archive import LocalArchive
from aeron_async.cli.archive_where import (
    CONTROL_EXAMPLE,
    is_elsewhere,
    needs_control,
    opened,
    progress_bar,
    remove_if_unused,
)
from aeron_async.cli.options import ClientOptions, Flag, Int64, RecordingId, Stream
from aeron_async.cli.output import complain, print_json, print_line, remark
from aeron_async.cli.runner import ExitCode, run
from aeron_async.client.aeron import Aeron
from aeron_async.door import StatsDoor
from aeron_async.errors import AeronError, ArchiveError, ClosedError, ConfigurationError
from aeron_async.protocol.channel_uri import ChannelUri, Media
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    from aeron_async.archive.api import Archive, RecordingSignalEvent, SignalReader
    from aeron_async.stats import Stats

__all__ = [
    "record",
    "serve",
    "stop",
]

SHOWN_SECONDS: Final = 0.5
LOOK_SECONDS: Final = 1.0
LOOKS: Final = 2
ENDS_SECONDS: Final = 2.0
"""How long to wait for end signals after Ctrl-C has stopped the recording."""
ENDS: Final = (RecordingSignal.STOP, RecordingSignal.DELETE)
WORDS: Final = {RecordingSignal.EXTEND: "continues"}


def record(
    where: str,
    channel: str,
    /,
    *,
    stream: Stream,
    local: Flag = False,
    extend: RecordingId | None = None,
    auto_stop: Flag = False,
    json: Flag = False,
    options: ClientOptions | None = None,
) -> int:
    """Record a stream until Ctrl-C, and report each recording that begins or ends.

    Args:
        where: Directory of an archive, created if missing, or the control channel of a running
            archive.
        channel: Such as "aeron:udp?endpoint=127.0.0.1:20121".
        stream: Stream id within the channel.
        local: The publication is in the archive's own driver; record it through a spy.
        extend: Extend this recording.
        auto_stop: End when the first source has ended.
        json: One JSON object a line.
        options: How to run.
    """
    options = options or ClientOptions()
    if not is_elsewhere(where) and options.aeron_dir is None:
        check_heard_here(channel, is_local=local)
    location = SourceLocation.LOCAL if local else SourceLocation.REMOTE
    main = _record(
        where,
        channel,
        stream,
        aeron_dir=options.aeron_dir,
        location=location,
        extend=extend,
        auto_stop=auto_stop,
        is_json=json,
    )
    return run(main, options)


def check_heard_here(channel: str, *, is_local: bool) -> None:
    """Refuse a channel that only the publication's own driver can hear: this command has another.

    Raises:
        ConfigurationError: The command would wait forever.
    """
    uri = ChannelUri.parse(channel)
    if uri.media is Media.IPC or uri.is_spy or is_local:
        what = "with --local " if is_local else ""
        message = (
            f"{channel} {what}is heard within one process only, and nothing publishes in this one: "
            "let the publisher's process serve an archive, and give its control channel in place "
            f"of the directory, such as {CONTROL_EXAMPLE}; or use the publisher's driver with "
            "--aeron-dir, or publish over aeron:udp"
        )
        raise ConfigurationError(message)


async def _record(
    where: str,
    channel: str,
    stream: int,
    *,
    aeron_dir: str | None,
    location: SourceLocation,
    extend: int | None,
    auto_stop: bool,
    is_json: bool,
) -> int:
    async with (
        opened(where, aeron_dir=aeron_dir, may_be_new=True) as (aeron, archive),
        archive.signals() as signals,
    ):
        start = (
            archive.start_recording if extend is None else partial(archive.extend_recording, extend)
        )
        told: asyncio.Queue[RecordingSignalEvent | ArchiveError | None] = asyncio.Queue()
        subscription_id = await start(
            channel,
            stream,
            source_location=location,
            auto_stop=auto_stop,
            on_failed=told.put_nowait,
        )
        remark(f"recording {channel}, stream {stream}, into {where}; Ctrl-C stops it")
        going_on: set[int] = set()
        async with TaskOwner() as hearing:
            hearing.start(hear(signals, subscription_id, told), "signals")
            try:
                async with TaskOwner() as others:
                    others.start(show(archive, going_on), "progress")
                    others.start(
                        notice_stop(aeron, archive, subscription_id, told, going_on), "end"
                    )
                    await report(told, going_on, auto_stop=auto_stop, is_json=is_json)
            finally:
                await stop_and_tell(archive, subscription_id, told, going_on, is_json=is_json)
    return ExitCode.SUCCESS


async def report(
    told: asyncio.Queue[RecordingSignalEvent | ArchiveError | None],
    going_on: set[int],
    *,
    auto_stop: bool,
    is_json: bool,
) -> None:
    """Print each event until the last one, and note which recordings are running.

    Raises:
        ArchiveError: A recording has failed, and no other is running.
    """
    failure: ArchiveError | None = None
    while (event := await told.get()) is not None:
        if isinstance(event, ArchiveError):
            if failure is not None:
                remark(str(failure))
            failure = event
        elif event.signal in ENDS:
            going_on.discard(event.recording_id)
            if failure is None:
                tell(event, is_json=is_json)
        else:
            going_on.add(event.recording_id)
            tell(event, is_json=is_json)
        if failure is not None and not going_on:
            raise failure
        if auto_stop and getattr(event, "signal", None) is RecordingSignal.STOP:
            break
    if failure is not None:
        raise failure


async def stop_and_tell(
    archive: Archive,
    subscription_id: int,
    told: asyncio.Queue[RecordingSignalEvent | ArchiveError | None],
    going_on: set[int],
    *,
    is_json: bool,
) -> None:
    """Stop what is still recorded, and report its end if the signal comes in time."""
    # The recording may have stopped by itself, and its end be known already.
    with suppress(ArchiveError):
        await archive.stop_recording_subscription(subscription_id)
    with suppress(TimeoutError):
        async with asyncio.timeout(ENDS_SECONDS):
            while going_on:
                event = await told.get()
                if event is None or isinstance(event, ArchiveError):
                    return
                if event.signal in ENDS and event.recording_id in going_on:
                    going_on.discard(event.recording_id)
                    tell(event, is_json=is_json)


async def hear(
    signals: SignalReader,
    subscription_id: int,
    told: asyncio.Queue[RecordingSignalEvent | ArchiveError | None],
) -> None:
    """Queue the signals of one subscription, and None when there are no more."""
    try:
        async for event in signals:
            if event.subscription_id == subscription_id:
                told.put_nowait(event)
    except ArchiveError as error:
        told.put_nowait(error)
    finally:
        told.put_nowait(None)


async def notice_stop(
    aeron: Aeron,
    archive: Archive,
    subscription_id: int,
    told: asyncio.Queue[RecordingSignalEvent | ArchiveError | None],
    going_on: set[int],
) -> None:
    """Queue None once another client or the archive has stopped the subscription.

    If the driver is gone, queue the error instead.
    """
    missing_count = 0
    with suppress(AeronError):
        # A recording that was active when the subscription stopped still sends its end signal
        # first.
        while missing_count < LOOKS:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                check_driver_lives(aeron)
            except ClosedError as error:
                # The archive ends its recordings with the driver, and their ends are told first.
                for _ in range(LOOKS):
                    if not going_on:
                        break
                    await asyncio.sleep(LOOK_SECONDS)
                told.put_nowait(ArchiveError(str(error)))
                return
            found = await archive.recording_subscriptions()
            is_there = any(each.subscription_id == subscription_id for each in found)
            missing_count = 0 if is_there else missing_count + 1
        remark("the recording has stopped: the archive or another client has stopped it")
        told.put_nowait(None)


async def show(archive: Archive, going_on: set[int]) -> None:
    """Show positions of active recordings on a terminal, until cancelled."""
    if not sys.stderr.isatty():
        return
    with progress_bar("recording", None) as advance, suppress(AeronError):
        while True:
            found = [
                f"{each} at {position:,}"
                for each in sorted(going_on)
                if (position := await archive.recording_position(each)) is not None
            ]
            advance(0, f"recording {', '.join(found) or 'nothing yet'}")
            await asyncio.sleep(SHOWN_SECONDS)


def tell(event: RecordingSignalEvent, *, is_json: bool) -> None:
    """Print what a signal says, and flush it for a reader of a pipe."""
    if is_json:
        print_json(
            {
                "recording_id": event.recording_id,
                "signal": event.signal.name,
                "position": event.position,
            }
        )
    else:
        word = "ended" if event.signal in ENDS else WORDS.get(event.signal, "began")
        print_line(f"recording {event.recording_id} {word} at position {event.position}")
    sys.stdout.flush()


def serve(
    directory: Path,
    /,
    *,
    control: str | None = None,
    stats_socket: Path | None = None,
    options: ClientOptions | None = None,
) -> int:
    """Serve an archive to clients, ours and official ones, until Ctrl-C.

    Args:
        directory: Directory of the archive; created if missing.
        control: Channel of requests, such as "aeron:udp?endpoint=localhost:8010"; without it, and
            without AERON_ARCHIVE_CONTROL_CHANNEL, only clients of its driver reach the archive.
        stats_socket: Unix socket at which tools of the same user read the statistics of the archive
            and its driver; others must not be able to write its folder.
        options: How to run.
    """
    if is_elsewhere(str(directory)):
        message = f"{directory} is a channel: serve a directory, and give the channel as --control"
        raise ConfigurationError(message)
    changes: dict[str, Any] = {} if control is None else {"control_channel": control}
    context = ArchiveContext.from_environment(directory=str(directory), **changes)
    options = options or ClientOptions()
    return run(_serve(context, options.aeron_dir, stats_socket), options)


def reached_from(control: str | None, aeron_dir: str | None = None) -> str | None:
    """Return a remark about a control channel that some clients cannot reach; None if all can.

    Args:
        control: The control channel, if there is one.
        aeron_dir: Aeron directory of the driver, if it has one.
    """
    uri = None if control is None else ChannelUri.parse(control)
    if uri is None or uri.media is Media.IPC:
        if aeron_dir is not None:
            return f"only clients of the driver in {aeron_dir} reach it, over aeron:ipc"
        return (
            "no other process reaches it: give --control, or AERON_ARCHIVE_CONTROL_CHANNEL, such "
            f"as {CONTROL_EXAMPLE}; or --aeron-dir"
        )
    endpoint = uri.endpoint
    if endpoint is not None and is_loopback(endpoint.host):
        return "only this machine reaches it: its endpoint is a loopback address"
    return None


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, judging by its name."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def door_of(path: Path, aeron: Aeron, archive: LocalArchive) -> StatsDoor:
    """Return a door that shows the statistics of an archive with those of its driver."""

    async def take() -> Stats:
        stats = await aeron.gather_stats()
        return stats.with_archive(archive.stats(stats))

    return StatsDoor(path, take, version=installed_version("aeron-async"), pid=os.getpid())


async def _serve(
    context: ArchiveContext, aeron_dir: str | None, stats_socket: Path | None
) -> NoReturn:
    with remove_if_unused(context.directory):
        async with (
            Aeron.connect(directory=aeron_dir) as aeron,
            LocalArchive.open(aeron, context) as archive,
            AsyncExitStack() as stack,
        ):
            # First: clients find no archive that cannot open its door.
            if stats_socket is not None:
                await stack.enter_async_context(door_of(stats_socket, aeron, archive))
            server = ControlServer(archive, aeron, ControlSettings.of(context))
            await stack.enter_async_context(server)
            control = context.control_channel
            at = "" if control is None else f" on {control}, stream {context.control_stream_id}"
            remark(
                f"serving {context.directory}{at}, archive id {archive.archive_id}; Ctrl-C ends it"
            )
            own = aeron.driver.context.aeron_directory
            reach = reached_from(control, own if aeron_dir is None else aeron_dir)
            if reach is not None:
                remark(reach)
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                check_driver_lives(aeron)


def check_driver_lives(aeron: Aeron) -> None:
    """Refuse to go on without a driver, which a client with `--aeron-dir` may lose.

    Raises:
        ClosedError: The client is closed; says why.
    """
    _ = aeron.client_id


def stop(
    control: str,
    recording_id: RecordingId | None = None,
    /,
    *,
    subscription: Int64 | None = None,
    channel: str | None = None,
    stream: Stream | None = None,
    options: ClientOptions | None = None,
) -> int:
    """Stop a recording, even if the client that requested it is gone.

    A request to record stops as a whole: all sources of the stream.

    Args:
        control: Control channel of a running archive.
        recording_id: Id of an active recording; see `archive ls`.
        subscription: Instead: the id of a request that waits to record; see `archive ls`.
        channel: Instead: the channel as in the request to record; with --stream.
        stream: Stream id within the channel.
        options: How to run.

    Raises:
        ConfigurationError: None of these is given, or more than one, or no control channel.
    """
    if (channel is None) != (stream is None):
        message = "--channel and --stream go together: give both as in the request to record"
        raise ConfigurationError(message)
    if [recording_id, subscription, channel].count(None) != 2:  # noqa: PLR2004 - all but one
        message = "give one of these: a recording id, --subscription, or --channel and --stream"
        raise ConfigurationError(message)
    needs_control(control, "what records is running")
    options = options or ClientOptions()
    main = _stop(control, recording_id, subscription, channel, stream, aeron_dir=options.aeron_dir)
    return run(main, options)


async def _stop(
    control: str,
    recording_id: int | None,
    subscription: int | None,
    channel: str | None,
    stream: int | None,
    *,
    aeron_dir: str | None,
) -> int:
    async with opened(control, aeron_dir=aeron_dir) as (_, archive):
        if recording_id is not None:
            return await _stop_recording(archive, recording_id)
        if subscription is not None:
            await archive.stop_recording_subscription(subscription)
            print_line(f"subscription {subscription} has stopped recording")
        elif channel is not None and stream is not None:
            await archive.stop_recording(channel, stream)
            print_line(f"stream {stream} of {channel} is not recorded any longer")
    return ExitCode.SUCCESS


async def _stop_recording(archive: Archive, recording_id: int) -> int:
    if not await archive.stop_recording_by_identity(recording_id):
        complain(
            f"recording {recording_id} was not active: nothing was stopped; a request that waits "
            "to record has an id of its own, for --subscription: see `archive ls`"
        )
        return ExitCode.FAILURE
    position = await archive.max_recorded_position(recording_id)
    print_line(f"recording {recording_id} ended at position {position}")
    return ExitCode.SUCCESS
