"""What is decoded in the scan is what would be decoded from the column of payloads."""

from __future__ import annotations

import random
import re
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeron_async.codecs import columns as columns_module
from aeron_async.codecs.columns import Payloads
from aeron_async.spark import batch_reader
from aeron_async.spark import scan as scan_module
from aeron_async.spark.batch_reader import ArchivePartition, read_partition
from aeron_async.spark.columns import project
from aeron_async.spark.decoding import CodecDecoder, decode_batch, decoder_of
from aeron_async.spark.planning import plan_batch
from aeron_async.spark.query_schema import decoder_named
from aeron_async.spark.ranges import ScanSettings
from aeron_async.spark.scan import Scanner
from tests.spark.decoding.test_sbe import SCHEMA, Quote
from tests.spark.recordings import RecordingMaker, options_for
from tests.twins import TWINS, compiled, needs_compiled, pure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STRUCT = "struct:>a:q,b:I,c:?,d:6s,e:Q,f:d,g:B"
STRUCT_FORMAT = ">qI?6sQdB"


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the scan and the columns be those of one twin; return which."""
    is_pure = request.node.callspec.id.startswith("pure")
    scan = pure("spark.rows") if is_pure else compiled("scanning")
    gathering = pure("codecs.columns") if is_pure else compiled("gathering")
    monkeypatch.setattr(scan_module, "RowScan", scan.RowScan)
    for name in ("gathered", "until_zero"):
        monkeypatch.setattr(columns_module, name, getattr(gathering, name))
    return "pure" if is_pure else "compiled"


def flat_schema(path: Path) -> str:
    """Return the path of the schema of quotes, whose messages end with their block."""
    flat = re.sub(r"(?s)<group .*</group>|<data [^>]*/>", "", SCHEMA.read_text())
    file = path / "flat.xml"
    file.write_text(flat)
    return str(file)


def structs(chance: random.Random) -> bytes:
    text = chance.choice([b"ab", b"abcdef", b"a\0b\0c\0", b"", b"\xff\xfe", "größ".encode()])
    number = chance.choice([0, 2**63 - 1, 2**63, 2**64 - 1])
    message = struct.pack(STRUCT_FORMAT, -5, 2**32 - 1, True, text, number, 0.5, 255)
    return message + bytes(chance.choice([0, 0, 0, 7, 300, 3_000]))


def quotes(chance: random.Random) -> bytes:
    quote = Quote(
        side=chance.choice([b"B", b"S", b"?"]),
        state=chance.choice([1, 2, 9, 255]),
        venue=chance.choice([b"XETR", b"\0\0\0\0", b"AB\0\0", b"\xff\xff\xff\xff"]),
        size=chance.choice([1, -(2**31)]),
    )
    version, length = chance.choice([(2, 60), (2, 60), (2, 90), (2, 48), (1, 52)])
    return quote.encode(version=version, block_length=length) + bytes(chance.choice([0, 400]))


def recorded(path: Path, made: Any, *, mtu: int, count: int) -> RecordingMaker:
    """Record messages, a few of them too short, or of another kind."""
    chance = random.Random(9)
    maker = RecordingMaker(path, mtu=mtu)
    for number in range(count):
        payload = made(chance)
        if chance.random() < 0.1:
            payload = payload[: chance.randrange(len(payload))]
        if chance.random() < 0.05:
            payload = chance.randbytes(40)
        maker.message(payload, reserved=number)
    maker.stop()
    return maker


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("mtu", [64, 96, 1_408])
@pytest.mark.parametrize("kind", ["struct", "flat", "groups"])
def test_messages_are_decoded_where_they_lie(tmp_path: Path, kind: str, mtu: int) -> None:
    spec = {
        "struct": STRUCT,
        "flat": f"sbe:{flat_schema(tmp_path)}#Quote",
        "groups": f"sbe:{SCHEMA}#Quote",
    }[kind]
    recorded(tmp_path, structs if kind == "struct" else quotes, mtu=mtu, count=150)
    decoder = decoder_of(spec)
    assert isinstance(decoder, CodecDecoder)
    options = options_for(tmp_path, rowsPerBatch="40")
    settings = ScanSettings(options, project(("position", "payload", "length"), "message"))
    parts = plan_batch(options)
    plain = [decode_batch(each, decoder) for each in Scanner(settings).batches(parts)]
    # The piece is used again for each read: a column that refers to it would change.
    in_scan = list(Scanner(settings, piece_length=4_096, decoder=decoder).batches(parts))
    for each in in_scan:
        each.validate(full=True)
    found = pa.Table.from_batches(in_scan).to_pylist()
    assert repr(found) == repr(pa.Table.from_batches(plain).to_pylist())
    assert 100 < len(found) <= 150


@pytest.mark.usefixtures("twin")
def test_messages_of_one_length_are_copied_out_of_the_piece(tmp_path: Path) -> None:
    maker = RecordingMaker(tmp_path)
    for number in range(2_000):
        maker.message(struct.pack("<qi4s", number, -number, b"abcd"))
    maker.stop()
    options = options_for(tmp_path)
    settings = ScanSettings(options, project(("payload",), "message"))
    scanner = Scanner(settings, piece_length=4_096, decoder=decoder_of("struct:a:q,b:i,c:4s"))  # type: ignore[arg-type] # it is one
    found = pa.Table.from_batches(list(scanner.batches(plan_batch(options)))).to_pydict()
    assert found["a"] == list(range(2_000))
    assert found["b"] == [-each for each in range(2_000)]
    assert set(found["c"]) == {"abcd"}


def test_a_task_decodes_in_the_scan_and_other_decoders_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = RecordingMaker(tmp_path)
    for number in range(50):
        maker.message(b'{"a": %d}' % number)
    maker.stop()
    given: list[Any] = []

    class Watched(Scanner):  # type: ignore[misc] # a test looks at what it is given
        def __init__(self, settings: Any, *, decoder: Any = None) -> None:
            given.append(decoder)
            super().__init__(settings, decoder=decoder)

    monkeypatch.setattr(batch_reader, "Scanner", Watched)
    for spec, wanted in (("struct:a:H,b:5s", 8_827), ("json:a int", 0)):
        options = options_for(tmp_path, decoder=spec)
        columns = project(("position", "payload"), "message")
        schema = decoder_named(spec, columns).schema
        settings = ScanSettings(options, columns, decoded=schema)
        partition = ArchivePartition(tuple(plan_batch(options)))
        (batch,) = read_partition(settings, partition)
        assert batch.schema == schema
        assert batch.column("a")[0].as_py() == wanted
        assert batch.num_rows == 50
    assert isinstance(given[0], CodecDecoder)
    assert given[1] is None


def test_a_decoder_looks_no_further_than_it_says(tmp_path: Path) -> None:
    assert reach_of("struct:a:q,b:4s") == 12
    # The header of a message, and the end of its last field.
    assert reach_of(f"sbe:{flat_schema(tmp_path)}#Quote") == 8 + 60
    assert reach_of(f"sbe:{SCHEMA}#Quote") == 2**31 - 1


def reach_of(spec: str) -> int:
    decoder = decoder_of(spec)
    assert isinstance(decoder, CodecDecoder)
    return decoder.reach


def both(name: str) -> Iterator[Any]:
    yield getattr(pure("codecs.columns"), name)
    yield getattr(compiled("gathering"), name)


@needs_compiled
@given(
    data=st.binary(min_size=40, max_size=300),
    width=st.sampled_from([1, 2, 3, 4, 8, 20]),
    draw=st.data(),
)
def test_both_gather_the_same_bytes(data: bytes, width: int, draw: Any) -> None:
    places = draw.draw(st.lists(st.integers(0, len(data) - width), max_size=30))
    absent = draw.draw(st.lists(st.booleans(), min_size=len(places), max_size=len(places)))
    arguments = (
        np.frombuffer(data, np.uint8),
        np.array(places, np.int64),
        width,
        np.array(absent, np.bool_),
    )
    first, second = (bytes(each(*arguments)) for each in both("gathered"))
    assert first == second


@needs_compiled
@given(
    width=st.sampled_from([1, 2, 4, 7]),
    rows=st.lists(st.sampled_from([b"", b"ab", b"abcdefg", b"a\0b", b"\0abc"]), max_size=30),
)
def test_both_end_texts_at_the_same_zero(width: int, rows: list[bytes]) -> None:
    flat = b"".join(each.ljust(width, b"\0")[:width] for each in rows)
    matrix = np.frombuffer(flat, np.uint8).reshape(len(rows), width)
    first, second = (tuple(map(bytes, each(matrix, width))) for each in both("until_zero"))
    assert first == second


@needs_compiled
def test_nothing_is_gathered_from_beyond_the_data() -> None:
    gathered = compiled("gathering").gathered
    data, there = bytes(16), np.zeros(1, np.bool_)
    for place in (-1, 9, 17, 2**62, -(2**63)):
        with pytest.raises(IndexError):
            gathered(data, np.array([place], np.int64), 8, there)
    with pytest.raises(IndexError):
        gathered(data, np.array([0], np.int64), 17, there)
    assert gathered(data, np.array([99], np.int64), 17, ~there) == bytes(17)
    for width in (0, -8, 2**62):
        with pytest.raises(ValueError, match="bytes cannot be taken"):
            gathered(data, np.array([0], np.int64), width, there)
    with pytest.raises(ValueError, match="flags are not one for each"):
        gathered(data, np.array([0], np.int64), 8, np.zeros(2, np.bool_))
    for width in (0, 3, -1):
        with pytest.raises(ValueError, match="are no texts"):
            compiled("gathering").until_zero(data, width)


@pytest.mark.usefixtures("twin")
def test_payloads_of_any_length_give_numbers_and_zeros() -> None:
    payloads = Payloads(
        np.frombuffer(bytes(range(32)), np.uint8), np.array([0, 9]), np.array([9, 32])
    )
    absent = np.array([False, True])
    found = payloads.numbers(payloads.starts + 1, np.dtype("<u2"), absent)
    assert found.tolist() == [0x0201, 0]
