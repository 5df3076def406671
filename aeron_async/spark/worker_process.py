"""What is done once in each Python worker of Spark.

Source: `pyspark.daemon`, which collects garbage after each task of a worker that it keeps.
"""

from __future__ import annotations

import gc

from pyspark import TaskContext

__all__ = ["settle"]


def settle() -> None:
    """Spare what has been imported from collection, once in a worker; nothing elsewhere.

    Spark collects after each task, and walks all modules each time: some 200,000 objects and
    40 ms, as long as reading 50 MB takes. They are no garbage, and never will be.
    """
    if TaskContext.get() is None or gc.get_freeze_count():
        return
    gc.collect()
    gc.freeze()
