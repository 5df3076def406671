"""Producer, consumer and archive are killed with SIGKILL: the database has each record once."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

from tests.archive.durable.durable_processes import SERVICES
from tests.warm import CONTEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.process import BaseProcess
    from pathlib import Path

KILLS = int(os.environ.get("AERON_ASYNC_DURABLE_KILLS", "4"))
MORE = 200
"""Records that must come through after the last kill."""
LIMIT_S = 60.0


class Processes:
    """The three processes, each started again when it was killed."""

    def __init__(self, path: Path, ports: tuple[int, int]) -> None:
        self._arguments = (path, ports)
        self._running: list[BaseProcess] = [self._started(each) for each in SERVICES]

    def _started(self, service: Callable[..., None]) -> BaseProcess:
        assert CONTEXT is not None
        process = CONTEXT.Process(target=service, args=self._arguments)
        process.start()
        return process

    def kill(self, number: int, *, again: bool) -> None:
        process = self._running[number]
        assert process.exitcode is None, f"{SERVICES[number].__name__} has ended by itself"
        process.kill()
        process.join()
        if again:
            self._running[number] = self._started(SERVICES[number])

    def end(self) -> None:
        for each in self._running:
            each.kill()
            each.join()


def handed_over(path: Path) -> list[tuple[int, str]]:
    """Return what the database has, in the order in which it came."""
    with closing(sqlite3.connect(path / "numbers.db", timeout=10)) as database:
        try:
            return list(database.execute("SELECT sequence, data FROM numbers ORDER BY rowid"))
        except sqlite3.OperationalError:
            return []


def recorded(path: Path) -> int:
    """Return the last number that the producer was told is recorded."""
    try:
        lines = (path / "recorded").read_bytes().splitlines()
    except FileNotFoundError:
        return 0
    return int(lines[-1]) if lines else 0


def until(is_so: Callable[[], bool]) -> Iterator[None]:
    begun = time.monotonic()
    while not is_so():
        assert time.monotonic() - begun < LIMIT_S, "nothing comes through any more"
        yield


def wait(is_so: Callable[[], bool]) -> None:
    for _ in until(is_so):
        time.sleep(0.05)


def wait_for_more(path: Path, count: int) -> None:
    known = len(handed_over(path))
    wait(lambda: len(handed_over(path)) > known + count)


def test_killed_processes_hand_each_record_over_once(
    tmp_path: Path, unused_udp_port_factory: Callable[[], int]
) -> None:
    draw = random.Random(KILLS)
    processes = Processes(tmp_path, (unused_udp_port_factory(), unused_udp_port_factory()))
    try:
        wait(lambda: len(handed_over(tmp_path)) > 0)
        for _ in range(KILLS):
            processes.kill(draw.randrange(3), again=True)
            if draw.random() < 1 / 2:
                time.sleep(draw.random())
            else:
                wait_for_more(tmp_path, 0)
        wait_for_more(tmp_path, MORE)
        processes.kill(1, again=False)
        last = recorded(tmp_path)
        wait(lambda: len(handed_over(tmp_path)) >= last)
    finally:
        processes.end()
    found = handed_over(tmp_path)
    assert found == [(number, str(number)) for number in range(1, len(found) + 1)]
    assert len(found) >= last
    print(f"{KILLS} kills, {len(found)} records, {last} known to be recorded")  # noqa: T201
