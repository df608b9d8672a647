"""Candidates of a question, their cost, the best of them, and why."""
