from collections.abc import Callable

from aeron_async.driver.media.run_reader import Group, RunSource
from aeron_async.driver.media.socket_spec import SocketAddress

class RunReader:
    groups: list[Group]
    is_drained: bool
    error: OSError | None
    dropped: int
    epoch_ns: int
    def __init__(
        self, memory: memoryview, cuts: memoryview[int], decode: Callable[[bytes], SocketAddress]
    ) -> None: ...
    def read(self, sock: RunSource, count_left: int) -> int: ...
