"""What opens something, and can be waited for or entered: both work, whichever one writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, final

from aeron_async.archive.api import Archive

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from types import TracebackType
    from typing import Any

__all__ = ["ArchiveOpening"]

Opened = TypeVar("Opened", bound=Archive)


@final
class ArchiveOpening(Generic[Opened]):
    """An archive that is about to be opened: `await` it, or enter it with `async with`.

    Nothing happens before that. Who awaits it closes the archive; a block that it is entered with
    closes it in the end.

    Args:
        open_it: Opens the archive.
    """

    def __init__(self, open_it: Callable[[], Coroutine[Any, Any, Opened]]) -> None:
        self._open = open_it
        self._opened: Opened | None = None

    def __await__(self) -> Generator[Any, None, Opened]:
        return self._open().__await__()

    async def __aenter__(self) -> Opened:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.aclose()
