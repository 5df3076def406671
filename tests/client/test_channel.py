"""Channels by their modes: each prints as its URI, reads back as itself, and refuses the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aeron_async as aa
from aeron_async.client import channel
from aeron_async.client import channel as channel_module
from aeron_async.protocol import channel_uri
from aeron_async.protocol.address import Address
from aeron_async.protocol.channel_uri import ChannelUri, FlowControlOptions, Group, Tags
from aeron_async.protocol.parameters import PARAMETERS, Role

if TYPE_CHECKING:
    from collections.abc import Callable

UDP = "10.0.0.5:20121"
GROUP = "224.20.30.39:20121"
CONTROL = "10.0.0.1:20122"


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (aa.Channel.udp(UDP), "aeron:udp?endpoint=10.0.0.5:20121"),
        (
            aa.Channel.udp(UDP, control=CONTROL, mtu=8192, term_length="1m", linger="500ms"),
            (
                "aeron:udp?endpoint=10.0.0.5:20121|control=10.0.0.1:20122|mtu=8k|term-length=1m"
                "|linger=500ms"
            ),
        ),
        (
            aa.Channel.udp(Address.parse("host:0"), interface="10.0.0.0/8", tags="1,2"),
            "aeron:udp?endpoint=host:0|interface=10.0.0.0/8|tags=1,2",
        ),
        (
            aa.Channel.multicast(GROUP, interface="{lo}", ttl=4, group=Group.TRUE),
            "aeron:udp?endpoint=224.20.30.39:20121|interface={lo}|ttl=4|group=true",
        ),
        (
            aa.Channel.multicast(GROUP, fc=aa.Fc.tagged(101, size=2, timeout="2s")),
            "aeron:udp?endpoint=224.20.30.39:20121|fc=tagged,t:2s,g:101/2",
        ),
        (
            aa.Channel.mdc_publisher(CONTROL, fc=aa.Fc.min(timeout=500_000_000), max_resend=4),
            "aeron:udp?control=10.0.0.1:20122|control-mode=dynamic|fc=min,t:500ms|max-resend=4",
        ),
        (aa.Channel.mdc_publisher(mode="manual"), "aeron:udp?control-mode=manual"),
        (
            aa.Channel.mdc_publisher(CONTROL, mode="manual", fc="max"),
            "aeron:udp?control=10.0.0.1:20122|control-mode=manual|fc=max",
        ),
        (
            aa.Channel.mdc_subscriber("10.0.0.5:0", CONTROL, gtag=101, rcv_wnd="256k"),
            (
                "aeron:udp?endpoint=10.0.0.5:0|control=10.0.0.1:20122|control-mode=dynamic"
                "|rcv-wnd=256k|gtag=101"
            ),
        ),
        (
            aa.Channel.mds(reliable=False, cc="cubic"),
            "aeron:udp?control-mode=manual|reliable=false|cc=cubic",
        ),
        (aa.Channel.ipc(), "aeron:ipc"),
        (aa.Channel.ipc(term_length="64k", alias="a"), "aeron:ipc?term-length=64k|alias=a"),
        (aa.Channel.spy(aa.Channel.udp(UDP)), "aeron-spy:aeron:udp?endpoint=10.0.0.5:20121"),
        (
            aa.Channel.spy(f"aeron:udp?endpoint={UDP}", tether=False, session_id=7),
            "aeron-spy:aeron:udp?endpoint=10.0.0.5:20121|session-id=7|tether=false",
        ),
        (
            aa.Channel.response(CONTROL, endpoint="10.0.0.5:0", rejoin=False),
            (
                "aeron:udp?endpoint=10.0.0.5:0|control=10.0.0.1:20122|control-mode=response"
                "|rejoin=false"
            ),
        ),
        (
            aa.Channel.response(CONTROL, correlation_id=7, pub_wnd="32k"),
            (
                "aeron:udp?control=10.0.0.1:20122|control-mode=response|pub-wnd=32k"
                "|response-correlation-id=7"
            ),
        ),
        (
            aa.Channel.response(CONTROL, correlation_id="prototype"),
            (
                "aeron:udp?control=10.0.0.1:20122|control-mode=response"
                "|response-correlation-id=prototype"
            ),
        ),
    ],
    ids=str,
)
def test_a_mode_prints_as_its_uri_and_reads_back_as_itself(made: ChannelUri, text: str) -> None:
    assert set(str(made).split("|")) == set(text.split("|"))
    assert ChannelUri.parse(str(made)) == made


Any_: Any = aa.Channel


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: aa.Channel.udp(GROUP), "use Channel.multicast"),
        (lambda: aa.Channel.udp("10.0.0.5"), "no port"),
        (
            lambda: Any_.udp(UDP, fc=aa.Fc.min()),
            "Channel.udp: fc=min does not go with it",
        ),
        (lambda: Any_.udp(UDP, ttl=4), "ttl=4 does not go"),
        (lambda: Any_.udp(UDP, control_mode="manual"), "control-mode=manual does not go"),
        (lambda: Any_.udp(UDP, response_endpoint="h:1"), "response-endpoint=h:1 does not go"),
        (lambda: Any_.udp(UDP, trem_length="64k"), "did you mean 'term_length'"),
        (lambda: Any_.udp(UDP, mtu=1408, mtu_length=1408), "given twice"),
        (lambda: aa.Channel.udp("10.0.0.5:0", session_id="tag:3"), "port 0"),
        (lambda: aa.Channel.udp(UDP, mtu=1400), "multiple of 32"),
        (lambda: aa.Channel.udp(UDP, term_length="64k", pub_wnd="1m"), "half of term-length"),
        (lambda: aa.Channel.multicast(UDP), "use Channel.udp"),
        (lambda: aa.Channel.multicast("host:1"), "use Channel.udp"),
        (lambda: aa.Channel.multicast("224.20.30.38:20121"), "must be odd"),
        (lambda: Any_.multicast(GROUP, control=CONTROL), "control=10.0.0.1:20122 does not go"),
        (lambda: aa.Channel.multicast(GROUP, interface="::1"), "brackets"),
        (lambda: Any_.mdc_publisher(mode="dynamic"), "needs control"),
        (lambda: Any_.mdc_publisher(CONTROL, mode="response"), "'dynamic' or 'manual'"),
        (lambda: Any_.mdc_publisher(CONTROL, gtag=101), "gtag=101 does not go"),
        (lambda: Any_.mdc_publisher(CONTROL, endpoint=UDP), "endpoint=10.0.0.5:20121 does not go"),
        (lambda: aa.Channel.mdc_subscriber(UDP, "10.0.0.1:0"), "port 0"),
        (lambda: Any_.mdc_subscriber(UDP, CONTROL, fc="max"), "fc=max does not go"),
        (lambda: Any_.mdc_subscriber(UDP, CONTROL, mtu=1408), "mtu=1408 does not go"),
        (lambda: Any_.mds(endpoint=UDP), "does not go"),
        (lambda: Any_.mds(linger="1s"), "linger=1s does not go"),
        (lambda: Any_.ipc(endpoint=UDP), "does not go"),
        (lambda: Any_.ipc(ttl=1), "ttl=1 does not go"),
        (lambda: aa.Channel.spy("aeron:ipc"), "subscribe to aeron:ipc directly"),
        (lambda: Any_.spy(aa.Channel.udp(UDP), endpoint="h:1"), "does not go"),
        (lambda: aa.Channel.spy(aa.Channel.udp(UDP), session_id="tag:1"), "needs the number"),
        (lambda: Any_.response(CONTROL), "give endpoint"),
        (lambda: Any_.response(CONTROL, endpoint=UDP, correlation_id=1), "give endpoint"),
        (lambda: aa.Channel.response(CONTROL, correlation_id=-1), "no response-correlation-id set"),
        (lambda: Any_.response(CONTROL, correlation_id=7, fc="max"), "fc=max does not go"),
        (lambda: Any_.response(CONTROL, correlation_id=7, gtag=1), "gtag=1 does not go"),
        (lambda: Any_.response(CONTROL, endpoint=UDP, mtu=1408), "mtu=1408 does not go"),
    ],
)
def test_what_contradicts_the_mode_is_refused(make: Callable[[], ChannelUri], part: str) -> None:
    with pytest.raises(aa.ChannelUriError) as caught:
        make()
    assert part in str(caught.value)


def test_what_does_not_go_with_a_mode_comes_with_a_remedy() -> None:
    with pytest.raises(aa.ChannelUriError, match=r"Leave it out, or use Channel\.multicast"):
        Any_.udp(UDP, ttl=4)
    with pytest.raises(aa.ChannelUriError, match=r"linger=1s does not go.* Leave it out$"):
        Any_.mds(linger="1s")


def test_destinations_are_channels_of_these_modes() -> None:
    aa.Channel.udp(UDP).check_send_destination()
    for destination in (
        aa.Channel.udp(UDP),
        aa.Channel.multicast(GROUP),
        aa.Channel.mdc_subscriber(UDP, CONTROL),
        aa.Channel.ipc(),
        aa.Channel.spy(aa.Channel.udp(UDP)),
    ):
        destination.check_receive_destination()


LENGTHS = st.sampled_from([64 * 1024, 128 * 1024, "256k", "1m", 1 << 30])
DURATIONS = st.integers(0, 2**63 - 1)
INTEGERS = st.integers(-(2**31), 2**31 - 1)
SENDING: dict[str, Any] = {
    "mtu": st.integers(2, 200).map(lambda number: 32 * number),
    "term_length": LENGTHS,
    "session_id": INTEGERS,
    "linger": DURATIONS,
    "eos": st.booleans(),
    "ssc": st.booleans(),
    "sparse": st.booleans(),
    "alias": st.text("abcXYZ 019=,:?", min_size=1, max_size=20),
    "tags": st.builds(Tags, st.integers(0, 9), st.none() | st.integers(0, 2**63 - 1)),
}
RECEIVING: dict[str, Any] = {
    "session_id": INTEGERS,
    "reliable": st.booleans(),
    "rejoin": st.booleans(),
    "tether": st.booleans(),
    "group": st.sampled_from(Group),
    "rcv_wnd": st.integers(8192, 2**31 - 1),
    "cc": st.sampled_from(["static", "cubic", "reno"]),
    "gtag": st.integers(-(2**63), 2**63 - 1),
    "nak_delay": DURATIONS,
}
SIZES = st.none() | st.integers(0, 2**31 - 1)
TIMEOUTS = st.none() | DURATIONS
MULTIPLES = st.none() | st.integers(1, 2**31 - 1)
FLOW_CONTROLS = st.one_of(
    st.builds(aa.Fc.max, rrwm=MULTIPLES),
    st.builds(aa.Fc.min, size=SIZES, timeout=TIMEOUTS, rrwm=MULTIPLES),
    st.builds(
        aa.Fc.tagged,
        st.none() | st.integers(-(2**63), 2**63 - 1),
        size=SIZES,
        timeout=TIMEOUTS,
        rrwm=MULTIPLES,
    ),
    st.builds(aa.Fc.named, st.just("majority"), st.just("p:50")),
)
IN_GROUPS = {"ttl": st.integers(0, 255), "max_resend": st.integers(1, 256), "fc": FLOW_CONTROLS}


def options(optional: dict[str, Any]) -> Any:
    return st.fixed_dictionaries({}, optional=optional)


@given(
    st.one_of(
        st.builds(lambda more: Any_.udp(UDP, **more), options(SENDING | RECEIVING)),
        st.builds(
            lambda more: Any_.multicast(GROUP, **more), options(SENDING | RECEIVING | IN_GROUPS)
        ),
        st.builds(
            lambda mode, more: Any_.mdc_publisher(CONTROL, mode=mode, **more),
            st.sampled_from(["dynamic", "manual"]),
            options(SENDING | IN_GROUPS),
        ),
        st.builds(lambda more: Any_.mdc_subscriber(UDP, CONTROL, **more), options(RECEIVING)),
        st.builds(lambda more: Any_.mds(**more), options(RECEIVING)),
        st.builds(
            lambda more: Any_.ipc(**more),
            options({key: each for key, each in SENDING.items() if key not in {"eos", "ssc"}}),
        ),
        st.builds(
            lambda number, more: Any_.response(CONTROL, correlation_id=number, **more),
            st.integers(0, 2**63 - 1),
            options(SENDING),
        ),
    )
)
def test_whatever_is_made_reads_back_from_its_text_as_itself(uri: ChannelUri) -> None:
    assert ChannelUri.parse(str(uri)) == uri
    if uri.control_mode is not channel_uri.ControlMode.RESPONSE and not uri.is_spy:
        spied = None if uri.media is channel_uri.Media.IPC else aa.Channel.spy(uri)
        assert spied is None or ChannelUri.parse(str(spied)) == spied


@given(FLOW_CONTROLS)
def test_flow_control_reads_back_from_its_text_as_itself(fc: FlowControlOptions) -> None:
    assert FlowControlOptions.parse(str(fc)) == fc


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: aa.Fc.min(timeout="5 s"), "timeout of fc=min"),
        (lambda: aa.Fc.min(timeout=-1), "-1 is not between 0"),
        (lambda: aa.Fc.min(size=-1), "fc=min,g:/-1"),
        (lambda: aa.Fc.max(rrwm=0), "rrwm:0"),
        (lambda: aa.Fc.tagged(2**63), "fc=tagged"),
        (lambda: aa.Fc.named("no name"), "no name of a strategy"),
        (lambda: aa.Fc.named("majority", ""), "empty"),
        (lambda: aa.Fc.named("majority", "a,b"), "reads back"),
        (lambda: aa.Fc.named("majority", "a|b"), "printable ASCII"),
    ],
)
def test_flow_control_that_cannot_be_meant_is_refused(
    make: Callable[[], FlowControlOptions], part: str
) -> None:
    with pytest.raises(aa.ChannelUriError) as caught:
        make()
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("name", "roles", "without"),
    [
        ("UnicastOptions", "PS", channel_module.GROUP_KEYS),
        ("GroupOptions", "PS", set()),
        ("PublicationOptions", "P", set()),
        ("SubscriptionOptions", "S", set()),
        (
            "ResponsePublicationOptions",
            "P",
            channel_module.GROUP_KEYS | {"response-correlation-id"},
        ),
        ("ResponseSubscriptionOptions", "S", channel_module.GROUP_KEYS),
        ("IpcOptions", "PS", PARAMETERS.keys() - channel_module.IPC_KEYS),
        ("SpyOptions", "X", set()),
    ],
)
def test_type_checkers_know_what_each_mode_takes(name: str, roles: str, without: set[str]) -> None:
    typed = getattr(channel, name).__annotations__
    taken = {
        key.replace("-", "_")
        for key, parameter in PARAMETERS.items()
        if parameter.roles & {Role(letter) for letter in roles}
        and key not in channel_module.ADDRESS_KEYS | without
    }
    assert typed.keys() == taken
