"""Doorbells: how processes of this package wake each other, in an Aeron directory.

A bell is a counter of a type of our own. Its lower 32 bits say whether the process that owns it is
asleep (`ASLEEP` or `AWAKE`); they are a futex, on which its watcher sleeps. Whoever has stored
something that the process may wait for rings: if the word says asleep, it stores awake and wakes
the futex. So there is one call to the system for each sleep, however many ring.

A process that waits for commands or answers alone rests (`RESTING`): its tasks are busy, or have
nothing to do with streams. Who has stored something for a stream then rings nobody.

    sleeper                                  ringer
    1 looks at its words                     1 stores
    2 stores asleep                          2 full fence
    3 full fence                             3 if asleep, exchanges it for awake
    4 looks again, and sleeps if there       4 if it was asleep, wakes the futex
      is nothing new

Both store, fence, then load what the other has stored. Whichever fence comes first, the other side
sees the store before it: the ringer sees that the other sleeps, or the sleeper sees the data.

The bell of the driver has a second word, in its upper 32 bits. Its lowest bit says that some client
has no bell: then nobody sleeps until rung, and everybody looks from time to time, as official
programs do. The bits above count the changes of who waits for what, so that a publisher knows when
to look again for the bells of its readers.

A publication that the driver sends rings once in a turn of its event loop. What it owes is rung at
the end of the turn, or with the first message half a millisecond later. Otherwise a driver on the
same processor would run after each message.

A ring may be for nothing: a stream is busy, and the sleeper waits for something else. It then stays
awake for 50 us before it sleeps again, so that such a stream does not ring for each message.

Nobody relies on bells alone: who sleeps so looks again after `DOZE_NS`. A ringer that dies between
its steps 3 and 4 therefore costs that time, and so does what this protocol does not cover.

Source: none; official drivers and clients do not signal each other.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from aeron_async.clock import NS_PER_SECOND
from aeron_async.concurrent.atomic_buffer import AtomicBuffer
from aeron_async.counters import SUBSCRIPTION_POSITION_TYPE_ID, VALUE_LENGTH
from aeron_async.logbuffer.wake_flag import WakeFlag
from aeron_async.watcher import BellFlag, Bells

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

    from aeron_async.counters import CountersManager, CountersReader
    from aeron_async.watcher import Watcher

__all__ = [
    "BELL_KEY",
    "BELL_TYPE_ID",
    "DOZE_NS",
    "ClientBells",
    "DriverBells",
    "bell_place",
    "mode_place",
]

BELL_TYPE_ID: Final = 20_002
BELL_KEY: Final = b"bell\x01"
"""The last byte is the version of this protocol."""
DRIVER_LABEL: Final = "bell of the driver"
MODE_OFFSET: Final = 4
AWAKE: Final = 0x6C6C6562
ASLEEP: Final = 0x6C6C6563
RESTING: Final = 0x6C6C6564
"""Values of a bell, which no other counter has: positions are multiples of 32, states are small. A
process that was stopped, and whose bell was freed in the meantime, so changes nothing, unless
another bell has taken its place: then the owner of that one may sleep for `DOZE_NS`."""
DRIVER_REFERENCE_ID: Final = 20_002
"""What the counter of a driver's bell refers to; no command of a client can set it."""
POLLING: Final = 1
CHANGE: Final = 2
UINT32_MASK: Final = 0xFFFF_FFFF
INT32_LIMIT: Final = 2**31
DOZE_NS: Final = 100_000_000
"""How long a process sleeps at most until it looks again without having been rung."""
CLIENT_BELL_NS: Final = 5_000_000_000
"""For how long after its last sign of life a client trusts that its bell is still its own, at most:
half of the client liveness timeout, after which its driver may give the counter away."""
DRIVER_BELL_NS: Final = 2**62
REFRESH_INTERVAL_NS: Final = 5_000_000
"""Least time between two looks at all counters for the bells of readers."""
REFRESH_SHARE: Final = 50
"""A look takes one part in so many of the time at most, however often a client makes it needed."""


def bell_place(counter_id: int) -> int:
    """Return where among the values of all counters a bell says that its owner is asleep."""
    return counter_id * VALUE_LENGTH


def mode_place(counter_id: int) -> int:
    """Return where the bell of a driver counts changes, and says that all must look."""
    return counter_id * VALUE_LENGTH + MODE_OFFSET


@final
class DriverBells:
    """The bells that a driver rings, and its own.

    Args:
        counters: Allocates the driver's own bell.
        values: The values of all counters.
        watcher: Sleeps on the driver's own bell.

    Raises:
        RegistrationError: No counter is left.
    """

    def __init__(self, counters: CountersManager, values: Buffer, watcher: Watcher) -> None:
        own = counters.allocate(
            BELL_TYPE_ID, BELL_KEY, DRIVER_LABEL, reference_id=DRIVER_REFERENCE_ID
        )
        self._memory = AtomicBuffer(values)
        self._asleep_at, self._mode_at = bell_place(own.id), mode_place(own.id)
        self._mode = POLLING
        self._places: dict[int, int] = {}
        self._bells = Bells(values)
        self._store_mode()
        watcher.use_bell(values, self._asleep_at, self._mode_at, DOZE_NS)
        watcher.keep_bell(DRIVER_BELL_NS)

    def add(self, client_id: int, counter_id: int) -> None:
        """Ring a client from now on by a bell that it has added."""
        self._places[client_id] = bell_place(counter_id)
        self.on_change()

    def remove(self, client_id: int) -> None:
        """Forget the bell of a client; do nothing if it has none."""
        if self._places.pop(client_id, None) is not None:
            self.on_change()

    def note_clients(self, client_count: int) -> None:
        """Let everybody look from time to time, unless all of so many clients have bells."""
        is_polling = not client_count or client_count > len(self._places)
        if is_polling != bool(self._mode & POLLING):
            self._mode ^= POLLING
            self._store_mode()
            # Those that sleep must look from now on.
            self.ring_all()

    def mend(self) -> None:
        """Undo what a client may have written into the driver's own bell.

        To be called from time to time. Such a client delays others, until then, as one does that
        fills the ring of commands.
        """
        self._store_mode()
        value = self._memory.load_acquire_32(self._asleep_at)
        if value not in {AWAKE, ASLEEP, RESTING}:
            self._memory.compare_and_swap_32(self._asleep_at, value, AWAKE)

    def on_change(self) -> None:
        """Count a change of who waits for what."""
        self._mode = self._mode + CHANGE & UINT32_MASK
        self._store_mode()

    def ring(self, client_id: int) -> None:
        """Wake a client if it is asleep, after something of a stream was stored for it."""
        place = self._places.get(client_id)
        if place is not None:
            self._bells.ring(place)

    def ring_all(self) -> None:
        """Wake every client that is asleep or rests, after an answer was stored for all."""
        for place in self._places.values():
            self._bells.ring(place, is_command=True)

    def close(self) -> None:
        """Let go of the memory."""
        self._places.clear()
        self._bells.close()
        self._memory.release()

    def _store_mode(self) -> None:
        value = self._mode - 2 * INT32_LIMIT if self._mode >= INT32_LIMIT else self._mode
        self._memory.store_release_32(self._mode_at, value)


@final
class ClientBells:
    """The bells that one client rings; with a driver that has none, it rings nobody.

    Args:
        counters: The driver's counters.
        values: Their values.
        now_ns: Returns the time.
    """

    def __init__(
        self, counters: CountersReader, values: memoryview, now_ns: Callable[[], int]
    ) -> None:
        self._counters = counters
        self._values = values
        self._now_ns = now_ns
        self._driver_id = driver_bell(counters)
        self._bells = None if self._driver_id is None else Bells(values)
        self._own_id: int | None = None
        self._readers: dict[int, tuple[int, ...]] = {}
        self._seen_mode: int | None = None
        self._refresh_ns = 0
        self._unset: set[BellFlag] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_driver(self) -> bool:
        """Whether the driver rings its clients, and is rung."""
        return self._bells is not None

    def ring_driver(self, *, is_command: bool = False) -> None:
        """Wake the driver if it is asleep, after something was stored for it.

        A driver that rests is woken only by a command.
        """
        if self._bells is not None and self._driver_id is not None:
            self._bells.ring(bell_place(self._driver_id), is_command=is_command)

    def use(self, watcher: Watcher, counter_id: int) -> None:
        """Let a watcher sleep on the bell that the client has added."""
        assert self._driver_id is not None, "a client adds a bell if its driver has one"
        self._own_id = counter_id
        watcher.use_bell(self._values, bell_place(counter_id), mode_place(self._driver_id), DOZE_NS)

    def is_own(self, client_id: int) -> bool:
        """Return whether the driver still counts the bell as this client's."""
        own_id = self._own_id
        return own_id is not None and self._counters.owner_id(own_id) == client_id

    def flag(self, registration_id: int, *, is_sent: bool) -> WakeFlag:
        """Return what is to be set when something was appended to a publication.

        Args:
            registration_id: The id of the publication itself, which its readers' counters name.
            is_sent: Whether the driver sends it, and therefore waits for it.
        """
        if self._driver_id is None:
            # Everybody looks by themselves.
            return WakeFlag()

        def places() -> Sequence[int] | None:
            found = self._places(registration_id, is_sent=is_sent)
            if found is None:
                self._set_later(flag)
            return found

        # Readers of IPC work beside the publisher: to wake them later costs a fifth of its rate.
        call_soon = asyncio.get_running_loop().call_soon if is_sent else None
        flag = BellFlag(self._values, mode_place(self._driver_id), places, call_soon)
        return flag

    def _set_later(self, flag: BellFlag) -> None:
        """Set a flag once the readers may be looked for again: nothing else may be appended."""
        self._unset.add(flag)
        if self._timer is None:
            pause_ns = max(0, self._refresh_ns - self._now_ns())
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(pause_ns / NS_PER_SECOND, self._set_flags)

    def _set_flags(self) -> None:
        self._timer = None
        flags = tuple(self._unset)
        self._unset.clear()
        for each in flags:
            each.set()

    def close(self) -> None:
        """Let go of the memory."""
        if self._timer is not None:
            self._timer.cancel()
        self._unset.clear()
        if self._bells is not None:
            self._bells.close()
            self._bells = None

    def _places(self, registration_id: int, *, is_sent: bool) -> Sequence[int] | None:
        """Return the bells of those that wait for a publication's data; None for "ask again"."""
        if self._bells is None or self._driver_id is None:
            return ()
        driver_place = bell_place(self._driver_id)
        mode = self._counters.value(self._driver_id) >> 32
        if mode != self._seen_mode:
            begun_ns = self._now_ns()
            if begun_ns < self._refresh_ns:
                return None
            self._readers, self._seen_mode = self._find_readers(driver_place), mode
            ended_ns = self._now_ns()
            pause_ns = max(REFRESH_INTERVAL_NS, REFRESH_SHARE * (ended_ns - begun_ns))
            self._refresh_ns = ended_ns + pause_ns
        places = self._readers.get(registration_id, ())
        return (driver_place, *places) if is_sent and driver_place not in places else places

    def _find_readers(self, driver_place: int) -> dict[int, tuple[int, ...]]:
        """Return the bells of the readers of each publication of the driver, by its id."""
        counters = self._counters
        bells: dict[int, int] = {}
        readers: list[int] = []
        for each, type_id in counters.ids_and_types():
            if type_id == SUBSCRIPTION_POSITION_TYPE_ID:
                readers.append(each)
            elif type_id == BELL_TYPE_ID and counters.record(each).key.startswith(BELL_KEY):
                # As for the driver, the first bell of a client is its bell.
                bells.setdefault(counters.owner_id(each), bell_place(each))
        found: dict[int, set[int]] = {}
        for each in readers:
            # A reader without a bell is one in the process of the driver.
            place = bells.get(counters.owner_id(each), driver_place)
            found.setdefault(counters.reference_id(each), set()).add(place)
        return {key: tuple(places) for key, places in found.items()}


def driver_bell(counters: CountersReader) -> int | None:
    """Return the id of the counter that is the bell of a driver; None if it has none."""
    for each in counters.ids_of(BELL_TYPE_ID):
        if counters.reference_id(each) == DRIVER_REFERENCE_ID:
            return each
    return None
