"""What made-up machines are told, and what this one is."""

from __future__ import annotations

import json
import shutil
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import attrs
import psutil
import pytest

from aeron_async.cli import doctor as doctor_module
from aeron_async.cli.doctor import (
    clock_facts,
    exit_code,
    limit_length,
    look,
    loop_lags,
    print_findings,
    try_multicast,
)
from aeron_async.cli.doctor_findings import (
    Buffer,
    DoctorFinding,
    DoctorVerdict,
    Facts,
    NetworkCard,
    findings,
    worst,
)
from aeron_async.cli.main import main
from aeron_async.cli.receive_room import charged_length
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.media.sockets import receive_state
from aeron_async.errors import RegistrationError
from tests.by_hand import joins_group

if TYPE_CHECKING:
    from pathlib import Path

KIB = 1024
LOOPBACK = NetworkCard(name="lo", mtu_length=65_536, is_loopback=True)
CARD = NetworkCard(name="eth0", mtu_length=1_500, is_loopback=False)
WELL = Facts(
    context=DriverContext(),
    is_linux=True,
    receive_buffer=Buffer(
        asked_length=128 * KIB, granted_length=128 * KIB, limit_length=4_096 * KIB
    ),
    send_buffer=Buffer(asked_length=0, granted_length=212_992, limit_length=212_992),
    cards=(LOOPBACK, CARD),
    multicast_interface="10.0.0.1",
    multicast_error="",
    has_gso=True,
    has_gro=True,
    why_pure=None,
    loop_name="uvloop",
    shared_free_length=1 << 30,
    loop_lag_median_ns=0,
    loop_lag_max_ns=1_000_000,
    clock_step_ns=40,
    clock_cost_ns=50,
    clock_source="tsc",
)


def of(what: str, **changes: Any) -> DoctorFinding:
    """What is found of one thing, on a machine that is well but for what is said."""
    facts = attrs.evolve(WELL, **changes)
    return next(each for each in findings(facts) if each.what == what)


def test_a_machine_that_is_well_is_told_nothing_to_do() -> None:
    found = findings(WELL)
    assert {each.verdict for each in found} == {DoctorVerdict.GOOD}
    assert {each.remedy for each in found} == {""}
    assert worst(found) is DoctorVerdict.GOOD
    assert all(each.what and each.seen and each.wanted for each in found)


def test_a_buffer_shorter_than_the_window_refuses_subscriptions() -> None:
    context = DriverContext(initial_window_length=2048 * KIB, socket_rcvbuf_length=2048 * KIB)
    buffer = Buffer(asked_length=2048 * KIB, granted_length=208 * KIB, limit_length=208 * KIB)
    found = of("receive buffer", context=context, receive_buffer=buffer)
    assert found.verdict is DoctorVerdict.BROKEN
    assert found.seen == "208k granted of 2m"
    assert found.wanted == "2m, for a window of 2m"
    assert found.remedy == "sudo sysctl -w net.core.rmem_max=2097152"


def test_a_buffer_that_holds_the_window_and_not_all_that_was_asked_for_is_slow() -> None:
    buffer = Buffer(asked_length=2048 * KIB, granted_length=208 * KIB, limit_length=208 * KIB)
    assert of("receive buffer", receive_buffer=buffer).verdict is DoctorVerdict.SLOW


@pytest.mark.parametrize(
    ("limit_length", "seen"),
    [(212_992, "128k to 128k"), (1_024 * KIB, "128k to 512k"), (8_192 * KIB, "128k to 2m")],
)
def test_a_window_grows_to_half_of_what_the_system_grants(limit_length: int, seen: str) -> None:
    buffer = attrs.evolve(WELL.receive_buffer, limit_length=limit_length)
    found = of("receiver window", receive_buffer=buffer)
    assert found.seen == f"grows from {seen}"
    assert found.wanted == "to 2m, where readers are fast"
    is_good = limit_length >= 4_096 * KIB
    assert found.verdict is (DoctorVerdict.GOOD if is_good else DoctorVerdict.SLOW)
    assert found.remedy == ("" if is_good else "sudo sysctl -w net.core.rmem_max=4194304")


@pytest.mark.parametrize(
    "changes", [{"receiver_window_auto": False}, {"socket_rcvbuf_length": 1_024 * KIB}]
)
def test_of_a_window_that_was_chosen_there_is_nothing_to_find(changes: dict[str, Any]) -> None:
    found = findings(attrs.evolve(WELL, context=DriverContext(**changes)))
    assert "receiver window" not in [each.what for each in found]


CHOSEN: dict[str, Any] = {
    "initial_window_length": 128 * KIB,
    "socket_rcvbuf_length": 128 * KIB,
    "receiver_window_auto": False,
}


@pytest.mark.parametrize(
    ("mtu_length", "seen", "wanted", "is_good"),
    [
        (1_408, "113 of 1408 bytes, 315 of 100", "94 of 1408, a window of 128k", True),
        (8_192, "15 of 8192 bytes, 315 of 100", "16 of 8192, a window of 128k", False),
        (512, "204 of 512 bytes, 315 of 100", "256 of 512, a window of 128k", False),
    ],
)
def test_a_buffer_must_hold_a_window_of_datagrams_as_the_system_counts_them(
    mtu_length: int,
    seen: str,
    wanted: str,
    is_good: bool,  # noqa: FBT001 - a row of the table
) -> None:
    context = DriverContext(**CHOSEN, mtu_length=mtu_length)
    found = of("datagrams in the buffer", context=context)
    assert (found.seen, found.wanted) == (seen, wanted)
    assert found.verdict is (DoctorVerdict.GOOD if is_good else DoctorVerdict.SLOW)


def test_a_buffer_that_overflows_is_told_the_length_or_the_window_that_fits() -> None:
    context = DriverContext(**CHOSEN, mtu_length=8_192)
    remedy = of("datagrams in the buffer", context=context).remedy
    assert remedy == (
        "set AERON_SOCKET_SO_RCVBUF=130k; or set AERON_RCV_INITIAL_WINDOW_LENGTH=120k"
    )
    # Both do what they say.
    longer = DriverContext(**{**CHOSEN, "socket_rcvbuf_length": 130 * KIB}, mtu_length=8_192)
    granted = Buffer(asked_length=130 * KIB, granted_length=130 * KIB, limit_length=4_096 * KIB)
    found = of("datagrams in the buffer", context=longer, receive_buffer=granted)
    assert found.verdict is DoctorVerdict.GOOD
    shorter = DriverContext(**{**CHOSEN, "initial_window_length": 120 * KIB}, mtu_length=8_192)
    assert of("datagrams in the buffer", context=shorter).verdict is DoctorVerdict.GOOD
    # Where the system grants less, that is to be changed first.
    buffer = attrs.evolve(WELL.receive_buffer, limit_length=128 * KIB)
    remedy = of("datagrams in the buffer", context=context, receive_buffer=buffer).remedy
    assert "sudo sysctl -w net.core.rmem_max=133120" in remedy


def test_a_window_that_grows_is_judged_with_the_buffer_that_it_gets() -> None:
    found = of("datagrams in the buffer")
    assert found.seen == "3,640 of 1408 bytes, 10,082 of 100"
    assert found.wanted == "1,490 of 1408, a window of 2m"
    frugal = attrs.evolve(WELL.receive_buffer, limit_length=212_992)
    found = of("datagrams in the buffer", receive_buffer=frugal)
    assert found.seen.startswith("184 of 1408")
    assert found.verdict is DoctorVerdict.GOOD


def test_a_buffer_that_the_system_has_chosen_is_counted_once() -> None:
    context = DriverContext(initial_window_length=64 * KIB, socket_rcvbuf_length=0)
    buffer = Buffer(asked_length=0, granted_length=212_992, limit_length=212_992)
    found = of("datagrams in the buffer", context=context, receive_buffer=buffer)
    assert found.seen.startswith("92 of 1408")


def test_what_other_systems_count_is_not_known() -> None:
    found = findings(attrs.evolve(WELL, is_linux=False))
    assert "datagrams in the buffer" not in [each.what for each in found]


@pytest.mark.parametrize("length", [32, 100, 500, 1_000, 1_408, 8_192, 20_000])
def test_a_datagram_takes_of_a_buffer_about_what_is_said(length: int) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        sender.sendto(bytes(length), receiver.getsockname())
        _, queued, _ = receive_state(receiver)
    if queued is None:
        pytest.skip("the system does not say what a socket holds")
    # Kernels differ by some words.
    assert charged_length(length) == pytest.approx(queued, rel=0.5)


def test_a_buffer_left_to_a_frugal_system_is_to_be_asked_for() -> None:
    buffer = Buffer(asked_length=0, granted_length=64 * KIB, limit_length=4096 * KIB)
    found = of("receive buffer", receive_buffer=buffer)
    assert found.remedy == "set AERON_SOCKET_SO_RCVBUF=128k"
    assert found.verdict is DoctorVerdict.BROKEN


@pytest.mark.parametrize(("granted", "verdict"), [(1024, "broken"), (64 * KIB, "slow")])
def test_a_send_buffer_must_hold_a_datagram(granted: int, verdict: str) -> None:
    buffer = Buffer(asked_length=128 * KIB, granted_length=granted, limit_length=granted)
    found = of("send buffer", send_buffer=buffer)
    assert found.verdict == verdict
    assert found.remedy == "sudo sysctl -w net.core.wmem_max=131072"


def test_where_there_is_no_sysctl_none_is_named() -> None:
    buffer = Buffer(asked_length=128 * KIB, granted_length=64 * KIB, limit_length=None)
    found = of("receive buffer", receive_buffer=buffer, is_linux=False)
    assert found.remedy == "raise the limit of the system on socket buffers"


@pytest.mark.parametrize(("mtu", "is_good"), [(1_436, True), (1_435, False)])
def test_an_interface_must_carry_a_datagram_with_its_headers(mtu: int, is_good: bool) -> None:  # noqa: FBT001 - a row of the table
    card = NetworkCard(name="wg0", mtu_length=mtu, is_loopback=False)
    found = of("MTU of wg0", cards=(LOOPBACK, card))
    assert (found.verdict is DoctorVerdict.GOOD) is is_good
    assert ("AERON_MTU_LENGTH=1376" in found.remedy) is not is_good


@pytest.mark.parametrize(("is_linux", "remedy"), [(True, "ip link set lo up"), (False, "bring")])
def test_without_loopback_something_would_break(is_linux: bool, remedy: str) -> None:  # noqa: FBT001 - a row of the table
    found = of("loopback", cards=(CARD,), is_linux=is_linux)
    assert found.verdict is DoctorVerdict.BROKEN
    assert remedy in found.remedy


def test_a_machine_without_a_multicast_route_is_told_how_to_add_one() -> None:
    error = "no route to 224.20.30.39: Network is unreachable"
    found = of("multicast", multicast_interface=None, multicast_error=error)
    assert found.verdict is DoctorVerdict.SLOW
    assert found.seen == error
    assert "ip route add 224.0.0.0/4" in found.remedy


def test_batches_that_the_system_does_not_offer_are_slow() -> None:
    assert "Linux 4.18" in of("batches sent (GSO)", has_gso=False).remedy
    assert "Linux 5.0" in of("batches received (GRO)", has_gro=False).remedy


@pytest.mark.parametrize(
    "context", [DriverContext(socket_batching=False), DriverContext(transport="loop")]
)
def test_batches_that_a_setting_forbids_are_slow(context: DriverContext) -> None:
    found = of("batches sent (GSO)", context=context)
    assert found.verdict is DoctorVerdict.SLOW
    assert "switched off" in found.seen
    assert "AERON_ASYNC_SOCKET_BATCHING" in found.remedy


@pytest.mark.parametrize(
    ("why", "remedy"),
    [("AERON_ASYNC_PURE is set", "unset AERON_ASYNC_PURE"), ("it was not built", "C compiler")],
)
def test_pure_python_says_why_and_what_to_do(why: str, remedy: str) -> None:
    found = of("compiled code", why_pure=why)
    assert why in found.seen
    assert remedy in found.remedy
    assert found.verdict is DoctorVerdict.SLOW


def test_the_event_loop_may_be_asyncio_and_late_but_that_is_said() -> None:
    found = of("event loop", loop_name="asyncio")
    assert found.remedy.startswith("pip install uvloop")
    # The loop of a service is another one.
    assert found.seen == "asyncio, of this command"
    assert "uvloop.run(main())" in of("event loop", loop_name="uvloop").wanted
    assert of("event loop lag", loop_lag_max_ns=20_000_001).verdict is DoctorVerdict.SLOW
    strict = DriverContext(loop_lag_threshold_ns=500_000)
    assert of("event loop lag", context=strict).wanted == "500 μs at most"


def test_a_clock_may_be_coarse_or_costly() -> None:
    assert of("clock resolution", clock_step_ns=15_000_000).verdict is DoctorVerdict.SLOW
    found = of("clock reading", clock_cost_ns=900, clock_source="hpet")
    assert found.seen == "900 ns from hpet"
    assert "current_clocksource" in found.remedy
    assert "quiet" in of("clock reading", clock_cost_ns=900, clock_source="tsc").remedy
    found = of("clock reading", clock_cost_ns=900, clock_source="", is_linux=False)
    assert "current_clocksource" not in found.remedy


@pytest.mark.parametrize(("free", "seen"), [(None, "no /dev/shm"), (1_000_000, "1.0 MB free")])
def test_shared_memory_may_be_short_or_absent(free: int | None, seen: str) -> None:
    found = of("shared memory", shared_free_length=free)
    assert seen in found.seen
    assert found.remedy
    assert found.verdict is DoctorVerdict.SLOW


def test_the_worst_of_nothing_is_good() -> None:
    assert worst([]) is DoctorVerdict.GOOD
    assert worst([of("loopback", cards=()), of("compiled code")]) is DoctorVerdict.BROKEN


@pytest.mark.parametrize(
    ("verdict", "code", "strict_code"), [("good", 0, 0), ("slow", 0, 1), ("broken", 1, 1)]
)
def test_a_probe_is_told_by_the_exit_code(verdict: str, code: int, strict_code: int) -> None:
    assert exit_code(DoctorVerdict(verdict), is_strict=False) == code
    assert exit_code(DoctorVerdict(verdict), is_strict=True) == strict_code


def test_people_get_a_table_and_what_to_change(capsys: pytest.CaptureFixture[str]) -> None:
    print_findings(findings(WELL))
    assert "This machine suits Aeron." in capsys.readouterr().out
    print_findings(findings(attrs.evolve(WELL, why_pure="it was not built")))
    out = capsys.readouterr().out
    assert "What to change\n  compiled code: install" in out


def test_this_machine_is_examined_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--seconds", "0.01", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == int(report["verdict"] == "broken")
    assert {tuple(each) for each in report["findings"]} == {
        ("what", "seen", "wanted", "remedy", "verdict")
    }
    assert {"receive buffer", "multicast", "compiled code", "shared memory"} <= {
        each["what"] for each in report["findings"]
    }


def test_this_machine_is_examined_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--seconds", "0.01", "--loop", "asyncio"])
    assert "event loop" in capsys.readouterr().out


async def test_facts_are_those_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor_module, "SHARED_MEMORY", tmp_path / "absent")
    facts = await look(DriverContext(), 0.001)
    assert facts.shared_free_length is None
    monkeypatch.setattr(doctor_module, "SHARED_MEMORY", tmp_path)
    facts = await look(DriverContext(), 0.001)
    assert facts.shared_free_length is not None
    assert facts.shared_free_length <= shutil.disk_usage(tmp_path).total
    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    assert {card.name for card in facts.cards} == up
    assert facts.receive_buffer.granted_length > 0


async def test_the_loop_is_looked_at_once_at_least() -> None:
    assert len(await loop_lags(1e-9)) == 1


async def test_a_loop_that_is_held_up_is_seen_to_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0, 0, 60_000_000, 60_000_000])
    clock = SimpleNamespace(monotonic_ns=lambda: next(times))
    monkeypatch.setattr("aeron_async.cli.doctor.time", clock)
    assert await loop_lags(0.05) == [49_000_000]


def test_a_clock_is_told_by_its_steps() -> None:
    readings = iter([each // 4 * 100 for each in range(20_000)])
    assert clock_facts(lambda: next(readings)) == (100, 24)
    assert clock_facts(lambda: 7) == (0, 0)


def test_a_limit_may_be_absent(tmp_path: Path) -> None:
    assert limit_length(tmp_path / "rmem_max") is None
    (tmp_path / "rmem_max").write_text("212992\n")
    assert limit_length(tmp_path / "rmem_max") == 212_992


def test_a_group_without_a_route_and_one_that_is_none_are_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreachable(_self: socket.socket, _address: object) -> None:
        raise OSError(101, "Network is unreachable")

    class Unreachable(socket.socket):
        connect = unreachable

    monkeypatch.setattr("aeron_async.cli.doctor.socket.socket", Unreachable)
    assert try_multicast("224.20.30.39") == (
        None,
        "no route to 224.20.30.39: Network is unreachable",
    )


def test_a_group_that_cannot_be_joined_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    if not joins_group(4, "224.20.30.39"):
        pytest.skip("this machine has no interface for IPv4 multicast: a plain socket joins none")
    address, error = try_multicast("224.20.30.39")
    assert address, error

    def refuse(_spec: object) -> None:
        message = "cannot join"
        raise RegistrationError(message)

    monkeypatch.setattr(doctor_module, "open_socket", refuse)
    assert try_multicast("224.20.30.39") == (None, "cannot join")


def test_a_system_without_batches_is_not_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old(socket.socket):
        def setsockopt(self, *_arguments: Any) -> None:
            raise OSError(92, "Protocol not available")

    with Old(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        assert not doctor_module.offers_gathering(sock)
        monkeypatch.setattr("aeron_async.cli.doctor.sys.platform", "darwin")
        assert not doctor_module.offers_gathering(sock)
