"""`aeron-async decode`: the frames of a packet capture, and how each stream fared."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - cyclopts reads the annotation when it runs
from typing import TYPE_CHECKING, BinaryIO, final

from aeron_async.cli.decode_frames import fields_of, kind_of
from aeron_async.cli.decode_output import JsonOutput, Output, TextOutput
from aeron_async.cli.decode_streams import Tally
from aeron_async.cli.options import Flag, Int32, Port  # noqa: TC001 - likewise
from aeron_async.cli.pcap import CaptureError, CaptureReader
from aeron_async.cli.runner import ExitCode
from aeron_async.errors import ProtocolError
from aeron_async.protocol.datagram import INVALID, DataFrame, OpaqueFrame, frame_type, frames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.cli.pcap import Datagram
    from aeron_async.protocol.datagram import Frame

__all__ = ["decode"]


def decode(
    file: Path,
    /,
    *,
    stream: Int32 | None = None,
    session: Int32 | None = None,
    port: Port | None = None,
    summary: Flag = False,
    json: Flag = False,
) -> int:
    """Show the Aeron frames of a packet capture, and how each stream fared.

    Args:
        file: In the classic pcap format, such as `tcpdump -w` writes; a pipe is /dev/stdin.
        stream: Only frames of this stream id.
        session: Only frames of this session id.
        port: Only datagrams from or to this UDP port.
        summary: Only the summaries, and not every frame.
        json: One JSON object a line: of "type" frame, stream, and at the end capture.
    """
    out: Output = JsonOutput() if json else TextOutput()
    selection = Selection(stream, session, port)
    with file.open("rb") as opened:
        return show(opened, str(file), selection, out, is_brief=summary)


@final
class Selection:
    """Which frames are asked for."""

    def __init__(self, stream_id: int | None, session_id: int | None, port: int | None) -> None:
        self._stream_id = stream_id
        self._session_id = session_id
        self._port = port

    def has_datagram(self, datagram: Datagram) -> bool:
        """Return whether a datagram is asked for."""
        return self._port is None or self._port in datagram.ports

    def has_frame(self, frame: Frame) -> bool:
        """Return whether a frame is asked for; one of no stream is not, when a stream is."""
        if self._stream_id is None and self._session_id is None:
            return True
        if isinstance(frame, OpaqueFrame):
            return False
        record = frame.header if isinstance(frame, DataFrame) else frame
        return self._stream_id in {None, record.stream_id} and self._session_id in {
            None,
            record.session_id,
        }


def show(
    file: BinaryIO, name: str, selection: Selection, out: Output, *, is_brief: bool
) -> ExitCode:
    """Write everything that can be read, and only then raise what was wrong with the rest.

    Raises:
        CaptureError: The file is no capture, or ends in the middle.
    """
    reader = CaptureReader(file, name)
    tally = Tally()
    counts = {"other_datagrams": 0, "malformed_datagrams": 0}
    failure: CaptureError | None = None
    first_ns: int | None = None
    try:
        for datagram in reader:
            if not selection.has_datagram(datagram):
                continue
            if first_ns is None:
                first_ns = datagram.timestamp_ns
            for frame in checked_frames(datagram.payload, counts):
                if selection.has_frame(frame):
                    kind = kind_of(frame)
                    known = tally.add(frame, kind, datagram)
                    if not is_brief:
                        since_ns = datagram.timestamp_ns - first_ns
                        out.frame(datagram, since_ns, kind, fields_of(frame) | known)
    except CaptureError as error:
        failure = error
    for stream in tally.streams.values():
        out.stream(stream)
    packets = {"packets": reader.record_count, "packets_without_udp": reader.foreign_count}
    out.capture(packets | counts | {"frames": dict(tally.frames)})
    if failure is not None:
        raise failure
    return ExitCode.SUCCESS


def checked_frames(payload: bytes, counts: dict[str, int]) -> Iterator[Frame]:
    """Yield the frames of a datagram as far as they can be meant; count what cannot."""
    if frame_type(payload) == INVALID:
        counts["other_datagrams"] += 1
        return
    try:
        yield from frames(payload)
    except ProtocolError:
        counts["malformed_datagrams"] += 1
