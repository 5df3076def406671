"""Asking an archive that is elsewhere: again when it does not answer, and in a new session then."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import pytest

from aeron_async.errors import AeronTimeoutError, ConfigurationError, UnknownRecordingError
from aeron_async.spark import replayed_archive
from aeron_async.spark.options import ArchiveOptions
from aeron_async.spark.readable_end import ReadableEnds
from aeron_async.spark.replayed_archive import ArchiveLink
from aeron_async.spark.worker import close_connection
from tests.spark.recordings import RecordingMaker, options_for

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

CONTROL = "aeron:udp?endpoint=localhost:8010"
ACCESS = ArchiveOptions(access="replay", archive_control_channel=CONTROL, archive_retries=2)


@final
class FakeArchive:
    """Answers what it is told to; an error is raised."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []
        self.sessions = 0
        self.closed = 0

    @staticmethod
    def connect(*_: object, **__: object) -> FakeSession:
        return FakeSession()

    async def max_recorded_position(self, recording_id: int) -> int:
        self.asked.append(recording_id)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def aclose(self) -> None:
        self.closed += 1


class FakeSession:
    """What is awaited for a session."""

    archive: FakeArchive

    def __await__(self) -> Generator[None, None, FakeArchive]:
        yield from ()
        self.archive.sessions += 1
        return self.archive


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeArchive]:
    archive = FakeArchive()
    monkeypatch.setattr(replayed_archive, "RemoteArchive", FakeArchive)
    monkeypatch.setattr(FakeSession, "archive", archive, raising=False)
    yield archive
    close_connection()


def test_a_session_serves_many_questions_and_ends_with_its_driver(fake: FakeArchive) -> None:
    fake.answers = [32, 64]
    asking = ArchiveLink(ACCESS)
    assert [asking.position(0), asking.position(1)] == [32, 64]
    assert (fake.asked, fake.sessions, fake.closed) == ([0, 1], 1, 0)
    close_connection()
    assert fake.closed == 1


def test_a_session_that_does_not_answer_is_left_for_another(fake: FakeArchive) -> None:
    fake.answers = [AeronTimeoutError("not yet"), 4_800]
    assert ArchiveLink(ACCESS).position(0) == 4_800
    assert (fake.sessions, fake.closed) == (2, 1)


def test_an_archive_that_never_answers_is_one_error(fake: FakeArchive) -> None:
    fake.answers = [AeronTimeoutError("nobody there") for _ in range(3)]
    with pytest.raises(ConfigurationError, match=r"nobody there; change archive\.control\.channel"):
        ArchiveLink(ACCESS).position(0)
    assert (fake.asked, fake.closed) == ([0] * 3, 3)


def test_what_the_archive_does_not_have_is_not_asked_for_again(fake: FakeArchive) -> None:
    fake.answers = [UnknownRecordingError("recording 3")]
    with pytest.raises(UnknownRecordingError):
        ArchiveLink(ACCESS).position(3)
    assert (fake.asked, fake.closed) == ([3], 0)


def test_a_query_on_files_asks_where_a_recording_ends(tmp_path: Path, fake: FakeArchive) -> None:
    maker = RecordingMaker(tmp_path)
    maker.message(bytes(100))
    maker.close()
    fake.answers = [64]
    given = {"archive.control.channel": CONTROL}
    ends = ReadableEnds(maker.directory, options_for(tmp_path, **given))
    assert ends.of(maker.descriptor) == ends.of(maker.descriptor) == 64
    assert fake.asked == [0]
