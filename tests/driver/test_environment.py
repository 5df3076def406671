from __future__ import annotations

from typing import Any

import pytest

from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.environment import INT32_MAX, Kind
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.units import INT64_MAX

SETTINGS = DriverContext.settings()
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MS, SECOND = 1_000_000, 1_000_000_000


def context(**values: Any) -> DriverContext:
    return DriverContext(**values)


def numbers() -> list[str]:
    kinds = {Kind.SIZE, Kind.DURATION, Kind.INTEGER}
    return [name for name, setting in SETTINGS.items() if setting.kind in kinds]


@pytest.mark.parametrize(
    ("env_name", "text", "field_name", "value"),
    [
        ("AERON_TERM_BUFFER_LENGTH", "64K", "term_buffer_length", 65_536),
        ("AERON_RCV_INITIAL_WINDOW_LENGTH", "4096", "initial_window_length", 4_096),
        ("AERON_IMAGE_LIVENESS_TIMEOUT", "2s", "image_liveness_timeout_ns", 2 * SECOND),
        ("AERON_NAK_UNICAST_DELAY", "5000", "nak_unicast_delay_ns", 5_000),
        ("AERON_UNTETHERED_LINGER_TIMEOUT", " 3s ", "untethered_linger_timeout_ns", 3 * SECOND),
        ("AERON_DRIVER_TIMEOUT", "500", "driver_timeout_ms", 500),
        ("AERON_RECEIVER_GROUP_TAG", "-7", "receiver_group_tag", -7),
        ("AERON_RELIABLE_STREAM", "off", "reliable_stream", False),
        ("AERON_RELIABLE_STREAM", "0", "reliable_stream", False),
        ("AERON_SPIES_SIMULATE_CONNECTION", "On", "spies_simulate_connection", True),
        ("AERON_SPIES_SIMULATE_CONNECTION", "TRUE", "spies_simulate_connection", True),
        ("AERON_RECEIVER_GROUP_CONSIDERATION", "true", "receiver_group_consideration", True),
        ("AERON_RECEIVER_GROUP_CONSIDERATION", "false", "receiver_group_consideration", False),
        ("AERON_RECEIVER_GROUP_CONSIDERATION", "infer", "receiver_group_consideration", None),
        ("AERON_CONGESTIONCONTROL_SUPPLIER", "cubic", "congestion_control_supplier", "cubic"),
        ("AERON_SENDER_WILDCARD_PORT_RANGE", "20000 20100", "sender_wildcard_port_range", None),
        ("AERON_DRIVER_NAME_RESOLVER_THRESHOLD", "1s", "name_resolver_threshold_ns", SECOND),
        ("AERON_ASYNC_TRANSPORT", "loop", "transport", "loop"),
        ("AERON_ASYNC_IMAGE_LOG_BUDGET_LENGTH", "8g", "image_log_budget_length", 8 * GIB),
    ],
)
def test_the_environment_reads_as_aeron_spells_it(
    env_name: str, text: str, field_name: str, value: object
) -> None:
    made = DriverContext.from_environment({env_name: text})
    if field_name == "sender_wildcard_port_range":
        value = (20_000, 20_100)
    assert getattr(made, field_name) == value


@pytest.mark.parametrize(
    ("env_name", "text", "reason"),
    [
        ("AERON_MTU_LENGTH", "1.5k", "not a size"),
        ("AERON_MTU_LENGTH", "8kb", "unknown unit"),
        ("AERON_TIMER_INTERVAL", "soon", "not a duration"),
        ("AERON_DRIVER_TIMEOUT", "1_000", "not a duration"),
        ("AERON_DRIVER_TIMEOUT", "9" * 20, "more than the largest 64-bit number"),
        ("AERON_DRIVER_TIMEOUT", "9" * 19, "at most 9223372036854775807"),
        ("AERON_RELIABLE_STREAM", "yes", "none of 1, on, true, 0, off, false"),
        ("AERON_RECEIVER_GROUP_CONSIDERATION", "1", "none of true, false, infer"),
        ("AERON_MULTICAST_FLOWCONTROL_SUPPLIER", "fastest", "one of unicast_max, multicast_max"),
        ("AERON_SENDER_WILDCARD_PORT_RANGE", "20000-20100", "two ports with a blank"),
        ("AERON_SENDER_WILDCARD_PORT_RANGE", "20100 20000", "low before high"),
        ("AERON_SENDER_WILDCARD_PORT_RANGE", "1 65536", "low before high"),
    ],
)
def test_what_does_not_read_is_refused_by_both_names(env_name: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        DriverContext.from_environment({env_name: text})
    message = str(raised.value)
    assert f"({env_name})" in message
    assert reason in message
    setting = next(setting for setting in SETTINGS.values() if setting.env_name == env_name)
    assert message.startswith(setting.name)


def refusal(**values: Any) -> str:
    """Return why a context with these values is refused; nothing where it is taken."""
    try:
        context(**values)
    except ConfigurationError as error:
        return str(error)
    return ""


def test_numbers_are_held_to_their_limits() -> None:
    """Each refusal names the setting, its limit, what was given, and how the setting is written."""
    units = {
        Kind.SIZE: "; in bytes, or as text such as '64k'",
        Kind.DURATION: "; in nanoseconds, or as text such as '5s'",
    }
    said, expected = [], []
    for name in numbers():
        setting = SETTINGS[name]
        for value, limit in (
            (setting.minimum - setting.multiple, f"at least {setting.minimum}"),
            (setting.maximum + setting.multiple, f"at most {setting.maximum}"),
        ):
            said.append(refusal(**{name: value}))
            expected.append(
                f"{setting.name} ({setting.env_name}) must be {limit}, got {value}"
                f"{units.get(setting.kind, '')}"
            )
        setting.check(setting.default)
        setting.check(setting.minimum)
        if setting.maximum not in {INT32_MAX, INT64_MAX}:
            setting.check(setting.maximum)
    assert said == expected
    assert len(said) >= 2 * 60, "every number of a driver"


def test_numbers_are_whole_numbers() -> None:
    wrong: tuple[object, ...] = (True, 1.0, "1408 apples", b"1")
    said = [(name, value, refusal(**{name: value})) for name in numbers() for value in wrong]
    reasons = ("must be a whole number", "cannot be read")
    assert [each for each in said if not any(reason in each[2] for reason in reasons)] == []


def test_sizes_and_durations_are_read_as_in_channels() -> None:
    """Row A15: `term_buffer_length="64k"` was refused, though a channel takes it."""
    made = context(term_buffer_length="64k", mtu_length="8K", image_liveness_timeout_ns=" 5s ")
    assert made.term_buffer_length == 65_536
    assert made.mtu_length == 8_192
    assert made.image_liveness_timeout_ns == 5_000_000_000
    read = DriverContext.from_environment({}, timer_interval_ns="100ms", term_buffer_length="1m")
    assert (read.timer_interval_ns, read.term_buffer_length) == (100_000_000, MIB)
    for field_name in numbers():
        setting = SETTINGS[field_name]
        if setting.kind in {Kind.SIZE, Kind.DURATION} and setting.default is not None:
            text = setting.format(setting.default)
            assert getattr(context(**{field_name: text}), field_name) == setting.default
    for values, reason in (
        ({"term_buffer_length": "64x"}, r"aeron\.term\.buffer\.length .* cannot be read"),
        ({"term_buffer_length": "65k"}, "power of two"),
        ({"linger": "5s"}, "linger"),
        ({"max_resend": "16"}, "must be a whole number"),
    ):
        with pytest.raises((ConfigurationError, TypeError), match=reason):
            context(**values)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"mtu_length": 1_400}, "multiple of 32, got 1400"),
        ({"ipc_mtu_length": 100}, "multiple of 32"),
        ({"mtu_length": 32}, "at least 64"),
        ({"mtu_length": 65_536}, "at most 65504"),
        ({"term_buffer_length": 65_537}, "power of two, got 65537"),
        ({"ipc_term_buffer_length": 3 * 65_536}, "power of two"),
        ({"term_buffer_length": 32 * KIB}, "at least 65536"),
        ({"file_page_size": 5_000}, "power of two"),
        ({"max_image_term_length": 65_537}, "power of two"),
        ({"counters_buffer_length": MIB - 1}, "at least 1048576"),
        ({"counters_buffer_length": 500 * MIB + 1}, "at most 524288000"),
        ({"error_buffer_length": 4 * MIB - 1}, "at least 4194304"),
        ({"max_resend": 0}, "at least 1"),
        ({"max_resend": 257}, "at most 256"),
        ({"reliable_stream": 1}, "must be true or false, got 1"),
        ({"receiver_group_consideration": "infer"}, "must be true, false or infer"),
        ({"transport": "raw"}, "must be one of auto, socket, loop, got 'raw'"),
        ({"transport": None}, "must be one of"),
        ({"mtu_length": None}, "must be a whole number, got None"),
        ({"sender_wildcard_port_range": (2, 1)}, "low before high"),
        ({"receiver_wildcard_port_range": (-1, 1)}, "low before high"),
        ({"receiver_wildcard_port_range": 5}, "two ports"),
        ({"receiver_wildcard_port_range": ("1", "2")}, "two ports"),
    ],
)
def test_values_beyond_their_limits_are_refused(values: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        context(**values)
    assert reason in str(raised.value)


def test_what_a_setting_prints_reads_back() -> None:
    for setting in SETTINGS.values():
        text = setting.format(setting.default)
        if text != "not set":
            assert setting.parse(text) == setting.default
    assert SETTINGS["term_buffer_length"].format(16 * MIB) == "16m"
    assert SETTINGS["status_message_timeout_ns"].format(200 * MS) == "200ms"
    assert SETTINGS["receiver_group_consideration"].format(None) == "infer"
    assert SETTINGS["receiver_group_consideration"].format(True) == "true"
    assert SETTINGS["receiver_group_tag"].format(None) == "not set"
    assert SETTINGS["max_resend"].format(16) == "16"
    assert SETTINGS["sender_wildcard_port_range"].format((1, 2)) == "1 2"
