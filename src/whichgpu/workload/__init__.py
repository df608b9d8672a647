"""Workloads: a task on a model, its shape and its layout."""
