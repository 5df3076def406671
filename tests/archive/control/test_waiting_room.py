"""Who may wait to be let in, and who makes way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.archive.control import server as server_module
from aeron_async.archive.control.client import RemoteArchive
from aeron_async.archive.control.messages import PROTOCOL_VERSION, AuthConnectRequest
from aeron_async.archive.control.server import WaitingRoom
from aeron_async.archive.control.settings import ControlSettings
from aeron_async.errors import AeronTimeoutError
from aeron_async.testing.virtual_clock import VirtualLoop

if TYPE_CHECKING:
    import aeron_async as aa
    from aeron_async.archive.control.server import ControlServer

SECOND = 1_000_000_000
REQUEST = AuthConnectRequest(
    correlation_id=1, response_stream_id=20, version=PROTOCOL_VERSION, response_channel="aeron:ipc"
)


class FakeSession:
    def __init__(self, image: Any) -> None:
        self.image = image
        self.is_connected = False
        self.ended: list[str] = []

    def end(self, reason: str) -> None:
        self.ended.append(reason)


class Room:
    """A waiting room whose sessions and sources are plain values."""

    def __init__(self, **settings: int) -> None:
        self.sessions: list[FakeSession] = []
        self.room = WaitingRoom(ControlSettings(**settings), self, self.open_session)  # type: ignore[arg-type]

    def now_ns(self) -> int:
        return round(asyncio.get_running_loop().time() * SECOND)

    def open_session(self, request: AuthConnectRequest, image: Any, length: int) -> Any:
        assert (request, length) == (REQUEST, 100)
        self.sessions.append(FakeSession(image))
        return self.sessions[-1]

    def enter(self, image: str) -> bool:
        return self.room.try_enter(REQUEST, image, 100)  # type: ignore[arg-type]

    def leave(self, number: int, *, is_failed: bool) -> None:
        self.room.leave(self.sessions[number], is_failed=is_failed)  # type: ignore[arg-type]

    def opened(self) -> str:
        """Return the sources of all sessions that there were, in order."""
        return "".join(each.image for each in self.sessions)

    def ended(self) -> list[int]:
        """Return the numbers of those that made way."""
        return [number for number, each in enumerate(self.sessions) if each.ended]


def in_virtual_time(story: Any) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())


def test_a_source_has_so_many_sessions_and_as_many_waiting_requests() -> None:
    async def story() -> None:
        room = Room(max_unconnected_sessions_per_image=2)
        assert [room.enter("a") for _ in range(6)] == [True] * 4 + [False] * 2
        assert room.opened() == "aa"
        assert (room.room.session_count, room.room.newcomer_count) == (2, 2)
        room.leave(0, is_failed=True)
        assert room.opened() == "aaa"
        room.leave(0, is_failed=True)
        assert room.opened() == "aaa", "leaving twice is leaving once"
        assert room.enter("b"), "others have room"
        room.room.close()

    in_virtual_time(story)


def test_a_source_that_has_failed_makes_way_for_one_that_has_not() -> None:
    async def story() -> None:
        room = Room(max_unconnected_sessions=2)
        for source in "ab":
            assert room.enter(source)
        room.leave(0, is_failed=True)
        assert room.enter("a")
        assert room.enter("c")
        assert (room.opened(), room.ended()) == ("abac", [2])
        assert room.enter("a"), "it waits for its turn"
        assert room.opened() == "abac"
        assert room.enter("d"), "nobody has failed but those that wait"
        assert room.opened() == "abac"
        room.leave(1, is_failed=False)
        assert room.opened() == "abacd", "before the one that has failed"
        room.room.close()

    in_virtual_time(story)


def test_sessions_that_are_half_through_their_time_make_way() -> None:
    async def story() -> None:
        room = Room(max_unconnected_sessions=2)
        for source in "abc":
            assert room.enter(source)
        await asyncio.sleep(0.45)
        assert room.opened() == "ab"
        await asyncio.sleep(0.1)
        assert (room.opened(), room.ended()) == ("abc", [0])
        room.room.close()

    in_virtual_time(story)


def test_a_full_queue_has_a_place_for_a_source_that_is_clean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Requests of sources that failed, or wait with more, make way for it."""
    monkeypatch.setattr(server_module, "WAITING_MAX", 4)

    async def story() -> None:
        room = Room(max_unconnected_sessions=2, max_unconnected_sessions_per_image=2)
        for source in "aabbcc":
            assert room.enter(source)
        assert (room.opened(), room.room.newcomer_count) == ("aa", 4)
        assert room.enter("d")
        assert (room.room.newcomer_count, room.room.displaced_count) == (4, 1)
        room.leave(0, is_failed=True)
        assert (room.opened(), room.ended()) == ("aabc", [1])
        assert [room.enter("a") for _ in range(3)] == [True, True, False]
        assert room.enter("e")
        assert (room.room.newcomer_count, room.room.displaced_count) == (4, 2)
        assert not any(room.enter(source) for source in "aa"), "it has failed, and others wait"
        assert (room.room.newcomer_count, room.room.displaced_count) == (4, 2)
        room.room.close()

    in_virtual_time(story)


def test_requests_that_wait_take_so_many_bytes() -> None:
    async def story() -> None:
        room = Room(max_unconnected_sessions=1, max_unconnected_sessions_per_image=1)
        room.enter("a")
        length = server_module.WAITING_BYTES_MAX // 100
        sources = [f"source {number}" for number in range(150)]
        entered = [
            room.room.try_enter(REQUEST, each, length)  # type: ignore[arg-type]
            for each in sources
        ]
        assert entered == [True] * 100 + [False] * 50
        room.room.close()

    in_virtual_time(story)


def test_a_request_waits_no_longer_than_its_client() -> None:
    async def story() -> None:
        room = Room(max_unconnected_sessions_per_image=1, connect_timeout_ns=SECOND)
        assert room.enter("a")
        assert room.enter("a")
        await asyncio.sleep(1.2)
        assert room.room.newcomer_count == 0
        room.leave(0, is_failed=True)
        assert room.opened() == "a"

    in_virtual_time(story)


def test_a_source_that_is_gone_waits_for_nothing() -> None:
    async def story() -> None:
        room = Room(max_unconnected_sessions_per_image=1)
        for _ in range(2):
            assert room.enter("a")
        room.room.forget("a")  # type: ignore[arg-type]
        room.leave(0, is_failed=False)
        assert room.opened() == "a"
        room.room.close()

    in_virtual_time(story)


def test_nothing_is_remembered_of_sources_that_are_gone() -> None:
    """A source that asks and goes at once leaves nothing behind, however many there are."""

    async def story() -> None:
        room = Room()
        for number in range(100):
            assert room.enter(f"source {number}")
            room.room.forget(f"source {number}")  # type: ignore[arg-type]
            room.leave(number, is_failed=True)
        assert not room.room._failures
        room.room.close()

    in_virtual_time(story)


def test_a_client_that_takes_answers_makes_way_last() -> None:
    """It may be answering a challenge, and takes its time for that."""

    async def story() -> None:
        room = Room(max_unconnected_sessions=2)
        for source in "ab":
            assert room.enter(source)
        room.sessions[0].is_connected = True
        await asyncio.sleep(0.6)
        assert room.enter("c")
        assert (room.opened(), room.ended()) == ("abc", [1])
        room.sessions[2].is_connected = True
        await asyncio.sleep(0.6)
        assert room.enter("d")
        assert (room.opened(), room.ended()) == ("abc", [1])
        await asyncio.sleep(1.5)
        assert (room.opened(), room.ended()) == ("abcd", [0, 1])
        room.room.close()

    in_virtual_time(story)


def test_clients_that_were_refused_make_way_for_new_ones() -> None:
    """Whoever can be reached, and is not let in, keeps nobody out either."""

    async def story() -> None:
        room = Room(max_unconnected_sessions=1)
        assert room.enter("a")
        room.sessions[0].is_connected = True
        room.leave(0, is_failed=True)
        assert room.enter("a")
        room.sessions[1].is_connected = True
        assert room.enter("b")
        assert (room.opened(), room.ended()) == ("aab", [1])
        room.room.close()

    in_virtual_time(story)


@pytest.mark.parametrize("setting", ["max_unconnected_sessions", "unconnected_session_timeout_ns"])
def test_the_archive_sets_the_bounds(setting: str) -> None:
    from aeron_async.archive import ArchiveContext  # noqa: PLC0415 - for this test only

    context = ArchiveContext(**{setting: 7})  # type: ignore[arg-type]
    assert getattr(ControlSettings.of(context), setting) == 7


async def test_a_client_that_is_not_answered_is_told_where_its_answers_go(
    aeron: aa.Aeron, server: ControlServer, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout advised a longer timeout."""
    monkeypatch.setattr(server.waiting_room, "try_enter", lambda *_: False)
    remote = RemoteArchive.connect(aeron, control_channel=channel, timeout=0.1)
    with pytest.raises(AeronTimeoutError, match=r"did not answer .*: its answers go to aeron:udp"):
        await remote.start()
    assert server.refused_sessions == 1


async def test_a_client_that_waits_for_a_response_is_told_what_it_can_change(
    aeron: aa.Aeron, server: ControlServer, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told what its archive should do with its publications."""
    monkeypatch.setattr(server.waiting_room, "try_enter", lambda *_: False)
    remote = RemoteArchive.connect(
        aeron,
        control_channel=channel,
        response_channel="aeron:udp?control=127.0.0.1:1|control-mode=response",
        timeout=0.1,
    )
    remedy = "its answers are to come from 127.0.0.1:1, which must be an address of the archive"
    with pytest.raises(AeronTimeoutError, match=remedy) as caught:
        await remote.start()
    assert "response publication" not in str(caught.value)
