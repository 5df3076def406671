"""Loss on purpose: what each generator drops, how it is configured, and who repairs it."""

from __future__ import annotations

import asyncio
from array import array
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aeron_async as aa
from aeron_async.driver.core import loss_generator
from aeron_async.driver.core.loss_generator import (
    FixedLoss,
    LossGenerator,
    LossGenerators,
    MultiGapLoss,
    RandomLoss,
)
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.driver.media.lossy_network import LossyNetwork, LossyProtocol
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.header import FrameType
from aeron_async.testing.world import simulate
from tests.client.fake_network import FakeNetwork
from tests.driver.fakes import SOURCE, data, heartbeat, pad, setup
from tests.logbuffer.logs import INITIAL_TERM_ID, TERM_LENGTH

if TYPE_CHECKING:
    from aeron_async.testing.world import World

TERM = {"term_id": INITIAL_TERM_ID}
GENERATORS: tuple[LossGenerator, ...] = (
    RandomLoss(rate=1),
    FixedLoss(term_id=INITIAL_TERM_ID, term_offset=0, length=TERM_LENGTH),
    MultiGapLoss(term_id=INITIAL_TERM_ID, gap_radix=64, gap_length=64, total_gaps=1),
)


def dropped(generator: LossGenerator, *datagrams: bytes) -> list[bool]:
    return [generator.should_drop(each) for each in datagrams]


def offsets(generator: LossGenerator, end: int, length: int = 64) -> list[int]:
    """Return where the datagrams begin that a generator drops of a term's first bytes."""
    every = range(0, end, length)
    return [each for each in every if generator.should_drop(data(each, length))]


# At random.


def test_the_numbers_are_those_of_the_c_driver() -> None:
    # As POSIX defines erand48: the state is seed << 32 here, and its first number follows.
    state = (0x1234 << 32) * 0x5DEECE66D + 0xB & (1 << 48) - 1
    number = state / (1 << 48)
    assert RandomLoss(rate=number, seed=0x1234).should_drop(data(0, 64))
    assert not RandomLoss(rate=number * (1 - 1e-9), seed=0x1234).should_drop(data(0, 64))


def test_the_same_seed_drops_the_same() -> None:
    one, same, other = (RandomLoss(rate=0.3, seed=seed) for seed in (7, 7, 8))
    datagrams = [data(64 * index, 64) for index in range(1_000)]
    assert dropped(one, *datagrams) == dropped(same, *datagrams) != dropped(other, *datagrams)


def test_the_rate_is_kept() -> None:
    generator = RandomLoss(rate=0.3, seed=1)
    assert 250 < sum(dropped(generator, *[data(0, 64)] * 1_000)) < 350
    assert not any(dropped(RandomLoss(rate=0), *[data(0, 64)] * 100))
    assert all(dropped(RandomLoss(rate=1), *[data(0, 64)] * 100))


def test_only_the_types_of_the_mask_are_dropped() -> None:
    frames = (data(0, 64), pad(0, 64), setup().encode())
    assert dropped(RandomLoss(rate=1, type_mask=1 << FrameType.DATA), *frames) == [
        True,
        False,
        False,
    ]
    assert dropped(RandomLoss(rate=1, type_mask=1 << FrameType.SETUP), *frames) == [
        False,
        False,
        True,
    ]


def test_a_type_beyond_the_mask_is_not_dropped() -> None:
    extension = bytes(6) + b"\xff\xff"
    assert dropped(RandomLoss(rate=1), extension, b"") == [False, False]


# In known places.


def test_a_range_is_dropped_once() -> None:
    generator = FixedLoss(**TERM, term_offset=100, length=100)
    assert offsets(generator, 512) == [64, 128, 192]
    assert offsets(generator, 512) == []


def test_another_term_is_not_touched() -> None:
    assert offsets(FixedLoss(term_id=INITIAL_TERM_ID + 1, term_offset=0, length=512), 512) == []


def test_each_stream_has_its_own_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = FixedLoss(**TERM, term_offset=0, length=64)
    monkeypatch.setattr(loss_generator, "STREAMS_MAX", 2)
    streams = [data(0, 64, session_id=each) for each in (1, 2, 3)]
    assert dropped(generator, *streams) == [True, True, False], "no more are remembered"


def test_what_is_no_data_is_not_dropped_and_does_not_use_up_the_loss() -> None:
    generator = FixedLoss(**TERM, term_offset=0, length=64)
    others = (heartbeat(0), pad(0, 64), setup().encode(), b"short")
    assert not any(dropped(generator, *others))
    assert generator.should_drop(data(0, 64))


def test_gaps_begin_at_each_multiple_but_the_first() -> None:
    generator = MultiGapLoss(**TERM, gap_radix=1_024, gap_length=100, total_gaps=3)
    assert offsets(generator, 8_192) == [1_024, 1_088, 2_048, 2_112, 3_072, 3_136]
    assert offsets(generator, 8_192) == []


def test_a_datagram_that_reaches_into_a_gap_is_dropped() -> None:
    generator = MultiGapLoss(**TERM, gap_radix=1_000, gap_length=1, total_gaps=3)
    assert offsets(generator, 4_096, 96) == [960, 2_016], "the length was rounded up to 1,024"


@given(datagram=st.binary(max_size=64))
def test_any_bytes_are_decided_upon(datagram: bytes) -> None:
    assert all(each.should_drop(datagram) in {True, False} for each in GENERATORS)


@given(order=st.permutations(range(12)))
def test_what_is_sent_again_for_what_was_dropped_arrives(order: list[int]) -> None:
    generator = FixedLoss(**TERM, term_offset=64, length=512)
    lost = [each for each in order if generator.should_drop(data(64 * each, 64))]
    assert not any(generator.should_drop(data(64 * each, 64)) for each in lost)


# As they are configured.


def generators(**settings: str) -> LossGenerators:
    return LossGenerators(aa.DriverContext(**settings))  # type: ignore[arg-type]


def test_nothing_is_lost_unless_it_is_asked_for() -> None:
    assert not generators(udp_channel_loss_args="rate=1")
    network = FakeNetwork()
    assert LossyNetwork.of(network, aa.DriverContext()) is network


def test_the_variables_are_those_of_the_c_driver() -> None:
    context = aa.DriverContext.from_environment(
        {
            "AERON_UDP_CHANNEL_INCOMING_INTERCEPTORS": "loss,fixed-loss, multi-gap-loss",
            "AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_LOSS_ARGS": (
                "rate=0.25|seed=4294967296|recv-msg-mask=0x2"
            ),
            "AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_FIXED_LOSS_ARGS": (
                "term-id=-5|term-offset=102|length=100000"
            ),
            "AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_MULTI_GAP_LOSS_ARGS": (
                "term-id=0|gap-radix=8192|gap-length=1024|total-gaps=4"
            ),
        }
    )
    made = LossGenerators(context)
    kinds = [type(each) for each in made.of_socket()]
    assert kinds == [RandomLoss, FixedLoss, MultiGapLoss]
    (first, second, third), (again, *others) = made.of_socket(), made.of_socket()
    assert first is again, "all sockets draw from one sequence"
    assert second is not others[0]
    assert third is not others[1]


FIXED = {"udp_channel_incoming_interceptors": "fixed-loss"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"udp_channel_incoming_interceptors": "los"}, "'los'"),
        ({"udp_channel_incoming_interceptors": "loss"}, "lacks rate"),
        (FIXED | {"udp_channel_fixed_loss_args": "term-id=1"}, "lacks term-offset, length"),
        (FIXED | {"udp_channel_fixed_loss_args": "rate=1"}, "'rate'"),
        (FIXED | {"udp_channel_fixed_loss_args": "term-id=x"}, "term-id=x"),
        (FIXED | {"udp_channel_fixed_loss_args": "length=0"}, "at least 1"),
    ],
)
def test_what_is_written_wrong_is_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match="udp_channel_") as caught:
        generators(**settings)
    assert said in str(caught.value)


# Between the socket and its endpoint.


class Endpoint(asyncio.DatagramProtocol):
    """Notes what it is told; a datagram of one byte makes it fail."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def connection_made(self, transport: Any) -> None:
        self.told.append(("made", transport))

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append(("lost", exc))

    def error_received(self, exc: Exception) -> None:
        self.told.append(("error", exc))

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def reading(self, is_begun: bool, /) -> None:  # noqa: FBT001 - the transport's way
        self.told.append(("reading", is_begun))

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.told.append((bytes(data), addr))
        if len(data) == 1:
            raise ValueError(bytes(data))


def test_a_batch_loses_its_datagrams_one_by_one() -> None:
    endpoint = Endpoint()
    protocol = LossyProtocol(endpoint, (FixedLoss(**TERM, term_offset=64, length=64),))
    batch = b"".join(data(each, 64) for each in (0, 64, 128))
    protocol.datagrams_received(memoryview(batch), 64, SOURCE)
    protocol.datagram_received(data(192, 64), SOURCE)
    assert endpoint.told == [(data(each, 64), SOURCE) for each in (0, 128, 192)]


def test_a_datagram_that_fails_does_not_lose_the_others() -> None:
    endpoint = Endpoint()
    protocol = LossyProtocol(endpoint, ())
    segments = array("i", (2, 1, 5, 2))
    with pytest.raises(ExceptionGroup) as caught:
        protocol.batches_received(memoryview(b"abccd"), segments, SOURCE)
    assert [each.args for each in caught.value.exceptions] == [(b"a",), (b"b",), (b"d",)]
    assert [each for each, _ in endpoint.told] == [b"a", b"b", b"cc", b"d"]


def test_all_else_reaches_the_endpoint_as_it_is() -> None:
    endpoint = Endpoint()
    protocol: Any = LossyProtocol(endpoint, ())
    error = OSError("gone")
    protocol.connection_made(None)
    protocol.reading(True)
    protocol.pause_writing()
    protocol.resume_writing()
    protocol.error_received(error)
    protocol.connection_lost(error)
    assert endpoint.told == [
        ("made", None),
        ("reading", True),
        "pause",
        "resume",
        ("error", error),
        ("lost", error),
    ]
    assert not hasattr(protocol, "media_timestamp_received"), "nor has the endpoint"


@pytest.mark.parametrize(
    "settings",
    [
        {"interceptors": "loss", "loss_args": "rate=0.2|seed=3|recv-msg-mask=0xf"},
        {"interceptors": "fixed-loss", "fixed_loss_args": "term-id=0|term-offset=99|length=9999"},
        {
            "interceptors": "multi-gap-loss",
            "multi_gap_loss_args": "term-id=0|gap-radix=8192|gap-length=1024|total-gaps=4",
        },
    ],
)
def test_a_driver_repairs_what_it_loses(settings: dict[str, Any]) -> None:
    interceptors = settings.pop("interceptors")
    context = aa.DriverContext(
        udp_channel_incoming_interceptors=interceptors,
        **{f"udp_channel_{key}": value for key, value in settings.items()},
    )

    async def story(world: World) -> tuple[int, list[int]]:
        alice, bob = world.host("alice"), world.host("bob")
        channel = "aeron:udp?endpoint=bob:20121"
        async with alice.aeron() as sending, bob.aeron(context) as receiving:
            subscription = await receiving.add_subscription(channel, 1)
            publication = await sending.add_exclusive_publication(
                f"{channel}|init-term-id=0|term-id=0|term-offset=0|term-length=1m", 1
            )
            for number in range(100):
                await publication.offer(number.to_bytes(4, "little") * 250)
            taken = [(await anext(subscription)).data[0] for _ in range(100)]
            (naks_sent,) = (
                record.value
                for record in receiving.counters
                if record.type_id == 0 and record.counter_id == SystemCounterId.NAK_MESSAGES_SENT
            )
            return naks_sent, taken

    naks_sent, taken = simulate(story)
    assert taken == list(range(100))
    assert naks_sent > 0
