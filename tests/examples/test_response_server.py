"""The server that the page on request and response shows: no client can stop it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

import aeron_async as aa
from examples import response_server
from tests.client.local import until
from tests.drivers import embedded
from tests.examples.programs import TIMEOUT_S, channel, start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

CONTEXT = aa.DriverContext(
    term_buffer_length=64 * 1024,
    publication_linger_timeout_ns=100_000_000,
    close_linger_timeout_ns=1_000_000,
)


class Client:
    """Asks on a stream of its own, and hears its own answers."""

    def __init__(self, requests: aa.Publication, answers: aa.Subscription) -> None:
        self.requests = requests
        self.answers = answers

    @classmethod
    async def of(cls, aeron: aa.Aeron, requests: str, control: str) -> Client:
        answers = await aeron.add_subscription(
            aa.Channel.response(control, endpoint="127.0.0.1:0"), 1002
        )
        uri = aa.Channel.udp(requests, response_correlation_id=answers.registration_id)
        return cls(await aeron.add_exclusive_publication(uri, 1001), answers)

    async def ask(self, text: bytes) -> bytes:
        await self.requests.offer(text, timeout=5)
        return (await asyncio.wait_for(anext(self.answers), 5)).data

    async def leave(self) -> None:
        await self.requests.aclose()
        await self.answers.aclose()


@pytest.fixture
def addresses(
    unused_udp_port_factory: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str]:
    requests, control = (f"127.0.0.1:{unused_udp_port_factory()}" for _ in range(2))
    monkeypatch.setattr(response_server, "REQUESTS", requests)
    monkeypatch.setattr(response_server, "CONTROL", control)
    return requests, control


@pytest.fixture
async def server(addresses: tuple[str, str]) -> AsyncIterator[aa.Aeron]:
    async with aa.Aeron.connect(context=CONTEXT) as server:
        serving = asyncio.create_task(response_server.serve(server))
        yield server
        assert not serving.done(), "somebody stopped it"
        await server.aclose()
        await serving


@pytest.fixture
async def aeron() -> AsyncIterator[aa.Aeron]:
    async with aa.Aeron.connect(context=CONTEXT) as aeron:
        yield aeron


def answering(server: aa.Aeron) -> int:
    return len(tuple(embedded(server).conductor.network_publications))


async def test_a_plain_request_does_not_stop_the_server(
    server: aa.Aeron, aeron: aa.Aeron, addresses: tuple[str, str]
) -> None:
    plain = await aeron.add_publication(aa.Channel.udp(addresses[0]), 1001)
    await plain.offer_many([b"no", b"answer"], timeout=5)
    client = await Client.of(aeron, *addresses)
    assert await client.ask(b"one") == b"ONE"
    await plain.offer(b"please", timeout=5)
    assert await client.ask(b"two") == b"TWO"
    assert answering(server) == 1


async def test_the_publications_of_clients_that_left_are_closed(
    server: aa.Aeron, aeron: aa.Aeron, addresses: tuple[str, str]
) -> None:
    for number in range(5):
        client = await Client.of(aeron, *addresses)
        assert await client.ask(b"%d" % number) == b"%d" % number
        await client.leave()
    try:
        await until(lambda: answering(server) == 0)
    except TimeoutError:
        left = [
            f"{each.state} connected={each.is_connected} ended={each.is_end_of_stream} "
            f"goodbye={each.has_unicast_eos} receivers={each.has_receivers} "
            f"sent={each.sender_position} of {each.producer_position}"
            for each in embedded(server).conductor.network_publications
        ]
        pytest.fail(f"still there: {left}")


@pytest.mark.usefixtures("server")
async def test_one_client_too_many_is_told_so(
    aeron: aa.Aeron, addresses: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_server, "CLIENT_LIMIT", 1)
    first, second = [await Client.of(aeron, *addresses) for _ in range(2)]
    assert await first.ask(b"one") == b"ONE"
    await second.requests.offer(b"two", timeout=5)
    await until(lambda: second.requests.last_error)
    assert "1 clients are served already" in str(second.requests.last_error)
    assert await first.ask(b"three") == b"THREE"


async def test_a_request_that_is_longer_than_any_answer_can_be_does_not_stop_the_server(
    server: aa.Aeron, addresses: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    longer = evolve(CONTEXT, term_buffer_length=1024 * 1024)
    async with aa.Aeron.connect(context=longer) as aeron:
        client, other = [await Client.of(aeron, *addresses) for _ in range(2)]
        await client.requests.offer(bytes(100_000), timeout=5)
        assert await other.ask(b"one") == b"ONE"
        assert "100000 bytes" in capsys.readouterr().out
        assert answering(server) == 1


async def test_a_client_that_takes_no_answers_is_given_up_and_the_others_are_not(
    server: aa.Aeron,
    aeron: aa.Aeron,
    addresses: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(response_server, "PATIENCE_S", 0.2)
    deaf = await Client.of(aeron, *addresses)
    await deaf.answers.aclose()
    await deaf.requests.offer_many([b"one", b"two"], timeout=5)
    client = await Client.of(aeron, *addresses)
    assert await client.ask(b"three") == b"THREE"
    assert "no subscriber connected" in capsys.readouterr().out
    await until(lambda: answering(server) == 1)


async def test_a_client_that_leaves_while_it_is_answered_leaves_nothing(
    server: aa.Aeron,
    aeron: aa.Aeron,
    addresses: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(response_server, "PATIENCE_S", 0.1)
    async with AsyncExitStack() as stack:
        for _ in range(5):
            client = await Client.of(aeron, *addresses)
            stack.push_async_callback(client.leave)
            await client.requests.offer(b"one", timeout=5)
    await until(lambda: answering(server) == 0)


async def test_it_serves_as_a_program_of_its_own(
    aeron: aa.Aeron, unused_udp_port_factory: Callable[[], int]
) -> None:
    ports = unused_udp_port_factory(), unused_udp_port_factory()
    program = start("response_server", CHANNEL=channel(ports[0]), REPLY_CHANNEL=channel(ports[1]))
    try:
        requests, control = (f"127.0.0.1:{port}" for port in ports)
        plain = await aeron.add_publication(aa.Channel.udp(requests), 1001)
        await plain.offer(b"no answer", timeout=TIMEOUT_S)
        client = await Client.of(aeron, requests, control)
        assert await client.ask(b"one") == b"ONE"
    finally:
        program.kill()
        program.communicate(timeout=TIMEOUT_S)
