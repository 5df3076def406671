"""Bugs to be planted: each takes a piece of the real code and gets one thing wrong."""

from __future__ import annotations
import __future__

import inspect
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

from aeron_async.client import subscription
from aeron_async.client.batch_offer import BatchOffer
from aeron_async.client.image import Image
from aeron_async.driver.core import (
    data_packet_dispatcher,
    image_gaps,
    loss_detector,
    publication_image,
)
from aeron_async.driver.core.congestion_control import auto_window
from aeron_async.driver.core.network_publication import NetworkPublication
from aeron_async.driver.core.publication_image import PublicationImage
from aeron_async.driver.core.retransmit_handler import RetransmitHandler
from aeron_async.driver.images import Images
from tests.support.swarm import run_seed
from tests.twins import pure

placing = pure("logbuffer.placing")
rebuilder = pure("logbuffer.rebuilder")
lanes = pure("driver.core.lanes")
message_delivery = pure("client.message_delivery")

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tests.support.run import Outcome

__all__ = ["MUTANTS", "Mutant"]

TROUBLES = frozenset(
    {"partition", "one_way", "flapping", "pause", "crash", "restart", "jump", "drift"}
    | {"send_errors", "bursts", "corruption", "collision", "churn", "hostile", "forger"}
)
"""Features without which all may be expected to come on time."""


class Mutant(NamedTuple):
    """One wrong version of one function.

    `changes` are pairs of what is right and what takes its place; `owner` is the class or module
    that holds the function, `others` are modules that have imported it by name, and `plain` says
    what is called in the place of what would not call it.
    Worlds that are to find it have `features`, and none of `TROUBLES` if it `is_calm`.
    """

    name: str
    owner: Any
    function: str
    changes: tuple[tuple[str, str], ...]
    others: tuple[Any, ...] = ()
    features: frozenset[str] = frozenset()
    is_calm: bool = False
    plain: tuple[tuple[Any, str, Any], ...] = ()

    def run(self, seed: int) -> Outcome:
        """Run a world with all that it takes to find the bug, and with no trouble if it is calm."""
        return run_seed(seed, TROUBLES if self.is_calm else frozenset(), self.features)

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the wrong version in the place of the right one."""
        original = getattr(self.owner, self.function)
        source = textwrap.dedent(inspect.getsource(original))
        for right, wrong in self.changes:
            assert source.count(right) == 1, f"{self.name}: the code has changed"
            source = source.replace(right, wrong)
        code = compile(
            source,
            f"<{self.name}>",
            "exec",
            flags=__future__.annotations.compiler_flag,
        )
        namespace: dict[str, Any] = {}
        exec(code, original.__globals__, namespace)  # noqa: S102 - our own code, one word changed
        planted: Callable[..., Any] = namespace[self.function]
        for owner in (self.owner, *self.others):
            monkeypatch.setattr(owner, self.function, planted)
        for owner, name, function in self.plain:
            monkeypatch.setattr(owner, name, function)


# The lane in Python, where it is compiled, too.
BY_PLAIN_LANES = ((data_packet_dispatcher, "ReceiveLane", lanes.ReceiveLane),)

MUTANTS = (
    Mutant(
        "a duplicate of what was consumed is placed again",
        PublicationImage,
        "insert_packet",
        (
            ("position < feedback.last_sm_position", "position < 0"),
            ("position >= self.hwm_position", "position >= 0"),
        ),
        features=frozenset({"duplication"}),
    ),
    Mutant(
        "a gap that reaches the end of its term is taken for its end",
        rebuilder,
        "scan_for_gap",
        (
            (
                "    start = offset + FRAME_ALIGNMENT\n",
                (
                    "    if limit == len(words) << 2:\n        return limit, 0\n"
                    "    start = offset + FRAME_ALIGNMENT\n"
                ),
            ),
        ),
        (image_gaps, loss_detector),
    ),
    Mutant(
        "a range that was resent once is never resent again",
        RetransmitHandler,
        "_answer",
        (("action.expiry_ns = now_ns + linger_ns", "action.expiry_ns = 2**63 - 1"),),
    ),
    Mutant(
        "the window of a receiver counts from what was sent, not from what it has consumed",
        NetworkPublication,
        "on_status_message_fast",
        (
            (
                "edge = min(sent_position, position) + window_length",
                "edge = sent_position + window_length",
            ),
        ),
    ),
    Mutant(
        "a reader says that it has read more than it has",
        Image,
        "_move_trigger",
        (
            (
                "    self._trigger = self._port.consumption_trigger\n",
                (
                    "    self._cell[0] = self._position + 32\n"
                    "    self._trigger = self._port.consumption_trigger\n"
                ),
            ),
        ),
    ),
    Mutant(
        "a run is placed beyond what may be placed",
        PublicationImage,
        "insert_packets_fast",
        (("limit = feedback.overrun_threshold - position", "limit = log.term_length"),),
    ),
    Mutant(
        "a run is placed where its readers have been",
        PublicationImage,
        "insert_packets_fast",
        (
            ("position < self.rebuild_position", "position < 0"),
            ("position < feedback.last_sm_position", "position < 0"),
        ),
    ),
    Mutant(
        "a run takes one datagram more than it has looked at",
        placing,
        "place_batch",
        (
            (
                "_is_uniform(headers, length, step, offset)",
                "_is_uniform(headers, length - segment_length, step, offset)",
            ),
        ),
        # The plain version, also where there is a compiled one.
        plain=((publication_image, "place_batches", placing.place_batches),),
    ),
    Mutant(
        "a list leaves one message out between two of its pieces",
        BatchOffer,
        "_offer_list",
        (("self.accepted += count\n", "self.accepted += count + (count > 1)\n"),),
    ),
    Mutant(
        "a handler is not called again for what is left behind a turn's messages",
        message_delivery.Delivering,
        "_deliver",
        (("is_more = not left\n", "is_more = False\n"),),
        plain=((subscription, "MessageDelivery", message_delivery.MessageDelivery),),
    ),
    Mutant(
        "a window grows beyond half a term",
        auto_window,
        "longest_window",
        (("min(AUTO_WINDOW_MAX_LENGTH, term_length // 2)", "4 * AUTO_WINDOW_MAX_LENGTH"),),
    ),
    Mutant(
        "a lane drops what it cannot take",
        lanes.ReceiveLane,
        "take",
        (
            (
                "is_expecting = False\n        return False\n",
                "is_expecting = False\n        return True\n",
            ),
        ),
        plain=BY_PLAIN_LANES,
    ),
    Mutant(
        "a lane takes any frame of its term for the next one",
        PublicationImage,
        "insert_alone_fast",
        (
            (
                "if not self._is_next(term_id, term_offset, now_ns):",
                "if now_ns >= self._calm_until_ns:",
            ),
            ("self.advance_rebuild_position_fast(now_ns)", "self.rebuild_position += placed"),
        ),
        plain=BY_PLAIN_LANES,
    ),
    Mutant(
        "a lane wakes nobody",
        PublicationImage,
        "insert_alone_fast",
        (
            (
                "    self.advance_rebuild_position_fast(now_ns)\n",
                "    self.rebuild_position = self.hwm_position\n",
            ),
        ),
        plain=BY_PLAIN_LANES,
    ),
    Mutant(
        "an image that has ended keeps its counters",
        Images,
        "on_image_done",
        (("image.counters.close()", "pass"),),
    ),
)
