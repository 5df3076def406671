"""Names in a table, and the counters by which another process switches their hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async.counters import VALUE_LENGTH
from aeron_async.driver.core.csv_table_name_resolver import (
    INITIAL_HOST,
    NAME_ENTRY_TYPE_ID,
    NO_HOST,
    RE_RESOLUTION_HOST,
    CsvTableNameResolver,
    parse_table,
)
from aeron_async.errors import ConfigurationError, ErrorCode, RegistrationError
from aeron_async.testing.world import simulate
from tests.driver.fakes import Counts
from tests.sim.test_names import changes, until

if TYPE_CHECKING:
    from aeron_async.counters import CountersManager
    from aeron_async.testing.world import World

STREAM_ID = 1001
TABLE = "service,first,second|other,10.0.0.1,10.0.0.2|"
CHANNEL = "aeron:udp?endpoint=service:20121|term-length=64k"


def context(table: str = TABLE) -> aa.DriverContext:
    return aa.DriverContext(name_resolver_supplier="csv_table", name_resolver_init_args=table)


def switch(counters: CountersManager, operation: int) -> None:
    """Do what another process does: find the counter of the name, and write its value."""
    (found,) = (
        each
        for each in counters
        if each.type_id == NAME_ENTRY_TYPE_ID and each.key[4:].startswith(b"service")
    )
    words = VALUE_LENGTH // counters._values.itemsize
    counters._values[found.counter_id * words] = operation


# One by one.


@pytest.mark.parametrize(
    ("operation", "host"),
    [(INITIAL_HOST, "first"), (RE_RESOLUTION_HOST, "second"), (7, "service")],
)
async def test_the_value_of_its_counter_says_what_a_name_stands_for(
    operation: int, host: str
) -> None:
    counts = Counts()
    asked: list[Any] = []

    async def look_up(
        host: str, port: int, /, *, is_re_resolution: bool = False
    ) -> tuple[str, int]:
        asked.append((host, port, is_re_resolution))
        return "10.1.1.1", port

    resolver = CsvTableNameResolver(parse_table(TABLE), counts.manager, look_up)
    switch(counts.manager, operation)
    assert await resolver.resolve("service", 20, is_re_resolution=True) == ("10.1.1.1", 20)
    assert await resolver.resolve("elsewhere", 21) == ("10.1.1.1", 21)
    assert asked == [(host, 20, True), ("elsewhere", 21, False)]


async def test_a_name_may_stand_for_none() -> None:
    counts = Counts()

    async def look_up(_host: str, _port: int, /, *, is_re_resolution: bool = False) -> Any:
        pytest.fail(f"nobody is looked up: {is_re_resolution}")

    resolver = CsvTableNameResolver(parse_table(TABLE), counts.manager, look_up)
    switch(counts.manager, NO_HOST)
    with pytest.raises(RegistrationError, match="Unable to resolve host") as refusal:
        await resolver.resolve("service", 20)
    assert refusal.value.code is ErrorCode.UNKNOWN_HOST


def test_each_name_has_a_counter_that_others_find_by_its_key() -> None:
    counts = Counts()

    async def look_up(_host: str, port: int, /, *, is_re_resolution: bool = False) -> Any:
        return is_re_resolution, port

    CsvTableNameResolver(parse_table(TABLE), counts.manager, look_up)
    found = [each for each in counts.manager if each.type_id == NAME_ENTRY_TYPE_ID]
    assert [each.key.rstrip(b"\0") for each in found] == [
        b"\x07\0\0\0service",
        b"\x05\0\0\0other",
    ]
    assert [each.label for each in found] == [
        "NameEntry{name='service', initialResolutionHost='first', reResolutionHost='second'}",
        "NameEntry{name='other', initialResolutionHost='10.0.0.1', reResolutionHost='10.0.0.2'}",
    ]
    assert [each.value for each in found] == [INITIAL_HOST, INITIAL_HOST]


@pytest.mark.parametrize(
    "table", ["", "|", "a,b", "a,b,c,d", "a,,c", "a,b,c|a,d,e", "a" * 101 + ",b,c"]
)
def test_a_table_that_is_written_wrong_is_refused(table: str) -> None:
    with pytest.raises(ConfigurationError, match="name_resolver_init_args"):
        parse_table(table)


def test_a_context_checks_its_table() -> None:
    with pytest.raises(ConfigurationError, match="needs name_resolver_init_args"):
        aa.DriverContext(name_resolver_supplier="csv_table")
    environ = {"AERON_NAME_RESOLVER_SUPPLIER": "csv_table", "AERON_NAME_RESOLVER_INIT_ARGS": TABLE}
    assert aa.DriverContext.from_environment(environ) == context()


# In a driver.


def test_a_publication_follows_its_name_through_the_table() -> None:
    async def story(world: World) -> None:
        alice, first, second = (world.host(name) for name in ("alice", "first", "second"))
        async with alice.driver(context()) as driver, aa.Aeron.connect(driver) as sending:
            publication = await sending.add_publication(CHANNEL, STREAM_ID)
            for host, operation in ((first, RE_RESOLUTION_HOST), (second, INITIAL_HOST)):
                async with host.aeron() as receiving:
                    channel = f"aeron:udp?endpoint={host.address}:20121"
                    subscription = await receiving.add_subscription(channel, STREAM_ID)
                    await publication.wait_connected(10)
                    await publication.offer(b"hello")
                    assert (await anext(subscription)).data == b"hello"
                switch(driver.counters, operation)
                await until(world, lambda: not publication.is_connected)
            await until(world, lambda: changes(sending) == 2)

    simulate(story)


def test_a_name_that_stands_for_none_is_an_unknown_host() -> None:
    async def story(world: World) -> None:
        alice, first, _ = (world.host(name) for name in ("alice", "first", "second"))
        async with alice.driver(context()) as driver, aa.Aeron.connect(driver) as sending:
            switch(driver.counters, NO_HOST)
            with pytest.raises(RegistrationError, match="Unable to resolve host") as refusal:
                await sending.add_publication(CHANNEL, STREAM_ID)
            assert refusal.value.code is ErrorCode.UNKNOWN_HOST
            # A destination waits until its name stands for a host.
            publication = await sending.add_publication("aeron:udp?control-mode=manual", STREAM_ID)
            await publication.add_destination(CHANNEL)
            async with first.aeron() as receiving:
                await receiving.add_subscription("aeron:udp?endpoint=first:20121", STREAM_ID)
                await world.sleep(3)
                assert not publication.is_connected
                switch(driver.counters, INITIAL_HOST)
                await publication.wait_connected(10)
                assert changes(sending) == 1

    simulate(story)


def test_a_tagged_channel_whose_name_leads_elsewhere_by_now_is_still_the_same() -> None:
    async def story(world: World) -> None:
        alice, first, second = (world.host(name) for name in ("alice", "first", "second"))
        async with (
            alice.driver(context()) as driver,
            aa.Aeron.connect(driver) as sending,
            second.aeron() as receiving,
        ):
            tagged = f"{CHANNEL}|tags=22701"
            publication = await sending.add_publication(tagged, STREAM_ID)
            switch(driver.counters, RE_RESOLUTION_HOST)
            await receiving.add_subscription("aeron:udp?endpoint=second:20121", STREAM_ID)
            await publication.wait_connected(10)
            for channel in (tagged, "aeron:udp?tags=22701"):
                another = await sending.add_publication(channel, STREAM_ID)
                assert another.session_id == publication.session_id
            elsewhere = f"aeron:udp?endpoint={first.address}:20122|tags=22701"
            with pytest.raises(RegistrationError, match="mismatched endpoint or control"):
                await sending.add_publication(elsewhere, STREAM_ID)

    simulate(story)
