"""What a channel and the context together say of publications, subscriptions and endpoints."""

from __future__ import annotations

from typing import Any

import pytest

from aeron_async.driver.core.congestion_control import StaticWindowCongestionControl
from aeron_async.driver.core.context import DriverContext
from aeron_async.driver.core.stream_params import (
    PublicationParams,
    StartPosition,
    SubscriptionParams,
    check_can_share,
    check_is_supported,
)
from aeron_async.driver.core.udp_channel import Interface, UdpChannel, format_address
from aeron_async.errors import ConfigurationError, ErrorCode, RegistrationError
from aeron_async.protocol.channel_uri import ChannelUri
from tests.driver.fakes import MS, SECOND

KIB = 1024
MIB = 1024 * KIB
CHANNEL = "aeron:udp?endpoint=localhost:40123"
ENDPOINT = ("127.0.0.1", 40_123)
START = StartPosition(initial_term_id=7, term_id=9, term_offset=64)


def uri(more: str = "") -> ChannelUri:
    return ChannelUri.parse(f"{CHANNEL}|{more}" if more else CHANNEL)


def publication(
    more: str = "", *, is_exclusive: bool = False, **settings: Any
) -> PublicationParams:
    return PublicationParams.of(uri(more), DriverContext(**settings), is_exclusive=is_exclusive)


def subscription(more: str = "", **settings: Any) -> SubscriptionParams:
    return SubscriptionParams.of(uri(more), DriverContext(**settings))


def test_a_bare_channel_makes_a_publication_of_aerons_defaults() -> None:
    assert publication() == PublicationParams(
        mtu_length=1_408,
        term_length=16 * MIB,
        session_id=None,
        start=None,
        publication_window_length=8 * MIB,
        linger_timeout_ns=5 * SECOND,
        max_resend=16,
        signal_eos=True,
        is_sparse=True,
        spies_simulate_connection=False,
        is_exclusive=False,
        has_group_semantics=False,
        is_unicast=True,
        ttl=0,
    )


def test_a_publication_takes_what_its_channel_says() -> None:
    params = publication(
        "term-length=64k|mtu=4k|session-id=-5|init-term-id=7|term-id=9|term-offset=64|"
        "pub-wnd=8k|linger=0|max-resend=3|eos=false|sparse=false|ssc=true|ttl=4",
        is_exclusive=True,
    )
    assert params == PublicationParams(
        mtu_length=4 * KIB,
        term_length=64 * KIB,
        session_id=-5,
        start=START,
        publication_window_length=8 * KIB,
        linger_timeout_ns=0,
        max_resend=3,
        signal_eos=False,
        is_sparse=False,
        spies_simulate_connection=True,
        is_exclusive=True,
        ttl=4,
    )


def test_a_publication_takes_from_the_context_what_its_channel_leaves_out() -> None:
    params = publication(
        term_buffer_length=128 * KIB,
        mtu_length=8 * KIB,
        publication_linger_timeout_ns=3 * SECOND,
        max_resend=5,
        term_buffer_sparse_file=False,
        spies_simulate_connection=True,
        publication_term_window_length=16 * KIB,
    )
    assert (params.term_length, params.mtu_length) == (128 * KIB, 8 * KIB)
    assert (params.linger_timeout_ns, params.max_resend) == (3 * SECOND, 5)
    assert (params.is_sparse, params.spies_simulate_connection) == (False, True)
    assert params.publication_window_length == 16 * KIB


@pytest.mark.parametrize(
    ("more", "default", "window"),
    [
        ("term-length=64k", 0, 32 * KIB),
        ("term-length=64k", 1 * MIB, 32 * KIB),
        ("term-length=64k", 8 * KIB, 8 * KIB),
        ("term-length=64k|pub-wnd=32k", 8 * KIB, 32 * KIB),
        ("term-length=64k|pub-wnd=1408", 0, 1_408),
    ],
)
def test_a_publication_window_is_at_most_half_a_term(more: str, default: int, window: int) -> None:
    params = publication(more, publication_term_window_length=default)
    assert params.publication_window_length == window


@pytest.mark.parametrize("pub_wnd", ["1407", "33k", "64k"])
def test_a_publication_window_that_does_not_fit_is_refused(pub_wnd: str) -> None:
    with pytest.raises(ConfigurationError, match="pub-wnd"):
        publication(f"term-length=64k|pub-wnd={pub_wnd}")


SHARED = "term-length=64k|mtu=1408|init-term-id=7|term-id=9|term-offset=64|ssc=false"


@pytest.mark.parametrize(
    "more",
    [
        "",
        SHARED,
        "session-id=5",
        "mtu=1408",
        "term-length=64k",
        "ssc=false",
        "eos=false",
        "linger=0",
    ],
)
def test_a_channel_that_agrees_or_is_silent_shares_a_publication(more: str) -> None:
    check_can_share(uri(more), publication(SHARED), session_id=5, start=START)


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("session-id=6", "session-id"),
        ("mtu=1440", "mtu"),
        ("term-length=128k", "term-length"),
        ("init-term-id=8|term-id=9|term-offset=64", "init-term-id"),
        ("init-term-id=7|term-id=8|term-offset=64", "term-id"),
        ("init-term-id=7|term-id=9|term-offset=96", "term-offset"),
        ("ssc=true", "ssc"),
    ],
)
def test_a_channel_that_wants_it_otherwise_does_not(more: str, key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{key}="):
        check_can_share(uri(more), publication(SHARED), session_id=5, start=START)


def test_a_bare_channel_makes_a_subscription_of_aerons_defaults() -> None:
    assert subscription() == SubscriptionParams(
        session_id=None,
        is_reliable=True,
        is_rejoin=True,
        is_tether=True,
        is_sparse=True,
        receiver_window_length=128 * KIB,
        is_window_auto=True,
        nak_delay_ns=None,
        is_group=None,
        group_tag=None,
        congestion_control="default",
    )


@pytest.mark.parametrize(
    ("more", "context", "is_auto"),
    [
        ("rcv-wnd=auto", {}, True),
        ("rcv-wnd=auto", {"receiver_window_auto": False}, True),
        ("rcv-wnd=auto", {"initial_window_length": 64 * KIB}, True),
        ("rcv-wnd=128k", {}, False),
        ("", {"receiver_window_auto": False}, False),
        ("", {"initial_window_length": 64 * KIB}, False),
        # Who chose a congestion control has chosen who decides on the window.
        ("cc=static", {}, False),
        ("rcv-wnd=auto", {"congestion_control_supplier": "cubic"}, False),
    ],
)
def test_a_window_grows_unless_someone_has_chosen_one(
    more: str,
    context: dict[str, Any],
    is_auto: bool,  # noqa: FBT001 - a table of cases
) -> None:
    params = subscription(more, **context)
    assert params.is_window_auto is is_auto
    assert params.receiver_window_length == context.get("initial_window_length", 128 * KIB)


def test_a_factory_of_the_subscription_decides_on_the_window() -> None:
    params = SubscriptionParams.of(
        uri("rcv-wnd=auto"), DriverContext(), congestion_control=StaticWindowCongestionControl.of
    )
    assert not params.is_window_auto


def test_a_subscription_takes_what_its_channel_says() -> None:
    params = subscription(
        "session-id=7|reliable=false|rejoin=false|tether=false|sparse=false|rcv-wnd=8k|"
        "nak-delay=2ms|group=true|gtag=-3|cc=static"
    )
    assert params == SubscriptionParams(
        session_id=7,
        is_reliable=False,
        is_rejoin=False,
        is_tether=False,
        is_sparse=False,
        receiver_window_length=8 * KIB,
        is_window_auto=False,
        nak_delay_ns=2 * MS,
        is_group=True,
        group_tag=-3,
        congestion_control="static",
    )


def test_a_subscription_takes_from_the_context_what_its_channel_leaves_out() -> None:
    params = subscription(
        reliable_stream=False,
        rejoin_stream=False,
        tether_subscriptions=False,
        term_buffer_sparse_file=False,
        initial_window_length=64 * KIB,
        receiver_group_consideration=False,
        receiver_group_tag=11,
    )
    assert not any((params.is_reliable, params.is_rejoin, params.is_tether, params.is_sparse))
    assert params.receiver_window_length == 64 * KIB
    assert params.is_group is False
    assert params.group_tag == 11


@pytest.mark.parametrize(("group", "is_group"), [("true", True), ("false", False), ("infer", None)])
def test_a_channel_says_whether_a_receiver_is_one_of_many(
    group: str,
    is_group: bool | None,  # noqa: FBT001 - a table of cases
) -> None:
    params = subscription(f"group={group}", receiver_group_consideration=True)
    assert params.is_group is is_group


def test_a_context_that_names_a_congestion_control_leaves_the_channel_no_choice() -> None:
    assert subscription("cc=cubic").congestion_control == "cubic"
    params = subscription("cc=cubic", congestion_control_supplier="static")
    assert params.congestion_control == "static"


def test_the_term_of_a_prototype_is_64_kibibytes_whatever_is_asked() -> None:
    """It was as long as the channel or the context said."""

    def of(query: str) -> PublicationParams:
        channel = f"aeron:udp?control=localhost:40123|control-mode=response{query}"
        return PublicationParams.of(ChannelUri.parse(channel), DriverContext(), is_exclusive=True)

    prototype = "|response-correlation-id=prototype"
    assert of(prototype).term_length == 64 * KIB
    assert of(f"{prototype}|term-length=1m").term_length == 64 * KIB
    assert of(f"{prototype}|term-length=1m").publication_window_length == 32 * KIB
    assert of("|response-correlation-id=5|term-length=1m").term_length == MIB
    start = "|init-term-id=1|term-id=1|term-offset=131072|term-length=1m"
    with pytest.raises(ConfigurationError, match="exceeds a prototype's term of 65536"):
        of(prototype + start)


def test_subscriptions_of_one_stream_must_agree_on_reliability_and_rejoining() -> None:
    subscription().check_same_stream(subscription("rcv-wnd=8k"), stream_id=5)
    for key in ("reliable", "rejoin"):
        with pytest.raises(ConfigurationError, match=f"^{key}=true differs from {key}=false"):
            subscription().check_same_stream(subscription(f"{key}=false"), stream_id=5)


def test_subscriptions_of_different_sessions_need_not_agree() -> None:
    subscription("session-id=7").check_same_stream(subscription("reliable=false"), stream_id=5)


@pytest.mark.parametrize(
    ("channel", "endpoint", "local", "form"),
    [
        (CHANNEL, ENDPOINT, None, "UDP-0.0.0.0:0-localhost:40123"),
        (CHANNEL, ("::1", 40_123), None, "UDP-[::]:0-localhost:40123"),
        (
            "aeron:udp?endpoint=127.0.0.1:40123|interface=127.0.0.1",
            ENDPOINT,
            ("127.0.0.1", 0),
            "UDP-127.0.0.1:0-127.0.0.1:40123",
        ),
        (
            f"{CHANNEL}|control=localhost:40124",
            ENDPOINT,
            ("127.0.0.1", 40_124),
            "UDP-localhost:40124-localhost:40123",
        ),
        ("aeron:udp?endpoint=[::1]:40123", ("::1", 40_123), None, "UDP-[::]:0-[::1]:40123"),
    ],
)
def test_the_channel_of_a_publication_has_aerons_canonical_form(
    channel: str, endpoint: tuple[str, int], local: tuple[str, int] | None, form: str
) -> None:
    read = ChannelUri.parse(channel)
    made = UdpChannel.for_publication(
        read,
        endpoint=endpoint,
        control=local if read.control is not None else None,
        interface=Interface(address=local[0], port=local[1])
        if read.control is None and local
        else None,
    )
    assert made.canonical_form == form
    assert made.remote_data == endpoint
    assert made.local_data == (local or (("::", 0) if ":" in endpoint[0] else ("0.0.0.0", 0)))


@pytest.mark.parametrize(
    ("channel", "port", "form"),
    [
        (CHANNEL, 40_123, "UDP-0.0.0.0:0-localhost:40123"),
        ("aeron:udp?endpoint=localhost:0", 0, "UDP-0.0.0.0:0-localhost:0-3"),
        ("aeron:udp?endpoint=localhost:0|tags=77", 0, "UDP-0.0.0.0:0-localhost:0#77"),
        (f"{CHANNEL}|tags=77", 40_123, "UDP-0.0.0.0:0-localhost:40123"),
    ],
)
def test_the_channel_of_a_subscription_is_its_own_where_the_system_chooses_the_port(
    channel: str, port: int, form: str
) -> None:
    made = UdpChannel.for_subscription(
        ChannelUri.parse(channel), endpoint=("127.0.0.1", port), unique_suffix="3"
    )
    assert made.canonical_form == form
    assert made.remote_data == ("127.0.0.1", port)
    assert made.remote_control is None


def test_names_stay_names() -> None:
    by_name = UdpChannel.for_publication(uri(), endpoint=ENDPOINT)
    by_number = UdpChannel.for_publication(
        ChannelUri.parse("aeron:udp?endpoint=127.0.0.1:40123"), endpoint=ENDPOINT
    )
    assert by_name.canonical_form != by_number.canonical_form


def test_addresses_are_printed_as_they_are_written_in_channels() -> None:
    assert format_address(("192.0.2.1", 5)) == "192.0.2.1:5"
    assert format_address(("2001:db8::1", 5)) == "[2001:db8::1]:5"


def test_plain_unicast_is_welcome() -> None:
    check_is_supported(uri("interface=127.0.0.1|term-length=64k"))


@pytest.mark.parametrize(
    ("channel", "what"),
    [
        ("aeron:udp?endpoint=localhost:40123|ats=true", "ats"),
    ],
)
def test_a_channel_that_there_is_no_endpoint_for_is_refused(channel: str, what: str) -> None:
    with pytest.raises(RegistrationError, match=what) as raised:
        check_is_supported(ChannelUri.parse(channel))
    assert raised.value.code is ErrorCode.NOT_SUPPORTED
