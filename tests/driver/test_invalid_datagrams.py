from __future__ import annotations

from structlog.testing import capture_logs

from aeron_async.driver.endpoints import InvalidDatagramLog
from aeron_async.logs import LogBudget
from tests.driver.fakes import MS, OTHER_SOURCE, SECOND, SOURCE, data


def test_what_cannot_be_meant_is_logged_once_a_second_for_each_source() -> None:
    invalid = InvalidDatagramLog(LogBudget(lambda: 0))
    with capture_logs() as lines:
        for ms in range(0, 2_000, 100):
            invalid.on_invalid_datagram(memoryview(bytes(range(40))), SOURCE, ms * MS)
        invalid.on_invalid_datagram(memoryview(data(0, 64)[:48]), OTHER_SOURCE, SECOND)
        invalid.on_invalid_datagram(memoryview(b""), ("2001:db8::1", 5), SECOND)
    assert [(line["event"], line["source"], line["length"]) for line in lines] == [
        ("datagram_invalid", "192.0.2.1:40123", 40),
        ("datagram_invalid", "192.0.2.1:40123", 40),
        ("datagram_invalid", "192.0.2.2:40124", 48),
        ("datagram_invalid", "[2001:db8::1]:5", 0),
    ]
    assert lines[0]["first_bytes"] == bytes(range(16)).hex(" ")
    assert "no frame" in lines[0]["reason"]
    assert "DATA" in lines[2]["reason"]
    assert lines[3]["first_bytes"] == ""
