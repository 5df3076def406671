"""The official C client inside a test: what no official program does can be asked of it.

Its conductor is a thread of its own, and so the event loop goes on; whatever waits here polls. Its
driver is another process. Every object belongs to the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections import Counter
from contextlib import asynccontextmanager
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from tests.interop import libaeron_functions as functions
from tests.interop.libaeron_streams import OfficialPublication, OfficialSubscription
from tests.interop.programs import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from ctypes import CDLL

    from tests.interop.official import OfficialDriver

Kept = TypeVar("Kept")

IDLE_SLEEP_NS: Final = 1_000_000
ANSWER_TIMEOUT_S: Final = 10.0


class RefusedError(AssertionError):
    """The official client or driver said no; the text is its own."""


@attrs.frozen
class ErrorFrame:
    """What the handler of a publication's error frames was told."""

    registration_id: int
    session_id: int
    stream_id: int
    group_tag: int
    code: int
    text: str


class OfficialClient:
    """A client of an official driver, made by `official_client`.

    Attributes:
        errors: What its error handler was told.
        error_frames: What its publications were told by rejecting receivers.
    """

    def __init__(self, library: CDLL, directory: str) -> None:
        self.library = library
        self.errors: list[str] = []
        self.error_frames: list[ErrorFrame] = []
        self.pointer = c_void_p()
        self.is_closed = False
        self._assemblers: list[c_void_p] = []
        # What the library holds a pointer to must outlive it.
        self._kept: list[object] = []
        self._context = c_void_p()
        on_error = self.keep(functions.ErrorHandler(self._on_error))
        on_error_frame = self.keep(functions.ErrorFrameHandler(self._on_error_frame))
        self.check(library.aeron_context_init(byref(self._context)))
        for name, *arguments in (
            ("dir", directory.encode()),
            ("error_handler", on_error, None),
            ("publication_error_frame_handler", on_error_frame, None),
            ("idle_sleep_duration_ns", IDLE_SLEEP_NS),
        ):
            setter = getattr(library, f"aeron_context_set_{name}")
            self.check(setter(self._context, *arguments))
        self.check(library.aeron_init(byref(self.pointer), self._context))
        self.check(library.aeron_start(self.pointer))

    def close(self) -> None:
        """Close it with all that it added; waits for its conductor, a few milliseconds."""
        self.is_closed = True
        self.library.aeron_close(self.pointer)
        self.library.aeron_context_close(self._context)
        for assembler in self._assemblers:
            self.library.aeron_fragment_assembler_delete(assembler)

    async def add_publication(self, channel: str, stream_id: int) -> OfficialPublication:
        return await self._add_publication("publication", channel, stream_id)

    async def add_exclusive_publication(self, channel: str, stream_id: int) -> OfficialPublication:
        return await self._add_publication("exclusive_publication", channel, stream_id)

    async def add_subscription(self, channel: str, stream_id: int) -> OfficialSubscription:
        subscription = OfficialSubscription(self)
        handlers = (subscription.on_available, None, subscription.on_unavailable, None)
        subscription.pointer = await self._add("subscription", channel, stream_id, *handlers)
        return subscription

    def counters(self) -> Counter[str]:
        """Values by label; labels end where their details begin, and equal ones are added up."""
        counters: Counter[str] = Counter()

        def on_counter(value: int, *rest: Any) -> None:
            *_, label, length, _ = rest
            name = ctypes.string_at(label, length).decode().partition(":")[0]
            counters[name] += value

        reader = self.library.aeron_counters_reader(self.pointer)
        handler = functions.CounterHandler(on_counter)
        self.library.aeron_counters_reader_foreach_counter(reader, handler, None)
        return counters

    # For what it adds.

    def keep(self, kept: Kept) -> Kept:
        self._kept.append(kept)
        return kept

    def check(self, answer: int) -> int:
        """Fail with the library's own words if the answer says that it failed."""
        if answer < 0:
            raise RefusedError(self.library.aeron_errmsg().decode())
        return answer

    def assembler(self, handler: object) -> c_void_p:
        """Make what gives whole messages to a fragment handler."""
        assembler = c_void_p()
        self.check(self.library.aeron_fragment_assembler_create(byref(assembler), handler, None))
        self._assemblers.append(assembler)
        return assembler

    async def ask_for_destination(
        self, kind: str, verb: str, resource: c_void_p, channel: str
    ) -> None:
        """Add or remove a destination, and wait for the answer."""
        request = c_void_p()
        ask = getattr(self.library, f"aeron_{kind}_async_{verb}_destination")
        self.check(ask(byref(request), self.pointer, resource, channel.encode()))
        poll = getattr(self.library, f"aeron_{kind}_async_destination_poll")
        await wait_until(lambda: self.check(poll(request)) == 1, "answer", timeout=ANSWER_TIMEOUT_S)

    async def _add_publication(
        self, kind: str, channel: str, stream_id: int
    ) -> OfficialPublication:
        return OfficialPublication(self, kind, await self._add(kind, channel, stream_id))

    async def _add(self, kind: str, channel: str, stream_id: int, *handlers: object) -> c_void_p:
        request, added = c_void_p(), c_void_p()
        ask = getattr(self.library, f"aeron_async_add_{kind}")
        poll = getattr(self.library, f"aeron_async_add_{kind}_poll")
        self.check(ask(byref(request), self.pointer, channel.encode(), stream_id, *handlers))
        await wait_until(
            lambda: self.check(poll(byref(added), request)) == 1, "answer", timeout=ANSWER_TIMEOUT_S
        )
        return added

    def _on_error(self, _: object, code: int, message: bytes) -> None:
        self.errors.append(f"{code}: {message.decode(errors='replace')}")

    def _on_error_frame(self, _: object, address: int) -> None:
        values = functions.ErrorFrameValues.from_address(address)
        text_address = address + ctypes.sizeof(functions.ErrorFrameValues)
        self.error_frames.append(
            ErrorFrame(
                values.registration_id,
                values.session_id,
                values.stream_id,
                values.group_tag,
                values.error_code,
                ctypes.string_at(text_address, values.error_message_length).decode(),
            )
        )


@asynccontextmanager
async def official_client(driver: OfficialDriver) -> AsyncIterator[OfficialClient]:
    """A client of an official driver; at the end its error handler has heard of nothing."""
    library = functions.require_library()
    # Starting and closing wait for other threads; our driver must go on meanwhile.
    client = await asyncio.to_thread(OfficialClient, library, str(driver.directory))
    try:
        yield client
        assert client.errors == []
    finally:
        await asyncio.to_thread(client.close)
