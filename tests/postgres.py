"""A PostgreSQL server of a test's own, on a Unix socket; Debian's package has the programs."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["running_postgres"]

LIMIT_S = 60


def programs() -> Path:
    """Return where the programs are, or skip the test."""
    pytest.importorskip("psycopg", reason="pip install 'psycopg[binary]'")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = shutil.which("initdb") or (found[-1] if found else None)
    if initdb is None:
        pytest.skip("apt-get install postgresql")
    return Path(initdb).parent


@contextmanager
def running_postgres() -> Iterator[str]:
    """Start a server with an empty database, and yield what `psycopg.connect` needs to reach it."""
    folder = programs()
    # The server refuses to run as root, and the path of a socket is short.
    is_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory(prefix="aeron-pg-") as path:
        if is_root:
            owner = pwd.getpwnam("postgres")
            os.chown(path, owner.pw_uid, owner.pw_gid)

        def run(program: str, *arguments: str) -> None:
            subprocess.run(
                [folder / program, *arguments],
                user="postgres" if is_root else None,
                cwd=path,
                check=True,
                timeout=LIMIT_S,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

        data = f"{path}/data"
        run("initdb", "--pgdata", data, "--username", "aeron", "--auth", "trust")
        options = f"-c listen_addresses= -c unix_socket_directories={path}"
        run("pg_ctl", "--pgdata", data, "--wait", "--options", options, "start")
        try:
            yield f"host={path} user=aeron dbname=postgres"
        finally:
            run("pg_ctl", "--pgdata", data, "--wait", "--mode", "immediate", "stop")
