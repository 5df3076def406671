"""Captures that our own reader and Wireshark's understand."""

from __future__ import annotations

import asyncio
import shutil
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest

from aeron_async.cli.pcap import CaptureReader
from aeron_async.testing.trace import PcapWriter, Trace, Verdict, udp_packet
from aeron_async.testing.world import simulate

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.cli.pcap import Datagram
    from aeron_async.testing.world import World

ALICE, BOB = ("10.0.0.1", 1_000), ("10.0.0.2", 2_000)
ALICE6, BOB6 = ("fd00::1", 1_000), ("fd00::2", 2_000)
FRAMES = ("aeron.setup.type", "aeron.sm.type", "aeron.data.type")
TSHARK = shutil.which("tshark")


def read(path: Path) -> list[Datagram]:
    with path.open("rb") as file:
        return list(CaptureReader(file, path.name))


def test_what_is_written_can_be_read_back(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    trace = Trace()
    with PcapWriter(path) as writer:
        trace.watch(writer)
        trace.note(1_500_000_001, Verdict.SENT, ALICE, BOB, b"hello")
        trace.note(1_500_000_002, Verdict.LOST, BOB6, ALICE6, b"hello six")
        trace.note(1_500_000_003, Verdict.DELIVERED, ALICE, BOB, b"hello")
    first, second = read(path)
    assert (first.timestamp_ns, first.source, first.destination, bytes(first.payload)) == (
        1_500_000_001,
        "10.0.0.1:1000",
        "10.0.0.2:2000",
        b"hello",
    )
    assert (second.source, second.destination) == ("[fd00::2]:2000", "[fd00::1]:1000")
    assert writer.count == 2


def test_one_may_ask_for_what_was_delivered(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    with PcapWriter(path, verdicts=frozenset({Verdict.DELIVERED})) as writer:
        writer(1, Verdict.SENT, ALICE, BOB, b"sent")
        writer(2, Verdict.DELIVERED, ALICE, BOB, b"delivered")
    assert [bytes(each.payload) for each in read(path)] == [b"delivered"]


def test_nothing_is_written_beyond_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    with PcapWriter(path, length_limit=250) as writer:
        for number in range(5):
            writer(number, Verdict.SENT, ALICE, BOB, bytes(56))
    assert (writer.count, writer.skipped_count) == (2, 3)
    assert len(read(path)) == 2


@pytest.mark.skipif(TSHARK is None, reason="tshark is not on PATH")
def test_wireshark_finds_aeron_in_a_capture_of_a_world(tmp_path: Path) -> None:
    path = tmp_path / "world.pcap"

    async def story(world: World) -> None:
        world.network.trace.watch(writer)
        alice, bob = world.host("alice", "10.0.0.1"), world.host("bob", "fd00::2", "10.0.0.2")
        channel = "aeron:udp?endpoint=10.0.0.2:40123|term-length=64k"
        async with alice.aeron() as sending, bob.aeron() as receiving:
            subscription = await receiving.add_subscription(channel, 1)
            publication = await sending.add_publication(channel, 1)
            await publication.offer(b"seen by the shark")
            assert (await anext(subscription)).data == b"seen by the shark"
            await asyncio.sleep(1)

    with PcapWriter(path) as writer:
        simulate(story)
    command = [str(TSHARK), "-r", str(path), "-o", "ip.check_checksum:TRUE"]
    command += ["-d", "udp.port==40123,aeron", "-T", "fields"]
    for field in ("ip.checksum.status", "_ws.malformed", *FRAMES):
        command += ["-e", field]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(lines) == writer.count
    # Good IP checksums, and frames of Aeron that are well formed.
    assert {tuple(line[:2]) for line in lines} == {("1", "")}
    assert all(any(column) for column in zip(*(line[2:] for line in lines), strict=True))


def test_the_checksum_of_every_header_is_right() -> None:
    packet = udp_packet(("255.255.255.255", 65_535), ("255.255.255.254", 65_535), bytes(65_000))
    words = struct.unpack(">10H", packet[:20])
    total = sum(words)
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    assert total == 0xFFFF
