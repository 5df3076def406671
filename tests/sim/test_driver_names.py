"""Drivers that tell each other their names, and streams that lead to a driver by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

import aeron_async as aa
from aeron_async.errors import DriverError
from aeron_async.testing.world import simulate
from tests.sim.test_names import until

if TYPE_CHECKING:
    from aeron_async.testing.host import Host
    from aeron_async.testing.world import World

STREAM_ID = 7


def named(host: Host, *bootstrap: str, name: str | None = None) -> aa.DriverContext:
    return aa.DriverContext(
        resolver_name=host.name if name is None else name,
        resolver_interface=f"{host.address}:8050",
        resolver_bootstrap_neighbor=",".join(bootstrap) or None,
    )


def value_of(aeron: aa.Aeron, label: str) -> int:
    (found,) = (each.value for each in aeron.counters if each.label.startswith(label))
    return found


def neighbors(aeron: aa.Aeron) -> int:
    return value_of(aeron, "Resolver neighbors")


def test_drivers_that_know_one_neighbor_find_all_and_streams_lead_to_them_by_name() -> None:
    async def story(world: World) -> None:
        a, b, c = (world.host(name) for name in ("a", "b", "c"))
        async with (
            a.aeron(named(a, name="alpha")) as alpha,
            b.aeron(named(b, f"{a.address}:8050", name="beta")) as beta,
            c.aeron(named(c, f"{a.address}:8050", name="gamma")) as gamma,
        ):
            everyone = (alpha, beta, gamma)
            await until(world, lambda: all(neighbors(each) == 2 for each in everyone), 5)
            subscription = await gamma.add_subscription(
                f"aeron:udp?endpoint={c.address}:20121|term-length=64k", STREAM_ID
            )
            publication = await beta.add_publication(
                "aeron:udp?endpoint=gamma:20121|term-length=64k", STREAM_ID
            )
            await publication.wait_connected(2)
            await publication.offer(b"by name")
            assert (await anext(subscription)).data == b"by name"
            assert value_of(beta, "Bootstrap neighbor") == 1
            await a.crash()
            await until(world, lambda: neighbors(beta) == neighbors(gamma) == 1, 15)
            await world.sleep(30)
            assert neighbors(beta) == neighbors(gamma) == 1
            assert value_of(beta, "Resolver cache entries") == 1
            assert value_of(beta, "Bootstrap neighbor") == 0

    simulate(story)


def test_a_bootstrap_neighbor_whose_name_leads_nowhere_is_looked_up_again() -> None:
    async def story(world: World) -> None:
        a, b = world.host("a"), world.host("b")
        async with a.aeron(named(a)) as alpha:
            with capture_logs() as lines:
                async with b.aeron(named(b, "just:wrong", "first-driver:8050")) as beta:
                    await world.sleep(9)
                    errors = value_of(beta, "Errors")
                    assert neighbors(beta) == 0
                    world.network.names["first-driver"] = a.address
                    await until(world, lambda: neighbors(alpha) == neighbors(beta) == 1, 3)
                    labels = [each.label for each in beta.counters]
            assert errors == 2
            assert "Bootstrap neighbor: name=just:wrong resolved=" in labels
            found = f"Bootstrap neighbor: name=first-driver:8050 resolved={a.address}:8050"
            assert found in labels
            failed = [
                line["neighbor"]
                for line in lines
                if line["event"] == "bootstrap_neighbor_not_found"
            ]
            assert failed[:2] == ["just:wrong", "first-driver:8050"]

    simulate(story)


def test_a_driver_whose_resolver_cannot_be_bound_does_not_start() -> None:
    async def story(world: World) -> None:
        host, other = world.host("a"), world.host("b")
        with pytest.raises(DriverError, match=r"resolver_interface=.*:8050 cannot be used"):
            await host.driver(named(other)).start()
        async with host.aeron(named(host)):
            with pytest.raises(DriverError, match="cannot be used"):
                await host.driver(named(host)).start()
        # The first driver has freed the port.
        async with host.aeron(named(host)):
            pass

    simulate(story)
