"""What `aeron-async explain` says of pace, connection, answers, tags and repair."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from aeron_async.cli.explain_roles import pace_facts
from aeron_async.cli.main import main
from aeron_async.driver.core.context import DriverContext
from aeron_async.flow_control import UnicastFlowControl
from aeron_async.protocol.channel_uri import ChannelUri

if TYPE_CHECKING:
    from collections.abc import Callable

    from aeron_async.flow_control import FlowControlParams

UNICAST = "aeron:udp?endpoint=10.0.0.5:20121"
GROUP = "aeron:udp?endpoint=224.20.30.39:20121"
DYNAMIC = "aeron:udp?control=10.0.0.1:20122|control-mode=dynamic"
MANUAL = "aeron:udp?control-mode=manual"
RESPONSE = "aeron:udp?control=10.0.0.1:20122|control-mode=response"

Facts = dict[str, list[str]]


@pytest.fixture
def explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], Facts]:
    for setting in DriverContext.settings().values():
        monkeypatch.delenv(setting.env_name, raising=False)

    def facts(channel: str, role: str) -> Facts:
        assert main(["explain", channel, "--json"]) == 0
        explained: dict[str, Any] = json.loads(capsys.readouterr().out)
        found: Facts = {}
        for fact in explained[role]["facts"]:
            found.setdefault(fact["what"], []).append(fact["text"])
        return found | {"unsupported": [explained[role]["unsupported"]]}

    return facts


@pytest.mark.parametrize(
    ("channel", "pacer", "connected"),
    [
        (UNICAST, "its one receiver", "when a receiver is there"),
        (f"{UNICAST}|ssc=true", "its one receiver", "when a receiver is there, or a spy"),
        (GROUP, "the fastest receiver; it waits for no other (max)", "when a receiver is there"),
        (
            f"{GROUP}|fc=min,t:2s,g:/3",
            "the slowest receiver; it waits for a silent one for 2s (min)",
            "when 3 receivers are there",
        ),
        (
            f"{DYNAMIC}|fc=tagged,g:101/2",
            "the slowest receiver with gtag=101; it waits for a silent one for 5s (tagged)",
            "when 2 receivers with gtag=101 are there",
        ),
        (f"{MANUAL}|fc=max", "the fastest receiver", "when a receiver is there"),
        (f"{RESPONSE}|response-correlation-id=7", "its one receiver", "when a receiver is there"),
        ("aeron:ipc", "the slowest of its subscriptions", "when a subscription of this driver"),
    ],
)
def test_a_publication_says_who_sets_its_pace_and_who_must_be_there(
    channel: str, pacer: str, connected: str, explained: Callable[[str, str], Facts]
) -> None:
    facts = explained(channel, "publication")
    assert facts["paced by"][0].startswith(pacer)
    assert facts["connected"][0].startswith(connected)
    assert facts["unsupported"] == [None]


def test_a_tag_alone_is_paced_as_what_it_names(explained: Callable[[str, str], Facts]) -> None:
    facts = explained("aeron:udp?tags=7", "publication")
    assert facts["paced by"] == ["the receivers of the endpoint with its tag"]
    assert "connected" not in facts


def test_a_name_that_nobody_registered_is_said_to_be_missing(
    explained: Callable[[str, str], Facts],
) -> None:
    facts = explained(f"{GROUP}|fc=fairest,p:50", "publication")
    assert "no flow control 'fairest'" in facts["unsupported"][0]
    assert "paced by" not in facts
    assert explained(f"{GROUP}|fc=fairest,p:50", "subscription")["unsupported"] == [None]


def test_a_strategy_of_another_package_is_named() -> None:
    def fairest(params: FlowControlParams) -> Any:
        fairest = type("Fairest", (UnicastFlowControl,), {"__module__": "elsewhere"})
        return fairest(retransmit_receiver_window_multiple=16)

    context = DriverContext(multicast_flow_control_supplier=fairest)
    facts = dict(pace_facts(ChannelUri.parse(GROUP), context))
    assert facts["paced by"] == "a strategy of another package, Fairest"


@pytest.mark.parametrize(
    ("channel", "repair"),
    [
        (UNICAST, "asks after 1us and again every 100us; where the publisher says it has a group"),
        (f"{UNICAST}|nak-delay=5ms", "asks after 5ms and again every 500ms; where"),
        (f"{UNICAST}|group=true", "asks after up to 10ms, at random"),
        (f"{GROUP}|group=false", "asks after 1us and again every 100us"),
        (GROUP, "asks after up to 10ms, at random"),
        (DYNAMIC, "asks after up to 10ms, at random"),
        (MANUAL, "asks after 1us"),
        (f"{GROUP}|reliable=false", "nothing: what is lost is skipped"),
    ],
)
def test_a_subscription_says_how_it_repairs(
    channel: str, repair: str, explained: Callable[[str, str], Facts]
) -> None:
    assert explained(channel, "subscription")["repairs"][0].startswith(repair)


def test_within_a_driver_nothing_is_repaired(explained: Callable[[str, str], Facts]) -> None:
    for channel in ("aeron:ipc", f"aeron-spy:{UNICAST}"):
        assert "repairs" not in explained(channel, "subscription")


def test_both_sides_of_a_response_say_what_they_are(
    explained: Callable[[str, str], Facts],
) -> None:
    asks = explained(f"{UNICAST}|response-correlation-id=7", "publication")["asks"]
    assert asks == ["to be answered on the subscription with registration_id 7"]
    assert "asks" not in explained(f"{UNICAST}|response-correlation-id=-1", "publication")
    answers = explained(f"{RESPONSE}|response-correlation-id=9", "publication")["answers"]
    assert answers == ["the publisher of the image with correlation_id 9"]
    made_early = explained(f"{RESPONSE}|response-correlation-id=prototype", "publication")
    assert made_early["answers"] == ["no client yet: it is created in advance"]
    client = explained(RESPONSE, "subscription")
    assert client["hears"][0].startswith("only the session that answers")
    assert client["sends"] == ["status messages and NAKs to 10.0.0.1:20122"]
    without = explained("aeron:udp?control-mode=response", "subscription")
    assert without["sends"] == ["status messages and NAKs to where the answers come from"]


def test_several_destinations_make_one_image(explained: Callable[[str, str], Facts]) -> None:
    facts = explained(MANUAL, "subscription")
    assert facts["hears"][0].endswith("one session makes one image")


def test_tags_say_what_they_name(explained: Callable[[str, str], Facts]) -> None:
    for role in ("publication", "subscription"):
        socket, session = explained(f"{UNICAST}|tags=7,9", role)["is called"]
        assert socket == "7: channels with tags=7 share its socket"
        assert session.startswith("9: session-id=tag:9")
        assert len(explained(f"{UNICAST}|tags=,9", role)["is called"]) == 1
