"""Question: what is left of an honest stream while its ports are flooded by a hostile peer?

`python -m benchmarks.hostile` runs a publisher, a subscriber and an attacker in processes of their
own, over loopback. The stream is offered at 10 MB/s in messages of 1 kB, every one of which is
checked; the attacker sends all attacks of `tests.support.hostile` mixed, at more than 100,000
datagrams a second, from sockets of its own. Each run has a part before the attack, a part under it
and a part after it; medians of several runs are printed as JSON.

The publication's socket is connected, so the kernel drops what the attacker sends there. With
`--everything` that too goes to the subscription's endpoint, which is open to everybody.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from itertools import pairwise
from statistics import median
from threading import Thread
from typing import Any, Final

import uvloop

from benchmarks import hostile_roles as roles
from tests.support.hostile import ATTACKS
from tests.support.victim import Target, Victim

PORT: Final = 20_131
BEFORE_S: Final = 4
AFTER_S: Final = 8
WARM_UP_S: Final = 1
NORMAL: Final = 0.9
"""Share of the throughput before the attack that counts as normal again."""


class Peer:
    """A process, and what it has reported."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "benchmarks.hostile", *arguments]
        self.process = subprocess.Popen(  # noqa: S603 - this very module
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.lines: list[dict[str, Any]] = []
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait_for(self, key: str, timeout: float) -> Any:
        """Return the first value reported under a key.

        Raises:
            RuntimeError: It was not reported in time.
        """
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            for line in list(self.lines):
                if key in line:
                    return line[key]
            time.sleep(0.01)
        message = f"no {key} within {timeout} s; the last was {self.lines[-1:]}"
        raise RuntimeError(message)

    def at(self, key: str) -> float:
        """Return when a key was reported first."""
        return float(next(line["time"] for line in self.lines if key in line))

    def series(self, key: str) -> list[tuple[float, float]]:
        """Return every value of a key, with its time."""
        return [(line["time"], line[key]) for line in self.lines if key in line]

    def join(self, timeout: float) -> None:
        """Wait for its end."""
        self.process.wait(timeout)
        self._thread.join(timeout)

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(map(json.loads, self.process.stdout))


def run(options: argparse.Namespace, seed: int) -> dict[str, float]:
    """Run once, and return the figures."""
    channel = f"aeron:udp?endpoint=127.0.0.1:{PORT}{options.parameters}"
    total = BEFORE_S + options.seconds + AFTER_S
    subscriber = Peer("--role", "subscribe", "--channel", channel)
    subscriber.wait_for("ready", 30)
    publisher = Peer("--role", "publish", "--channel", channel, "--seconds", str(total))
    victim = publisher.wait_for("victim", 30)
    time.sleep(BEFORE_S)
    position = publisher.series("offered")[-1][1] * roles.FRAMED_LENGTH
    plan = {"victim": {**victim, "position": position}, "ports": publisher.wait_for("ports", 1)}
    plan |= {"seconds": options.seconds, "seed": seed, "everything": options.everything}
    plan["names"] = options.attacks
    attacker = Peer("--role", "attack", "--plan", json.dumps(plan))
    for each in (attacker, publisher, subscriber):
        each.join(total + 120)
    return figures(publisher, subscriber, attacker)


def figures(publisher: Peer, subscriber: Peer, attacker: Peer) -> dict[str, float]:
    """Return what a run came to."""
    began, ended = attacker.at("started"), attacker.at("ended")
    received = subscriber.series("received")
    failure = next((line["failure"] for line in subscriber.lines if "failure" in line), None)
    if failure is not None:
        raise RuntimeError(failure)
    before = rate(received, began - BEFORE_S + WARM_UP_S, began)
    under = rate(received, began, ended)
    shot = attacker.lines[-1]
    return {
        "before_mb_s": before,
        "under_mb_s": under,
        "ratio": under / before,
        "lost": publisher.lines[-1]["offered"] - received[-1][1],
        "publisher_growth_mib": growth(publisher, began),
        "subscriber_growth_mib": growth(subscriber, began),
        "shots_per_s": shot["shot_rate"],
        "answered_per_byte": shot["answered_length"] / shot["shot_length"],
        "normal_after_s": normal_after(received, ended, NORMAL * before),
        "naks": subscriber.lines[-1]["counters"].get("NAKs sent", 0),
        "invalid": subscriber.lines[-1]["counters"].get("Invalid packets", 0),
        "taken_share": subscriber.lines[-1]["counters"].get("Bytes received", 0)
        / (shot["shot_length"] + received[-1][1] * roles.FRAMED_LENGTH),
    }


def rate(received: list[tuple[float, float]], start: float, end: float) -> float:
    """Return the throughput between two times, in MB/s."""
    inside = [each for each in received if start <= each[0] <= end]
    if len(inside) < 2:  # noqa: PLR2004 - a difference needs two
        return 0.0
    (first, first_count), (last, last_count) = inside[0], inside[-1]
    return (last_count - first_count) * roles.LENGTH / (last - first) / 1e6


def growth(peer: Peer, began: float) -> float:
    """Return by how much the resident memory of a process has grown since the attack began."""
    memory = peer.series("resident_mib")
    before = max(value for at, value in memory if at < began)
    return max(value for _, value in memory) - before


def normal_after(received: list[tuple[float, float]], ended: float, wanted: float) -> float:
    """Return how long after the attack the throughput is as before; -1 where it never is."""
    later = [each for each in received if each[0] > ended - roles.REPORT_S]
    for (first, first_count), (last, last_count) in pairwise(later):
        if (last_count - first_count) * roles.LENGTH / (last - first) / 1e6 >= wanted:
            return max(0.0, first - ended)
    return -1.0


def play(options: argparse.Namespace) -> None:
    """Play one of the three roles."""
    if options.role == "publish":
        uvloop.run(roles.publish(options.channel, options.seconds))
    elif options.role == "subscribe":
        uvloop.run(roles.subscribe(options.channel))
    else:
        plan = json.loads(options.plan)
        ports = {Target.SENDER: plan.pop("ports"), Target.RECEIVER: [PORT]}
        roles.attack(Victim(**plan.pop("victim")), ports, **plan)


def attacks(text: str) -> list[str]:
    """Return the attacks of a comma-separated list; all but these where it begins with a minus.

    Raises:
        ArgumentTypeError: One of them does not exist.
    """
    names = set(filter(None, text.removeprefix("-").split(",")))
    known = [each.__name__ for each in ATTACKS]
    if unknown := names - set(known):
        message = f"no attack {', '.join(sorted(unknown))}; there are {', '.join(known)}"
        raise argparse.ArgumentTypeError(message)
    is_without = text.startswith("-") or not names
    return [each for each in known if (each in names) is not is_without]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="of attack, in each run")
    parser.add_argument("--everything", action="store_true", help="shoot at one socket only")
    parser.add_argument("--attacks", type=attacks, default=attacks(""), help="comma-separated")
    parser.add_argument("--parameters", default="", help="of the channel, such as |so-rcvbuf=2m")
    parser.add_argument("--role", choices=("publish", "subscribe", "attack"))
    parser.add_argument("--channel", default="")
    parser.add_argument("--plan", default="{}")
    options = parser.parse_args()
    if options.role is not None:
        play(options)
        return
    runs = []
    for seed in range(options.runs):
        runs.append(run(options, seed))
        print(json.dumps(runs[-1]), flush=True)
    print(json.dumps({name: median(each[name] for each in runs) for name in runs[0]}))


if __name__ == "__main__":
    main()
