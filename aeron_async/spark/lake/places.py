"""Places of a lake: a folder that every executor sees, or one in a store of objects.

    /var/lake, file:///var/lake     a folder of this host, or one that is mounted
    s3://bucket/lake                a folder in S3, which s3a:// means, too

All that a lake has goes through a `LakePlace`: tables by `deltalake`, data files by `pyarrow.fs`,
and what the job notes beside them. Both libraries get the same settings of a store, from the URL
and from the environment, so that one never writes where the other one does not read.

A folder of a host brings to the disk what is written; a store has done so when it answers. An
object is there when it is complete, and a name is never used twice, but for what the job notes.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, final
from urllib.parse import quote, unquote, urlsplit
from urllib.request import url2pathname

import attrs
from deltalake.exceptions import CommitFailedError, DeltaError
from pyarrow import fs

from aeron_async.errors import ArchiveError, ConfigurationError
from aeron_async.spark.lake.s3_settings import (
    CREDENTIALS,
    S3_SETTINGS,
    s3_files,
    settings_in,
    with_environment,
)
from aeron_async.spark.urls import first_line, s3_url, scheme_of, shown
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from deltalake import DeltaTable

__all__ = [
    "LakePlace",
    "LocalPlace",
    "StoredPlace",
    "place_at",
    "place_of",
    "sync",
    "write_atomically",
]


class LakePlace(ABC):
    """A folder; paths are relative to it, with `/` between their parts.

    Attributes:
        is_local: Whether it is a folder of this host.
    """

    is_local: ClassVar[bool]

    @abstractmethod
    def __truediv__(self, path: str) -> Self:
        """Return a folder within this one."""

    @abstractmethod
    def __str__(self) -> str:
        """Return its path or URL for people and programs, without secrets."""

    @property
    def name(self) -> str:
        """Return the last part of its path."""
        return str(self).rstrip("/").rpartition("/")[2]

    @property
    @abstractmethod
    def uri(self) -> str:
        """Return what `deltalake` opens, with `options`."""

    @property
    @abstractmethod
    def options(self) -> dict[str, str] | None:
        """Return the settings of its store, which may be secret; None if it needs none."""

    @property
    @abstractmethod
    def files(self) -> fs.FileSystem:
        """Return the file system of `inside`."""

    @abstractmethod
    def inside(self, path: str) -> str:
        """Return a path as `files` has it."""

    def url_of(self, path: str) -> str:
        """Return a path as readers of other libraries have it."""
        return f"{self}/{path}"

    def hint(self) -> str:
        """Return what may be set otherwise if nothing answers; empty for a folder of this host."""
        return ""

    def told(self, error: BaseException) -> str:
        """Return the text of a foreign error for a person, without secrets."""
        return printable(error)

    def cause(self, error: BaseException) -> BaseException | None:
        """Return what a traceback may show of a foreign error: nothing if secrets are in it."""
        return error

    def answering(self) -> AbstractContextManager[None]:
        """Return a context that names a store in errors; it does nothing for a folder of a host."""
        return nullcontext()

    @abstractmethod
    def has(self, path: str) -> bool:
        """Return whether there is such a file or folder."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of the files in it, in order; none if it is not there."""

    @abstractmethod
    def folders(self) -> list[str]:
        """Return the names of the folders in it, in order; none if it is not there."""

    @abstractmethod
    def read(self, path: str) -> bytes | None:
        """Return what is in a file; None if it is not there."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Write a whole file, or replace it; it is never seen in part.

        Raises:
            ConfigurationError: It cannot be written.
            ArchiveError: The store does not answer.
        """

    @abstractmethod
    def create(self, path: str) -> Any:
        """Return a stream into a new file."""

    @abstractmethod
    def keep(self, path: str) -> None:
        """Bring a new file, which is closed, to the disk, with the folders that lead to it."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file; do nothing if it is not there."""

    @abstractmethod
    def sizes(self, paths: Sequence[str]) -> list[int]:
        """Return the sizes of files in bytes; 0 for those that are not there."""

    @abstractmethod
    def sync_names(self, names: Sequence[str]) -> None:
        """Bring files in it, and the folder itself, to the disk."""


@final
@attrs.frozen(slots=False)
class LocalPlace(LakePlace):
    """A folder of this host, or one that is mounted."""

    is_local = True

    path: Path

    def __truediv__(self, path: str) -> LocalPlace:
        """Return a folder within this one."""
        return LocalPlace(self.path / path)

    def __str__(self) -> str:
        """Return its path."""
        return str(self.path)

    def __fspath__(self) -> str:
        """Return its path."""
        return str(self.path)

    @property
    def name(self) -> str:
        """Return the last part of its path."""
        return self.path.name

    @property
    def uri(self) -> str:
        """Return its path."""
        return str(self.path)

    @property
    def options(self) -> None:
        """Return None: it needs none."""
        return

    @property
    def files(self) -> fs.FileSystem:
        """Return the file system of this host."""
        return fs.LocalFileSystem()

    def inside(self, path: str) -> str:
        """Return the absolute path."""
        return f"{self.path}/{path}"

    def has(self, path: str) -> bool:
        """Return whether there is such a file or folder."""
        return (self.path / path).exists()

    def names(self) -> list[str]:
        """Return the names of the files in it."""
        return sorted(each.name for each in self._entries() if not each.is_dir())

    def folders(self) -> list[str]:
        """Return the names of the folders in it."""
        return sorted(each.name for each in self._entries() if each.is_dir())

    def _entries(self) -> list[Path]:
        return list(self.path.iterdir()) if self.path.is_dir() else []

    def read(self, path: str) -> bytes | None:
        """Return what is in a file; None if it is not there."""
        try:
            return (self.path / path).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, path: str, data: bytes) -> None:
        """Write a file beside it, sync that, and give it the name."""
        write_atomically(self.path / path, data)

    def create(self, path: str) -> Any:
        """Return a stream into a new file, whose folder is created."""
        target = self.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target.open("xb")

    def keep(self, path: str) -> None:
        """Sync a new file, and the folders that lead to it, which may be new."""
        target = self.path / path
        sync(target)
        for folder in target.parents:
            sync(folder)
            if folder == self.path:
                break
        sync(self.path.parent)

    def remove(self, path: str) -> None:
        """Remove a file."""
        (self.path / path).unlink(missing_ok=True)

    def sizes(self, paths: Sequence[str]) -> list[int]:
        """Return the sizes of files."""
        found = []
        for each in paths:
            size = 0
            with suppress(OSError):
                size = (self.path / each).stat().st_size
            found.append(size)
        return found

    def sync_names(self, names: Sequence[str]) -> None:
        """Sync files in it, and the folder itself."""
        for each in names:
            sync(self.path / each)
        sync(self.path)


@final
@attrs.frozen(slots=False)
class StoredPlace(LakePlace):
    """A folder in a store of objects.

    It is sent to workers with what its URL has said; the environment is that of each process.

    Attributes:
        url: Its URL without secrets and settings.
        given: Settings of the store from its URL, by the names that they have in the environment.
    """

    is_local = False

    url: str
    given: dict[str, str] = attrs.field(factory=dict, repr=False)

    def __truediv__(self, path: str) -> StoredPlace:
        """Return a folder within this one."""
        return StoredPlace(f"{self.url}/{path}", self.given)

    def __str__(self) -> str:
        """Return its URL."""
        return self.url

    @property
    def uri(self) -> str:
        """Return its URL."""
        return self.url

    @property
    def options(self) -> dict[str, str]:
        """Return what the URL has said, and what the environment of this process adds to it."""
        return with_environment(self.url, self.given)

    @property
    def files(self) -> fs.FileSystem:
        """Return the file system of the store, which each process opens once."""
        return opened(scheme_of(self.url) or "", tuple(sorted(self.options.items())))

    def inside(self, path: str) -> str:
        """Return bucket and key."""
        return f"{self.url.partition('://')[2]}/{path}".rstrip("/")

    def hint(self) -> str:
        """Return which settings of S3 are in neither the URL nor the environment."""
        missing = [each for each in S3_SETTINGS if each not in self.options]
        told = f"; not set are {', '.join(missing)}" if missing else ""
        return f"; check the URL, and the settings of the store in the environment{told}"

    def told(self, error: BaseException) -> str:
        """Return the first line of a foreign error: a store may answer with what it was sent."""
        return first_line(error, self.url, self._secrets)

    def cause(self, error: BaseException) -> BaseException | None:
        """Return an error without secrets in it; None for another one."""
        return None if any(each in str(error) for each in self._secrets) else error

    @property
    def _secrets(self) -> list[str]:
        """Return credentials as they are, and as they are in a URL."""
        options = self.options
        found = [options[each] for each in sorted(CREDENTIALS & set(options))]
        return [*found, *(quote(each, safe="") for each in found)]

    def has(self, path: str) -> bool:
        """Return whether there is such an object, or one whose name begins with it."""
        with self.answering():
            found: Any = self.files.get_file_info(self.inside(path))
        return bool(found.type != fs.FileType.NotFound)

    def names(self) -> list[str]:
        """Return the names of the objects in it."""
        return self._listed(fs.FileType.File)

    def folders(self) -> list[str]:
        """Return the names of the folders in it."""
        return self._listed(fs.FileType.Directory)

    def _listed(self, kind: Any) -> list[str]:
        with self.answering():
            selector = fs.FileSelector(self.inside(""), allow_not_found=True)
            found = self.files.get_file_info(selector)
        return sorted(each.base_name for each in found if each.type == kind)

    def read(self, path: str) -> bytes | None:
        """Return an object, in one request; None if it is not there."""
        with self.answering():
            try:
                with self.files.open_input_stream(self.inside(path)) as stream:
                    found: bytes = stream.read()
            except FileNotFoundError:
                return None
        return found

    def write(self, path: str, data: bytes) -> None:
        """Write an object, in one request."""
        with self.answering(), self.files.open_output_stream(self.inside(path)) as stream:
            stream.write(data)

    def create(self, path: str) -> Any:
        """Return a stream into a new object, which is there when the stream is closed."""
        with self.answering():
            return self.files.open_output_stream(self.inside(path))

    def keep(self, path: str) -> None:
        """Do nothing: the store has it."""

    def remove(self, path: str) -> None:
        """Remove an object."""
        with self.answering(), suppress(FileNotFoundError):
            self.files.delete_file(self.inside(path))

    def sizes(self, paths: Sequence[str]) -> list[int]:
        """Return the sizes of objects."""
        with self.answering():
            found = self.files.get_file_info([self.inside(each) for each in paths])
        return [each.size or 0 for each in found]

    def sync_names(self, names: Sequence[str]) -> None:
        """Do nothing: the store has them."""

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Name the store in errors, and what may be set otherwise.

        Raises:
            ArchiveError: It did not answer, or has refused.
        """
        try:
            yield
        except CommitFailedError:
            # It answered: another commit came between.
            raise
        except (DeltaError, OSError) as error:
            message = f"{self.url!r} did not answer: {self.told(error)}{self.hint()}"
            raise ArchiveError(message) from self.cause(error)


KEY: Final = re.compile(r"(/[A-Za-z0-9_.-]+)*/*")
BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{1,62}")


STORES: Final[dict[str, Callable[[Mapping[str, str]], fs.FileSystem]]] = {"s3": s3_files}
"""How the file system of a store is opened, by the scheme of its URLs."""
STORES_OPEN: Final = 8
"""Upper limit on the file systems that a process keeps open; another one closes the oldest."""


@lru_cache(maxsize=STORES_OPEN)
def opened(scheme: str, options: tuple[tuple[str, str], ...]) -> fs.FileSystem:
    """Return the file system of a store."""
    return STORES[scheme](dict(options))


def place_at(where: str | os.PathLike[str] | LakePlace) -> LakePlace:
    """Return the place of a path or URL.

    Raises:
        ConfigurationError: A lake cannot be there, or a setting of its store is missing.
    """
    if isinstance(where, LakePlace):
        return where
    url = s3_url(os.fspath(where))
    scheme = scheme_of(url)
    if scheme is None:
        return LocalPlace(Path(url).absolute())
    if scheme in STORES:
        return stored_place(url)
    if scheme == "file":
        parts = urlsplit(url)
        if parts.netloc not in {"", "localhost"}:
            message = f"lake {shown(url)!r} is on another host: write file:///FOLDER, or its path"
            raise ConfigurationError(message)
        return LocalPlace(Path(url2pathname(unquote(parts.path))).absolute())
    message = (
        f"lake {shown(url)!r} begins with {scheme}://, and a lake is in a folder or in S3: name a "
        "path, or s3://BUCKET/LAKE"
    )
    raise ConfigurationError(message)


def place_of(table: DeltaTable) -> LakePlace:
    """Return the place of a loaded table."""
    scheme = scheme_of(table.table_uri)
    if scheme in STORES:
        # What it was loaded with; there is no other way to ask.
        options = table._storage_options or {}  # noqa: SLF001
        return StoredPlace(table.table_uri.rstrip("/"), options)
    return LocalPlace(Path(url2pathname(urlsplit(table.table_uri).path)))


def stored_place(url: str) -> StoredPlace:
    """Return the place of a URL, whose settings go before those of the environment.

    Raises:
        ConfigurationError: It has no bucket, a key that not all libraries read alike, an unknown
            setting, or half of the credentials.
    """
    name = shown(url)
    parts = urlsplit(url)
    bucket = parts.netloc.rpartition("@")[2]
    if parts.scheme == "s3" and not BUCKET.fullmatch(bucket):
        message = f"lake {name!r} names no bucket: write s3://BUCKET/LAKE"
        raise ConfigurationError(message)
    if not KEY.fullmatch(parts.path):
        message = (
            f"lake {name!r} may have letters, digits and any of _.- between its slashes, because "
            "not all readers agree on others: choose another name"
        )
        raise ConfigurationError(message)
    found = StoredPlace(f"{parts.scheme}://{bucket}{parts.path}".rstrip("/"), settings_in(url))
    # Half of the credentials is told now, and not by a store that refuses.
    _ = found.options
    return found


def sync(path: Path) -> None:
    """Sync a file or a folder to the disk; do nothing for a folder on Windows.

    Raises:
        OSError: The sync failed.
    """
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file atomically, and sync it to the disk.

    Raises:
        ConfigurationError: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        partial.write_bytes(data)
        sync(partial)
        partial.replace(path)
        sync(path.parent)
    except OSError as error:
        message = f"{str(path)!r} could not be written: {error.strerror}; choose another place"
        raise ConfigurationError(message) from error
