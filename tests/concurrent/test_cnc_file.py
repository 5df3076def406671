from __future__ import annotations

import struct
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aeron_async.concurrent import cnc_file
from aeron_async.concurrent.cnc_file import (
    CAPACITY_MAX,
    CAPACITY_MIN,
    CNC_VERSION,
    META_DATA_LENGTH,
    CncLayout,
    CncNotReady,
    Section,
    load_layout,
)
from aeron_async.errors import ConfigurationError, ProtocolError

# The header that the official C driver 1.53 wrote with its defaults, as process 24,771.
GOLDEN = bytes.fromhex(
    "00020000 00031000 80001000 00000002 00008000 00004000 00e40b5402000000 2d2d210aa2010000"
    "c360000000000000 00100000"
).ljust(128, b"\0")
GOLDEN_LENGTH = 48_238_592
GOLDEN_LAYOUT = CncLayout(start_timestamp_ms=1_795_466_276_141, pid=24_771)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
# What a small directory has, exactly as long as its sections: 128 + 1792 + 1152 + 512 + 128 + 1024.
SMALL: dict[str, int] = {
    "to_driver_buffer_length": 1024 + 768,
    "to_clients_buffer_length": 1024 + 128,
    "counters_metadata_buffer_length": 512,
    "counters_values_buffer_length": 128,
    "error_log_buffer_length": 1024,
    "client_liveness_timeout_ns": 1,
    "start_timestamp_ms": 1_795_466_276_141,
    "pid": 7,
    "file_page_size": 4096,
}
SMALL_END = 4_736


def header(version: int = CNC_VERSION, **fields: int) -> bytes:
    """Return the bytes of a header that no class has checked."""
    return struct.pack("<6i3qi76x", version, *(SMALL | fields).values())


def layouts() -> st.SearchStrategy[CncLayout]:
    powers = st.integers(10, 30).map(lambda bits: 1 << bits)
    counts = st.integers(1, 4_000_000)

    def build(counter_count: int, slack: int, **fields: int) -> CncLayout:
        return CncLayout(
            counters_values_buffer_length=128 * counter_count,
            counters_metadata_buffer_length=512 * counter_count + 8 * slack,
            **fields,
        )

    return st.builds(
        build,
        counts,
        st.integers(0, 1_000),
        to_driver_buffer_length=powers.map(lambda length: length + 768),
        to_clients_buffer_length=powers.map(lambda length: length + 128),
        error_log_buffer_length=st.integers(1024, 2**31 - 1),
        client_liveness_timeout_ns=st.integers(1, 2**63 - 1),
        start_timestamp_ms=INT64,
        pid=INT64,
        file_page_size=st.integers(12, 30).map(lambda bits: 1 << bits),
    )


def with_version(encoded: bytes, version: int = CNC_VERSION) -> bytes:
    return struct.pack("<i", version) + encoded[4:]


def test_the_header_of_an_official_driver_is_read() -> None:
    layout = load_layout(GOLDEN, GOLDEN_LENGTH)
    assert layout == GOLDEN_LAYOUT
    assert layout.file_length == GOLDEN_LENGTH
    assert layout.to_driver_buffer == (128, 1_049_344)
    assert layout.to_clients_buffer == (1_049_472, 1_048_704)
    assert layout.counters_metadata_buffer == (2_098_176, 33_554_432)
    assert layout.counters_values_buffer == (35_652_608, 8_388_608)
    assert layout.error_log_buffer == (44_041_216, 4_194_304)


def test_the_header_is_written_as_an_official_driver_writes_it() -> None:
    """The version is the only difference: it is stored last, by the driver."""
    assert GOLDEN_LAYOUT.encode() == with_version(GOLDEN, 0)


@given(layouts())
def test_what_is_encoded_is_loaded_again(layout: CncLayout) -> None:
    encoded = layout.encode()
    assert len(encoded) == META_DATA_LENGTH
    assert isinstance(load_layout(encoded, layout.file_length), CncNotReady)
    assert load_layout(with_version(encoded), layout.file_length) == layout


@given(layouts())
def test_sections_are_aligned_and_follow_one_another_to_the_end(layout: CncLayout) -> None:
    sections = (
        layout.to_driver_buffer,
        layout.to_clients_buffer,
        layout.counters_metadata_buffer,
        layout.counters_values_buffer,
        layout.error_log_buffer,
    )
    end = META_DATA_LENGTH
    for section in sections:
        assert section.offset == end
        assert section.offset % 8 == 0
        end = section.end
    assert 0 <= layout.file_length - end < layout.file_page_size
    assert layout.file_length % layout.file_page_size == 0


def test_a_section_is_a_part_of_the_mapped_file() -> None:
    file = memoryview(bytes(range(100)))
    assert Section(10, 20).of(file) == bytes(range(10, 30))


@pytest.mark.parametrize("length", [0, 1, 4, 127])
def test_a_file_shorter_than_its_header_is_not_ready(length: int) -> None:
    for found in (load_layout(GOLDEN[:length], GOLDEN_LENGTH), load_layout(GOLDEN, length)):
        assert isinstance(found, CncNotReady)
        assert f"has {length} bytes" in found.reason
        assert "128" in found.reason


def test_version_0_is_not_ready_whatever_else_is_there() -> None:
    for rest in (bytes(124), b"\xff" * 124, GOLDEN[4:]):
        found = load_layout(bytes(4) + rest, GOLDEN_LENGTH)
        assert isinstance(found, CncNotReady)
        assert "version 0" in found.reason


@pytest.mark.parametrize("version", [1, 0x0000FF, 0x000100, 0x000200, 0x00FFFF])
def test_minor_and_patch_versions_do_not_matter(version: int) -> None:
    assert load_layout(with_version(GOLDEN, version), GOLDEN_LENGTH) == GOLDEN_LAYOUT


@pytest.mark.parametrize(
    ("version", "shown"),
    [(0x010000, "1.0.0"), (0x010203, "1.2.3"), (0x01000200, "256.2.0"), (-1, "-1.255.255")],
)
def test_another_major_version_is_refused(version: int, shown: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        load_layout(with_version(GOLDEN, version), GOLDEN_LENGTH)
    assert shown in str(caught.value)
    assert "0.2.0" in str(caught.value)


def test_a_file_shorter_than_its_sections_is_not_ready() -> None:
    for length in (129, SMALL_END - 1):
        found = load_layout(header(), length)
        assert isinstance(found, CncNotReady)
        assert f"{length} bytes" in found.reason
        assert str(SMALL_END) in found.reason
    # The padding up to the page is not needed, and a longer file is no reason to refuse it.
    assert load_layout(header(), SMALL_END) == CncLayout(**SMALL)
    assert load_layout(header(), 1 << 40) == CncLayout(**SMALL)


def test_only_the_header_is_read() -> None:
    file = bytearray(header() + bytes(SMALL_END))
    layout = load_layout(memoryview(file), SMALL_END)
    file[:] = b"\xff" * len(file)
    assert layout == CncLayout(**SMALL)


def test_the_header_is_read_after_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version says that the rest is there, so the rest is loaded behind a fence, once."""
    data = bytearray(with_version(bytes(128)))

    def finish() -> None:
        data[:] = header(0)

    monkeypatch.setattr(cnc_file, "acquire_fence", finish)
    assert load_layout(data, SMALL_END) == CncLayout(**SMALL)


def test_a_driver_that_knew_no_page_size_used_4_kib() -> None:
    layout = load_layout(header(0x000100, file_page_size=0), SMALL_END)
    assert isinstance(layout, CncLayout)
    assert layout.file_page_size == 4096


WRONG: list[tuple[str, int, str]] = [
    *(
        (name, value, str(CAPACITY_MAX))
        for name, trailer in (("to_driver_buffer_length", 768), ("to_clients_buffer_length", 128))
        for value in (
            *(-(2**31), -1, 0, trailer, CAPACITY_MIN, 2 * CAPACITY_MAX - 1),
            *(trailer + CAPACITY_MIN // 2, trailer + CAPACITY_MIN + 8, trailer + 3 * CAPACITY_MIN),
        )
    ),
    *(
        ("counters_values_buffer_length", value, str(500 << 20))
        for value in (-128, 0, 120, 129, (500 << 20) + 8, 2**31 - 8)
    ),
    *(
        ("counters_metadata_buffer_length", value, "from 512 to")
        for value in (-512, 0, 504, 511, 513, 2**31 - 1)
    ),
    *(("error_log_buffer_length", value, "1024") for value in (-(2**31), -1, 0, 1023)),
    *(("client_liveness_timeout_ns", value, "from 1 to") for value in (-(2**63), -1, 0)),
    *(("file_page_size", value, str(1 << 30)) for value in (-4096, 1, 2048, 4097, 12_288)),
]


@pytest.mark.parametrize(("name", "value", "limit"), WRONG)
def test_an_absurd_value_is_refused_with_its_name_and_limit(
    name: str, value: int, limit: str
) -> None:
    with pytest.raises(ProtocolError) as of_reader:
        load_layout(header(**{name: value}), 1 << 40)
    with pytest.raises(ConfigurationError) as of_writer:
        CncLayout(**SMALL | {name: value})
    for caught in (of_reader, of_writer):
        assert f"{name} of {value} must be" in str(caught.value)
        assert limit in str(caught.value)


@pytest.mark.parametrize("name", ["start_timestamp_ms", "pid", "error_log_buffer_length"])
def test_what_does_not_fit_into_its_field_is_refused(name: str) -> None:
    for value in (2**63, -(2**63) - 1):
        with pytest.raises(ConfigurationError, match=f"{name} of"):
            CncLayout(**SMALL | {name: value})


def test_metadata_is_four_times_the_values_unless_said() -> None:
    layout = CncLayout(counters_values_buffer_length=1_000 * 128, start_timestamp_ms=0, pid=0)
    assert layout.counters_metadata_buffer_length == 1_000 * 512
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        layout.pid = 1  # type: ignore[misc]


def check_any(found: CncLayout | CncNotReady, file_length: int) -> None:
    """A layout lies within the file; otherwise there is a reason."""
    if isinstance(found, CncNotReady):
        assert found.reason
    else:
        assert found.error_log_buffer.end <= file_length
        assert CncLayout(**attrs.asdict(found)) == found


@given(st.binary(max_size=200), st.integers(-1, 2**63))
@example(GOLDEN, GOLDEN_LENGTH)
@example(b"\xff" * 128, 1 << 40)
@example(b"\x00\x02" + b"\x00" * 126, 1 << 40)
def test_any_bytes_are_a_layout_not_ready_or_refused(data: bytes, file_length: int) -> None:
    try:
        found = load_layout(data, file_length)
    except ProtocolError:
        return
    check_any(found, file_length)


@given(
    st.dictionaries(st.sampled_from(list(SMALL)), st.one_of(INT32, st.sampled_from((0, 1, -1)))),
    st.sampled_from((0, 1, CNC_VERSION, 1 << 16, -1)),
    st.one_of(st.integers(0, 2**40), st.just(SMALL_END)),
)
def test_any_field_of_a_header_may_be_hostile(
    fields: dict[str, Any], version: int, file_length: int
) -> None:
    try:
        found = load_layout(header(version, **fields), file_length)
    except ProtocolError as error:
        reason = str(error)
    else:
        check_any(found, file_length)
        return
    assert "version" in reason or any(f"{name} of" in reason for name in SMALL)
