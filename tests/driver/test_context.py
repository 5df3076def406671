from __future__ import annotations

from typing import Any

import attrs
import pytest

from aeron_async.driver.core.context import (
    DESTINATION_TIMEOUT_NS,
    EOS_STATUS_MESSAGE_COUNT,
    HEARTBEAT_INTERVAL_NS,
    PENDING_SETUP_TIMEOUT_NS,
    SETUP_INTERVAL_NS,
    DriverContext,
)
from aeron_async.errors import ConfigurationError
from aeron_async.idle_strategy import (
    BackoffIdleStrategy,
    BusySpinIdleStrategy,
    IdleStrategy,
    SleepingIdleStrategy,
    YieldingIdleStrategy,
    idle_strategy_of,
)
from aeron_async.protocol.units import INT32_MAX, INT32_MIN, INT64_MAX
from aeron_async.settings import Duration, Size

SETTINGS = DriverContext.settings()
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000

# Field, property, default and URI key; in Aeron's names as Aeron 1.53 has them.
FACTS = """
aeron_directory aeron_async.driver.directory not_set -
dir_delete_on_start aeron.dir.delete.on.start false -
dir_delete_on_shutdown aeron.dir.delete.on.shutdown false -
conductor_buffer_length aeron.conductor.buffer.length 1049344 -
clients_buffer_length aeron.clients.buffer.length 1048704 -
perform_storage_checks aeron.perform.storage.checks true -
termination_validator aeron.driver.termination.validator deny -
idle_strategy aeron.conductor.idle.strategy backoff -
idle_strategy_init_args aeron.conductor.idle.strategy.init.args not_set -
driver_timeout_ms aeron.driver.timeout 10s -
counters_buffer_length aeron.counters.buffer.length 8m -
error_buffer_length aeron.error.buffer.length 4m -
loss_report_buffer_length aeron.loss.report.buffer.length 1m -
term_buffer_length aeron.term.buffer.length 16m term-length
ipc_term_buffer_length aeron.ipc.term.buffer.length 64m term-length
term_buffer_sparse_file aeron.term.buffer.sparse.file true sparse
file_page_size aeron.file.page.size 4k -
mtu_length aeron.mtu.length 1408 mtu
ipc_mtu_length aeron.ipc.mtu.length 1408 mtu
publication_term_window_length aeron.publication.term.window.length 0 pub-wnd
ipc_publication_term_window_length aeron.ipc.publication.term.window.length 0 pub-wnd
initial_window_length aeron.rcv.initial.window.length 128k rcv-wnd
socket_rcvbuf_length aeron.socket.so_rcvbuf 128k so-rcvbuf
socket_sndbuf_length aeron.socket.so_sndbuf 0 so-sndbuf
socket_multicast_ttl aeron.socket.multicast.ttl 0 ttl
publication_reserved_session_id_low aeron.publication.reserved.session.id.low -1 -
publication_reserved_session_id_high aeron.publication.reserved.session.id.high 1000 -
stream_session_limit aeron.driver.stream.session.limit 2147483647 -
spies_simulate_connection aeron.spies.simulate.connection false ssc
reliable_stream aeron.reliable.stream true reliable
tether_subscriptions aeron.tether.subscriptions true tether
rejoin_stream aeron.rejoin.stream true rejoin
receiver_group_consideration aeron.receiver.group.consideration infer group
timer_interval_ns aeron.timer.interval 1s -
status_message_timeout_ns aeron.rcv.status.message.timeout 200ms -
image_liveness_timeout_ns aeron.image.liveness.timeout 10s -
image_gap_timeout_ns aeron_async.image.gap.timeout 5s -
over_run_rejoin_interval_ns aeron_async.over.run.rejoin.interval 0ns -
publication_connection_timeout_ns aeron.publication.connection.timeout 5s -
publication_linger_timeout_ns aeron.publication.linger.timeout 5s linger
publication_unblock_timeout_ns aeron.publication.unblock.timeout 15s -
client_liveness_timeout_ns aeron.client.liveness.timeout 10s -
untethered_window_limit_timeout_ns aeron.untethered.window.limit.timeout 5s untethered-window-limit-timeout
untethered_linger_timeout_ns aeron.untethered.linger.timeout not_set untethered-linger-timeout
untethered_resting_timeout_ns aeron.untethered.resting.timeout 10s untethered-resting-timeout
counters_free_to_reuse_timeout_ns aeron.counters.free.to.reuse.timeout 1s -
waiting_hint_ns aeron_async.waiting.hint 2s -
nak_unicast_delay_ns aeron.nak.unicast.delay 1us nak-delay
nak_unicast_retry_delay_ratio aeron.nak.unicast.retry.delay.ratio 100 -
nak_multicast_group_size aeron.nak.multicast.group.size 10 -
nak_multicast_max_backoff_ns aeron.nak.multicast.max.backoff 10ms -
retransmit_unicast_delay_ns aeron.retransmit.unicast.delay 0ns -
retransmit_unicast_linger_ns aeron.retransmit.unicast.linger 10ms -
max_resend aeron.max.resend 16 max-resend
unicast_flow_control_rrwm aeron.unicast.flow.control.rrwm 16 -
multicast_flow_control_rrwm aeron.multicast.flow.control.rrwm 4 fc
unicast_flow_control_supplier aeron.unicast.FlowControl.supplier unicast_max -
multicast_flow_control_supplier aeron.multicast.FlowControl.supplier multicast_max fc
flow_control_receiver_timeout_ns aeron.flow.control.receiver.timeout 5s fc
flow_control_group_tag aeron.flow.control.group.tag -1 fc
flow_control_group_min_size aeron.flow.control.group.min.size 0 fc
receiver_group_tag aeron.receiver.group.tag not_set gtag
congestion_control_supplier aeron.CongestionControl.supplier default cc
cubic_congestion_control_measure_rtt aeron.CubicCongestionControl.measureRtt false -
cubic_congestion_control_initial_rtt_ns aeron.CubicCongestionControl.initialRtt 100us -
cubic_congestion_control_tcp_mode aeron.CubicCongestionControl.tcpMode false -
name_resolver_supplier aeron.name.resolver.supplier default -
name_resolver_init_args aeron_async.name.resolver.init.args not_set -
reresolution_check_interval_ns aeron.driver.reresolution.check.interval 1s -
name_resolver_threshold_ns aeron.name.resolver.threshold 5s -
resolver_name aeron.driver.resolver.name not_set -
resolver_interface aeron.driver.resolver.interface not_set -
resolver_bootstrap_neighbor aeron.driver.resolver.bootstrap.neighbor not_set -
resolver_neighbor_timeout_ns aeron.driver.resolver.neighbor.timeout 10s -
resolver_self_resolution_interval_ns aeron.driver.resolver.self.resolution.interval 1s -
resolver_neighbor_resolution_interval_ns aeron.driver.resolver.neighbor.resolution.interval 2s -
resolver_bootstrap_neighbor_resolution_interval_ns aeron.driver.resolver.bootstrap.neighbor.resolution.interval 10s -
driver_connect aeron.driver.connect true -
sender_wildcard_port_range aeron.sender.wildcard.port.range 0_0 -
receiver_wildcard_port_range aeron.receiver.wildcard.port.range 0_0 -
receiver_io_vector_capacity aeron.receiver.io.vector.capacity 4 -
network_publication_max_messages_per_send aeron.network.publication.max.messages.per.send 4 -
threading_mode aeron.threading.mode SHARED -
conductor_cycle_threshold_ns aeron.driver.conductor.cycle.threshold 100ms -
sender_cycle_threshold_ns aeron.driver.sender.cycle.threshold 100ms -
receiver_cycle_threshold_ns aeron.driver.receiver.cycle.threshold 100ms -
transport aeron_async.transport auto -
datagram_burst_limit aeron_async.datagram.burst.limit 64 -
receiver_window_auto aeron_async.rcv.window.auto true -
socket_batching aeron_async.socket.batching true -
loop_lag_threshold_ns aeron_async.loop.lag.threshold 100ms -
close_linger_timeout_ns aeron_async.close.linger.timeout 5s -
stats_socket aeron_async.stats.socket not_set -
udp_channel_incoming_interceptors aeron_async.udp.channel.incoming.interceptors not_set -
udp_channel_loss_args aeron_async.udp.channel.loss.args not_set -
udp_channel_fixed_loss_args aeron_async.udp.channel.fixed.loss.args not_set -
udp_channel_multi_gap_loss_args aeron_async.udp.channel.multi.gap.loss.args not_set -
max_destinations aeron_async.max.destinations 256 -
max_pending_setups aeron_async.max.pending.setups 256 -
max_elicited_setups_per_second aeron_async.max.elicited.setups.per.second 256 -
max_session_states aeron_async.max.session.states 4096 -
max_images_per_stream aeron_async.max.images.per.stream 64 -
max_image_term_length aeron_async.max.image.term.length 64m -
image_log_budget_length aeron_async.image.log.budget.length 1g -
max_naks_per_second aeron_async.max.naks.per.second 1000 -
max_rtt_replies_per_second aeron_async.max.rtt.replies.per.second 100 -
max_rtt_replies_per_source aeron_async.max.rtt.replies.per.source 50 -
max_retransmit_burst_length aeron_async.max.retransmit.burst.length 2m -
max_retransmit_base_count aeron_async.max.retransmit.base.count 128 -
max_retransmit_percent aeron_async.max.retransmit.percent 50 -
max_retransmit_linger_length aeron_async.max.retransmit.linger.length 16m -
max_lingering_ranges aeron_async.max.lingering.ranges 16 -
max_flow_control_receivers aeron_async.max.flow.control.receivers 1024 -
max_resolver_neighbors aeron_async.max.resolver.neighbors 256 -
max_resolutions_per_second aeron_async.max.resolutions.per.second 4096 -
max_error_frames_per_second aeron_async.max.error.frames.per.second 10 -
"""  # noqa: E501  a table reads by its lines


def context(**values: Any) -> DriverContext:
    return DriverContext(**values)


def test_every_setting_has_aerons_name_default_and_uri_key() -> None:
    told = [
        f"{name} {s.name} {s.format(s.default).replace(' ', '_')} {s.uri_key or '-'}"
        for name, s in SETTINGS.items()
    ]
    assert told == FACTS.split("\n")[1:-1]


def test_a_plain_context_holds_the_defaults_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AERON_MTU_LENGTH", "8k")
    values = attrs.asdict(DriverContext())
    assert values == {name: setting.default for name, setting in SETTINGS.items()}


NAMED_OTHERWISE = {
    "aeron.name.resolver.threshold": "AERON_DRIVER_NAME_RESOLVER_THRESHOLD",
    # These the C driver has, and it has no properties.
    "aeron_async.name.resolver.init.args": "AERON_NAME_RESOLVER_INIT_ARGS",
    "aeron_async.udp.channel.incoming.interceptors": "AERON_UDP_CHANNEL_INCOMING_INTERCEPTORS",
    "aeron_async.udp.channel.loss.args": "AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_LOSS_ARGS",
    "aeron_async.udp.channel.fixed.loss.args": (
        "AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_FIXED_LOSS_ARGS"
    ),
    "aeron_async.udp.channel.multi.gap.loss.args": (
        "AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_MULTI_GAP_LOSS_ARGS"
    ),
}


def test_the_environment_is_named_after_the_property() -> None:
    for setting in SETTINGS.values():
        named = setting.name.upper().replace(".", "_")
        assert setting.env_name == NAMED_OTHERWISE.get(setting.name, named)
    assert SETTINGS["socket_rcvbuf_length"].env_name == "AERON_SOCKET_SO_RCVBUF"
    assert (
        SETTINGS["cubic_congestion_control_initial_rtt_ns"].env_name
        == "AERON_CUBICCONGESTIONCONTROL_INITIALRTT"
    )


def test_field_names_end_in_their_unit() -> None:
    for name, setting in SETTINGS.items():
        match setting.kind:
            case Duration(unit_ns=1):
                assert name.endswith("_ns")
            case Duration():
                assert name.endswith("_ms")
            case Size():
                assert name.endswith(("_length", "_size"))
            case _:
                assert not name.endswith(("_ns", "_ms", "_length"))


def test_arguments_beat_the_environment_and_the_environment_the_defaults() -> None:
    environ = {"AERON_MTU_LENGTH": "4k", "AERON_TERM_BUFFER_LENGTH": "64k"}
    made = DriverContext.from_environment(environ, mtu_length=8192)
    assert made.mtu_length == 8192
    assert made.term_buffer_length == 64 * KIB
    assert made.ipc_mtu_length == 1408


def test_the_environment_of_the_process_is_read_when_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AERON_MTU_LENGTH", "4k")
    assert DriverContext.from_environment().mtu_length == 4096
    assert DriverContext.from_environment({}).mtu_length == 1408


def test_an_overridden_variable_is_not_read_and_an_empty_one_is_absent() -> None:
    broken = {"AERON_MTU_LENGTH": "nonsense", "AERON_TIMER_INTERVAL": ""}
    made = DriverContext.from_environment(broken, mtu_length=1408)
    assert made == DriverContext()


def test_an_unknown_override_is_refused() -> None:
    with pytest.raises(TypeError, match="mtu"):
        DriverContext.from_environment({}, mtu=1408)


@pytest.mark.parametrize(
    ("values", "first", "relation", "second"),
    [
        (
            {"publication_unblock_timeout_ns": 10 * SECOND},
            "publication_unblock_timeout_ns",
            "must be more than",
            "client_liveness_timeout_ns",
        ),
        (
            {"client_liveness_timeout_ns": SECOND},
            "client_liveness_timeout_ns",
            "must be more than",
            "timer_interval_ns",
        ),
        (
            {"untethered_window_limit_timeout_ns": SECOND},
            "untethered_window_limit_timeout_ns",
            "must be more than",
            "timer_interval_ns",
        ),
        (
            {"untethered_linger_timeout_ns": SECOND},
            "untethered_linger_timeout_ns",
            "must be more than",
            "timer_interval_ns",
        ),
        (
            {"untethered_resting_timeout_ns": 0},
            "untethered_resting_timeout_ns",
            "must be more than",
            "timer_interval_ns",
        ),
        (
            {"mtu_length": 8_192, "initial_window_length": 8_191},
            "mtu_length",
            "must be at most",
            "initial_window_length",
        ),
        (
            {"mtu_length": 8_192, "socket_sndbuf_length": 8_191},
            "mtu_length",
            "must be at most",
            "socket_sndbuf_length",
        ),
        (
            {"initial_window_length": 128 * KIB + 1},
            "initial_window_length",
            "must be at most",
            "socket_rcvbuf_length",
        ),
        (
            {"publication_reserved_session_id_low": 1_001},
            "publication_reserved_session_id_low",
            "must be at most",
            "publication_reserved_session_id_high",
        ),
        (
            {
                "publication_reserved_session_id_low": INT32_MIN,
                "publication_reserved_session_id_high": 0,
            },
            "publication_reserved_session_id_high",
            f"must be at most {INT32_MAX} more than",
            "publication_reserved_session_id_low",
        ),
        (
            {"nak_unicast_retry_delay_ratio": INT64_MAX // US + 1},
            "nak_unicast_retry_delay_ratio",
            f"must give at most {INT64_MAX} when multiplied by",
            "nak_unicast_delay_ns",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_both_named(
    values: dict[str, int], first: str, relation: str, second: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        context(**values)
    got = values.get(first), values.get(second, SETTINGS[second].default)
    assert str(raised.value) == (
        f"{SETTINGS[first]} {relation} {SETTINGS[second]}, got {got[0]} and {got[1]}"
    )


@pytest.mark.parametrize(
    "values",
    [
        {"publication_unblock_timeout_ns": 10 * SECOND + 1},
        {"untethered_linger_timeout_ns": SECOND + 1},
        {"mtu_length": 8_192, "initial_window_length": 8_192, "socket_sndbuf_length": 8_192},
        {"initial_window_length": MIB, "socket_rcvbuf_length": 0},
        {"publication_reserved_session_id_low": 1_000},
        {
            "publication_reserved_session_id_low": 0,
            "publication_reserved_session_id_high": 2**31 - 1,
        },
        {"nak_unicast_retry_delay_ratio": INT64_MAX // US},
        {"sender_wildcard_port_range": (65_535, 65_535)},
        # More than half a term is cut for each stream, not refused here.
        {"publication_term_window_length": GIB},
        {"initial_window_length": MIB, "socket_rcvbuf_length": MIB, "term_buffer_length": 65_536},
        {"term_buffer_length": GIB, "max_image_term_length": 65_536},
    ],
)
def test_what_is_just_within_the_limits_is_taken(values: dict[str, Any]) -> None:
    made = context(**values)
    assert {name: getattr(made, name) for name in values} == values


def test_scaled_timeouts_go_together() -> None:
    made = DriverContext(
        timer_interval_ns=MS,
        client_liveness_timeout_ns=20 * MS,
        publication_unblock_timeout_ns=30 * MS,
        untethered_window_limit_timeout_ns=10 * MS,
        untethered_resting_timeout_ns=10 * MS,
    )
    assert made.timer_interval_ns == MS


def test_the_nak_is_repeated_after_a_hundred_first_pauses() -> None:
    assert DriverContext().nak_unicast_retry_delay_ns == 100 * US


def test_a_context_is_frozen_and_can_be_varied() -> None:
    made = DriverContext()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        made.mtu_length = 4096  # type: ignore[misc]
    assert attrs.evolve(made, mtu_length=4096).mtu_length == 4096
    with pytest.raises(ConfigurationError):
        attrs.evolve(made, mtu_length=1)


def test_what_aeron_fixes_is_fixed() -> None:
    assert SETUP_INTERVAL_NS == HEARTBEAT_INTERVAL_NS == 100 * MS
    assert PENDING_SETUP_TIMEOUT_NS == SECOND
    assert DESTINATION_TIMEOUT_NS == 5 * SECOND
    assert EOS_STATUS_MESSAGE_COUNT == 5


def test_a_time_in_milliseconds_is_read_as_in_a_channel() -> None:
    given: list[tuple[Any, int]] = [("10s", 10_000), ("7ms", 7), ("500", 500), (5, 5)]
    for text, timeout_ms in given:
        assert DriverContext(driver_timeout_ms=text).driver_timeout_ms == timeout_ms
        found = DriverContext.from_environment({"AERON_DRIVER_TIMEOUT": str(text)})
        assert found.driver_timeout_ms == timeout_ms
    refused: list[Any] = ["10us", "1500us", "soon", "10 s", "-1ms", "", 1.5, True]
    for text in refused:
        with pytest.raises(ConfigurationError, match=r"aeron\.driver\.timeout"):
            DriverContext(driver_timeout_ms=text)


# The idle strategy.


def strategy_of(context: DriverContext) -> IdleStrategy:
    """Return the idle strategy that a driver uses."""
    return idle_strategy_of(context.idle_strategy, context.idle_strategy_init_args)


@pytest.mark.parametrize(
    ("given", "init_args", "found"),
    [
        ("spin", None, BusySpinIdleStrategy()),
        (" org.agrona.concurrent.YieldingIdleStrategy ", None, YieldingIdleStrategy()),
        ("sleep-ns", "50us", SleepingIdleStrategy(50 * US)),
        ("backoff", "1-2-1us-4us", BackoffIdleStrategy(1, 2, US, 4 * US)),
        (SleepingIdleStrategy(MS), None, SleepingIdleStrategy(MS)),
    ],
)
def test_an_idle_strategy_is_a_name_or_an_object(
    given: IdleStrategy | str, init_args: str | None, found: IdleStrategy
) -> None:
    context = DriverContext(idle_strategy=given, idle_strategy_init_args=init_args)
    assert strategy_of(context) == found


@pytest.mark.parametrize(
    ("given", "init_args", "reason"),
    [
        ("controllable", None, "possible are backoff, yield, spin, noop, sleep-ns, sleep-ms"),
        (7, None, "must be one of backoff, yield, spin, noop, sleep-ns, sleep-ms"),
        (None, None, "must be one of backoff"),
        (BackoffIdleStrategy, None, "must be one of backoff"),
        ("spin", "1", "takes no values"),
        ("backoff", "1-2", "takes four"),
        (SleepingIdleStrategy(), "1us", "has its values already"),
    ],
)
def test_another_idle_strategy_is_refused(given: Any, init_args: str | None, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        DriverContext(idle_strategy=given, idle_strategy_init_args=init_args)


def test_the_idle_strategy_of_the_conductor_counts_before_the_shared_one() -> None:
    variables = {
        "AERON_SHARED_IDLE_STRATEGY": "sleep-ns",
        "AERON_SHARED_IDLE_STRATEGY_INIT_ARGS": "1ms",
    }
    context = DriverContext.from_environment(variables)
    assert strategy_of(context) == SleepingIdleStrategy(MS)
    variables["AERON_CONDUCTOR_IDLE_STRATEGY"] = "sleeping"
    variables["AERON_CONDUCTOR_IDLE_STRATEGY_INIT_ARGS"] = "2ms"
    context = DriverContext.from_environment(variables)
    assert strategy_of(context) == SleepingIdleStrategy(2 * MS)


@pytest.mark.parametrize(
    ("setting", "trailer"), [("conductor_buffer_length", 768), ("clients_buffer_length", 128)]
)
def test_a_buffer_is_a_power_of_two_and_a_trailer(setting: str, trailer: int) -> None:
    variable = f"AERON_{setting.upper()}"
    for length in (1 << 21, (1 << 21) + trailer + 8):
        with pytest.raises(ConfigurationError, match=f"a power of two plus {trailer}") as caught:
            DriverContext.from_environment({variable: str(length)})
        assert variable in str(caught.value)
    context = DriverContext.from_environment({variable: str((1 << 21) + trailer)})
    assert getattr(context, setting) == (1 << 21) + trailer


@pytest.mark.parametrize("path", ["@door", "\0door", "/" + "x" * 107, "folder/", ".."])
def test_a_door_needs_a_path_that_a_socket_can_have(path: str) -> None:
    with pytest.raises(ConfigurationError, match="stats_socket: the "):
        DriverContext(stats_socket=path)


@pytest.mark.parametrize("path", [None, "off", "/run/orders/door", "door"])
def test_a_door_has_a_path_or_none(path: str | None) -> None:
    assert DriverContext(stats_socket=path).stats_socket == path
