"""What is left of a channel is what the official archive leaves of it."""

from __future__ import annotations

import pytest

from aeron_async.archive.recording_channels import recording_key, stripped_channel, without_unknown
from aeron_async.protocol.channel_uri import ChannelUri
from tests.archive.golden import ARCHIVES, facts

PAIRS = sorted(
    {
        (each["original_channel"], each["stripped_channel"])
        for name in ARCHIVES
        for each in facts().get(name, {}).get("recordings", [])
        if len(each["original_channel"]) < 4096
    }
)


@pytest.mark.parametrize(("original", "stripped"), PAIRS)
def test_golden_channels_are_stripped_alike(original: str, stripped: str) -> None:
    assert stripped_channel(ChannelUri.parse(original)) == stripped


def test_what_only_makes_a_stream_is_left_out_and_the_rest_has_the_official_order() -> None:
    uri = ChannelUri.parse(
        "aeron-spy:aeron:udp?alias=a|session-id=7|term-length=64k|mtu=1408|linger=1s|rejoin=false"
        "|control=127.0.0.1:2|endpoint=127.0.0.1:1|tags=3,4|rcv-wnd=128k|eos=false|reliable=false"
    )
    assert stripped_channel(uri) == (
        "aeron:udp?tags=3,4|endpoint=127.0.0.1:1|control=127.0.0.1:2|session-id=7|alias=a"
        "|rejoin=false|rcv-wnd=128k"
    )


def test_one_stream_has_one_key_however_it_is_made() -> None:
    one = ChannelUri.parse("aeron:udp?endpoint=127.0.0.1:1|term-length=64k|alias=x")
    other = ChannelUri.parse("aeron:udp?alias=y|endpoint=127.0.0.1:1")
    assert recording_key(one, 3) == recording_key(other, 3) == "3:aeron:udp?endpoint=127.0.0.1:1"
    assert recording_key(one, 4) != recording_key(one, 3)
    assert recording_key(one.replace(session_id=9), 3) != recording_key(one, 3)


def test_parameters_that_nobody_knows_are_left_out_where_others_send_them() -> None:
    assert without_unknown("aeron:ipc") == "aeron:ipc"
    assert without_unknown("aeron:ipc?colour=red") == "aeron:ipc"
    assert (
        without_unknown("aeron:udp?colour=red|endpoint=127.0.0.1:1|x|mtu=1408")
        == "aeron:udp?endpoint=127.0.0.1:1|mtu=1408"
    )
