"""What an archive keeps on disk; nothing here knows tasks or streams."""
