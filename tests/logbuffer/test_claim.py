from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest

from aeron_async.errors import ClosedError
from aeron_async.logbuffer.appender import Claim, ExclusiveAppender
from aeron_async.logbuffer.reader import TermReader
from tests.logbuffer.logs import NO_LIMIT, SESSION_ID, STREAM_ID, header, make_log, read_all

if TYPE_CHECKING:
    from aeron_async.logbuffer.log_buffers import LogBuffers


@pytest.fixture
def log() -> LogBuffers:
    return make_log()


@pytest.fixture
def claim(log: LogBuffers) -> Claim:
    claim = ExclusiveAppender(log).try_claim(5, limit=NO_LIMIT)
    assert isinstance(claim, Claim)
    return claim


def test_a_claim_is_seen_only_once_committed(log: LogBuffers, claim: Claim) -> None:
    assert header(log, 0)[:7] == (-37, 0, 0xC0, 1, 0, SESSION_ID, STREAM_ID)
    claim.data[:] = b"hello"
    assert claim.is_open
    assert read_all(log) == []
    claim.commit()
    assert read_all(log) == [b"hello"]
    assert claim.position == 64


def test_flags_and_reserved_value_may_be_set(log: LogBuffers, claim: Claim) -> None:
    assert (claim.flags, claim.reserved_value) == (0xC0, 0)
    claim.flags = 0x80
    claim.reserved_value = -(2**63)
    assert (claim.flags, claim.reserved_value) == (0x80, -(2**63))
    claim.commit()
    assert header(log, 0)[0:4] == (37, 0, 0x80, 1)
    assert header(log, 0)[8] == -(2**63)


def test_readers_step_over_an_aborted_claim(log: LogBuffers, claim: Claim) -> None:
    claim.abort()
    reader = TermReader(log, 0)
    assert reader.read_messages([], limit=1) == 0
    assert reader.position == 64
    assert header(log, 0)[:4] == (37, 0, 0xC0, 0)


def test_a_claim_ends_once(claim: Claim) -> None:
    claim.commit()
    assert not claim.is_open
    with pytest.raises(ClosedError, match="position 64"):
        claim.commit()
    with pytest.raises(ClosedError):
        claim.abort()
    with pytest.raises(ClosedError):
        _ = claim.flags
    with pytest.raises(ClosedError):
        claim.flags = 0
    with pytest.raises(ClosedError):
        _ = claim.reserved_value
    with pytest.raises(ClosedError):
        claim.reserved_value = 0
    with pytest.raises(ValueError, match="released"):
        claim.data[0] = 1


def test_an_array_over_the_payload_does_not_keep_it_from_readers(
    log: LogBuffers, claim: Claim
) -> None:
    array = (ctypes.c_char * 5).from_buffer(claim.data)
    array.raw = b"array"
    claim.commit()
    assert read_all(log) == [b"array"]
