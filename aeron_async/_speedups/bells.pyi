from collections.abc import Callable, Sequence

from typing_extensions import Buffer

from aeron_async.logbuffer.wake_flag import WakeFlag

class BellFlag(WakeFlag):
    def __init__(
        self,
        values: Buffer,
        mode_at: int,
        refresh: Callable[[], Sequence[int] | None],
        call_soon: Callable[[Callable[[], object]], object] | None,
    ) -> None: ...
    def end_turn(self) -> None: ...
    def close(self) -> None: ...

class Bells:
    def __init__(self, values: Buffer) -> None: ...
    def ring(self, place: int, /, *, is_command: bool = False) -> bool: ...
    def close(self) -> None: ...
