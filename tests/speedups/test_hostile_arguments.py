"""The compiled code touches only its arguments, whatever they are."""

from __future__ import annotations

import copy
import errno
import gc
import pickle
import sys
import weakref
from array import array
from contextlib import suppress
from socket import AF_INET, SOCK_DGRAM, socket
from struct import pack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

from aeron_async import _speedups
from tests.by_hand import NOT_BUILT
from tests.logbuffer.logs import MAX_PAYLOAD, MTU_LENGTH, NO_LIMIT, TERM_LENGTH, make_log, read_all
from tests.speedups.test_twins import filled, place, place_batch, scan_batch
from tests.twins import TWINS, compiled_twins, needs_compiled, pure_twins

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_PLACES: Final = [-(2**63), -TERM_LENGTH, -32, -1, 1, 16, 33, TERM_LENGTH + 32, 2**62]
LENGTHS: Final = {"max_payload_length": MAX_PAYLOAD, "max_message_length": 8_192}
needs_sockets = pytest.mark.skipif(_speedups.send_to_many is None, reason=NOT_BUILT)


class Image:
    """A source of messages that can be copied and watched."""

    session_id = 7
    stream_id = 8
    held: Any = None


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param()


def odd_view(data: bytes) -> memoryview:
    """Return the data at an odd address."""
    return memoryview(bytearray(b"\0" + data))[1:]


# Scanning.


@pytest.mark.parametrize("offset", NO_PLACES)
def test_nothing_is_scanned_where_no_frame_can_begin(twin: Any, offset: int) -> None:
    log = filled([100] * 200)
    term, words = log.terms[0], log.term_words[0]
    assert twin.scan_for_send(term, words, offset, limit=1_408) == (0, 0)
    options = {"limit": 60_000, "mtu_length": MTU_LENGTH, "max_count": 64}
    assert scan_batch(twin, term, words, offset, **options) == (0, 0, 0)
    assert twin.skip_whole(words, offset, 2**62) == offset
    assert twin.scan_for_gap(words, offset, limit=2**62) == (offset, 0)


@needs_compiled
@pytest.mark.parametrize("offset", NO_PLACES)
def test_nothing_is_read_where_no_frame_can_begin(offset: int) -> None:
    log = filled([100] * 200)
    where = log.terms[0], log.term_words[0], log.term_longs[0]
    out: list[Any] = []
    assert compiled_twins().read_whole(*where, offset, 2**62, 0, 10, out) == offset
    assert out == []


def test_frames_are_skipped_up_to_the_end_of_the_term_and_no_further(twin: Any) -> None:
    log = filled([96] * (TERM_LENGTH // 128))
    assert twin.skip_whole(log.term_words[0], 0, 2**62) == TERM_LENGTH
    assert twin.skip_whole(log.term_words[0], TERM_LENGTH, 2**62) == TERM_LENGTH
    for offset in (0, TERM_LENGTH):
        assert twin.scan_for_gap(log.term_words[0], offset, limit=2**62) == (TERM_LENGTH, 0)


@needs_compiled
@pytest.mark.parametrize("mtu_length", [65_536, 65_600, 131_072, 2**24, 2**61, 2**62, 2**63 - 1])
def test_cuts_are_looked_for_only_among_the_frames_that_are_there(mtu_length: int) -> None:
    log = make_log(term_length=1 << 20)
    words = log.term_words[0]
    for offset in range(0, 1 << 20, 96):
        words[offset >> 2] = 64 if offset + 96 > 1 << 20 else 96
        words[(offset >> 2) + 1] = 0x0001_C000
    options = {"limit": 1 << 20, "mtu_length": mtu_length, "max_count": 64}
    found = [
        scan_batch(each, log.terms[0], words, 0, **options)
        for each in (pure_twins(), compiled_twins())
    ]
    assert found[0] == found[1]


@needs_compiled
def test_cuts_shorter_than_a_frame_are_none() -> None:
    log = filled([0, 32, 0, 32, 100] * 10)
    for mtu_length in (-(2**63), -32, 0, 31, 32, 63, 64):
        options = {"limit": TERM_LENGTH, "mtu_length": mtu_length, "max_count": 64}
        where = log.terms[0], log.term_words[0], 0
        assert scan_batch(compiled_twins(), *where, **options) == scan_batch(
            pure_twins(), *where, **options
        )


@needs_compiled
@pytest.mark.parametrize("max_count", [2_049, 2**31, 2**61, 2**62, 2**63 - 1])
def test_any_number_of_datagrams_may_be_wanted(max_count: int) -> None:
    log = filled([0, 0, 0, 32, 32] * 290)
    options = {"limit": TERM_LENGTH, "mtu_length": MTU_LENGTH, "max_count": max_count}
    where = log.terms[0], log.term_words[0], 0
    found = [scan_batch(each, *where, **options) for each in (pure_twins(), compiled_twins())]
    assert found[0] == found[1]


@needs_compiled
@pytest.mark.parametrize("position", [2**63 - 100, 2**63 - 4_096, 2**63 - 1])
def test_no_start_is_marked_where_a_position_may_overflow(position: int) -> None:
    positions = array("q", [0] * 4)
    segments = array("i", (64, 64, 90, 64))
    call = compiled_twins().mark_starts
    assert call(positions, position, position, segments, 90) == position
    assert positions == array("q", [0] * 4)


@needs_compiled
def test_a_frame_of_a_chain_lies_in_its_term_however_short_that_is() -> None:
    words = memoryview(bytearray(64)).cast("i")
    words[0], words[1], words[2] = 64, 1 << 16, 65_504
    for term_length in (0, -1, -(2**31), -(2**63)):
        where = {"term_offset": 65_504, "term_id": 0, "stream_id": 0, "term_length": term_length}
        assert compiled_twins().scan_chain(words, 64, **where) == (0, 0)


@needs_compiled
@pytest.mark.parametrize("position", [2**63 - TERM_LENGTH, 2**63 - 1])
def test_nothing_is_read_where_a_position_may_overflow(position: int) -> None:
    log = filled([100] * 5)
    where = log.terms[0], None, None, 0, TERM_LENGTH
    batch, end = compiled_twins().open_batch(*where, position, 5, Image())
    assert (batch.left, end) == (0, 0)
    out: list[Any] = []
    assert compiled_twins().read_whole(*where, position, 5, out) == 0
    assert out == []
    assert compiled_twins().open_batch(*where, position - TERM_LENGTH, 5, Image())[0].left == 5


@needs_compiled
def test_only_what_has_the_same_positions_extends_a_batch() -> None:
    log = filled([100] * 5)
    opened = compiled_twins().open_batch
    first, end = opened(log.terms[0], None, None, 0, TERM_LENGTH, 0, 2, Image())
    other, _ = opened(log.terms[0], None, None, end, TERM_LENGTH, TERM_LENGTH, 2, Image())
    assert not first.extend(other)
    other, _ = opened(log.terms[0], None, None, end, TERM_LENGTH, 0, 2, Image())
    assert first.extend(other)


# Placing.


@pytest.mark.parametrize("lead", [1, 2, 3, 5])
def test_a_batch_is_placed_from_whatever_address_it_came_to(twin: Any, lead: int) -> None:
    data = bytes(filled([100] * 16).terms[0][: 16 * 160])
    log = make_log()
    source = memoryview(bytearray(lead) + data)[lead:]
    placed = place_batch(twin, source, 1_280, log.terms[0], log.term_words[0], 0, limit=TERM_LENGTH)
    assert placed == 16 * 160
    assert read_all(log) == read_all(filled([100] * 16))


@pytest.mark.parametrize("at", NO_PLACES)
def test_nothing_is_placed_where_no_frame_can_begin(twin: Any, at: int) -> None:
    data = bytes(filled([100] * 16).terms[0][: 16 * 160])
    log, placed = place(twin, data, 1_280, at=at, limit=2**62)
    assert placed == 0
    assert not any(log.terms[0])


@needs_compiled
def test_nothing_is_done_in_a_term_at_an_odd_address() -> None:
    twin = compiled_twins()
    data = bytes(filled([100] * 16).terms[0][: 16 * 160])
    term = odd_view(data)
    assert twin.scan_for_send(term, None, 0, limit=1_408) == (0, 0)
    assert scan_batch(twin, term, None, 0, limit=9_999, mtu_length=1_408, max_count=9) == (0, 0, 0)
    assert twin.skip_whole(term, 0, 9_999) == 0
    assert twin.scan_for_gap(term, 0, limit=9_999) == (0, 0)
    assert twin.read_whole(term, None, None, 0, 9_999, 0, 10, []) == 0
    assert (
        place_batch(twin, memoryview(data), 1_280, odd_view(bytes(9_999)), None, 0, limit=99_999)
        == 0
    )


@needs_compiled
def test_a_batch_may_lie_in_the_term_that_it_is_placed_in() -> None:
    log = make_log(term_length=1 << 16)
    term, words = log.terms[0], log.term_words[0]
    # A frame that says it is the second one, and zeros where that one would be.
    words[0:6] = memoryview(array("i", (96, 0x0001_C000, 32, 7, 8, 9)))
    term[64:96] = bytes(range(32))
    segments = array("i", (96, 96))
    placed = compiled_twins().place_batches(term, segments, 0, 0, term, None, 32, limit=1_000)
    assert placed == 96
    assert words[8:14].tolist() == [96, 0x0001_C000, 32, 7, 8, 9]
    assert term[96:128] == bytes(range(32))


# Sending.

HOST: Final = bytes((127, 0, 0, 1))


@pytest.fixture
def peers() -> Iterator[tuple[Any, Any, bytes]]:
    """Return a sender, a receiver, and the receiver's address as the system has it."""
    with socket(AF_INET, SOCK_DGRAM) as sender, socket(AF_INET, SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.setblocking(False)
        port = receiver.getsockname()[1]
        yield sender, receiver, pack("=H2s4s8x", AF_INET, port.to_bytes(2, "big"), HOST)


def send_to_many(sender: Any, address: bytes, **changes: Any) -> tuple[int, ...]:
    call: dict[str, Any] = {
        "data": bytes(1_000),
        "segments": array("i", (300, 100, 700, 100)),
        "index": 0,
        "start": 0,
        "addresses": (address,),
        "slice_count": 8,
        "sndbuf_length": 0,
    } | changes
    assert _speedups.send_to_many is not None
    found: tuple[int, ...] = _speedups.send_to_many(sender, *call.values())
    return found


@needs_sockets
@pytest.mark.parametrize(
    "changes",
    [
        *({"index": index} for index in (-(2**63), -2, -1, 1, 3, 5, 6, 2**62)),
        *({"start": start} for start in (-(2**63), -1, 1_001, 2**62)),
        *({"slice_count": count} for count in (-(2**63), -1, 0, 65, 2**62)),
        {"segments": b"1234567"},
        {"addresses": ()},
        *({"addresses": (bytes(length),)} for length in (0, 1, 15, 17, 27, 29, 128)),
    ],
)
def test_what_is_out_of_bounds_is_not_sent(peers: Any, changes: dict[str, Any]) -> None:
    sender, receiver, address = peers
    with pytest.raises(ValueError, match=r"index|slice_count|table|address"):
        send_to_many(sender, address, **changes)
    with pytest.raises(BlockingIOError):
        receiver.recv(1)


@needs_sockets
@pytest.mark.parametrize(
    "changes",
    [
        {"addresses": [bytes(16)]},
        {"addresses": None},
        {"addresses": (bytearray(16),)},
        {"addresses": (None,)},
        {"addresses": ("127.0.0.1", 9)},
        {"data": "text"},
        {"data": None},
        {"segments": (300, 100)},
        {"index": "0"},
        {"sndbuf_length": None},
    ],
)
def test_what_is_of_another_type_is_not_sent(peers: Any, changes: dict[str, Any]) -> None:
    sender, receiver, address = peers
    with pytest.raises(TypeError):
        send_to_many(sender, address, **changes)
    with pytest.raises(BlockingIOError):
        receiver.recv(1)


@needs_sockets
@pytest.mark.parametrize("number", [-(2**63), 2**63, 2**64])
def test_numbers_longer_than_a_word_are_refused(peers: Any, number: int) -> None:
    for name in ("index", "start", "slice_count"):
        with pytest.raises((OverflowError, ValueError)):
            send_to_many(peers[0], peers[2], **{name: number})


@needs_sockets
@pytest.mark.parametrize(
    "cuts", [(0, 100), (-300, 100), (2**31 - 1, 100), (1_001, 100), (300, 0), (300, -100)]
)
def test_cuts_that_are_none_are_sent_up_to(peers: Any, cuts: tuple[int, int]) -> None:
    sender, receiver, address = peers
    assert send_to_many(sender, address, segments=array("i", cuts)) == (0, 0, 0, 0, 0)
    with pytest.raises(BlockingIOError):
        receiver.recv(1)
    segments = array("i", (50, 50, *cuts))
    assert send_to_many(sender, address, segments=segments) == (50, 0, 2, 0, 0)
    assert receiver.recv(1_000) == bytes(50)


@needs_sockets
@pytest.mark.parametrize("sndbuf_length", [-(2**63), -1, 0, 1, 2**31, 2**63 - 1])
def test_no_length_of_a_buffer_does_harm(peers: Any, sndbuf_length: int) -> None:
    sender, receiver, address = peers
    changes: dict[str, Any] = {"sndbuf_length": sndbuf_length, "addresses": (address,) * 3}
    assert send_to_many(sender, address, **changes) == (700, 0, 4, 0, 0)
    assert [len(receiver.recv(1_000)) for _ in range(3 * 7)] == [100] * 21


@needs_sockets
def test_a_socket_that_is_closed_is_sent_nothing(peers: Any) -> None:
    sender, _, address = peers
    sender.close()
    assert send_to_many(sender, address) == (0, 300, 0, 0, errno.EBADF)


@needs_sockets
def test_nothing_of_a_call_is_kept(peers: Any) -> None:
    sender, _, address = peers
    data, segments = bytearray(1_000), array("i", (300, 100))
    before = sys.getrefcount(address)
    for addresses in ((address,), (b"",), (address, None)):
        with suppress(TypeError, ValueError):
            send_to_many(sender, address, data=data, segments=segments, addresses=addresses)
        # One that is still exported could not grow.
        data.append(0)
        segments.extend((300, 100))
        del segments[2:]
    del addresses
    assert sys.getrefcount(address) == before


# Appending.


@needs_compiled
@pytest.mark.parametrize("offset", [1, 5, 16, 0x8000_0000, 0xFFFF_FFE0, 0xFFFF_FFFF, TERM_LENGTH])
def test_a_tail_that_somebody_else_damaged_takes_nothing(offset: int) -> None:
    log = make_log()
    writer = compiled_twins().FrameWriter(log, **LENGTHS)
    tails = log.metadata.longs
    tails[0] = (tails[0] & ~0xFFFF_FFFF) + offset
    before = tails[0]
    assert writer.offer(b"abc", NO_LIMIT, 0) < 0
    assert writer.offer_list([b"abc"] * 3, 0, NO_LIMIT) == (0, 0)
    assert tails[0] == before
    assert not any(log.terms[0])


@needs_compiled
def test_a_count_of_terms_that_somebody_else_damaged_takes_nothing() -> None:
    log = make_log()
    writer = compiled_twins().FrameWriter(log, **LENGTHS)
    for count in (-1, 1, -(2**31)):
        log.metadata.words[6] = count
        assert writer.offer(b"abc", NO_LIMIT, 0) < 0
        assert writer.offer_list([b"abc"], 0, NO_LIMIT) == (0, 0)
    log.metadata.words[6] = 0
    assert writer.offer(b"abc", NO_LIMIT, 0) == 64


@needs_compiled
def test_a_list_is_written_up_to_what_does_not_fit() -> None:
    log = make_log()
    writer = compiled_twins().FrameWriter(log, **LENGTHS)
    for first in (-1, 3, 2**62):
        assert writer.offer_list([b"abc"] * 3, first, NO_LIMIT) == (0, 0)
    assert writer.offer_list([], 0, NO_LIMIT) == (0, 0)
    assert writer.offer_list([b"abc"], 0, 0) == (0, 0)
    # A message may begin before the limit, and no message behind it.
    assert writer.offer_list([b"abc"] * 9, 1, 100) == (2, 128)
    for stop in (bytearray(b"b"), "b", None, [b"b"], bytes(MAX_PAYLOAD + 1)):
        before = log.metadata.longs[0]
        assert writer.offer_list([stop, b"c"], 0, NO_LIMIT) == (0, 0)
        assert log.metadata.longs[0] == before
        assert writer.offer_list([b"c", stop], 0, NO_LIMIT)[0] == 1
    position = 448
    while offered := writer.offer_list([b"e" * 100] * 1_000, 0, NO_LIMIT)[0]:
        # A quarter of a term at once.
        assert offered <= TERM_LENGTH // 4 // 160
        position += 160 * offered
    assert position == 448 + (TERM_LENGTH - 448) // 160 * 160
    assert writer.offer_list([b"e" * 100], 0, NO_LIMIT) == (0, 0)
    with pytest.raises(TypeError):
        writer.offer_list((b"abc",), 0, NO_LIMIT)


@needs_compiled
@pytest.mark.parametrize(("width", "code"), [(4, "i"), (8, "q")])
def test_a_column_is_written_up_to_what_is_not_there(width: int, code: str) -> None:
    log = make_log()
    writer = compiled_twins().FrameWriter(log, **LENGTHS)

    def offer(bounds: list[int], first: int = 0, limit: int = NO_LIMIT) -> tuple[int, int]:
        found: tuple[int, int] = writer.offer_column(
            array(code, bounds), b"abcdefgh", width, first, limit
        )
        return found

    for bounds in ([], [0], [-1, 3], [3, 2], [0, 9], [9, 9], [2**31 - 1, 2**31 - 1]):
        assert offer(bounds) == (0, 0)
    for first in (-1, 2, 2**62, -(2**63)):
        assert offer([0, 3, 8], first) == (0, 0)
    assert offer([0, 3, 8], limit=0) == (0, 0)
    assert log.metadata.longs[0] & 0xFFFF_FFFF == 0
    assert offer([0, 3, 3, 8]) == (3, 64 + 32 + 64)
    assert offer([0, 3, 8, 9]) == (2, 160 + 128)
    assert read_all(log) == [b"abc", b"", b"defgh", b"abc", b"defgh"]
    with pytest.raises(ValueError, match="of 2 bytes"):
        writer.offer_column(b"", b"", 2, 0, NO_LIMIT)
    with pytest.raises(TypeError):
        writer.offer_column([0], b"", 8, 0, NO_LIMIT)
    long = bytes(MAX_PAYLOAD + 1)
    assert writer.offer_column(array(code, [0, len(long)]), long, width, 0, NO_LIMIT) == (0, 0)


@needs_compiled
def test_no_frame_of_a_column_that_changes_is_longer_than_a_datagram() -> None:
    log = make_log()
    writer = compiled_twins().FrameWriter(log, **LENGTHS)
    # The bounds lie where the first message will, whose payload makes the second one long.
    kept = array("i", (0, 400, *range(410, 800, 10)))
    term = memoryview(log.terms[0])
    bounds = term[64 : 64 + 4 * len(kept)]
    bounds[:] = kept.tobytes()
    data = bytearray(20_000)
    data[32 : 32 + 4 * len(kept)] = array("i", (0, 400, 15_000, *kept[3:])).tobytes()
    count, end = writer.offer_column(bounds, data, 4, 0, NO_LIMIT)
    words, offset, lengths = log.term_words[0], 0, []
    while offset < end:
        if words[(offset >> 2) + 1] >> 16:
            lengths.append(words[offset >> 2] - 32)
        offset += (words[offset >> 2] + 31) & -32
    assert lengths[:2] == [400, MAX_PAYLOAD]
    assert (max(lengths), len(lengths), offset) == (MAX_PAYLOAD, count, end)


@needs_compiled
@pytest.mark.parametrize("is_shared", [False, True])
def test_a_list_is_written_as_its_messages_are(is_shared: bool) -> None:  # noqa: FBT001 - one of the cases
    messages = [bytes((number,)) * (number * 7 % 1_300) for number in range(60)]
    logs = make_log(), make_log()
    writer, other = (
        compiled_twins().FrameWriter(log, is_shared=is_shared, **LENGTHS) for log in logs
    )
    positions = [writer.offer(data, NO_LIMIT, 0) for data in messages]
    count = 0
    while count < len(messages):
        more, position = other.offer_list(messages, count, NO_LIMIT)
        count += more
        assert position == positions[count - 1]
    assert logs[0].terms[0] == logs[1].terms[0]
    assert logs[0].metadata.longs[0] == logs[1].metadata.longs[0]


@needs_compiled
def test_a_writer_is_made_once() -> None:
    log, other = make_log(), make_log(term_length=2 * TERM_LENGTH)
    writer = compiled_twins().FrameWriter(log, **LENGTHS)
    with pytest.raises(ValueError, match="made once"):
        writer.__init__(other, **LENGTHS)
    assert writer.offer(b"abc", NO_LIMIT, 0) == 64
    writer.detach()
    with pytest.raises(ValueError, match="made once"):
        writer.__init__(other, **LENGTHS)
    assert writer.offer(b"abc", NO_LIMIT, 0) < 0
    other.close()
    log.close()
    with pytest.raises(ValueError, match="released"):
        log.terms[0][0]


@needs_compiled
def test_a_writer_that_was_never_made_takes_nothing() -> None:
    kind = compiled_twins().FrameWriter
    assert kind.__new__(kind).offer(b"abc", NO_LIMIT, 0) < 0
    assert kind.__new__(kind).offer_list([b"abc"], 0, NO_LIMIT) == (0, 0)


@needs_compiled
@pytest.mark.parametrize(
    "changes",
    [{"max_payload_length": 0}, {"max_payload_length": -1}, {"max_message_length": -1}],
)
def test_lengths_of_messages_that_are_none_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="no lengths of messages"):
        compiled_twins().FrameWriter(make_log(), **(LENGTHS | changes))


@needs_compiled
@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"position_bits": 17}, "positions of 17 bits"),
        ({"position_bits": 64}, "positions of 64 bits"),
        ({"term_length": -1}, "terms of -1 bytes"),
        ({"terms": (bytearray(TERM_LENGTH),) * 2}, "of 2 terms"),
        ({"terms": (bytearray(TERM_LENGTH),) * 9}, "of 9 terms"),
        ({"terms": (bytearray(TERM_LENGTH),) * 2 + (bytearray(32),)}, "32 bytes"),
        ({"terms": (odd_view(bytes(TERM_LENGTH)),) * 3}, "multiple of 8"),
        ({"metadata": SimpleNamespace(block=bytearray(64))}, "64 bytes"),
    ],
)
def test_a_log_that_is_none_is_refused_and_let_go(changes: dict[str, Any], match: str) -> None:
    good: dict[str, Any] = {
        "term_length": TERM_LENGTH,
        "position_bits": 16,
        "initial_term_id": 0,
        "session_id": 0,
        "stream_id": 0,
        "terms": tuple(bytearray(TERM_LENGTH) for _ in range(3)),
        "metadata": SimpleNamespace(block=bytearray(4_096)),
    }
    log = SimpleNamespace(**(good | changes))
    with pytest.raises(ValueError, match=match):
        compiled_twins().FrameWriter(log, **LENGTHS)
    for buffer in (*log.terms, log.metadata.block):
        # One that is still exported could not grow.
        if isinstance(buffer, bytearray):
            buffer.append(0)


@needs_compiled
def test_fragments_of_an_odd_length_begin_where_frames_do() -> None:
    log = make_log()
    writer = compiled_twins().FrameWriter(log, max_payload_length=33, max_message_length=100)
    assert writer.offer(b"a" * 100, NO_LIMIT, 0) == 3 * 96 + 64
    assert compiled_twins().skip_whole(log.term_words[0], 0, TERM_LENGTH) == 3 * 96 + 64


# Words.


@needs_compiled
def test_a_cell_at_an_odd_address_is_refused() -> None:
    memory = bytearray(33)
    with pytest.raises(ValueError, match="multiple of 8"):
        compiled_twins().Cell(memoryview(memory)[4:20])
    memory.append(0)


@needs_compiled
def test_times_that_are_none_are_refused() -> None:
    times = SimpleNamespace(epoch_ms=int, epoch_ns=int, now_ns=lambda: 2**63 - 1)
    with pytest.raises(ValueError, match="negative"):
        compiled_twins().StallClock(times, threshold_ns=-1)
    clock = compiled_twins().StallClock(times, threshold_ns=0)
    agent = SimpleNamespace(role_name="agent")
    clock.watch(agent)
    clock.expect(agent, -(2**63))
    with pytest.raises(OverflowError):
        clock.now_ns()


@needs_compiled
@pytest.mark.parametrize(("code", "size"), [("i", 4), ("q", 8)])
def test_a_word_at_an_odd_address_is_refused(code: Any, size: int) -> None:
    memory = bytearray(64)
    words = memoryview(memory)[size // 2 : size // 2 + 32].cast(code)
    for name in ("load_acquire", "store_release", "fetch_add"):
        values = () if name == "load_acquire" else (1,)
        with pytest.raises(ValueError, match=f"multiple of {size}"):
            getattr(compiled_twins(), f"{name}_{8 * size}")(words, 0, *values)
    words.release()
    memory.append(0)


# Messages.


@needs_compiled
def test_no_state_is_put_into_what_is_compiled() -> None:
    kinds: list[Any] = [each for each in vars(compiled_twins()).values() if isinstance(each, type)]
    assert len(kinds) > 10
    for kind in kinds:
        # What Cython makes for pickling would not look at the length of a state.
        if hasattr(kind, "__setstate_cython__"):
            with suppress(TypeError):
                made = kind.__new__(kind)
                with pytest.raises(TypeError, match=r"pickl|__reduce__"):
                    made.__setstate_cython__(())


def test_a_cycle_through_a_message_is_collected(twin: Any) -> None:
    image = Image()
    image.held = twin.Message(b"hello", 64, -3, image)
    out: list[Any] = []
    if twin is not pure_twins():
        log = filled([100])
        where = log.terms[0], log.term_words[0], log.term_longs[0]
        twin.read_whole(*where, 0, TERM_LENGTH, 0, 10, out, image)
    image.held = image.held, out
    watched = weakref.ref(image)
    del image, out
    gc.collect()
    assert watched() is None


def test_what_a_message_says_may_be_changed(twin: Any) -> None:
    message = twin.Message(b"hello", 64, -3, Image())
    image = Image()
    message.data, message.position, message.reserved_value = b"other", 2**63 - 1, -(2**63)
    message.image = image
    assert bytes(message) == b"other"
    assert (message.position, message.reserved_value) == (2**63 - 1, -(2**63))
    assert message.image is image
    with pytest.raises(AttributeError):
        message.session_id = 1
    with pytest.raises(AttributeError):
        message.other = 1


@needs_compiled
@pytest.mark.parametrize("name", ["data", "image"])
def test_a_message_always_has_all_that_it_says(name: str) -> None:
    message = compiled_twins().Message(b"hello", 64, -3, Image())
    member = getattr(type(message), name)
    with pytest.raises(AttributeError):
        delattr(message, name)
    with pytest.raises(AttributeError):
        member.__delete__(message)
    with pytest.raises(AttributeError):
        member.__set__(message, b"other")
    with pytest.raises(TypeError):
        message.data = "text"
    assert (message.data, message.session_id) == (b"hello", 7)


def test_a_message_can_be_copied_and_pickled(twin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # A pickle names its class: that must be the one at work.
    monkeypatch.setattr(sys.modules[twin.Message.__module__], "Message", twin.Message)
    message = twin.Message(b"hello", 64, -3, Image())
    pickled = pickle.loads(pickle.dumps(message))  # noqa: S301 - what was pickled here
    for other in (copy.copy(message), pickled):
        assert type(other) is twin.Message
        assert (other.data, other.position, other.reserved_value) == (b"hello", 64, -3)
        assert (other.session_id, other.stream_id) == (7, 8)


def test_messages_are_compared_by_what_they_are(twin: Any) -> None:
    image = Image()
    first, second = (twin.Message(b"hello", 64, -3, image) for _ in range(2))
    assert first != second
    assert len({first, second}) == 2
