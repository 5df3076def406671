"""Media drivers with an event loop of their own: in a thread, or stepped by the application.

No blocked event loop of the application stalls a driver in a thread of its own.

The driver is an ordinary one in an event loop of its own, and serves clients through an Aeron
directory, as it serves those of other processes. So no object of the driver is used by two threads
but its counters, which are read only.

Invariant: each side calls the other by `call_soon_threadsafe` alone. The thread ends when its
driver has closed, and the driver closes when the event loop that started it can no longer do that.

A stepped driver has an event loop that runs only during the calls of the application: each call of
`do_work` is one turn, which reads the sockets, runs the agents that have something to do, and waits
for nothing. Its clients live in the same loop.

Source: Aeron `MediaDriver`, whose agents run in threads of the application, or are invoked by it:
`sharedAgentInvoker`, `AgentInvoker`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import warnings
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, final

import anyio
import attrs

from aeron_async.aeron_directory import default_directory
from aeron_async.errors import ClosedError, DriverError, WrongLoopError
from aeron_async.tasks import TaskOwner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator
    from types import TracebackType

    from aeron_async.counters import CountersReader
    from aeron_async.driver.core.context import DriverContext
    from aeron_async.driver.media_driver import MediaDriver

    LoopFactory = Callable[[], asyncio.AbstractEventLoop]

__all__ = ["InvokedMediaDriver", "ThreadedMediaDriver", "with_directory"]

T = TypeVar("T")

HOME_INTERVAL_S: Final = 1.0
"""How often a driver looks whether the event loop that started it is still there."""


def default_loop_factory() -> LoopFactory:
    """Return what makes an event loop of uvloop if that is installed, and of asyncio otherwise."""
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop
    import uvloop  # noqa: PLC0415 - it is optional

    return uvloop.new_event_loop


def with_directory(context: DriverContext) -> DriverContext:
    """Return a context with an Aeron directory: its own, or else a temporary one.

    The temporary directory is in shared memory, and goes when the driver closes. The path is
    absolute: the driver and its clients may use it after the program has changed its directory.
    """
    if context.aeron_directory is not None:
        absolute = str(Path(context.aeron_directory).absolute())
        return attrs.evolve(context, aeron_directory=absolute)
    # Other users may write there too, so the name must not be known before.
    directory = f"{default_directory({})}-{os.getpid()}-{os.urandom(8).hex()}"
    return attrs.evolve(context, aeron_directory=directory, dir_delete_on_shutdown=True)


@final
class ThreadedMediaDriver:
    """A media driver in a thread: `async with MediaDriver.launch(thread=True) as driver`.

    Or `driver = await MediaDriver.launch(thread=True)`, which runs until `aclose`. It belongs to
    the event loop that started it, and its clients may be in any event loop, thread or process:
    `Aeron.connect(driver)`, or `Aeron.connect(directory=driver.directory)`.

    Args:
        driver: The driver to run, which has an Aeron directory.
        loop_factory: Makes the event loop of the thread; None takes uvloop if it is installed.

    Attributes:
        context: Its settings.
        directory: Its Aeron directory.
    """

    def __init__(self, driver: MediaDriver, loop_factory: LoopFactory | None) -> None:
        assert driver.context.aeron_directory is not None, "the caller gives it one"
        self.context: DriverContext = driver.context
        self.directory: Path = Path(driver.context.aeron_directory)
        self._driver = driver
        self._make_loop = loop_factory
        self._pid = os.getpid()
        # The loop that starts it, and the thread which that loop runs in.
        self._home: asyncio.AbstractEventLoop | None = None
        self._home_thread = threading.current_thread()
        self._started: asyncio.Future[None] | None = None
        self._ended = asyncio.Event()
        self._watching = TaskOwner()
        self._is_closing = False
        self._error: Exception | None = None
        # Of the driver's thread.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._requests = TaskOwner()
        self._is_serving = True

    @property
    def counters(self) -> CountersReader:
        """Return the driver's counters, to read them.

        Raises:
            ClosedError: The driver has not been started.
            WrongLoopError: Called in a child process that is forked, which has not their memory.
        """
        if os.getpid() != self._pid:
            message = "the media driver belongs to the parent of this process: attach a client"
            raise WrongLoopError(message)
        return self._driver.counters

    @property
    def is_closed(self) -> bool:
        """Return whether the driver is closed, or about to be."""
        return self._is_closing or self._driver.is_closed

    def check_serves(self) -> None:
        """Refuse a client, unless the driver has been started and is not closed.

        Raises:
            ClosedError: The driver serves no clients.
        """
        started = self._started
        if self.is_closed:
            message = "the media driver is closed, and starts once: call MediaDriver.launch()"
        elif started is None or not started.done():
            message = (
                "the media driver has not been started: write `async with "
                "MediaDriver.launch(thread=True) as driver`, or `await` it"
            )
        else:
            return
        raise ClosedError(message) from self._error

    # In the event loop of the application.

    async def start(self) -> None:
        """Start the thread, and in it the driver; if that fails, nothing is left.

        Raises:
            ClosedError: The driver has been started or closed before, or is closed during the call.
            ConfigurationError: It needs Linux and compiled code, or the settings allow no driver.
            DriverError: Another driver uses the Aeron directory, or it cannot be made; or the
                socket of the name resolver cannot be bound.
            OSError: The system gives no thread, no descriptor, or no memory for the counters.
        """
        if self._home is not None or self._is_closing:
            message = "this media driver was started, and starts once: call MediaDriver.launch()"
            raise ClosedError(message)
        home = self._home = asyncio.get_running_loop()
        self._home_thread = threading.current_thread()
        started = self._started = home.create_future()
        try:
            self._begin()
        except BaseException:
            self._is_closing = True
            self._ended.set()
            raise
        try:
            await started
        except BaseException:
            self._is_closing = True
            self._call(self._requests.cancel)
            # The driver may have started, and this loop not have heard of it yet.
            self._request(self._driver.abort)
            await self._wait_until_ended()
            raise
        self._watching.start(self._watch(), "aeron-driver-watch")

    def _begin(self) -> None:
        loop = self._loop = (self._make_loop or default_loop_factory())()
        # The interpreter waits for it, so that it can remove its files: see `_look_home`.
        self._thread = threading.Thread(
            target=self._run, args=(loop,), name="aeron-driver", daemon=False
        )
        try:
            self._thread.start()
        except RuntimeError as error:
            loop.close()
            raise OSError(errno.EAGAIN, "the system gives no thread for the driver") from error

    async def wait_closed(self) -> None:
        """Wait until the driver has closed: by its owner, by a client that may, or by an error.

        Raises:
            DriverError: The driver failed.
            WrongLoopError: Called from another event loop or process.
        """
        if self._home is not None:
            self._check_home()
        await self._ended.wait()
        if self._error is not None:
            raise self._error

    async def aclose(self) -> None:
        """Close in order, as `MediaDriver.aclose` does, and wait until the thread has ended.

        Later calls wait for the first one. Cancelling the call closes the driver at once.

        Raises:
            WrongLoopError: Called from another event loop or process.
        """
        await self._close(self._driver.aclose)

    async def abort(self) -> None:
        """Close at once without sending what is left; the same as cancelling `aclose`.

        Raises:
            WrongLoopError: Called from another event loop or process.
        """
        await self._close(self._driver.abort)

    async def _close(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._home is None:
            self._is_closing = True
            self._ended.set()
            return
        self._check_home()
        if self._ended.is_set():
            return
        was_closing, self._is_closing = self._is_closing, True
        self._request(close)
        try:
            await self._ended.wait()
        except BaseException:
            if not was_closing:
                self._request(self._driver.abort)
                await self._wait_until_ended()
            raise

    async def _wait_until_ended(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._ended.wait()

    async def _watch(self) -> None:
        """Wait for the end of the thread, and end it if this event loop ends before it."""
        try:
            await self._ended.wait()
        except asyncio.CancelledError:
            is_unclosed, self._is_closing = not self.is_closed, True
            if is_unclosed:
                self._request(self._driver.abort)
            await self._wait_until_ended()
            if is_unclosed:
                self._warn("its event loop ended")
            raise

    def _on_started(self, error: BaseException | None) -> None:
        started = self._started
        if started is None or started.done():
            return
        if error is None:
            started.set_result(None)
        else:
            started.set_exception(error)

    def _on_ended(self) -> None:
        assert self._thread is not None, "it has ended"
        # It has nothing left to do, so that this does not wait.
        self._thread.join()
        self._on_started(DriverError("the thread of the media driver ended before it had started"))
        self._ended.set()

    def _check_home(self) -> None:
        # A child process that is forked has no running loop.
        if os.getpid() == self._pid and asyncio.get_running_loop() is self._home:
            return
        message = "the media driver was started in another event loop or process"
        if self._home is not None and self._home.is_closed():
            message += ", and closes now that this loop is closed"
        raise WrongLoopError(message)

    def _warn(self, why: str) -> None:
        # asyncio warns of transports in the same way: all is freed, but unsent data is lost.
        message = f"unclosed {self!r}: {why} before `await aclose()`"
        warnings.warn(message, ResourceWarning, source=self, stacklevel=1)

    # From one thread to the other.

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the driver's thread, unless that has ended."""
        assert self._loop is not None, "the caller has started it"
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def _request(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a task in the driver's thread, unless the driver has closed."""
        self._call(self._start_request, work)

    def _tell(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the application's event loop, unless that is closed."""
        assert self._home is not None, "it has been started"
        with suppress(RuntimeError):
            self._home.call_soon_threadsafe(function, *arguments)

    # In the driver's thread.

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the driver until it has closed; the body of the thread."""
        try:
            try:
                loop.run_until_complete(self._serve())
                loop.run_until_complete(loop.shutdown_asyncgens())
            finally:
                # Not by way of `asyncio.Runner`, which waits for names that are being looked up.
                loop.close()
        finally:
            self._tell(self._on_ended)

    async def _serve(self) -> None:
        async with self._requests:
            error = await self._start_driver()
            self._tell(self._on_started, error)
            if error is not None:
                await self._driver.abort()
            else:
                self._look_home()
                try:
                    await self._driver.wait_closed()
                except DriverError as failure:
                    self._error = failure
        self._is_serving = False

    async def _start_driver(self) -> BaseException | None:
        """Start the driver; return why it has not started."""
        if self._is_closing:
            return ClosedError("the media driver was closed before it had started")
        starting = self._requests.start(self._driver.start(), "aeron-driver-start")
        await asyncio.wait([starting])
        return asyncio.CancelledError() if starting.cancelled() else starting.exception()

    def _start_request(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._is_serving:
            self._requests.start(work(), "aeron-driver-close")

    def _look_home(self) -> None:
        """Close the driver if its owner can no longer do so, or else look again later."""
        assert self._home is not None, "it has been started"
        assert self._loop is not None, "this runs in it"
        owner = self._home_thread
        if self._home.is_closed():
            why = "its event loop was closed"
        elif not owner.is_alive() or (owner.daemon and not threading.main_thread().is_alive()):
            # The interpreter waits for this thread when the main thread has ended.
            why = "the thread of its event loop ended"
        else:
            self._loop.call_later(HOME_INTERVAL_S, self._look_home)
            return
        if not self.is_closed:
            self._is_closing = True
            self._start_request(self._driver.abort)
            self._warn(why)

    # As the driver itself.

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        """Start the driver, unless it was awaited before."""
        if self._home is None or self._is_closing:
            await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
        if self._error is not None and exc is None:
            raise self._error


# Stepped by the application.


@final
class InvokedMediaDriver:
    """A media driver that moves only in `do_work`: `with MediaDriver.launch(invoker=True)`.

    Its calls belong to the thread and the process that started it, outside of any running event
    loop. Clients are made by `Aeron.connect(driver)`, and used within `run` and `do_work`. Those of
    other processes attach by its Aeron directory, if its context has one.

    Args:
        driver: The driver to step.
        loop_factory: Makes its event loop; None takes uvloop if it is installed.

    Attributes:
        context: Its settings.
    """

    def __init__(self, driver: MediaDriver, loop_factory: LoopFactory | None) -> None:
        self.context: DriverContext = driver.context
        self._driver: MediaDriver = driver
        self._make_loop = loop_factory
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._pid = 0
        self._work_count = 0
        self._error: BaseException | None = None
        self._is_over = False

    @property
    def counters(self) -> CountersReader:
        """Return the driver's counters.

        Raises:
            ClosedError: The driver has not been started.
        """
        return self._driver.counters

    @property
    def is_closed(self) -> bool:
        """Return whether the driver is closed."""
        return self._is_over or self._driver.is_closed

    def start(self) -> None:
        """Start the driver; if that fails, nothing is left.

        Raises:
            ClosedError: The driver has been started or closed before.
            WrongLoopError: Called where an event loop runs.
            ConfigurationError: See `MediaDriver.start`, as for the other errors.
            DriverError: See there.
            OSError: See there.
        """
        if self._loop is not None or self._is_over:
            message = "this media driver was started, and starts once: call MediaDriver.launch()"
            raise ClosedError(message)
        check_no_loop()
        self._thread_id, self._pid = threading.get_ident(), os.getpid()
        loop = self._loop = (self._make_loop or default_loop_factory())()
        try:
            loop.run_until_complete(self._driver.start())
            self._work_count = self._driver._work_count  # noqa: SLF001 - the driver that it steps
        except BaseException:
            self._end()
            raise

    def do_work(self, work: Callable[[], object] | None = None) -> int:
        """Do what is due, and wait for nothing; return 0 if nothing was.

        Args:
            work: Called in this turn, within the event loop, so that it can use clients: poll a
                subscription, or try to offer. What it raises is raised by this call.

        Raises:
            ClosedError: The driver has not been started, or is closed.
            DriverError: The driver has failed.
            WrongLoopError: Called from another thread or process, or where an event loop runs.
        """
        loop = self._checked_loop()
        if work is not None:
            loop.call_soon(self._call, work)
        loop.call_soon(loop.stop)
        loop.run_forever()
        error, self._error = self._error, None
        if error is not None:
            raise error
        before, self._work_count = self._work_count, self._driver._work_count  # noqa: SLF001 - the same
        return self._work_count - before

    def run(self, awaitable: Awaitable[T]) -> T:
        """Turn the event loop until an awaitable is done, and return its result.

        For what must wait, such as `Aeron.connect(driver)` or `aeron.add_publication(...)`.

        Raises:
            ClosedError: The driver has not been started, or is closed.
            WrongLoopError: Called from another thread or process, or where an event loop runs.
        """
        return self._checked_loop().run_until_complete(waited_for(awaitable))

    def close(self) -> None:
        """Close in order, as `MediaDriver.aclose` does; a second call does nothing.

        Raises:
            WrongLoopError: Called from another thread or process, or where an event loop runs.
        """
        loop = self._loop
        if loop is not None and not loop.is_closed():
            self._check_caller()
        # One that is closed before it was started starts no more.
        self._is_over = True
        if loop is None or loop.is_closed():
            return
        try:
            loop.run_until_complete(self._driver.aclose())
        finally:
            self._end()

    def _end(self) -> None:
        """Close the event loop."""
        loop = self._loop
        assert loop is not None, "it was started"
        try:
            if not self._driver.is_closed:
                loop.run_until_complete(self._driver.abort())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _call(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the caller of `do_work` gets it
            self._error = error

    def _checked_loop(self) -> asyncio.AbstractEventLoop:
        loop = self._loop
        if loop is None:
            message = (
                "the media driver has not been started: write "
                "`with MediaDriver.launch(invoker=True) as driver`, or call start()"
            )
            raise ClosedError(message)
        self._check_caller()
        if loop.is_closed():
            message = "the media driver is closed, and starts once: call MediaDriver.launch()"
            raise ClosedError(message)
        if self._driver.is_closed:
            # Raises the error of a driver that has failed.
            loop.run_until_complete(self._driver.wait_closed())
            message = "the media driver was closed by a client, which may do that"
            raise ClosedError(message)
        return loop

    def _check_caller(self) -> None:
        if (threading.get_ident(), os.getpid()) != (self._thread_id, self._pid):
            message = "the media driver was started in another thread or process: step it there"
            raise WrongLoopError(message)
        check_no_loop()

    def __enter__(self) -> Self:
        """Start the driver, unless it was started before."""
        if self._loop is None:
            self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def check_no_loop() -> None:
    """Refuse to turn an event loop where another one runs.

    Raises:
        WrongLoopError: One runs in this thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    message = (
        "an event loop runs in this thread already: let it run the driver, with "
        "`async with MediaDriver.launch()`, or step the driver in another thread"
    )
    raise WrongLoopError(message)


async def waited_for(awaitable: Awaitable[T]) -> T:
    """Wait for what is awaitable, and no coroutine."""
    return await awaitable
