"""The claim of a server to its channel: a counter in the driver, which every process can read.

A driver gives each message to all its subscriptions: of two servers at one channel and stream, both
would run each call. So a server holds a counter for as long as it serves, and another one that
wants the same streams is refused. The driver frees the counter of a client that dies, some time
later: until then a new server waits for a claim whose client shows no sign of life.

The key of the counter, little-endian: the stream id of the requests (4 bytes), that of the answers
(4 bytes), and where requests arrive, as text: `host:port`, or `aeron:ipc`. Its value is `CLAIMING`
or `SERVING`.

Invariant: of servers that begin at the same moment one serves at most. A claim can be seen before
its server looks for others. It gives way to one that serves, and to an older one.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, Final, final

from aeron_async.clock import NS_PER_SECOND
from aeron_async.errors import ConfigurationError
from aeron_async.logs import get_logger
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.client.aeron import Aeron
    from aeron_async.client.counter import Counter
    from aeron_async.counters import CounterRecord
    from aeron_async.rpc.wiring import Wiring

__all__ = ["CLAIM_TYPE_ID", "claim_service"]

log = get_logger("aeron_async.rpc")

CLAIM_TYPE_ID: Final = 20_003
IDS: Final = Struct("<ii")
IPC: Final = "aeron:ipc"
PLACE_MAX: Final = 104
LABEL_MAX: Final = 380
CLAIMING: Final = 0
SERVING: Final = 1
LOOK_S: Final = 0.01
WAITING_LOOK_S: Final = 0.1
PATIENCE_NS: Final = NS_PER_SECOND
"""How long an older claim waits for a newer one to give way, or to serve."""
SILENT_MOST_NS: Final = 60 * NS_PER_SECOND
"""How long a claim without a sign of life is waited for; the driver should forget it sooner."""
HEARTBEAT_TYPE_ID: Final = 11
"""Counters in which clients of other processes say that they live, by the id of the client."""
HEARTBEAT_ENDED: Final = 0
"""Of a client that has closed."""


async def claim_service(
    aeron: Aeron,
    service: str,
    wiring: Wiring,
    address: str,
    *,
    on_wait: Callable[[], object],
) -> Counter:
    """Return the counter of a server that is the only one at its channel and streams.

    It waits for the claim of a client that shows no sign of life: it may have been killed, and then
    the driver forgets it.

    Args:
        aeron: The client whose counter it is.
        service: Name of the service.
        wiring: Its channel and streams.
        address: Where the driver receives its requests; empty for IPC.
        on_wait: Called once if it must wait: what arrives meanwhile is for the other server.

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
        if others_at(aeron, counter, place, wiring):
            on_wait()
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
    began_ns = aeron.clock.now_ns()
    signs = SignsOfLife(aeron)
    seen_ns: dict[int, int] = {}
    is_told = False
    while others := others_at(aeron, counter, place, wiring):
        now_ns = aeron.clock.now_ns()
        waited_ns = now_ns - began_ns
        for other in others:
            is_newer = other.registration_id > counter.registration_id
            known_ns = now_ns - seen_ns.setdefault(other.registration_id, now_ns)
            if other.value == CLAIMING and is_newer and known_ns < PATIENCE_NS:
                continue
            if signs.are_seen(other) or waited_ns >= SILENT_MOST_NS:
                raise ConfigurationError(refusal(aeron, service, place, wiring, other))
        if waited_ns >= PATIENCE_NS and not is_told:
            is_told = True
            log.warning(
                "call_server_waits",
                service=printable(service, SHORT),
                server=wiring.name,
                holder=printable(others[0].label, SHORT),
            )
        await asyncio.sleep(LOOK_S if waited_ns < PATIENCE_NS else WAITING_LOOK_S)
    counter.set(SERVING)


@final
class SignsOfLife:
    """Whether the clients that hold claims live: the heartbeat of one that was killed stands still.

    Args:
        aeron: The client that looks.
    """

    def __init__(self, aeron: Aeron) -> None:
        self._aeron = aeron
        self._first_beats: dict[int, int] = {}

    def are_seen(self, claim: CounterRecord) -> bool:
        """Return whether the client of a claim is known to live, by now."""
        owner_id = claim.owner_id
        if owner_id == self._aeron.client_id:
            return True
        found = self._aeron.counters.find(type_id=HEARTBEAT_TYPE_ID, registration_id=owner_id)
        if found is None:
            # A client in the process of its driver has none. One that was seen has gone by now.
            return owner_id not in self._first_beats
        first_beat = self._first_beats.setdefault(owner_id, found.value)
        return found.value not in {first_beat, HEARTBEAT_ENDED}


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
        f"and at the clients of this one: ids go in pairs, because answers use the next one"
    )
