"""The official driver's packet captures: where they are, and what is in them.

Classic pcap of Ethernet, IPv4 and UDP, which is what the captures are; anything else in a file is
passed over. The folder is `AERON_CAPTURES`, or `shared/captures` beside the repository.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

Address = tuple[str, int]

_BESIDE_THE_REPOSITORY: Final = Path(__file__).parents[2] / "shared" / "captures"
_FILE_HEADER_LENGTH: Final = 24
_RECORD_HEADER_LENGTH: Final = 16
_ETHERNET_HEADER_LENGTH: Final = 14
_UDP_HEADER_LENGTH: Final = 8
_ETHERNET: Final = 1
_IPV4: Final = b"\x08\x00"
_UDP: Final = 17
_BYTE_ORDERS: Final = {
    b"\xd4\xc3\xb2\xa1": ("<", 1_000),
    b"\xa1\xb2\xc3\xd4": (">", 1_000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
_PORTS: Final = Struct(">HHH")


class Packet(NamedTuple):
    """One UDP datagram of a capture; the time is nanoseconds since the epoch."""

    timestamp_ns: int
    source: Address
    destination: Address
    payload: bytes


def captures_path() -> Path:
    """Return where the captures are, or would be."""
    return Path(os.environ.get("AERON_CAPTURES", _BESIDE_THE_REPOSITORY))


def captures_dir() -> Path:
    """Return the folder of the captures; skip the test that asks where there is none."""
    folder = captures_path()
    if not folder.is_dir():
        pytest.skip(f"no captures of the official driver in {folder}: set AERON_CAPTURES")
    return folder


def capture_names() -> list[str]:
    """Return the names of all captures, for parametrising; one that will skip if there are none."""
    folder = captures_path()
    return sorted(path.stem for path in folder.glob("*.pcap")) or ["absent"]


def read_capture(name: str) -> Iterator[Packet]:
    """Yield the datagrams of the capture `name`, without its suffix, in order."""
    return read_pcap((captures_dir() / f"{name}.pcap").read_bytes())


def frame_counts(name: str) -> dict[str, int]:
    """Return how many frames of each type the capture holds, as its documentation states.

    HEARTBEAT_EOS includes revoked ones; PAD, NAK and others that do not occur are left out.
    """
    folder = captures_dir()
    facts: dict[str, Any] = json.loads((folder / "facts.json").read_text())
    if name in facts:
        return dict(facts[name]["frame_counts"])
    counts: dict[str, int] = {}
    archive_facts = json.loads((folder / "archives" / "facts.json").read_text())
    for by_type in archive_facts[name]["frame_counts_by_port"].values():
        for kind, count in by_type.items():
            key = "HEARTBEAT_EOS" if kind in {"HB_EOS", "HB_REVOKED"} else kind
            counts[key] = counts.get(key, 0) + count
    return counts


def read_pcap(content: bytes) -> Iterator[Packet]:
    """Yield the UDP datagrams of a classic pcap file, of either byte order and resolution."""
    order, fraction_ns = _BYTE_ORDERS[content[:4]]
    (link_type,) = Struct(f"{order}I").unpack_from(content, 20)
    assert link_type == _ETHERNET
    record_header = Struct(f"{order}IIII")
    offset = _FILE_HEADER_LENGTH
    while offset < len(content):
        seconds, fraction, length, _ = record_header.unpack_from(content, offset)
        offset += _RECORD_HEADER_LENGTH
        packet = _udp_packet(
            content[offset : offset + length], seconds * 1_000_000_000 + fraction * fraction_ns
        )
        offset += length
        if packet is not None:
            yield packet


def _udp_packet(record: bytes, timestamp_ns: int) -> Packet | None:
    ip_header = record[_ETHERNET_HEADER_LENGTH:]
    if record[12:14] != _IPV4 or ip_header[9] != _UDP:
        return None
    udp = ip_header[(ip_header[0] & 0x0F) * 4 :]
    source_port, destination_port, udp_length = _PORTS.unpack_from(udp)
    return Packet(
        timestamp_ns,
        (_dotted(ip_header[12:16]), source_port),
        (_dotted(ip_header[16:20]), destination_port),
        udp[_UDP_HEADER_LENGTH:udp_length],
    )


def _dotted(address: bytes) -> str:
    return ".".join(str(byte) for byte in address)
