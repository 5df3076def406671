"""Settings of S3 for two libraries: from the URL of a lake, and else from the environment.

`deltalake` and `pyarrow.fs` look into the environment, too, and not for the same names. So both get
what is found here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from pyarrow import fs

from aeron_async.errors import ConfigurationError
from aeron_async.spark.urls import shown
from aeron_async.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CREDENTIALS", "S3_SETTINGS", "s3_files", "settings_in", "with_environment"]

S3_SETTINGS: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_REGION",
    "AWS_ENDPOINT_URL",
)
"""What S3 needs to know, but for a host that has a role, and a bucket of AWS itself."""
SESSION: Final = "AWS_SESSION_TOKEN"
CREDENTIALS: Final = frozenset({*S3_SETTINGS[:2], SESSION})
OTHER_NAMES: Final = {
    "AWS_REGION": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "AWS_ENDPOINT_URL": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
}
"""Names of the environment, the first one before the second."""
SAFE: Final = {"AWS_CONDITIONAL_PUT": "etag"}
"""What each commit of `deltalake` depends on: no object of a log is replaced by another one."""
IN_URLS: Final = ("endpoint_override", "region", "scheme")
"""Settings in the query of a URL, as `pyarrow.fs` has them."""


def s3_files(options: Mapping[str, str]) -> fs.FileSystem:
    """Return the file system of S3 with these settings, and else with those of the environment."""
    endpoint = options.get("AWS_ENDPOINT_URL")
    parts = urlsplit(endpoint) if endpoint else None
    given = {
        "access_key": options.get("AWS_ACCESS_KEY_ID"),
        "secret_key": options.get("AWS_SECRET_ACCESS_KEY"),
        "session_token": options.get(SESSION),
        "region": options.get("AWS_REGION"),
        "endpoint_override": parts.netloc if parts else None,
        "scheme": parts.scheme if parts else None,
    }
    return fs.S3FileSystem(**{name: value for name, value in given.items() if value})


def settings_in(url: str) -> dict[str, str]:
    """Return the settings of a store that its URL has, by their names in the environment.

    Raises:
        ConfigurationError: It has another setting.
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    unknown = sorted(query.keys() - set(IN_URLS))
    if unknown:
        message = (
            f"lake {shown(url)!r} has {printable(', '.join(unknown))!r} in its URL, which may have "
            f"{', '.join(IN_URLS)}: name other settings in the environment"
        )
        raise ConfigurationError(message)
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    endpoint = query.get("endpoint_override", "")
    if endpoint and "://" not in endpoint:
        endpoint = f"{query.get('scheme', 'https')}://{endpoint}"
    values = (unquote(user), unquote(password), query.get("region", ""), endpoint)
    return {name: value for name, value in zip(S3_SETTINGS, values, strict=True) if value}


def with_environment(url: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return settings with those of the environment where a URL has not said them.

    Raises:
        ConfigurationError: Half of the credentials is missing.
    """
    found = dict(given)
    names = {each: (each,) for each in (*S3_SETTINGS, SESSION)} | OTHER_NAMES
    if not set(found).isdisjoint(CREDENTIALS):
        if SESSION not in found and os.environ.get(SESSION):
            # `deltalake` would use it all the same.
            message = (
                f"lake {shown(url)!r} has credentials in its URL, and {SESSION} of the environment "
                "belongs to others: unset it, or set all of them in the environment"
            )
            raise ConfigurationError(message)
        names = {name: others for name, others in names.items() if name not in CREDENTIALS}
    for name, others in names.items():
        value = next(filter(None, map(os.environ.get, others)), None)
        if value and name not in found:
            found[name] = value
    if len({*S3_SETTINGS[:2]} & set(found)) == 1:
        message = (
            f"lake {shown(url)!r} has one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, in its "
            "URL or the environment, and not the other: set both, or neither for the role of the "
            "host"
        )
        raise ConfigurationError(message)
    if found.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        found["AWS_ALLOW_HTTP"] = "true"
    return found | SAFE
