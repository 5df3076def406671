"""The three processes of `benchmarks.hostile`; each prints lines of JSON.

The attacker prepares its datagrams, sorts them by length, and sends them in trains of equal ones,
which the kernel takes apart (`UDP_SEGMENT`): no other way does one Python process send so many.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from itertools import count, cycle, groupby, islice
from pathlib import Path
from random import Random
from struct import Struct
from typing import Any, Final

import aeron_async as aa
from aeron_async.testing.recorder import make_payload
from tests.support.hostile import ATTACKS, Attack, shots
from tests.support.victim import Target, Victim

STREAM_ID: Final = 1001
LENGTH: Final = 1_000
RATE: Final = 10_000_000
FRAMED_LENGTH: Final = 1_056
"""What a message takes in the log, in bytes."""
PAYLOADS: Final = [make_payload(1, number, LENGTH) for number in range(4_096)]
"""What messages are made of; the number of each message chooses its content."""
REPORT_S: Final = 0.25
BATCH_S: Final = 0.005
SILENCE_S: Final = 3

SHOT_RATE: Final = 120_000
PREPARED_COUNT: Final = 6_000
PREPARED_FOR_S: Final = 0.5
"""How long the same datagrams are sent before others are made, for where the stream is then."""
SOCKET_COUNT: Final = 8
UDP_SEGMENT: Final = 103
SEGMENT_LENGTH: Final = Struct("<H")
TRAIN_COUNT: Final = 16
"""Datagrams sent at once; longer trains do less harm, because they crowd out themselves."""
TRAIN_LENGTH: Final = 60_000
TURN_S: Final = 0.002

Train = tuple[Target, int, int, bytes]
"""Where to, how many datagrams, how long each, and all their bytes."""


def report(**figures: Any) -> None:
    """Print one line, with the time and the resident memory of this process in MiB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    resident_mib = int(line.split()[1]) / 1024
    print(json.dumps({"time": time.monotonic(), "resident_mib": resident_mib, **figures}))
    sys.stdout.flush()


# The publisher.


async def publish(channel: str, seconds: float) -> None:
    """Offer at the rate, or as fast as the stream goes."""
    async with aa.Aeron.connect() as aeron:
        publication = await aeron.add_publication(channel, STREAM_ID)
        await publication.wait_connected(timeout=30)
        report(
            victim={
                "session_id": publication.session_id,
                "stream_id": STREAM_ID,
                "initial_term_id": publication.initial_term_id,
                "term_length": publication.term_length,
                "mtu_length": publication.mtu_length,
            },
            ports=own_ports(),
        )
        number, credit = 0, 0.0
        started = before = time.monotonic()
        reported = 0.0
        while before < started + seconds:
            await asyncio.sleep(BATCH_S)
            now = time.monotonic()
            # What was held up is made up for within a tenth of a second, or not at all.
            credit = min(credit + (now - before) * RATE / LENGTH, 0.1 * RATE / LENGTH)
            before = now
            while credit >= 1:
                await publication.offer(PAYLOADS[number % len(PAYLOADS)], reserved_value=number)
                number += 1
                credit -= 1
            if now > reported + REPORT_S:
                reported = now
                report(offered=number)
        report(offered=number, counters=moved(aeron))
        await publication.drain(timeout=30)


def own_ports() -> list[int]:
    """Return the UDP ports of this process, from /proc."""
    inodes = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            inodes.add(str(link.readlink()))
        except OSError:
            continue
    rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    return [int(row[1].partition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in inodes]


# The subscriber.


async def subscribe(channel: str) -> None:
    """Check every message of the first session that comes, until none has come for a while."""
    async with aa.Aeron.connect() as aeron:
        subscription = await aeron.add_subscription(channel, STREAM_ID)
        report(ready=True)
        session_id, number, reported = None, 0, 0.0
        batches = subscription.batches(1_000)
        while True:
            try:
                async with asyncio.timeout(SILENCE_S if number else 60):
                    batch = await anext(batches)
            except TimeoutError:
                break
            session_id = batch[0].session_id if session_id is None else session_id
            if batch[0].session_id == session_id:
                for message in batch:
                    if (message.reserved_value, message.data) != (
                        number,
                        PAYLOADS[number % len(PAYLOADS)],
                    ):
                        report(failure=f"{message.reserved_value} came in place of {number}")
                        return
                    number += 1
            now = time.monotonic()
            if now > reported + REPORT_S:
                reported = now
                report(received=number)
        report(received=number, counters=moved(aeron))


def moved(aeron: aa.Aeron) -> dict[str, int]:
    """Return the driver's counters that are not 0, by label, but for positions."""
    return {
        each.label: each.value
        for each in aeron.counters
        if each.value and not each.label.startswith(("pub-", "snd-", "rcv-", "sub-"))
    }


# The attacker.


def attack(
    victim: Victim,
    ports: dict[Target, list[int]],
    *,
    seconds: float,
    seed: int,
    everything: bool,
    names: list[str],
) -> None:
    """Shoot for so many seconds, and count what comes back.

    Args:
        victim: Whom to shoot at.
        ports: Where each target is.
        seconds: How long.
        seed: Of all dice.
        everything: Whether to send attacks on senders to the subscription as well.
        names: The attacks to send.
    """
    random = Random(seed)
    attacks = [each for each in ATTACKS if each.__name__ in names]
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(SOCKET_COUNT)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
        each.setblocking(False)
    sent_count = sent_length = answered_length = 0
    start = victim.position
    prepared = cycle(trains(victim, random, attacks))
    prepared_until = PREPARED_FOR_S
    started = time.monotonic()
    report(started=True)
    while (elapsed := time.monotonic() - started) < seconds:
        if elapsed > prepared_until:
            victim.position = start + int(elapsed * RATE / LENGTH) * FRAMED_LENGTH
            prepared = cycle(trains(victim, random, attacks))
            prepared_until = elapsed + PREPARED_FOR_S
        while sent_count < SHOT_RATE * elapsed:
            target, train_count, length, data = next(prepared)
            port = random.choice(ports[Target.RECEIVER if everything else target])
            segment = (socket.SOL_UDP, UDP_SEGMENT, SEGMENT_LENGTH.pack(length))
            try:
                random.choice(sockets).sendmsg(
                    [data], [segment] if train_count > 1 else [], 0, ("127.0.0.1", port)
                )
            except OSError:
                continue
            sent_count += train_count
            sent_length += len(data)
        answered_length += sum(map(drain, sockets))
        time.sleep(TURN_S)
    ended = time.monotonic()
    report(ended=True)
    # Images that strangers made say what they have to say for another while.
    while time.monotonic() < ended + SILENCE_S:
        answered_length += sum(map(drain, sockets))
        time.sleep(TURN_S)
    report(
        shot_count=sent_count,
        shot_rate=round(sent_count / (ended - started)),
        shot_length=sent_length,
        answered_length=answered_length,
    )


def trains(victim: Victim, random: Random, attacks: list[Attack]) -> list[Train]:
    """Return some thousand datagrams, those of one length behind one another."""

    def order(shot: tuple[Target, bytes]) -> tuple[int, int]:
        return shot[0].value, len(shot[1])

    made: list[Train] = []
    drawn = sorted(islice(shots(victim, random, attacks), PREPARED_COUNT), key=order)
    for (_, length), group in groupby(drawn, key=order):
        shot_group = list(group)
        most = min(TRAIN_COUNT, max(1, TRAIN_LENGTH // length))
        for start in range(0, len(shot_group), most):
            part = shot_group[start : start + most]
            made.append((part[0][0], len(part), length, b"".join(data for _, data in part)))
    random.shuffle(made)
    return made


def drain(sock: socket.socket) -> int:
    """Return how many bytes have come back to a socket."""
    length = 0
    for _ in count():
        try:
            length += len(sock.recv(65_536))
        except BlockingIOError:
            break
        except OSError:
            continue
    return length
