"""Messages whose every byte follows from their number, as the content-check programs make them.

Message k of a run of lengths `minimum` to `maximum` has length `minimum + 7919 k mod (maximum -
minimum + 1)`; with 4 bytes or more it begins with k, little-endian; every other byte j is
`31 k + 7 j mod 256`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import aeron_async as aa

PERIOD: Final = 256
# Byte j of message k is byte j + 31 k / 7 of message 0; modulo 256, 183 is one seventh.
SHIFT: Final = 31 * 183
LENGTH_STEP: Final = 7919


class NumberedMessages:
    """The messages of one run, and how they arrive.

    Args:
        minimum: Length of the shortest, in bytes.
        maximum: Length of the longest, in bytes.
    """

    def __init__(self, minimum: int, maximum: int) -> None:
        self._minimum = minimum
        self._span = maximum - minimum + 1
        row = bytes(7 * index % PERIOD for index in range(PERIOD))
        self._pattern = row * (maximum // PERIOD + 2)

    def __getitem__(self, number: int) -> bytes:
        length = self._minimum + number * LENGTH_STEP % self._span
        shift = number * SHIFT % PERIOD
        data = self._pattern[shift : shift + length]
        return number.to_bytes(4, "little") + data[4:] if length >= 4 else data

    def check(self, number: int, data: bytes) -> None:
        """Fail with a short message: thousands of bytes side by side help nobody."""
        expected = self[number]
        if data != expected:
            pairs = enumerate(zip(data, expected, strict=False))
            alike = next((at for at, (one, other) in pairs if one != other), len(data))
            message = (
                f"message {number}: {len(data)} bytes instead of {len(expected)}, "
                f"different from byte {alike}"
            )
            raise AssertionError(message)


async def take_numbered(
    subscription: aa.Subscription, messages: NumberedMessages, count: int
) -> None:
    """Take and check the first messages of a stream."""
    number = 0
    async for message in subscription:
        messages.check(number, message.data)
        number += 1
        if number == count:
            return
