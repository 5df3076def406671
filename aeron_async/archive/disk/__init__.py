"""Files of an archive: reading, writing, verifying and repairing, without tasks or streams."""
