"""Names looked up by a resolver of the application's own, and the time that takes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async.driver.core.system_counters import SystemCounterId
from aeron_async.errors import ConfigurationError
from tests.client.fake_network import FakeNetwork
from tests.drivers import CLOCK, embedded_only

if TYPE_CHECKING:
    from collections.abc import Callable

CHANNEL = "aeron:udp?endpoint=node-7:40456"
MS = 1_000_000


class Resolver:
    """Knows one name; takes as long as it is told, of a clock that stands otherwise."""

    def __init__(self, answer: str = "127.0.0.1", *, takes_ns: int = 0) -> None:
        self.answer = answer
        self.takes_ns = takes_ns
        self.clock = StandingClock()
        self.asked: list[tuple[str, int, bool]] = []
        self.failure: Exception | None = None

    async def resolve(
        self, host: str, port: int, *, is_re_resolution: bool = False
    ) -> tuple[str, int]:
        self.asked.append((host, port, is_re_resolution))
        self.clock.time_ns += self.takes_ns
        if self.failure is not None:
            raise self.failure
        return self.answer, port


class StandingClock:
    def __init__(self) -> None:
        self.time_ns = 1

    def now_ns(self) -> int:
        return self.time_ns

    def epoch_ms(self) -> int:
        return self.time_ns // MS

    def epoch_ns(self) -> int:
        return self.time_ns


def counters(driver: aa.MediaDriver) -> tuple[int, int]:
    """Return the longest look-up, and how many were slow."""
    return (
        driver.counters.value(SystemCounterId.NAME_RESOLVER_MAX_TIME),
        driver.counters.value(SystemCounterId.NAME_RESOLVER_TIME_THRESHOLD_EXCEEDED),
    )


def launch(supplier: Any, **more: Any) -> aa.MediaDriver:
    context = aa.DriverContext(name_resolver_supplier=supplier, name_resolver_threshold_ns=5 * MS)
    driver: aa.MediaDriver = aa.MediaDriver.launch(context, network=FakeNetwork(), **more)
    return driver


async def test_a_resolver_is_an_instance_a_class_or_a_factory() -> None:
    made = Resolver()
    suppliers: list[Any] = [made, Resolver, lambda: made]
    for supplier in suppliers:
        driver = launch(supplier)
        async with driver, aa.Aeron.connect(driver) as aeron:
            await aeron.add_subscription(CHANNEL, 1)
    assert made.asked == [("node-7", 40456, False)] * 2


async def test_numeric_hosts_are_not_asked_for() -> None:
    resolver = Resolver()
    driver = launch(resolver)
    async with driver, aa.Aeron.connect(driver) as aeron:
        await aeron.add_subscription("aeron:udp?endpoint=127.0.0.1:40456", 1)
        assert counters(driver) == (0, 0)
    assert resolver.asked == []


@embedded_only(CLOCK)
async def test_the_longest_look_up_is_kept_and_slow_ones_are_counted() -> None:
    resolver = Resolver(takes_ns=5 * MS)
    driver = launch(resolver, clock=resolver.clock)
    async with driver, aa.Aeron.connect(driver) as aeron:
        network = driver.conductor._resources.network
        await aeron.add_subscription(CHANNEL, 1)
        assert counters(driver) == (5 * MS, 0)
        resolver.takes_ns += 1
        await network.resolve("node-7", 1, is_re_resolution=True)
        assert counters(driver) == (5 * MS + 1, 1)
        assert resolver.asked[-1] == ("node-7", 1, True)
        resolver.takes_ns = 1
        await network.resolve("node-7", 1)
        assert counters(driver) == (5 * MS + 1, 1)


def fail(resolver: Resolver) -> None:
    resolver.failure = KeyError("no such name")


def forget(resolver: Resolver) -> None:
    resolver.answer = "node-8"


@pytest.mark.parametrize(
    ("breaks", "reason"),
    [
        (fail, "cannot resolve host 'node-7': the name resolver failed: KeyError"),
        (forget, "cannot resolve host 'node-7': the name resolver answered 'node-8'"),
    ],
)
async def test_a_resolver_that_fails_makes_an_unknown_host(
    breaks: Callable[[Resolver], None], reason: str
) -> None:
    resolver = Resolver()
    breaks(resolver)
    driver = launch(resolver)
    async with driver, aa.Aeron.connect(driver) as aeron:
        for add in (aeron.add_publication, aeron.add_subscription):
            with pytest.raises(aa.RegistrationError, match=reason) as refusal:
                await add(CHANNEL, 1)
            assert refusal.value.code is aa.ErrorCode.UNKNOWN_HOST


async def test_a_refusal_of_the_resolvers_own_is_passed_on() -> None:
    resolver = Resolver()
    resolver.failure = aa.RegistrationError("ask again later", code=aa.ErrorCode.GENERIC)
    driver = launch(resolver)
    async with driver, aa.Aeron.connect(driver) as aeron:
        with pytest.raises(aa.RegistrationError, match="ask again later"):
            await aeron.add_publication(CHANNEL, 1)


async def test_the_end_of_the_driver_cuts_a_look_up_short() -> None:
    network = FakeNetwork()
    network.names.clear()
    driver = aa.MediaDriver.launch(aa.DriverContext(), network=network)
    async with driver, aa.Aeron.connect(driver) as aeron:
        adding = asyncio.ensure_future(aeron.add_subscription(CHANNEL, 1))
        await asyncio.sleep(0)
    with pytest.raises(aa.ClosedError):
        await adding


@pytest.mark.parametrize("supplier", [7, "elsewhere", None])
def test_what_cannot_resolve_is_refused_before_anything_starts(supplier: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"aeron\.name\.resolver\.supplier"):
        aa.DriverContext(name_resolver_supplier=supplier)


async def test_a_factory_that_makes_something_else_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has no method resolve"):
        await launch(object).start()


async def test_a_registered_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Resolver()
    for module in ("strategies", "suppliers"):
        monkeypatch.setattr(
            f"aeron_async.driver.core.{module}.find_registered",
            lambda group, name: (lambda: made) if (group, name) == KNOWN else None,
        )
    driver = launch("mine")
    async with driver, aa.Aeron.connect(driver) as aeron:
        await aeron.add_subscription(CHANNEL, 1)
    assert made.asked


KNOWN = ("aeron_async.name_resolver", "mine")


async def test_a_look_up_that_outlives_the_driver_breaks_nothing() -> None:
    driver = launch(Resolver())
    async with driver:
        network = driver.conductor._resources.network
    assert await network.resolve("node-7", 1) == ("127.0.0.1", 1)


async def test_a_look_up_cleans_up_when_the_driver_closes() -> None:
    begun, done = asyncio.Event(), []

    class Slow(Resolver):
        async def resolve(
            self, host: str, port: int, *, is_re_resolution: bool = False
        ) -> tuple[str, int]:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                done.append(host)
            return "", port

    driver = launch(Slow())
    async with driver, aa.Aeron.connect(driver) as aeron:
        adding = asyncio.ensure_future(aeron.add_subscription(CHANNEL, 1))
        await begun.wait()
        await driver.aclose()
        assert done == ["node-7"]
        with pytest.raises(aa.ClosedError):
            await adding
