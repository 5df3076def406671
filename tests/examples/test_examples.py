"""Every example runs as its own program, prints what it should, and ends by itself."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from aeron_async import Aeron
from tests.examples.pages import DOCS, blocks_of
from tests.examples.programs import EXAMPLES, TIMEOUT_S, channel, finish, start
from tests.logs import without_lines_of_the_machine
from tests.tracing import untraced_environment
from tests.without import without

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LINE_LIMIT = 60

# What each program prints, line by line, as patterns.
PRINTED = {
    "hello": [f"{64 * (number + 1)} hello {number}" for number in range(5)],
    "record_and_replay": [
        *(f"heard {64 * (number + 1)} early {number}" for number in range(3)),
        "heard 256 late",
    ],
    "durable_stream": [
        "the log ends with 0",
        "recorded up to 5",
        "the log ends with 5",
        "recorded up to 10",
        r"orders: \[1, 2, 3, 4, 5, 6, 7, 8, 9, 10\]",
    ],
    "record_elsewhere": [
        "START 0",
        "STOP 192",
        *(f"heard {64 * (number + 1)} message {number}" for number in range(3)),
    ],
    "typed_messages": [
        r"first: Quote\(symbol='AERN', bid=100\.0, ask=100\.5\)",
        "skipped at position 128: schema 28533, not 7",
        r"second: Quote\(symbol='AERN', bid=100\.25, ask=100\.75\)",
        r"4 quotes, bids: \[100\.5, 100\.75, 101\.0, 101\.25\]",
    ],
    "trace_message": [
        "order 7: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "order 8: no trace",
    ],
    "archive_statistics": [
        "0 recording 480 0",
        r'aeron_archive_recorded_bytes_total\{recording="0"\} 480',
    ],
    "stream_statistics": [
        r"aeron:udp\?endpoint=\S+ waits for 127\.0\.0\.1:\d+",
        "it publishes again: True",
    ],
    "find_trouble": [
        r"stream 1001: offers wait \d+% of the time by sender_limit",
        r"stream 1001: its reader is \d+ bytes behind",
        "now: nothing",
    ],
    "back_pressure": [
        "without a reader: stopped at position 65536",
        r"try_offer says OfferOutcome\.BACK_PRESSURED",
        r"with a reader: 200 offers took \d+\.\d s",
        "the publisher was never more than 65536 bytes ahead",
        "262 messages arrived",
    ],
    "why_it_waits": [
        "NO_ANSWER",
        "there is a subscription of stream 1002",
        "SPIES_DO_NOT_CONNECT",
        "add ssc=true to the publication's channel, .*",
        "NOTHING",
    ],
    "open_and_close": ["from a block", "from a service", "closed: True"],
    "vectored_and_claim": [
        "header and body 42",
        r"7 99\.5",
        "last came next: no subscriber gets the aborted claim",
    ],
    "stats_door": ["stats live ready", "1001 160 0"],
    "image_events": [
        "available at position 0",
        "from one",
        "available at position 0",
        "from another",
        "unavailable at position 64",
        "unavailable at position 64",
    ],
    "many_subscriptions": [
        "messages read: 300 300",
        "the fast one was ahead by less than the window: True",
    ],
    "channels": [
        re.escape(line)
        for block in blocks_of(DOCS / "howto" / "channels.md")
        if block.language == "text"
        for line in block.text.splitlines()
    ],
    "watch_calls": [
        r'aeron_calls_total\{service="orders",method="place",outcome="answered"\} 3',
    ],
    "typed_calls": ["7", "INVALID_ARGUMENT"],
    "calls": [
        "b'100'",
        "b'120'",
        "b'5'",
        r"\['ACME: 120', 'INIT: 5'\]",
        "INVALID_ARGUMENT place: '' is no count",
    ],
    "destinations": [
        "3 destinations, 2 of them served",
        "for two, for two, for three",
        "2 destinations, 3 of them served",
        "images: 1, publisher connected: True",
    ],
    "market_data_latest": [
        r"ACME \d+",
        r"EMCA \d+",
        r"MACE \d+",
        "ACME last",
        r"\d+ prices were replaced by newer ones before they were drawn",
    ],
    "market_data_many": [
        r"ACME=\d+ EMCA=\d+ MACE=\d+",
        r"\d+ prices were replaced by newer ones before they were drawn",
    ],
    "market_data_gaps": ["SKIPPED: 0 to 192", "last"],
    "market_data_snapshot": [r"True \{'ACME': 11, 'EMCA': 20, 'last': 1\}"],
    "fan_out": [
        "connected before the gateway is there: False",
        "connected before one archiver is there: False",
        "connected before another archiver is there: False",
        r"the gateway is slow: 200 events took 0\.\d s",
        r"one archiver is slow: 200 events took (?!0)\d\.\d s",
        r"the gateway had \d\d of 400 events, and is still run over",
    ],
    "batches": ["10000 prices, which sum up to 49995000"],
    "on_message": ["buy 99 and buy 98"],
    "pump": [
        "no reader at the far end: stopped after 1[23]\\d KiB, two windows of 64 KiB",
        r"with a reader: 300 more took \d+\.\d s",
    ],
    "change_a_message": [
        r"old \('ACME', 100\.0\)",
        r"old \('ACME', 100\.5\)",
        r"new \('ACME', 100\.0, '\?'\)",
        r"new \('ACME', 100\.5, 'XLON'\)",
    ],
    "coming_from_nats": [*["ACME 100.25"] * 2, "no responders", "ACME 100.25"],
    "coming_from_kafka": [
        "record 1: order 0",
        "record 2: order 1",
        "the consumer was restarted",
        "record 3: order 2",
        "record 4: order 3",
    ],
    "coming_from_zeromq": ["ACME 199", "INIT 249", "198 older ones were replaced"],
    "coming_from_grpc": [
        "hello ACME",
        r"\['0', '1', '2'\]",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED, sent: True",
    ],
    "coming_from_java": ["position 64: b'by a cycle'", "position 128 of 128: b'by waiting'"],
    "both_ways": ["ONE", "TWO", "the caller has ended"],
    "ipc": [f"{64 * (number + 1)} within {number}" for number in range(3)],
    "one_driver_per_host": [f"{64 * (number + 1)} shared {number}" for number in range(3)],
    "driver_in_a_thread": [
        *(f"message {number}" for number in range(3)),
        "the event loop stood still until now",
    ],
    "duty_cycle": [f"{64 * (number + 1)} cycle {number}" for number in range(3)],
    "own_counters": [
        "starts of billing 1",
        "orders of billing 5",
        "starts of billing 2",
        "orders of billing 5",
    ],
    "reconnect": ["64 before", "reconnected, it was closed", "64 after"],
    "in_one_process": ["buy at 101.5", "buy at 101.75", "buy at 99"],
    "request_response": [
        r"from here on nothing is answered to 127\.0\.0\.1:\d+: .* did not request a response .*",
        "BOB 1, BOB 2",
        "CAROL 1, CAROL 2",
    ],
    "several_subscribers": ["audit took 3 orders", "billing took 3 orders"],
    "request_reply": ["one -> ONE", "two -> TWO", "three -> THREE"],
    "majority_flow_control": [
        "hello",
        "1",
        "hello",
        "1",
        "receiver 1 at 0: send up to 1000",
        "receiver 2 at 0: send up to 1000",
        "receiver 3 at 0: send up to 1000",
        "receiver 1 at 5000: send up to 1000",
        "receiver 2 at 3000: send up to 4000",
        "receiver 1 at 9000: send up to 4000",
    ],
    "resolve_names": ["service names: 1 3", "service names: 1 3", "no such service: UNKNOWN_HOST"],
    "serve_metrics": [
        r"the publication of stream 1001 at aeron:udp\?endpoint=127\.0\.0\.1:\d+ has no subscriber",
        "ready",
        r'aeron_connected\{stream="1001",channel="aeron:udp\?endpoint=127\.0\.0\.1:\d+"\} 1',
    ],
    "read_counters": [
        r" *\d+  Bytes sent",
        r" *\d+  Bytes received",
        " {7}0  NAKs sent",
        r" {4}1600  snd-pos: \d+ -?\d+ 1001 aeron:udp\?endpoint=127\.0\.0\.1:\d+",
        r" {4}1600  sub-pos: \d+ -?\d+ 1001 aeron:udp\?endpoint=127\.0\.0\.1:\d+ @0",
    ],
}
# What a program is warned of.
COMPLAINTS = {
    "fan_out": "image_run_over .* counter='Flow control over runs' .*\n",
    "reconnect": "driver_lost .*\ndriver_found .*\n",
}
IN_PAIRS = {"publisher", "subscriber"}
WITH_LOGS = {"configure_logs"}
WITH_EXPORTERS = {"export_metrics"}
WITH_SYSTEMD = {"under_systemd"}
UNTIL_TOLD = {"stop_on_signals", "response_server"}
ON_SPARK = {"market_data_bars", "archive_outliers"}
# `test_durable_processes.py` starts the database.
WITH_DATABASE = {"durable_postgres"}
# `tests/spark/lake/test_lake_examples.py` makes the lake.
ON_A_LAKE = {"lake_duckdb", "lake_polars", "lake_pandas", "lake_outliers"}
ON_ONE_HOST = {"beside_java", "in_a_container"}
IN_A_TUTORIAL = {"price_service", "ask_price", "test_price_service"}
IN_FRAMEWORKS = {"service_in_fastapi", "service_in_aiohttp"}
UNDER_PYTEST = {"test_with_pytest", "test_service_in_a_world", "test_with_fixtures"}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_shows(
    name: str, unused_udp_port_factory: Callable[[], int]
) -> None:
    program = start(
        name,
        CHANNEL=channel(unused_udp_port_factory()),
        REPLY_CHANNEL=channel(unused_udp_port_factory()),
        CONTROL=channel(unused_udp_port_factory()),
    )
    printed = finish(program, complaint=COMPLAINTS.get(name, ""))
    assert len(printed) == len(PRINTED[name]), printed
    for line, pattern in zip(printed, PRINTED[name], strict=True):
        assert re.fullmatch(pattern, line), line


@pytest.mark.parametrize("count", [10, 1000])
def test_publisher_and_subscriber_meet_from_two_processes(count: int, unused_udp_port: int) -> None:
    variables = {"CHANNEL": channel(unused_udp_port)}
    subscriber = start("subscriber", **variables)
    publisher = start("publisher", str(count), **variables)
    length = 64 * count
    assert finish(publisher) == [f"sent {count} messages, {length} bytes of stream"]
    received = finish(subscriber)
    assert received[:-1] == [f"message {number}" for number in range(count)]
    assert received[-1] == f"received {count} messages up to position {length}"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_close_everything(number: int, code: int, unused_udp_port: int) -> None:
    program = start("stop_on_signals", CHANNEL=channel(unused_udp_port))
    assert program.stdout is not None
    assert program.stdout.readline() == "listening\n"
    program.send_signal(number)
    output, complaints = program.communicate(timeout=TIMEOUT_S)
    assert (output, without_lines_of_the_machine(complaints)) == ("closed everything\n", "")
    assert program.returncode == code


@pytest.mark.parametrize("name", sorted(UNTIL_TOLD))
async def test_what_serves_until_ctrl_c_ends_quietly(name: str, unused_udp_port: int) -> None:
    there = channel(unused_udp_port)
    program = start(name, CHANNEL=there, REPLY_CHANNEL="aeron:udp?endpoint=127.0.0.1:0")
    try:
        async with Aeron.connect() as aeron:
            publication = await aeron.add_publication(there, stream_id=1001)
            await publication.wait_connected(timeout=TIMEOUT_S)
        program.send_signal(signal.SIGINT)
        _, complaints = await asyncio.to_thread(program.communicate, timeout=TIMEOUT_S)
    finally:
        program.kill()
    assert without_lines_of_the_machine(complaints) == ""
    assert program.returncode in {0, 130}


@pytest.mark.skipif(sys.platform != "linux", reason="systemd is a part of Linux")
async def test_a_service_of_systemd_says_how_it_is(tmp_path: Path, unused_udp_port: int) -> None:
    there = channel(unused_udp_port)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.settimeout(TIMEOUT_S)
        listener.bind(str(tmp_path / "notify"))
        program = start(
            "under_systemd",
            CHANNEL=there,
            NOTIFY_SOCKET=str(tmp_path / "notify"),
            WATCHDOG_USEC="600000000",
        )
        try:
            async with Aeron.connect() as aeron:
                subscription = await aeron.add_subscription(there, stream_id=1001)
                async with asyncio.timeout(TIMEOUT_S):
                    assert bytes(await anext(subscription)) == b"0"
                program.send_signal(signal.SIGTERM)
                said = [await asyncio.to_thread(listener.recv, 200) for _ in range(3)]
                _, complaints = await asyncio.to_thread(program.communicate, timeout=TIMEOUT_S)
        finally:
            program.kill()
    assert said[0].startswith(b"READY=1\nMAINPID=")
    assert said[1:] == [b"WATCHDOG=1\nSTATUS=1 stream, 0 in trouble", b"STOPPING=1"]
    assert without_lines_of_the_machine(complaints) == ""
    assert program.returncode == 0


def settings_of(page: str) -> str:
    """Return the settings of pytest that a page tells its readers to make."""
    blocks = blocks_of(DOCS / "howto" / page)
    return "".join(block.text for block in blocks if block.language == "toml")


STRICT = """[tool.pytest.ini_options]
asyncio_default_fixture_loop_scope = "function"
filterwarnings = "error"
"""


@pytest.mark.parametrize(
    "settings", [settings_of("test-with-pytest.md"), STRICT], ids=["as in the page", "strict"]
)
def test_the_page_on_pytest_passes_in_a_project_of_its_own(settings: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(settings)
    pasted = tmp_path / "test_pasted.py"
    page = blocks_of(DOCS / "howto" / "test-with-pytest.md")
    pasted.write_text("".join(block.text for block in page if block.language == "python"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", pasted.name],
        cwd=tmp_path,
        env=untraced_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.parametrize(
    "settings", [settings_of("test-a-service.md"), STRICT], ids=["as in the page", "strict"]
)
def test_a_service_is_tested_in_a_project_of_its_own(settings: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(settings)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            shutil.copy(EXAMPLES / "test_service_in_a_world.py", tmp_path),
        ],
        cwd=tmp_path,
        env=untraced_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert "Warning" not in done.stdout + done.stderr


def test_ready_fixtures_work_in_a_project_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(STRICT)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            shutil.copy(EXAMPLES / "test_with_fixtures.py", tmp_path),
        ],
        cwd=tmp_path,
        env=untraced_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_no_example_goes_unproven() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    # Those of Spark share the session of its tests.
    under_spark = {name for name in names if name.startswith("spark_")} | ON_SPARK
    others = IN_PAIRS | WITH_LOGS | WITH_EXPORTERS | WITH_SYSTEMD | UNTIL_TOLD
    others |= ON_ONE_HOST | UNDER_PYTEST | IN_FRAMEWORKS | IN_A_TUTORIAL | WITH_DATABASE
    others |= ON_A_LAKE
    assert names - under_spark == PRINTED.keys() | others


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < LINE_LIMIT


def test_exported_metrics_are_the_same_for_both_libraries(unused_udp_port: int) -> None:
    pytest.importorskip("prometheus_client", reason="pip install 'aeron-async[prometheus]'")
    pytest.importorskip("opentelemetry.sdk.metrics", reason="pip install opentelemetry-sdk")
    printed = finish(start("export_metrics", CHANNEL=channel(unused_udp_port)))
    assert [line.split()[-1] for line in printed] == ["0.0", "0"]
    assert printed[0].startswith("aeron_connected{")


@pytest.mark.parametrize("name", ["prometheus_client", "opentelemetry.sdk"])
def test_exporting_without_a_library_is_one_line(name: str, unused_udp_port: int) -> None:
    path = str(EXAMPLES / "export_metrics.py")
    code = f"import runpy, sys\n{without([name])}runpy.run_path({path!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=untraced_environment() | {"CHANNEL": channel(unused_udp_port)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith(": pip install prometheus-client opentelemetry-sdk")


def test_configured_logs_show_the_changes_beside_the_output(unused_udp_port: int) -> None:
    program = start("configure_logs", CHANNEL=channel(unused_udp_port))
    output, lines = program.communicate(timeout=TIMEOUT_S)
    assert output == "the only line on standard output\n"
    assert "publication_connection_changed" in lines
    assert "image_state_changed" in lines
