"""Calls of what rings bells, with places that are none, and that close in the middle of a call."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

from tests.twins import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.calls.values import Values

bells: Final = compiled("bells")

LENGTH: Final = 256
STATES: Final = (0, 1, 2, 0x6C6C6562, 0x6C6C6563, 0x6C6C6563, 0x6C6C6564, 2**31 - 1)


class Places:
    """Places of bells, whose count is not the one that it says."""

    def __init__(self, found: list[Any], length: int) -> None:
        self._found = found
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self._found[index]


class Held:
    """A flag and the bells of the same memory."""

    def __init__(self, values: Values) -> None:
        self.v = values
        self.memory = array("i", bytes(LENGTH))
        self.at = values.mixed(lambda: values.rng.randrange(0, LENGTH, 4), values.any_number)
        self.near = values.mixed(lambda: values.rng.randrange(-8, LENGTH + 8), self.at)
        self.flag: Any = bells.BellFlag.__new__(bells.BellFlag)
        self.bells: Any = bells.Bells(self.memory)
        values.hook = self.close_flag

    def refresh(self) -> Any:
        rng = self.v.rng
        if self.v.rarely():
            self.v.hook()
        found = [self.at() for _ in range(rng.randrange(5))]
        match rng.randrange(8):
            case 0:
                return None
            case 1:
                return self.v.anything()
            case 2:
                return Places(found, rng.randrange(9))
            case _:
                return [at for at in found if isinstance(at, int)]

    def call_soon(self, function: Callable[[], object]) -> None:
        if self.v.rarely():
            self.v.hook()
            raise RuntimeError
        if self.v.flag():
            function()

    def make_flag(self) -> None:
        source = self.memory if self.v.flag() else self.v.buffer()
        made = bells.BellFlag.__new__(bells.BellFlag)
        if not self.v.rng.randrange(4):
            self.flag = made
        soon = self.call_soon if self.v.flag() else None
        made.__init__(source, 0 if self.v.flag() else self.near(), self.refresh, soon)
        self.flag = made

    def set_flag(self) -> None:
        self.flag.set()

    def end_turn(self) -> None:
        self.flag.end_turn()

    def close_flag(self) -> None:
        self.flag.close()

    def close_flag_at_times(self) -> None:
        if not self.v.rng.randrange(8):
            self.flag.close()

    def make_bells(self) -> None:
        self.bells = bells.Bells(self.memory if self.v.flag() else self.v.buffer())

    def ring(self) -> None:
        self.bells.ring(self.near(), is_command=self.v.flag())

    def close_bells(self) -> None:
        if not self.v.rng.randrange(8):
            self.bells.close()

    def change(self) -> None:
        """Change what the words say, as other processes do."""
        self.memory[0] = 2 * self.v.rng.randrange(9)
        self.memory[self.v.rng.randrange(len(self.memory))] = self.v.rng.choice(STATES)


def rounds(values: Values) -> Mapping[str, Callable[[], object]]:
    """Return a round for each method."""
    held = Held(values)
    made = (held.make_flag, held.set_flag, held.end_turn, held.close_flag_at_times, held.make_bells)
    return {each.__name__: each for each in (*made, held.ring, held.close_bells, held.change)}
