"""`python -m aeron_async` is the command `aeron-async`."""

from __future__ import annotations

import sys

from aeron_async.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
