"""Workloads: a task on a model, its shape (batch and sequence lengths) and its parallel layout."""
