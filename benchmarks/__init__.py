"""Programs that measure, each with its question in its first line."""
