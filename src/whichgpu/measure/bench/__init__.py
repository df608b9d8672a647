"""Benchmarks of a GPU: single operators, then whole steps; PyTorch runs them behind the interface `Bench`."""
