"""Settings of a driver and of an archive as users write them."""

from __future__ import annotations

from typing import Any

import pytest

from aeron_async import DriverContext
from aeron_async.archive import ArchiveContext, ControlSettings
from aeron_async.errors import ConfigurationError


def test_a_drivers_sizes_and_durations_are_read_as_in_channels() -> None:
    """Text means what it means in a channel, or is refused by the setting's name."""
    given: dict[str, Any] = {"term_buffer_length": "64k", "image_liveness_timeout_ns": "3s"}
    context = DriverContext(**given)
    assert context == DriverContext(
        term_buffer_length=65_536, image_liveness_timeout_ns=3_000_000_000
    )
    wrong: dict[str, Any] = {"term_buffer_length": "64x"}
    with pytest.raises(ConfigurationError, match=r"aeron\.term\.buffer\.length"):
        DriverContext(**wrong)


def test_an_archives_sizes_and_durations_are_read_as_in_channels() -> None:
    """Likewise for an archive, and for what serves it."""
    given: dict[str, Any] = {"segment_length": "1m", "connect_timeout_ns": "3s"}
    context = ArchiveContext(**given)
    assert (context.segment_length, context.connect_timeout_ns) == (1 << 20, 3_000_000_000)
    assert ArchiveContext.from_environment({}, **given) == context
    served: dict[str, Any] = {"connect_timeout_ns": "2s", "control_term_length": "64k"}
    settings = ControlSettings(**served)
    assert (settings.connect_timeout_ns, settings.control_term_length) == (2_000_000_000, 65_536)
    for wrong in ({"segment_length": "1x"}, {"connect_timeout_ns": "soon"}, {"archive_id": "5"}):
        values: dict[str, Any] = dict(wrong)
        with pytest.raises(ConfigurationError, match=r"aeron\.archive\."):
            ArchiveContext(**values)
    for text in ("", "-1", "5m"):
        values = {"connect_timeout_ns": text}
        with pytest.raises(ConfigurationError, match="connect_timeout_ns cannot be read"):
            ControlSettings(**values)


@pytest.mark.parametrize(
    "name", ["control_stream_id", "local_control_stream_id", "recording_events_stream_id"]
)
def test_stream_ids_of_an_archive_that_is_served_are_checked(name: str) -> None:
    for wrong in ("10", 1.5, None, True, 2**31, -(2**31) - 1):
        wanted = f"^{name} must be (a whole number|at least -2147483648|at most 2147483647), got "
        with pytest.raises(ConfigurationError, match=wanted):
            ControlSettings(**{name: wrong})  # type: ignore[arg-type]
    assert getattr(ControlSettings(**{name: -5}), name) == -5  # type: ignore[arg-type]
