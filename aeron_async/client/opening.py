"""Something that takes a moment to open: `await` it to get it, or enter it with `async with`.

Invariant: it opens once. Awaited, it is the caller's to close; `async with` closes it at its end.
"""

from __future__ import annotations

from collections.abc import Coroutine
from inspect import CORO_CLOSED, CORO_CREATED, getcoroutinestate
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast, final

from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import CoroutineType, TracebackType

__all__ = ["Opening"]

OWNERS: Final = {"Aeron": "aeron"}
"""How a call is written that is not one of the class itself."""


class Closable(Protocol):
    """What can be opened."""

    async def aclose(self) -> None:
        """Close it."""


Opened = TypeVar("Opened", bound=Closable)


@final
class Opening(Coroutine[Any, Any, Opened]):
    """A publication, a subscription or an archive that is about to be opened.

    `await` returns it, and the caller closes it with `aclose`; `async with` closes it when the
    block ends. It is a coroutine, so that `asyncio.create_task` and `asyncio.gather` take it. As
    for any coroutine, Python warns of one that was neither awaited nor entered.

    Args:
        coroutine: Opens it.
        name: Of the call that made this, for tracebacks and warnings.
    """

    __slots__ = ("_coroutine", "_opened")

    def __init__(self, coroutine: Coroutine[Any, Any, Opened], name: str) -> None:
        # Of a coroutine that an `async def` made, which type checkers know as any other.
        self._coroutine = cast("CoroutineType[Any, Any, Opened]", coroutine)
        self._coroutine.__qualname__ = name
        self._opened: Opened | None = None

    def __await__(self) -> Generator[Any, None, Opened]:
        self._check_first_time()
        return self._coroutine.__await__()

    async def __aenter__(self) -> Opened:
        self._check_first_time()
        self._opened = opened = await self._coroutine
        return opened

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        opened, self._opened = self._opened, None
        if opened is None:
            self._coroutine.close()
        else:
            await opened.aclose()

    # Unseen by type checkers, which find the mistake by themselves.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say what is missing where `await` was forgotten."""
            raise AttributeError(self._missing(f"nothing has been opened that has {name!r}"))

        def __aiter__(self) -> Any:
            """Say likewise where it was to be iterated over."""
            raise TypeError(self._missing("nothing has been opened to be read"))

        def __anext__(self) -> Any:
            """Say likewise where its next message was wanted."""
            raise TypeError(self._missing("nothing has been opened to be read"))

        def __iter__(self) -> Any:
            """Say likewise, and that a plain `for` does not wait."""
            raise TypeError(self._missing("nothing has been opened to be read"))

        def _explain(self) -> Any:
            """Say likewise where it is asked why it waits."""
            raise ConfigurationError(self._missing("nothing has been opened that could wait"))

        def _missing(self, lack: str) -> str:
            if getcoroutinestate(self._coroutine) != CORO_CREATED:
                return self._used_up()
            call, opened = self._words()
            return (
                f"`await` is missing before {call}: {lack}; write `{opened} = await {call}`, or "
                f"`async with {call} as {opened}`, and use `{opened}`"
            )

    def _words(self) -> tuple[str, str]:
        """Return how the call is written, and what its result is called."""
        owner, _, name = self._coroutine.__qualname__.rpartition(".")
        call = f"{OWNERS.get(owner, owner)}.{name}(...)"
        return call, "archive" if name == "open" else name.rpartition("_")[2]

    def _check_first_time(self) -> None:
        if getcoroutinestate(self._coroutine) != CORO_CREATED:
            raise RuntimeError(self._used_up())

    def _used_up(self) -> str:
        call, opened = self._words()
        return (
            f"{call} was already awaited, entered or closed, and opens once: keep what `await` "
            f"returned (`{opened} = await {call}`), or call it again for another"
        )

    # What a coroutine is driven by.

    def send(self, value: Any) -> Any:
        """Go on until something has to be waited for."""
        # A task drives it without `__await__`; what goes on is suspended, and not closed.
        if getcoroutinestate(self._coroutine) == CORO_CLOSED:
            raise RuntimeError(self._used_up())
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error where it waits."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Give up."""
        self._coroutine.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} by {self._coroutine.__qualname__}>"
