from collections.abc import Callable
from typing import TypeAlias

from aeron_async.driver.media.socket_transport import Group, RunSource
from aeron_async.driver.media.sockets import SocketAddress
from aeron_async.logbuffer.placing import SegmentTable

class RunReader:
    groups: list[Group]
    is_drained: bool
    error: OSError | None
    dropped: int
    epoch_ns: int
    def __init__(
        self,
        memory: memoryview,
        segments: memoryview[int],
        decode: Callable[[bytes], SocketAddress],
    ) -> None: ...
    def read(self, sock: RunSource, count_left: int) -> int: ...

SendSegmented: TypeAlias = Callable[
    [RunSource, memoryview, SegmentTable, int, int], tuple[int, int, int]
]

def send_segmented(
    sock: RunSource, data: memoryview, segments: SegmentTable, index: int, start: int, /
) -> tuple[int, int, int]: ...
