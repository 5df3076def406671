"""Flow control: how status messages become the sender limit."""
