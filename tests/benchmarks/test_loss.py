from __future__ import annotations

import asyncio
from array import array
from itertools import chain, islice, repeat
from random import Random
from typing import Any

import pytest

import aeron_async as aa
from aeron_async.cli.bench_child import StreamPlan, exchange
from benchmarks.loss import Lossy, LossyNetwork, pieces

ADDRESS = ("127.0.0.1", 1)


class Taking(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.taken: list[tuple[bytes, int]] = []

    def datagram_received(self, data: Any, addr: object) -> None:
        self.taken.append((bytes(data), 0))

    def datagrams_received(self, data: Any, segment_length: int, addr: object) -> None:
        self.taken.append((bytes(data), segment_length))

    def datagrams_dropped(self, count: int) -> None:
        raise AssertionError


def losing(*gaps: int) -> tuple[Taking, Lossy]:
    taking = Taking()
    return taking, Lossy(taking, chain(gaps, repeat(1_000)))


def test_the_share_that_is_lost_is_the_rate() -> None:
    gaps = list(islice(pieces(Random(1), 0.01), 10_000))
    assert 10_000 / (sum(gaps) + 10_000) == pytest.approx(0.01, rel=0.05)
    assert next(pieces(Random(1), 0.0)) > 10**12


def test_datagrams_that_come_alone_are_lost_by_the_gaps() -> None:
    taking, lossy = losing(2, 0, 1)
    for number in range(6):
        lossy.datagram_received(bytes([number]), ADDRESS)
    assert [data for data, _ in taking.taken] == [b"\x00", b"\x01", b"\x04"]


def test_a_run_that_loses_nothing_stays_whole() -> None:
    taking, lossy = losing(10)
    lossy.datagrams_received(memoryview(bytearray(b"aabbccd")), 2, ADDRESS)
    assert taking.taken == [(b"aabbccd", 2)]


def test_what_is_left_of_a_run_is_one_run() -> None:
    taking, lossy = losing(2, 100)
    lossy.datagrams_received(memoryview(bytearray(b"aabbccddee")), 2, ADDRESS)
    assert taking.taken == [(b"aabbddee", 2)]
    taking, lossy = losing(1, 0, 1, 100)
    lossy.datagrams_received(memoryview(bytearray(b"aabbccddeef")), 2, ADDRESS)
    assert taking.taken == [(b"aaddf", 2)]


class TakingMany(Taking):
    def batches_received(self, data: Any, segments: Any, addr: object) -> None:
        start = 0
        for end, length in zip(segments[::2], segments[1::2], strict=True):
            self.taken.append((bytes(data[start:end]), length))
            start = end
        self.taken.append((b"", 0))


def test_what_is_left_of_many_runs_goes_on_together() -> None:
    taking = TakingMany()
    lossy: Any = Lossy(taking, chain([6, 100]))
    runs = (b"aabbc", b"ddee", b"ffgghh", b"iijj", b"kk")
    ends = array("i")
    for run in runs:
        ends.extend((sum(ends[-2:-1]) + len(run), 2))
    lossy.batches_received(memoryview(bytearray(b"".join(runs))), ends, ADDRESS)
    assert taking.taken == [
        (b"aabbc", 2), (b"ddee", 2), (b"ffhh", 2), (b"iijj", 2), (b"kk", 2), (b"", 0),
    ]  # fmt: skip


def test_what_is_left_of_a_run_may_be_one_datagram_or_none() -> None:
    taking, lossy = losing(1, 1, 0, 5)
    lossy.datagrams_received(memoryview(bytearray(b"aabbccdde")), 2, ADDRESS)
    assert taking.taken == [(b"aacc", 2)]
    taking, lossy = losing(0, 9)
    lossy.datagrams_received(memoryview(bytearray(b"aabb")), 2, ADDRESS)
    assert taking.taken == [(b"bb", 0)]


def test_what_else_an_endpoint_is_told_passes_through() -> None:
    taking, lossy = losing(1)
    with pytest.raises(AssertionError):
        lossy.datagrams_dropped(1)  # type: ignore[attr-defined]
    assert not hasattr(lossy, "media_timestamp_received")
    assert taking.taken == []


async def test_a_stream_over_it_is_whole_all_the_same(unused_udp_port: int) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{unused_udp_port}"
    driver = aa.MediaDriver.launch(aa.DriverContext(), network=LossyNetwork(0.05, 7))
    async with driver, aa.Aeron.connect(driver) as aeron:
        plan = StreamPlan(channel=channel, length=500, seconds=0.05, warm_up_s=0.02)
        figures = await exchange(aeron, plan)
        naks = sum(each.value for each in aeron.counters if each.label == "NAKs sent")
    assert figures["messages"] == figures["offered"] > 0
    assert naks > 0
