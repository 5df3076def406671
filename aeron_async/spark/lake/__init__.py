"""Lake of Delta tables: what recordings become, and what analysts read."""
