"""Several hosts on one machine: network namespaces joined by two bridges, which a test makes.

Each host has an `eth0` on the first network and an `eth1` on the second. A driver of a host runs in
this process and this event loop; only its sockets are opened inside the host's namespace.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from aeron_async.driver.media.network import system_interfaces
from tests.slow.lossy_network import LossyNetwork

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from aeron_async.driver.media.network import InterfaceAddress
    from aeron_async.driver.media.sockets import SocketAddress, SocketSpec

NETWORKS: Final = ("10.199.1", "10.199.2")
CLONE_NEWNET: Final = 0x40000000
HERE: Final = Path("/proc/self/task")
NETEM: Final = ("loss", "2%", "delay", "1ms")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def may(*command: str, remedy: str) -> None:
    """Run a command, or skip the test: what it needs, this machine does not let us do."""
    done = run(*command)
    if done.returncode:
        pytest.skip(f"{' '.join(command)}: {done.stderr.strip()}; {remedy}")


def must(*command: str) -> None:
    """Run a command that works where the first of its kind did."""
    done = run(*command)
    assert not done.returncode, f"{' '.join(command)}: {done.stderr.strip()}"


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Be in a namespace, this thread and no other, until the block is left."""
    libc = ctypes.CDLL(None, use_errno=True)
    own = os.open(HERE / str(threading.get_native_id()) / "ns" / "net", os.O_RDONLY)
    other = os.open(Path("/run/netns") / namespace, os.O_RDONLY)
    try:
        if libc.setns(other, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
        try:
            yield
        finally:
            assert libc.setns(own, CLONE_NEWNET) == 0
    finally:
        os.close(own)
        os.close(other)


class HostNetwork(LossyNetwork):
    """The network as one host sees it.

    Args:
        namespace: Of the host.
        names: What it resolves, besides numeric addresses.
        loss: Share of the datagrams that it loses on arrival.
    """

    def __init__(self, namespace: str, names: dict[str, str], loss: float) -> None:
        super().__init__(loss, random.Random(namespace))
        self._namespace = namespace
        self._names = names

    async def open(
        self, protocol_factory: Callable[[], asyncio.DatagramProtocol], spec: SocketSpec
    ) -> asyncio.DatagramTransport:
        # A socket of our own is opened without giving up the loop, so that nobody else is inside.
        opening = super().open(protocol_factory, spec)
        with inside(self._namespace):
            try:
                opening.send(None)
            except StopIteration as opened:
                transport: asyncio.DatagramTransport = opened.value
                return transport
        message = "opening a socket has waited for something"
        raise AssertionError(message)

    async def resolve(
        self, host: str, port: int, *, is_re_resolution: bool = False
    ) -> SocketAddress:
        name = self._names.get(host, host)
        return await super().resolve(name, port, is_re_resolution=is_re_resolution)

    async def interfaces(self) -> tuple[InterfaceAddress, ...]:
        with inside(self._namespace):
            return system_interfaces()


class Hosts:
    """The hosts of one test.

    Attributes:
        names: What every host resolves, besides numeric addresses.
        loss: Share of the datagrams that a driver loses on arrival, where the system cannot do it.
    """

    def __init__(self, count: int) -> None:
        self.names: dict[str, str] = {}
        self.loss = 0.0
        self._prefix = f"aa{os.getpid() % 10_000}"
        self._switch = f"{self._prefix}sw"
        self._namespaces = [f"{self._prefix}h{number}" for number in range(count)]

    def address(self, host: int, network: int = 0) -> str:
        return f"{NETWORKS[network]}.{host + 1}"

    def network(self, host: int) -> HostNetwork:
        return HostNetwork(self._namespaces[host], self.names, self.loss)

    def make(self) -> None:
        if shutil.which("ip") is None:
            pytest.skip("there is no `ip` on this machine: install iproute2")
        self._find_out()
        for number in range(len(NETWORKS)):
            self._in_switch("ip", "link", "add", f"br{number}", "type", "bridge")
            self._in_switch("ip", "link", "set", f"br{number}", "up")
        for host, namespace in enumerate(self._namespaces):
            must("ip", "netns", "add", namespace)
            must("ip", "-n", namespace, "link", "set", "lo", "up")
            for number, network in enumerate(NETWORKS):
                plug = f"{self._prefix}p{host}{number}"
                must(
                    *("ip", "link", "add", plug, "netns", self._switch, "type", "veth"),
                    *("peer", "name", f"eth{number}", "netns", namespace),
                )
                self._in_switch("ip", "link", "set", plug, "master", f"br{number}", "up")
                must("ip", "-n", namespace, "link", "set", f"eth{number}", "up")
                must(
                    *("ip", "-n", namespace, "addr", "add", f"{network}.{host + 1}/24"),
                    *("dev", f"eth{number}"),
                )

    def _find_out(self) -> None:
        """Make one of everything that is needed, or skip the test where the system refuses."""
        may("ip", "netns", "add", self._switch, remedy="network namespaces need root")
        inside = ("ip", "netns", "exec", self._switch, "ip", "link", "add", "try", "type")
        for kind in ("bridge", "veth"):
            may(*inside, kind, remedy=f"this needs root, and a Linux kernel with `{kind}`")
            self._in_switch("ip", "link", "del", "try")

    def lose(self) -> None:
        """Let every link lose and delay: by the system where it can, else by our own hand."""
        for namespace in self._namespaces:
            done = run(
                *("ip", "netns", "exec", namespace, "tc", "qdisc", "add", "dev", "eth0", "root"),
                *("netem", *NETEM),
            )
            if done.returncode:
                self.loss = 0.02
                return

    def move(self, host: int, last: int) -> str:
        """Give a host another address on the first network in place of its own; return that."""
        namespace, device = self._namespaces[host], ("dev", "eth0")
        address = f"{NETWORKS[0]}.{last}"
        must("ip", "-n", namespace, "addr", "flush", *device)
        must("ip", "-n", namespace, "addr", "add", f"{address}/24", *device)
        return address

    def close(self) -> None:
        for namespace in (*self._namespaces, self._switch):
            run("ip", "netns", "del", namespace)

    def _in_switch(self, *command: str) -> None:
        must("ip", "netns", "exec", self._switch, *command)
