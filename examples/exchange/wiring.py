"""Who is where: the channels, ports and files of one exchange on this machine.

The supervisor makes a wiring and writes it into the folder of the exchange; each process reads it
there. On several machines the addresses would be those of hosts, and nothing else would change.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import socket
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import attrs

import aeron_async as aa
from aeron_async.archive import DurableStream, RemoteArchive, SourceLocation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = [
    "CHANGES_STREAM",
    "COMMANDS_STREAM",
    "QUOTES_STREAM",
    "SERVICE",
    "SNAPSHOTS_STREAM",
    "TRADES_STREAM",
    "Wiring",
    "as_program",
    "free_ports",
    "has_multicast",
    "is_free",
]

COMMANDS_STREAM: Final = 7001
TRADES_STREAM: Final = 7002
CHANGES_STREAM: Final = 7011
SNAPSHOTS_STREAM: Final = 7012
QUOTES_STREAM: Final = 7013
SERVICE: Final = "exchange"
"""Name of the engine's calls."""
HOST: Final = "127.0.0.1"
GROUP: Final = "239.192.73.11"
"""A group for this machine only: its interface is the loopback device."""
ARCHIVE_PATIENCE_S: Final = 2.0
"""How long an archive may take to answer; then another connection is tried."""
PROBE_S: Final = 1.0
FILE: Final = "wiring.json"
PORT: Final = re.compile(rf"={re.escape(HOST)}:(\d+)")


@attrs.frozen(kw_only=True)
class Wiring:
    """Addresses of one exchange.

    Attributes:
        folder: Where recordings, doors and this wiring are.
        control: Channel of requests to the archive.
        commands: Channel of the log of commands.
        trades: Channel of the log of trades.
        engine: Channel of calls to the engine.
        market: Channel of market data, for all its streams.
        web_port: Port of the gateway.
    """

    folder: str
    control: str
    commands: str
    trades: str
    engine: str
    market: str
    web_port: int

    @classmethod
    def new(cls, folder: Path, *, is_multicast: bool, web_port: int = 0) -> Self:
        """Return a wiring with ports that are free now, and write it into its folder.

        Args:
            folder: An existing folder.
            is_multicast: Whether market data goes to a group; else each reader is sent its own.
            web_port: Port of the gateway; 0 for any.
        """
        control, commands, trades, calls, answers, market = free_ports(6, socket.SOCK_DGRAM)
        [any_port] = free_ports(1, socket.SOCK_STREAM)
        to_all = f"aeron:udp?endpoint={GROUP}:{market}|interface={HOST}"
        to_each = f"aeron:udp?control={HOST}:{market}|control-mode=dynamic"
        wiring = cls(
            folder=str(folder),
            control=f"aeron:udp?endpoint={HOST}:{control}",
            commands=f"aeron:udp?endpoint={HOST}:{commands}|term-length=4m|alias=commands",
            trades=f"aeron:udp?endpoint={HOST}:{trades}|term-length=4m|alias=trades",
            engine=f"aeron:udp?endpoint={HOST}:{calls}|control={HOST}:{answers}",
            market=f"{to_all if is_multicast else to_each}|term-length=4m",
            web_port=web_port or any_port,
        )
        wiring.write()
        return wiring

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """Read the wiring of a folder, which may have been moved since it was written."""
        fields = json.loads((Path(folder) / FILE).read_text())
        return cls(**fields | {"folder": str(folder)})

    def write(self) -> None:
        """Write it into its folder, whole or not at all."""
        path = Path(self.folder) / FILE
        written = path.with_suffix(".new")
        written.write_text(json.dumps(attrs.asdict(self)))
        written.replace(path)

    @property
    def archive(self) -> Path:
        """Return the directory of the recordings."""
        return Path(self.folder) / "archive"

    @property
    def is_multicast(self) -> bool:
        """Return whether market data goes to a group."""
        return GROUP in self.market

    @property
    def udp_ports(self) -> list[int]:
        """Return the ports of this machine that its parts bind, but for market data."""
        channels = (self.control, self.commands, self.trades, self.engine)
        return [int(each) for text in channels for each in PORT.findall(text)]

    @property
    def market_reader(self) -> str:
        """Return the channel at which to subscribe to market data."""
        if self.is_multicast:
            return self.market
        return self.market.replace("aeron:udp?", f"aeron:udp?endpoint={HOST}:0|")

    def door(self, part: str) -> Path:
        """Return where a part tells its statistics to tools of the same user."""
        return Path(self.folder) / f"{part}.door"

    def client(self, part: str) -> aa.Aeron:
        """Return a client with a driver of its own, for one part of the exchange."""
        context = aa.DriverContext(stats_socket=str(self.door(part)))
        return aa.Aeron.connect(context=context)

    def log(self, aeron: aa.Aeron, channel: str, stream_id: int) -> DurableStream:
        """Return a log in the archive, which is opened again whenever the archive was away."""
        return DurableStream(
            lambda: RemoteArchive.connect(
                aeron, control_channel=self.control, timeout=ARCHIVE_PATIENCE_S
            ),
            aeron,
            channel,
            stream_id,
            source_location=SourceLocation.REMOTE,
        )


def free_ports(count: int, kind: socket.SocketKind) -> list[int]:
    """Return ports that no one uses now, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET, kind)) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def is_free(port: int, kind: socket.SocketKind) -> bool:
    """Return whether no one uses a port now."""
    with socket.socket(socket.AF_INET, kind) as found:
        if kind == socket.SOCK_STREAM:
            # Connections that have ended do not hold it.
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((HOST, port))
        except OSError:
            return False
    return True


def has_multicast() -> bool:
    """Return whether a datagram to the group comes back over the loopback device."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        suppress(OSError),
    ):
        receiver.bind(("", 0))
        member = socket.inet_aton(GROUP) + socket.inet_aton(HOST)
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        receiver.settimeout(PROBE_S)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(HOST))
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        nonce = os.urandom(16)
        sender.sendto(nonce, (GROUP, receiver.getsockname()[1]))
        return receiver.recv(len(nonce)) == nonce
    return False


def as_program(
    part: str, main: Callable[[Wiring], Awaitable[None]], *, has_own_signals: bool = False
) -> None:
    """Run one part as a process of its own until SIGTERM or Ctrl-C; its argument is the folder.

    A part that fails says why and exits with 1: the supervisor starts it again.

    Args:
        part: Name of the module.
        main: What it does.
        has_own_signals: Whether it heeds signals itself, as a web server does.
    """
    if len(sys.argv) != 2:  # noqa: PLR2004 - the name and the folder
        sys.exit(f"usage: python -m examples.exchange.{part} FOLDER")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")

    async def run() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        if not has_own_signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, task.cancel)
        if os.environ.get("EXCHANGE_SUPERVISED"):
            # The supervisor writes nothing: it has gone when there is something to read.
            loop.add_reader(0, on_orphaned, loop)
        await main(Wiring.read(sys.argv[1]))

    try:
        with suppress(asyncio.CancelledError):
            asyncio.run(run())
    except* (aa.AeronError, OSError) as errors:
        sys.exit(f"{part}: {'; '.join(map(str, leaves(errors)))}")


def on_orphaned(loop: asyncio.AbstractEventLoop) -> None:
    """End as by SIGTERM: the supervisor has gone."""
    loop.remove_reader(0)
    signal.raise_signal(signal.SIGTERM)


def leaves(errors: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Return the errors of a group and of the groups in it."""
    found: list[BaseException] = []
    for each in errors.exceptions:
        found += leaves(each) if isinstance(each, BaseExceptionGroup) else [each]
    return found
