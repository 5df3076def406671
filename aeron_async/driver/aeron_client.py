"""A client in another process, and the commands of all such clients that wait to be executed.

Commands stay in the ring while a client has many that wait, as in Aeron. Only commands that wait
for names to resolve do not hold the ring up for long: the commands of other clients are behind
them.

Invariant: what waits is limited, for each client and in all.

Source: Aeron `AeronClient`, `aeron_client_t`.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from aeron_async.clock import NEVER_NS, NS_PER_SECOND
from aeron_async.errors import ClosedError, ErrorCode, RegistrationError
from aeron_async.protocol.control_protocol import (
    AddPublication,
    AddSubscription,
    RemovePublication,
    RemoveSubscription,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Hashable

    from aeron_async.counters import Counter
    from aeron_async.driver.foreign_streams import PublicationWatch, SubscriptionWatch
    from aeron_async.protocol.control_protocol import ClientCommand

__all__ = ["AeronClient", "CommandBacklog"]

WAITING_COMMANDS_MAX: Final = 1_024
"""Commands of one client that may wait for those before them."""
WAITING_LENGTH_MAX: Final = 16 * 1024 * 1024
"""Bytes of the commands of all clients that may wait."""
COMMAND_LENGTH: Final = 512
"""Bytes that a waiting command takes beside its text."""
LONG_BACKLOG: Final = 64
"""With so many waiting commands, a client makes those behind them wait in the ring."""
LOOK_UPS_MAX: Final = 4
"""Commands of one client that may wait for names to resolve while others are executed."""
NAMES_HOLD_NS: Final = NS_PER_SECOND
"""For so long in each period, commands that wait for names may hold up the ring."""
NAMES_PERIOD_NS: Final = 10 * NS_PER_SECOND
"""The period: no client loses its connection because of a second in ten."""
ANSWERED: Final = re.compile(rb"\|response-correlation-id=(\d{1,19})")
"""The subscription that a publication answers, in the channel of that publication."""
TAGS: Final = re.compile(rb"\|tags=(\d{0,19})(?:,(\d{0,19}))?")
"""The tags of an endpoint and of a stream, by which other channels refer to them."""
TAG_REFERENCE: Final = re.compile(rb"\|session-id=tag:(\d{1,19})")
"""The tag of the publication whose session a channel copies."""
CLOSED_HEARTBEAT: Final = 0
"""What a client stores when it closes."""


class AeronClient:
    """A client in another process, and all that it has added.

    Attributes:
        client_id: Chosen by the client.
        heartbeat: The counter in which the client says that it lives.
        commands: Those that were not begun yet, with their lengths.
        task: Executes them, one after another; None if there are none, or if all wait for names.
        names: What the command names that the task executes.
        looking_up: What the commands name that wait for a name to resolve, by their tasks.
        is_leaving: Whether the client has closed, and goes when its commands are executed.
        is_closed: Whether the client has gone.
        bell_id: Registration id of the counter that is its bell; None without one.
    """

    def __init__(self, client_id: int, heartbeat: Counter, now_ns: int) -> None:
        self.client_id: Final = client_id
        self.heartbeat: Final = heartbeat
        self.commands: Final[deque[tuple[ClientCommand, int]]] = deque()
        self.task: asyncio.Task[None] | None = None
        self.names: frozenset[Hashable] = frozenset()
        self.looking_up: Final[dict[asyncio.Task[Any], frozenset[Hashable]]] = {}
        self.is_leaving = self.is_closed = False
        self.bell_id: int | None = None
        self.publications: Final[dict[int, PublicationWatch]] = {}
        self.subscriptions: Final[dict[int, SubscriptionWatch]] = {}
        self._heartbeat_value = heartbeat.get()
        self._heard_ns = now_ns

    def on_driver_closed(self, error: Exception | None) -> None:
        """Do nothing: the driver's heartbeat says it."""

    def on_alive(self, now_ns: int) -> None:
        """Note a sign of life."""
        self._heard_ns = now_ns

    def check_open(self) -> None:
        """Refuse to go on for a client that has gone while it was waited for.

        Raises:
            ClosedError: The client has gone; another one may have its id by now.
        """
        if self.is_closed:
            message = f"client {self.client_id} has gone"
            raise ClosedError(message)

    def is_silent(self, now_ns: int, timeout_ns: int) -> bool:
        """Return whether the client has stored no new heartbeat for longer than the timeout.

        Differs: Aeron compares the heartbeat with the time, so that one in the future lives on.
        """
        value = self.heartbeat.get()
        if value == CLOSED_HEARTBEAT:
            return True
        if value != self._heartbeat_value:
            self._heartbeat_value, self._heard_ns = value, now_ns
        return now_ns - self._heard_ns > timeout_ns

    @property
    def is_served(self) -> bool:
        """Whether a command of the client is being executed, or waits for a name."""
        return self.task is not None or bool(self.looking_up)

    @property
    def watches(self) -> list[PublicationWatch | SubscriptionWatch]:
        """What watches the logs and the positions that the client writes."""
        return [*self.publications.values(), *self.subscriptions.values()]

    def end_watches(self) -> None:
        """Stop watching what the client writes."""
        for watch in self.watches:
            watch.end()


class CommandBacklog:
    """The commands that wait to be executed.

    Args:
        on_shorter: Called when there may be room for more of what is in the ring.
        original_id: Returns the id of the first request for a publication, from the id of any of
            them, and other ids as they are.
    """

    def __init__(self, on_shorter: Callable[[], object], original_id: Callable[[int], int]) -> None:
        self._on_shorter = on_shorter
        self._original_id = original_id
        self._length = 0
        # The clients with a long backlog.
        self._long: dict[AeronClient, None] = {}
        self._names_hold_from_ns = -NAMES_PERIOD_NS

    def add(self, client: AeronClient, command: ClientCommand, body_length: int) -> None:
        """Let a command wait behind those of its client.

        Differs: Aeron keeps any number of commands that wait for names.

        Raises:
            RegistrationError: Too many commands wait, or too long ones.
        """
        waiting_count, length = len(client.commands), body_length + COMMAND_LENGTH
        if waiting_count >= WAITING_COMMANDS_MAX:
            message = (
                f"{waiting_count} commands of client {client.client_id} wait for those before "
                f"them, and {WAITING_COMMANDS_MAX} is the limit: wait for the answers before more "
                "is sent"
            )
            raise RegistrationError(message, code=ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE)
        is_beyond = self._length + length > WAITING_LENGTH_MAX
        # A client that asks for one thing at a time is served, whatever the others do.
        if is_beyond and (client.is_served or waiting_count):
            message = (
                f"the commands of all clients that wait take {self._length} bytes, one more would "
                f"take {length}, and {WAITING_LENGTH_MAX} is the limit: wait for the answers "
                "before more is sent"
            )
            raise RegistrationError(message, code=ErrorCode.RESOURCE_TEMPORARILY_UNAVAILABLE)
        client.commands.append((command, length))
        self._length += length
        if waiting_count + 1 >= LONG_BACKLOG:
            self._long[client] = None

    def take(self, client: AeronClient) -> ClientCommand | None:
        """Remove and return the next command that may be executed; None if there is none.

        Differs: Aeron executes a command while those before it wait for names. Here it waits for
        those of its client that wait and name the same: a registration, a channel with its stream,
        a tag, or the subscription that a publication answers. A publication or a subscription is
        also not added before any removal of one that waits. If four commands of a client wait for
        names, all others wait for one of them to end.
        """
        if len(client.looking_up) >= LOOK_UPS_MAX:
            return None
        commands = client.commands
        held = {name for names in client.looking_up.values() for name in names}
        has_removal = False
        # A client may write what makes this search long: a few commands are looked at.
        for index, (command, length) in enumerate(islice(commands, LONG_BACKLOG)):
            names = self._names_of(command)
            # A removal does not say which stream it ends: it may be the one that is added here.
            is_barred = has_removal and isinstance(command, AddPublication | AddSubscription)
            if held.isdisjoint(names) and not is_barred:
                del commands[index]
                client.names = names
                self._note_removed(client, length)
                return command
            held |= names
            has_removal |= isinstance(command, RemovePublication | RemoveSubscription)
        return None

    def clear(self, client: AeronClient) -> None:
        """Forget the commands of a client that has gone."""
        length = sum(length for _, length in client.commands)
        client.commands.clear()
        self._note_removed(client, length)

    def held_until_ns(self, now_ns: int) -> int:
        """Return until when the commands in the ring have to wait; a time that has passed if not.

        The time is not known if commands are being executed; `on_shorter` tells.
        """
        if not self._long:
            return now_ns
        if any(client.task is not None for client in self._long):
            return NEVER_NS
        if now_ns >= self._names_hold_from_ns + NAMES_PERIOD_NS:
            self._names_hold_from_ns = now_ns
        return self._names_hold_from_ns + NAMES_HOLD_NS

    def _note_removed(self, client: AeronClient, length: int) -> None:
        self._length -= length
        if client in self._long and len(client.commands) < LONG_BACKLOG:
            del self._long[client]
            self._on_shorter()

    def _names_of(self, command: ClientCommand) -> frozenset[Hashable]:
        """Return the names in a command: ids of what it adds, changes or answers, stream, tags."""
        names: set[Hashable] = {command.correlation_id}
        registration_id: int | None = getattr(command, "registration_id", None)
        if registration_id is not None:
            # Destinations of a shared publication name its first request, and a removal its own.
            names |= {registration_id, self._original_id(registration_id)}
        if isinstance(command, AddPublication | AddSubscription):
            names.add((command.channel, command.stream_id))
            # Each parameter begins alike: a pattern with a fixed beginning is fast to search for.
            parameters = b"|" + command.channel.partition(b"?")[2]
            if found := ANSWERED.search(parameters):
                names.add(int(found[1]))
            for pattern in (TAGS, TAG_REFERENCE):
                if found := pattern.search(parameters):
                    names |= {("tag", int(tag)) for tag in found.groups() if tag}
        return frozenset(names)
