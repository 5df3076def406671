"""What a client of shared memory does in a child process that is forked."""

from __future__ import annotations

import gc
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

import aeron_async as aa
from aeron_async.client.client_conductor import ClientConductor
from aeron_async.clock import NS_PER_SECOND
from tests.client.local import IPC, STREAM_ID
from tests.twins import needs_compiled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

pytestmark = [needs_compiled, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]


def outcome_in_child(call: Callable[[], Any]) -> str:
    """Return what a call returns or raises in a forked child, or the signal that ended the child.

    A coroutine is run until it first waits.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                result = call()
                if hasattr(result, "send"):
                    result = started(result)
                text = f"returned {result!r}"
            except BaseException as error:  # noqa: BLE001 - it is reported
                text = f"{type(error).__name__}: {error}"
            os.write(write_end, text.encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        text = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else text


def started(coroutine: Any) -> object:
    """Run a coroutine until it first waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    return "waits"


class Streams:
    """Two publications, a subscription with an image and messages to read, and an open claim."""

    aeron: aa.Aeron
    directory: Path
    shared: aa.Publication
    exclusive: aa.ExclusivePublication
    subscription: aa.Subscription
    image: aa.Image
    claim: aa.BufferClaim
    batches: Any
    events: Any

    async def open(self, aeron: aa.Aeron) -> None:
        """Add everything."""
        self.aeron = aeron
        self.subscription = await aeron.add_subscription(IPC, STREAM_ID)
        self.exclusive = await aeron.add_exclusive_publication(IPC, STREAM_ID)
        self.shared = await aeron.add_publication(IPC, STREAM_ID + 1)
        await self.exclusive.wait_connected(timeout=5)
        for number in range(20):
            await self.exclusive.offer(b"%d" % number, timeout=5)
        claim = self.exclusive.try_claim(8)
        assert isinstance(claim, aa.BufferClaim)
        self.claim = claim
        # Messages that were read ahead, and one that is not taken yet.
        self.image = (await anext(self.subscription)).image
        self.events = self.subscription.image_events()


@pytest.fixture(params=["attached", "embedded"])
async def streams(
    request: pytest.FixtureRequest, context: aa.DriverContext, tmp_path: Path
) -> AsyncIterator[Streams]:
    directory = tmp_path / "aeron"
    shared = aa.DriverContext(
        term_buffer_length=context.term_buffer_length,
        ipc_term_buffer_length=context.ipc_term_buffer_length,
        aeron_directory=str(directory),
        counters_buffer_length=1 << 20,
        # A busy machine may keep a client from running for seconds.
        client_liveness_timeout_ns=60 * NS_PER_SECOND,
        publication_unblock_timeout_ns=90 * NS_PER_SECOND,
    )
    async with aa.MediaDriver.launch(shared) as driver:
        is_attached = request.param == "attached"
        client = aa.Aeron.connect(directory=directory) if is_attached else aa.Aeron.connect(driver)
        async with client as aeron:
            streams = Streams()
            streams.directory = directory
            await streams.open(aeron)
            yield streams


def change_claim(claim: aa.BufferClaim) -> None:
    claim.reserved_value = 1


REFUSED: dict[str, Callable[[Streams], object]] = {
    "publication.is_connected": lambda it: it.shared.is_connected,
    "publication.position": lambda it: it.exclusive.position,
    "publication.position_limit": lambda it: it.shared.position_limit,
    "publication.available_window": lambda it: it.exclusive.available_window,
    "publication.offer": lambda it: it.shared.offer(b"x"),
    "exclusive.offer": lambda it: it.exclusive.offer(b"x"),
    "publication.offer with a timeout": lambda it: it.exclusive.offer(b"x", timeout=0),
    "publication.offer_many": lambda it: it.exclusive.offer_many([b"x"]),
    "publication.send": lambda it: it.exclusive.send(b"x"),
    "publication.try_offer": lambda it: it.exclusive.try_offer(b"x"),
    "publication.try_claim": lambda it: it.exclusive.try_claim(1),
    "publication.claim": lambda it: it.exclusive.claim(1),
    "publication.wait_connected": lambda it: it.exclusive.wait_connected(),
    "publication.drain": lambda it: it.exclusive.drain(),
    "publication.add_destination": lambda it: it.shared.add_destination(
        "aeron:udp?endpoint=127.0.0.1:9"
    ),
    "publication.remove_destination": lambda it: it.shared.remove_destination(1),
    "publication.append_padding": lambda it: it.exclusive.append_padding(64),
    "publication.try_append_padding": lambda it: it.exclusive.try_append_padding(64),
    "publication.offer_block": lambda it: it.exclusive.offer_block(bytes(64)),
    "publication.try_offer_block": lambda it: it.exclusive.try_offer_block(bytes(64)),
    "publication.revoke": lambda it: it.exclusive.revoke(),
    "publication.close": lambda it: it.shared.close(),
    "publication.aclose": lambda it: it.exclusive.aclose(),
    "claim.commit": lambda it: it.claim.commit(),
    "claim.abort": lambda it: it.claim.abort(),
    "claim.reserved_value": lambda it: it.claim.reserved_value,
    "claim.reserved_value = 1": lambda it: change_claim(it.claim),
    "anext(subscription)": lambda it: it.subscription.__anext__(),
    "aiter(subscription)": lambda it: aiter(it.subscription),
    "subscription.receive": lambda it: it.subscription.receive(),
    "subscription.poll": lambda it: it.subscription.poll(lambda *_: None),
    "subscription.batches": lambda it: it.subscription.batches().__anext__(),
    "subscription.wait_connected": lambda it: it.subscription.wait_connected(),
    "subscription.add_destination": lambda it: it.subscription.add_destination(
        "aeron:udp?endpoint=127.0.0.1:9"
    ),
    "subscription.close": lambda it: it.subscription.close(),
    "subscription.aclose": lambda it: it.subscription.aclose(),
    "image.poll": lambda it: it.image.poll(lambda *_: None),
    "image.reject": lambda it: it.image.reject("no"),
    "anext(image)": lambda it: it.image.__anext__(),
    "aeron.client_id": lambda it: it.aeron.client_id,
    "aeron.add_publication": lambda it: started(it.aeron.add_publication(IPC, 1).__await__()),
    "aeron.add_subscription": lambda it: started(it.aeron.add_subscription(IPC, 1).__await__()),
    "aeron.counters": lambda it: list(it.aeron.counters),
    "aeron.aclose": lambda it: it.aeron.aclose(),
}

ANSWERED: dict[str, Callable[[Streams], object]] = {
    "publication.is_closed": lambda it: it.shared.is_closed,
    "aeron.is_closed": lambda it: it.aeron.is_closed,
    "subscription.is_closed": lambda it: it.subscription.is_closed,
    "image.is_closed": lambda it: it.image.is_closed,
    "why(publication)": lambda it: "closed" in str(aa.why(it.shared)),
    "why(subscription)": lambda it: "closed" in str(aa.why(it.subscription)),
    "image.end": lambda it: it.image.end is not None,
    "image.end_of_stream_position": lambda it: it.image.end_of_stream_position is None,
    "image.is_end_of_stream": lambda it: not it.image.is_end_of_stream,
    "image.is_publication_revoked": lambda it: not it.image.is_publication_revoked,
    "image.is_let_go": lambda it: not it.image.is_let_go,
    "image.discarded_fragments": lambda it: it.image.discarded_fragments == 0,
    "repr": lambda it: all(map(repr, (it.shared, it.subscription, it.image, it.aeron))),
    "local_address": lambda it: it.shared.local_address == it.subscription.local_address == "",
}


async def test_a_child_refuses_every_call_and_does_not_crash(streams: Streams) -> None:
    outcomes = {name: outcome_in_child(lambda c=call: c(streams)) for name, call in REFUSED.items()}  # type: ignore[misc]
    words = ("WrongLoopError: ", "ClosedError: ", "ClosedResourceError: ")
    wrong = {
        name: text
        for name, text in outcomes.items()
        if not text.startswith(words) or not ("parent of this" in text or "another event" in text)
    }
    assert not wrong
    # The parent goes on.
    streams.claim.abort()
    await streams.exclusive.offer(b"after", timeout=5)
    assert (await anext(streams.subscription)).data == b"1"


async def test_a_child_reads_no_counters_of_a_driver(streams: Streams) -> None:
    kept = streams.aeron.counters
    iterator = iter(kept)
    next(iterator)
    driver = streams.aeron.driver
    refusals = ("WrongLoopError", "ClosedError")
    assert outcome_in_child(lambda: driver.counters.value(0)).startswith(refusals)
    assert outcome_in_child(lambda: kept.value(0)).startswith("ValueError")
    assert outcome_in_child(lambda: next(iterator)).startswith("ValueError")
    assert kept.value(0) >= 0


async def test_a_child_of_a_driver_without_a_directory_has_its_counters(
    driver: aa.MediaDriver,
) -> None:
    assert outcome_in_child(lambda: driver.counters.limit > 0) == "returned True"


async def test_a_client_that_cannot_be_closed_in_a_child_leaves_no_other_open(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_forked = ClientConductor.on_forked
    failed: list[ClientConductor] = []

    def fail(self: ClientConductor) -> None:
        if not failed and self in conductors:
            failed.append(self)
            message = "it cannot be closed"
            raise BufferError(message)
        on_forked(self)

    async with aa.Aeron.connect(directory=streams.directory) as other:
        monkeypatch.setattr(ClientConductor, "on_forked", fail)
        clients = (streams.aeron, other)
        conductors = [each._conductor for each in clients]
        assert outcome_in_child(lambda: sum(each.is_closed for each in clients)) == "returned 1"


async def test_a_child_says_that_everything_is_closed(streams: Streams) -> None:
    outcomes = {
        name: outcome_in_child(lambda c=call: c(streams))  # type: ignore[misc]
        for name, call in ANSWERED.items()
    }
    assert set(outcomes.values()) == {"returned True"}, outcomes
    assert not streams.shared.is_closed


async def test_a_child_has_no_batch(streams: Streams) -> None:
    await streams.exclusive.offer_many([b"one", b"two"], timeout=5)
    batch = await anext(streams.subscription.batches())
    kept, iterator = batch.payloads(), iter(batch)
    assert next(iterator).data == kept[0]
    for ask in (batch.payloads, batch.views, batch.positions, lambda: batch[0]):
        assert "forked child" in outcome_in_child(ask)
    assert "forked child" in outcome_in_child(lambda: next(iterator))
    assert batch.payloads() == kept


async def test_a_child_drops_what_it_has_inherited(streams: Streams) -> None:
    iterator = streams.subscription.batches(max_messages=2)
    await anext(iterator)
    assert outcome_in_child(lambda: started(iterator.__anext__())).startswith("WrongLoopError")

    def drop() -> bool:
        streams.__dict__.clear()
        gc.collect()
        return True

    assert outcome_in_child(drop) == "returned True"
