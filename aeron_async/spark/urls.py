"""URLs of archives and lakes: how they are told apart from paths, and shown without secrets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from aeron_async.errors import ConfigurationError
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["first_line", "s3_url", "scheme_of", "shown", "told"]

URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
S3_OF_HADOOP: Final = re.compile(r"s3[an]://", re.IGNORECASE)


def scheme_of(path: str) -> str | None:
    """Return the scheme of a URL in lower case; None for a path of this host."""
    found = URL.match(path)
    return None if found is None else found[1].lower()


def s3_url(url: str) -> str:
    """Return a URL with the scheme `s3` where Hadoop has another one for it."""
    return S3_OF_HADOOP.sub("s3://", url)


def shown(url: str) -> str:
    """Return a URL without what may be secret: user, password and query.

    Raises:
        ConfigurationError: It is no URL.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        message = f"path is no URL that can be opened: {error}; change path"
        raise ConfigurationError(message) from error
    return printable(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/"))


def told(path: str) -> str:
    """Return a path, or a URL without its secrets, as text for a person."""
    return printable(path) if scheme_of(path) is None else shown(path)


def first_line(error: BaseException, url: str, secrets: Iterable[str] = ()) -> str:
    """Return the first line of a foreign error's text, without secrets.

    Args:
        error: The error.
        url: Its user, password and query are left out.
        secrets: What else is left out.
    """
    parts = urlsplit(url)
    text = str(error).partition("\n")[0]
    for secret in ("".join(parts.netloc.rpartition("@")[:2]), f"?{parts.query}", *secrets):
        text = text.replace(secret, "") if len(secret) > 1 else text
    return printable(text)
