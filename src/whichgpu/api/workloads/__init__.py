"""Verbs about one workload: memory, time, layouts, behaviour under load."""
