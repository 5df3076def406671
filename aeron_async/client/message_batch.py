"""Batches of messages: what `Subscription.batches` delivers.

Invariant: the messages of a batch lie in the log until it is taken, and nothing is copied before it
is asked for.

Source: Aeron `Image.blockPoll`, which delivers frames as they lie in the log.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, final, overload

from aeron_async.errors import ClosedError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import RecordBatch

    from aeron_async.client.image import Image, Message
    from aeron_async.logbuffer.message import Batch

__all__ = ["MessageBatch"]


@final
class MessageBatch(Sequence["Message"]):
    """Messages of one image, in order, which are made when they are asked for.

    `payloads()` is the fastest way to take them all. The batch is taken when the next one is asked
    for: from then on it refuses everything but its length. What was made of it before stays: keep
    `payloads()` or `list(batch)`, and not the batch.

    Attributes:
        image: The image that they came from.
    """

    __slots__ = ("_batch", "_count", "_end_position", "_messages", "image")

    def __init__(self, batch: Batch[Message]) -> None:
        self.image: Image = batch.image
        self._batch: Batch[Message] | None = batch
        self._count = batch.left
        self._messages: list[Message] | None = None
        self._end_position = self.image._read_position

    @property
    def session_id(self) -> int:
        """Return the session id of the publication they came from."""
        return self.image.session_id

    @property
    def stream_id(self) -> int:
        """Return the stream id they came on."""
        return self.image.stream_id

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: SupportsIndex) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Message | list[Message]:
        batch = self._lying()
        if self._messages is None:
            self._messages = batch.again().rest()
        return self._messages[index]

    def __iter__(self) -> Iterator[Message]:
        batch = self._lying()
        if self._messages is not None:
            return iter(self._messages)
        return iter(batch.again().following, None)

    def payloads(self) -> list[bytes]:
        """Return a copy of each payload.

        Raises:
            ClosedError: The batch was taken.
        """
        return self._lying().payloads()

    def views(self) -> list[memoryview]:
        """Return a view of each payload where it lies; valid until the batch is taken.

        Nothing enforces that: once the batch is taken, the publisher may overwrite what a view
        shows. A message that was put together from fragments has a view of a copy.

        Raises:
            ClosedError: The batch was taken.
        """
        batch = self._lying()
        places = batch.places()
        if places is None:
            return [memoryview(payload) for payload in batch.payloads()]
        term = self.image._term_at(self._end_position)
        return [term[start : start + length] for start, length in places]

    def positions(self) -> array[int]:
        """Return where each message ends in its stream, in bytes.

        Raises:
            ClosedError: The batch was taken.
        """
        return array("q", self._columns()[2])

    def sessions(self) -> array[int]:
        """Return the session id of each message: that of the image, which they all have in common.

        Raises:
            ClosedError: The batch was taken.
        """
        self._lying()
        return array("i", [self.session_id]) * self._count

    def reserved_values(self) -> array[int]:
        """Return the publisher's own 64 bits of each message.

        Raises:
            ClosedError: The batch was taken.
        """
        return array("q", self._columns()[3])

    def to_arrow(self) -> RecordBatch:
        """Return a copy as a `pyarrow.RecordBatch`.

        Its columns are position (int64), session_id and stream_id (int32), reserved_value (int64)
        and payload (large_binary).

        Raises:
            ClosedError: The batch was taken.
            ConfigurationError: pyarrow is not installed.
        """
        try:
            import pyarrow as pa  # noqa: PLC0415 - an extra
        except ImportError:
            message = "to_arrow() needs pyarrow: pip install aeron-async[arrow]"
            raise ConfigurationError(message) from None
        count, bounds, positions, values, data = self._columns()
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
        numbers = [pa.py_buffer(each) for each in (positions, values)]
        position, reserved_value = (
            pa.Array.from_buffers(pa.int64(), count, [None, each]) for each in numbers
        )
        session_id, stream_id = (
            pa.repeat(pa.scalar(each, pa.int32()), count)
            for each in (self.session_id, self.stream_id)
        )
        return pa.RecordBatch.from_arrays(
            [
                position,
                session_id,
                stream_id,
                reserved_value,
                pa.Array.from_buffers(pa.large_binary(), count, buffers),
            ],
            names=["position", "session_id", "stream_id", "reserved_value", "payload"],
        )

    def __repr__(self) -> str:
        state = "taken" if self._batch is None else f"session {self.session_id}"
        return f"<MessageBatch of {self._count} messages, {state}>"

    def _lying(self) -> Batch[Message]:
        """Return the messages as they lie in the log."""
        if self._batch is None:
            message = (
                "the batch was taken when the next one was asked for: keep payloads() or "
                "list(batch), and not the batch"
            )
            raise ClosedError(message)
        return self._batch

    def _columns(self) -> Any:
        """Return the columns; see `columns` of the compiled batch."""
        batch = self._lying()
        columns = batch.columns()
        if columns is not None:
            return columns
        messages = batch.again().rest()
        bounds = array("q", [0])
        for message in messages:
            bounds.append(bounds[-1] + len(message.data))
        return (
            len(messages),
            bounds,
            array("q", [message.position for message in messages]),
            array("q", [message.reserved_value for message in messages]),
            b"".join([message.data for message in messages]),
        )

    # For the subscription.

    def _extend(self, more: Batch[Message]) -> bool:
        """Add what was read on, before anybody has the batch; return whether that was possible."""
        batch = self._lying()
        if not more.left:
            return False
        if not batch.extend(more):
            self.image._read_again(self._end_position)
            return False
        self._count = batch.left
        self._end_position = self.image._read_position
        return True

    def _keep(self) -> None:
        """Copy what is still in the log, which is about to be freed."""
        if self._batch is not None:
            self._batch.keep()

    def _take(self) -> None:
        """Move the image's position behind the batch, and let go of the log."""
        self._batch = None
        self.image._take(self._end_position)

    def _put_back(self) -> None:
        """Let go of the log, and leave the messages to the next reader."""
        self._batch = None
        self.image._rewind()
