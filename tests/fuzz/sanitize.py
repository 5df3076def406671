"""Build the compiled modules with sanitizers, and call their functions: `make sanitize`.

    python -m tests.fuzz.sanitize --runs 10000000
    python -m tests.fuzz.sanitize frames messages --runs 100000 --seed 7

The package is built in `build/sanitized`, and what is installed stays as it is. AddressSanitizer
and UndefinedBehaviorSanitizer watch the same calls, and the first thing that either of them sees
ends the process. It needs GCC.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.fuzz.compiled import MODULES

ROOT: Final = Path(__file__).parents[2]
BUILT: Final = ROOT / "build" / "sanitized"
FLAGS: Final = (
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    *("-fno-omit-frame-pointer", "-g", "-O1"),
    # What Python was built with makes an overflow wrap around, and hides it.
    "-fno-wrapv",
)
BUILDER: Final = """
import sys
from setuptools import Distribution
from setuptools.config.pyprojecttoml import apply_configuration
package = Distribution({"script_name": "setup.py"})
apply_configuration(package, "pyproject.toml", ignore_option_errors=True)
for each in package.ext_modules:
    each.extra_compile_args, each.optional = sys.argv[2:], False
where = {"build_lib": ("here", sys.argv[1]), "force": ("here", "1")}
package.get_option_dict("build_py").update(where)
where["build_temp"] = ("here", sys.argv[1] + "-objects")
package.get_option_dict("build_ext").update(where)
package.run_command("build_py")
package.run_command("build_ext")
"""


def main() -> int:
    """Build what has changed, and run each module in a process of its own."""
    parser = argparse.ArgumentParser(description="Fuzz the compiled modules under sanitizers.")
    parser.add_argument("modules", nargs="*", help="which; all if none is named")
    parser.add_argument("--runs", type=int, default=100_000, help="calls for each module")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    build()
    failed = [each for each in options.modules or MODULES if not run(each, options)]
    if failed:
        print(f"seen by a sanitizer, or failed: {', '.join(failed)}")
    return 1 if failed else 0


def build() -> None:
    """Build the package with sanitizers."""
    command = [sys.executable, "-W", "ignore", "-c", BUILDER, str(BUILT), *FLAGS]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def run(name: str, options: argparse.Namespace) -> bool:
    """Call the functions of one module; return whether nothing was seen."""
    # Without -P the package in the working directory would be found first.
    command = [
        sys.executable,
        "-P",
        "-X",
        "faulthandler",
        "-m",
        "tests.fuzz.compiled",
        name,
        "--each",
    ]
    settings = [f"--runs={options.runs}", f"--seed={options.seed}"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(BUILT), str(ROOT))),
        # Python's own allocator would hide what lies between its blocks.
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": " ".join(library(each) for each in ("asan", "ubsan")),
        # Python frees little of what it has when it ends. Its handlers say where in Python it was.
        "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0:allocator_may_return_null=1:"
        "quarantine_size_mb=32:strict_memcmp=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    return (
        subprocess.run([*command, *settings], cwd=ROOT, env=environment, check=False).returncode
        == 0
    )


def library(name: str) -> str:
    """Return where the compiler has the library of a sanitizer."""
    command = ["gcc", f"-print-file-name=lib{name}.so"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return found.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
