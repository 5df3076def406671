"""What a figure must not be read without: the machine, the versions, and how busy it was."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from aeron_async._speedups import WHY_PURE

__all__ = ["machine", "processor_of"]

PEERS = ("pyzmq", "eclipse-zenoh", "nats-py", "grpcio", "iceoryx2")
CPUINFO = Path("/proc/cpuinfo")


def machine() -> dict[str, object]:
    """Return the facts, in the order they are printed."""
    return {
        "processor": processor_of(CPUINFO.read_text()) if CPUINFO.exists() else "unknown",
        "cores": os.cpu_count(),
        "load before": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "uvloop": installed("uvloop"),
        **{peer: installed(peer) for peer in PEERS},
        "compiled code": "in use" if WHY_PURE is None else f"not in use: {WHY_PURE}",
        "rmem_max": sysctl("rmem_max"),
    }


def processor_of(cpuinfo: str) -> str:
    """Return the name of the processor, from the text of /proc/cpuinfo."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def installed(package: str) -> str:
    """Return the version of a package, or that it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def sysctl(name: str) -> str:
    """Return a limit on socket buffers."""
    path = Path("/proc/sys/net/core") / name
    return path.read_text().strip() if path.exists() else "unknown"
