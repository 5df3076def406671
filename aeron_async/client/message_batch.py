"""Batches of messages of one image, which lie in its log until the application has taken them.

Invariant: nothing is copied before it is asked for, and a batch that was taken shows nothing of the
log, which the publisher may have written again.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, SupportsIndex, cast, final, overload

from aeron_async.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aeron_async.client.arrow import Capsules, Columns, RecordBatch
    from aeron_async.client.image import Image, Message
    from aeron_async.logbuffer.message import Batch

__all__ = ["MessageBatch"]

TAKEN: Final = (
    "the batch was taken when the next one was asked for: keep payloads() or list(batch), and not "
    "the batch"
)
NOT_IN_CHILD: Final = "the batch lies in a log that a forked child process does not have"


@final
class MessageBatch(Sequence["Message"]):
    """Messages of one image, in order, which are made when they are asked for.

    `payloads()` is the fastest way to take all. The batch is taken when the next one is asked for:
    it then refuses everything but its length. Keep `payloads()` or `list(batch)`, not the batch.

    Attributes:
        image: The image that they came from.
    """

    __slots__ = ("_batch", "_count", "_end_position", "_gone", "_handed", "_made", "image")

    def __init__(self, batch: Batch[Message]) -> None:
        self.image: Image = batch.image
        self._batch: Batch[Message] | None = batch
        self._count = batch.left
        self._made: dict[int, Message] = {}
        self._handed: list[Batch[Message]] = []
        self._gone = TAKEN
        self._end_position: int = self.image._read_position

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
        batch, made = self._lying(), self._made
        if type(index) is not int or not 0 <= index < self._count:
            place = range(self._count)[index]
            if isinstance(place, range):
                if not made and len(place) == self._count:
                    made.update(enumerate(batch.again().rest()))
                return [made[each] if each in made else self[each] for each in place]
            index = place
        if (message := made.get(index)) is None:
            if (message := batch.at(index)) is None:
                raise IndexError(index)
            made[index] = message
        return message

    def __iter__(self) -> Iterator[Message]:
        batch = self._lying().again()
        self._handed.append(batch)
        made, messages = self._made, iter(batch.following, None)
        try:
            for message in map(made.get, range(self._count), messages) if made else messages:
                yield message
                self._lying()
        finally:
            self._handed.remove(batch)

    def payloads(self) -> list[bytes]:
        """Return a copy of each payload.

        Raises:
            ClosedError: The batch was taken.
        """
        return self._lying().payloads()

    def views(self) -> list[memoryview]:
        """Return a read-only view of each payload where it lies.

        The views are valid until the batch is taken, or its image closes. Nothing enforces that:
        later the publisher may overwrite what a view shows, and in a forked child process there may
        be no memory. A message that was put together from fragments has a view of a copy.

        Raises:
            ClosedError: The batch was taken.
        """
        batch = self._lying()
        places = batch.places()
        if places is None:
            return [memoryview(payload) for payload in batch.payloads()]
        # The log has other readers, and may be that of the publisher.
        term = self.image._term_at(self._end_position).toreadonly()
        return [term[start : start + length] for start, length in places]

    def positions(self) -> array[int]:
        """Return where each message ends in its stream, in bytes.

        Raises:
            ClosedError: The batch was taken.
        """
        return self._numbers(1)

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
        return self._numbers(2)

    def to_arrow(self) -> RecordBatch:
        """Return a copy as a `pyarrow.RecordBatch`.

        Its columns are position (int64), session_id and stream_id (int32), reserved_value (int64)
        and payload (large_binary).

        Raises:
            ClosedError: The batch was taken.
            ConfigurationError: pyarrow is not installed.
        """
        from aeron_async.client import arrow  # noqa: PLC0415 - needs an extra

        ids = self.session_id, self.stream_id
        capsules = arrow.exported(self._lying(), *ids)
        if capsules is None:
            return arrow.record_batch(self._columns(), *ids)
        return arrow.imported(capsules)

    def __arrow_c_array__(self, requested_schema: object = None) -> Capsules:
        """Return a copy for a library that takes arrays over: `nanoarrow.Array(batch)`.

        Raises:
            ClosedError: The batch was taken.
            ConfigurationError: pyarrow is needed and not installed: without compiled code, for a
                message of several fragments, for an image that has closed, or for another schema.
        """
        from aeron_async.client import arrow  # noqa: PLC0415 - used by few

        if requested_schema is None:
            capsules = arrow.exported(self._lying(), self.session_id, self.stream_id)
            if capsules is not None:
                return capsules
        return cast("Capsules", self.to_arrow().__arrow_c_array__(requested_schema))

    def __repr__(self) -> str:
        state = "taken" if self._batch is None else f"session {self.session_id}"
        return f"<MessageBatch of {self._count} messages, {state}>"

    def _lying(self) -> Batch[Message]:
        """Return the messages as they lie in the log."""
        if self._batch is None:
            raise ClosedError(self._gone)
        return self._batch

    def _numbers(self, column: int) -> array[int]:
        count, *columns = self._columns(with_payloads=False)
        return array("q", memoryview(columns[column]).cast("B")[: 8 * count].tobytes())

    def _columns(self, *, with_payloads: bool = True) -> Columns:
        """Return the messages as columns, wherever they lie."""
        batch = self._lying()
        columns = batch.columns(with_payloads)
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
        self.image._message_count += batch.left - self._count  # noqa: SLF001 - a part of its image
        self._count = batch.left
        self._end_position = self.image._read_position
        return True

    def _keep(self) -> None:
        """Copy what is still in the log, which is about to be freed."""
        if self._batch is not None:
            for batch in (self._batch, *self._handed):
                batch.keep()
            self._count = self._batch.left

    def _on_forked(self) -> None:
        """Let go of the log, which a child process does not have."""
        self._batch, self._gone = None, NOT_IN_CHILD

    def _length(self) -> int:
        """Return how many bytes of the log taking the batch frees."""
        return self._end_position - self.image.position

    def _take(self) -> bool:
        """Move the image's position behind the batch, and let go of the log.

        Returns:
            Whether the driver was woken, and has not answered yet.
        """
        self._batch = None
        image = self.image
        image._take(self._end_position)
        return image.position > image._trigger  # noqa: SLF001 - a batch is a part of its image

    def _put_back(self) -> None:
        """Let go of the log, and leave the messages to the next reader."""
        self._batch = None
        self.image._rewind(self._count)
