"""What a folder of the exchange has recorded, read when every part has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

import aeron_async as aa
from aeron_async.archive import ArchiveContext, DurableStream, LocalArchive
from examples.exchange.matching import Exchange
from examples.exchange.messages import TRADE, Command, Trade, decode_command
from examples.exchange.wiring import COMMANDS_STREAM, TRADES_STREAM, Wiring

if TYPE_CHECKING:
    from pathlib import Path

    from aeron_async.archive.api import Archive
    from examples.exchange.messages import Ack


@attrs.define
class Recorded:
    """Both logs, and the state that the commands lead to."""

    commands: list[Command]
    trades: list[Trade]
    exchange: Exchange
    made: list[Trade]
    acks: dict[tuple[str, int], Ack]

    def check(self) -> None:
        """The log of trades has those that the commands lead to, each once and in order."""
        assert self.trades == self.made


async def records(archive: Archive, aeron: aa.Aeron, channel: str, stream_id: int) -> list[bytes]:
    """Return all records of a log."""
    log = DurableStream(archive, aeron, channel, stream_id)
    async with log.produce("reader") as producer:
        last = producer.last_sequence
    found: list[bytes] = []
    if last:
        async with log.consume() as consumer:
            async for record in consumer:
                found.append(record.data)
                assert record.sequence == len(found)
                if record.sequence == last:
                    break
    return found


async def recorded(folder: Path) -> Recorded:
    wiring = Wiring.read(folder)
    context = ArchiveContext(directory=str(wiring.archive), low_storage_threshold=0)
    async with aa.Aeron.connect() as aeron, LocalArchive.open(aeron, context) as archive:
        commands = [
            decode_command(each)
            for each in await records(archive, aeron, wiring.commands, COMMANDS_STREAM)
        ]
        trades = [
            TRADE.decode(each)
            for each in await records(archive, aeron, wiring.trades, TRADES_STREAM)
        ]
    exchange = Exchange()
    made: list[Trade] = []
    acks: dict[tuple[str, int], Ack] = {}
    for number, command in enumerate(commands, start=1):
        effects = exchange.apply(number, command)
        made += effects.trades
        acks.setdefault((command.account, command.client_order_id), effects.ack)
    return Recorded(commands, trades, exchange, made, acks)
