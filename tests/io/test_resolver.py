from __future__ import annotations

import socket
from typing import Any

import pytest

from aeron_async.driver.media.channel_resolver import (
    numeric_publication,
    numeric_subscription,
    resolve_publication,
    resolve_subscription,
)
from aeron_async.driver.media.network import SystemNetwork, resolve_host
from aeron_async.errors import ErrorCode, RegistrationError
from aeron_async.protocol.channel_uri import ChannelUri

IPV6 = (socket.AF_INET6, socket.SOCK_DGRAM, 17, "", ("2001:db8::1", 40456, 0, 0))
IPV4 = (socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("192.0.2.1", 40456))
OTHER_IPV4 = (socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("192.0.2.2", 40456))
UNIX = (socket.AF_UNIX, socket.SOCK_DGRAM, 0, "", ("somewhere", 0))


class FakeLoop:
    """A name server of one answer."""

    def __init__(self, answer: list[Any] | Exception) -> None:
        self._answer = answer

    async def getaddrinfo(self, host: str, port: int, **_: object) -> list[Any]:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def resolve(answer: list[Any] | Exception, host: str = "node-7") -> tuple[str, int]:
    loop: Any = FakeLoop(answer)
    return await resolve_host(host, 40456, loop=loop)


async def test_the_machine_knows_itself() -> None:
    assert await SystemNetwork().resolve("localhost", 40456) == ("127.0.0.1", 40456)


@pytest.mark.parametrize("host", ["192.0.2.7", "::1", "fe80::1%eth0"])
async def test_a_numeric_host_is_never_looked_up(host: str) -> None:
    assert await resolve(AssertionError("asked"), host) == (host, 40456)


async def test_ipv4_comes_first_and_then_the_order_of_the_answer() -> None:
    assert await resolve([IPV6, IPV4, OTHER_IPV4]) == ("192.0.2.1", 40456)


async def test_ipv6_serves_where_there_is_nothing_else() -> None:
    assert await resolve([UNIX, IPV6]) == ("2001:db8::1", 40456)


@pytest.mark.parametrize(
    "answer",
    [
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        UnicodeError("label empty or too long"),
        OSError("the resolver is gone"),
        [UNIX],
        [],
    ],
)
async def test_an_unknown_host_is_named(answer: list[Any] | Exception) -> None:
    with pytest.raises(RegistrationError, match="cannot resolve host 'node-7'") as refusal:
        await resolve(answer)
    assert refusal.value.code is ErrorCode.UNKNOWN_HOST


# Channels whose addresses are numeric.

NUMERIC = [
    "aeron:udp?endpoint=127.0.0.1:40456",
    "aeron:udp?endpoint=[::1]:40456",
    "aeron:udp?endpoint=[2001:DB8:0:0::1]:40456",
    "aeron:udp?endpoint=[fe80::1%eth0]:40456",
    "aeron:udp?control=127.0.0.1:40457|control-mode=dynamic",
    "aeron:udp?endpoint=127.0.0.1:40456|control=127.0.0.1:40457|control-mode=dynamic",
    "aeron:udp?control-mode=manual",
]
TO_RESOLVE = [
    "aeron:udp?endpoint=localhost:40456",
    "aeron:udp?endpoint=127.0.0.1:40456|control=localhost:40457|control-mode=dynamic",
    "aeron:udp?endpoint=127.0.0.1:40456|interface=127.0.0.1",
    "aeron:udp?endpoint=239.1.1.1:40456",
    "aeron:udp?endpoint=[ff02::1]:40456",
]


@pytest.mark.parametrize("channel", NUMERIC)
async def test_a_numeric_channel_is_what_resolving_it_gives(channel: str) -> None:
    uri, network = ChannelUri.parse(channel), SystemNetwork()
    sender = numeric_publication(uri, unique_suffix="7")
    assert sender is not None
    assert sender == await resolve_publication(network, uri, unique_suffix="7")
    receiver = numeric_subscription(uri, unique_suffix="8")
    assert receiver is not None
    assert receiver == await resolve_subscription(network, uri, unique_suffix="8")


@pytest.mark.parametrize("channel", TO_RESOLVE)
def test_names_interfaces_and_groups_are_resolved(channel: str) -> None:
    uri = ChannelUri.parse(channel)
    assert numeric_publication(uri, unique_suffix="7") is None
    assert numeric_subscription(uri, unique_suffix="8") is None
