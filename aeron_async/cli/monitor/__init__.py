"""Command `aeron-async monitor`: a local web page that shows one or several drivers."""

from aeron_async.cli.monitor.command import monitor

__all__ = ["monitor"]
