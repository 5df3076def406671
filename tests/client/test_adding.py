"""Adding publications and subscriptions: sharing, sessions, parameters, refusals, images."""

from __future__ import annotations

import asyncio
import socket
import traceback

import pytest

import aeron_async as aa
from aeron_async.driver.media.network import SystemNetwork
from aeron_async.protocol.header import FrameType
from tests.drivers import contradiction, endpoint_error

STREAM_ID = 1001


async def test_one_channel_and_stream_is_one_publication(
    aeron: aa.Aeron, driver: aa.MediaDriver, channel: str, subscription: aa.Subscription
) -> None:
    first = await aeron.add_publication(channel, STREAM_ID)
    async with aa.Aeron.connect(driver) as other:
        second = await other.add_publication(channel, STREAM_ID)
        assert second.session_id == first.session_id
        await first.offer(b"first", timeout=5)
        await second.offer(b"second", timeout=5)
        assert second.position == first.position == 128
    assert second.is_closed
    assert not first.is_closed
    await first.offer(b"third")
    received = [(await anext(subscription)).data for _ in range(3)]
    assert received == [b"first", b"second", b"third"]
    assert len(subscription.images) == 1
    other_stream = await aeron.add_publication(channel, STREAM_ID + 1)
    assert other_stream.local_address == first.local_address


async def test_what_contradicts_a_shared_publication_is_refused(
    aeron: aa.Aeron, channel: str
) -> None:
    await aeron.add_publication(channel + "|mtu=1408", STREAM_ID)
    for parameter in ("mtu=4096", "term-length=128k", "session-id=5", "ssc=true"):
        key = parameter.partition("=")[0]
        with pytest.raises(contradiction(aeron), match=f"{key}=.*exclusive publication"):
            await aeron.add_publication(f"{channel}|{parameter}", STREAM_ID)
    await aeron.add_publication(channel, STREAM_ID)


async def test_a_session_may_be_chosen_and_is_then_taken(aeron: aa.Aeron, channel: str) -> None:
    chosen = await aeron.add_exclusive_publication(channel + "|session-id=-77", STREAM_ID)
    assert chosen.session_id == -77
    with pytest.raises(aa.RegistrationError, match="session-id=-77 is in use") as caught:
        await aeron.add_exclusive_publication(channel + "|session-id=-77", STREAM_ID)
    assert caught.value.code is aa.ErrorCode.INVALID_CHANNEL
    await aeron.add_exclusive_publication(channel + "|session-id=-77", STREAM_ID + 1)


async def test_a_subscription_may_want_one_session_only(aeron: aa.Aeron, channel: str) -> None:
    subscription = await aeron.add_subscription(channel + "|session-id=5", STREAM_ID)
    unwanted = await aeron.add_exclusive_publication(channel + "|session-id=6", STREAM_ID)
    wanted = await aeron.add_exclusive_publication(channel + "|session-id=5", STREAM_ID)
    await wanted.offer(b"for us", timeout=5)
    assert (await anext(subscription)).session_id == 5
    assert not unwanted.is_connected
    everything = await aeron.add_subscription(channel, STREAM_ID)
    await unwanted.offer(b"for all", timeout=5)
    assert 6 in [(await anext(everything)).session_id for _ in everything.images]
    assert [image.session_id for image in subscription.images] == [5]


async def test_the_channel_decides_on_lengths_and_on_where_the_stream_starts(
    aeron: aa.Aeron, channel: str, subscription: aa.Subscription
) -> None:
    publication = await aeron.add_publication(
        channel + "|mtu=4k|term-length=128k|init-term-id=2147483647|term-id=-2147483648"
        "|term-offset=64|linger=1s|eos=false|pub-wnd=8k",
        STREAM_ID,
    )
    assert publication.mtu_length == 4096
    assert publication.term_length == 128 * 1024
    assert publication.max_payload_length == 4096 - 32
    assert publication.max_message_length == 16 * 1024
    assert publication.initial_term_id == 2147483647
    assert publication.position == 128 * 1024 + 64
    await publication.offer(b"somewhere", timeout=5)
    message = await anext(subscription)
    assert message.position == 128 * 1024 + 128
    assert message.image.join_position == 128 * 1024 + 64
    assert message.image.term_length == 128 * 1024
    assert message.image.mtu_length == 4096
    # What was sent alone moves the limit when it is an eighth of the window.
    assert 7 * 1024 < publication.available_window <= 8 * 1024


async def test_without_eos_the_end_of_a_stream_is_not_announced(
    aeron: aa.Aeron, channel: str
) -> None:
    context = aa.DriverContext(term_buffer_length=64 * 1024, image_liveness_timeout_ns=300_000_000)
    async with aa.Aeron.connect(context=context) as receiving:
        subscription = await receiving.add_subscription(channel, STREAM_ID)
        publication = await aeron.add_publication(channel + "|eos=false|linger=0", STREAM_ID)
        await publication.offer(b"x", timeout=5)
        await anext(subscription)
        (image,) = subscription.images
        events = subscription.image_events()
        assert (await anext(events)).kind is aa.ImageEventKind.AVAILABLE
        publication.close()
        reading = asyncio.ensure_future(anext(subscription))
        event = await asyncio.wait_for(anext(events), 10)
        assert event == (aa.ImageEventKind.UNAVAILABLE, image)
        assert image.is_closed
        assert not image.is_end_of_stream
        reading.cancel()


async def test_handlers_hear_of_an_image_before_its_first_message_and_after_its_last(
    aeron: aa.Aeron, channel: str
) -> None:
    heard: list[str] = []
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: failures.append(context["exception"])
    )

    def on_available(image: aa.Image) -> None:
        heard.append(f"available {image.session_id} at {image.position}")

    def on_unavailable(image: aa.Image) -> None:
        heard.append(f"unavailable at {image.position}")
        raise ZeroDivisionError

    context = aa.DriverContext(status_message_timeout_ns=5_000_000)
    async with aa.Aeron.connect(context=context) as receiving:
        subscription = await receiving.add_subscription(
            channel,
            STREAM_ID,
            on_available_image=on_available,
            on_unavailable_image=on_unavailable,
        )
        publication = await aeron.add_publication(channel, STREAM_ID)
        await publication.offer(b"one", timeout=5)
        message = await anext(subscription)
        heard.append(f"message {message.data!r}")
        assert "Image of session" in repr(message.image)
        events = subscription.image_events()
        publication.close()
        waiting = asyncio.ensure_future(anext(subscription))
        assert (await anext(events)).kind is aa.ImageEventKind.AVAILABLE
        assert (await anext(events)).kind is aa.ImageEventKind.UNAVAILABLE
        assert not subscription.images
    with pytest.raises(StopAsyncIteration):
        await waiting
    assert heard == [
        f"available {publication.session_id} at 0",
        "message b'one'",
        "unavailable at 64",
    ]
    assert [type(failure) for failure in failures] == [ZeroDivisionError]


async def test_events_that_nobody_fetches_are_bounded_and_counted(
    subscription: aa.Subscription, publication: aa.Publication
) -> None:
    events = subscription.image_events()
    event = await anext(events)
    for _ in range(1030):
        events.put(event)
    assert events.missed_count == 6
    events.close()
    assert len([each async for each in events]) == 1024


async def test_waiting_for_a_source_ends_with_one_or_with_the_timeout(
    aeron: aa.Aeron, channel: str
) -> None:
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    assert subscription.is_connected is False
    with pytest.raises(aa.AeronTimeoutError, match=r"no publication (on|for)"):
        await subscription.wait_connected(timeout=0.01)
    waiting = asyncio.create_task(subscription.wait_connected(timeout=5))
    publication = await aeron.add_publication(channel, STREAM_ID)
    await waiting
    await publication.wait_connected(timeout=5)
    lonely = await aeron.add_publication(channel, STREAM_ID + 1)
    with pytest.raises(aa.AeronTimeoutError, match="no subscriber connected on"):
        await lonely.wait_connected(timeout=0.01)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
async def test_names_and_both_families_work_and_port_zero_is_reported(
    aeron: aa.Aeron, host: str
) -> None:
    subscription = await aeron.add_subscription(f"aeron:udp?endpoint={host}:0", STREAM_ID)
    twin = await aeron.add_subscription(f"aeron:udp?endpoint={host}:0", STREAM_ID)
    assert twin.local_address != subscription.local_address
    port = subscription.local_address.rpartition(":")[2]
    assert port != "0"
    publication = await aeron.add_publication(f"aeron:udp?endpoint={host}:{port}", STREAM_ID)
    await publication.offer(b"here", timeout=5)
    assert (await anext(subscription)).data == b"here"


async def test_a_publication_may_choose_where_it_sends_from(
    aeron: aa.Aeron, channel: str, unused_udp_port_factory: object
) -> None:
    assert callable(unused_udp_port_factory)
    port = unused_udp_port_factory()
    subscription = await aeron.add_subscription(channel, STREAM_ID)
    publication = await aeron.add_publication(f"{channel}|control=127.0.0.1:{port}", STREAM_ID)
    await publication.offer(b"x", timeout=5)
    message = await anext(subscription)
    assert message.image.source_identity == f"127.0.0.1:{port}"
    other = await aeron.add_publication(f"{channel}|interface=127.0.0.1", STREAM_ID)
    assert other.local_address.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("channel", "reason"),
    [
        ("aeron:udp?endpoint=127.0.0.1:40456|ats=true", "ats"),
    ],
)
async def test_what_this_driver_has_not_is_refused_by_name(
    aeron: aa.Aeron, channel: str, reason: str
) -> None:
    with pytest.raises(aa.RegistrationError, match=reason) as caught:
        await aeron.add_publication(channel, STREAM_ID)
    assert caught.value.code is aa.ErrorCode.NOT_SUPPORTED


async def test_what_cannot_be_had_is_refused_by_name(aeron: aa.Aeron, channel: str) -> None:
    with pytest.raises(aa.ChannelUriError, match="did you mean 'endpoint'"):
        await aeron.add_publication("aeron:udp?endpont=127.0.0.1:1", STREAM_ID)
    with pytest.raises(aa.ConfigurationError, match="signed 32 bits"):
        await aeron.add_subscription(channel, 2**31)
    with pytest.raises(aa.RegistrationError, match="mix IPv4 and IPv6"):
        await aeron.add_publication("aeron:udp?endpoint=localhost:1|control=[::1]:2", STREAM_ID)
    with pytest.raises(aa.RegistrationError, match="no congestion control 'reno'"):
        await aeron.add_subscription(channel + "|cc=reno", STREAM_ID)
    with pytest.raises(aa.RegistrationError, match="channel tag"):
        await aeron.add_subscription("aeron:udp?tags=5", STREAM_ID)
    with pytest.raises(aa.RegistrationError, match="channel tag"):
        await aeron.add_publication("aeron:udp?tags=5", STREAM_ID)
    with pytest.raises(aa.RegistrationError, match="session-id=tag:5 names no publication"):
        await aeron.add_publication(channel + "|session-id=tag:5", STREAM_ID)
    with pytest.raises(aa.RegistrationError, match="rcv-wnd"):
        await aeron.add_subscription(channel + "|rcv-wnd=512m", STREAM_ID)
    with pytest.raises(contradiction(aeron), match="pub-wnd"):
        await aeron.add_publication(channel + "|pub-wnd=64k", STREAM_ID)
    with pytest.raises(aa.ConfigurationError, match="so-sndbuf"):
        await aeron.add_publication(channel + "|so-sndbuf=4k|mtu=8k", STREAM_ID)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(aa.RegistrationError, match=str(port)) as caught:
            await aeron.add_subscription(f"aeron:udp?endpoint=127.0.0.1:{port}", STREAM_ID)
    assert caught.value.code is endpoint_error(aeron)


@pytest.mark.parametrize("interface", ["127.0.0.1", "127.0.0.0/8", "localhost/24", "{lo}"])
async def test_a_publication_leaves_by_the_interface_it_names(
    aeron: aa.Aeron, interface: str
) -> None:
    publication = await aeron.add_publication(
        f"aeron:udp?endpoint=127.0.0.1:40456|interface={interface}", STREAM_ID
    )
    assert publication.local_address.startswith("127.0.0.1:")


async def test_an_interface_that_is_not_there_is_refused_with_those_that_are(
    aeron: aa.Aeron,
) -> None:
    with pytest.raises(
        aa.RegistrationError, match=r"interface missing0.*there are: .*lo"
    ) as caught:
        await aeron.add_publication(
            "aeron:udp?endpoint=127.0.0.1:40456|interface={missing0}", STREAM_ID
        )
    assert caught.value.code is aa.ErrorCode.INVALID_CHANNEL


async def test_a_name_that_does_not_resolve_is_refused_by_name() -> None:
    class NamelessNetwork(SystemNetwork):
        async def resolve(
            self, host: str, port: int, *, is_re_resolution: bool = False
        ) -> tuple[str, int]:
            message = f"{host}:{port} is unknown"
            raise aa.RegistrationError(message, code=aa.ErrorCode.UNKNOWN_HOST)

    driver = aa.MediaDriver.launch(aa.DriverContext(), network=NamelessNetwork())
    async with driver, aa.Aeron.connect(driver) as aeron:
        for add in (aeron.add_publication, aeron.add_subscription):
            with pytest.raises(aa.RegistrationError, match="no-such-host:1 is unknown") as caught:
                await add("aeron:udp?endpoint=no-such-host:1", STREAM_ID)
            assert caught.value.code is aa.ErrorCode.UNKNOWN_HOST


async def test_the_name_of_an_interface_without_braces_is_told_of_them() -> None:
    class RefusingNetwork(SystemNetwork):
        async def resolve(
            self, host: str, port: int, *, is_re_resolution: bool = False
        ) -> tuple[str, int]:
            if host == "127.0.0.1":
                return host, port
            code = aa.ErrorCode.UNKNOWN_HOST if host == "eth0" else aa.ErrorCode.GENERIC
            raise aa.RegistrationError(host, code=code)

    driver = aa.MediaDriver.launch(aa.DriverContext(), network=RefusingNetwork())
    async with driver, aa.Aeron.connect(driver) as aeron:
        channel = "aeron:udp?endpoint=127.0.0.1:40456|interface="
        with pytest.raises(aa.RegistrationError, match=r"in braces: interface=\{eth0\}") as caught:
            await aeron.add_publication(f"{channel}eth0", STREAM_ID)
        assert caught.value.code is aa.ErrorCode.UNKNOWN_HOST
        with pytest.raises(aa.RegistrationError, match=r"^eth1( \(channel .*\))?$"):
            await aeron.add_publication(f"{channel}eth1", STREAM_ID)


async def test_a_port_that_is_taken_is_told_in_few_lines(aeron: aa.Aeron, channel: str) -> None:
    await aeron.add_subscription(channel, STREAM_ID)
    async with aa.Aeron.connect() as other:
        with pytest.raises(aa.RegistrationError, match="another socket holds this port") as caught:
            await other.add_subscription(channel, STREAM_ID)
    text = "".join(traceback.format_exception(caught.value))
    # Some versions of Python underline more than others.
    lines = [line for line in text.splitlines() if line.strip(" ^~")]
    assert len(lines) < 18
    assert "direct cause" not in "".join(lines)


async def test_subscriptions_of_one_stream_agree_on_their_guarantees(
    aeron: aa.Aeron, channel: str
) -> None:
    await aeron.add_subscription(channel, STREAM_ID)
    with pytest.raises(contradiction(aeron), match="reliable=false differs"):
        await aeron.add_subscription(channel + "|reliable=false", STREAM_ID)
    with pytest.raises(contradiction(aeron), match="rejoin=false differs"):
        await aeron.add_subscription(channel + "|rejoin=false", STREAM_ID)
    await aeron.add_subscription(channel + "|reliable=false|session-id=5", STREAM_ID)
    await aeron.add_subscription(channel + "|reliable=false", STREAM_ID + 1)


async def test_hostile_datagrams_move_counters_and_nothing_else(
    aeron: aa.Aeron,
    driver: aa.MediaDriver,
    publication: aa.Publication,
    subscription: aa.Subscription,
) -> None:
    host, _, port = subscription.local_address.rpartition(":")
    hostile = [
        b"",
        b"\x00",
        bytes(7),
        bytes(33),
        b"\xff" * 64,
        *(
            (length).to_bytes(4, "little", signed=True)
            + bytes([0, 0xC0])
            + kind.to_bytes(2, "little")
            + bytes(56)
            for kind in FrameType
            for length in (-1, 0, 1, 31, 64, 2**31 - 1)
        ),
    ]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for datagram in hostile * 3:
            stranger.sendto(datagram, (host, int(port)))
    await publication.offer_many([b"%d" % number for number in range(200)])
    assert await collect(subscription, 200) == [b"%d" % number for number in range(200)]
    assert len(subscription.images) == 1
    invalid = [record for record in driver.counters.snapshot() if record.label == "Invalid packets"]
    assert invalid[0].value > 0


async def collect(subscription: aa.Subscription, count: int) -> list[bytes]:
    return [(await anext(subscription)).data for _ in range(count)]


async def test_a_stream_larger_than_the_budget_is_refused_and_counted(
    aeron: aa.Aeron, channel: str
) -> None:
    context = aa.DriverContext(max_image_term_length=64 * 1024)
    async with aa.Aeron.connect(context=context) as receiving:
        await receiving.add_subscription(channel, STREAM_ID)
        publication = await aeron.add_publication(channel + "|term-length=128k", STREAM_ID)
        with pytest.raises(aa.AeronTimeoutError):
            await publication.wait_connected(timeout=0.05)
        refused = [
            record.value
            for record in receiving.counters.snapshot()
            if "mages refused" in record.label
        ]
        assert refused
        assert refused[0] >= 1
        fitting = await aeron.add_exclusive_publication(channel, STREAM_ID)
        await fitting.wait_connected(timeout=5)
