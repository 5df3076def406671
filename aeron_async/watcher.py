"""Waiting, on an event loop, for words of memory that other processes write.

Official drivers and clients share memory and signal nothing, so a process that waits for them must
look. A `Watcher` looks with a native thread that does not use the Python interpreter, and wakes the
loop when an armed word fires. While no word is armed, the thread sleeps and never wakes.

Invariant: the memory of a word is not unmapped before the word is removed, because the word holds
it. A file that another process truncates is beyond this: see `aeron_async.concurrent`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, final

import attrs

from aeron_async.clock import NS_PER_MS, NS_PER_SECOND
from aeron_async.concurrent.atomic_buffer import WHY_NOT_SHARED, check_shared_memory
from aeron_async.errors import ConfigurationError
from aeron_async.idle_strategy import (
    BackoffIdleStrategy,
    BusySpinIdleStrategy,
    IdleStrategy,
    NoOpIdleStrategy,
    SleepingIdleStrategy,
    YieldingIdleStrategy,
)

WHY_NO_THREAD: str = ""

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Buffer

    from aeron_async._speedups.bells import BellFlag, Bells
    from aeron_async._speedups.spinning import spin
    from aeron_async._speedups.watching import WatchedWord, WatchThread
else:
    # Linux alone has the calls that it needs, and `check_watcher` says what is missing.
    BellFlag = Bells = WatchedWord = WatchThread = spin = None
    if WHY_NOT_SHARED is None:
        try:
            from aeron_async._speedups.bells import BellFlag, Bells
            from aeron_async._speedups.spinning import spin
            from aeron_async._speedups.watching import WatchedWord, WatchThread
        except ImportError as error:
            WHY_NO_THREAD = str(error)

__all__ = [
    "SPINNING_WORDS_MAX",
    "BellFlag",
    "Bells",
    "Spinner",
    "WatchedWord",
    "Watcher",
    "WatcherCounts",
    "Word",
    "WordWatcher",
    "check_watcher",
    "spin",
]

SILENT_PARK_PERIOD_NS: Final = 4 * NS_PER_MS
WORD_LIMIT: Final = 65_536
SPIN_NS: Final = 100_000
"""How long a reader looks before it sleeps; to wake a process takes about half of it."""
SHORT_NS: Final = 200_000
"""A wait that is shorter than this may be worth another look."""
SKIPS_MAX: Final = 255
SPINNING_WORDS_MAX: Final = 16
FOREVER: Final = 2**64 - 1
"""A number of spins or yields that takes centuries."""


def check_watcher() -> None:
    """Refuse to watch memory where the compiled code for it is missing.

    Raises:
        ConfigurationError: It is missing, or not in use; the text says how to get it.
    """
    check_shared_memory()
    if WatchThread is None:
        message = (
            "to wait for memory that other processes write needs Linux, and compiled code that "
            f"was not built when the package was installed ({WHY_NO_THREAD})"
        )
        raise ConfigurationError(message)


class Word(Protocol):
    """One word of memory that another process writes, as `WordWatcher.add` returns it."""

    def arm(self, expected: int, /) -> None:
        """Call back once when the word is not `expected`."""
        ...

    def arm_at_least(self, value: int, /) -> None:
        """Call back once when the word is `value` or more."""
        ...

    def disarm(self) -> bool:
        """Call back no more; return whether the word was armed."""
        ...

    def remove(self) -> None:
        """Stop looking at the memory, which may be unmapped after this."""
        ...


class WordWatcher(Protocol):
    """Looks at words of memory, and calls back from the event loop: a `Watcher`, or a fake."""

    def add(
        self,
        buffer: Buffer,
        offset: int,
        width: int,
        callback: Callable[[], object],
        *,
        is_command: bool = False,
    ) -> Word:
        """Return a word of 32 or 64 bits at an offset in bytes, which is not armed."""
        ...


@final
@attrs.frozen(kw_only=True)
class WatcherCounts:
    """What a watcher has done so far.

    Attributes:
        scans: How often the thread has looked at the words.
        naps: How often it slept for a limited time, because no armed word fired.
        parks: How often it slept until a word was armed.
        dozes: How often it slept until another process rang, or a word was armed.
        fires: How many armed words fired.
        wake_ups: How often it woke the event loop.
    """

    scans: int
    naps: int
    parks: int
    dozes: int
    fires: int
    wake_ups: int


@final
class Watcher:
    """Calls back on an event loop when words of memory change; see the module.

    To wait, read a word, decide from its value, and arm the word with that same value: a store that
    another process makes in between fires at once.

    A word is watched once for each time it is armed. Words may be armed, disarmed and removed by
    any Python thread; `add` and `close` belong to the thread of the loop.

    Args:
        loop: The event loop that runs the callbacks; of asyncio or uvloop.
        idle_strategy: What the thread does between two looks while a word is armed.
        silent_park_period_ns: Longest sleep of a `BackoffIdleStrategy` after a second in which no
            word was armed and none fired; no effect unless it is longer than its own. An armed word
            ends every sleep at once.
        word_limit: Most words at once.

    Differs: an agent of an official driver or client idles for 1 ms at most, also when it waits for
    nothing. Here the thread sleeps while no word is armed, and for up to 4 ms after a silence.

    Raises:
        ConfigurationError: The compiled code is missing: see `check_watcher`.
        OSError: The system gives no thread, or no descriptor.
    """

    __slots__ = ("__weakref__", "_loop", "_may_spin", "_thread")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        idle_strategy: IdleStrategy | None = None,
        *,
        silent_park_period_ns: int = SILENT_PARK_PERIOD_NS,
        word_limit: int = WORD_LIMIT,
    ) -> None:
        check_watcher()
        ladder = _ladder(idle_strategy or BackoffIdleStrategy(), silent_park_period_ns)
        self._loop = loop
        # What only sleeps is to cost little; and a peer on the same processor could not answer.
        self._may_spin = (
            not isinstance(idle_strategy, SleepingIdleStrategy) and len(os.sched_getaffinity(0)) > 1
        )
        self._thread = WatchThread(**ladder, word_limit=word_limit)
        try:
            loop.add_reader(self._thread.fileno(), self._thread.dispatch, self._on_error)
        except BaseException:
            self._thread.close()
            raise

    def add(
        self,
        buffer: Buffer,
        offset: int,
        width: int,
        callback: Callable[[], object],
        *,
        is_command: bool = False,
    ) -> WatchedWord:
        """Return a word to wait for; it is not armed yet.

        The word holds the buffer until `WatchedWord.remove`, or until nothing refers to the word.
        The watcher itself does not keep it.

        Args:
            buffer: The memory: a `Mapping`, or any other whose bytes lie in one piece.
            offset: Where in it the word begins, in bytes; a multiple of its size.
            width: 32 or 64 bits.
            callback: Called on the loop, without arguments, each time that the word fires. What it
                raises goes to the exception handler of the loop.
            is_command: Whether it is a word of commands or answers, and not of a stream. While no
                other word is armed, who stores something of a stream does not ring.

        Raises:
            ClosedError: The watcher is closed, or belongs to the parent of this process.
            ConfigurationError: There are `word_limit` words.
            IndexError: The word does not lie within the buffer.
            ValueError: The width is another, or the word lies at no multiple of its size.
        """
        return self._thread.add(buffer, offset, width, callback, is_command=is_command)

    def use_bell(self, values: Buffer, asleep_at: int, mode_at: int, doze_ns: int) -> None:
        """Sleep until another process rings, instead of looking; see `aeron_async.doorbell`.

        The watcher goes on looking until `keep_bell`, and whenever the driver says that all must.

        Args:
            values: The values of a driver's counters; they are held until the watcher is closed.
            asleep_at: Where the word of this process is, in bytes.
            mode_at: Where the driver says whether all must look, in bytes.
            doze_ns: Longest sleep.

        Raises:
            ClosedError: The watcher is closed, or belongs to the parent of this process.
            IndexError: A word does not lie within the memory.
            ValueError: It has a bell already.
        """
        self._thread.use_bell(values, asleep_at, mode_at, doze_ns)

    def keep_bell(self, duration_ns: int) -> None:
        """Use the bell for so long from now on: after that it may belong to something else."""
        self._thread.keep_bell(duration_ns)

    def new_spinner(self, now_ns: Callable[[], int]) -> Spinner | None:
        """Return what one reader uses before it sleeps; None where it should sleep at once."""
        return Spinner(now_ns) if self._may_spin else None

    @property
    def word_count(self) -> int:
        """How many words were added and not removed."""
        return self._thread.word_count

    @property
    def is_parked(self) -> bool:
        """Whether the thread sleeps until a word is armed, and costs nothing."""
        return self._thread.is_parked

    @property
    def is_napping(self) -> bool:
        """Whether the thread sleeps for a limited time."""
        return self._thread.is_napping

    @property
    def is_dozing(self) -> bool:
        """Whether the thread sleeps until another process rings."""
        return self._thread.is_dozing

    @property
    def counts(self) -> WatcherCounts:
        """What it has done so far."""
        thread = self._thread
        return WatcherCounts(
            scans=thread.scan_count,
            naps=thread.nap_count,
            parks=thread.park_count,
            dozes=thread.doze_count,
            fires=thread.fire_count,
            wake_ups=thread.wake_up_count,
        )

    def close(self) -> None:
        """Remove all words, and stop the thread; a second call does nothing.

        The loop may have been closed before. In a child process that is forked, the watcher of the
        parent stays as it is.
        """
        thread = self._thread
        if thread.is_closed:
            return
        # A child shares the epoll instance of the loop with its parent: to remove the reader there
        # would remove it from the parent's loop.
        if not thread.is_forked and not self._loop.is_closed():
            self._loop.remove_reader(thread.fileno())
        thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _on_error(self, error: Exception) -> None:
        message = "a callback of a watched word failed"
        self._loop.call_exception_handler({"message": message, "exception": error})


@final
class Spinner:
    """Whether a reader looks at its words for a moment before it sleeps.

    Two processes that answer each other at once sleep and wake for longer than they work, unless
    both look until the answer is there: at most `SPIN_NS`, which holds up the loop, but no other
    thread. A reader does so only if its last wait was short. If nothing comes, it skips as many of
    its short waits before the next try as before and one more, doubled each time up to `SKIPS_MAX`:
    that is 100 us in 256 waits, which is little beside what it takes to sleep and wake so often.

    Args:
        now_ns: Returns the time.
    """

    __slots__ = ("_began_ns", "_is_short", "_now_ns", "_skips", "_skips_left")

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._is_short = True
        self._skips = self._skips_left = 0
        self._began_ns: int | None = None

    def begin(self) -> bool:
        """Begin a wait; return whether to call `spin`."""
        self._began_ns = self._now_ns()
        if not self._is_short:
            return False
        if self._skips_left:
            self._skips_left -= 1
            return False
        return True

    def spin(self, words: list[tuple[Buffer, int, int]]) -> bool:
        """Look until a word changes; return whether one has.

        Args:
            words: Memory, offset in bytes, and value of each word of 32 bits; at most
                `SPINNING_WORDS_MAX`.
        """
        if spin(words, SPIN_NS):
            self._skips = 0
            return True
        self._skips = self._skips_left = min(2 * self._skips + 1, SKIPS_MAX)
        return False

    def end(self) -> None:
        """End the wait."""
        if self._began_ns is not None:
            self._is_short = self._now_ns() - self._began_ns < SHORT_NS


def _ladder(strategy: IdleStrategy, silent_park_period_ns: int) -> dict[str, Any]:
    """Return what the thread does while no armed word fires."""
    found = {
        "max_spins": 0,
        "max_yields": 0,
        "min_nap_ns": 1,
        "max_nap_ns": 1,
        "silent_nap_ns": 0,
        "silence_ns": NS_PER_SECOND,
        "pauses": True,
    }
    match strategy:
        case BusySpinIdleStrategy():
            found |= {"max_spins": FOREVER}
        case NoOpIdleStrategy():
            found |= {"max_spins": FOREVER, "pauses": False}
        case YieldingIdleStrategy():
            found |= {"max_yields": FOREVER}
        case SleepingIdleStrategy(period_ns):
            found |= {"min_nap_ns": period_ns, "max_nap_ns": period_ns}
        case BackoffIdleStrategy():
            found |= {
                "max_spins": strategy.max_spins,
                "max_yields": strategy.max_yields,
                "min_nap_ns": strategy.min_park_period_ns,
                "max_nap_ns": strategy.max_park_period_ns,
                "silent_nap_ns": silent_park_period_ns,
            }
    return found
