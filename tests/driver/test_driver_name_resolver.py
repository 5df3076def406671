"""What drivers tell each other of their names: learned, told on, forgotten, and limited."""

from __future__ import annotations

import struct
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from aeron_async.clock import NEVER_NS
from aeron_async.driver.core import driver_name_resolver
from aeron_async.driver.core.context import MS, SECOND, DriverContext, parse_neighbors
from aeron_async.driver.core.driver_name_resolver import DriverNameResolver
from aeron_async.driver.core.system_counters import DriverCounterId, SystemCounterId
from aeron_async.errors import ConfigurationError
from aeron_async.protocol.resolution import Resolution, encode_resolutions, resolutions
from tests.driver.fakes import Counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.driver.core.outbox import Address
    from aeron_async.protocol.header import Buffer

ADDRESS = ("0.0.0.0", 8050)
ALPHA = ("10.0.0.1", 8050)
BETA = ("10.0.0.2", 8050)
TIMEOUT_NS = 10 * SECOND


class Delegate:
    """Knows one name, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, bool]] = []

    async def resolve(self, host: str, port: int, *, is_re_resolution: bool = False) -> Address:
        self.asked.append((host, port, is_re_resolution))
        return "192.0.2.1", port


class Station:
    """A resolver, what it sends, and its counters."""

    def __init__(self, address: Address = ADDRESS, **settings: Any) -> None:
        settings = {"resolver_name": "here", "resolver_interface": "0.0.0.0:8050"} | settings
        self.context = DriverContext(**settings)
        self.counts = Counts(self.context)
        self.delegate = Delegate()
        self.resolver = DriverNameResolver(
            self.context,
            self.delegate,
            counters_manager=self.counts.manager,
            system_counters=self.counts.system,
            address=address,
        )

    def counters(self) -> dict[str, int]:
        """Return the counters of the resolver, by label."""
        return {
            each.label: each.value for each in self.counts.manager if each.type_id in {15, 16, 21}
        }

    def hear(self, *entries: Resolution, at_ns: int = 0, source: Address = ALPHA) -> None:
        for frame in encode_resolutions(entries, 65_504):
            self.resolver.on_datagram(frame, source, at_ns)

    def poll(self, now_ns: int) -> tuple[list[tuple[list[Resolution], Address]], int]:
        """Return what is sent, and the next deadline."""
        sent: list[tuple[list[Resolution], Address]] = []
        deadline_ns = self.resolver.poll(
            now_ns, lambda frame, address: sent.append((list(resolutions(frame)), address))
        )
        return sent, deadline_ns

    def pay(self, *addresses: Address) -> None:
        """Count these neighbors as drivers that have sent as much as they are sent."""
        for address in addresses:
            self.resolver._neighbors.entries[address].budget.on_received(100_000)

    def run(self, seconds: int) -> Counter[Address]:
        """Poll whenever something is due; return how many bytes each address is sent."""
        lengths: Counter[Address] = Counter()
        now_ns, end_ns = 0, seconds * SECOND
        while now_ns < end_ns:
            now_ns = max(
                now_ns + 1, self.resolver.poll(now_ns, partial(self._count_bytes, lengths))
            )
        return lengths

    @staticmethod
    def _count_bytes(lengths: Counter[Address], frame: bytes, address: Address) -> None:
        lengths[address] += len(frame)

    def counted(self) -> tuple[int, ...]:
        """Return the numbers of neighbors and of names."""
        return tuple(self.counters().values())[:2]


def entry(
    name: str, address: Address = ALPHA, *, age_ms: int = 0, is_self: bool = True
) -> Resolution:
    packed = bytes(map(int, address[0].split(".")))
    return Resolution(
        name=name.encode(), address=packed, port=address[1], age_ms=age_ms, is_self=is_self
    )


def test_a_driver_alone_waits_for_nothing() -> None:
    station = Station()
    assert station.poll(0) == ([], NEVER_NS)
    assert station.counters() == {
        "Resolver neighbors: bound 0.0.0.0:8050": 0,
        "Resolver cache entries: name=here": 0,
    }


def test_a_bootstrap_neighbor_is_told_the_own_name_every_second() -> None:
    station = Station(resolver_bootstrap_neighbor="alpha:8050")
    (neighbor,) = station.resolver.unheard()
    assert station.poll(0) == ([], NEVER_NS)
    station.resolver.move(neighbor, ALPHA)
    own = entry("here", ADDRESS)
    assert station.poll(5) == ([([own], ALPHA)], 5 + SECOND)
    assert station.poll(4 + SECOND) == ([], 5 + SECOND)
    assert station.poll(5 + SECOND) == ([([own], ALPHA)], 5 + 2 * SECOND)
    label = "Bootstrap neighbor: name=alpha:8050 resolved=10.0.0.1:8050"
    assert station.counters()[label] == 0
    station.hear(entry("alpha"), at_ns=6 * SECOND)
    station.poll(6 * SECOND)
    assert station.counters()[label] == 1
    assert list(station.resolver.unheard()) == []
    # It has an index for its key, as in Aeron.
    (record,) = (each for each in station.counts.manager if each.type_id == 21)
    assert record.key == struct.pack("<i", 0).ljust(112, b"\0")
    station.poll(16 * SECOND)
    assert station.counters()[label] == 0
    assert list(station.resolver.unheard()) == [neighbor]
    station.resolver.move(neighbor, None)
    assert "Bootstrap neighbor: name=alpha:8050 resolved=" in station.counters()


async def test_a_name_that_was_heard_leads_to_its_driver_until_it_is_too_old() -> None:
    station = Station()
    with capture_logs() as lines:
        station.hear(entry("alpha"), at_ns=0)
    assert [line["event"] for line in lines] == ["resolver_neighbor_added"]
    assert station.counted() == (1, 1)
    assert await station.resolver.resolve("alpha", 40123) == ("10.0.0.1", 40123)
    assert station.delegate.asked == []
    with capture_logs() as lines:
        station.poll(TIMEOUT_NS)
    assert [line["event"] for line in lines] == ["resolver_neighbor_removed"]
    assert station.counted() == (0, 0)
    resolved = await station.resolver.resolve("alpha", 40123, is_re_resolution=True)
    assert resolved == ("192.0.2.1", 40123)
    assert station.delegate.asked == [("alpha", 40123, True)]


async def test_the_own_name_leads_to_the_own_address() -> None:
    station = Station(address=("10.0.0.9", 8050))
    assert await station.resolver.resolve("here", 40123) == ("10.0.0.9", 40123)
    station.hear(entry("here", ("10.0.0.7", 8050)))
    assert station.counted() == (0, 0)
    # The same name at another port is another driver, which Aeron prefers too.
    station.hear(entry("here", ("10.0.0.7", 8051)))
    assert await station.resolver.resolve("here", 40123) == ("10.0.0.7", 40123)


async def test_a_name_of_ipv6_alone_is_found_and_ipv4_comes_first() -> None:
    station = Station()
    six = Resolution(name=b"alpha", address=bytes(15) + b"\x05", port=8050, is_self=True)
    station.hear(six)
    assert await station.resolver.resolve("alpha", 40123) == ("::5", 40123)
    station.hear(entry("alpha"))
    assert await station.resolver.resolve("alpha", 40123) == ("10.0.0.1", 40123)
    assert station.counted() == (2, 2)


def test_neighbors_are_told_the_own_name_and_those_of_others_with_their_age() -> None:
    station = Station()
    station.hear(entry("alpha"), at_ns=0)
    station.hear(entry("beta", BETA, is_self=False, age_ms=500), at_ns=SECOND)
    station.pay(ALPHA, BETA)
    own = entry("here", ADDRESS)
    names = [
        entry("alpha", age_ms=2_000, is_self=False),
        entry("beta", BETA, age_ms=1_500, is_self=False),
    ]
    sent, deadline_ns = station.poll(2 * SECOND)
    # Nothing but the own name goes to a driver that was only heard of.
    assert sent == [([own], ALPHA), ([own], BETA), (names, ALPHA)]
    assert deadline_ns == 3 * SECOND
    sent, _ = station.poll(3 * SECOND)
    assert sent == [([own], ALPHA), ([own], BETA)]
    # Beta does not answer, whatever others say of it.
    station.hear(entry("beta", BETA), at_ns=3 * SECOND, source=ALPHA)
    assert [address for _, address in station.poll(4 * SECOND)[0]] == [ALPHA, ALPHA]
    station.hear(entry("beta", BETA), at_ns=5 * SECOND, source=BETA)
    sent, _ = station.poll(6 * SECOND)
    assert [len(found) for found, _ in sent] == [1, 1, 2, 2]


def test_gossip_keeps_a_name_but_not_the_neighbor_that_is_silent_itself() -> None:
    station = Station()
    station.hear(entry("alpha"), at_ns=0)
    for second in range(1, 10):
        station.hear(entry("alpha", is_self=False), at_ns=second * SECOND, source=BETA)
    station.poll(TIMEOUT_NS)
    assert station.counted() == (0, 1)
    _, deadline_ns = station.poll(TIMEOUT_NS)
    assert deadline_ns == 9 * SECOND + TIMEOUT_NS


async def test_late_gossip_does_not_replace_what_the_driver_itself_has_said() -> None:
    station = Station()
    station.hear(entry("alpha", BETA), at_ns=5 * SECOND, source=BETA)
    station.hear(entry("alpha", ALPHA, is_self=False, age_ms=3_000), at_ns=6 * SECOND)
    assert await station.resolver.resolve("alpha", 1) == ("10.0.0.2", 1)
    station.hear(entry("alpha", ALPHA, is_self=False, age_ms=500), at_ns=6 * SECOND)
    assert await station.resolver.resolve("alpha", 1) == ("10.0.0.1", 1)


async def test_a_driver_on_all_interfaces_is_where_its_packet_comes_from() -> None:
    station = Station()
    station.hear(entry("alpha", ADDRESS), source=("10.0.0.5", 8050))
    assert await station.resolver.resolve("alpha", 1) == ("10.0.0.5", 1)
    sent, _ = station.poll(0)
    assert {address for _, address in sent} == {("10.0.0.5", 8050)}


@pytest.mark.parametrize(
    "bad",
    [
        entry("alpha", age_ms=-1),
        entry("alpha", ADDRESS, is_self=False),
        entry("alpha", ("224.0.0.1", 8050)),
        entry("alpha", ("10.0.0.1", 0)),
    ],
    ids=["of the future", "to nowhere", "to a group", "to no port"],
)
def test_an_entry_that_cannot_be_true_is_counted_and_ignored(bad: Resolution) -> None:
    station = Station()
    station.hear(bad, entry("beta", BETA))
    assert station.counts[SystemCounterId.INVALID_PACKETS] == 1
    assert station.counted() == (1, 1)


def test_what_is_too_old_when_it_comes_is_not_learned() -> None:
    station = Station()
    station.hear(entry("alpha", age_ms=10_000, is_self=False))
    assert station.counted() == (0, 0)
    station.hear(entry("alpha", age_ms=9_999, is_self=False))
    assert station.counted() == (1, 1)


def test_what_is_no_frame_is_counted_and_the_entries_before_are_kept() -> None:
    station = Station()
    (frame,) = encode_resolutions([entry("alpha"), entry("beta", BETA)], 1408)
    broken = bytearray(frame)
    broken[8 + 24] = 9
    station.resolver.on_datagram(broken, ALPHA, 0)
    station.resolver.on_datagram(b"", ALPHA, 0)
    assert station.counts[SystemCounterId.INVALID_PACKETS] == 2
    assert station.counted() == (1, 1)


def test_no_stranger_decides_how_many_drivers_are_known() -> None:
    station = Station(max_resolver_neighbors=3)
    for number in range(10):
        station.hear(entry(f"driver {number}", (f"10.0.1.{number}", 8050)))
    assert station.counted() == (3, 3)
    assert station.counts[DriverCounterId.RESOLUTIONS_REFUSED] == 14
    sent, _ = station.poll(0)
    assert len({address for _, address in sent}) == 3


def test_many_names_are_told_in_frames_that_fit_the_mtu() -> None:
    station = Station(mtu_length=1408, max_resolver_neighbors=200)
    for number in range(200):
        station.hear(entry(f"driver-{number:03}" * 4, (f"10.0.1.{number}", 8050)), at_ns=0)
    lengths: list[int] = []
    station.hear(entry("driver-000" * 4, ("10.0.1.0", 8050)), at_ns=0, source=("10.0.1.0", 8050))
    station.pay(("10.0.1.0", 8050))
    station.resolver.poll(0, lambda frame, _: lengths.append(len(frame)))
    assert max(lengths) <= 1408
    # To each of 200 neighbors the own name; to the one that was heard itself, 200 entries of 56
    # bytes, 25 in a frame.
    assert len(lengths) == 200 + 8


def test_a_name_that_fits_no_frame_is_not_told() -> None:
    station = Station(mtu_length=96)
    station.hear(entry("alpha" * 20))
    assert station.poll(0)[0] == [([entry("here", ADDRESS)], ALPHA)]
    station = Station(mtu_length=96, resolver_name="here" * 100)
    station.hear(entry("alpha" * 20))
    assert station.poll(0)[0] == []
    assert station.counts[DriverCounterId.HANDSHAKE_SENDS_WITHHELD] == 2


# How much is sent, and to whom.

VICTIM = ("192.0.2.99", 8050)


def crowd(count: int, *, is_self: bool = False) -> list[Resolution]:
    return [
        entry(f"d-{each:04}", (f"10.0.1.{each}", 8050), is_self=is_self) for each in range(count)
    ]


def test_addresses_that_were_only_heard_of_get_the_own_name_twice() -> None:
    station = Station()
    (datagram,) = encode_resolutions(crowd(223), 65_504)
    station.resolver.on_datagram(datagram, ALPHA, 0)
    lengths = station.run(seconds=15)
    assert len(datagram) == 5_360
    # The own name takes 32 bytes, and each entry of 24 bytes pays for 72.
    assert len(lengths) == 223
    assert set(lengths.values()) == {64}
    assert lengths.total() == 14_272 < 3 * len(datagram)


@pytest.mark.parametrize("seconds", [1, 10])
def test_a_packet_with_a_forged_source_brings_its_victim_three_times_its_length(
    seconds: int,
) -> None:
    station = Station(resolver_neighbor_timeout_ns=60 * SECOND)
    station.hear(*crowd(200))
    (datagram,) = encode_resolutions([entry("v", VICTIM)], 65_504)
    for _ in range(seconds):
        station.resolver.on_datagram(datagram, VICTIM, 0)
    found = station.run(seconds=59)[VICTIM]
    assert len(datagram) == 24
    assert 0 < found <= 3 * 24 * seconds
    assert station.counts[DriverCounterId.HANDSHAKE_SENDS_WITHHELD] > 0


@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), min_size=1),
            st.integers(0, 5),
            st.integers(0, 2 * SECOND),
        ),
        max_size=30,
    ),
    st.text("n", min_size=1, max_size=512),
)
def test_no_packets_bring_more_than_three_times_their_length(
    packets: list[tuple[list[tuple[int, int, bool]], int, int]], name: str
) -> None:
    station = Station(resolver_name=name, max_resolver_neighbors=5)
    addresses = [(f"10.0.1.{each}", 8050) for each in range(6)]
    now_ns = received = 0
    lengths: Counter[Address] = Counter()
    count = partial(station._count_bytes, lengths)
    for entries, source, pause_ns in packets:
        (datagram,) = encode_resolutions(
            [
                entry("x" * (1 + 9 * name), addresses[place], is_self=is_self)
                for name, place, is_self in entries
            ],
            65_504,
        )
        received += len(datagram)
        station.resolver.on_datagram(datagram, addresses[source], now_ns)
        station.resolver.poll(now_ns, count)
        now_ns += pause_ns
        assert lengths.total() <= 3 * received
    for _ in range(30):
        station.resolver.poll(now_ns, count)
        now_ns += SECOND
    assert lengths.total() <= 3 * received


def mesh(count: int, **settings: Any) -> dict[Address, Station]:
    """Return drivers of which each but the first one is told where the first one is."""
    stations: dict[Address, Station] = {}
    for number in range(count):
        address = (f"10.0.2.{number}", 8050)
        bootstrap = {"resolver_bootstrap_neighbor": "first:8050"} if stations else {}
        station = Station(address, resolver_name=f"driver-{number}", **bootstrap, **settings)
        for neighbor in station.resolver.unheard():
            station.resolver.move(neighbor, next(iter(stations)))
        stations[address] = station
    return stations


def converse(stations: dict[Address, Station], now_ns: int) -> None:
    """Poll each driver, and deliver what it sends."""
    for address, station in stations.items():
        packets: list[tuple[bytes, Address]] = []
        station.resolver.poll(now_ns, lambda *packet: packets.append(packet))  # noqa: B023
        for frame, target in packets:
            if target in stations:
                stations[target].resolver.on_datagram(frame, address, now_ns)


def tenths_until_all_know_all(stations: dict[Address, Station], start: int) -> int:
    known = len(stations) - 1
    for tenth in range(start, start + 100):
        converse(stations, tenth * 100 * MS)
        if {each.counted() for each in stations.values()} == {(known, known)}:
            return tenth - start
    pytest.fail("they have not all heard of each other in ten seconds")


def test_many_drivers_soon_know_each_other_and_one_that_starts_again_soon_knows_all() -> None:
    stations = mesh(12)
    # They tell the first one, which tells them what it has heard two seconds later.
    assert tenths_until_all_know_all(stations, 0) <= 45
    newcomer = list(stations)[-1]
    stations[newcomer] = mesh(12)[newcomer]
    assert tenths_until_all_know_all(stations, 100) <= 10


def test_drivers_that_have_talked_for_a_while_withhold_nothing() -> None:
    stations = mesh(12)
    withheld: list[list[int]] = [[], []]
    for second in range(40):
        converse(stations, second * SECOND)
        withheld[second >= 20] = [
            each.counts[DriverCounterId.HANDSHAKE_SENDS_WITHHELD] for each in stations.values()
        ]
    assert withheld[0] == withheld[1]
    assert max(withheld[0]) > 0


# Strangers that want all places, or all the time.


def forged(number: int) -> Address:
    return f"10.1.{number >> 8}.{number & 255}", 8050


def announce(station: Station, count: int, now_ns: int, *, first: int = 0) -> None:
    """Let as many strangers, or one with as many forged addresses, announce themselves."""
    for number in range(first, first + count):
        address = forged(number)
        station.hear(entry(f"f-{number}", address), at_ns=now_ns, source=address)


async def test_a_driver_that_speaks_for_itself_takes_a_place_of_one_that_was_heard_of() -> None:
    station = Station(max_resolver_neighbors=100)
    station.hear(*crowd(100))
    assert station.counted() == (100, 100)
    station.hear(entry("beta", BETA, is_self=False))
    assert station.counts[DriverCounterId.RESOLUTIONS_REFUSED] == 2
    with capture_logs() as lines:
        station.hear(entry("beta", BETA), source=BETA)
    assert [line["event"] for line in lines] == [
        "resolver_neighbor_removed",
        "resolver_neighbor_added",
    ]
    assert station.counted() == (100, 100)
    assert await station.resolver.resolve("beta", 1) == ("10.0.0.2", 1)


async def test_a_driver_that_answers_keeps_its_place_among_forged_ones() -> None:
    station = Station(max_resolver_neighbors=100, max_resolutions_per_second=600)
    announce(station, 100, 0)
    for second in range(30):
        now_ns = second * SECOND
        station.hear(entry("beta", BETA), at_ns=now_ns, source=BETA)
        station.poll(now_ns)
        assert await station.resolver.resolve("beta", 1) == ("10.0.0.2", 1)
        if second:
            # More than there are places, and more than are read of strangers in a second.
            announce(station, 200, now_ns + 1, first=200 * second)
            station.hear(*crowd(100), at_ns=now_ns + 2)
    assert station.counted() == (100, 100)


async def test_bootstrap_neighbors_have_their_places_whoever_has_all_others() -> None:
    station = Station(max_resolver_neighbors=100, resolver_bootstrap_neighbor="beta:8050")
    (bootstrap,) = station.resolver.unheard()
    for second in range(3):
        announce(station, 100, second * SECOND)
        station.poll(second * SECOND)
    station.hear(entry("gamma", ("10.0.0.3", 8050)), at_ns=2 * SECOND, source=("10.0.0.3", 8050))
    assert station.counts[DriverCounterId.RESOLUTIONS_REFUSED] == 2
    station.resolver.move(bootstrap, BETA)
    station.hear(entry("beta", BETA), at_ns=2 * SECOND, source=BETA)
    assert station.counted() == (100, 100)
    assert await station.resolver.resolve("beta", 1) == ("10.0.0.2", 1)
    station.poll(3 * SECOND)
    assert list(station.resolver.unheard()) == []


async def test_of_the_names_that_one_driver_gives_itself_only_the_last_has_a_place() -> None:
    station = Station(max_resolver_neighbors=2)
    for second, name in enumerate(["beta", "beta", "b", "b"]):
        station.hear(entry(name, BETA), at_ns=second * SECOND, source=BETA)
        station.poll(second * SECOND)
    assert station.counted() == (1, 2)
    station.hear(entry("gamma", ALPHA), at_ns=3 * SECOND, source=ALPHA)
    assert await station.resolver.resolve("b", 1) == ("10.0.0.2", 1)
    assert await station.resolver.resolve("gamma", 1) == ("10.0.0.1", 1)
    assert (await station.resolver.resolve("beta", 1))[0] == "192.0.2.1"


def test_no_more_of_a_packet_is_read_than_there_are_places(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Resolution] = []

    def counting(datagram: Buffer) -> Iterator[Resolution]:
        for each in resolutions(datagram):
            read.append(each)
            yield each

    monkeypatch.setattr(driver_name_resolver, "resolutions", counting)
    station = Station()
    entries = [entry(f"{number}", forged(number), is_self=False) for number in range(2_500)]
    with capture_logs() as lines:
        station.hear(*entries)
    assert len(read) == 257
    assert station.counted() == (256, 256)
    assert station.counts[DriverCounterId.RESOLUTIONS_REFUSED] == 1
    assert lines[-1]["event"] == "resolutions_refused"
    assert lines[-1]["limit"] == "max_resolver_neighbors"


def test_strangers_get_a_part_of_what_is_read_in_a_second() -> None:
    station = Station(max_resolutions_per_second=40)
    station.hear(entry("beta", BETA), source=BETA)
    station.poll(0)
    station.hear(entry("beta", BETA), at_ns=SECOND, source=BETA)
    with capture_logs() as lines:
        station.hear(*crowd(11), at_ns=SECOND)
        station.hear(entry("gamma"), at_ns=SECOND, source=ALPHA)
    # Beta has announced itself for the second time as a stranger, too.
    assert station.counted() == (10, 10)
    assert station.counts[DriverCounterId.RESOLUTIONS_REFUSED] == 2
    refused = [line for line in lines if line["event"] == "resolutions_refused"]
    assert refused[0]["limit"] == "max_resolutions_per_second"
    assert refused[0]["source"] == "10.0.0.1:8050"
    # What neighbors say has a budget of its own, and they announce themselves for free.
    station.hear(*crowd(40), at_ns=SECOND, source=BETA)
    assert station.counted() == (41, 41)
    assert station.counts[DriverCounterId.RESOLUTIONS_REFUSED] == 2
    station.hear(*crowd(1), at_ns=SECOND, source=BETA)
    for _ in range(3):
        station.hear(entry("beta", BETA), at_ns=SECOND + 1, source=BETA)
    assert station.counts[DriverCounterId.RESOLUTIONS_REFUSED] == 3
    station.hear(entry("gamma"), at_ns=2 * SECOND, source=ALPHA)
    assert station.counted() == (42, 42)


PACKETS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), min_size=1),
        st.integers(0, 3),
        st.integers(0, 11_000),
        st.integers(0, SECOND),
    ),
    max_size=30,
)


@given(PACKETS)
def test_what_is_known_already_is_learned_the_short_way_as_the_long_way(
    packets: list[tuple[list[tuple[int, int, bool]], int, int, int]],
) -> None:
    stations = Station(), Station()
    stations[1].resolver._on_entry_fast = lambda *_: None  # type: ignore[method-assign]
    addresses = [(f"10.0.1.{each}", 8050) for each in range(4)]
    now_ns = 0
    for entries, source, age_ms, pause_ns in packets:
        found = [
            entry(f"n-{name}", addresses[place], is_self=is_self, age_ms=0 if is_self else age_ms)
            for name, place, is_self in entries
        ]
        states = []
        for station in stations:
            station.hear(*found, at_ns=now_ns, source=addresses[source])
            sent, deadline_ns = station.poll(now_ns)
            resolver = station.resolver
            known = {
                key: (each.place, each.activity_ns, each.rank)
                for key, each in resolver._cache.entries.items()
            }
            neighbors = {
                key: (each.activity_ns, each.rank, each.is_heard, each.budget.length)
                for key, each in resolver._neighbors.entries.items()
            }
            states.append((known, neighbors, sent, deadline_ns, station.counted()))
        assert states[0] == states[1]
        now_ns += pause_ns


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"resolver_interface": "localhost:0"}, "`resolverName` is required"),
        ({"name_resolver_supplier": "driver"}, "needs resolver_name and resolver_interface"),
        ({"resolver_name": "ü", "resolver_interface": "localhost:0"}, "letters of ASCII"),
        ({"resolver_name": "x" * 513, "resolver_interface": "localhost:0"}, "at most 512"),
        ({"resolver_name": "x", "resolver_interface": "localhost:70000"}, "70000"),
        (
            {
                "resolver_name": "x",
                "resolver_interface": "localhost:0",
                "resolver_bootstrap_neighbor": ",".join(["localhost:1"] * 21),
            },
            "list too large: resolver_bootstrap_neighbor has 21, at most 20",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, str], match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        DriverContext(**settings)  # type: ignore[arg-type]


def test_the_settings_have_aerons_names_and_defaults() -> None:
    environ = {
        "AERON_NAME_RESOLVER_SUPPLIER": "aeron_driver_name_resolver_supplier",
        "AERON_DRIVER_RESOLVER_NAME": "here",
        "AERON_DRIVER_RESOLVER_INTERFACE": "0.0.0.0:8050",
        "AERON_DRIVER_RESOLVER_BOOTSTRAP_NEIGHBOR": "alpha:8050,beta:8050",
        "AERON_DRIVER_RESOLVER_NEIGHBOR_TIMEOUT": "2s",
    }
    context = DriverContext.from_environment(environ)
    assert parse_neighbors(context.resolver_bootstrap_neighbor) == ("alpha:8050", "beta:8050")
    assert context.resolver_neighbor_timeout_ns == 2 * SECOND
    assert context.resolver_self_resolution_interval_ns == SECOND
    assert context.resolver_neighbor_resolution_interval_ns == 2 * SECOND
    assert context.resolver_bootstrap_neighbor_resolution_interval_ns == 10_000 * MS
