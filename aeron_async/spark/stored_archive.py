"""An archive behind a URL, such as S3: a copy of its directory in a store of objects.

`pyarrow.fs` opens the stores that it knows, with the credentials that it knows: for S3 those of the
environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL`), of the
host, or of the URL. `fsspec` opens all others, if it is installed.

An object does not grow. So a copy has whole segments, and what a recording writes now is not there.
The catalog is read in one request, because an object may be replaced while it is open, and then
its length is the old one and its bytes are the new ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from aeron_async.archive.disk.catalog import CATALOG_NAME
from aeron_async.archive.disk.files import OsDirectory, check_name
from aeron_async.errors import ArchiveFileError, ConfigurationError
from aeron_async.spark.urls import first_line, s3_url, scheme_of, shown

if TYPE_CHECKING:
    from aeron_async.archive.disk.files import ReadableDirectory, ReadableFile

__all__ = ["StoredDirectory", "directory_at"]

LONGEST_CATALOG: Final = 1 << 28
"""Upper limit on a catalog that is read, in bytes: a quarter of a million recordings."""
SHORTEST_REQUEST: Final = 1 << 16
LONGEST_REQUEST: Final = 1 << 24
"""Bytes asked for at once by a reader that goes on and on; shorter requests take more time each."""


def directory_at(path: str) -> ReadableDirectory:
    """Return the directory of an archive to read: of this host, or behind a URL.

    Args:
        path: Path, or URL such as `s3://bucket/archive`.

    Raises:
        ConfigurationError: There is no such directory, or its store does not answer.
    """
    scheme = scheme_of(path)
    try:
        if scheme is None:
            return OsDirectory(path, create=False)
        if scheme == "file":
            return OsDirectory(unquote(urlsplit(path).path), create=False)
    except FileNotFoundError as error:
        message = f"path={path!r} is no directory on this host: change path"
        raise ConfigurationError(message) from error
    return StoredDirectory(path)


def opened(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path of the URL in it.

    Raises:
        ConfigurationError: Nothing here opens such a URL.
    """
    scheme = urlsplit(url).scheme
    try:
        found: tuple[Any, str] = fs.FileSystem.from_uri(s3_url(url))
    except pa.ArrowInvalid as error:
        if scheme in {"s3", "s3a", "s3n", "gs", "gcs", "hdfs", "abfs", "abfss"}:
            message = f"path={shown(url)!r} is no URL that can be opened: {first_line(error, url)}"
            raise ConfigurationError(message) from error
    else:
        return found
    try:
        # Imported here because few use it, and it need not be installed.
        import fsspec  # noqa: PLC0415
    except ModuleNotFoundError as error:
        message = (
            f"path={shown(url)!r} begins with {scheme}://, which PyArrow does not open: "
            "pip install fsspec, and its package for this store"
        )
        raise ConfigurationError(message) from error
    try:
        files, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        message = f"path={shown(url)!r} cannot be opened by fsspec: {first_line(error, url)}"
        raise ConfigurationError(message) from error
    return fs.PyFileSystem(fs.FSSpecHandler(files)), root


@final
class StoredDirectory:
    """A directory of objects, which can only be read; see `Directory`.

    Args:
        url: URL of the directory.

    Raises:
        ConfigurationError: There is no such directory, or its store does not answer.
    """

    def __init__(self, url: str) -> None:
        self._shown = shown(url)
        self._files, root = opened(url)
        self._root = root.rstrip("/")
        try:
            kind = self._files.get_file_info(self._root).type
        except OSError as error:
            message = (
                f"path={self._shown!r} could not be looked at: {first_line(error, url)}; check the "
                "URL, and the credentials in the environment"
            )
            raise ConfigurationError(message) from error
        if kind != fs.FileType.Directory:
            message = f"path={self._shown!r} is no directory with files in its store: change path"
            raise ConfigurationError(message)

    @property
    def path(self) -> str:
        """Return its URL without secrets, for error texts."""
        return self._shown

    def names(self) -> list[str]:
        """Return the names of the objects in it, in no order."""
        found = self._files.get_file_info(fs.FileSelector(self._root))
        return [each.base_name for each in found if each.type == fs.FileType.File]

    def open_to_read(self, name: str) -> ReadableFile:
        """Open an object for reading; see `Directory.open_to_read`."""
        path = f"{self._root}/{check_name(name)}"
        if name != CATALOG_NAME:
            return StoredFile(name, self._files.open_input_file(path))
        with self._files.open_input_stream(path) as stream:
            found = stream.read(LONGEST_CATALOG + 1)
        if len(found) > LONGEST_CATALOG:
            message = f"a catalog longer than {LONGEST_CATALOG} bytes is not read from a store"
            raise ArchiveFileError(message, file=name, offset=LONGEST_CATALOG)
        return StoredFile(name, pa.BufferReader(found))

    def modified_ms(self, name: str) -> int:
        """Return when an object was written, in milliseconds since 1970; 0 if that is not known.

        Raises:
            FileNotFoundError: There is no such object.
        """
        found = self._files.get_file_info(f"{self._root}/{check_name(name)}")
        if found.type == fs.FileType.NotFound:
            message = f"{name} is not in {self._shown}"
            raise FileNotFoundError(message)
        return (found.mtime_ns or 0) // 1_000_000


@final
class StoredFile:
    """An object, read in long requests by a reader that goes on; see `File`.

    It keeps the bytes of the last request. A request that goes on where the last one ended is
    twice as long as that.
    """

    def __init__(self, name: str, stored: pa.NativeFile) -> None:
        self.name = name
        self._object = stored
        self._length: int = stored.size()
        self._memory = memoryview(b"")
        self._begin = 0
        self._end = 0

    def length(self) -> int:
        """Return its length when it was opened."""
        return self._length

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Read up to a buffer's length; return how much, 0 at the end of the object."""
        wanted = min(len(buffer), self._length - offset)
        if wanted <= 0:
            return 0
        if not self._begin <= offset < self._end and not self._request(offset, wanted):
            return 0
        count = min(wanted, self._end - offset)
        at = offset - self._begin
        buffer[:count] = self._memory[at : at + count]
        return count

    def _request(self, offset: int, wanted: int) -> bool:
        """Ask for bytes; return whether some came."""
        last = self._end - self._begin
        ahead = 2 * last if offset == self._end else 0
        length = min(max(wanted, ahead, SHORTEST_REQUEST), LONGEST_REQUEST, self._length - offset)
        if length > len(self._memory):
            self._memory = memoryview(bytearray(length))
        self._begin = self._end = offset
        self._object.seek(offset)
        self._end += self._object.readinto(self._memory[:length])
        return self._end > offset

    def close(self) -> None:
        """Close it; a second call does nothing."""
        self._object.close()
        self._memory = memoryview(b"")
        self._begin = self._end = 0
