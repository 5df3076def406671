"""The receive buffer of a simulated socket: room, order, and what is gathered to a batch."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.testing.sim_network import BATCH_COUNT_MAX, BATCH_LENGTH_MAX, ReceiveBuffer

ALICE = ("10.0.0.1", 5)
BOB = ("10.0.0.2", 5)

Arrival = tuple[bytes, tuple[str, int], int]


def buffer_of(*arrivals: Arrival, is_gathering: bool = True, seed: int = 1) -> ReceiveBuffer:
    buffer = ReceiveBuffer(2**30, is_gathering=is_gathering, coin=Random(seed))
    for each in arrivals:
        assert buffer.try_add(*each)
    return buffer


def lengths(*arrivals: Arrival) -> list[list[int]]:
    """Return the lengths of the datagrams that are taken together."""
    buffer = buffer_of(*arrivals)
    taken = []
    while buffer:
        datagrams, _, is_batch = buffer.take()
        assert is_batch or len(datagrams) == 1
        taken.append(list(map(len, datagrams)))
    return taken


def at_once(*datagram_lengths: int) -> list[Arrival]:
    return [(bytes(length), ALICE, 7) for length in datagram_lengths]


def test_datagrams_of_one_length_are_one_batch() -> None:
    assert lengths(*at_once(9, 9, 9)) == [[9, 9, 9]]


def test_a_shorter_datagram_ends_its_batch() -> None:
    assert lengths(*at_once(9, 9, 4, 9, 4, 4, 1)) == [[9, 9, 4], [9, 4], [4, 1]]


def test_a_longer_datagram_begins_another_batch() -> None:
    assert lengths(*at_once(4, 9, 9)) == [[4], [9, 9]]


def test_an_empty_datagram_is_alone() -> None:
    assert lengths(*at_once(9, 9, 0, 0, 9)) == [[9, 9], [0], [0], [9]]


def test_another_source_or_another_instant_begins_another_batch() -> None:
    arrivals = [(b"a", ALICE, 7), (b"b", BOB, 7), (b"c", ALICE, 7), (b"d", ALICE, 8)]
    assert lengths(*arrivals) == [[1]] * 4


def test_a_batch_has_so_many_datagrams_at_most() -> None:
    assert lengths(*at_once(*[1] * (BATCH_COUNT_MAX + 2))) == [[1] * BATCH_COUNT_MAX, [1, 1]]


def test_a_batch_has_so_many_bytes_at_most() -> None:
    third = BATCH_LENGTH_MAX // 3
    assert lengths(*at_once(third, third, third, 2)) == [[third, third, third, 2]]
    assert lengths(*at_once(third, third, third, 3)) == [[third, third, third], [3]]


def test_what_does_not_fit_is_refused_until_something_was_taken() -> None:
    buffer = ReceiveBuffer(10, is_gathering=True, coin=Random(1))
    assert buffer.try_add(b"12345", ALICE, 7)
    assert buffer.try_add(b"12345", ALICE, 7)
    assert not buffer.try_add(b"6", ALICE, 7)
    assert buffer.take()[0] == [b"12345"] * 2
    assert buffer.try_add(b"1234567890", ALICE, 7)
    buffer.clear()
    assert len(buffer) == 0
    assert buffer.try_add(b"1234567890", ALICE, 7)
    with pytest.raises(IndexError):
        ReceiveBuffer(10, is_gathering=True, coin=Random(1)).take()


def test_one_that_is_alone_is_a_batch_of_one_half_of_the_time_and_the_same_half_again() -> None:
    arrivals = [(b"x", ALICE, now_ns) for now_ns in range(1_000)]

    def batches(seed: int) -> list[bool]:
        buffer = buffer_of(*arrivals, seed=seed)
        return [buffer.take()[2] for _ in arrivals]

    assert 400 < sum(batches(1)) < 600
    assert batches(1) == batches(1) != batches(2)


def test_where_nothing_is_gathered_everything_is_alone() -> None:
    buffer = buffer_of(*at_once(9, 9, 0), is_gathering=False)
    assert [buffer.take() for _ in range(3)] == [
        ([bytes(length)], ALICE, False) for length in (9, 9, 0)
    ]


@given(
    arrivals=st.lists(
        st.tuples(
            st.sampled_from((0, 1, 2, 2, 2, 1_500, 30_000)),
            st.sampled_from((ALICE, ALICE, BOB)),
            st.integers(0, 1),
            st.integers(1, 40),
        )
    )
)
def test_nothing_is_lost_reordered_or_mixed(
    arrivals: list[tuple[int, tuple[str, int], int, int]],
) -> None:
    came: list[Arrival] = []
    now_ns = 0
    for length, source, wait_ns, count in arrivals:
        now_ns += wait_ns
        came += [(bytes([len(came) % 251 + n % 5]) * length, source, now_ns) for n in range(count)]
    buffer = buffer_of(*came)
    left: list[tuple[bytes, tuple[str, int]]] = []
    while buffer:
        datagrams, source, is_batch = buffer.take()
        instants = {at for _, _, at in came[len(left) : len(left) + len(datagrams)]}
        left += [(datagram, source) for datagram in datagrams]
        assert len(instants) == 1
        assert len(datagrams) <= BATCH_COUNT_MAX
        assert sum(map(len, datagrams)) <= BATCH_LENGTH_MAX or len(datagrams) == 1
        assert len({len(each) for each in datagrams[:-1]}) <= 1
        assert len(datagrams[-1]) <= len(datagrams[0])
        assert all(datagrams) or not is_batch
    assert left == [(datagram, source) for datagram, source, _ in came]
