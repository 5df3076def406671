"""What an archive is asked with is checked before it is asked, here and from afar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

import aeron_async as aa
from aeron_async.archive import (
    ArchiveContext,
    ControlServer,
    ControlSettings,
    LocalArchive,
    RemoteArchive,
    SourceLocation,
    subscribe,
)
from aeron_async.archive.arguments import check_location
from aeron_async.archive.control.connection import credentials_supplier, encoded
from aeron_async.errors import UnknownRecordingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

NO_IDS: list[Any] = ["x", None, True, 1.5, 2**63]
CONTROL = "aeron:ipc?term-length=64k"


@pytest.fixture(params=["local", "remote"])
async def archive(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[LocalArchive | RemoteArchive]:
    context = ArchiveContext(directory=str(tmp_path), low_storage_threshold=0)
    async with (
        aa.Aeron.connect(context=aa.DriverContext(term_buffer_length=65_536)) as aeron,
        LocalArchive.open(aeron, context) as local,
    ):
        if request.param == "local":
            yield local
            return
        settings = ControlSettings(local_control_channel=CONTROL)
        async with (
            ControlServer(local, aeron, settings),
            RemoteArchive.connect(aeron, control_channel=CONTROL) as remote,
        ):
            yield remote


async def taken(found: Any) -> None:
    """Wait for whatever it was, as its caller would."""
    if hasattr(found, "__aiter__"):
        await anext(found)
    else:
        await found


@attrs.frozen
class Wrong:
    """Arguments that are refused, and what the error says of the first one that is wrong."""

    pattern: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.arguments.items())


class Unfinished:
    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def encoded_credentials(self) -> bytes:
        raise AssertionError


class Visitor(Unfinished):
    def on_challenge(self, challenge: bytes) -> bytes:
        raise AssertionError


class Awaited(Unfinished):
    async def on_challenge(self, challenge: bytes) -> bytes:
        raise AssertionError


SPY = "aeron-spy:aeron:udp?endpoint=localhost:20121"
MANUAL = "aeron:udp?control=localhost:20121|control-mode=manual"
CONNECTIONS = [
    Wrong("was given a str as its client", {"aeron": "x"}),
    Wrong("was given a NoneType as its client", {"aeron": None}),
    Wrong("control_channel: channel None must be text", {"control_channel": None}),
    Wrong("control_channel: channel 8010 must be text", {"control_channel": 8010}),
    Wrong("control_channel: .*udp:localhost", {"control_channel": "udp:localhost"}),
    Wrong("control_channel: aeron-spy: is for", {"control_channel": SPY}),
    Wrong("control_channel: .* port 0", {"control_channel": "aeron:udp?endpoint=localhost:0"}),
    Wrong("control_stream_id='10' .*signed 32 bits", {"control_stream_id": "10"}),
    Wrong("control_stream_id=1099511627776 .*signed 32", {"control_stream_id": 2**40}),
    Wrong("response_channel: channel 1 must be text", {"response_channel": 1}),
    Wrong("response_channel: aeron-spy:.* is a spy", {"response_channel": SPY}),
    Wrong("response_channel: .*=manual", {"response_channel": MANUAL}),
    Wrong("response_stream_id=None", {"response_stream_id": None}),
    Wrong("replay_channel: channel 1 must be text", {"replay_channel": 1}),
    Wrong("replay_channel: aeron-spy:.* is a spy", {"replay_channel": SPY}),
    Wrong("replay_channel: .*=manual", {"replay_channel": MANUAL}),
    Wrong("replay_stream_id=True", {"replay_stream_id": True}),
    Wrong("timeout=0 must be", {"timeout": 0}),
    Wrong("timeout='5'", {"timeout": "5"}),
    Wrong("credentials of type str must be bytes", {"credentials": "secret"}),
    Wrong("credentials of type NoneType", {"credentials": None}),
    Wrong("credentials of type int", {"credentials": 5}),
    Wrong("credentials of type Unfinished", {"credentials": Unfinished()}),
    Wrong("credentials of type type", {"credentials": Visitor}),
    Wrong("credentials.on_challenge is an `async def`", {"credentials": Awaited()}),
]

RECORDED: dict[str, Any] = {"channel": "aeron:ipc", "stream_id": 1}
REQUESTS = [
    *(
        (call, given, Wrong(wrong.pattern, RECORDED | wrong.arguments))
        for call, given in (
            ("start_recording", {}),
            ("extend_recording", {"recording_id": 0}),
            ("extending_publication", {"recording_id": 0}),
            ("stop_recording", {}),
            ("start_replay", {"recording_id": 0}),
        )
        for wrong in (
            Wrong("channel None must be text", {"channel": None}),
            Wrong("aeron:upd", {"channel": "aeron:upd?endpoint=localhost:1"}),
            Wrong("stream_id='1' .*: signed 32 bits", {"stream_id": "1"}),
            Wrong("stream_id=None .*: signed 32 bits", {"stream_id": None}),
            Wrong("stream_id=True", {"stream_id": True}),
            Wrong("^stream_id=1099511627776 .*: signed 32 bits$", {"stream_id": 2**40}),
        )
    ),
    *(
        (call, given, Wrong(pattern, RECORDED | {"auto_stop": auto_stop}))
        for call, given in (("start_recording", {}), ("extend_recording", {"recording_id": 0}))
        for pattern, auto_stop in (
            ("^auto_stop='no' must be True or False$", "no"),
            ("auto_stop=1 must", 1),
            ("auto_stop=None must", None),
        )
    ),
    (
        "start_replay",
        {"recording_id": 0},
        Wrong("limit_counter_id=.*32 bits", RECORDED | {"limit_counter_id": 2**40}),
    ),
    ("start_replay", {"recording_id": 0}, Wrong("spy", RECORDED | {"channel": SPY})),
    ("replay", {"recording_id": 0}, Wrong("follow='no' must be True", {"follow": "no"})),
    ("recordings", {}, Wrong("channel=None must be text", {"channel": None})),
    ("recordings", {}, Wrong("stream_id='1' .*32 bits", {"stream_id": "1"})),
    *(
        ("find_last", {}, Wrong(wrong.pattern, RECORDED | {"session_id": 1} | wrong.arguments))
        for wrong in (
            Wrong("channel=None must be text", {"channel": None}),
            Wrong("channel=b'aeron:ipc' must be text", {"channel": b"aeron:ipc"}),
            Wrong("^stream_id='1' .*32 bits", {"stream_id": "1"}),
            Wrong("^session_id=1099511627776 .*32 bits", {"session_id": 2**40}),
            Wrong("^min_recording_id='0' .*64 bits", {"min_recording_id": "0"}),
        )
    ),
]


@pytest.fixture
async def aeron() -> AsyncIterator[aa.Aeron]:
    async with aa.Aeron.connect() as aeron:
        yield aeron


@pytest.fixture(params=["local", "remote"])
async def unasked(
    request: pytest.FixtureRequest, aeron: aa.Aeron, tmp_path: Path
) -> AsyncIterator[LocalArchive | RemoteArchive]:
    """An archive that is asked nothing: the one elsewhere has no connection to ask on."""
    if request.param == "remote":
        yield RemoteArchive.connect(aeron, control_channel=CONTROL)
        return
    context = ArchiveContext(directory=str(tmp_path), low_storage_threshold=0)
    async with LocalArchive.open(aeron, context) as local:
        yield local


@pytest.mark.parametrize("wrong", CONNECTIONS, ids=str)
def test_a_client_is_refused_at_the_call(wrong: Wrong) -> None:
    """Whoever gave a text for its credentials was told after the timeout that nobody answers."""
    given: dict[str, Any] = {"aeron": aa.Aeron.connect(), "control_channel": CONTROL}
    with pytest.raises(aa.ConfigurationError, match=wrong.pattern) as refused:
        RemoteArchive.connect(**given | wrong.arguments)
    assert "secret" not in str(refused.value)


async def test_credentials_are_any_bytes_or_who_says_them(aeron: aa.Aeron) -> None:
    given: list[Any] = [b"key", bytearray(b"key"), memoryview(b"key"), Visitor()]
    for credentials in given:
        RemoteArchive.connect(aeron, control_channel=CONTROL, credentials=credentials)
    for written in (given[0], given[1], given[2]):
        assert credentials_supplier(written).encoded_credentials() == b"key"
    with pytest.raises(aa.ConfigurationError, match=r"on_challenge\(\) returned str"):
        encoded("secret", "on_challenge()")


@pytest.mark.parametrize(
    ("call", "given", "wrong"), REQUESTS, ids=[f"{call}-{wrong}" for call, _, wrong in REQUESTS]
)
async def test_a_request_is_refused_before_it_is_sent(
    call: str, given: dict[str, Any], wrong: Wrong, unasked: LocalArchive | RemoteArchive
) -> None:
    with pytest.raises(aa.ConfigurationError, match=wrong.pattern) as refused:
        await taken(getattr(unasked, call)(**given | wrong.arguments))
    assert "Request" not in str(refused.value)


async def test_an_id_or_a_position_is_a_whole_number(archive: LocalArchive | RemoteArchive) -> None:
    """Text was an unknown recording, true was the first one, or it failed on its way there."""
    calls: list[Callable[[Any], object]] = [
        archive.describe,
        archive.start_position,
        archive.stop_position,
        archive.recording_position,
        archive.max_recorded_position,
        archive.attach_segments,
        archive.delete_detached_segments,
        archive.purge_recording,
        archive.stop_recording_by_identity,
        archive.stop_recording_subscription,
        archive.stop_replay,
        archive.replay,
        lambda wrong: archive.purge_segments(wrong, 0),
        lambda wrong: archive.purge_segments(0, wrong),
        lambda wrong: archive.detach_segments(wrong, 0),
        lambda wrong: archive.detach_segments(0, wrong),
        lambda wrong: archive.truncate(wrong, 0),
        lambda wrong: archive.truncate(0, wrong),
        lambda wrong: archive.start_replay(wrong, "aeron:ipc", 1),
        lambda wrong: archive.start_replay(0, "aeron:ipc", 1, length=wrong),
        lambda wrong: archive.extend_recording(wrong, "aeron:ipc", 1),
        lambda wrong: archive.extending_publication(wrong, "aeron:ipc", 1),
        archive.recordings,
    ]
    for wrong in NO_IDS:
        for call in calls:
            with pytest.raises(aa.ConfigurationError, match="must be a whole number"):
                await taken(call(wrong))
    for wrong in ("x", True, 1.5):
        with pytest.raises(aa.ConfigurationError, match="from_position="):
            archive.replay(0, wrong)  # type: ignore[arg-type]
        with pytest.raises(aa.ConfigurationError, match="to_position="):
            archive.replay(0, 0, wrong)  # type: ignore[arg-type]
        with pytest.raises(aa.ConfigurationError, match="recording_id="):
            await archive.stop_all_replays(wrong)  # type: ignore[arg-type]
    for unknown in (-1, 7):
        with pytest.raises(UnknownRecordingError):
            await archive.describe(unknown)


async def test_a_recording_says_what_it_cannot_be_asked_with(
    archive: LocalArchive | RemoteArchive,
) -> None:
    async def wanted(_: object) -> None:
        pytest.fail("nobody awaits it")

    given: list[tuple[dict[str, Any], str]] = [
        ({"on_failed": 5}, "on_failed=5 must be a function"),
        ({"on_failed": wanted}, "on_failed is an `async def`"),
        ({"source_location": "here"}, "source_location='here' must be SourceLocation.LOCAL"),
        ({"source_location": 2}, "source_location=2"),
        ({"source_location": True}, "source_location=True"),
        ({"source_location": None}, "source_location=None"),
    ]
    for keywords, pattern in given:
        with pytest.raises(aa.ConfigurationError, match=pattern):
            await archive.start_recording("aeron:ipc", 1, **keywords)
        with pytest.raises(aa.ConfigurationError, match=pattern):
            await archive.extend_recording(0, "aeron:ipc", 1, **keywords)
    assert await archive.recording_subscriptions() == []


async def test_the_name_of_a_place_is_the_place(
    archive: LocalArchive | RemoteArchive, unused_udp_port: int
) -> None:
    """`"LOCAL"` was taken for REMOTE: it subscribed beside the publication it was to spy upon."""
    local: Any = "LOCAL"
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    await archive.start_recording(channel, 1, source_location=local)
    aeron = archive.aeron if isinstance(archive, RemoteArchive) else archive._resources.aeron
    found: list[Any] = list(aeron._conductor._subscriptions.values())
    assert [each.channel for each in found if each.stream_id == 1] == [
        channel.replace("aeron:", "aeron-spy:aeron:")
    ]


def test_a_place_is_taken_by_name_and_by_number() -> None:
    for given in ("local", "Local", " LOCAL ", 0, SourceLocation.LOCAL):
        assert check_location(given) is SourceLocation.LOCAL
    for given in ("remote", "REMOTE", 1, SourceLocation.REMOTE):
        assert check_location(given) is SourceLocation.REMOTE


async def test_a_gap_is_raised_or_reported(archive: LocalArchive | RemoteArchive) -> None:
    aeron = archive.aeron if isinstance(archive, RemoteArchive) else archive._resources.aeron
    wrong: list[Any] = ["foo", None, True, ["raise"]]
    for on_gap in wrong:
        with pytest.raises(aa.ConfigurationError, match='must be "raise" or "report"'):
            subscribe(archive, aeron, 0, "aeron:ipc", 1, on_gap=on_gap)
