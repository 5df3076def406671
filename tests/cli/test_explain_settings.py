"""Which settings `aeron-async explain` shows for a channel, and who said each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aeron_async.protocol.parameters import PARAMETERS

if TYPE_CHECKING:
    import pytest

    from tests.cli.explainer import Explainer


def test_a_setting_comes_from_the_channel_the_environment_or_the_default(
    explained: Explainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AERON_MTU_LENGTH", "8k")
    monkeypatch.setenv("AERON_RCV_STATUS_MESSAGE_TIMEOUT", "100ms")
    settings = explained.settings("aeron:udp?endpoint=10.0.0.5:20121|term-length=64k")
    assert settings["mtu"] == ("P", "8k", "AERON_MTU_LENGTH")
    assert settings["term-length"] == ("P", "64k", "channel")
    assert settings["linger"] == ("P", "5s", "default")
    assert settings["aeron.rcv.status.message.timeout"] == (
        "S",
        "100ms",
        "AERON_RCV_STATUS_MESSAGE_TIMEOUT",
    )


def test_the_channel_beats_the_environment(
    explained: Explainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AERON_MTU_LENGTH", "8k")
    assert explained.settings("aeron:udp?endpoint=h:1|mtu=4k")["mtu"] == ("P", "4k", "channel")


def test_what_depends_on_another_setting_is_worked_out(explained: Explainer) -> None:
    settings = explained.settings("aeron:udp?endpoint=10.0.0.5:20121|term-length=64k")
    assert settings["pub-wnd"][1] == "32k, half a term"
    assert settings["rcv-wnd"][1] == "128k, here 32k"
    large = explained.settings("aeron:udp?endpoint=h:1|term-length=1m")
    assert large["rcv-wnd"][1] == "128k, growing to 512k"
    small = explained.settings("aeron:udp?endpoint=h:1|rcv-wnd=auto|so-rcvbuf=512k")
    assert small["rcv-wnd"][1] == "128k, growing to 256k"
    smaller = explained.settings("aeron:udp?endpoint=h:1|rcv-wnd=auto|so-rcvbuf=64k")
    assert smaller["rcv-wnd"][1] == "128k, here 64k"
    chosen = explained.settings("aeron:udp?endpoint=h:1|rcv-wnd=1m|so-rcvbuf=1m|term-length=64k")
    assert chosen["rcv-wnd"][1] == "1m, here 32k"
    assert settings["so-sndbuf"][1] == "the system's"
    assert (settings["gtag"][1], settings["cc"][1]) == ("none", "static")
    assert settings["session-id"][1] == "any"
    assert explained.settings("aeron:udp?endpoint=h:1")["rcv-wnd"][1] == "128k, growing to 2m"
    assert explained.settings("aeron:ipc")["pub-wnd"] == ("P", "32m, half a term", "default")


def test_settings_of_groups_are_shown_for_groups_only(explained: Explainer) -> None:
    assert not {"ttl", "fc", "max-resend"} & explained.settings("aeron:udp?endpoint=h:1").keys()
    group = explained.settings("aeron:udp?control-mode=manual")
    assert {"ttl", "fc", "max-resend"} <= group.keys()
    assert group["fc"] == ("P", "max", "default")


def test_every_parameter_that_counts_is_shown(explained: Explainer) -> None:
    settings = explained.settings("aeron:udp?endpoint=h:1|stream-id=3")
    shown = {name for name in settings if name in PARAMETERS}
    assert shown == {
        "mtu",
        "term-length",
        "init-term-id",
        "term-id",
        "term-offset",
        "session-id",
        "linger",
        "eos",
        "reliable",
        "rejoin",
        "group",
        "rcv-wnd",
        "so-sndbuf",
        "so-rcvbuf",
        "cc",
        "gtag",
        "nak-delay",
        "pub-wnd",
        "stream-id",
        "ssc",
        "tether",
    }


def test_parameters_that_seldom_count_are_shown_where_they_do(explained: Explainer) -> None:
    resting = "untethered-resting-timeout"
    assert resting not in explained.settings("aeron:udp?endpoint=h:1")
    for channel in ("aeron:udp?endpoint=h:1", "aeron:ipc?"):
        assert explained.settings(f"{channel}|tether=false".replace("?|", "?"))[resting][1] == "10s"
    given = explained.settings("aeron:udp?endpoint=h:1|channel-snd-ts-offset=8")
    assert given["channel-snd-ts-offset"] == ("P", "8", "channel")


def test_settings_of_the_driver_for_groups_are_shown_for_groups(explained: Explainer) -> None:
    name = "aeron.nak.multicast.max.backoff"
    assert name not in explained.settings("aeron:udp?endpoint=h:1")
    assert explained.settings("aeron:udp?endpoint=224.0.1.1:1|interface={lo}")[name][1] == "10ms"
