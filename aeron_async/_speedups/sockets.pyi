from collections.abc import Callable
from typing import TypeAlias

from aeron_async.driver.media.socket_transport import BatchSource, Group
from aeron_async.driver.media.sockets import SocketAddress
from aeron_async.logbuffer.placing import SegmentTable

class BatchReader:
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
    def read(self, sock: BatchSource, count_left: int) -> int: ...

class LoneReading:
    def __init__(
        self,
        reader: BatchReader,
        sock: BatchSource,
        take: Callable[[memoryview, SocketAddress], bool],
        taken: Callable[[], object],
        count: int,
        fail: Callable[[Exception], object],
        go_on: Callable[[], object],
    ) -> None: ...
    def __call__(self) -> None: ...

SendSegmented: TypeAlias = Callable[
    [BatchSource, memoryview, SegmentTable, int, int], tuple[int, int, int]
]

def send_segmented(
    sock: BatchSource, data: memoryview, segments: SegmentTable, index: int, start: int, /
) -> tuple[int, int, int]: ...

SendToMany: TypeAlias = Callable[
    [BatchSource, memoryview, SegmentTable, int, int, tuple[bytes, ...], int, int],
    tuple[int, int, int, int, int],
]

def send_to_many(
    sock: BatchSource,
    data: memoryview,
    segments: SegmentTable,
    index: int,
    start: int,
    addresses: tuple[bytes, ...],
    slice_count: int,
    sndbuf_length: int,
    /,
) -> tuple[int, int, int, int, int]: ...
