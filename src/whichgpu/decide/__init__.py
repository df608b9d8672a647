"""Which way to run it: candidates, their cost, the best of them, and why."""
