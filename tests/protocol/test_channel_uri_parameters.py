from __future__ import annotations

from typing import Any

import attrs
import pytest

from aeron_async.errors import ChannelUriError, ConfigurationError
from aeron_async.protocol.address import Address, InterfaceSpec
from aeron_async.protocol.channel_uri import (
    PROTOTYPE_CORRELATION_ID,
    RESERVED_TIMESTAMP_OFFSET,
    ChannelUri,
    CongestionControlStrategy,
    ControlMode,
    FlowControlOptions,
    FlowControlStrategy,
    Group,
    Media,
    TagReference,
    Tags,
)
from aeron_async.protocol.parameters import (
    PARAMETERS,
    Role,
    find_parameter,
    parameter_for_key,
)

# For each key: texts it takes with their values and canonical texts, and texts it refuses.
GOOD: list[tuple[str, str, Any, str]] = [
    ("endpoint", "localhost:0", Address("localhost", 0, "localhost:0"), "localhost:0"),
    ("interface", "{lo}", InterfaceSpec(None, "lo", 0, None, "{lo}"), "{lo}"),
    ("control", "[::1]:7", Address("::1", 7, "[::1]:7"), "[::1]:7"),
    ("control-mode", "manual", ControlMode.MANUAL, "manual"),
    ("control-mode", "dynamic", ControlMode.DYNAMIC, "dynamic"),
    ("control-mode", "response", ControlMode.RESPONSE, "response"),
    ("ttl", "0", 0, "0"),
    ("ttl", "255", 255, "255"),
    ("mtu", "64", 64, "64"),
    ("mtu", "1408", 1408, "1408"),
    ("mtu", "8k", 8192, "8k"),
    ("mtu", "65504", 65504, "65504"),
    ("term-length", "65536", 65536, "64k"),
    ("term-length", "64K", 65536, "64k"),
    ("term-length", "1g", 1 << 30, "1g"),
    ("init-term-id", "-2147483648", -(2**31), "-2147483648"),
    ("term-id", "2147483647", 2**31 - 1, "2147483647"),
    ("term-offset", "1073741824", 1 << 30, "1073741824"),
    ("session-id", "-7", -7, "-7"),
    ("session-id", "tag:7", TagReference(7), "tag:7"),
    ("tags", "1", Tags(1), "1"),
    ("tags", "1,2", Tags(1, 2), "1,2"),
    ("tags", ",2", Tags(None, 2), ",2"),
    ("tags", "1,", Tags(1), "1"),
    ("alias", "orders = fast, safe", "orders = fast, safe", "orders = fast, safe"),
    ("linger", "0", 0, "0ns"),
    ("linger", "5000ms", 5_000_000_000, "5s"),
    ("sparse", "true", True, "true"),
    ("eos", "false", False, "false"),
    ("ssc", "true", True, "true"),
    ("reliable", "false", False, "false"),
    ("rejoin", "false", False, "false"),
    ("tether", "false", False, "false"),
    ("group", "true", Group.TRUE, "true"),
    ("group", "infer", Group.INFER, "infer"),
    ("rcv-wnd", "256", 256, "256"),
    ("rcv-wnd", "auto", 0, "auto"),
    ("so-sndbuf", "0", 0, "0"),
    ("so-rcvbuf", "2m", 2 << 20, "2m"),
    ("cc", "cubic", CongestionControlStrategy.CUBIC, "cubic"),
    ("fc", "max", FlowControlOptions(strategy=FlowControlStrategy.MAX), "max"),
    ("gtag", "-9223372036854775808", -(2**63), "-9223372036854775808"),
    ("nak-delay", "100us", 100_000, "100us"),
    ("max-resend", "1", 1, "1"),
    ("max-resend", "256", 256, "256"),
    ("pub-wnd", "64", 64, "64"),
    ("pub-wnd", "512m", 512 << 20, "512m"),
    ("response-correlation-id", "-1", -1, "-1"),
    ("response-correlation-id", "prototype", PROTOTYPE_CORRELATION_ID, "prototype"),
    ("response-endpoint", "localhost:8020", Address("localhost", 8020, "localhost:8020"),
     "localhost:8020"),
    ("stream-id", "1001", 1001, "1001"),
    ("untethered-window-limit-timeout", "5s", 5_000_000_000, "5s"),
    ("untethered-linger-timeout", "1ns", 1, "1ns"),
    ("untethered-resting-timeout", "10s", 10_000_000_000, "10s"),
    ("media-rcv-ts-offset", "reserved", RESERVED_TIMESTAMP_OFFSET, "reserved"),
    ("channel-rcv-ts-offset", "0", 0, "0"),
    ("channel-snd-ts-offset", "8", 8, "8"),
    ("ats", "false", False, "false"),
]  # fmt: skip

BAD: dict[str, tuple[str, ...]] = {
    "endpoint": ("localhost", "localhost:65536", "::1:40456", ""),
    "interface": ("{}", "127.0.0.1/33", "::1"),
    "control": ("localhost",),
    "control-mode": ("Manual", "none", "auto"),
    "ttl": ("-1", "256", "0x10", "007", "1.5"),
    "mtu": ("0", "32", "1400", "65536", "-1", "64kb"),
    "term-length": ("48k", "32k", "2g", "65537", "0"),
    "init-term-id": ("2147483648", "-2147483649", "one"),
    "term-id": ("2147483648",),
    "term-offset": ("-32", "1073741856"),
    "session-id": ("2147483648", "tag:", "tag:-1", "tag", "TAG:7", "tag:07"),
    "tags": (",", "-1", "a", "1,2,3", "9223372036854775808"),
    "alias": ("", "caf\u00e9", "tab\t", "line\n"),
    "linger": ("-1s", "1m", "forever", "9223372037s"),
    "sparse": ("TRUE", "1", "trueX"),
    "eos": ("yes",),
    "ssc": ("on",),
    "reliable": ("0",),
    "rejoin": ("no",),
    "tether": ("",),
    "group": ("INFER", "maybe"),
    "rcv-wnd": ("0", "255", "2g"),
    "so-sndbuf": ("-1", "2g"),
    "so-rcvbuf": ("1.5m",),
    "cc": ("7reno", "cubic,x", "n" * 65),
    "fc": ("",),
    "gtag": ("9223372036854775808", "tag"),
    "nak-delay": ("-1",),
    "max-resend": ("0", "257", "1k"),
    "pub-wnd": ("0", "63", "513m"),
    "response-correlation-id": ("-2", "Prototype", "9223372036854775808"),
    "response-endpoint": ("localhost",),
    "stream-id": ("2147483648", "x"),
    "untethered-window-limit-timeout": ("5x",),
    "untethered-linger-timeout": ("5.0s",),
    "untethered-resting-timeout": ("1h",),
    "media-rcv-ts-offset": ("-8", "Reserved", "2147483648"),
    "channel-rcv-ts-offset": ("-1",),
    "channel-snd-ts-offset": ("x",),
    "ats": ("maybe",),
}


def test_every_parameter_reads_its_texts_and_prints_the_canonical_one() -> None:
    read = [(key, text, PARAMETERS[key].read(text)) for key, text, *_ in GOOD]
    assert read == [(key, text, value) for key, text, value, _ in GOOD]
    assert [type(value) for *_, value in read] == [type(value) for *_, value, _ in GOOD]
    written = [(key, PARAMETERS[key].write(value)) for key, _, value, _ in GOOD]
    assert written == [(key, canonical) for key, *_, canonical in GOOD]


def refusal(key: str, text: str) -> str:
    """Return why a text is refused; nothing where it is read."""
    try:
        PARAMETERS[key].read(text)
    except ChannelUriError as error:
        return str(error)
    return ""


def test_every_parameter_refuses_what_it_cannot_mean() -> None:
    said = {(key, text): refusal(key, text) for key, texts in BAD.items() for text in texts}
    assert [
        (key, text)
        for (key, text), reason in said.items()
        if f"{key}=" not in reason or " must be " not in reason
    ] == []


def test_no_parameter_goes_untested() -> None:
    assert {key for key, *_ in GOOD} == set(BAD) == set(PARAMETERS)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("mtu", True, "is of type bool"),
        ("mtu", 1408.0, "is of type float"),
        ("mtu", 1400, "multiple of 32"),
        ("mtu", -32, "must be a multiple of 32 .*: -32 is not between 0"),
        ("ttl", 256, "from 0 to 255"),
        ("eos", 1, "is of type int"),
        ("endpoint", "localhost:1", "is of type str"),
        ("endpoint", Address("elsewhere", 1, "localhost:1"), "reads back"),
        ("tags", Tags(), "nothing follows the '='"),
        ("session-id", TagReference(-1), "between 0 and"),
        ("alias", "a|b", "without '|'"),
        ("response-correlation-id", -3, "from -1"),
    ],
)
def test_a_typed_value_is_checked_like_its_text(key: str, value: object, reason: str) -> None:
    with pytest.raises(ChannelUriError, match=reason):
        PARAMETERS[key].write(value)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("min", FlowControlOptions(strategy=FlowControlStrategy.MIN)),
        (
            "max,rrwm:8",
            FlowControlOptions(
                strategy=FlowControlStrategy.MAX, retransmit_receiver_window_multiple=8
            ),
        ),
        (
            "min,t:500ms,g:/3",
            FlowControlOptions(
                strategy=FlowControlStrategy.MIN, receiver_timeout_ns=500_000_000, group_min_size=3
            ),
        ),
        (
            "min,g:123/2",
            FlowControlOptions(strategy=FlowControlStrategy.MIN, group_tag=123, group_min_size=2),
        ),
        (
            "tagged,t:5s,g:-1/0,rrwm:1",
            FlowControlOptions(
                strategy=FlowControlStrategy.TAGGED,
                receiver_timeout_ns=5_000_000_000,
                group_tag=-1,
                group_min_size=0,
                retransmit_receiver_window_multiple=1,
            ),
        ),
        ("tagged,g:101", FlowControlOptions(strategy=FlowControlStrategy.TAGGED, group_tag=101)),
    ],
)
def test_flow_control_is_a_strategy_with_options(text: str, options: FlowControlOptions) -> None:
    assert FlowControlOptions.parse(text) == options
    assert str(options) == text


def test_the_old_name_of_tagged_stands_for_it() -> None:
    assert FlowControlOptions.parse("preferred,g:101") == FlowControlOptions.parse("tagged,g:101")


@pytest.mark.parametrize("text", ["majority", "majority,p:50,x", "MAX", "minute,t:5s", "my.own-1"])
def test_a_strategy_that_is_not_aerons_keeps_its_options_as_they_were_written(text: str) -> None:
    options = PARAMETERS["fc"].read(text)
    name, *items = text.split(",")
    assert (options.strategy, options.raw_options) == (name, tuple(items))
    assert not isinstance(options.strategy, FlowControlStrategy)
    assert PARAMETERS["fc"].write(options) == text


def test_a_congestion_control_that_is_not_aerons_is_a_name() -> None:
    assert PARAMETERS["cc"].read("reno") == "reno"
    assert PARAMETERS["cc"].write("reno") == "reno"
    assert PARAMETERS["cc"].read("cubic") is CongestionControlStrategy.CUBIC


def test_options_of_another_strategy_are_its_own_business() -> None:
    odd = FlowControlOptions(strategy="majority", group_min_size=1)
    with pytest.raises(ChannelUriError, match="reads back"):
        PARAMETERS["fc"].write(odd)


def test_flow_control_options_come_in_any_order_and_plain_times_are_nanoseconds() -> None:
    options = FlowControlOptions.parse("tagged,rrwm:4,g:101/1,t:100")
    assert str(options) == "tagged,t:100ns,g:101/1,rrwm:4"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "nothing follows"),
        (",t:5s", "'' is no name of a strategy"),
        ("7up", "'7up' is no name of a strategy"),
        ("majority,", "an option is empty"),
        ("majority,a:1,,b:2", "an option is empty"),
        ("max,t:5s", "use min or tagged, not max"),
        ("max,g:1", "use min or tagged, not max"),
        ("min,tc:5s", "unknown flow control option 'tc:5s'"),
        ("min,", "unknown flow control option ''"),
        ("min,t:", "unknown flow control option 't:'"),
        ("min,t", "unknown flow control option 't'"),
        ("min,t:1m", "unknown unit 'm'"),
        ("min,t:1s,t:2s", "'t' is given twice"),
        ("min,g:/", "between 0 and 2147483647"),
        ("min,g:/-1", "between 0 and 2147483647"),
        ("min,g:/2147483648", "between 0 and 2147483647"),
        ("tagged,g:1/2/3", "between 0 and 2147483647"),
        ("tagged,g:x", "not a whole decimal number"),
        ("tagged,g:9223372036854775808", "not a whole decimal number"),
        ("max,rrwm:0", "between 1 and"),
        ("max,rrwm:-1", "between 1 and"),
    ],
)
def test_flow_control_refuses_what_it_cannot_mean(text: str, reason: str) -> None:
    with pytest.raises(ChannelUriError, match=reason):
        PARAMETERS["fc"].read(text)


def test_a_parameter_is_found_by_its_python_name_or_by_its_key() -> None:
    assert find_parameter("mtu_length") is find_parameter("mtu") is PARAMETERS["mtu"]
    assert find_parameter("so_sndbuf") is find_parameter("so-sndbuf") is PARAMETERS["so-sndbuf"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("endpont", "endpoint"),
        ("Endpoint", "endpoint"),
        ("term_length", "term-length"),
        ("mtu_length", "mtu"),
        ("fcx", "fc"),
        ("sessionid", "session-id"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(given: str, meant: str) -> None:
    with pytest.raises(ChannelUriError, match=f"parameter '{given}': did you mean '{meant}'"):
        parameter_for_key(given)


def test_a_key_that_resembles_none_gets_no_guess() -> None:
    with pytest.raises(ChannelUriError, match=r"unknown parameter 'zzz'$"):
        parameter_for_key("zzz")
    with pytest.raises(ChannelUriError, match="'mtu_lenght': did you mean 'mtu_length'"):
        find_parameter("mtu_lenght")


def test_the_table_explains_every_field_of_a_channel_in_the_order_of_the_fields() -> None:
    fields = [field.name for field in attrs.fields(ChannelUri)]
    assert fields == ["media", "is_spy", *(entry.name for entry in PARAMETERS.values())]
    for key, parameter in PARAMETERS.items():
        assert parameter.key == key
        assert parameter.default
        assert parameter.description[0].isupper()
        assert parameter.description.endswith(".")
        assert parameter.roles or key == "response-endpoint"
    assert PARAMETERS["mtu"].roles == {Role.PUBLICATION}
    assert PARAMETERS["tether"].roles == {Role.SUBSCRIPTION, Role.SPY}


@pytest.mark.parametrize("text", ["7", "tag", "tags:7", "tag:", "tag:x"])
def test_a_reference_to_a_tag_needs_its_prefix_and_a_number(text: str) -> None:
    with pytest.raises(ConfigurationError):
        TagReference.parse(text)


def test_media_have_their_names() -> None:
    assert [str(media) for media in Media] == ["udp", "ipc"]
