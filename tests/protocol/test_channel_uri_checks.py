from __future__ import annotations

import pytest

from aeron_async.errors import ChannelUriError
from aeron_async.protocol.channel_uri import ChannelUri

LOCAL = "aeron:udp?endpoint=127.0.0.1:40456"
GROUP = "aeron:udp?endpoint=224.0.1.1:40456"


@pytest.mark.parametrize(
    "text",
    [
        "aeron:udp?tags=1",
        "aeron:udp?control-mode=manual",
        "aeron:udp?control-mode=response",
        "aeron:udp?control=localhost:1",
        "aeron:udp?control=localhost:1|control-mode=dynamic",
        f"{LOCAL}|init-term-id=2147483647|term-id=-2147483648|term-offset=0",
        f"{LOCAL}|init-term-id=5|term-id=5|term-offset=65536|term-length=64k",
        f"{LOCAL}|mtu=8k|term-length=64k|pub-wnd=32k|rcv-wnd=8k|so-sndbuf=8k|so-rcvbuf=8k",
        f"{LOCAL}|mtu=8k|so-sndbuf=0|rcv-wnd=8k|so-rcvbuf=0",
        f"{LOCAL}|media-rcv-ts-offset=reserved|channel-rcv-ts-offset=0|channel-snd-ts-offset=8",
        f"{GROUP}|interface=127.0.0.1/24|control=224.0.1.2:40456",
        "aeron:udp?endpoint=[ff02::1%eth0]:1|interface={eth0}|control=[ff02::2]:1",
        "aeron:udp?endpoint=localhost:1|control=[::1]:1",
        "aeron:ipc?control-mode=response|ttl=4|fc=min|reliable=false|so-sndbuf=1k",
    ],
)
def test_parameters_that_agree_stand_together(text: str) -> None:
    uri = ChannelUri.parse(text)
    assert ChannelUri.parse(str(uri)) == uri


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("aeron:udp?tags=,2", "needs an address"),
        ("aeron:udp?ttl=1", "needs an address"),
        ("aeron:udp?control-mode=dynamic", "needs an address"),
        (f"{LOCAL}|control-mode=dynamic", "control-mode=dynamic needs control=host:port"),
        ("aeron-spy:aeron:ipc", "subscribe to aeron:ipc directly"),
        ("aeron:ipc?endpoint=localhost:1", "endpoint=localhost:1 needs the network"),
        ("aeron:ipc?interface=localhost", "interface=localhost needs the network"),
        ("aeron:ipc?control=localhost:1", "control=localhost:1 needs the network"),
        ("aeron:ipc?control-mode=manual", "control-mode=manual needs the network"),
        ("aeron:udp?endpoint=224.0.1.2:40456", "must be odd"),
        ("aeron:udp?endpoint=[ff02::2]:40456", "must be odd"),
        (f"{GROUP}|control=10.0.0.1:1", "has no effect on the multicast endpoint"),
        (f"{GROUP}|control=224.0.1.2:40457", "control address is 224.0.1.2:40456; leave control"),
        (f"{LOCAL}|control=224.0.1.2:1", "is a multicast group"),
        ("aeron:udp?control=224.0.1.2:1", "is a multicast group"),
        (f"{LOCAL}|interface=[::1]", "is IPv4 but interface=.* is IPv6"),
        (f"{LOCAL}|control=[::1]:1", "is IPv4 but control=.* is IPv6"),
        (f"{LOCAL}|init-term-id=1", "together or not at all"),
        (f"{LOCAL}|init-term-id=1|term-id=1", "together or not at all"),
        (f"{LOCAL}|term-id=1|term-offset=0", "together or not at all"),
        (f"{LOCAL}|init-term-id=1|term-offset=0", "together or not at all"),
        (f"{LOCAL}|init-term-id=1|term-id=0|term-offset=0", "lies before init-term-id=1"),
        (f"{LOCAL}|init-term-id=-2147483648|term-id=0|term-offset=0", "lies before"),
        (f"{LOCAL}|init-term-id=1|term-id=1|term-offset=33", "multiple of 32"),
        (f"{LOCAL}|init-term-id=1|term-id=1|term-offset=65568|term-length=64k", "at most term-len"),
        (f"{LOCAL}|mtu=8224|term-length=64k", "an eighth of term-length=64k, 8192 bytes"),
        (f"{LOCAL}|mtu=1408|pub-wnd=1k", "pub-wnd=1k must be at least mtu=1408"),
        (f"{LOCAL}|term-length=64k|pub-wnd=32769", "at most half of term-length=64k, 32k"),
        (f"{LOCAL}|mtu=1408|rcv-wnd=1k", "rcv-wnd=1k must be at least mtu=1408"),
        (f"{LOCAL}|mtu=1408|so-sndbuf=1k", "so-sndbuf=1k must be at least mtu=1408"),
        (f"{LOCAL}|rcv-wnd=auto|cc=static", "rcv-wnd=auto contradicts cc=static"),
        (f"{LOCAL}|rcv-wnd=64k|so-rcvbuf=32k", "so-rcvbuf=32k must be at least rcv-wnd=64k"),
        (f"{LOCAL}|media-rcv-ts-offset=0|channel-rcv-ts-offset=7", "overlap"),
        (f"{LOCAL}|media-rcv-ts-offset=reserved|channel-snd-ts-offset=reserved", "overlap"),
        (f"{LOCAL}|channel-rcv-ts-offset=8|channel-snd-ts-offset=8", "overlap"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ChannelUriError, match=reason):
        ChannelUri.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        LOCAL,
        "aeron:ipc",
        "aeron:ipc?fc=min",
        f"{LOCAL}|reliable=false|rcv-wnd=64k|gtag=1",
        f"{LOCAL}|control=127.0.0.1:0|stream-id=1001",
        f"{GROUP}|fc=min",
        "aeron:udp?endpoint=group.example:1|fc=min",
        "aeron:udp?tags=1|fc=min",
        "aeron:udp?control=localhost:0|control-mode=dynamic|fc=tagged",
        "aeron:udp?endpoint=localhost:0|control-mode=manual|fc=max",
        "aeron:udp?control=localhost:1|control-mode=response|response-correlation-id=7",
        "aeron:udp?control=localhost:1|control-mode=response|response-correlation-id=prototype",
        f"{LOCAL}|response-correlation-id=7",
    ],
)
def test_a_publication_takes_what_it_can_use_and_what_only_its_receivers_use(text: str) -> None:
    ChannelUri.parse(text).check_publication(1001)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"aeron-spy:{LOCAL}", "aeron-spy: is for subscriptions"),
        ("aeron:udp?endpoint=localhost:0", "port 0; a publication needs the port"),
        ("aeron:udp?endpoint=h:0|control-mode=response|response-correlation-id=1", "port 0"),
        ("aeron:udp?control=localhost:1", "add endpoint=host:port or control-mode=dynamic"),
        (f"{GROUP}|control=224.0.1.2:40456|control-mode=dynamic", "leave out one of them"),
        (f"{LOCAL}|fc=min", "fc=min needs a group of receivers"),
        ("aeron:udp?control-mode=response|response-correlation-id=1|fc=max", "needs a group"),
        ("aeron:udp?control-mode=response", "no response-correlation-id set"),
        ("aeron:udp?control-mode=response|response-correlation-id=-1", "of the image to answer"),
        (f"{LOCAL}|response-correlation-id=prototype", "needs control-mode=response"),
        (f"{LOCAL}|stream-id=7", "stream-id=7 in the channel is not the stream asked for, 1001"),
        ("aeron:ipc?stream-id=7", "is not the stream asked for"),
    ],
)
def test_a_publication_refuses_what_no_publication_can_be(text: str, reason: str) -> None:
    with pytest.raises(ChannelUriError, match=reason):
        ChannelUri.parse(text).check_publication(1001)


@pytest.mark.parametrize(
    "text",
    [
        LOCAL,
        "aeron:ipc",
        f"aeron-spy:{LOCAL}",
        "aeron-spy:aeron:udp?control=localhost:0|control-mode=dynamic|tags=1",
        "aeron:udp?endpoint=localhost:0",
        "aeron:udp?control=localhost:1",
        "aeron:udp?control-mode=manual|stream-id=1001",
        f"{LOCAL}|mtu=1408|term-length=64k|linger=1s|fc=min|session-id=7",
    ],
)
def test_a_subscription_takes_what_it_can_use_and_what_only_its_source_uses(text: str) -> None:
    ChannelUri.parse(text).check_subscription(1001)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{LOCAL}|session-id=tag:7", "session-id=tag:7 is for publications"),
        (f"{LOCAL}|control=127.0.0.1:0", "port 0; a subscription needs the port"),
        (f"{LOCAL}|stream-id=7", "is not the stream asked for"),
    ],
)
def test_a_subscription_refuses_what_no_subscription_can_be(text: str, reason: str) -> None:
    with pytest.raises(ChannelUriError, match=reason):
        ChannelUri.parse(text).check_subscription(1001)


def test_the_stream_is_compared_only_where_it_is_known() -> None:
    uri = ChannelUri.parse(f"{LOCAL}|stream-id=7")
    uri.check_publication()
    uri.check_subscription()


def test_a_publication_sends_to_a_port_of_a_host() -> None:
    ChannelUri.parse(f"{LOCAL}|interface=127.0.0.1").check_send_destination()


FORBIDDEN = [
    ("mtu=1408", "mtu belongs to"),
    ("rcv-wnd=64k", "rcv-wnd belongs to"),
    ("so-sndbuf=64k", "so-sndbuf belongs to"),
    ("so-rcvbuf=64k", "so-rcvbuf belongs to"),
    ("response-correlation-id=1", "response-correlation-id belongs to"),
    ("control-mode=response", "control-mode=response belongs to"),
]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"aeron-spy:{LOCAL}", "UDP destinations only"),
        ("aeron:ipc", "UDP destinations only"),
        ("aeron:udp?control=localhost:1", "needs endpoint=host:port"),
        ("aeron:udp?endpoint=localhost:0", "port 0; a destination needs the port"),
        *((f"{LOCAL}|{parameter}", reason) for parameter, reason in FORBIDDEN),
    ],
)
def test_a_send_destination_refuses_what_is_no_place_to_send_to(text: str, reason: str) -> None:
    with pytest.raises(ChannelUriError, match=reason):
        ChannelUri.parse(text).check_send_destination()


@pytest.mark.parametrize(
    "text",
    [
        LOCAL,
        "aeron:ipc",
        f"aeron-spy:{LOCAL}",
        "aeron:udp?endpoint=localhost:0|control=localhost:1|control-mode=dynamic",
        "aeron:udp?control=localhost:1",
        f"{GROUP}|interface=127.0.0.1",
    ],
)
def test_a_subscription_receives_from_networks_memory_and_spies(text: str) -> None:
    ChannelUri.parse(text).check_receive_destination()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("aeron:udp?control-mode=manual", "needs endpoint=host:port, control=host:port or both"),
        ("aeron:udp?control=localhost:0", "port 0; a subscription needs the port"),
        ("aeron:ipc?mtu=1408", "mtu belongs to"),
        *((f"{LOCAL}|{parameter}", reason) for parameter, reason in FORBIDDEN),
    ],
)
def test_a_receive_destination_refuses_what_nothing_comes_from(text: str, reason: str) -> None:
    with pytest.raises(ChannelUriError, match=reason):
        ChannelUri.parse(text).check_receive_destination()
