from __future__ import annotations

import socket
from itertools import islice

from tests.ports import unused_udp_ports


def test_workers_have_ports_of_their_own() -> None:
    first, second = (set(islice(unused_udp_ports(f"gw{n}", 2), 100)) for n in range(2))
    assert len(first) == len(second) == 100
    assert first.isdisjoint(second)


def test_a_port_that_is_held_is_passed_over() -> None:
    port = next(unused_udp_ports())
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", port))
        assert port not in islice(unused_udp_ports(), 10)
    assert port in islice(unused_udp_ports(), 10)
