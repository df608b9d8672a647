"""Verbs about the catalog: GPUs, instances, models, engines, sources, accuracy."""
