"""The limits of a service, and what it counts."""

from __future__ import annotations

from typing import final

import attrs

from aeron_async.client.arguments import check_limit
from aeron_async.protocol.arguments import check_number
from aeron_async.protocol.units import INT64_MAX
from aeron_async.rpc.deadlines import check_seconds
from aeron_async.rpc.envelope import NUMBER_MAX
from aeron_async.rpc.flows import check_window

__all__ = ["ServerCounts", "ServingLimits"]


@attrs.frozen
class ServerCounts:
    """What a server has counted since it began to serve.

    Attributes:
        calls: Calls that arrived.
        answered: Those that were answered.
        failed: Those that were answered with an error, by status.
        cancelled: Those that their clients cancelled, or whose clients have gone.
        under_way: Those that run.
        clients: Clients that are connected.
        late: Messages for calls that had ended.
        malformed: Messages that were no envelope, or made no sense.
        refused_clients: Clients that were rejected.
        repeated: Calls that were sent again and got the result of an earlier attempt.
        results_kept: Results that are kept for such calls.
        results_dropped: Those that were dropped because newer ones needed their place.
    """

    calls: int
    answered: int
    failed: dict[str, int]
    cancelled: int
    under_way: int
    clients: int
    late: int
    malformed: int
    refused_clients: int
    repeated: int
    results_kept: int
    results_dropped: int


@final
@attrs.frozen(kw_only=True)
class ServingLimits:
    """The limits of a service; see `Server.serve`.

    Raises:
        ConfigurationError: One is no limit.
    """

    calls_limit: int
    calls_at_once: int
    clients_limit: int
    patience_s: float
    payload_max: int
    window_items: int
    window_bytes: int
    keep_results: int
    keep_results_bytes: int
    cancel_grace_s: float

    def __attrs_post_init__(self) -> None:
        for name in ("clients_limit", "keep_results_bytes"):
            check_limit(getattr(self, name), name)
        for name in ("calls_limit", "calls_at_once"):
            check_number(getattr(self, name), name, minimum=1, maximum=NUMBER_MAX)
        check_number(self.payload_max, "payload_max", minimum=1, maximum=INT64_MAX)
        check_window(self.window_items, self.window_bytes)
        check_number(self.keep_results, "keep_results", minimum=0)
        check_seconds(self.patience_s, "patience")
        check_seconds(self.cancel_grace_s, "cancel_grace")
