"""Stores of objects to read archives from: in memory, and S3 by a server in this process."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import fsspec
import pytest
from pyarrow import fs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["S3", "memory_copy", "s3_server"]

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

    def copy(self, path: Path) -> str:
        """Copy a directory into the bucket; return its URL."""
        for each in path.iterdir():
            with self.files.open_output_stream(f"feeds/{path.name}/{each.name}") as stream:
                stream.write(each.read_bytes())
        return self.url(path.name)


@contextmanager
def s3_server() -> Iterator[S3]:
    """Serve S3 on a free port of loopback; skip the test without `moto`."""
    moto = pytest.importorskip("moto.server", reason="pip install -e '.[stores]'")
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3(f"{host}:{port}")
    finally:
        server.stop()
