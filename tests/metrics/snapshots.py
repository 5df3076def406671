"""Snapshots for the tests of metrics, and pages as the parser of prometheus_client reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.stats import CallStats
from tests import snapshots
from tests.snapshots import (
    ARCHIVE,
    DRIVER,
    IMAGE,
    PUBLICATION,
    SUBSCRIPTION,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.stats import (
        DriverStats,
        ImageStats,
        PublicationStats,
        Stats,
        SubscriptionStats,
    )

SECOND_NS = snapshots.SECOND_NS
CHANNEL = "aeron:udp?endpoint=127.0.0.1:20121"


def publication(registration_id: int, sent: int | None = 0, **fields: Any) -> PublicationStats:
    """Return a publication; each has labels of its own unless they are given."""
    named: dict[str, Any] = {"stream_id": registration_id, "sender_position": sent, **fields}
    return attrs.evolve(PUBLICATION, registration_id=registration_id, **named)


def image(registration_id: int, **fields: Any) -> ImageStats:
    named: dict[str, Any] = {"stream_id": registration_id, "losses": (), **fields}
    return attrs.evolve(IMAGE, registration_id=registration_id, **named)


def subscription(registration_id: int, **fields: Any) -> SubscriptionStats:
    named: dict[str, Any] = {"stream_id": registration_id, **fields}
    return attrs.evolve(SUBSCRIPTION, registration_id=registration_id, **named)


def snapshot(
    publications: Sequence[PublicationStats] = (),
    images: Sequence[ImageStats] = (),
    subscriptions: Sequence[SubscriptionStats] = (),
    *,
    driver: DriverStats = DRIVER,
    at_s: int = 1,
) -> Stats:
    return snapshots.snapshot(
        publications, images, subscriptions, driver=driver, at_ns=at_s * SECOND_NS
    )


def everything(at_s: int = 1) -> Stats:
    """Return a snapshot that has a value for every metric."""
    driver = attrs.evolve(
        DRIVER,
        loop_lags=tuple(range(40)),
        counters={"socket_drops": 4, "invalid_packets": 3, "foreign_packets": 2},
    )
    taken = snapshot([PUBLICATION], [IMAGE], [SUBSCRIPTION], driver=driver, at_s=at_s)
    calls = CallStats("orders", "place", {"answered": 5, "NOT_FOUND": 1}, 2, 3 * SECOND_NS)
    return taken.with_archive(ARCHIVE).with_calls([calls])


def samples(page: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return every value of a page by name and labels, as another program reads them."""
    parser = pytest.importorskip(
        "prometheus_client.parser", reason="pip install 'aeron-async[prometheus]'"
    )
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in parser.text_string_to_metric_families(page):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, f"twice: {key}"
            found[key] = sample.value
    return found


def values_of(page: str, name: str) -> dict[str, float]:
    """Return the values of a metric whose series differ in the label `stream` only."""
    return {
        dict(labels)["stream"]: value
        for (found, labels), value in samples(page).items()
        if found == name
    }
