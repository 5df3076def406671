"""Both twins find the same rows, values and problems, whatever the bytes are."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.archive.disk.checksums import crc32
from aeron_async.errors import DataLossError
from aeron_async.spark import scan as scan_module
from aeron_async.spark.columns import COLUMNS, default_columns
from aeron_async.spark.planning import plan_batch
from aeron_async.spark.ranges import ScanSettings
from aeron_async.spark.rows import RowColumn
from aeron_async.spark.scan import Scanner
from tests.archive.golden import ARCHIVES, golden_path
from tests.spark.recordings import TERM, RecordingMaker, frame, options_for
from tests.spark.test_frame_finder import descriptor, places, wrapped
from tests.twins import compiled, needs_compiled, pure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aeron_async.spark.options import ArchiveOptions

pytestmark = needs_compiled
FOUND = ("count", "frames", "end", "dropped", "broken", "problem_at", "is_checksum_wrong")
WHICH = [value for name, value in vars(RowColumn).items() if name.isupper()]
MODES = [(True, False), (False, False), (False, True)]


def twins() -> tuple[Any, Any]:
    return pure("spark.rows").RowScan, compiled("scanning").RowScan


def seen(scan: Any, piece: bytes, position: int, *, goes_on: bool) -> list[Any]:
    """Return all that a twin finds in a piece."""
    scan.scan(memoryview(piece), position, goes_on=goes_on)
    found: list[Any] = [getattr(scan, name) for name in FOUND]
    begin = 0
    while begin < scan.count:
        end = scan.cut(begin, 7, 3_000)
        found.append(end)
        found += [bytes(scan.column(which, begin, end)) for which in WHICH]
        for offset, width in ((0, 8), (3, 4), (1_372, 8), (4_000, 2)):
            values, absent = scan.values(offset, width, begin, end)
            found.append((np.frombuffer(values, np.uint8).tobytes(), bytes(absent)))
        found.append(tuple(map(bytes, scan.payloads(begin, end))))
        for reach in (0, 8, 1_376, 1 << 40):
            found.append(tuple(map(bytes, scan.bounds(begin, end, reach) or ())))
        begin = end
    return found


def compare(piece: bytes, position: int, each: Any, **how: Any) -> list[Any]:
    """Check that both twins find the same; return it."""
    goes_on = how.pop("goes_on")
    first, second = (seen(twin(each, **how), piece, position, goes_on=goes_on) for twin in twins())
    assert first == second
    return first


frames = st.lists(
    st.tuples(
        st.sampled_from([1, 1, 1, 1, 0]),
        st.sampled_from([0xC0, 0xC0, 0x80, 0, 0x40, 0xC1, 0x20]),
        st.one_of(st.integers(0, 200), st.integers(0, 1_500)),
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


def laid_out(given_frames: Any, *, position: int, each: Any, is_checked: bool) -> bytes:
    """Return frames from a position on, which may go on into the next terms."""
    content = bytearray()
    for number, (kind, flags, length, to_end) in enumerate(given_frames):
        at = position + len(content)
        offset = at % each.term_length
        left = each.term_length - offset
        size = left - 32 if to_end and left <= 4_096 else length
        if 32 + ((size + 31) & -32) > left:
            size = left - 32
        if size > 1 << 16:
            break
        body = bytes([number + 1]) * size
        checksum = crc32(body + bytes(-size % 32)) if is_checked and kind else 5
        content += frame(
            body,
            term_offset=offset,
            term_id=wrapped(each.initial_term_id + at // each.term_length),
            kind=kind,
            flags=flags,
            session_id=checksum,
            reserved=number << 40,
        )
    return bytes(content)


@given(
    bodies=frames,
    place=places,
    mode=st.sampled_from(MODES),
    goes_on=st.booleans(),
    is_checked=st.booleans(),
    damage=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(1, 255)), max_size=2),
    cut=st.one_of(st.just(0), st.integers(0, 400)),
)
def test_both_find_the_same_rows(
    bodies: Any, place: Any, mode: Any, *, goes_on: bool, is_checked: bool, damage: Any, cut: int
) -> None:
    term_length, position, initial_term_id = place
    each = descriptor(term_length, initial_term_id)
    content = bytearray(laid_out(bodies, position=position, each=each, is_checked=is_checked))
    for at, by in damage:
        content[at % len(content)] ^= by
    piece = bytes(content[: max(len(content) - cut * 32, 0)])
    by_message, include_padding = mode
    compare(
        *(piece, position, each),
        by_message=by_message,
        include_padding=include_padding,
        checksum=crc32 if is_checked else None,
        goes_on=goes_on,
    )


@pytest.mark.parametrize("mode", MODES)
def test_both_find_the_same_in_thousands_of_damaged_pieces(mode: Any) -> None:
    chance = random.Random(7)
    each = descriptor()
    by_message, include_padding = mode
    problems = 0
    for _ in range(1_000):
        bodies = [
            (
                int(chance.random() < 0.95),
                chance.choice([0xC0, 0xC0, 0x80, 0, 0x40]),
                chance.choice([0, 5, 100, 700]),
                chance.random() < 0.02,
            )
            for _ in range(chance.randrange(1, 60))
        ]
        position = chance.choice([0, TERM - 2_048, 3 * TERM])
        content = bytearray(laid_out(bodies, position=position, each=each, is_checked=False))
        for _ in range(chance.randrange(4)):
            at = chance.randrange(0, len(content), 32) + chance.choice([0, 0, 4, 5, 6, 8, 16, 20])
            content[at : at + 4] = chance.choice(
                [
                    bytes(4),
                    b"\xff" * 4,
                    b"\xff\xff\xff\x7f",
                    b"\xe0\xff\xff\x7f",
                    chance.randbytes(4),
                ]
            )
        found = compare(
            *(bytes(content), position, each),
            by_message=by_message,
            include_padding=include_padding,
            goes_on=chance.random() < 0.5,
        )
        problems += found[5] >= 0
    assert 100 < problems < 900


def read(options: ArchiveOptions, twin: Any, monkeypatch: Any, **more: Any) -> Any:
    """Return what a twin reads of an archive: batches, counts, and the error."""
    monkeypatch.setattr(scan_module, "RowScan", twin)
    scanner = Scanner(ScanSettings(options, default_columns(options)), **more)
    batches, error = [], ""
    try:
        batches += [batch.to_pydict() for batch in scanner.batches(plan_batch(options))]
    except DataLossError as caught:
        error = f"{caught} {caught.position}"
    scanner.counts.walked_pieces = 0
    return batches, scanner.counts, error


def every(mode: str) -> str:
    return ",".join(column.name for column in COLUMNS if mode in column.modes)


@pytest.mark.parametrize("name", [name for name in ARCHIVES if name != "A3-recovered"])
@pytest.mark.parametrize("mode", ["message", "frame"])
@pytest.mark.parametrize("source", ["reserved:ns", "payload:4:uint32be:ms"])
def test_both_read_official_archives_alike(
    name: str, mode: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"fragmentMode": mode, "columns": every(mode), "timestampFrom": source}
    options = options_for(golden_path(name), rowsPerBatch="50", **columns)
    for piece_length in (64, 8_192, 1 << 20):
        first, second = (
            read(options, twin, monkeypatch, piece_length=piece_length) for twin in twins()
        )
        assert first == second
        assert first[1].rows


def mutations(
    path: Path, chance: random.Random, positions: list[int], undo: list[Callable[[], object]]
) -> None:
    """Damage the files of an archive at a few places; they may become shorter, too."""
    files = sorted(path.glob("*.rec"))
    for file in chance.sample(files, chance.randrange(1, 3)):
        before = file.read_bytes()
        content = bytearray(before)
        for _ in range(chance.randrange(1, 4)):
            at = chance.choice([chance.choice(positions), chance.randrange(len(content))])
            at = min(at % len(content) + chance.randrange(24), len(content) - 4)
            content[at : at + 4] = chance.choice([bytes(4), chance.randbytes(4), b"\xff" * 4])
        if chance.random() < 0.1:
            del content[chance.randrange(len(content)) :]
        file.write_bytes(content)
        undo.append(partial(file.write_bytes, before))


@pytest.mark.parametrize("loss", ["true", "false"])
@pytest.mark.parametrize("checksum", [None, "crc32"])
def test_both_report_damaged_segments_alike(
    tmp_path: Path, loss: str, checksum: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(3)
    maker = RecordingMaker(tmp_path, checksum=checksum)
    for number in range(400):
        maker.message(chance.randbytes(chance.choice([0, 40, 900, 4_000])), reserved=number)
    maker.stop()
    given = {"failOnDataLoss": loss, "columns": "position,length,flags,payload"}
    if checksum:
        given["verifyChecksum"] = checksum
    damaged = 0
    for _ in range(30):
        undo: list[Callable[[], object]] = []
        mutations(tmp_path, chance, maker.positions, undo)
        options = options_for(tmp_path, **given)
        length = chance.choice([4_096, 65_536, 1 << 20])
        first, second = (read(options, twin, monkeypatch, piece_length=length) for twin in twins())
        assert first == second
        damaged += bool(first[2]) or first[1].damaged_places > 0
        for each in undo:
            each()
    assert damaged > 8


def scan_of(bodies: list[bytes], *, flags: list[int] | None = None) -> tuple[Any, bytearray]:
    piece = bytearray()
    for number, body in enumerate(bodies):
        kind = 0xC0 if flags is None else flags[number]
        piece += frame(body, term_offset=len(piece), flags=kind)
    scan = compiled("scanning").RowScan(descriptor(), by_message=True, include_padding=False)
    scan.scan(piece, 0, goes_on=False)
    return scan, piece


def test_a_length_that_changes_after_the_scan_is_not_followed() -> None:
    scan, piece = scan_of([b"x" * 64, b"y" * 64], flags=[0x80, 0x40])
    assert scan.count == 1
    for length in (0, 31, 2**31 - 1, -1):
        piece[:4] = length.to_bytes(4, "little", signed=True)
        with pytest.raises(ValueError, match="the piece was changed"):
            scan.payloads(0, 1)
        with pytest.raises(ValueError, match="the piece was changed"):
            scan.values(70, 8, 0, 1)


def test_rows_that_are_not_there_are_refused() -> None:
    scan, _ = scan_of([b"x"] * 3)
    for begin, end in ((-1, 1), (0, 4), (2, 1), (4, 4)):
        with pytest.raises(ValueError, match="rows"):
            scan.column(0, begin, end)
        with pytest.raises(ValueError, match="rows"):
            scan.payloads(begin, end)
        with pytest.raises(ValueError, match="rows"):
            scan.values(0, 8, begin, end)
    for which in (-1, 10):
        with pytest.raises(ValueError, match="there is no column"):
            scan.column(which, 0, 1)
    with pytest.raises(ValueError, match="not in a message"):
        scan.values(-1, 8, 0, 1)


def test_pieces_that_are_none_are_refused() -> None:
    scan, piece = scan_of([b"x"])
    with pytest.raises(ValueError, match="a piece of 33 bytes is none"):
        scan.scan(bytes(33), 0, goes_on=False)
    for position in (-32, 2**62 + 32):
        with pytest.raises(ValueError, match="position"):
            scan.scan(piece, position, goes_on=False)
    assert scan.count == 0
    with pytest.raises(ValueError, match="it is set up already"):
        scan.__init__(descriptor(), by_message=True, include_padding=False)
    kind: Any = type(scan)
    unmade = kind.__new__(kind)
    with pytest.raises(ValueError, match="not set up"):
        unmade.scan(piece, 0, goes_on=False)


def test_a_checksum_cannot_start_another_scan() -> None:
    piece = frame(b"x", term_offset=0)

    def checksum(_: bytes) -> int:
        scan.scan(piece, 0, goes_on=False)
        return 5

    scan: Any = compiled("scanning").RowScan(
        descriptor(), by_message=True, include_padding=False, checksum=checksum
    )
    with pytest.raises(ValueError, match="scans already"):
        scan.scan(piece, 0, goes_on=False)
    assert scan.count == 0
