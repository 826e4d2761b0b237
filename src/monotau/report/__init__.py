"""`monotau report`: one page with figures and tables that compare runs, and the figures of a single run."""
