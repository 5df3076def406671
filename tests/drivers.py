"""The driver of a client, for tests that look into it."""

from __future__ import annotations

import aeron_async as aa


def embedded(aeron: aa.Aeron) -> aa.MediaDriver:
    """Return the driver of a client, which is of this process."""
    assert isinstance(aeron.driver, aa.MediaDriver)
    return aeron.driver
