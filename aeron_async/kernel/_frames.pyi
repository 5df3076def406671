from aeron_async.kernel.message import Message as Message
from aeron_async.kernel.placing import place_runs as place_runs
from aeron_async.kernel.placing import skip_whole as skip_whole
from aeron_async.kernel.reading import read_whole as read_whole
from aeron_async.kernel.scanning import mark_starts as mark_starts
from aeron_async.kernel.scanning import scan_for_send as scan_for_send
from aeron_async.kernel.scanning import scan_runs as scan_runs
from aeron_async.logbuffer.log_buffers import LogBuffers

REFUSED: int

class FrameWriter:
    def __init__(
        self, log: LogBuffers, *, max_payload_length: int, max_message_length: int
    ) -> None: ...
    def detach(self) -> None: ...
    def offer(self, data: object, limit: int, reserved_value: int) -> int: ...
