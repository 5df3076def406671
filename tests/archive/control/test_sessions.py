"""Sessions: who is let in, who is believed, and who is dropped."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from structlog.testing import capture_logs

from aeron_async.archive.control.authentication import AskAgain, Verdict
from aeron_async.archive.control.client import RemoteArchive
from aeron_async.archive.control.messages import (
    CODEC,
    PROTOCOL_VERSION,
    ArchiveIdRequest,
    AuthConnectRequest,
    ChallengeResponse,
    CloseSessionRequest,
    ControlResponse,
    KeepAliveRequest,
    Ping,
    ReplayRequest,
    StartPositionRequest,
)
from aeron_async.archive.control.server import ControlServer
from aeron_async.archive.control.settings import ControlSettings
from aeron_async.errors import (
    AeronTimeoutError,
    ArchiveError,
    ArchiveErrorCode,
    ClosedError,
    ConfigurationError,
)

if TYPE_CHECKING:
    import aeron_async as aa
    from aeron_async.archive.control.sbe import SbeMessage
    from tests.archive.control.fake_archive import FakeArchive

RESPONSES = "aeron:ipc"


class Doorman:
    """Lets in who says `friend`, at once or when asked."""

    def on_connect(self, credentials: bytes) -> Verdict | AskAgain:
        if credentials == b"ask me":
            return AskAgain(b"who?")
        return Verdict.ACCEPT if credentials == b"friend" else Verdict.REJECT

    def on_challenge_response(self, credentials: bytes) -> Verdict | AskAgain:
        return AskAgain(b"really?") if credentials == b"ask me" else self.on_connect(credentials)


class Visitor:
    """Answers challenges in order."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.challenges: list[bytes] = []

    def encoded_credentials(self) -> bytes:
        return b"ask me"

    def on_challenge(self, challenge: bytes) -> bytes:
        self.challenges.append(challenge)
        return self.answers.pop(0)


class ByHand:
    """A client that sends and hears messages one by one."""

    def __init__(self, aeron: aa.Aeron, publication: Any, subscription: Any) -> None:
        self.aeron = aeron
        self.publication = publication
        self.subscription = subscription

    async def send(self, message: SbeMessage | bytes) -> None:
        data = message if isinstance(message, bytes) else CODEC.encode(message)
        await self.publication.offer(data, timeout=5)

    async def hear(self) -> SbeMessage:
        async with asyncio.timeout(5):
            return CODEC.decode((await anext(self.subscription)).data)

    async def connect(self, version: int = PROTOCOL_VERSION) -> ControlResponse:
        await self.send(
            AuthConnectRequest(
                correlation_id=1, response_stream_id=20, version=version, response_channel=RESPONSES
            )
        )
        message = await self.hear()
        assert isinstance(message, ControlResponse)
        return message


@pytest.fixture
async def by_hand(aeron: aa.Aeron, server: ControlServer) -> ByHand:
    publication = await aeron.add_exclusive_publication("aeron:ipc", 10)
    subscription = await aeron.add_subscription(RESPONSES, 20)
    await publication.wait_connected(timeout=5)
    return ByHand(aeron, publication, subscription)


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


@pytest.fixture
def guarded(settings: ControlSettings) -> ControlSettings:
    return attrs.evolve(settings, authenticator_supplier=Doorman)


async def test_who_has_the_right_credentials_is_let_in(
    aeron: aa.Aeron, archive: FakeArchive, guarded: ControlSettings, channel: str
) -> None:
    async with (
        ControlServer(archive, aeron, guarded),
        RemoteArchive.connect(aeron, control_channel=channel, credentials=b"friend") as remote,
    ):
        assert remote.archive_id == 77


async def test_who_has_not_is_told_so(
    aeron: aa.Aeron, archive: FakeArchive, guarded: ControlSettings, channel: str
) -> None:
    async with ControlServer(archive, aeron, guarded) as server:
        with pytest.raises(ArchiveError, match="authentication rejected") as caught:
            await RemoteArchive.connect(aeron, control_channel=channel).start()
        assert caught.value.code is ArchiveErrorCode.AUTHENTICATION_REJECTED
        await until(lambda: server.session_count == 0)


async def test_a_challenge_is_answered_by_the_client(
    aeron: aa.Aeron, archive: FakeArchive, guarded: ControlSettings, channel: str
) -> None:
    visitor = Visitor(b"friend")
    async with (
        ControlServer(archive, aeron, guarded),
        RemoteArchive.connect(aeron, control_channel=channel, credentials=visitor) as remote,
    ):
        assert remote.archive_id == 77
        assert visitor.challenges == [b"who?"]


async def test_a_wrong_answer_to_a_challenge_is_refused(
    aeron: aa.Aeron, archive: FakeArchive, guarded: ControlSettings, channel: str
) -> None:
    async with ControlServer(archive, aeron, guarded):
        remote = RemoteArchive.connect(
            aeron, control_channel=channel, credentials=Visitor(b"an enemy")
        )
        with pytest.raises(ArchiveError, match="authentication rejected"):
            await remote.start()


class Confused:
    """Meets credentials that it cannot judge."""

    def __init__(self, *, is_late: bool, returned: Any) -> None:
        self.is_late = is_late
        self.returned = returned

    def on_connect(self, credentials: bytes) -> Any:
        return AskAgain(b"who?") if self.is_late else self.judge(credentials)

    def on_challenge_response(self, credentials: bytes) -> Any:
        return self.judge(credentials)

    def judge(self, credentials: bytes) -> Any:
        assert credentials
        if isinstance(self.returned, Exception):
            raise self.returned
        return self.returned


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("returned", [UnicodeError("\x1b[2J"), None, True], ids=repr)
async def test_an_authenticator_that_fails_lets_nobody_in(
    aeron: aa.Aeron,
    archive: FakeArchive,
    settings: ControlSettings,
    channel: str,
    *,
    is_late: bool,
    returned: Any,
) -> None:
    """A stranger causes one line within the budget, no traceback and no session."""
    supplier = partial(Confused, is_late=is_late, returned=returned)
    guarded = attrs.evolve(settings, authenticator_supplier=supplier)
    with capture_logs() as lines:
        async with ControlServer(archive, aeron, guarded) as server:
            remote = RemoteArchive.connect(
                aeron, control_channel=channel, credentials=Visitor(b"\xff")
            )
            with pytest.raises(ArchiveError) as caught:
                await remote.start()
            assert caught.value.code == ArchiveErrorCode.AUTHENTICATION_REJECTED
            await until(lambda: server.session_count == 0)
    (line,) = [each for each in lines if each["event"] == "archive_authenticator_failed"]
    assert "\x1b" not in line["error"]
    assert not any(each["event"] == "archive_control_task_failed" for each in lines)


async def test_a_challenge_that_nobody_answers_ends_the_session(
    aeron: aa.Aeron, archive: FakeArchive, guarded: ControlSettings
) -> None:
    settings = attrs.evolve(guarded, connect_timeout_ns=50_000_000)
    async with ControlServer(archive, aeron, settings) as server:
        publication = await aeron.add_exclusive_publication("aeron:ipc", 10)
        subscription = await aeron.add_subscription(RESPONSES, 20)
        by_hand = ByHand(aeron, publication, subscription)
        await by_hand.send(
            AuthConnectRequest(
                correlation_id=1,
                response_stream_id=20,
                version=PROTOCOL_VERSION,
                response_channel=RESPONSES,
                encoded_credentials=b"ask me",
            )
        )
        await until(lambda: server.session_count == 1)
        await until(lambda: server.session_count == 0)


async def test_another_major_version_is_refused(by_hand: ByHand) -> None:
    response = await by_hand.connect(version=2 << 16)
    assert response.code == 1
    assert response.relevant_id == response.control_session_id
    assert response.error_message == "invalid client version 2.0.0, archive is 1.12.0"


async def test_that_a_session_is_open_is_repeated_until_the_first_request(by_hand: ByHand) -> None:
    response = await by_hand.connect()
    assert (response.code, response.relevant_id) == (0, response.control_session_id)
    assert await by_hand.hear() == response
    assert await by_hand.hear() == response
    session_id = response.control_session_id
    await by_hand.send(KeepAliveRequest(control_session_id=session_id, correlation_id=-1))
    while (message := await by_hand.hear()) == response:
        pass
    assert message == Ping(control_session_id=session_id)
    assert await by_hand.hear() == Ping(control_session_id=session_id)


async def test_a_request_from_another_image_is_dropped(
    by_hand: ByHand, server: ControlServer, aeron: aa.Aeron
) -> None:
    session_id = (await by_hand.connect()).control_session_id
    stranger = await aeron.add_exclusive_publication("aeron:ipc", 10)
    for message in (
        ArchiveIdRequest(control_session_id=session_id, correlation_id=2),
        CloseSessionRequest(control_session_id=session_id),
    ):
        await stranger.offer(CODEC.encode(message), timeout=5)
    await until(lambda: server.dropped_requests == 2)
    assert server.session_count == 1


async def test_a_request_of_no_session_is_dropped(by_hand: ByHand, server: ControlServer) -> None:
    await by_hand.send(ArchiveIdRequest(control_session_id=-5, correlation_id=2))
    await until(lambda: server.dropped_requests == 1)


async def test_a_session_ends_when_the_client_says_so(
    by_hand: ByHand, server: ControlServer
) -> None:
    session_id = (await by_hand.connect()).control_session_id
    await by_hand.send(CloseSessionRequest(control_session_id=session_id))
    await until(lambda: server.session_count == 0)


async def test_a_session_ends_with_the_image_of_its_requests(
    by_hand: ByHand, server: ControlServer
) -> None:
    await by_hand.connect()
    await by_hand.publication.aclose()
    await until(lambda: server.session_count == 0)


async def test_a_session_ends_when_nobody_hears_its_answers(
    by_hand: ByHand, server: ControlServer
) -> None:
    session_id = (await by_hand.connect()).control_session_id
    await by_hand.send(ArchiveIdRequest(control_session_id=session_id, correlation_id=2))
    await by_hand.subscription.aclose()
    await until(lambda: server.session_count == 0)


async def test_a_client_that_takes_no_answers_is_dropped(
    by_hand: ByHand, server: ControlServer, archive: FakeArchive
) -> None:
    archive.answers["start_position"] = ArchiveError("x" * 4_000)
    session_id = (await by_hand.connect()).control_session_id
    for number in range(20):
        await by_hand.send(
            StartPositionRequest(
                control_session_id=session_id, correlation_id=number, recording_id=1
            )
        )
    await until(lambda: server.session_count == 0)


async def test_a_client_that_asks_for_too_much_at_once_is_dropped(
    aeron: aa.Aeron, archive: FakeArchive, settings: ControlSettings, channel: str
) -> None:
    few = attrs.evolve(settings, max_pending_requests=3)
    async with (
        ControlServer(archive, aeron, few) as server,
        RemoteArchive.connect(aeron, control_channel=channel) as remote,
    ):
        archive.answers["start_position"] = asyncio.Event().wait
        asking = [asyncio.create_task(remote.start_position(1)) for _ in range(6)]
        for each in asking:
            with pytest.raises(ArchiveError, match="the archive has ended the session"):
                await each
        assert server.session_count == 0
        with pytest.raises(ArchiveError, match="connect again"):
            await remote.start_position(1)


async def test_a_client_that_hears_too_little_is_dropped(
    aeron: aa.Aeron, archive: FakeArchive, settings: ControlSettings, channel: str
) -> None:
    few = attrs.evolve(settings, max_pending_responses=1)
    async with (
        ControlServer(archive, aeron, few) as server,
        RemoteArchive.connect(aeron, control_channel=channel) as remote,
    ):
        (session,) = server._sessions.values()
        for _ in range(3):
            session.say(Ping(control_session_id=1))
        await until(lambda: server.session_count == 0)
        assert remote.archive_id == 77


async def test_one_client_too_many_is_told_that_the_archive_is_full(
    aeron: aa.Aeron, archive: FakeArchive, settings: ControlSettings, channel: str
) -> None:
    """Not a timeout that advises a longer timeout."""
    async with (
        ControlServer(archive, aeron, attrs.evolve(settings, max_sessions=1)) as server,
        RemoteArchive.connect(aeron, control_channel=channel),
    ):
        second = RemoteArchive.connect(aeron, control_channel=channel)
        with pytest.raises(ArchiveError, match="archive is full: sessions=1 are open"):
            await second.start()
        assert server.refused_sessions == 1


async def test_clients_that_never_ask_keep_none_out(
    aeron: aa.Aeron, archive: FakeArchive, settings: ControlSettings, channel: str
) -> None:
    """Somebody takes the answers of sessions that nobody uses; those count elsewhere."""
    async with ControlServer(archive, aeron, attrs.evolve(settings, max_sessions=1)) as server:
        await aeron.add_subscription(RESPONSES, 20)
        publication = await aeron.add_exclusive_publication("aeron:ipc", 10)
        connect = AuthConnectRequest(
            correlation_id=1,
            response_stream_id=20,
            version=PROTOCOL_VERSION,
            response_channel=RESPONSES,
        )
        for _ in range(3):
            await publication.offer(CODEC.encode(connect), timeout=5)
        await until(lambda: sum(each.is_accepted for each in server._sessions.values()) == 3)
        async with RemoteArchive.connect(aeron, control_channel=channel) as remote:
            assert remote.archive_id == 77


async def test_what_is_malformed_or_too_long_is_dropped(
    by_hand: ByHand, server: ControlServer
) -> None:
    session_id = (await by_hand.connect()).control_session_id
    replay = ReplayRequest(
        control_session_id=session_id,
        correlation_id=2,
        recording_id=1,
        position=0,
        length=0,
        replay_stream_id=1,
        replay_token=5,
        replay_channel="nowhere",
    )
    server.settings = attrs.evolve(server.settings, max_request_length=100)
    await by_hand.send(b"\x00" * 101)
    await by_hand.send(b"\x00" * 10)
    await by_hand.send(Ping(control_session_id=session_id))
    await by_hand.send(replay)
    await until(lambda: server.dropped_requests == 4)
    # A token that is good does not make a channel so.
    token = server.tokens.add(next(iter(server._sessions.values())), 1)
    await by_hand.send(attrs.evolve(replay, replay_token=token))
    await until(lambda: server.dropped_requests == 5)
    assert server.session_count == 1


async def test_an_answer_channel_that_cannot_be_meant_ends_the_session(
    by_hand: ByHand, server: ControlServer
) -> None:
    await by_hand.send(
        AuthConnectRequest(
            correlation_id=1,
            response_stream_id=20,
            version=PROTOCOL_VERSION,
            response_channel="aeron:nothing",
        )
    )
    await until(lambda: server.dropped_requests == 1)
    assert server.session_count == 0


async def test_what_no_client_asks_is_refused(by_hand: ByHand) -> None:
    response = await by_hand.connect()
    await by_hand.send(attrs.evolve(response, correlation_id=5))
    while (message := await by_hand.hear()) == response:
        pass
    assert isinstance(message, ControlResponse)
    assert message.error_message == "ControlResponse is none of a client's requests"
    await by_hand.send(
        ChallengeResponse(
            control_session_id=response.control_session_id,
            correlation_id=6,
            encoded_credentials=b"nobody has asked",
        )
    )
    assert isinstance(await by_hand.hear(), Ping)


async def test_a_client_that_is_closed_says_so(
    aeron: aa.Aeron, server: ControlServer, channel: str
) -> None:
    remote = RemoteArchive.connect(aeron, control_channel=channel)
    with pytest.raises(ClosedError):
        await remote.start_position(1)
    async with remote:
        signals = remote.signals()
    with pytest.raises(ClosedError):
        await remote.start_position(1)
    with pytest.raises(StopAsyncIteration):
        await anext(signals)
    await until(lambda: server.session_count == 0)


async def test_nobody_there_is_a_timeout(aeron: aa.Aeron, channel: str) -> None:
    with pytest.raises(AeronTimeoutError, match="no archive answers at"):
        await RemoteArchive.connect(aeron, control_channel=channel, timeout=0.05).start()


async def test_a_timeout_must_be_positive(aeron: aa.Aeron, channel: str) -> None:
    with pytest.raises(ConfigurationError, match="timeout=0"):
        RemoteArchive.connect(aeron, control_channel=channel, timeout=0)


@pytest.mark.parametrize("setting", ["max_sessions", "connect_timeout_ns", "max_request_length"])
def test_settings_must_be_positive(setting: str) -> None:
    values: dict[str, Any] = {setting: 0}
    with pytest.raises(ConfigurationError, match=f"{setting} must be at least 1, got 0"):
        ControlSettings(**values)


def test_a_control_channel_is_checked_before_it_is_used() -> None:
    with pytest.raises(ConfigurationError, match="control_channel: "):
        ControlSettings(control_channel="aeron:nothing")


async def test_a_session_that_ends_before_it_has_run_is_forgotten(
    by_hand: ByHand, server: ControlServer
) -> None:
    """It is closed between being opened and its first step."""
    first_id = (await by_hand.connect()).control_session_id
    await by_hand.send(KeepAliveRequest(control_session_id=first_id, correlation_id=2))
    (session,) = server._sessions.values()
    await until(lambda: session.is_active)
    for stream_id in range(30, 34):
        connect = AuthConnectRequest(
            correlation_id=1,
            response_stream_id=stream_id,
            version=PROTOCOL_VERSION,
            response_channel=RESPONSES,
        )
        known = set(server._sessions)
        server.on_request(CODEC.encode(connect), session.image)
        (session_id,) = set(server._sessions) - known
        close = CloseSessionRequest(control_session_id=session_id)
        server.on_request(CODEC.encode(close), session.image)
    await until(lambda: server.session_count == 1)
    assert server.waiting_room.session_count == 0
