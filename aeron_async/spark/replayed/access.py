"""How to reach an archive that is elsewhere: what a query says of it, and every task needs.

Light to import, for it travels with each task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs

if TYPE_CHECKING:
    from aeron_async.spark.options import ArchiveOptions

__all__ = ["REPLAY", "ArchiveAccess"]

REPLAY: Final = "replay"
"""The value of the option `access`."""


@final
@attrs.frozen
class ArchiveAccess:
    """Where an archive is asked.

    Attributes:
        control_channel: Of the archive.
        response_channel: Where it answers, and replays; None for this host.
        timeout_ms: How long an answer may take.
        retries: How often to ask again when none came.
    """

    control_channel: str
    response_channel: str | None = None
    timeout_ms: int = 5_000
    retries: int = 3

    @classmethod
    def of(cls, options: ArchiveOptions) -> ArchiveAccess:
        """Return what the options of a query say."""
        channel = options.archive_control_channel
        assert channel is not None, "the options were checked"
        return cls(
            channel,
            options.archive_response_channel,
            options.archive_timeout_ms,
            options.archive_retries,
        )
