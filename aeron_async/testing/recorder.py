"""Records of the messages offered and received, and checks of one against the other.

Layout of a message, little endian: 8 bytes the number of the publication, 8 bytes the number of the
message, then a slice of one fixed pattern that both numbers choose. A message shorter than 16 bytes
is the slice alone.

`Recorder` is a model: for every publication (`Offered`) the list of messages with their positions,
for every image (`Received`) the next index in that list. Each message received must be the next
one, whole, byte for byte, at its position.

Invariants, by their names in the documentation: N1 exact, N2 in order and once, N3 no silent gap,
N4 an image ends with its stream or with the silence of its source, N5 an offer that returned a
position is in the log and no other is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import count
from random import Random
from struct import Struct
from typing import TYPE_CHECKING, Final, NoReturn

import attrs

from aeron_async.logbuffer.position import framed_length
from aeron_async.protocol.header import DATA_HEADER_LENGTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.client.image import Image
    from aeron_async.client.publication import Publication

__all__ = [
    "IDENTITY_LENGTH",
    "Offered",
    "Received",
    "Recorder",
    "ViolationError",
    "make_payload",
]

IDENTITY: Final = Struct("<qq")
IDENTITY_LENGTH: Final = IDENTITY.size
SLICES: Final = 4099
"""A prime, so that neighbouring messages and publications differ in every byte."""
PATTERN_LENGTH_MAX: Final = 16 * 1024 * 1024
"""The longest supported message, in bytes."""

_pattern = b""


def make_payload(publication_number: int, message_number: int, length: int) -> bytes:
    """Return the expected content of a message of `length` bytes."""
    start = (publication_number * 101 + message_number * 17) % SLICES
    if length < IDENTITY_LENGTH:
        return _pattern_up_to(start + length)[start : start + length]
    end = start + length - IDENTITY_LENGTH
    identity = IDENTITY.pack(publication_number, message_number)
    return identity + _pattern_up_to(end)[start:end]


def _pattern_up_to(length: int) -> bytes:
    global _pattern  # noqa: PLW0603 - a cache, as long as the longest message so far
    if len(_pattern) < length:
        wanted = min(max(length, 2 * len(_pattern), 65_536), PATTERN_LENGTH_MAX + SLICES)
        # Always from the same seed: a longer pattern begins with the shorter one.
        _pattern = Random(20_121).randbytes(wanted)  # noqa: S311 - a pattern, not a secret
    return _pattern


class ViolationError(AssertionError):
    """A violated invariant; the text begins with its name."""


@attrs.define(kw_only=True, eq=False)
class Offered:
    """A publication, and every message whose offer returned a position.

    Attributes:
        number: Number in this recorder.
        stream_id: Stream of the publication.
        session_id: Session of the publication.
        term_length: In bytes.
        mtu_length: In bytes.
        position: Position up to which the stream is known, in bytes.
        starts: Start position of each message, in bytes.
        ends: End position of each message, in bytes.
        lengths: Length of each message, in bytes.
        numbers: Number that each message was made with.
        owner: Client that added the publication.
    """

    number: int
    stream_id: int
    session_id: int
    term_length: int
    mtu_length: int
    position: int
    starts: list[int] = attrs.field(factory=list)
    ends: list[int] = attrs.field(factory=list)
    lengths: list[int] = attrs.field(factory=list)
    numbers: list[int] = attrs.field(factory=list)
    owner: object = None
    _next_number: int = 0

    def next_message(self, length: int) -> tuple[int, bytes]:
        """Return the number and content of the next message; several offers may be in progress."""
        number = self._next_number
        self._next_number += 1
        return number, make_payload(self.number, number, length)

    def on_offered(self, position: int, number: int, length: int) -> None:
        """Record that the offer of a message returned `position`.

        Raises:
            ViolationError: N5, the message cannot be there.
        """
        start = position - framed_length(
            length, max_payload_length=self.mtu_length - DATA_HEADER_LENGTH
        )
        # The bytes in between are padding up to the end of a term, or a message whose offer failed.
        if start != self.position and (start < self.position or start % self.term_length):
            message = (
                f"N5: an offer of {length} bytes returned {position}, so it begins at {start}; "
                f"the stream was at {self.position}, session {self.session_id}"
            )
            raise ViolationError(message)
        self.starts.append(start)
        self.ends.append(position)
        self.lengths.append(length)
        self.numbers.append(number)
        self.position = position

    def skip_to(self, position: int) -> None:
        """Record that the stream continues at `position`, after an aborted claim became padding."""
        self.position = position

    def payload(self, index: int) -> bytes:
        """Return the content of a message."""
        return make_payload(self.number, self.numbers[index], self.lengths[index])


@attrs.define(kw_only=True, eq=False)
class Received:
    """An image, as its subscription has read it.

    Attributes:
        image: The application's image.
        reader: Name of the reader, for error texts.
        is_exact: Whether every byte is checked; False if the network damages frames.
        is_reliable: Whether gaps are forbidden.
        may_be_forged: Whether another host sends frames in the publisher's name: forged messages
            may have been read, but the image must end soon after.
        is_spoiled: Whether a forged message was read; nothing after it is checked.
        spoiled_position: Where that message ended, in bytes.
        offered: Record of its publication, known after the first message.
        next_index: Index of the next expected message.
        count: Messages received.
    """

    image: Image
    reader: str
    candidates: Sequence[Offered]
    is_exact: bool
    is_reliable: bool
    may_be_forged: bool = False
    is_spoiled: bool = False
    spoiled_position: int = -1
    offered: Offered | None = None
    next_index: int = 0
    count: int = 0
    position: int = -1

    def on_message(self, position: int, data: bytes) -> None:
        """Check a received message.

        Raises:
            ViolationError: N1, N2 or N3.
        """
        if self.is_spoiled:
            return
        try:
            self._take(position, data)
        except ViolationError:
            if not self.may_be_forged:
                raise
            self.is_spoiled = True
            self.spoiled_position = position

    @property
    def is_far_on(self) -> bool:
        """Return whether the stream has advanced too far to tell which data was forged."""
        return self.image.position - self.spoiled_position > self.image.term_length // 4

    def _take(self, position: int, data: bytes) -> None:
        if position <= max(self.position, self.image.join_position):
            self._fail(
                "N2", position, f"comes after {max(self.position, self.image.join_position)}"
            )
        self.position = position
        self.count += 1
        if not self.is_exact:
            return
        if self.offered is None:
            self._match(position, data)
        offered = self.offered
        assert offered is not None
        index = self.next_index
        if not self.is_reliable:
            index = max(index, bisect_left(offered.ends, position))
        if index >= len(offered.ends):
            self._fail("N1", position, "was never offered")
        if offered.ends[index] != position:
            name = "N3" if position > offered.ends[index] else "N2"
            self._fail(name, position, f"is not the next: that ends at {offered.ends[index]}")
        if data != offered.payload(index):
            self._fail("N1", position, f"differs from message {index} as it was offered")
        self.next_index = index + 1

    def on_end(self, *, may_be_lost: bool) -> None:
        """Check an image that has ended while its subscription is open.

        Args:
            may_be_lost: Whether its source may have become silent.

        Raises:
            ViolationError: N4, the image ended before its stream did, or before it was read to its
                end.
        """
        image = self.image
        if self.is_spoiled:
            return
        if not image.is_end_of_stream:
            # A stream of an unknown publisher may end in any way.
            if self.candidates and not may_be_lost:
                self._fail(
                    "N4", image.position, "was the last, but no publisher has ended the stream"
                )
            return
        offered = self.offered
        if not self.is_exact or not self.is_reliable or offered is None:
            return
        if self.next_index < bisect_right(offered.ends, image.position):
            self._fail("N4", image.position, "was not read before the image ended")

    def missing(self) -> str:
        """Return a description of offered messages that were not received, or an empty text."""
        if not self.is_reliable:
            return ""
        if self.is_spoiled:
            # Invariant N8 covers whether such an image may live.
            forged = f"{self.reader} has read what was forged, and its image is still there"
            return "" if self.is_far_on else forged
        offered = self.offered
        if offered is None:
            offered = self.candidates[-1] if self.candidates else None
            if offered is None or self._first_after_join(offered) >= len(offered.ends):
                return ""
            return f"{self.reader} has read nothing of session {self.image.session_id}"
        if self.next_index >= len(offered.ends):
            return ""
        left = len(offered.ends) - self.next_index
        return f"{self.reader} waits for {left} messages of session {self.image.session_id}"

    def _match(self, position: int, data: bytes) -> None:
        for offered in self.candidates:
            index = bisect_left(offered.ends, position)
            if (
                index < len(offered.ends)
                and offered.ends[index] == position
                and offered.payload(index) == data
            ):
                self.offered = offered
                self.next_index = self._first_after_join(offered)
                return
        self._fail("N1", position, "was never offered")

    def _first_after_join(self, offered: Offered) -> int:
        return bisect_left(offered.starts, self.image.join_position)

    def _fail(self, name: str, position: int, what: str) -> NoReturn:
        message = (
            f"{name}: the message that ends at {position} of session {self.image.session_id}, "
            f"stream {self.image.stream_id}, as {self.reader} reads it, {what}"
        )
        raise ViolationError(message)


class Recorder:
    """The records of every publication and every image of one world.

    Args:
        is_exact: Whether every byte is checked; False if the network damages frames.
        has_forger: Whether another host sends frames in the publishers' names.
    """

    def __init__(self, *, is_exact: bool = True, has_forger: bool = False) -> None:
        self.is_exact = is_exact
        self._has_forger = has_forger
        self.received: list[Received] = []
        self._offered: dict[tuple[int, int], list[Offered]] = {}
        self._numbers = count(1)

    @property
    def message_count(self) -> int:
        """Return how many messages were received, by all readers together."""
        return sum(each.count for each in self.received)

    def publishing(self, publication: Publication, owner: object = None) -> Offered:
        """Return the record of a publication; publications that one owner shares have one record.

        Args:
            publication: The application's publication.
            owner: The client that added it, if several tasks or hosts may have added publications
                of the same stream and session.
        """
        records = self._offered.setdefault((publication.stream_id, publication.session_id), [])
        for record in records:
            if owner is not None and record.owner is owner:
                return record
        offered = Offered(
            number=next(self._numbers),
            stream_id=publication.stream_id,
            session_id=publication.session_id,
            term_length=publication.term_length,
            mtu_length=publication.mtu_length,
            position=publication.position,
            owner=owner,
        )
        records.append(offered)
        return offered

    def receiving(self, image: Image, reader: str, *, is_reliable: bool = True) -> Received:
        """Return the record of an image that has become available."""
        received = Received(
            image=image,
            reader=reader,
            candidates=self._offered.setdefault((image.stream_id, image.session_id), []),
            is_exact=self.is_exact,
            is_reliable=is_reliable,
            may_be_forged=self._has_forger,
        )
        self.received.append(received)
        return received
