"""Drive a target with Atheris, which follows the coverage of `aeron_async`: `make fuzz`.

    python -m tests.fuzz.run TARGET --runs 100000
    python -m tests.fuzz.run --all --runs 100000

New inputs gather in `build/fuzz/TARGET` (or `--corpus`), beside those of `tests/fuzz/corpus`, which
are read and never written. What fails is left as `build/fuzz/TARGET-crash-...`, `-timeout-...` or
`-oom-...`; as `tests/fuzz/crashes/TARGET-what.bin` the test run replays it.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
CORPUS: Final = Path(__file__).parent / "corpus"
WORK: Final = ROOT / "build" / "fuzz"
CONVERSATIONS: Final = frozenset({"receiver", "sender"})
RSS_LIMIT_MB: Final = 512
# Ten milliseconds are allowed for a datagram, and 200 datagrams for a conversation; the clock of
# the fuzzer knows whole seconds only.
TIMEOUT_S: Final = 2
LENGTHS: Final = {"datagram": 1_408, "channel_uri": 512, "pcap": 512, "values": 96}
LONGEST_FRAME: Final = 256
LONGEST_SCRIPT: Final = 400
FINAL: Final = re.compile(r"stat::(\w+):\s+(\d+)")


def main() -> int:
    """Run one target in this process, or all of them, each in its own."""
    parser = argparse.ArgumentParser(description="Fuzz the parsers and endpoints of aeron_async.")
    parser.add_argument("target", nargs="?", help="which; leave it out to see their names")
    parser.add_argument("--all", action="store_true", help="every target, one after the other")
    parser.add_argument("--runs", type=int, default=100_000, help="inputs for each target")
    parser.add_argument("--corpus", type=Path, help="where new inputs go: build/fuzz/TARGET")
    parser.add_argument("--seed", type=int, default=0, help="0 takes another one each time")
    options = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        parser.error(
            "Atheris is not installed: there is a wheel for Linux on x86-64, Python < 3.14"
        )
    if options.all:
        return run_all(options)
    atheris: Any = importlib.import_module("atheris")
    # Whatever is imported in here is rewritten to tell which branches were taken.
    with atheris.instrument_imports(include=["aeron_async"]):
        targets = importlib.import_module("tests.fuzz.targets").TARGETS
    if options.target not in targets:
        parser.error(f"TARGET must be one of {', '.join(targets)}")
    atheris.Setup([sys.argv[0], *arguments(options)], targets[options.target])
    atheris.Fuzz()
    return 0


def arguments(options: argparse.Namespace) -> list[str]:
    """Return what libFuzzer is told."""
    target = options.target
    corpus = options.corpus or WORK / target
    corpus.mkdir(parents=True, exist_ok=True)
    default = LONGEST_SCRIPT if target in {*CONVERSATIONS, "log"} else LONGEST_FRAME
    return [
        f"-runs={options.runs}",
        f"-seed={options.seed}",
        f"-max_len={LENGTHS.get(target, default)}",
        f"-timeout={TIMEOUT_S}",
        f"-rss_limit_mb={RSS_LIMIT_MB}",
        f"-artifact_prefix={corpus}-",
        "-print_final_stats=1",
        str(corpus),
        *([str(CORPUS / target)] if (CORPUS / target).is_dir() else []),
    ]


def run_all(options: argparse.Namespace) -> int:
    """Run every target in a process of its own, and print a line for each."""
    targets = importlib.import_module("tests.fuzz.targets").TARGETS
    is_clean = True
    for target in targets:
        command = [sys.executable, "-m", "tests.fuzz.run", target, f"--runs={options.runs}"]
        started = perf_counter()
        process = subprocess.run(
            [*command, f"--seed={options.seed}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        figures = dict(FINAL.findall(process.stderr))
        count = int(figures.get("number_of_executed_units", 0))
        rate = count / (perf_counter() - started)
        verdict = "clean" if process.returncode == 0 else "FAILED"
        print(f"{target:16} {count:>12,} runs {rate:>9,.0f} /s  {verdict}", flush=True)
        if process.returncode:
            is_clean = False
            print(process.stdout[-4_000:], process.stderr[-4_000:], sep="\n")
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
