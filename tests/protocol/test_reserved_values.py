from __future__ import annotations

from aeron_async.protocol.arguments import check_reserved


def test_a_reserved_value_may_be_a_flag() -> None:
    assert [check_reserved(True), check_reserved(False), check_reserved(-1)] == [1, 0, -1]
