"""Counters that applications add, with an embedded driver and through an Aeron directory."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import aeron_async as aa
from aeron_async.client.attached_driver import AttachedDriver
from aeron_async.driver.aeron_client import AeronClient
from aeron_async.errors import ErrorCode
from aeron_async.protocol.control_protocol import CounterReady
from tests.client.local import fill, until
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TYPE_ID = 1_500

ATTACHED = pytest.mark.parametrize("kind", [pytest.param("attached", marks=needs_compiled)])


@pytest.fixture(params=["embedded", pytest.param("attached", marks=needs_compiled)])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def context(context: aa.DriverContext, kind: str, tmp_path: Path) -> aa.DriverContext:
    context = attrs.evolve(context, counters_buffer_length=1 << 20)
    if kind == "embedded":
        return context
    return attrs.evolve(context, aeron_directory=str(tmp_path / "aeron"), driver_timeout_ms=2_000)


def connect(driver: aa.MediaDriver, kind: str) -> aa.Aeron:
    """Return another client of the driver."""
    if kind == "embedded":
        return aa.Aeron.connect(driver)
    return aa.Aeron.connect(directory=driver.context.aeron_directory, context=driver.context)


@pytest.fixture
async def aeron(driver: aa.MediaDriver, kind: str) -> AsyncIterator[aa.Aeron]:
    async with connect(driver, kind) as aeron:
        yield aeron


def count(driver: aa.MediaDriver) -> int:
    """Return how many counters of the tests' type there are."""
    return len(list(driver.counters.ids_of(TYPE_ID)))


async def test_a_counter_is_in_the_table_until_it_is_closed(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    counter = await aeron.add_counter(TYPE_ID, "orders", b"\x01key")
    record = aeron.counters.record(counter.id)
    assert (record.type_id, record.label) == (TYPE_ID, "orders")
    assert record.key.rstrip(b"\0") == b"\x01key"
    assert record.registration_id == counter.registration_id
    assert record.owner_id == aeron.client_id
    counter.set(-5)
    counter.increment()
    counter.increment(10)
    assert counter.get() == driver.counters.value(counter.id) == 6
    assert counter.propose_max(7)
    assert not counter.propose_max(7)
    assert aeron.counters.value(counter.id) == 7
    assert repr(counter) == f"<Counter {counter.id} 'orders', = 7>"
    await counter.aclose()
    counter.close()
    assert counter.is_closed
    await until(lambda: count(driver) == 0)
    for access in (counter.get, counter.increment, lambda: counter.set(1)):
        with pytest.raises(aa.ClosedError, match="'orders' is closed: this program closed it"):
            access()
    assert repr(counter) == f"<Counter {counter.id} 'orders', closed>"


async def test_a_counter_ends_with_its_block(driver: aa.MediaDriver, aeron: aa.Aeron) -> None:
    async with aeron.add_counter(TYPE_ID, "orders") as counter:
        assert count(driver) == 1
        assert not counter.is_static
    await until(lambda: count(driver) == 0)


async def test_a_client_that_closes_frees_its_counters_and_no_others(
    driver: aa.MediaDriver, aeron: aa.Aeron, kind: str
) -> None:
    kept = await aeron.add_counter(TYPE_ID, "kept")
    async with connect(driver, kind) as other:
        counter = await other.add_counter(TYPE_ID, "orders")
        assert count(driver) == 2
    with pytest.raises(aa.ClosedError, match="its client was closed"):
        counter.set(1)
    await until(lambda: count(driver) == 1)
    kept.set(3)
    assert driver.counters.value(kept.id) == 3


async def test_a_static_counter_is_shared_and_outlives_its_clients(
    driver: aa.MediaDriver, aeron: aa.Aeron, kind: str
) -> None:
    async with connect(driver, kind) as other:
        first = await other.add_static_counter(TYPE_ID, "static", b"k", registration_id=-7)
        second = await aeron.add_static_counter(TYPE_ID, "other label", registration_id=-7)
        assert first.id == second.id
        assert first.is_static
        assert first.registration_id == second.registration_id == -7
        first.set(11)
        assert second.get() == 11
        twin = await aeron.add_static_counter(TYPE_ID, "static", registration_id=-7)
        twin.close()
        assert second.get() == 11
    second.set(12)
    second.close()
    third = await aeron.add_static_counter(TYPE_ID, "", registration_id=-7)
    assert third.get() == 12
    assert driver.counters.record(third.id).label == "static"
    other_type = await aeron.add_static_counter(TYPE_ID + 1, "", registration_id=-7)
    assert other_type.id != third.id


async def test_a_counter_of_a_client_is_not_static(aeron: aa.Aeron) -> None:
    counter = await aeron.add_counter(TYPE_ID, "mine")
    with pytest.raises(aa.RegistrationError, match="non-static counter exists"):
        await aeron.add_static_counter(TYPE_ID, "mine", registration_id=counter.registration_id)


async def test_a_full_table_refuses_a_counter(driver: aa.MediaDriver, aeron: aa.Aeron) -> None:
    # The heartbeat of an attached client is a counter, too.
    await aeron.add_counter(TYPE_ID, "the first")
    fill(driver.counters)
    with pytest.raises(aa.RegistrationError, match="no counter is left") as caught:
        await aeron.add_counter(TYPE_ID, "one too many")
    assert caught.value.code is ErrorCode.GENERIC


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((2**31, "label"), "type_id=2147483648"),
        (("5", "label"), "type_id='5'"),
        ((5, b"label"), "label=b'label' must be text"),
        ((5, "l" * 381), "380 bytes"),
        ((5, "é" * 191), "380 bytes"),
        ((5, "label", bytes(113)), "112 bytes"),
        ((5, "label", "key"), "112 bytes"),
    ],
)
async def test_invalid_arguments_are_refused(
    driver: aa.MediaDriver, aeron: aa.Aeron, arguments: tuple[Any, ...], match: str
) -> None:
    with pytest.raises(aa.ConfigurationError, match=match):
        aeron.add_counter(*arguments)
    with pytest.raises(aa.ConfigurationError, match=match):
        aeron.add_static_counter(*arguments, registration_id=1)
    assert not list(driver.counters.ids_of(5))


async def test_a_registration_id_has_64_bits(aeron: aa.Aeron) -> None:
    with pytest.raises(aa.ConfigurationError, match="registration_id=9223372036854775808"):
        aeron.add_static_counter(TYPE_ID, "label", registration_id=2**63)


async def test_a_value_has_64_bits(aeron: aa.Aeron) -> None:
    counter = await aeron.add_counter(TYPE_ID, "orders")
    counter.set(2**63 - 1)
    for value in (2**63, -(2**63) - 1, 1.5, "1"):
        with pytest.raises(aa.ConfigurationError, match="value="):
            counter.set(value)  # type: ignore[arg-type]
    with pytest.raises(aa.ConfigurationError, match="value=9223372036854775808"):
        counter.increment()
    assert counter.get() == 2**63 - 1


async def test_a_driver_that_closes_ends_the_counters(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    counter = await aeron.add_counter(TYPE_ID, "orders")
    static = await aeron.add_static_counter(TYPE_ID, "static", registration_id=1)
    await driver.aclose()
    async with asyncio.timeout(5):
        while not counter.is_closed:
            await asyncio.sleep(0)
    for each in (counter, static):
        with pytest.raises(aa.ClosedError, match="its media driver was closed"):
            each.get()


async def test_a_closed_client_adds_no_counter(driver: aa.MediaDriver, kind: str) -> None:
    aeron = await connect(driver, kind)
    waiting = asyncio.ensure_future(aeron.add_counter(TYPE_ID, "orders"))
    await asyncio.sleep(0)
    await aeron.aclose()
    with pytest.raises(aa.ClosedError):
        await waiting
    with pytest.raises(aa.ClosedError):
        aeron.add_counter(TYPE_ID, "orders")
    await until(lambda: count(driver) == 0)


async def test_a_cancelled_request_leaves_no_counter(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    waiting = asyncio.ensure_future(aeron.add_counter(TYPE_ID, "orders"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await aeron.add_counter(TYPE_ID, "another")
    await until(lambda: count(driver) == 1)


async def test_a_counter_belongs_to_its_loop(aeron: aa.Aeron) -> None:
    counter = await aeron.add_counter(TYPE_ID, "orders")
    with pytest.raises(aa.WrongLoopError, match="close it there"):
        await asyncio.to_thread(counter.close)
    counter.set(1)


def ended(child: int) -> int:
    """Return the status of a child process, once it has ended."""
    return os.waitpid(child, 0)[1]


@ATTACHED
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_child_process_has_no_counter_of_a_directory(aeron: aa.Aeron) -> None:
    counter = await aeron.add_counter(TYPE_ID, "orders")
    child = os.fork()
    if child == 0:  # pragma: no cover - coverage does not look into a child
        try:
            counter.set(5)
        except aa.ClosedError as error:
            os._exit(0 if "belongs to the parent" in str(error) else 2)
        finally:
            os._exit(1)
    assert ended(child) == 0
    counter.set(6)
    assert counter.get() == 6


@ATTACHED
async def test_a_client_that_dies_loses_its_counters(
    driver: aa.MediaDriver, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(driver, kind) as aeron:
        await aeron.add_counter(TYPE_ID, "orders")
        adapter = driver.conductor.adapter
        assert adapter is not None
        monkeypatch.setattr(AeronClient, "is_silent", lambda *_: True)
        now_ns = driver.clock.now_ns()
        adapter._on_timer(now_ns)
        adapter._look_after_clients(now_ns)
        assert count(driver) == 0


@ATTACHED
async def test_a_counter_that_is_not_in_the_table_is_refused(
    driver: aa.MediaDriver, aeron: aa.Aeron
) -> None:
    waiting = asyncio.ensure_future(aeron.add_counter(TYPE_ID, "orders"))
    await asyncio.sleep(0)
    assert isinstance(aeron.driver, AttachedDriver)
    proxy = aeron.driver._proxy()
    (correlation_id,) = proxy._waiting
    adapter = driver.conductor.adapter
    assert adapter is not None
    adapter._proxy._transmit(CounterReady(correlation_id=correlation_id, counter_id=1 << 20))
    with pytest.raises(aa.ProtocolError, match="names counter"):
        await waiting
    await until(lambda: count(driver) == 0)
