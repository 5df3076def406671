from __future__ import annotations

import mmap

import pytest

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.log_creation import create_log_now
from aeron_async.driver.storage import MemoryStorage
from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.logbuffer.log_buffers import LogSpec

SPEC = LogSpec(session_id=1, stream_id=2, initial_term_id=3, term_length=65536, mtu_length=1408)
STORAGE = MemoryStorage(DriverContext())


def test_a_log_is_made_as_asked() -> None:
    log = create_log_now(STORAGE, SPEC)
    assert (log.session_id, log.stream_id, log.initial_term_id) == (1, 2, 3)
    log.close()


@pytest.mark.parametrize("error", [OSError(12, "Cannot allocate memory"), MemoryError()])
def test_a_system_without_memory_is_a_refusal_and_no_crash(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*args: object) -> None:
        raise error

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(RegistrationError, match="term-length") as caught:
        create_log_now(STORAGE, SPEC)
    assert caught.value.code is ErrorCode.STORAGE_SPACE
