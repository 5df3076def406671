"""Publications and subscriptions of the official C client; its objects are made by that."""

from __future__ import annotations

import asyncio
import ctypes
from collections import deque
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any, Final

import attrs

from tests.interop import libaeron_functions as functions
from tests.interop.programs import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.interop.libaeron import OfficialClient

NOT_CONNECTED: Final = -1
BACK_PRESSURED: Final = -2
ADMIN_ACTION: Final = -3

CONNECT_TIMEOUT_S: Final = 10.0
TAKE_TIMEOUT_S: Final = 20.0
LOOK_AGAIN_S: Final = 0.001
OFFERS_PER_TURN: Final = 64
FRAGMENT_LIMIT: Final = 64


@attrs.frozen
class OfficialImage:
    """What an official subscription knows of one source, at one moment."""

    session_id: int
    correlation_id: int
    join_position: int
    position: int
    source_identity: str
    is_end_of_stream: bool
    is_revoked: bool
    active_transport_count: int


class OfficialPublication:
    """A publication, shared or exclusive."""

    def __init__(self, client: OfficialClient, kind: str, pointer: c_void_p) -> None:
        constants = functions.PublicationConstants()
        client.check(getattr(client.library, f"aeron_{kind}_constants")(pointer, byref(constants)))
        self.session_id: int = constants.session_id
        self.initial_term_id: int = constants.initial_term_id
        self.registration_id: int = constants.registration_id
        self._client = client
        self._kind = kind
        self._pointer = pointer

    @property
    def is_connected(self) -> bool:
        return bool(self._call("is_connected"))

    @property
    def position(self) -> int:
        return int(self._call("position"))

    @property
    def position_limit(self) -> int:
        return int(self._call("position_limit"))

    async def wait_connected(self, *, timeout: float = CONNECT_TIMEOUT_S) -> None:
        await wait_until(lambda: self.is_connected, "connected", timeout=timeout)

    def offer(self, data: bytes) -> int:
        """Append a message; return its position, or a negative reason why not."""
        return int(self._call("offer", data, len(data), None, None))

    async def offer_all(self, messages: Iterable[bytes], *, timeout: float = 30) -> None:
        """Append all messages, waiting for whatever they must wait for."""
        async with asyncio.timeout(timeout):
            for number, message in enumerate(messages):
                while (answer := self.offer(message)) < 0:
                    assert answer in {NOT_CONNECTED, BACK_PRESSURED, ADMIN_ACTION}
                    await asyncio.sleep(LOOK_AGAIN_S)
                if number % OFFERS_PER_TURN == 0:
                    await asyncio.sleep(0)

    async def add_destination(self, channel: str) -> None:
        await self._client.ask_for_destination(self._kind, "add", self._pointer, channel)

    async def remove_destination(self, channel: str) -> None:
        await self._client.ask_for_destination(self._kind, "remove", self._pointer, channel)

    def close(self) -> None:
        self._client.check(self._call("close", None, None))
        self._pointer = c_void_p()

    def revoke(self) -> None:
        """Take an exclusive publication back; it is closed by that."""
        self._client.check(self._call("revoke", None, None))
        self._pointer = c_void_p()

    def _call(self, name: str, *arguments: object) -> Any:
        assert self._pointer.value is not None
        assert not self._client.is_closed
        return getattr(self._client.library, f"aeron_{self._kind}_{name}")(
            self._pointer, *arguments
        )


class OfficialSubscription:
    """A subscription that puts messages together, and remembers images that come and go.

    Attributes:
        available: Images in the order in which they came, as they were then.
        unavailable: Images in the order in which they went, as they were then.
    """

    def __init__(self, client: OfficialClient) -> None:
        self.pointer = c_void_p()
        self.available: list[OfficialImage] = []
        self.unavailable: list[OfficialImage] = []
        self.on_available = client.keep(functions.ImageHandler(self._on_available))
        self.on_unavailable = client.keep(functions.ImageHandler(self._on_unavailable))
        self._client = client
        self._library = client.library
        self._received: deque[bytes] = deque()
        handler = client.keep(functions.FragmentHandler(self._on_message))
        self._assembler = client.assembler(handler)

    @property
    def is_connected(self) -> bool:
        return bool(self._library.aeron_subscription_is_connected(self._usable()))

    @property
    def registration_id(self) -> int:
        constants = functions.SubscriptionConstants()
        answer = self._library.aeron_subscription_constants(self._usable(), byref(constants))
        self._client.check(answer)
        return int(constants.registration_id)

    @property
    def images(self) -> list[OfficialImage]:
        return [self._look_at(image) for image in self._each_image()]

    async def wait_connected(self, *, timeout: float = CONNECT_TIMEOUT_S) -> None:
        await wait_until(lambda: self.is_connected, "connected", timeout=timeout)

    def reject(self, session_id: int, reason: str) -> None:
        """Take nothing more of a source, and tell it why."""
        for image in self._each_image():
            if self._look_at(image).session_id == session_id:
                self._client.check(self._library.aeron_image_reject(image, reason.encode()))
                return
        message = f"no image of session {session_id}"
        raise AssertionError(message)

    def poll(self) -> int:
        """Receive what is there; return how many messages have been received and not taken."""
        handler = ctypes.cast(self._library.aeron_fragment_assembler_handler, c_void_p)
        answer = self._library.aeron_subscription_poll(
            self._usable(), handler, self._assembler, FRAGMENT_LIMIT
        )
        self._client.check(answer)
        return len(self._received)

    async def take(self, *, timeout: float = TAKE_TIMEOUT_S) -> bytes:
        """Wait for the next message."""
        if not self._received:
            await wait_until(lambda: self.poll() > 0, "a message", timeout=timeout)
        return self._received.popleft()

    async def add_destination(self, channel: str) -> None:
        pointer = self._usable()
        await self._client.ask_for_destination("subscription", "add", pointer, channel)

    async def remove_destination(self, channel: str) -> None:
        pointer = self._usable()
        await self._client.ask_for_destination("subscription", "remove", pointer, channel)

    def close(self) -> None:
        self._client.check(self._library.aeron_subscription_close(self._usable(), None, None))
        self.pointer = c_void_p()

    def _usable(self) -> c_void_p:
        assert self.pointer.value is not None
        assert not self._client.is_closed
        return self.pointer

    def _each_image(self) -> Iterator[int]:
        for index in range(self._library.aeron_subscription_image_count(self._usable())):
            image = self._library.aeron_subscription_image_at_index(self._usable(), index)
            if image is not None:
                try:
                    yield image
                finally:
                    self._library.aeron_image_release(image)

    def _look_at(self, image: int) -> OfficialImage:
        library = self._library
        constants = functions.ImageConstants()
        library.aeron_image_constants(image, byref(constants))
        return OfficialImage(
            constants.session_id,
            constants.correlation_id,
            constants.join_position,
            library.aeron_image_position(image),
            constants.source_identity.decode(),
            library.aeron_image_is_end_of_stream(image),
            library.aeron_image_is_publication_revoked(image),
            library.aeron_image_active_transport_count(image),
        )

    # Called in the conductor's thread, which holds the image meanwhile.

    def _on_available(self, _: object, _subscription: object, image: int) -> None:
        self.available.append(self._look_at(image))

    def _on_unavailable(self, _: object, _subscription: object, image: int) -> None:
        self.unavailable.append(self._look_at(image))

    def _on_message(self, _: object, data: int, length: int, _header: object) -> None:
        self._received.append(ctypes.string_at(data, length))
