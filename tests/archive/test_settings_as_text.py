"""Settings of an archive as users write them."""

from __future__ import annotations

from typing import Any

import pytest

from aeron_async.archive import ArchiveContext, ControlSettings
from aeron_async.errors import ConfigurationError


def test_an_archives_sizes_and_durations_are_read_as_in_channels() -> None:
    """Row A15: likewise for an archive, and for what serves it."""
    given: dict[str, Any] = {"segment_length": "1m", "connect_timeout_ns": "3s"}
    context = ArchiveContext(**given)
    assert (context.segment_length, context.connect_timeout_ns) == (1 << 20, 3_000_000_000)
    assert ArchiveContext.from_environment({}, **given) == context
    settings = ControlSettings(connect_timeout_ns="2s", control_term_length="64k")
    assert (settings.connect_timeout_ns, settings.control_term_length) == (2_000_000_000, 65_536)
    for wrong in ({"segment_length": "1x"}, {"connect_timeout_ns": "soon"}, {"archive_id": "5"}):
        values: dict[str, Any] = dict(wrong)
        with pytest.raises(ConfigurationError, match=r"aeron\.archive\."):
            ArchiveContext(**values)
    for text in ("", "-1", "5m"):
        with pytest.raises(ConfigurationError):
            ControlSettings(connect_timeout_ns=text)
