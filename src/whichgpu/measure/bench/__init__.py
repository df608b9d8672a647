"""Benchmarks of a GPU: single operators, then whole steps; what runs them is behind the `Bench` seam."""
