"""Finds processes, and kills them."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["PATIENCE_S", "executors", "kill", "processes", "tree", "wait_until", "work_cleaned"]

PATIENCE_S: Final = 900.0


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Return when something is so; raise if it never is, or the process ended before."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if process.poll() is not None:
            message = f"{process.args!r} ended with {process.returncode}: see log.txt"
            raise RuntimeError(message)
        if time.monotonic() > deadline:
            message = f"nothing moved in {PATIENCE_S} s: see log.txt"
            raise TimeoutError(message)
        time.sleep(0.05)


def processes() -> Iterator[tuple[int, int, str]]:
    """Yield id, parent's id and command of every process."""
    for each in Path("/proc").iterdir():
        if not each.name.isdigit():
            continue
        try:
            stat = (each / "stat").read_text()
            command = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        yield int(each.name), int(stat.rpartition(")")[2].split()[1]), command


def tree(pid: int) -> list[int]:
    """Return a process and all that it has started, and they."""
    found, everything = [pid], list(processes())
    for parent in found:
        found += [child for child, of, _ in everything if of == parent]
    return found


def executors(pids: Sequence[int]) -> list[int]:
    """Return the executors among what processes have started, and their Python workers."""
    own = {each for pid in pids for each in tree(pid)}
    jvms = [
        each
        for each, _, command in processes()
        if each in own and "CoarseGrainedExecutorBackend" in command
    ]
    return [each for jvm in jvms for each in tree(jvm)]


def kill(pids: list[int]) -> None:
    """Kill processes without a warning."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


@contextmanager
def work_cleaned() -> Iterator[None]:
    """Remove what clusters on one machine leave in the folder of PySpark itself."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    work = Path(spec.origin).parent / "work"
    before = set(work.glob("*"))
    try:
        yield
    finally:
        for each in set(work.glob("*")) - before:
            shutil.rmtree(each, ignore_errors=True)
        if work.is_dir() and not any(work.iterdir()):
            work.rmdir()
