from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.errors import ChannelUriError
from aeron_async.protocol.address import Address, InterfaceSpec
from aeron_async.protocol.channel_uri import (
    MAX_LENGTH,
    ChannelUri,
    ControlMode,
    FlowControlStrategy,
    Group,
    Media,
    TagReference,
)
from aeron_async.protocol.parameters import PARAMETERS

LOCAL = "aeron:udp?endpoint=localhost:40456"


@pytest.mark.parametrize("text", ["aeron:ipc", "aeron:ipc?"])
def test_ipc_needs_no_parameters(text: str) -> None:
    uri = ChannelUri.parse(text)
    assert uri.media is Media.IPC
    assert not uri.is_spy
    assert uri.parameters == {}
    assert str(uri) == "aeron:ipc"


def test_everything_that_is_not_given_is_none() -> None:
    uri = ChannelUri.parse(LOCAL)
    assert uri.endpoint == Address.parse("localhost:40456")
    assert uri.parameters == {"endpoint": "localhost:40456"}
    assert {getattr(uri, entry.name) for key, entry in PARAMETERS.items() if key != "endpoint"} == {
        None
    }
    assert uri.channel_tag is uri.entity_tag is None


def test_parameters_are_typed() -> None:
    uri = ChannelUri.parse(
        "aeron:udp?endpoint=224.0.1.1:40456|interface=10.0.0.0/8|tags=1,2|term-length=64k|"
        "session-id=tag:7|fc=tagged,g:101/2,t:5s|linger=1s|eos=false|group=true|ttl=4"
    )
    assert uri.interface == InterfaceSpec.parse("10.0.0.0/8")
    assert (uri.channel_tag, uri.entity_tag) == (1, 2)
    assert uri.term_length == 65536
    assert uri.session_id == TagReference(7)
    assert uri.flow_control is not None
    assert uri.flow_control.strategy is FlowControlStrategy.TAGGED
    assert uri.flow_control.receiver_timeout_ns == 5_000_000_000
    assert (uri.flow_control.group_tag, uri.flow_control.group_min_size) == (101, 2)
    assert uri.linger_timeout_ns == 1_000_000_000
    assert uri.signal_eos is False
    assert uri.group is Group.TRUE
    assert uri.ttl == 4


def test_the_canonical_form_has_a_fixed_order_and_exact_units() -> None:
    uri = ChannelUri.parse(
        "aeron:udp?linger=5000ms|term-length=65536|mtu=1408|tags=3,|endpoint=LOCALHOST:1|"
        "fc=min,g:/1,t:1000|control=[::1]:2|control-mode=dynamic"
    )
    assert str(uri) == (
        "aeron:udp?endpoint=LOCALHOST:1|control=[::1]:2|control-mode=dynamic|mtu=1408|"
        "term-length=64k|tags=3|linger=5s|fc=min,t:1us,g:/1"
    )
    assert repr(uri) == f"ChannelUri.parse('{uri}')"


def test_a_spy_is_marked_by_its_prefix() -> None:
    uri = ChannelUri.parse(f"aeron-spy:{LOCAL}")
    assert uri.is_spy
    assert str(uri) == f"aeron-spy:{LOCAL}"


def test_equal_channels_are_equal_and_hash_alike_but_names_are_not_literals() -> None:
    one = ChannelUri.parse(f"{LOCAL}|term-length=64k")
    other = ChannelUri.parse("aeron:udp?term-length=65536|endpoint=localhost:40456")
    assert one == other
    assert len({one, other}) == 1
    assert ChannelUri.parse("aeron:udp?endpoint=127.0.0.1:1") != ChannelUri.parse(
        "aeron:udp?endpoint=localhost:1"
    )


def test_a_value_may_hold_the_separators_of_keys_and_ports() -> None:
    assert ChannelUri.parse("aeron:ipc?alias=a=b,c:d?e").alias == "a=b,c:d?e"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a channel begins with aeron:udp"),
        ("udp?endpoint=localhost:1", "a channel begins with aeron:udp"),
        ("Aeron:udp?endpoint=localhost:1", "the scheme and the media are in lower case"),
        (" aeron:ipc", "write 'aeron:ipc'"),
        ("aeron-spy:aeron-spy:aeron:udp?endpoint=localhost:1", "a channel begins with aeron:udp"),
        ("aeron:", "unknown media ''"),
        ("aeron:tcp?endpoint=localhost:1", "unknown media 'tcp'"),
        ("aeron:upd?endpoint=localhost:1", "did you mean 'udp'"),
        ("aeron:UDP?endpoint=localhost:1", "the scheme and the media are in lower case"),
        ("aeron:udp", "aeron:udp needs an address"),
        ("aeron:udp?", "aeron:udp needs an address"),
        ("aeron:ipc?alias", "'alias' is not of the form key=value"),
        ("aeron:ipc?=x", "'=x' is not of the form key=value"),
        ("aeron:ipc?alias=x|", "'' is not of the form key=value"),
        ("aeron:ipc?|alias=x", "'' is not of the form key=value"),
        ("aeron:ipc?alias=", "nothing follows the '='"),
        ("aeron:ipc?alias=x|alias=x", "parameter 'alias' is given twice"),
        ("aeron:udp?endpont=localhost:1", "unknown parameter 'endpont': did you mean 'endpoint'"),
        (f"{LOCAL}|x-own=1", "unknown parameter 'x-own'"),
        (f"{LOCAL} 2|ttl=1", "port between 0 and 65535"),
        (f"{LOCAL}|mtu=1400", "mtu=1400 must be a multiple of 32 from 64 to 65504"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(ChannelUriError, match=reason) as caught:
        ChannelUri.parse(text)
    assert f"(channel {text!r})" in str(caught.value)


TWO = "aeron:udp?endpoint=localhost:1|mtu=1408"


@pytest.mark.parametrize(
    ("text", "rule", "corrected"),
    [
        ("aeron:udp?endpoint=localhost:1&mtu=1408", "'|' stands between two parameters", TWO),
        ("aeron:udp?endpoint=localhost:1;mtu=1408", "'|' stands between two parameters", TWO),
        ("aeron:udp?endpoint=localhost:1,mtu=1408", "'|' stands between two parameters", TWO),
        ("aeron:udp?endpoint=localhost:1?mtu=1408", "'|' stands between two parameters", TWO),
        ("aeron:udp|endpoint=localhost:1|mtu=1408", "'?' stands before the first parameter", TWO),
        ("aeron:ipc&mtu=1408", "'?' stands before the first parameter", "aeron:ipc?mtu=1408"),
        (f"\t{TWO}\n", "no blanks stand around a channel or a parameter", TWO),
        (TWO.replace("|", " | "), "no blanks stand around a channel or a parameter", TWO),
        (TWO.replace("?", " ? "), "no blanks stand around a channel or a parameter", TWO),
        (TWO.replace("aeron:udp", "AERON:UDP"), "scheme and the media are in lower case", TWO),
        (TWO.replace("udp", "Udp"), "scheme and the media are in lower case", TWO),
        (f"Aeron-Spy:{TWO}", "scheme and the media are in lower case", f"aeron-spy:{TWO}"),
        (
            "AERON:udp|endpoint=localhost:1&mtu=1408",
            "lower case, and '?' stands before the first parameter, and '|' stands between",
            TWO,
        ),
    ],
)
def test_what_is_written_otherwise_is_refused_with_what_to_write(
    text: str, rule: str, corrected: str
) -> None:
    with pytest.raises(ChannelUriError) as caught:
        ChannelUri.parse(text)
    assert rule in str(caught.value)
    assert f"write {corrected!r}" in str(caught.value)
    ChannelUri.parse(corrected)


def test_blanks_and_signs_within_a_value_are_no_fault() -> None:
    with pytest.raises(ChannelUriError, match=r"^mtu=1400 must be a multiple of 32"):
        ChannelUri.parse("aeron:ipc?alias=a & b;c|mtu=1400")


def test_a_channel_that_a_role_refuses_is_named() -> None:
    uri = ChannelUri.parse("aeron:udp?endpoint=127.0.0.1:1|fc=min")
    with pytest.raises(ChannelUriError, match="fc=min needs a group") as caught:
        uri.check_publication()
    assert str(caught.value).endswith(f"(channel {str(uri)!r})")


def test_a_channel_has_a_longest_length() -> None:
    prefix = "aeron:ipc?alias="
    longest = prefix + "a" * (MAX_LENGTH - len(prefix))
    assert str(ChannelUri.parse(longest)) == longest
    with pytest.raises(ChannelUriError, match="at most 4095 characters, this one has 4096") as info:
        ChannelUri.parse(longest + "a")
    assert len(str(info.value)) < 400
    with pytest.raises(ChannelUriError, match="at most 4095 characters"):
        ChannelUri.parse("aeron:ipc").replace(alias="a" * MAX_LENGTH)


def test_a_channel_is_built_from_names_or_keys_and_from_values_or_texts() -> None:
    uri = ChannelUri.from_parameters(
        Media.UDP,
        endpoint="localhost:40456",
        mtu=1408,
        term_length="64k",
        control_mode=ControlMode.MANUAL,
        so_sndbuf=None,
        alias="orders",
    )
    assert str(uri) == (
        "aeron:udp?endpoint=localhost:40456|control-mode=manual|mtu=1408|term-length=64k|alias=orders"
    )
    assert ChannelUri.from_parameters(Media.UDP, is_spy=True, tags="1") == ChannelUri.parse(
        "aeron-spy:aeron:udp?tags=1"
    )


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"endpoint": "localhost"}, "has no port"),
        ({"endpont": "localhost:1"}, "did you mean 'endpoint'"),
        ({"mtu": 1408, "mtu_length": 1408}, "parameter 'mtu' is given twice"),
        ({"endpoint": "localhost:1", "mtu_length": 1400}, "multiple of 32"),
        ({"endpoint": "localhost:1", "linger_timeout_ns": 1.5}, "is of type float"),
        ({"endpoint": "localhost:1|ttl=1"}, "without '|'"),
    ],
)
def test_a_channel_built_wrongly_is_refused(parameters: dict[str, Any], reason: str) -> None:
    with pytest.raises(ChannelUriError, match=reason.replace("|", r"\|")):
        ChannelUri.from_parameters(Media.UDP, **parameters)


def test_replacing_changes_adds_and_removes_parameters_together() -> None:
    uri = ChannelUri.parse(f"{LOCAL}|alias=x|mtu=1408")
    changed = uri.replace(alias=None, mtu_length="8k", session_id=-7)
    assert str(changed) == f"{LOCAL}|mtu=8k|session-id=-7"
    assert str(uri) == f"{LOCAL}|mtu=1408|alias=x"
    resumed = uri.replace(init_term_id=5, term_id=6, term_offset=64)
    assert (resumed.initial_term_id, resumed.term_id, resumed.term_offset) == (5, 6, 64)
    with pytest.raises(ChannelUriError, match="together or not at all"):
        uri.replace(term_id=6)


def test_replacing_can_turn_a_channel_into_a_spy_of_it_and_back() -> None:
    uri = ChannelUri.parse(LOCAL)
    spy = uri.replace(is_spy=True)
    assert str(spy) == f"aeron-spy:{LOCAL}"
    assert spy.replace(ttl=1).is_spy
    assert spy.replace(is_spy=False) == uri


HOSTS = ("localhost", "my-host.example", "10.1.2.3", "0.0.0.0")
TEXTS: dict[str, st.SearchStrategy[str]] = {
    "endpoint": st.builds("{}:{}".format, st.sampled_from(HOSTS), st.integers(0, 65535)),
    "interface": st.sampled_from(["localhost", "10.0.0.0/8", "{eth0}", "{lo}:7", "0.0.0.0"]),
    "control": st.builds("{}:{}".format, st.sampled_from(HOSTS), st.integers(0, 65535)),
    "control-mode": st.sampled_from(["manual", "response"]),
    "ttl": st.integers(0, 255).map(str),
    "session-id": st.integers(-(2**31), 2**31 - 1).map(str)
    | st.builds("tag:{}".format, st.integers(0, 2**63 - 1)),
    "tags": st.sampled_from(["1", "1,2", ",2", "9223372036854775807"]),
    "alias": st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), min_size=1)
    .map(lambda text: text.replace("|", "/"))
    .filter(bool),
    "linger": st.builds("{}{}".format, st.integers(0, 10**9), st.sampled_from(["", "us", "S"])),
    "term-length": st.integers(16, 30).map(lambda bits: str(1 << bits)),
    "mtu": st.integers(2, 256).map(lambda count: str(32 * count)),
    "sparse": st.sampled_from(["true", "false"]),
    "group": st.sampled_from(["true", "false", "infer"]),
    "rcv-wnd": st.integers(8192, 2**31 - 1).map(str),
    "so-sndbuf": st.integers(8192, 2**31 - 1).map(str),
    "cc": st.sampled_from(["static", "cubic"]),
    "fc": st.sampled_from(["max", "max,rrwm:4", "min,g:/2,t:100", "tagged,g:-5/1,t:7ms"]),
    "gtag": st.integers(-(2**63), 2**63 - 1).map(str),
    "max-resend": st.integers(1, 256).map(str),
    "pub-wnd": st.sampled_from(["8k", "16384", "32k"]),
    "response-correlation-id": st.integers(-1, 2**63 - 1).map(str) | st.just("prototype"),
    "response-endpoint": st.just("localhost:8020"),
    "stream-id": st.integers(-(2**31), 2**31 - 1).map(str),
    "untethered-resting-timeout": st.integers(0, 2**63 - 1).map(str),
    "media-rcv-ts-offset": st.sampled_from(["reserved", "8"]),
    "channel-rcv-ts-offset": st.sampled_from(["0", "32"]),
    "channel-snd-ts-offset": st.integers(64, 2**31 - 1).map(str),
}


@st.composite
def channels(draw: st.DrawFn) -> str:
    keys = draw(st.lists(st.sampled_from(sorted(TEXTS)), unique=True))
    if not {"endpoint", "control", "control-mode"} & set(keys):
        keys.append("endpoint")
    prefix = draw(st.sampled_from(["", "aeron-spy:"]))
    return f"{prefix}aeron:udp?" + "|".join(f"{key}={draw(TEXTS[key])}" for key in keys)


@given(channels())
def test_every_channel_reads_back_as_it_was_printed(text: str) -> None:
    uri = ChannelUri.parse(text)
    assert ChannelUri.parse(str(uri)) == uri
    assert str(ChannelUri.parse(str(uri))) == str(uri)
    assert ChannelUri.from_parameters(uri.media, is_spy=uri.is_spy, **uri.parameters) == uri


@given(
    st.text()
    | st.builds(
        "aeron:{}?{}".format,
        st.sampled_from(["udp", "ipc"]),
        st.lists(
            st.builds(
                "{}={}".format,
                st.sampled_from([*PARAMETERS, "x"]),
                st.text(alphabet="0159kms:.,/[]{}tagruefl-|=x\x00é", max_size=12),
            ),
            max_size=4,
        ).map("|".join),
    )
)
def test_any_text_is_a_channel_or_a_channel_uri_error(text: str) -> None:
    try:
        uri = ChannelUri.parse(text)
    except ChannelUriError:
        return
    assert ChannelUri.parse(str(uri)) == uri
