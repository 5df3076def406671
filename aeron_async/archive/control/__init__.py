"""The control protocol of archives: its messages, serving them, and asking another archive."""
