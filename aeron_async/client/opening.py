"""Openings: results of calls such as `Aeron.add_publication`, to `await` or enter by `async with`.

Invariant: an opening opens its object once. A caller that awaits it closes the object; `async with`
closes it at the end of the block.
"""

from __future__ import annotations

from collections.abc import Coroutine
from inspect import CORO_CLOSED, CORO_CREATED, getcoroutinestate
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast, final, runtime_checkable

from aeron_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import CoroutineType, TracebackType

__all__ = ["Opening"]

OWNERS: Final = {"Aeron": "aeron"}
"""For classes whose openings come from an instance: the variable name that error texts use."""


class Closable(Protocol):
    """An object that an opening can return."""

    async def aclose(self) -> None:
        """Close the object."""


@runtime_checkable
class Checked(Protocol):
    """An object that may have left something undone when it was closed."""

    def check_complete(self) -> None:
        """Raise if what the block has done is not complete."""


Opened = TypeVar("Opened", bound=Closable)


@final
class Opening(Coroutine[Any, Any, Opened]):
    """A publication, a subscription or an archive that is about to be opened.

    `await` returns the object, and the caller closes it with `aclose`; `async with` closes it when
    the block ends. An opening is a coroutine, so that `asyncio.create_task` and `asyncio.gather`
    accept it. As for any coroutine, Python warns if it was neither awaited nor entered.

    Args:
        coroutine: Opens and returns the object.
        name: Qualified name of the call that returned the opening, for tracebacks and warnings.
    """

    __slots__ = ("_coroutine", "_opened")

    def __init__(self, coroutine: Coroutine[Any, Any, Opened], name: str) -> None:
        # The coroutine is that of an `async def`, which type checkers cannot see.
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
            closed: object = opened
            if exc is None and isinstance(closed, Checked):
                closed.check_complete()

    # Error texts for a forgotten `await`; hidden from type checkers, which find that mistake.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise an error that says that `await` is missing."""
            raise AttributeError(self._missing(f"nothing has been opened that has {name!r}"))

        def __aiter__(self) -> Any:
            """Raise an error that says that `await` is missing."""
            raise TypeError(self._missing("nothing has been opened to be read"))

        def __anext__(self) -> Any:
            """Raise an error that says that `await` is missing."""
            raise TypeError(self._missing("nothing has been opened to be read"))

        def __iter__(self) -> Any:
            """Raise an error that says that `await` is missing."""
            raise TypeError(self._missing("nothing has been opened to be read"))

        def _explain(self) -> Any:
            """Raise an error that says that `await` is missing; called by `why`."""
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
        """Return the call as users write it, and a variable name for its result."""
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

    # The coroutine protocol.

    def send(self, value: Any) -> Any:
        """Run the coroutine until it must wait."""
        # A task calls `send` without `__await__`, so check here. A coroutine that it has driven
        # before is suspended; one that was used up elsewhere is closed.
        if getcoroutinestate(self._coroutine) == CORO_CLOSED:
            raise RuntimeError(self._used_up())
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error in the coroutine, where it waits."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Close the coroutine."""
        self._coroutine.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} by {self._coroutine.__qualname__}>"
