"""Subscriptions that know their session ask for its SETUP at once, where they know whom to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

import aeron_async as aa
from aeron_async.clock import NEVER_NS, NS_PER_SECOND
from aeron_async.protocol.datagram import frames
from aeron_async.protocol.header import StatusMessageFlags
from aeron_async.protocol.setup import ResponseSetup
from aeron_async.protocol.status_message import StatusMessage
from tests.client.fake_network import FakeNetwork, FakeTransport
from tests.client.test_agents import JumpingClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STREAM_ID = 1001
CONTROL = ("127.0.0.1", 40_457)
DYNAMIC = "aeron:udp?endpoint=127.0.0.1:40456|control=127.0.0.1:40457|control-mode=dynamic"
RESPONSE = "aeron:udp?control=127.0.0.1:40457|control-mode=response"


@pytest.fixture
def network() -> FakeNetwork:
    return FakeNetwork()


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
async def driver(network: FakeNetwork, clock: JumpingClock) -> AsyncIterator[aa.MediaDriver]:
    context = aa.DriverContext(
        term_buffer_length=64 * 1024,
        loop_lag_threshold_ns=3_600 * NS_PER_SECOND,
        publication_linger_timeout_ns=1_000,
        close_linger_timeout_ns=1_000_000,
    )
    async with aa.MediaDriver.launch(context, network=network, clock=clock, seed=3) as driver:
        yield driver


def asked(transport: FakeTransport) -> list[tuple[int, int]]:
    """Return session and stream of each SETUP asked for, but for those of whoever is there."""
    found = []
    for datagram, address in transport.sent:
        for frame in frames(datagram):
            assert isinstance(frame, StatusMessage)
            assert (frame.flags, frame.receiver_window) == (StatusMessageFlags.SEND_SETUP, 0)
            assert address == CONTROL
            if frame.stream_id:
                found.append((frame.session_id, frame.stream_id))
    transport.sent.clear()
    return found


async def test_a_subscription_to_one_session_asks_for_its_setup_when_it_is_added(
    aeron: aa.Aeron, network: FakeNetwork
) -> None:
    await aeron.add_subscription(f"{DYNAMIC}|session-id=77", STREAM_ID)
    (transport,) = network.transports
    assert asked(transport) == [(77, STREAM_ID)]
    await aeron.add_subscription(DYNAMIC, STREAM_ID + 1)
    assert asked(transport) == [], "it does not know which"
    await aeron.add_subscription(f"{DYNAMIC}|session-id=78", STREAM_ID + 2)
    assert asked(transport) == [(78, STREAM_ID + 2)]


async def test_without_a_control_address_there_is_nobody_to_ask(
    aeron: aa.Aeron, network: FakeNetwork
) -> None:
    await aeron.add_subscription("aeron:udp?endpoint=127.0.0.1:40456|session-id=77", STREAM_ID)
    assert network.transports[0].sent == []


async def test_the_setup_of_responses_is_asked_for_whenever_their_session_is_named(
    aeron: aa.Aeron, network: FakeNetwork, clock: JumpingClock
) -> None:
    subscription = await aeron.add_subscription(RESPONSE, STREAM_ID)
    publication = await aeron.add_publication(
        "aeron:udp?endpoint=127.0.0.1:40458"
        f"|response-correlation-id={subscription.registration_id}",
        STREAM_ID,
    )
    receiving, sending = network.transports
    assert asked(receiving) == []
    named = ResponseSetup(
        session_id=publication.session_id, stream_id=STREAM_ID, response_session_id=77
    ).encode()
    for _ in range(3):
        sending.protocol.datagram_received(named, ("127.0.0.1", 40_458))
        assert asked(receiving) == [(77, STREAM_ID)]
        clock.leap_ns += NS_PER_SECOND


async def test_a_turn_looks_at_no_image_unless_a_subscription_follows_its_server(
    aeron: aa.Aeron, driver: aa.MediaDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be thousands of others, and a command for each makes a turn."""
    responses = driver.conductor._subscriptions.responses
    look = Mock(return_value={})
    monkeypatch.setattr(responses, "_silent_from", look)
    for each in (DYNAMIC, "aeron:ipc", f"{RESPONSE}|session-id=5"):
        await aeron.add_subscription(each, STREAM_ID)
    assert responses.poll(0) == NEVER_NS
    following = await aeron.add_subscription(RESPONSE, STREAM_ID + 1)
    assert responses.poll(0) == NEVER_NS, "it has no session yet"
    look.assert_not_called()
    responses.on_response_setup(following.registration_id, 7)
    assert responses.poll(0) < NEVER_NS
    look.assert_called()
    look.reset_mock()
    await following.aclose()
    assert responses.poll(0) == NEVER_NS
    look.assert_not_called()
