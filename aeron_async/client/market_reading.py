"""The ways to read a subscription that suit market data: conflated, with gaps, never far behind.

A publisher of prices waits for no reader. These ways of reading say what a reader gets that is too
slow for every message: the newest value of each key, or the newest messages and word of what is
missing. The methods of this class are methods of `Subscription`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from weakref import WeakSet

from aeron_async.client.gaps import SKIPPED, GapReader
from aeron_async.client.lag import MAX_LAG_BYTES, LagLimit, LagReader
from aeron_async.client.latest import MAX_KEYS, Latest
from aeron_async.client.reading import NOTHING, Reading
from aeron_async.logbuffer.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from aeron_async.client.lag import OnLag, ReadImage
    from aeron_async.client.latest import OnFull

__all__ = ["MarketReading"]

MessageT = TypeVar("MessageT", bound=Message)

BATCH_MESSAGES: Final = 256
"""Messages that a conflating reader reads at once, if it calls a function for each of them."""
KEPT_MESSAGES: Final = 1024
"""Those that it reads at once, if it only copies them."""


class MarketReading(Reading, Generic[MessageT]):
    """The part of a subscription that reads for those who cannot take every message."""

    if TYPE_CHECKING:
        channel: str
        stream_id: int
        _interrupt: Callable[[], bool] | None

        @property
        def images(self) -> tuple[ReadImage, ...]:
            """Return the images there are now."""
            ...

        @property
        def is_closed(self) -> bool:
            """Return whether the subscription is closed."""
            ...

        def batches(self, max_messages: int = ...) -> Any:
            """Iterate over batches of messages."""
            ...

        def _begin_iteration(self) -> None: ...

        def _begin_poll(self) -> None: ...

        async def _anext_waiting(self) -> MessageT: ...

        async def __anext__(self) -> MessageT: ...

    # What ends a wait early; and what follows the images beside those who ask for events.
    _interrupt = None
    _gap_readers: WeakSet[GapReader[Any]] | None = None

    def latest(
        self,
        key: Callable[[MessageT], Hashable] | slice,
        *,
        merge: Callable[[MessageT, MessageT], MessageT] | None = None,
        max_keys: int = MAX_KEYS,
        on_full: OnFull = "raise",
    ) -> Latest[MessageT]:
        """Iterate over the newest message of each key, in the order in which keys first changed.

        A task reads the subscription while the iterator is open (`async with`, or from the first
        message asked for, until `aclose`), so the publisher does not wait for this reader. The
        reader must be slow by awaiting: one that blocks the event loop stops that task as well.

        Args:
            key: Returns the key of a message; called for each message that arrives. A slice with
                both ends takes these bytes of the payload, which costs much less: without `merge`
                only messages that are taken are made, and each key has memory of its own, as long
                as the longest of its messages that has waited.
            merge: Called with the message that waits and a newer one of the same key; returns what
                waits from then on. None replaces the older one: wrong for messages that are
                changes and not states.
            max_keys: Most keys that wait at once.
            on_full: What happens to a new key then: "raise" ends the iteration with
                `TooManyKeysError`, "oldest" drops what has waited for the longest.

        Raises:
            ConfigurationError: An argument is not valid.
        """
        count = KEPT_MESSAGES if isinstance(key, slice) and merge is None else BATCH_MESSAGES
        source = self.batches(count)
        return Latest(source, key=key, merge=merge, max_keys=max_keys, on_full=on_full)

    def reading(
        self, *, on_lag: OnLag = "wait", max_lag_bytes: int = MAX_LAG_BYTES
    ) -> LagReader[MessageT]:
        """Iterate over messages, and act if more waits behind one than it may.

        Args:
            on_lag: "wait" reads on; "skip" skips to the newest data; "raise" raises `LaggedError`,
                and nothing is lost yet.
            max_lag_bytes: How many bytes of the log, headers included, may wait behind a message.
                More than the receiver window never waits: see `rcv-wnd`.

        Raises:
            ConfigurationError: An argument is not valid.
        """
        return LagReader(self, LagLimit(self, on_lag, max_lag_bytes))

    def with_gaps(
        self, *, on_lag: OnLag = "wait", max_lag_bytes: int = MAX_LAG_BYTES
    ) -> GapReader[MessageT]:
        """Iterate over messages, and a `Gap` wherever the stream of a session does not continue.

        Gaps are known from this call on; a gap comes before the first message behind it.

        Args:
            on_lag: As for `reading`; what is skipped comes as a gap.
            max_lag_bytes: As for `reading`.

        Raises:
            ConfigurationError: An argument is not valid.
        """
        reader = GapReader(self, LagLimit(self, on_lag, max_lag_bytes))
        if self._gap_readers is None:
            self._gap_readers = WeakSet()
        self._gap_readers.add(reader)
        return reader

    def skip_to_newest(self) -> int:
        """Skip what has arrived and was not taken, of every image; return how many bytes it was.

        See `Image.skip_to_newest`.

        Raises:
            BusyError: Another task consumes the subscription.
            WrongLoopError: The subscription belongs to another event loop.
        """
        self._begin_poll()
        return sum(image._skip() for image in self.images)  # noqa: SLF001 - two halves of one reader

    def _hand_back(self, message: MessageT) -> bool:
        """Let the message that was delivered last be read again; return whether it can be."""
        image: ReadImage = message.image
        if image.is_closed or self._taken is not message:
            return False
        left, self._batch, self._taken = self._batch.left, NOTHING, None
        image._rewind(left + 1)
        return True

    def _note_skip(self, image: ReadImage, position: int) -> None:
        self._follow(SKIPPED, image, position)

    def _follow(self, kind: str, image: ReadImage, position: int = 0) -> None:
        """Tell those who look for gaps what has become of an image."""
        for reader in self._gap_readers or ():
            reader.on_event(kind, image, position)
