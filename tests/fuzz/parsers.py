"""Targets for everything that turns bytes or text into values."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from aeron_async.cli.pcap import (
    BLOCK_LENGTH_MAX,
    RECORD_HEADER_LENGTH,
    CaptureError,
    CaptureReader,
)
from aeron_async.errors import ConfigurationError, ProtocolError
from aeron_async.protocol.address import Address, InterfaceSpec, multicast_control_address
from aeron_async.protocol.channel_uri import ChannelUri
from aeron_async.protocol.datagram import (
    INVALID,
    OLD_TERM,
    DataFrame,
    check_data,
    check_error,
    check_nak,
    check_setup,
    check_status_message,
    encode_datagram,
    frame_type,
    frames,
)
from aeron_async.protocol.error import ErrorFrame
from aeron_async.protocol.header import HEADER, FrameType
from aeron_async.protocol.nak import Nak
from aeron_async.protocol.rtt import RttMeasurement
from aeron_async.protocol.setup import ResponseSetup, Setup
from aeron_async.protocol.status_message import StatusMessage
from aeron_async.protocol.units import (
    INT64_MAX,
    format_duration,
    format_size,
    parse_duration_ns,
    parse_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TERM_LENGTH: Final = 64 * 1024
TERM_ID_AT: Final = 20
TERM_OFFSET_AT: Final = 8
CONTROL_TYPES: Final[Mapping[int, type[Any]]] = {
    FrameType.SETUP: Setup,
    FrameType.SM: StatusMessage,
    FrameType.NAK: Nak,
    FrameType.RTTM: RttMeasurement,
    FrameType.ERR: ErrorFrame,
    FrameType.RSP_SETUP: ResponseSetup,
}


def datagram(data: bytes) -> None:
    """Walk a datagram, and judge it as drivers do; the two must agree on what is a frame."""
    try:
        values = list(frames(data))
    except ProtocolError:
        values = []
    assert not values or encode_datagram(values) == data
    kind = frame_type(memoryview(data))
    if kind == INVALID:
        return
    control = CONTROL_TYPES.get(kind)
    if control is not None:
        judge_control(control.decode(data))
    elif kind <= FrameType.DATA:
        judge_data(data)


def judge_control(frame: object) -> None:
    """Ask every check that a driver would ask about a control frame."""
    if isinstance(frame, Setup):
        check_setup(frame)
    elif isinstance(frame, Nak) and check_nak(frame, TERM_LENGTH):
        assert frame.term_offset + frame.length <= TERM_LENGTH
    elif isinstance(frame, StatusMessage) and check_status_message(frame, TERM_LENGTH):
        assert frame.consumption_term_offset < TERM_LENGTH
    elif isinstance(frame, ErrorFrame) and check_error(frame):
        assert frame.error_length == len(frame.message)


def judge_data(data: bytes) -> None:
    """Ask how much of the stream the datagram covers, as a driver that knows its term would."""
    term_id = int.from_bytes(data[TERM_ID_AT : TERM_ID_AT + 4], "little", signed=True)
    term_offset = int.from_bytes(data[TERM_OFFSET_AT : TERM_OFFSET_AT + 4], "little", signed=True)
    for initial_term_id in (term_id, 0):
        length = check_data(data, initial_term_id=initial_term_id, term_length=TERM_LENGTH)
        if length in {INVALID, OLD_TERM}:
            continue
        assert 0 <= term_offset <= term_offset + length <= TERM_LENGTH
        assert length == 0 or length >= len(data)
        assert length & 31 == 0


def codec(decode: Callable[[bytes], Any], kind: FrameType) -> Callable[[bytes], None]:
    """Return the target of one frame: what decodes is encoded again to the same bytes.

    Behind an odd byte stands a datagram as it is. Behind an even one stand flags and a body, and
    length, version and type are put before them: the fuzzer need not guess those each time.
    """

    def target(data: bytes) -> None:
        choice, data = data[:1], data[1:]
        if data and not choice[0] & 1:
            data = HEADER.pack(len(data) + 7, 0, data[0], kind) + data[1:]
        try:
            frame = decode(data)
        except ProtocolError:
            return
        encoded = frame.encode()
        assert data.startswith(encoded)
        assert decode(encoded) == frame

    return target


def channel(data: bytes) -> None:
    """Read a channel; what is printed must read as the same, and every role must judge it."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        uri = ChannelUri.parse(text)
    except ConfigurationError:
        return
    assert ChannelUri.parse(str(uri)) == uri
    for check in (
        uri.check_publication,
        uri.check_subscription,
        uri.check_send_destination,
        uri.check_receive_destination,
    ):
        try:
            check()
        except ConfigurationError:
            continue


def values(data: bytes) -> None:
    """Read a size, a duration, an address and an interface; each must print and read alike."""
    text = data.decode("utf-8", "surrogateescape")
    for read in (read_size, read_duration, read_address, read_interface):
        try:
            read(text)
        except ConfigurationError:
            continue


def read_size(text: str) -> None:
    size = parse_size(text)
    assert 0 <= size <= INT64_MAX
    assert parse_size(format_size(size)) == size


def read_duration(text: str) -> None:
    duration_ns = parse_duration_ns(text)
    assert 0 <= duration_ns <= INT64_MAX
    assert parse_duration_ns(format_duration(duration_ns)) == duration_ns


def read_address(text: str) -> None:
    address = Address.parse(text)
    assert str(address) == text
    again = Address.of(address.host, address.port)
    assert (again.host, again.port, again.ip) == (address.host, address.port, address.ip)
    if address.is_multicast:
        control = multicast_control_address(address)
        assert control.is_multicast
        assert control.port == address.port


def read_interface(text: str) -> None:
    interface = InterfaceSpec.parse(text)
    assert str(interface) == text
    assert (interface.host is None) == (interface.interface_name is not None)
    assert interface.host is not None or interface.ip is None


class CaptureFile(BytesIO):
    """A file that fails a reader that asks for more at once than the longest block has."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return at most `size` bytes, which must have a limit."""
        assert size is not None
        assert 0 <= size <= BLOCK_LENGTH_MAX
        return super().read(size)


def capture(data: bytes) -> None:
    """Read a capture to its end, or to where it makes no sense.

    Its records and blocks of packets are of 16 bytes at least.
    """
    try:
        reader = CaptureReader(CaptureFile(data), "capture.pcap")
    except CaptureError:
        return
    found = 0
    try:
        for each in reader:
            found += 1
            assert len(each.payload) <= len(data)
    except CaptureError:
        pass
    assert found + reader.foreign_count == reader.record_count
    assert reader.record_count * RECORD_HEADER_LENGTH <= len(data)


PARSERS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "datagram": datagram,
    "data": codec(DataFrame.decode, FrameType.DATA),
    "setup": codec(Setup.decode, FrameType.SETUP),
    "status_message": codec(StatusMessage.decode, FrameType.SM),
    "nak": codec(Nak.decode, FrameType.NAK),
    "rtt": codec(RttMeasurement.decode, FrameType.RTTM),
    "error": codec(ErrorFrame.decode, FrameType.ERR),
    "response_setup": codec(ResponseSetup.decode, FrameType.RSP_SETUP),
    "channel_uri": channel,
    "values": values,
    "pcap": capture,
}
