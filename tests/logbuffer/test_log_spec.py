from __future__ import annotations

from typing import Any

import pytest

from aeron_async.errors import ConfigurationError
from aeron_async.logbuffer.log_buffers import default_frame_header
from aeron_async.logbuffer.metadata import LogType
from tests.logbuffer.logs import INITIAL_TERM_ID, SESSION_ID, STREAM_ID, TERM_LENGTH, make_spec

GOLDEN_HEADER = bytes.fromhex(
    "00000000 00c00100 00000000 58699e0b e9030000 987e856e 0000000000000000"
)


def test_the_default_frame_header_is_the_official_one() -> None:
    made = default_frame_header(
        session_id=SESSION_ID, stream_id=STREAM_ID, initial_term_id=INITIAL_TERM_ID
    )
    assert made == GOLDEN_HEADER


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"term_length": 65_535}, "term length"),
        ({"mtu_length": 1400}, "mtu"),
        ({"page_size": 4095}, "page size"),
        ({"session_id": 2**31}, "session_id"),
        ({"stream_id": -(2**31) - 1}, "stream_id"),
        ({"initial_term_id": 2**32}, "initial_term_id"),
        ({"start_term_id": 2**31}, "start_term_id"),
        ({"start_term_offset": 33}, "start term offset 33"),
        ({"start_term_offset": -32}, "start term offset -32"),
        ({"start_term_offset": TERM_LENGTH + 32}, "start term offset 65568"),
        ({"start_term_id": INITIAL_TERM_ID - 1}, "before the initial term id"),
    ],
)
def test_a_log_that_cannot_be_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        make_spec(**changes)


def test_a_start_behind_the_wrap_of_term_ids_lies_ahead() -> None:
    spec = make_spec(initial_term_id=2**31 - 1, start_term_id=-(2**31) + 1)
    assert spec.start_term_count == 2


@pytest.mark.parametrize(
    ("log_type", "unset"),
    [
        (LogType.CONCURRENT_PUBLICATION, -1),
        (LogType.EXCLUSIVE_PUBLICATION, -1),
        (LogType.IMAGE, 0),
    ],
)
def test_tags_are_unset_in_the_way_of_each_type(log_type: LogType, unset: int) -> None:
    spec = make_spec(log_type=log_type)
    assert (spec.entity_tag, spec.response_correlation_id) == (unset, unset)
    assert make_spec(log_type=log_type, entity_tag=7).entity_tag == 7
