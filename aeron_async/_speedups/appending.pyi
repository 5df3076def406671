from aeron_async.logbuffer.log_buffers import LogBuffers

REFUSED: int

class FrameWriter:
    message_count: int

    def __init__(
        self,
        log: LogBuffers,
        *,
        max_payload_length: int,
        max_message_length: int,
        is_shared: bool = False,
    ) -> None: ...
    def detach(self) -> None: ...
    def offer(self, data: object, limit: int, reserved_value: int) -> int: ...
