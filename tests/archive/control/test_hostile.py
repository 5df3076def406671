"""Whatever arrives on a control channel, the others are served."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.archive.golden import facts

if TYPE_CHECKING:
    from aeron_async.archive.control.client import RemoteArchive
    from aeron_async.archive.control.server import ControlServer


@pytest.mark.parametrize("seed", range(5))
async def test_damaged_requests_of_the_official_client_harm_nobody(
    remote: RemoteArchive, server: ControlServer, seed: int
) -> None:
    golden = [
        bytes.fromhex(each["hex"])
        for each in facts().get("20-archive-control", {}).get("control_messages", [])
    ] or [b"\x10\x00\x44\x00\x65\x00\x0e\x00" + bytes(16)]
    (session,) = server._sessions.values()
    mine = session.session_id.to_bytes(8, "little", signed=True)
    rng = random.Random(seed)
    for _ in range(400):
        data = bytearray(rng.choice(golden))
        if rng.random() < 0.5 and len(data) >= 16 and data[2] != 58:
            data[8:16] = mine
        # CloseSession, told truly, would end it; and rightly so.
        if data[2:4] == b"\x03\x00":
            continue
        for _ in range(rng.randrange(4)):
            data[rng.randrange(4, len(data))] = rng.randrange(256)
        server.on_request(bytes(data[: rng.randrange(len(data)) + 1]), session.image)
    assert server.session_count <= server.settings.max_sessions
    assert server.dropped_requests > 0
    assert await remote.start_position(1) == 0
