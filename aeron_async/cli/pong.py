"""Command `aeron-async pong`: echoes every ping unchanged.

Source: Aeron samples `cpong.c`, `Pong.java`.
"""

from __future__ import annotations

from aeron_async.cli.figures import plural
from aeron_async.cli.options import ClientOptions, Count, Flag, Int32, Quiet
from aeron_async.cli.output import print_json, remark
from aeron_async.cli.ping import PING_CHANNEL, PING_STREAM_ID, PONG_CHANNEL, PONG_STREAM_ID
from aeron_async.cli.runner import ExitCode, check_driver, run
from aeron_async.client.aeron import Aeron
from aeron_async.errors import OfferTimeoutError

__all__ = ["pong"]

# How long an echo waits for the pinger's subscription; then the pinger has gone and the echo is
# dropped.
ECHO_TIMEOUT_S = 5.0


def pong(
    *,
    ping_channel: str = PING_CHANNEL,
    ping_stream: Int32 = PING_STREAM_ID,
    pong_channel: str = PONG_CHANNEL,
    pong_stream: Int32 = PONG_STREAM_ID,
    count: Count | None = None,
    json: Flag = False,
    quiet: Quiet = False,
    options: ClientOptions | None = None,
) -> int:
    """Send every ping back unchanged, until Ctrl-C.

    Args:
        ping_channel: Channel of pings.
        ping_stream: Stream id of pings.
        pong_channel: Channel of pongs.
        pong_stream: Stream id of pongs.
        count: Stop after so many pings.
        json: Report as JSON at the end.
        quiet: Do not remark on progress.
        options: How to run.
    """
    options = options or ClientOptions()
    main = _pong(
        options.aeron_dir,
        (ping_channel, ping_stream),
        (pong_channel, pong_stream),
        count=count,
        is_json=json,
        is_quiet=quiet,
    )
    return run(main, options)


async def _pong(
    aeron_dir: str | None,
    there: tuple[str, int],
    back: tuple[str, int],
    *,
    count: int | None,
    is_json: bool,
    is_quiet: bool,
) -> int:
    echoed_count = dropped_count = 0
    async with Aeron.connect(directory=aeron_dir) as aeron:
        subscription = await aeron.add_subscription(*there)
        publication = await aeron.add_exclusive_publication(*back)
        if not is_quiet:
            remark(f"echoing {there[0]} stream {there[1]} to {back[0]} stream {back[1]}")
        try:
            async for message in subscription:
                try:
                    await publication.offer(
                        message.data,
                        reserved_value=message.reserved_value,
                        timeout=ECHO_TIMEOUT_S,
                    )
                    echoed_count += 1
                except OfferTimeoutError:
                    dropped_count += 1
                if echoed_count + dropped_count == count:
                    break
            else:
                check_driver(aeron)
        finally:
            if is_json:
                print_json({"echoed": echoed_count, "dropped": dropped_count})
            elif not is_quiet:
                remark(f"echoed {plural(echoed_count, 'ping')}, dropped {dropped_count}")
    return ExitCode.SUCCESS
