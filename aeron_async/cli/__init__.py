"""The `aeron-async` command line, one module per command, imported lazily."""
