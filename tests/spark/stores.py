"""Stores of objects for archives and lakes: in memory, S3 by a server, and files."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import fsspec
import pytest
from pyarrow import fs

from aeron_async.spark.lake import places
from tests.tracing import untraced_environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["S3", "folder_as_store", "memory_copy", "s3_server"]

KEY: Final = "AKIAEXAMPLE"
SECRET: Final = "its/secret+key"  # noqa: S105 - the server asks for none


def memory_copy(path: Path) -> str:
    """Copy a directory into memory; return its URL."""
    url = f"memory://{path.name}"
    files = fsspec.filesystem("memory")
    for each in path.iterdir():
        files.pipe(f"/{path.name}/{each.name}", each.read_bytes())
    return url


class S3:
    """An S3 server with one bucket.

    Args:
        place: Host and port.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self.environment = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{place}",
        }
        self.files = fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            endpoint_override=place,
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        self.files.create_dir("feeds")

    def url(self, name: str) -> str:
        """Return the URL of a directory, with its credentials."""
        where = f"endpoint_override={quote(self._place, safe='')}&scheme=http&region=us-east-1"
        return f"s3://{KEY}:{quote(SECRET, safe='')}@feeds/{name}?{where}"

    def keys(self, name: str) -> list[str]:
        """Return the paths of all objects in a directory, within it."""
        found = self.files.get_file_info(fs.FileSelector(f"feeds/{name}", recursive=True))
        start = len(f"feeds/{name}/")
        return sorted(each.path[start:] for each in found if each.type == fs.FileType.File)

    def copy(self, path: Path) -> str:
        """Copy a directory into the bucket; return its URL."""
        for each in path.iterdir():
            with self.files.open_output_stream(f"feeds/{path.name}/{each.name}") as stream:
                stream.write(each.read_bytes())
        return self.url(path.name)


def folder_as_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `file://` be a store of objects: what a lake does there, it does in S3."""
    local = fsspec.filesystem("file", auto_mkdir=True, use_listings_cache=False)
    files = fs.PyFileSystem(fs.FSSpecHandler(local))
    monkeypatch.setitem(places.STORES, "file", lambda _options: files)
    places.opened.cache_clear()


SERVER: Final = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(*server.get_host_and_port(), sep=":", flush=True)
sys.stdin.read()
"""


@contextmanager
def s3_server() -> Iterator[S3]:
    """Serve S3 on a free port of loopback; skip the test without `moto`.

    It is a process of its own: `deltalake` keeps other threads from running while it waits.
    """
    pytest.importorskip("moto.server", reason="pip install -e '.[stores]'")
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=untraced_environment() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            yield S3(server.stdout.readline().strip())
        finally:
            server.kill()
