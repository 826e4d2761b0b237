"""The run directory: everything that reads or writes its files."""
