"""Pictures and tables of runs."""
