"""What a seed stands for: always the same, and feature by feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from aeron_async.logbuffer.position import max_message_length
from aeron_async.protocol.channel_uri import ChannelUri
from tests.sim.scenarios import scenarios
from tests.support.draw import draw_scenario
from tests.support.scenario import FEATURES, TroubleKind

if TYPE_CHECKING:
    from collections.abc import Iterator

TROUBLES = {"troubles", "duration_ns"}
SHARING = {"streams.parameters", "streams.lengths", "streams.is_exclusive"}
# What a feature may change; whoever shares a publication also has its parameters and lengths.
CHANGES: dict[str, set[str]] = {
    "bandwidth": {"conditions.bandwidth"},
    "bursts": {"conditions.bursts"},
    "handlers": {"readers.kind"},
    "lists": {"streams.has_lists"},
    "columns": {"streams.has_columns"},
    "turns": {"readers.kind", "readers.linger_ns", "readers.leave_chance"},
    "destinations": {
        *SHARING,
        "streams.destinations",
        "readers.is_spread",
        "readers.host",
    },
    "silence": set(),
    "rejoin": set(),
    "window_auto": {"readers.parameters"},
    "cancellation": {"streams.cancel_chance"},
    "churn": {"readers.lives_ns"},
    "claims": {"streams.has_claims"},
    "collision": {"streams", "readers"},
    "corruption": {"conditions.corruption"},
    "crash": TROUBLES,
    "delay": {"conditions.delay_ns"},
    "drift": TROUBLES,
    "duplication": {"conditions.duplication"},
    "end_of_positions": SHARING,
    "exclusive": SHARING,
    "first_frames": {"first_frames"},
    "flapping": TROUBLES,
    "hostile": set(),
    "jitter": {"conditions.jitter_ns"},
    "jump": TROUBLES,
    "large_messages": {"streams.lengths", "streams.gap_ns"},
    "late_join": {"readers.starts_at_ns"},
    "loss": {"conditions.loss"},
    "min_flow_control": {"streams.parameters"},
    "multicast": {
        "streams.is_multicast",
        "streams.parameters",
        "streams.is_exclusive",
        "streams.lengths",
        "streams.destinations",
        "readers.is_spread",
        "readers.is_multicast",
        "readers.host",
    },
    "one_way": TROUBLES,
    "partition": TROUBLES,
    "pause": TROUBLES,
    "polling": {"readers.kind"},
    "reordering": {"conditions.reordering"},
    "restart": TROUBLES,
    "forger": set(),
    "runs": set(),
    "send_errors": TROUBLES,
    "several_terms": {"streams.parameters", "streams.lengths", "streams.gap_ns"},
    "slow_reader": {"readers.stalls"},
    "small_mtu": {"streams.parameters"},
    "term_id_wrap": SHARING,
    "unreliable": {"readers.parameters", "readers.is_reliable"},
    "windows": {"streams.parameters", "readers.parameters"},
}


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Yield the paths at which two values differ."""
    if one == other:
        return
    if attrs.has(type(one)) and type(one) is type(other) and path.count(".") == 0:
        for name in attrs.fields_dict(type(one)):
            inner = f"{path}.{name}" if path else name
            yield from differences(getattr(one, name), getattr(other, name), inner)
    elif isinstance(one, tuple) and len(one) == len(other) and "." not in path:
        for mine, theirs in zip(one, other, strict=True):
            yield from differences(mine, theirs, path)
    else:
        yield path


@pytest.mark.parametrize("feature", FEATURES)
def test_a_scenario_without_a_feature_differs_in_nothing_else(feature: str) -> None:
    allowed = CHANGES[feature] | {"features"}
    seen = 0
    for scenario in scenarios():
        if feature not in scenario.features:
            continue
        seen += 1
        without = draw_scenario(scenario.seed, without=frozenset({feature}))
        assert without.features == scenario.features - {feature}
        found = {
            path
            for path in differences(scenario, without)
            if path not in allowed and path.partition(".")[0] not in allowed
        }
        assert not found, scenario.seed
    assert seen, "no seed has it"


def test_a_seed_always_stands_for_the_same() -> None:
    for scenario in scenarios()[:20]:
        assert draw_scenario(scenario.seed) == scenario
        assert draw_scenario(scenario.seed + 1) != scenario


def test_every_kind_of_trouble_is_made() -> None:
    assert {each.kind for scenario in scenarios() for each in scenario.troubles} == set(TroubleKind)


def test_some_seeds_have_few_features_and_some_many() -> None:
    counts = [len(scenario.features) for scenario in scenarios()]
    assert min(counts) <= 1
    assert max(counts) >= len(FEATURES) // 3


def test_a_scenario_without_any_feature_is_a_quiet_one() -> None:
    scenario = draw_scenario(5, without=frozenset(FEATURES))
    assert scenario.features == frozenset()
    assert scenario.troubles == ()
    assert all(conditions.is_lossless for conditions in scenario.conditions)
    assert scenario.is_exact
    assert not scenario.may_lose_images
    assert all(reader.is_reliable and not reader.stalls for reader in scenario.readers)


def test_all_that_is_drawn_can_be_run() -> None:
    for scenario in scenarios():
        hosts = range(scenario.host_count)
        assert scenario.streams
        assert scenario.readers
        for stream in scenario.streams:
            ChannelUri.parse(f"aeron:udp?endpoint=host:1|{stream.parameters}").check_publication()
            parameters = dict(each.split("=") for each in stream.parameters.split("|"))
            term_length = int(parameters["term-length"])
            assert stream.host in hosts
            assert stream.endpoint_host in hosts
            assert stream.gap_ns > 0
            assert max(stream.lengths) <= max_message_length(term_length)
        for reader in scenario.readers:
            assert reader.host in hosts
        for trouble in scenario.troubles:
            assert trouble.host in hosts
            assert trouble.at_ns + trouble.duration_ns <= scenario.duration_ns
            assert trouble.duration_s == trouble.duration_ns / 1e9


def test_troubles_come_in_order() -> None:
    for scenario in scenarios():
        starts = [trouble.at_ns for trouble in scenario.troubles]
        assert starts == sorted(starts)
