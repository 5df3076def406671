"""Inputs to begin with: golden frames, texts as people write them, and short conversations.

    python -m tests.fuzz.seeds

writes them to `tests/fuzz/corpus`, each under its digest. Where the official driver's captures are
at hand their datagrams join in, each shape once.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aeron_async.archive.control.messages import (
    CODEC,
    AuthConnectRequest,
    ControlResponse,
    StartRecordingRequest2,
)
from aeron_async.archive.disk.catalog import HEADER as CATALOG_HEADER
from aeron_async.archive.disk.catalog import VERSION
from aeron_async.archive.disk.descriptor import encode_entry
from aeron_async.archive.disk.mark_file import MarkIdentity, encode_header
from aeron_async.protocol.header import HEADER, FrameType
from aeron_async.protocol.parameters import PARAMETERS
from tests.archive.disk.streams import described, frame
from tests.captures import capture_names, read_capture
from tests.cli.pcaps import (
    block,
    enhanced,
    ethernet,
    interface,
    ipv4,
    ipv6,
    obsolete,
    pcap,
    pcapng,
    section,
    simple,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN: Final = Path(__file__).parents[1] / "golden"
CORPUS: Final = Path(__file__).parent / "corpus"
FRAMES: Final = {
    FrameType.PAD: "data",
    FrameType.DATA: "data",
    FrameType.SETUP: "setup",
    FrameType.SM: "status_message",
    FrameType.NAK: "nak",
    FrameType.RTTM: "rtt",
    FrameType.ERR: "error",
    FrameType.RSP_SETUP: "response_setup",
}
LONGEST: Final = 512
CHANNELS: Final = (
    "aeron:udp?endpoint=localhost:40456",
    "aeron:udp?endpoint=224.20.30.39:40456|interface=192.168.0.0/16|ttl=4",
    "aeron:udp?endpoint=[ff02::3]:40456|interface=[::1]/64",
    "aeron:udp?control=127.0.0.1:40457|control-mode=dynamic|fc=tagged,g:7/2,t:5s",
    "aeron:udp?control-mode=manual|tags=1,2|fc=min",
    "aeron:udp?control=127.0.0.1:40457|control-mode=response|response-correlation-id=7",
    "aeron:udp?endpoint=a:1|term-length=64k|init-term-id=-5|term-id=-3|term-offset=64|mtu=1408",
    "aeron:udp?endpoint=a:1|session-id=tag:3|tags=4|linger=5s|sparse=true|eos=false|ssc=true",
    "aeron:udp?endpoint=a:1|reliable=false|rejoin=false|tether=false|group=force-true|rcv-wnd=128k",
    "aeron:udp?endpoint=a:1|so-sndbuf=1m|so-rcvbuf=2m|cc=cubic|gtag=-1|nak-delay=1ms|max-resend=3",
    "aeron:udp?endpoint=a:1|media-rcv-ts-offset=reserved|channel-snd-ts-offset=8|pub-wnd=32k",
    "aeron:ipc?alias=x|stream-id=5|untethered-window-limit-timeout=5s",
    "aeron-spy:aeron:udp?endpoint=localhost:40456",
)
VALUES: Final = (
    "0", "64k", "16M", "1g", "9223372036854775807", "100ns", "5us", "7ms", "2s", "localhost:0",
    "127.0.0.1:40456", "[::1%eth0]:65535", "224.0.1.1:1", "[ff02::1]:3", "192.168.0.0/16",
    "[fe80::1]:9/64", "{eth0}", "{lo}:40456", "host-name_1.example:1/128",
)  # fmt: skip
REQUESTS: Final = (
    AuthConnectRequest(
        correlation_id=1, response_stream_id=20, version=68_608, response_channel="aeron:ipc"
    ),
    StartRecordingRequest2(
        control_session_id=2, correlation_id=3, stream_id=4, source_location=0, auto_stop=1,
        channel="aeron:ipc",
    ),
    ControlResponse(
        control_session_id=2, correlation_id=3, relevant_id=4, code=1, version=68_608,
        error_message="no",
    ),
)  # fmt: skip
# First the kind of conversation, then steps: see `STEPS` of each.
RECEIVER: Final = (
    "00 05e0000000 0b000b 0c07 0d 0e20",
    "01 05e0000000 00000210c010 0d 0c03 0d 00000110c010 0d 0e10 04000005 0d",
    "02 05e0000000 0300000001 0d 0e10 0f02 0f02 0c09 0c09",
    "04 0ae00af0001f 0c07 0ae0 05e1000000 05e2000000 0b001f 04000004 0c05 0c08 0c09",
    "06 05e007e000 0b001f 0b001f 0b001f 0709000001 0841ffff 0942",
)
SENDER: Final = (
    "00 0f 00000000000000 0e1f 10 04 0040 0000 05200000 10 07 11",
    "04 0f 02 0a03 0a09 0f 02 0f 030000 00f0 0f 1101 1007 1007 11",
    "03 0f 02 0c20 0d00 0a08 0a08 0f 02 0e9f 05300080 00f0 1004 0f 0601ff",
    "02 0f 02 0e1f 0e1f 0000fe 0940 12 0f 12 1103 1008",
)
LOG: Final = (
    "03 00 00 10c001 00 04 c001 04 5f 04c001 00 000000 0105 0200 ff 0300 ff 0400 7f",
    "02 80 03 20 ffffff7f 40 00 01c000 00 06 00 03 05 00 0010 07 0020",
)


def golden(path: Path) -> bytes:
    """Return the bytes of an annotated frame."""
    lines = path.read_text().splitlines()
    return b"".join(bytes.fromhex(line.partition("#")[0]) for line in lines)


def datagrams() -> Iterator[bytes]:
    """Yield golden datagrams, then those of the captures that have a shape of their own."""
    for path in sorted(GOLDEN.glob("*.hex")):
        yield golden(path)
    shapes: set[tuple[int, int, int]] = set()
    for name in capture_names():
        if name == "absent":
            return
        for packet in read_capture(name):
            shape = packet.payload[5], packet.payload[6], len(packet.payload)
            if shape not in shapes and len(packet.payload) <= LONGEST:
                shapes.add(shape)
                yield packet.payload


def seeds() -> Iterator[tuple[str, bytes]]:
    """Yield target and input."""
    for datagram in datagrams():
        yield "datagram", datagram
        target = FRAMES.get(HEADER.unpack_from(datagram)[3])
        if target is not None:
            yield target, b"\1" + datagram
            yield target, b"\0" + datagram[5:6] + datagram[8:]
    for text in CHANNELS:
        yield "channel_uri", text.encode()
    for key in PARAMETERS:
        yield "channel_uri", f"aeron:udp?control=a:1|{key}=0".encode()
    for text in VALUES:
        yield "values", text.encode()
    payload = golden(GOLDEN / "nak.hex")
    yield (
        "pcap",
        pcap(ethernet(ipv4(payload)), ethernet(ipv6(payload), kind=0x86DD, tags=(0x8100,))),
    )
    yield "pcap", pcap(ipv6(payload, extensions=((0, bytes(6)),)), link=101, order=">", is_ns=True)
    yield "pcap", pcapng(ethernet(ipv4(payload)), ethernet(ipv4(payload)))
    yield (
        "pcap",
        section()
        + interface(101, (2, b"eth0"), (9, b"\x09"), (14, bytes(8)), snap_length=65_535)
        + block(5, bytes(8))
        + simple(ipv4(payload))
        + section(order=">", comment=b"second")
        + interface(101, (9, b"\x8a"), order=">")
        + obsolete(ipv4(payload), order=">")
        + enhanced(ipv6(payload), comment=b"last", order=">"),
    )
    for target, scripts in (("receiver", RECEIVER), ("sender", SENDER), ("log", LOG)):
        for script in scripts:
            yield target, bytes.fromhex(script)
    yield from archive_seeds()


def archive_seeds() -> Iterator[tuple[str, bytes]]:
    """Yield target and input of what an archive reads."""
    for request in REQUESTS:
        encoded = CODEC.encode(request)
        yield "control", b"\1" + encoded
        yield "control", b"\0" + encoded[2:3] + encoded[8:]
    for descriptor in (described(), described(start_position=4_096, stop_position=8_192)):
        entry = bytes(encode_entry(descriptor, alignment=64))
        entry = (len(entry) - 32).to_bytes(4, "little") + b"\1\0\0\0" + entry[8:]
        yield "catalog", b"\0" + entry
        yield "catalog", b"\1" + CATALOG_HEADER.pack(VERSION, 32, 1, 64).ljust(32, b"\0") + entry
    mark = bytes(encode_header(MarkIdentity(pid=7), start_timestamp_ms=5, activity_ms=6))[:200]
    yield "mark_file", b"\1" + mark
    yield "mark_file", b"\0" + mark[8:]
    frames = [frame(described(), at, bytes([at & 255]) * 40) for at in range(0, 480, 96)]
    padding = frame(described(), 480, b"", kind=0, length=96)
    yield "segment", b"\0" + b"".join(frames) + padding
    yield "segment", b"\3" + b"".join(frames)
    for name in (
        "0-0.rec",
        "12-131072.rec",
        "9223372036854775807-64.rec",
        "../0-0.rec",
        "0-00.rec",
    ):
        yield "names", name.encode()


def main() -> None:
    """Write what is not there yet."""
    for target, data in seeds():
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)


if __name__ == "__main__":
    main()
