"""What seldom happens between an archive and its clients."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from structlog.testing import capture_logs

from aeron_async.archive.api import RecordingSignal, RecordingSignalEvent
from aeron_async.archive.control import server as server_module
from aeron_async.archive.control.authentication import (
    AcceptAll,
    FixedCredentials,
    Verdict,
)
from aeron_async.archive.control.client import RemoteArchive
from aeron_async.archive.control.connection import Pending, archive_error
from aeron_async.archive.control.messages import (
    ControlResponse,
    KeepAliveRequest,
    Ping,
    RecordingSignalMessage,
    ReplayRequest,
    ResponseCode,
)
from aeron_async.archive.control.remote_replay import session_of
from aeron_async.archive.control.server import ReplayTokens, SignalRouter
from aeron_async.archive.signals import RemoteSignalHub
from aeron_async.errors import (
    AeronTimeoutError,
    ArchiveError,
    ArchiveErrorCode,
    ClosedError,
    RegistrationError,
)

if TYPE_CHECKING:
    import aeron_async as aa
    from aeron_async.archive.control.server import ControlServer
    from tests.archive.control.fake_archive import FakeArchive

STOPPED = RecordingSignalMessage(
    control_session_id=1,
    correlation_id=2,
    recording_id=3,
    subscription_id=4,
    position=64,
    signal=RecordingSignal.STOP,
)


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


class FakeClock:
    def __init__(self) -> None:
        self.time_ns = 0

    def now_ns(self) -> int:
        return self.time_ns


class FakeSession:
    session_id = 1

    def __init__(self) -> None:
        self.said: list[Any] = []

    def say(self, message: Any) -> None:
        self.said.append(message)


# Signals.


async def test_a_reader_who_is_too_far_behind_is_told_so() -> None:
    hub = RemoteSignalHub(most_waiting=2)
    reader = hub.stream()
    for _ in range(3):
        hub.on_signal(STOPPED)
    assert [(await anext(reader)).position for _ in range(2)] == [64, 64]
    with pytest.raises(ArchiveError, match="more than 2 recording signals were not read"):
        await anext(reader)
    waiting = asyncio.ensure_future(anext(reader))
    await asyncio.sleep(0)
    hub.on_signal(STOPPED)
    assert (await waiting).position == 64


async def test_a_signal_of_a_kind_that_is_not_known_is_passed_over() -> None:
    hub = RemoteSignalHub()
    reader = aiter(hub.stream())
    hub.on_signal(attrs.evolve(STOPPED, signal=99))
    hub.on_signal(STOPPED)
    assert (await anext(reader)).signal is RecordingSignal.STOP


async def test_signals_end_with_the_archive_and_raise_when_that_was_not_wanted() -> None:
    hub = RemoteSignalHub()
    waiting = hub.stream()
    hub.close(ArchiveError("the archive is gone"))
    for reader in (waiting, hub.stream()):
        with pytest.raises(ArchiveError, match="the archive is gone"):
            await anext(reader)


async def test_signals_are_heard_before_anybody_waits_and_no_more_once_closed() -> None:
    hub = RemoteSignalHub()
    async with hub.stream() as early:
        hub.on_signal(STOPPED)
        assert (await anext(early)).position == 64
        waiting = asyncio.create_task(anext(early))
        await asyncio.sleep(0)
    with pytest.raises(StopAsyncIteration):
        await waiting
    hub.on_signal(STOPPED)
    assert [each async for each in early] == []
    await early.aclose()


def test_a_router_forgets_the_oldest_and_what_nobody_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "MOST_OWNERS", 2)
    router = SignalRouter()
    session: Any = FakeSession()
    for number in range(3):
        router.own(number, session, number)

    def tell(subscription_id: int) -> None:
        router.on_signal(
            RecordingSignalEvent(
                recording_id=1,
                subscription_id=subscription_id,
                position=0,
                signal=RecordingSignal.STOP,
            )
        )

    for number in range(3):
        tell(number)
    assert [each.subscription_id for each in session.said] == [1, 2]
    router.hold()
    router.hold()
    tell(7)
    router.release()
    router.own(7, session, 7)
    assert session.said[-1].subscription_id == 7
    tell(8)
    router.release()
    router.own(8, session, 8)
    router.forget(session)
    tell(8)
    assert len(session.said) == 3


# Tokens.


def test_a_token_is_worth_something_for_one_recording_and_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "MOST_TOKENS", 2)
    clock: Any = FakeClock()
    session: Any = FakeSession()
    tokens = ReplayTokens(clock, timeout_ns=10)
    first, second, third = (tokens.add(session, number) for number in range(3))
    assert tokens.session_of(first, 0) is None
    assert tokens.session_of(second, 1) == session
    assert tokens.session_of(third, 1) is None
    clock.time_ns = 10
    assert tokens.session_of(second, 1) is None
    fourth = tokens.add(session, 4)
    assert tokens.session_of(fourth, 4) == session
    tokens.forget(session)
    assert tokens.session_of(fourth, 4) is None


# Small things.


def test_errors_are_known_by_their_codes_and_others_are_generic() -> None:
    assert archive_error(99, "x").code is ArchiveErrorCode.GENERIC
    assert archive_error(8, "x").code is ArchiveErrorCode.MAX_RECORDINGS


def test_the_session_of_a_replay_is_the_low_half_of_its_id() -> None:
    assert session_of(7_937_265_116) == -652_669_476
    assert session_of(5) == 5


def test_fixed_credentials_and_open_doors_never_change() -> None:
    assert FixedCredentials(b"me").on_challenge(b"who?") == b"me"
    assert AcceptAll().on_challenge_response(b"") is Verdict.ACCEPT


async def test_only_the_first_answer_counts() -> None:
    pending = Pending()
    response = ControlResponse(
        control_session_id=1, correlation_id=2, relevant_id=3, code=ResponseCode.OK
    )
    pending.put(response)
    pending.put(attrs.evolve(response, relevant_id=4))
    pending.fail(ClosedError("too late"))
    assert pending.answered.result() == response


# Sessions.


async def test_what_is_malformed_or_of_another_session_is_no_answer(
    remote: RemoteArchive, server: ControlServer
) -> None:
    (session,) = server._sessions.values()
    session._responses.put_nowait((b"\x00" * 20, False))
    session.say(Ping(control_session_id=session.session_id + 1))
    session.say(KeepAliveRequest(control_session_id=session.session_id, correlation_id=5))
    assert await remote.start_position(1) == 0


async def test_an_error_that_comes_late_finds_whoever_it_is_for(
    remote: RemoteArchive, server: ControlServer
) -> None:
    errors: list[ArchiveError] = []
    replay: dict[str, Any] = {"position": -1, "length": -1, "replay_stream_id": 1}
    await remote.connection.ask(
        ReplayRequest,
        on_late_error=errors.append,
        recording_id=1,
        replay_channel="aeron:ipc",
        **replay,
    )
    (session,) = server._sessions.values()
    late = ControlResponse(
        control_session_id=session.session_id,
        correlation_id=remote.connection._correlation_id,
        relevant_id=ArchiveErrorCode.GENERIC,
        code=ResponseCode.ERROR,
        error_message="no connection established for replay",
    )
    session.say(late)
    session.say(attrs.evolve(late, correlation_id=-9))
    await until(lambda: errors)
    assert "no connection" in str(errors[0])
    remote.connection.forget(errors.append)
    assert await remote.start_position(1) == 0


async def test_a_replay_that_nobody_publishes_raises(
    remote: RemoteArchive, archive: FakeArchive, server: ControlServer
) -> None:
    archive.answers["max_recorded_position"] = 131_104
    remote.connection.timeout = 0.2
    replay = remote.replay(0)
    with pytest.raises(AeronTimeoutError, match="no publication"):
        await anext(replay)
    assert archive.asked[-1][0] == "stop_replay"
    await replay.aclose()
    again = asyncio.create_task(first_of(remote))
    await until(lambda: remote.connection._late)
    (session,) = server._sessions.values()
    session.say(
        ControlResponse(
            control_session_id=session.session_id,
            correlation_id=next(iter(remote.connection._late)),
            relevant_id=ArchiveErrorCode.STORAGE_SPACE,
            code=ResponseCode.ERROR,
            error_message="the disk failed",
        )
    )
    with pytest.raises(ArchiveError, match="the disk failed"):
        await again


async def first_of(remote: RemoteArchive) -> object:
    return await anext(remote.replay(0))


async def test_an_error_in_a_listing_reaches_whoever_asked(
    remote: RemoteArchive, archive: FakeArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(recording_id: int) -> object:
        message = f"no disk for {recording_id}"
        raise ArchiveError(message)

    monkeypatch.setattr(archive, "describe", fail)
    with pytest.raises(ArchiveError, match="no disk for 1"):
        await remote.describe(1)


async def test_a_client_that_cannot_publish_leaves_nothing_open(
    aeron: aa.Aeron, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> object:
        message = "no room"
        raise RegistrationError(message)

    monkeypatch.setattr(type(aeron), "add_exclusive_publication", refuse)
    with pytest.raises(RegistrationError, match="no room"):
        await RemoteArchive.connect(aeron, control_channel=channel).start()
    assert not aeron._conductor._subscriptions


async def test_a_channel_of_the_clients_own_making_is_kept(
    aeron: aa.Aeron, server: ControlServer, channel: str
) -> None:
    async with RemoteArchive.connect(
        aeron, control_channel=f"{channel}|term-length=128k"
    ) as remote:
        assert remote.connection.publication.term_length == 128 * 1024


async def test_nobody_is_let_in_where_no_channel_is_open(
    aeron: aa.Aeron, archive: FakeArchive, server: ControlServer
) -> None:
    settings = attrs.evolve(server.settings, control_channel=None, local_control_channel=None)
    async with type(server)(archive, aeron, settings) as closed:
        assert closed._subscriptions == []


async def test_the_end_of_the_archives_signals_ends_nothing_else(
    remote: RemoteArchive, archive: FakeArchive
) -> None:
    archive.events.put_nowait(None)
    await until(archive.events.empty)
    assert await remote.start_position(1) == 0


async def test_answers_that_mean_nothing_cost_few_log_lines(
    remote: RemoteArchive, aeron: aa.Aeron
) -> None:
    """Anybody can send to where a client hears its answers."""
    subscription = remote.connection._subscription
    channel = f"aeron:udp?endpoint={subscription.local_address}"
    with capture_logs() as lines:
        async with aeron.add_publication(channel, subscription.stream_id) as publication:
            await publication.wait_connected(timeout=5)
            for _ in range(100):
                await publication.offer(bytes(10), timeout=5)
            assert await remote.start_position(1) == 0
            await publication.drain(5)
        await until(lambda: len(subscription.images) == 1)
    count = sum(each["event"] == "archive_response_malformed" for each in lines)
    assert 1 <= count <= 10
