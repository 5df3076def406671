"""The archive: records the logs of the others, in a process that outlives them."""

from __future__ import annotations

import asyncio

from aeron_async.archive import ArchiveContext, ControlServer, ControlSettings, LocalArchive
from examples.exchange.wiring import Wiring, as_program


async def main(wiring: Wiring) -> None:
    """Serve an archive until told to stop."""
    # Level 0: what is recorded survives every process, and not a power failure; see the page.
    context = ArchiveContext(
        directory=str(wiring.archive),
        control_channel=wiring.control,
        low_storage_threshold=64 << 20,
    )
    async with (
        wiring.client("archive") as aeron,
        LocalArchive.open(aeron, context) as archive,
        ControlServer(archive, aeron, ControlSettings.of(context)),
    ):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    as_program("archive", main)
