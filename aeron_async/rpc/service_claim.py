"""The claim of a server to its channel: a counter in the driver, which every process can read.

A driver gives each message to all its subscriptions: of two servers at one channel and stream, both
would run each call. So a server holds a counter for as long as it serves, and another one that
wants the same streams is refused. The driver frees the counter of a client that dies.

The key of the counter, little-endian: the stream id of the requests (4 bytes), that of the answers
(4 bytes), and where requests arrive, as text: `host:port`, or `aeron:ipc`. Its value is `CLAIMING`
or `SERVING`.

Invariant: of servers that begin at the same moment one serves at most. A claim can be seen before
its server looks for others. It gives way to one that serves, and to an older one.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, Final

from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import ConfigurationError
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from aeron_async.client.aeron import Aeron
    from aeron_async.client.counter import Counter
    from aeron_async.counters import CounterRecord
    from aeron_async.rpc.wiring import Wiring

__all__ = ["CLAIM_TYPE_ID", "claim_service"]

CLAIM_TYPE_ID: Final = 20_003
IDS: Final = Struct("<ii")
IPC: Final = "aeron:ipc"
PLACE_MAX: Final = 104
LABEL_MAX: Final = 380
CLAIMING: Final = 0
SERVING: Final = 1
LOOK_S: Final = 0.01
PATIENCE_NS: Final = NS_PER_SECOND
"""How long an older claim waits for a newer one to give way, or to serve."""


async def claim_service(aeron: Aeron, service: str, wiring: Wiring, address: str) -> Counter:
    """Return the counter of a server that is the only one at its channel and streams.

    Args:
        aeron: The client whose counter it is.
        service: Name of the service.
        wiring: Its channel and streams.
        address: Where the driver receives its requests; empty for IPC.

    Raises:
        ConfigurationError: Another server of this driver has them.
        RegistrationError: The driver has no counter left.
    """
    place = (address or IPC).encode("utf-8", "replace")[:PLACE_MAX]
    key = IDS.pack(wiring.stream_id, wiring.response_stream_id) + place
    label = f"rpc-server: {printable(service, SHORT)} {wiring.stream_id} {printable(wiring.name)}"
    label = label.encode("utf-8", "replace")[:LABEL_MAX].decode("utf-8", "ignore")
    counter = await aeron.add_counter(CLAIM_TYPE_ID, label, key)
    try:
        await settle(aeron, counter, service, place, wiring)
    except BaseException:
        counter.close()
        raise
    return counter


async def settle(
    aeron: Aeron, counter: Counter, service: str, place: bytes, wiring: Wiring
) -> None:
    """Wait until a claim is the only one, and note that it serves.

    Raises:
        ConfigurationError: Another one serves, or is older, or does not give way.
    """
    until_ns = aeron.clock.now_ns() + PATIENCE_NS
    while others := others_at(aeron, counter, place, wiring):
        is_late = aeron.clock.now_ns() >= until_ns
        for other in others:
            is_older = other.registration_id < counter.registration_id
            if other.value == SERVING or is_older or is_late:
                raise ConfigurationError(refusal(aeron, service, place, wiring, other))
        await asyncio.sleep(LOOK_S)
    counter.set(SERVING)


def claims_at(aeron: Aeron, place: bytes) -> list[CounterRecord]:
    """Return the claims of all servers whose requests arrive at a place."""
    counters = aeron.counters
    records = [counters.record(each) for each in counters.ids_of(CLAIM_TYPE_ID)]
    return [each for each in records if each.key[IDS.size :].rstrip(b"\0") == place]


def others_at(aeron: Aeron, counter: Counter, place: bytes, wiring: Wiring) -> list[CounterRecord]:
    """Return the claims of others that cannot be together with this one."""
    others = [each for each in claims_at(aeron, place) if each.counter_id != counter.id]
    if place != IPC.encode():
        # Answers come from another address: they meet no requests.
        return [each for each in others if IDS.unpack_from(each.key)[0] == wiring.stream_id]
    mine = {wiring.stream_id, wiring.response_stream_id}
    return [each for each in others if not mine.isdisjoint(IDS.unpack_from(each.key))]


def refusal(aeron: Aeron, service: str, place: bytes, wiring: Wiring, other: CounterRecord) -> str:
    """Return why a server is refused, and what to change."""
    taken = {wiring.response_stream_id}
    for each in claims_at(aeron, place):
        taken.update(IDS.unpack_from(each.key))
    return (
        f"{printable(service, SHORT)!r} cannot be served at {wiring.name} with "
        f"stream_id={wiring.stream_id}: {printable(other.label, SHORT)!r} has it in this driver, "
        f"and each call would run in both. Close that one, or give stream_id={max(taken) + 1} here "
        f"and at the clients of this one: ids go in pairs, because answers use the next one. The "
        f"driver forgets a server that was killed after client_liveness_timeout_ns, 10 s by default"
    )
