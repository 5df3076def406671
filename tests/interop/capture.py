"""Wireshark's own reading of what was sent: a capture on loopback, and its frames by type."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import pytest

from tests.interop.programs import require, running, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

FRAMES: Final = ("data", "pad", "heartbeat", "setup", "sm", "nak")
STILL_COMING_S: Final = 0.5
"""How long the capture goes on, so that what was sent last is read off the interface."""


class Capture:
    """Every datagram to or from one UDP port.

    Args:
        path: Where the capture is written.
        port: Of the endpoint.
    """

    def __init__(self, path: Path, port: int) -> None:
        self._path = path
        self._port = port

    async def count_frames(self, *, is_from_endpoint: bool) -> Counter[str]:
        """Frames of one direction, by type, as the dissector names them."""
        field = "udp.srcport" if is_from_endpoint else "udp.dstport"
        arguments = [part for frame in FRAMES for part in ("-e", f"aeron.{frame}.type")]
        lines = await self._read("-Y", f"{field} == {self._port}", "-T", "fields", *arguments)
        counts: Counter[str] = Counter()
        for line in lines:
            for frame, found in zip(FRAMES, line.split("\t"), strict=True):
                if found:
                    counts[frame] += found.count(",") + 1
        return counts

    async def malformed(self) -> list[str]:
        """Datagrams in which the dissector finds something wrong, one line each."""
        return await self._read("-Y", "_ws.malformed or not aeron")

    async def _read(self, *arguments: str) -> list[str]:
        async with running(
            "tshark", "-r", self._path, "-d", f"udp.port=={self._port},aeron", *arguments
        ) as reader:
            assert await reader.wait(timeout=60) == 0, reader.stderr.lines
        return reader.stdout.lines


@asynccontextmanager
async def capturing(path: Path, port: int) -> AsyncIterator[Capture]:
    """Capture on loopback; skip where that is not installed or not allowed."""
    require("tshark", "dumpcap")
    # tshark itself would leave the capture to this very program, and that one behind when killed.
    async with running(
        "dumpcap", "-i", "lo", "-f", f"udp port {port}", "-w", path, "-q"
    ) as recorder:
        await wait_until(
            lambda: not recorder.is_running or (path.exists() and path.stat().st_size > 0),
            "the capture has begun",
        )
        if not recorder.is_running:
            pytest.skip(f"dumpcap may not capture here: {recorder.stderr.lines[-1:]}")
        yield Capture(path, port)
        await asyncio.sleep(STILL_COMING_S)
        await recorder.interrupt()
