"""Shared publications: what an application offers its messages to.

An offer that finds room appends and returns without waiting. One that finds none waits for the
window to open and costs nothing meanwhile. A cancelled offer has either been appended, or not at
all: between finding room and appending there is no `await`.

Source: Aeron `Publication`, `ConcurrentPublication`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from anyio.abc import ObjectSendStream
from anyio.lowlevel import checkpoint_if_cancelled

from aeron_async.client.arguments import check_timeout
from aeron_async.client.buffer_claim import BufferClaim
from aeron_async.client.offer_outcome import OfferOutcome
from aeron_async.client.publication_base import PublicationBase
from aeron_async.client.streams import STREAM_ERRORS, AeronAttribute, as_anyio
from aeron_async.errors import ConfigurationError, MaxPositionExceededError
from aeron_async.logbuffer.appender import AppendResult
from aeron_async.logbuffer.shared_appender import SharedAppender
from aeron_async.protocol.arguments import shown
from aeron_async.protocol.header import Buffer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aeron_async.logbuffer.appender import Appender

__all__ = ["Publication"]

ONE_MESSAGE: Final = (str, bytes, bytearray, memoryview)
"""What can be iterated over, and is not meant so."""

BEHIND_OTHERS: Final = int(AppendResult.BACK_PRESSURED)
"""Why an offer does not even try while others wait: what is full for them is full for it."""


Offered: TypeAlias = Buffer | list[Buffer] | tuple[Buffer, ...]
"""One message, or its parts."""


class Publication(PublicationBase, ObjectSendStream[Offered]):
    """A publication that clients of one driver share when they ask for the same channel and stream.

    Messages are bytes, any other buffer, or a list or tuple of buffers to be sent as one message.
    It is a stream of anyio's too, with `send` for `offer`.
    """

    _appender: Appender

    def _make_appender(self) -> Appender:
        return SharedAppender(self._ready.log)

    async def _offer_waiting(
        self, data: Offered, reserved_value: int, timeout: float | None
    ) -> int:
        """Offer whatever it takes; see `offer`."""
        return await self._append(
            lambda: self._offer(data, reserved_value),
            timeout,
            lambda: self._appender.check_offer(data, reserved_value),
        )

    async def _append(
        self, attempt: Callable[[], int], timeout: float | None, check: Callable[[], object]
    ) -> int:
        """Append now, or when it is our turn and there is room; return the position.

        Args:
            attempt: Appends, or says why it did not.
            timeout: Seconds to wait at most.
            check: Refuses what the attempt would, before it stands in line.
        """
        timeout = check_timeout(timeout)
        if self._turn_budget <= 0 and await self._is_behind_others():
            check()
            position = BEHIND_OTHERS
        else:
            self._turn_budget -= 1
            position = attempt()
        if position < 0:
            position = await self._wait_for_room(attempt, position, timeout)
        return position

    async def offer_many(
        self,
        messages: Iterable[Offered],
        *,
        timeout: float | None = None,
    ) -> int:
        """Append messages one after the other; return the position after the last.

        Cancelled or timed out, it has appended those before and none after.

        Args:
            messages: Taken one at a time, as there is room.
            timeout: Seconds to wait at most for each.

        Raises:
            OfferTimeoutError: As `offer`; likewise the others.
            ConfigurationError: It is one message, or nothing to iterate over.
        """
        timeout = check_timeout(timeout)
        if isinstance(messages, ONE_MESSAGE) or not isinstance(messages, Iterable):
            message = (
                f"messages={shown(messages)} must be messages one after the other, such as a list "
                "of bytes; one alone goes to offer()"
            )
            raise ConfigurationError(message)
        position = self.position
        for data in messages:
            position = await self.offer(data, timeout=timeout)
        return position

    async def send(self, item: Offered) -> None:
        """Append one message as `offer` does; for code that is written for anyio's streams.

        Raises:
            ClosedResourceError: The publication was closed, before or meanwhile.
            BrokenResourceError: The driver failed; or no subscriber is there, and the publication
                was told not to wait; or the stream is at its end.
            MessageTooLongError: The message is longer than the log allows.
        """
        await checkpoint_if_cancelled()
        try:
            await self.offer(item)
        except STREAM_ERRORS as error:
            raise as_anyio(error) from error

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """Return what `extra` can be asked for; see `AeronAttribute`."""
        return {
            AeronAttribute.channel: lambda: self.channel,
            AeronAttribute.stream_id: lambda: self.stream_id,
            AeronAttribute.session_id: lambda: self.session_id,
            AeronAttribute.local_address: lambda: self.local_address,
        }

    def try_offer(self, data: Offered, *, reserved_value: int = 0) -> int | OfferOutcome:
        """Append one message if that can be done now; return its position, or why not.

        It does not stand in line behind offers that wait.

        Raises:
            ClosedError: The publication is closed.
            MessageTooLongError: The message is longer than the log allows.
            MaxPositionExceededError: The stream is at its end.
        """
        result = self._offer(data, reserved_value)
        return result if result >= 0 else OfferOutcome(result)

    def try_claim(self, length: int) -> BufferClaim | OfferOutcome:
        """Claim room for one message of `length` bytes if there is some now, or say why not.

        Args:
            length: At most `max_payload_length`.

        Raises:
            ClosedError: The publication is closed.
            MessageTooLongError: The length exceeds one frame.
            MaxPositionExceededError: The stream is at its end.
        """
        result = self._claim(length)
        return result if isinstance(result, BufferClaim) else OfferOutcome(result)

    async def claim(
        self,
        length: int,
        *,
        timeout: float | None = None,
    ) -> BufferClaim:
        """Claim room for one message of `length` bytes, waiting for it as `offer` does.

        Raises:
            OfferTimeoutError: The timeout passed; nothing was claimed.
            ClosedError: The publication was closed, before or meanwhile.
            MessageTooLongError: The length exceeds one frame.
        """
        timeout = check_timeout(timeout)
        claimed: list[BufferClaim] = []

        def attempt() -> int:
            result = self._claim(length)
            if isinstance(result, BufferClaim):
                claimed.append(result)
                return result.position
            return result

        self._check_usable()
        if self._line:
            self._appender.check_claim(length)
            position = BEHIND_OTHERS
        else:
            position = attempt()
        if position < 0:
            await self._wait_for_room(attempt, position, timeout)
        return claimed[0]

    def _offer(self, data: Offered, reserved_value: int) -> int:
        """Append if that can be done now; return the position, or a negative `AppendResult`."""
        self._check_usable()
        appender = self._appender
        while True:
            # Each time anew: waking the sender may have let it send at once, and the limit rise.
            limit = self._limit.get()
            if isinstance(data, list):  # A tuple goes the long way.
                result = appender.offer_vector(data, limit=limit, reserved_value=reserved_value)
            else:
                result = appender.offer(data, limit=limit, reserved_value=reserved_value)
            if result >= 0:
                self._wake_sender()
                return result
            if result != AppendResult.ADMIN_ACTION:
                return self._refused(result)
            # The term is full and its padding must leave; the next one is there at once.
            self._wake_sender()

    def _claim(self, length: int) -> BufferClaim | int:
        self._check_usable()
        while True:
            result = self._appender.try_claim(length, limit=self._limit.get())
            if not isinstance(result, int):
                return BufferClaim(self, result)
            if result != AppendResult.ADMIN_ACTION:
                return self._refused(result)
            self._wake_sender()

    async def _is_behind_others(self) -> bool:
        """Give the loop a turn if it is time and nobody waits, and return whether somebody does."""
        self._check_usable()
        if not self._line:
            turn = self._loop_turn
            is_over = turn.is_over()
            self._turn_budget = turn.stride
            if is_over:
                await asyncio.sleep(0)
                turn.begin()
        return bool(self._line)

    def _check_usable(self) -> None:
        if self._is_closed:
            self._raise_closed()
        if not self._home.is_here():
            self._check_loop()

    def _refused(self, result: int) -> int:
        if result == AppendResult.MAX_POSITION_EXCEEDED:
            message = (
                f"the stream is at position {self.position}, and with terms of "
                f"{self.term_length} bytes it ends at {self._appender.max_position}: add another "
                "publication, or raise term-length"
            )
            raise MaxPositionExceededError(message)
        return result
