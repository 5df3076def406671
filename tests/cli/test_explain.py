from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from aeron_async.cli.main import main

if TYPE_CHECKING:
    from tests.cli.explainer import Explainer


# Where.


def test_a_unicast_publication(explained: Explainer) -> None:
    facts = explained.facts("aeron:udp?endpoint=10.0.0.5:20121", "publication")
    assert facts["binds"] == "0.0.0.0, a port of the system's choice"
    assert facts["connects"].startswith("to 10.0.0.5:20121")
    assert facts["sends"] == "SETUP, data and heartbeats to 10.0.0.5:20121"
    assert facts["hears"] == "status messages and NAKs from 10.0.0.5:20121"
    assert facts["identity"].startswith("UDP-0.0.0.0:0-10.0.0.5:20121;")


@pytest.mark.parametrize(
    ("channel", "bound"),
    [
        ("aeron:udp?endpoint=[::1]:9000", "[::], a port of the system's choice"),
        ("aeron:udp?endpoint=host:9000", "every local address of the family that host resolves"),
        ("aeron:udp?endpoint=10.0.0.5:9000|control=10.0.0.1:9001", "10.0.0.1:9001"),
        ("aeron:udp?endpoint=10.0.0.5:9000|interface=10.0.0.1", "10.0.0.1:0, a port of the"),
        ("aeron:udp?endpoint=10.0.0.5:9000|interface=10.0.0.1:9002", "10.0.0.1:9002"),
    ],
)
def test_what_a_publication_binds(channel: str, bound: str, explained: Explainer) -> None:
    assert explained.facts(channel, "publication")["binds"].startswith(bound)
    assert explained(channel)["publication"]["is_supported"]


def test_a_unicast_subscription(explained: Explainer) -> None:
    facts = explained.facts("aeron:udp?endpoint=10.0.0.5:20121", "subscription")
    assert facts["binds"] == "10.0.0.5:20121"
    assert "from that same port" in facts["sends"]
    assert "share the socket" in facts["identity"]


def test_a_subscription_may_leave_the_port_to_the_system(explained: Explainer) -> None:
    whole = explained("aeron:udp?endpoint=10.0.0.5:0")
    assert "needs the port to send to" in whole["publication"]["refusal"]
    assert whole["publication"]["facts"] == []
    facts = explained.facts("aeron:udp?endpoint=10.0.0.5:0", "subscription")
    assert "the system's choice" in facts["binds"]
    assert facts["identity"].startswith("UDP-0.0.0.0:0-10.0.0.5:0-N, ")
    tagged = explained.facts("aeron:udp?endpoint=10.0.0.5:0|tags=4", "subscription")
    assert tagged["identity"].startswith("UDP-0.0.0.0:0-10.0.0.5:0#4;")


def test_multicast_is_explained(explained: Explainer) -> None:
    channel = "aeron:udp?endpoint=224.0.1.1:40456|interface=10.0.0.1/24|ttl=4"
    whole = explained(channel)
    for role in ("publication", "subscription"):
        assert whole[role]["is_supported"]
    publication = explained.facts(channel, "publication")
    assert publication["joins"] == "the control group 224.0.1.2:40456"
    assert "10.0.0.1/24" in publication["binds"]
    subscription = explained.facts(channel, "subscription")
    assert subscription["joins"] == "224.0.1.1:40456 on 10.0.0.1/24"
    assert subscription["sends"] == "status messages and NAKs to 224.0.1.2:40456"
    assert explained.settings(channel)["ttl"] == ("PS", "4", "channel")


@pytest.mark.parametrize(
    ("channel", "publication", "subscription"),
    [
        ("aeron:udp?tags=4", "nothing of its own", "nothing of its own"),
        (
            "aeron:udp?control-mode=manual",
            "the wildcard address",
            "nothing, until destinations",
        ),
        (
            "aeron:udp?control-mode=manual|control=10.0.0.1:1",
            "10.0.0.1:1",
            "nothing, until destinations",
        ),
        (
            "aeron:udp?control=10.0.0.1:1|control-mode=dynamic",
            "10.0.0.1:1",
            "the wildcard address",
        ),
        (
            "aeron:udp?control=10.0.0.1:1|control-mode=dynamic|endpoint=10.0.0.2:2",
            "10.0.0.1:1",
            "10.0.0.2:2",
        ),
        (
            "aeron:udp?control=10.0.0.1:1|control-mode=response|response-correlation-id=4",
            "10.0.0.1:1",
            "the wildcard address",
        ),
        (
            "aeron:udp?control-mode=response|response-correlation-id=4",
            "the wildcard address",
            "the wildcard address",
        ),
    ],
)
def test_every_mode_says_what_it_binds(
    channel: str, publication: str, subscription: str, explained: Explainer
) -> None:
    assert explained.facts(channel, "publication")["binds"].startswith(publication)
    assert explained.facts(channel, "subscription")["binds"].startswith(subscription)
    for role in ("publication", "subscription"):
        assert explained(channel)[role]["is_supported"]


def test_ipc_binds_nothing(explained: Explainer) -> None:
    for role in ("publication", "subscription"):
        assert explained.facts("aeron:ipc", role)["binds"].startswith("nothing: messages")
        assert explained("aeron:ipc")[role]["is_supported"]


def test_a_spy_is_a_subscription_only(explained: Explainer) -> None:
    whole = explained("aeron-spy:aeron:udp?endpoint=10.0.0.5:20121")
    assert "for subscriptions" in whole["publication"]["refusal"]
    assert whole["subscription"]["is_supported"]
    assert [setting["name"] for setting in whole["settings"]] == ["session-id", "tether"]
    facts = {fact["what"]: fact["text"] for fact in whole["subscription"]["facts"]}
    assert facts.keys() == {"binds", "hears"}
    assert whole["advice"] == []


@pytest.mark.parametrize(
    ("channel", "role", "part"),
    [
        ("aeron:udp?endpoint=10.0.0.5:1|cc=reno", "subscription", "no congestion control 'reno'"),
    ],
)
def test_what_one_role_lacks_is_said_of_that_role(
    channel: str, role: str, part: str, explained: Explainer
) -> None:
    whole = explained(channel)
    other = {"publication": "subscription", "subscription": "publication"}[role]
    assert part in whole[role]["unsupported"]
    assert whole[other]["is_supported"]


@pytest.mark.parametrize("parameter", ["ats=true"])
def test_what_the_driver_refuses_is_said_to_be_missing(
    parameter: str, explained: Explainer
) -> None:
    whole = explained(f"aeron:udp?endpoint=h:20121|{parameter}")
    for role in ("publication", "subscription"):
        assert parameter.partition("=")[0] in whole[role]["unsupported"]


def test_a_channel_that_neither_role_can_have_is_bad_usage(explained: Explainer) -> None:
    whole = explained("aeron:udp?endpoint=10.0.0.5:0|session-id=tag:3", code=2)
    assert whole["publication"]["refusal"]
    assert whole["subscription"]["refusal"]
    assert whole["settings"] == []


def test_a_window_that_does_not_fit_the_driver_is_refused(
    explained: Explainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AERON_TERM_BUFFER_LENGTH", "64k")
    whole = explained("aeron:udp?endpoint=10.0.0.5:20121|pub-wnd=1m")
    assert "pub-wnd" in whole["publication"]["refusal"]


# Worth a second look.


@pytest.mark.parametrize(
    ("channel", "part"),
    [
        ("aeron:udp?endpoint=0.0.0.0:20121", "is the wildcard address"),
        ("aeron:udp?endpoint=127.0.0.1:20121", "is this machine"),
        ("aeron:udp?endpoint=localhost:20121", "two channels that need one port"),
        ("aeron:udp?endpoint=h:0", "local_address"),
        ("aeron:udp?endpoint=h:80", "below 1024"),
        ("aeron:udp?endpoint=h:40123", "hands out by itself"),
        ("aeron:udp?endpoint=h:20121|mtu=8k", "exceeds 1472"),
        ("aeron:udp?endpoint=h:20121|rcv-wnd=64k|term-length=64k", "grants 32k only"),
        ("aeron:udp?endpoint=h:20121|rcv-wnd=256k", "rmem_max"),
        ("aeron:udp?endpoint=h:20121|rcv-wnd=1k", "no receiver with that window"),
        ("aeron:udp?endpoint=h:20121|term-length=1g", "3g of memory"),
        ("aeron:udp?endpoint=h:20121|reliable=false", "never asked for again"),
        ("aeron:udp?endpoint=h:20121|linger=0", "repairs nothing"),
        ("aeron:udp?endpoint=h:20121|session-id=5", "hears no other session"),
        ("aeron:udp?endpoint=h:20121|sparse=true", "sparse has no effect: this version"),
        ("aeron:udp?endpoint=224.0.1.1:9|fc=min", "fc counts for publications only"),
        ("aeron:udp?endpoint=224.0.1.1:9|gtag=4", "gtag counts for subscriptions only"),
        (
            "aeron:udp?endpoint=h:20121|mtu=8k|rcv-wnd=128k|so-rcvbuf=128k",
            (
                "so-rcvbuf=128k holds 15 datagrams of mtu=8k, as Linux counts them, and "
                "rcv-wnd=128k invites 16: set so-rcvbuf=130k, and net.core.rmem_max to as much"
            ),
        ),
        ("aeron:udp?endpoint=h:20121|interface=lo", "in braces: interface={lo}"),
        ("aeron:udp?endpoint=h:20121|ttl=4", "ttl has no effect: it is for groups"),
    ],
)
def test_classic_mistakes_are_pointed_out(channel: str, part: str, explained: Explainer) -> None:
    assert part in explained.advice(channel)


@pytest.mark.parametrize(
    "channel",
    [
        "aeron:udp?endpoint=10.0.0.5:20121",
        "aeron:udp?endpoint=10.0.0.5:20121|interface={lo}",
        "aeron:udp?endpoint=10.0.0.5:20121|interface=here.example.org",
        "aeron:udp?endpoint=10.0.0.5:20121|interface=localhost",
        "aeron:udp?endpoint=10.0.0.5:20121|interface=10.0.0.0/8",
        "aeron:udp?endpoint=some-host:20121|term-length=1m|alias=orders",
        "aeron:udp?endpoint=10.0.0.5:20121|rcv-wnd=1m|so-rcvbuf=0",
        "aeron:udp?endpoint=10.0.0.5:20121|rcv-wnd=128k|so-rcvbuf=128k",
        "aeron:ipc?term-length=64k",
        "aeron:udp?control-mode=manual",
    ],
)
def test_there_is_no_advice_where_nothing_is_odd(channel: str, explained: Explainer) -> None:
    assert explained.advice(channel) == ""


def test_a_long_datagram_is_fine_within_one_machine(explained: Explainer) -> None:
    assert "1472" not in explained.advice("aeron:udp?endpoint=localhost:20121|mtu=8k")


# For people.


def test_people_read_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["explain", "aeron:udp?endpoint=localhost:0|mtu=8k", "--settings"]) == 0
    out = capsys.readouterr().out
    for part in (
        "As a publication",
        "refused",
        "As a subscription",
        "localhost:0, a port of the system's choice",
        "Settings",
        "Longest interval between two status messages",
        "Worth a second look",
    ):
        assert part in out
    assert "\x1b" not in out
    assert main(["explain", "aeron:udp?endpoint=10.0.0.1:20121|ats=true"]) == 0
    out = capsys.readouterr().out
    assert "but not yet" in out
    assert "Worth a second look" not in out


def test_what_needs_a_second_look_comes_first_and_defaults_are_counted(
    capsys: pytest.CaptureFixture[str], explained: Explainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("AERON_RCV_STATUS_MESSAGE_TIMEOUT", "150ms")
    channel = "aeron:udp?endpoint=localhost:20121|mtu=8k"
    count = len(explained.settings(channel))
    assert main(["explain", channel]) == 0
    out = capsys.readouterr().out
    titles = ("\nWorth a second look\n", "\nAs a publication\n", "\nAs a sub", "\nSettings\n")
    places = [out.index(title) for title in titles]
    assert places == sorted(places)
    rows = out[places[-1] :].splitlines()
    names = [row.split()[0] for row in rows[4:-1] if row[1].strip()]
    assert names == ["mtu", "aeron.rcv.status.message.timeout"]
    assert rows[-1] == f"  at their defaults: {count - 2}; --settings shows them"


def test_a_channel_with_nothing_but_defaults_has_no_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", "aeron:ipc"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "Settings"
    assert lines[-1].startswith("  at their defaults: ")


@pytest.mark.parametrize(("columns", "width"), [("80", 80), ("", 100), ("140", 140)])
def test_a_narrow_place_costs_meanings_and_never_values(
    columns: str,
    width: int,
    capsys: pytest.CaptureFixture[str],
    explained: Explainer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("AERON_RCV_STATUS_MESSAGE_TIMEOUT", "150ms")
    channel = "aeron:udp?endpoint=127.0.0.1:20121"
    settings = explained.settings(channel)
    assert main(["explain", channel, "--settings"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    rows = [line.split() for line in out.partition("Settings")[2].splitlines()]
    for name, (roles, value, _origin) in settings.items():
        assert [name, roles, *value.split()] in [row[: 2 + len(value.split())] for row in rows]
    assert "..." not in out
    assert "…" not in out
    assert ("meaning" in out) == (width > 100)


def test_several_channels_are_explained_one_after_the_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    channels = ["aeron:udp?endpoint=10.0.0.5:20121", "aeron:udp?endpoint=10.0.0.6:20121"]
    assert main(["explain", *channels]) == 0
    out = capsys.readouterr().out
    assert all(f"{channel}\n" in out for channel in channels)
    assert main(["explain", *channels, "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["channel"] for line in lines] == channels
    assert main(["explain", channels[0], "aeron:udp?endpoint=10.0.0.5:0|session-id=tag:3"]) == 2


@pytest.mark.parametrize("interface", ["10.0.0.0/8", "{eth0}"])
def test_an_interface_is_shown_as_it_is_written(interface: str, explained: Explainer) -> None:
    channel = f"aeron:udp?endpoint=10.0.0.5:1|interface={interface}"
    assert explained(channel)["publication"]["is_supported"]
    facts = explained.facts(channel, "publication")
    assert facts["binds"] == f"the best address of interface {interface}"
    assert "identity" not in facts
